"""What is learnt: with labels held out, in a regression, and where it cannot work."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labelwise.errors import BadInput, NotConverged
from labelwise.learners.labels import split_holdout
from labelwise.learners.torch_learner import TorchLearner
from tests.learners.torch_learner.small import (
    INPUTS,
    LABELS,
    NAMES,
    POOL,
    VALUES,
    assert_states,
    network,
    state,
    trained,
)


def test_labels_held_out_are_counted():
    report = TorchLearner(network, epochs=2, validation=0.25).fit(INPUTS, LABELS, seed=0)
    assert (report.training_labels, report.validation_labels) == (45, 15)
    report = TorchLearner(network, epochs=2).fit(INPUTS, LABELS, seed=0)
    assert (report.training_labels, report.validation_labels) == (60, 0)
    assert report.seconds > 0 and report.steps == 2 and not report.converged


def test_held_out_items_can_be_given_and_the_epoch_that_is_best_for_them_is_kept():
    held = (POOL, np.zeros(47, dtype=int))
    shorter = [trained(epochs=epochs, lr=0.05) for epochs in range(1, 9)]
    losses = [-np.log(one.represent(POOL, NAMES)["probabilities"][:, 0]).mean() for one in shorter]
    best = int(np.argmin(losses))
    learner = TorchLearner(network, epochs=8, lr=0.05, validation=held)
    report = learner.fit(INPUTS, LABELS, seed=0)
    assert (report.training_labels, report.validation_labels) == (60, 47)
    assert_states(state(learner), state(shorter[best]), rtol=0, atol=0)
    assert 0 < best < 7  # the case is not trivial


def test_patience_ends_a_training():
    learner = TorchLearner(network, epochs=2000, lr=0.05, patience=3, validation=0.3)
    report = learner.fit(INPUTS, np.roll(LABELS, 7), seed=0)
    assert report.converged and report.steps < 2000


def test_items_held_out_are_not_trained_on():
    """What is in the held-out items cannot reach the parameters of the only epoch."""
    _, held = split_holdout(torch.from_numpy(LABELS), True, 0.5, np.random.default_rng([5, 2]))
    other = INPUTS.copy()
    other[held] = 100.0
    one, two = (trained(inputs=x, validation=0.5, epochs=1, seed=5) for x in (INPUTS, other))
    assert_states(state(one), state(two), rtol=0, atol=0)


def test_every_form_of_the_labelled_items_trains_the_same(tmp_path):
    np.save(tmp_path / "inputs.npy", INPUTS)
    expected = state(trained(validation=0.2))
    forms = [torch.from_numpy(INPUTS), tmp_path / "inputs.npy", list(INPUTS), INPUTS.astype(float)]
    for form in forms:
        assert_states(state(trained(inputs=form, validation=0.2)), expected, rtol=0, atol=0)


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_regression_learns_its_values(outputs):
    targets = VALUES[:, 1] if outputs == 1 else INPUTS[:, :2] @ np.array([[1.0, 2], [0, -1]])
    learner = trained(
        lambda: nn.Linear(5, outputs), targets=targets, loss="mse", epochs=300, lr=0.05
    )
    found = learner.represent(INPUTS, ["features", "outputs"])
    np.testing.assert_allclose(found["outputs"], targets.reshape(60, -1), atol=0.05)
    np.testing.assert_array_equal(found["features"], INPUTS)
    assert learner.predict(INPUTS).shape == (60, outputs)


def test_a_regression_in_float64_is_the_weighted_least_squares_fit():
    rng = np.random.default_rng(1)
    inputs, targets, weights = rng.normal(size=(60, 5)), rng.normal(size=60), rng.uniform(0, 2, 60)
    learner = trained(
        lambda: nn.Linear(5, 1).double(),
        inputs,
        targets,
        weights,
        loss="mse",
        optimizer="sgd",
        epochs=800,
        lr=0.05,
        batch_size=60,
    )
    columns, root = np.c_[inputs, np.ones(60)], np.sqrt(weights)
    exact = np.linalg.lstsq(columns * root[:, None], targets * root, rcond=None)[0]
    found = torch.cat([learner.module.weight[0], learner.module.bias]).detach().numpy()
    np.testing.assert_allclose(found, exact, rtol=1e-6)  # weights are kept in float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": LABELS + 1}, r"label 3 of item \d+ is out of range; the module has 3 classes"),
        ({"targets": LABELS - 1}, "label -1 of item"),
        ({"targets": np.ones(60, dtype=int)}, "all 60 labels are class 1; a classifier needs two"),
        ({"targets": LABELS[:50]}, r"60 items but targets of shape \(50,\)"),
        ({"targets": LABELS.astype(float)}, "cross_entropy needs one class per item"),
        ({"inputs": INPUTS[:0], "targets": LABELS[:0]}, "no labelled items"),
        ({"weights": np.ones(59)}, r"60 items but weights of shape \(59,\)"),
        ({"weights": -np.ones(60)}, "not negative; item 0 has -1.0"),
        ({"weights": np.zeros(60)}, "all weights are zero"),
        ({"inputs": np.full((60, 5), np.nan)}, "the inputs of item 0 are not finite"),
        ({"head": "1"}, "the head must be a linear layer; '1' is Tanh, linear: 0, 2"),
        ({"make": lambda: nn.Sequential(network(), nn.Softmax(1))}, "name the head, one of: 0.0"),
        ({"make": lambda: "network"}, "make_module must give a torch module; got str"),
        ({"make": lambda: nn.Sequential(network(), nn.Unflatten(0, (-1, 2)))}, "one row per item"),
        ({"loss": F.cross_entropy}, "do not reduce it"),
        ({"loss": "mse", "targets": VALUES}, "targets have 2 values but the module gives 3"),
        ({"validation": (INPUTS, LABELS[:9])}, "60 items but targets of shape"),
        ({"validation": (INPUTS, LABELS + 1)}, "label 3 of item"),
        ({"validation": (INPUTS, VALUES[:, 0])}, "cross_entropy needs one class per item"),
        ({"validation": 0.2, "weights": np.r_[1.0, np.zeros(59)]}, "all have weight zero"),
    ],
)  # fmt: skip
def test_a_training_that_cannot_work_is_refused(changes, message):
    with pytest.raises(BadInput, match=message):
        trained(**changes)


def test_a_training_that_diverges_says_so():
    with pytest.raises(NotConverged, match=r"the loss in epoch \d+ is (inf|nan); lower lr"):
        trained(loss="mse", targets=1e18 * np.c_[VALUES, VALUES[:, 0]], lr=1e9, optimizer="sgd")
