"""The Laplace posterior against autograd, the textbook and its own draws."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labelwise.errors import BadInput
from labelwise.learners.inputs import TensorItems
from labelwise.learners.members import laplace
from labelwise.learners.members.base import TrainedModule
from labelwise.learners.members.laplace import LaplaceMembers, classes_hessian
from labelwise.learners.torch_learner import TorchLearner
from labelwise.learners.training import LabelledItems

RNG = np.random.default_rng(0)
FEATURES = torch.from_numpy(RNG.normal(size=(30, 3)))
CLASSES = torch.from_numpy(RNG.integers(3, size=30))
WEIGHTS = torch.from_numpy(RNG.uniform(0.2, 2, size=30))


def head(outputs=3, bias=True):
    """A trained last layer, in float64."""
    layer = nn.Linear(3, outputs, bias=bias).double()
    with torch.no_grad():
        for number, values in enumerate(layer.parameters()):
            rng = np.random.default_rng(number)
            values.copy_(torch.from_numpy(rng.normal(size=tuple(values.shape))))
    return layer


def fitted(layer, targets, weights=WEIGHTS, features=FEATURES, **options):
    members = LaplaceMembers(**({"count": 5} | options))
    labelled = LabelledItems(TensorItems(features), targets, weights)
    members.fitted(TrainedModule(nn.Sequential(layer), "0", labelled, lambda: features, 7))
    return members


def with_one(features):
    return torch.cat([features, torch.ones(len(features), 1, dtype=features.dtype)], dim=1)


def negative_log_posterior(flat, precision):
    """Of the flattened ``(3, 4)`` weights, from the definition."""
    logits = with_one(FEATURES) @ flat.reshape(3, 4).T
    losses = F.cross_entropy(logits, CLASSES, reduction="none")
    return (WEIGHTS * losses).sum() + precision / 2 * flat.square().sum()


def flat(layer):
    return torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach().flatten()


def test_the_full_covariance_is_the_inverse_hessian_of_the_log_posterior():
    layer = head()
    members = fitted(layer, CLASSES, prior_precision=0.7)
    hessian = torch.autograd.functional.hessian(
        lambda theta: negative_log_posterior(theta, 0.7), flat(layer)
    )
    torch.testing.assert_close(members.posterior.covariance(), torch.linalg.inv(hessian))
    torch.testing.assert_close(members.posterior.mean.flatten(), flat(layer))


def test_the_hessian_is_the_sum_of_kronecker_products():
    probabilities = torch.softmax(FEATURES, dim=1)
    expected = torch.zeros(9, 9, dtype=torch.float64)
    for p, h, w in zip(probabilities, FEATURES, WEIGHTS, strict=True):
        expected += w * torch.kron(torch.diag(p) - torch.outer(p, p), torch.outer(h, h))
    torch.testing.assert_close(classes_hessian(probabilities, FEATURES, WEIGHTS), expected)


@pytest.mark.parametrize("structure", ["auto", "full", "kronecker"])
def test_a_regression_has_the_posterior_of_bayesian_linear_regression(structure):
    layer = head(outputs=2)
    targets = torch.from_numpy(RNG.normal(size=(30, 2)))
    posterior = fitted(layer, targets, prior_precision=2.0, structure=structure).posterior
    rows = with_one(FEATURES)
    residuals = targets - layer(FEATURES).detach()
    covariance = posterior.covariance()
    for k in range(2):
        noise = (WEIGHTS * residuals[:, k] ** 2).sum() / WEIGHTS.sum()
        precision = rows.T @ torch.diag(WEIGHTS) @ rows / noise + 2 * torch.eye(4).double()
        block = covariance[4 * k : 4 * k + 4, 4 * k : 4 * k + 4]
        torch.testing.assert_close(block, torch.linalg.inv(precision))
    torch.testing.assert_close(covariance[:4, 4:], torch.zeros(4, 4).double(), atol=1e-12, rtol=0)


def test_a_head_at_the_ridge_solution_has_the_whole_textbook_posterior():
    rows, targets = with_one(FEATURES), torch.from_numpy(RNG.normal(size=(30, 1)))
    precision = rows.T @ rows / 0.25 + 1.5 * torch.eye(4).double()
    mean = torch.linalg.solve(precision, rows.T @ targets / 0.25)[:, 0]
    layer = head(outputs=1)
    with torch.no_grad():
        layer.weight.copy_(mean[None, :3])
        layer.bias.copy_(mean[3:])
    ones = torch.ones(30).double()
    members = fitted(layer, targets, ones, prior_precision=1.5, noise=0.25, count=20_000)
    outputs = members.outputs(nn.Sequential(layer), "0", FEATURES, FEATURES)[:, :, 0]
    torch.testing.assert_close(members.posterior.covariance(), torch.linalg.inv(precision))
    variance = (rows @ torch.linalg.inv(precision) * rows).sum(dim=1)
    torch.testing.assert_close(outputs.var(dim=1), variance, rtol=0.06, atol=0)
    assert ((outputs.mean(dim=1) - rows @ mean).abs() < 5 * (variance / 20_000).sqrt()).all()


def test_the_diagonal_is_that_of_the_full_precision():
    layer = head()
    full = fitted(layer, CLASSES, structure="full").posterior
    diagonal = fitted(layer, CLASSES, structure="diagonal").posterior
    expected = torch.diag(1 / torch.linalg.inv(full.covariance()).diagonal())
    torch.testing.assert_close(diagonal.covariance(), expected)


def test_the_kronecker_form_is_exact_where_all_items_are_predicted_alike():
    layer = head()
    nn.init.zeros_(layer.weight)
    full = fitted(layer, CLASSES, structure="full").posterior
    kronecker = fitted(layer, CLASSES, structure="kronecker").posterior
    torch.testing.assert_close(kronecker.covariance(), full.covariance())


def test_the_kronecker_form_is_the_product_of_summed_and_averaged_factors():
    layer = head()
    rows, p = with_one(FEATURES), layer(FEATURES).detach().softmax(dim=1)
    left = sum(w * (torch.diag(q) - torch.outer(q, q)) for w, q in zip(WEIGHTS, p, strict=True))
    right = rows.T @ torch.diag(WEIGHTS) @ rows / WEIGHTS.sum()
    precision = torch.kron(left, right) + 3 * torch.eye(12).double()
    posterior = fitted(layer, CLASSES, structure="kronecker", prior_precision=3.0).posterior
    torch.testing.assert_close(posterior.covariance(), torch.linalg.inv(precision))


@pytest.mark.parametrize("structure", ["full", "kronecker", "diagonal"])
def test_draws_have_the_mean_and_covariance_of_the_posterior(structure):
    layer = head(outputs=2)
    members = fitted(layer, CLASSES % 2, structure=structure, count=40_000)
    weights, biases = members._draws
    drawn = torch.cat([weights, biases[..., None]], dim=2).flatten(1)
    covariance = members.posterior.covariance()
    spread = covariance.diagonal().sqrt()
    scale = torch.outer(spread, spread)
    error = (torch.cov(drawn.T) - covariance) / scale
    assert error.abs().max() < 5 * (2 / 40_000) ** 0.5
    assert ((drawn.mean(dim=0) - flat(layer)) / spread).abs().max() < 5 / 200


@pytest.mark.parametrize("bias", [True, False])
def test_outputs_are_those_of_every_drawn_head(bias):
    layer = head(bias=bias)
    members = fitted(layer, CLASSES, count=4)
    got = members.outputs(nn.Sequential(layer), "0", FEATURES, FEATURES)
    weights, biases = members._draws
    assert (biases is not None) == bias
    for j in range(4):
        one = F.linear(FEATURES, weights[j], None if biases is None else biases[j])
        torch.testing.assert_close(got[:, j], one)
    assert members.posterior.mean.shape == (3, 4 if bias else 3)


def test_a_weight_of_two_is_the_item_twice():
    layer, twice = head(), torch.arange(30).repeat(2)
    once = fitted(layer, CLASSES, torch.full((30,), 2.0)).posterior
    double = fitted(layer, CLASSES[twice], torch.ones(60), FEATURES[twice]).posterior
    torch.testing.assert_close(once.covariance(), double.covariance())


def test_many_weights_get_the_kronecker_form(monkeypatch):
    assert isinstance(fitted(head(), CLASSES).posterior, laplace.FullPosterior)
    monkeypatch.setattr(laplace, "FULL_UP_TO", 11)
    assert isinstance(fitted(head(), CLASSES).posterior, laplace.KroneckerPosterior)


INPUTS = RNG.normal(size=(60, 4)).astype(np.float32)
TARGETS = (INPUTS[:, 0] > 0).astype(np.int64)


def network(outputs=2):
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, outputs))


def test_members_of_a_network_use_the_features_before_its_head():
    members = LaplaceMembers(count=400)
    learner = TorchLearner(network, epochs=30, members=members)
    learner.fit(INPUTS, TARGETS, seed=0)
    names = ["features", "logits", "member_probabilities"]
    rows = learner.represent(INPUTS, names)
    rows = {name: torch.from_numpy(values) for name, values in rows.items()}
    shifted = rows["member_probabilities"].double().log()
    margin = shifted[..., 1] - shifted[..., 0]
    difference = torch.tensor([-1.0, 1.0]).double()
    hidden = with_one(rows["features"].double())
    directions = torch.stack([torch.kron(difference, row) for row in hidden])
    variance = ((directions @ members.posterior.covariance()) * directions).sum(dim=1)
    ratio = margin.var(dim=1) / variance
    assert (ratio - 1).abs().max() < 5 * (2 / 400) ** 0.5
    mean = rows["logits"].double() @ difference
    assert ((margin.mean(dim=1) - mean) / (variance / 400).sqrt()).abs().max() < 5


@pytest.mark.parametrize("structure", ["full", "kronecker"])
def test_saved_members_come_back(tmp_path, structure):
    def learner():
        members = LaplaceMembers(count=7, structure=structure)
        return TorchLearner(network, epochs=3, members=members), members

    first, members = learner()
    first.fit(INPUTS, TARGETS, seed=0)
    first.save(tmp_path)
    second, loaded = learner()
    second.load(tmp_path)
    rows = [model.represent(INPUTS, ["member_probabilities"]) for model in (first, second)]
    np.testing.assert_array_equal(*(row["member_probabilities"] for row in rows))
    torch.testing.assert_close(loaded.posterior.covariance(), members.posterior.covariance())


def test_the_seed_decides_the_draws():
    learner = TorchLearner(network, epochs=2, members=LaplaceMembers(count=5))
    answers = []
    for seed in (1, 1, 2):
        learner.fit(INPUTS, TARGETS, seed=seed)
        answers.append(learner.represent(INPUTS, ["member_probabilities"])["member_probabilities"])
    np.testing.assert_array_equal(answers[0], answers[1])
    assert not np.allclose(answers[0], answers[2])


def test_a_regression_is_less_sure_far_from_its_labels():
    learner = TorchLearner(
        lambda: network(1), loss="mse", epochs=50, lr=0.01, members=LaplaceMembers(count=200)
    )
    learner.fit(INPUTS, INPUTS[:, :1] ** 2, seed=0)
    far = np.concatenate([INPUTS[:20], 6 * INPUTS[:20]])
    votes = learner.represent(far, ["member_votes"])["member_votes"]
    near, away = votes.var(axis=1).reshape(2, 20)
    assert np.mean(away > near) > 0.9 and np.median(away / near) > 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count must be 1 or more; got 0"),
        ({"prior_precision": 0.0}, "prior_precision must be above 0 and finite; got 0.0"),
        ({"prior_precision": float("nan")}, "prior_precision must be above 0 and finite; got nan"),
        ({"structure": "block"}, "structure must be one of auto, full, kronecker, diagonal; got"),
        ({"noise": -1.0}, "noise must be above 0; got -1.0"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        LaplaceMembers(**options)


def test_what_cannot_be_computed_is_refused():
    layer = head(outputs=1)
    with pytest.raises(BadInput, match="residuals of an output are all 0; give the noise"):
        fitted(layer, (with_one(FEATURES) @ flat(layer))[:, None])
    with pytest.raises(BadInput, match="not trained yet"):
        LaplaceMembers().posterior  # noqa: B018
    with pytest.raises(BadInput, match="no weights are drawn yet"):
        LaplaceMembers().outputs(nn.Sequential(layer), "0", FEATURES, FEATURES)
