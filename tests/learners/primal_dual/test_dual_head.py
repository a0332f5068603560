"""The dual regression head: what it learns, its limits, and the faults it must not have."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from labelwise.errors import BadInput, LabelwiseWarning, UnknownName
from labelwise.learners.primal_dual import dual_head
from labelwise.learners.primal_dual.dual_head import PAPER, ROBUST, DualHead, DualHeadRecipe


def make_items(m=200, d=5, seed=0):
    """Features, one of which is constant, and duals that are a function of two of them."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(m, d, generator=generator)
    features[:, -1] = 3.0
    return features, 2 * features[:, 0].relu() + features[:, 1].square()


def fitted(recipe="robust", m=200, seed=0, weights=None, **scales):
    features, duals = make_items(m)
    head = DualHead(recipe)
    report = head.fit(
        features * scales.get("features", 1) + scales.get("shift", 0),
        duals * scales.get("duals", 1),
        weights,
        seed=seed,
    )
    return head, report


def test_predicts_duals_of_items_it_has_not_seen():
    head, report = fitted(m=300)
    features, duals = make_items(400, seed=9)
    with torch.no_grad():
        error = float((head(features) - duals).square().mean())
    assert error < 0.35 * float(duals.var())
    assert report.held_out_error < 0.4 * report.spread**2


def test_the_recipe_of_the_paper_learns_too():
    _, report = fitted(replace(PAPER, lr=0.01, goal=None))
    assert report.error < 0.6 * report.spread**2 and report.held_out_error is None


def test_the_layers_of_the_paper_are_64_32_16_with_batch_norm_and_dropout():
    layers = dual_head._build_dual_head(7, PAPER)
    names = [type(layer).__name__ for layer in layers]
    assert names == ["Linear", "BatchNorm1d", "ReLU", "Dropout"] * 3 + ["Linear", "ReLU"]
    shapes = [
        tuple(p.shape) for p in dual_head._build_dual_head(7, PAPER).parameters() if p.ndim == 2
    ]
    assert shapes == [(64, 7), (32, 64), (16, 32), (1, 16)]
    rates = [layer.p for layer in layers if hasattr(layer, "p")]
    assert rates == [0.3, 0.25, 0.25]


@pytest.mark.parametrize("recipe", ["robust", replace(PAPER, goal=None)], ids=["robust", "paper"])
@pytest.mark.parametrize("m", [2, 3, 5, 63, 65, 129])
def test_any_number_of_items_will_do(recipe, m):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelwiseWarning)
        head, report = fitted(recipe, m)
    features, _ = make_items(77, seed=3)
    with torch.no_grad():
        predicted = head(features)
    assert predicted.shape == (77,) and bool((predicted >= 0).all())
    assert np.isfinite(report.error)


def test_the_last_incomplete_batch_is_learned_from():
    """Of 65 items only the last has a dual; batches of 64 in order would never see it."""
    features = torch.zeros(65, 2)
    features[64] = 1.0
    duals = torch.zeros(65)
    duals[64] = 1.0
    head = DualHead(replace(PAPER, dropout=(), goal=None, lr=0.01, epochs=200))
    head.fit(features, duals, seed=0)
    low, high = head(torch.tensor([[0.0, 0.0], [1.0, 1.0]])).tolist()
    assert high > low + 0.3


def test_units_of_features_and_duals_do_not_matter():
    features, _ = make_items(50, seed=4)
    quick = replace(ROBUST, epochs=20)
    with torch.no_grad():  # fitting needs gradients all the same
        plain = fitted(quick)[0](features)
        scaled = fitted(quick, features=64.0, duals=1024.0)[0](64 * features)
    torch.testing.assert_close(scaled / 1024, plain, rtol=1e-2, atol=1e-2)


def test_ends_at_the_goal():
    _, report = fitted(replace(PAPER, goal=1e9))
    assert report.epochs == 1


def test_keeps_the_epoch_with_the_smallest_held_out_error():
    """Without the rest of the fit, the error where it stopped is not smaller."""
    _, report = fitted(replace(ROBUST, patience=8), m=64)
    errors = []
    for epochs in range(1, report.epochs + 1, 4):
        _, shorter = fitted(replace(ROBUST, epochs=epochs), m=64)
        errors.append(shorter.held_out_error)
    assert report.held_out_error <= min(errors) + 1e-6
    assert report.held_out_error < 0.7 * errors[0]
    assert report.epochs < ROBUST.epochs


def test_an_item_of_weight_zero_does_not_count():
    features, duals = make_items(60)
    wrong = duals.clone()
    wrong[::3] = 1000.0
    weights = torch.ones(60)
    weights[::3] = 0
    head = DualHead()
    head.fit(features, wrong, weights, seed=0)
    with torch.no_grad():
        assert float(head(features).max()) < 3 * float(duals.max())


def test_zero_duals_give_zero_predictions_and_a_warning():
    features, duals = make_items(30)
    head = DualHead()
    with pytest.warns(LabelwiseWarning, match="epsilon is too large"):
        head.fit(features, 0 * duals, seed=0)
    leaf = features.clone().requires_grad_()
    predicted = head(leaf)
    predicted.sum().backward()
    assert (predicted == 0).all() and (leaf.grad == 0).all()


def test_a_dead_head_is_reported():
    features, duals = make_items(30)
    dying = replace(PAPER, lr=50.0, dropout=(), goal=None, epochs=5)
    with pytest.warns(LabelwiseWarning, match="the dual head is dead: it predicts 0 for every"):
        for seed in range(10):
            DualHead(dying).fit(features, duals, seed=seed)


def test_the_output_of_the_robust_head_cannot_die():
    """Softplus is positive and has a slope everywhere, whatever the layers before it give."""
    head, _ = fitted(replace(ROBUST, epochs=2, lr=0.5), m=24)
    features = torch.randn(50, 5, generator=torch.Generator().manual_seed(2)).requires_grad_()
    predicted = head(features)
    predicted.sum().backward()
    assert (predicted > 0).all() and (features.grad != 0).any(dim=1).all()


def test_the_same_seed_gives_the_same_head_and_leaves_torchs_randomness_alone():
    features, _ = make_items(20, seed=1)
    before = torch.random.get_rng_state()
    quick = replace(ROBUST, epochs=5)
    one, again, other = (fitted(quick, seed=seed)[0](features) for seed in (0, 0, 1))
    assert torch.equal(one, again) and not torch.equal(one, other)
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_restored_head_predicts_the_same():
    head, _ = fitted(replace(ROBUST, epochs=5))
    features, _ = make_items(20, seed=1)
    state = head.describe_state()
    facts = {key: list(v) if isinstance(v, tuple) else v for key, v in state.items()}
    again = DualHead.restore_state(head.tensors(), facts)
    assert torch.equal(head(features), again(features))


def test_bad_input_gets_a_clear_error():
    features, duals = make_items(30)
    with pytest.raises(UnknownName, match="no dual head is called 'deep'; choose from robust"):
        DualHead("deep")
    with pytest.raises(BadInput, match="not fitted yet"):
        DualHead()(features)
    with pytest.raises(BadInput, match="2 labelled items or more; got 1"):
        DualHead().fit(features[:1], duals[:1], seed=0)
    with pytest.raises(BadInput, match="duals must be finite and not negative"):
        DualHead().fit(features, -duals, seed=0)
    with pytest.raises(BadInput, match=r"got \(30, 5\), \(29,\)"):
        DualHead().fit(features, duals[1:], seed=0)
    with pytest.raises(BadInput, match="features of labelled items must be finite"):
        DualHead().fit(features * np.inf, duals, seed=0)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"dropout": (0.1,)}, "3 hidden layers but 1 dropout rates"),
        ({"held_out": 1.0}, "held_out must be a share from 0 to below 1"),
        ({"epochs": 0}, "epochs must be above 0; got 0"),
        ({"smooth": False, "batch_size": 2}, "batch_size must be 3 or more with batch norm"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(changes, message):
    with pytest.raises(BadInput, match=message):
        DualHeadRecipe(**changes)
