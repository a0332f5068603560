"""The variational layer against Monte Carlo and the known mean-field solution."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from labelwise.errors import BadInput
from labelwise.learners.members.variational import VariationalLinear, VariationalMembers
from labelwise.learners.torch_learner import TorchLearner

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(60, 4)).astype(np.float32)
TARGETS = (INPUTS[:, 0] > 0).astype(np.int64)


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def layer(inputs=3, outputs=2, bias=True, **options):
    """A layer whose means and deviations all differ."""
    made = VariationalLinear(nn.Linear(inputs, outputs, bias=bias).double(), **options)
    with torch.no_grad():
        for number, values in enumerate(made.parameters()):
            rng = np.random.default_rng(number)
            values.copy_(torch.from_numpy(rng.uniform(-1, 1, size=tuple(values.shape))))
    return made


@pytest.mark.parametrize("bias", [True, False])
def test_the_divergence_is_the_sum_of_those_of_all_weights(bias):
    made = layer(bias=bias, prior_scale=0.7)
    prior = torch.distributions.Normal(0.0, 0.7)
    means = [made.weight, made.bias] if bias else [made.weight]
    expected = sum(
        torch.distributions.kl_divergence(torch.distributions.Normal(mean, scale), prior).sum()
        for mean, scale in zip(means, made.compute_deviations(), strict=False)
    )
    torch.testing.assert_close(made.divergence(), expected)


def test_the_divergence_is_the_mean_log_ratio_of_draws():
    made = layer(prior_scale=0.7)
    weights, biases = made.draw_weights(20_000, seed=0)
    prior = torch.distributions.Normal(0.0, 0.7)
    scales = made.compute_deviations()
    ratio = torch.zeros(20_000).double()
    for mean, scale, drawn in zip((made.weight, made.bias), scales, (weights, biases), strict=True):
        own = torch.distributions.Normal(mean, scale)
        ratio += (own.log_prob(drawn) - prior.log_prob(drawn)).flatten(1).sum(dim=1).detach()
    assert abs(ratio.mean() - made.divergence()) < 5 * ratio.std() / 20_000**0.5


@pytest.mark.parametrize("bias", [True, False])
def test_drawn_outputs_have_the_moments_of_drawn_weights(bias):
    made, inputs = layer(bias=bias), torch.from_numpy(RNG.normal(size=(5, 3)))
    count = 5_000
    weights, biases = made.draw_weights(count, seed=1)
    by_weights = torch.einsum("mkd,bd->mbk", weights, inputs)
    if biases is not None:
        by_weights = by_weights + biases[:, None]
    made.train()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        by_outputs = torch.stack([made(inputs) for _ in range(count)])
    mean, variance = (moment.detach() for moment in made.compute_output_moments(inputs))
    for drawn in (by_weights, by_outputs):
        assert ((drawn.mean(dim=0) - mean) / (variance / count).sqrt()).abs().max() < 5
        assert (drawn.var(dim=0) / variance - 1).abs().max() < 5 * (2 / count) ** 0.5


def test_every_item_has_a_draw_of_its_own_in_training_and_none_in_eval_mode():
    made, inputs = layer(), torch.ones(4, 3).double()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        drawn = made.train()(inputs)
        still = made.eval()(inputs)
    assert len(drawn.unique(dim=0)) == 4
    torch.testing.assert_close(still, nn.functional.linear(inputs, made.weight, made.bias))


def regression(noise=0.3, prior=0.8):
    """Items of a linear regression, and the mean-field solution: means and variances."""
    inputs = RNG.normal(size=(40, 3)) @ np.array([[1, 0.5, 0], [0, 1, 0.3], [0, 0, 0.7]])
    targets = inputs @ np.array([1.0, -0.5, 0.2]) + 0.4 + noise**0.5 * RNG.normal(size=40)
    rows = np.hstack([inputs, np.ones((40, 1))])
    precision = rows.T @ rows / noise + np.eye(4) / prior**2
    mean = np.linalg.solve(precision, rows.T @ targets / noise)
    return inputs, targets, mean, 1 / np.diag(precision)


def test_the_optimum_of_the_bound_is_the_mean_field_solution_of_a_linear_regression():
    inputs, targets, mean, variances = regression()
    made = layer(outputs=1, prior_scale=0.8, factor=2 * 0.3)
    rows, values = torch.from_numpy(inputs), torch.from_numpy(targets)[:, None]
    search = torch.optim.LBFGS(made.parameters(), max_iter=500, line_search_fn="strong_wolfe")

    def objective():
        search.zero_grad()
        centre, spread = made.compute_output_moments(rows)
        bound = ((values - centre).square() + spread).sum() + made.penalty()
        bound.backward()
        return bound

    for _ in range(5):
        search.step(objective)
    got = torch.cat([made.weight[0], made.bias]).detach().numpy()
    np.testing.assert_allclose(got, mean, atol=1e-5)
    weight, bias = made.compute_deviations()
    np.testing.assert_allclose(
        torch.cat([weight[0], bias]).detach().numpy() ** 2, variances, rtol=1e-4
    )


def test_training_with_draws_finds_the_mean_field_solution():
    inputs, targets, mean, variances = regression()
    learner = TorchLearner(
        lambda: nn.Sequential(nn.Linear(3, 1)),
        loss="mse",
        lr=0.03,
        schedule="cosine",
        epochs=800,
        batch_size=40,
        members=VariationalMembers(prior_scale=0.8, noise=0.3),
    )
    learner.fit(inputs, targets, seed=0)
    weight, bias = learner.head.compute_deviations()
    got = torch.cat([weight[0], bias]).detach().numpy()
    np.testing.assert_allclose(got**2, variances, rtol=0.2)
    means = torch.cat([learner.head.weight[0], learner.head.bias]).detach().numpy()
    assert (np.abs(means - mean) < 0.5 * variances**0.5).all()


def test_members_are_draws_that_are_the_same_for_all_items():
    learner = TorchLearner(network, epochs=3, members=VariationalMembers(count=6))
    learner.fit(INPUTS, TARGETS, seed=5)
    rows = learner.represent(INPUTS, ["features", "member_probabilities", "logits"])
    weights, biases = learner.head.draw_weights(6, seed=5)
    features = torch.from_numpy(rows["features"])
    for j in range(6):
        logits = nn.functional.linear(features, weights[j], biases[j])
        np.testing.assert_allclose(
            rows["member_probabilities"][:, j], logits.softmax(dim=1).numpy(), atol=1e-6
        )
    means = nn.functional.linear(features, learner.head.weight, learner.head.bias)
    np.testing.assert_allclose(rows["logits"], means.detach().numpy(), atol=1e-6)


def test_more_labels_make_the_weights_of_a_classifier_surer():
    scales = []
    for times in (1, 16):
        learner = TorchLearner(
            lambda: nn.Sequential(nn.Linear(4, 2)),
            lr=0.05,
            epochs=160 // times,
            batch_size=60,
            members=VariationalMembers(),
        )
        learner.fit(np.tile(INPUTS, (times, 1)), np.tile(TARGETS, times), seed=0)
        scales.append(learner.head.compute_deviations()[0].mean().item())
    assert scales[1] < 0.6 * scales[0] < 0.6


def test_adapting_twice_changes_nothing_and_a_warm_start_goes_on():
    members = VariationalMembers(count=3)
    module = network()
    members.adapt(module, "2")
    made = module[2]
    members.adapt(module, "2")
    assert module[2] is made
    learner = TorchLearner(network, epochs=2, warm_start=True, members=members)
    learner.fit(INPUTS, TARGETS, seed=0)
    before, spread = learner.head, learner.head.weight_spread.detach().clone()
    learner.fit(INPUTS, TARGETS, seed=1)
    assert learner.head is before
    assert not torch.equal(before.weight_spread, spread)


def test_the_means_start_where_the_plain_layer_starts():
    module = network()
    weight, bias = module[2].weight, module[2].bias
    VariationalMembers(start=0.2, prior_scale=3.0).adapt(module, "2")
    assert module[2].weight is weight and module[2].bias is bias
    scales = module[2].compute_deviations()
    torch.testing.assert_close(scales[0], torch.full((2, 8), 0.6))
    torch.testing.assert_close(scales[1], torch.full((2,), 0.6))


def test_a_head_under_two_names_is_exchanged_under_both():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
            self.head = self.body[1]

    module = Two()
    VariationalMembers().adapt(module, "head")
    assert module.head is module.body[1]
    assert isinstance(module.head, VariationalLinear)


def test_no_feature_at_all_still_has_a_finite_gradient():
    made = layer(bias=False).train()
    made(torch.zeros(2, 3).double()).sum().backward()
    assert torch.isfinite(made.weight_spread.grad).all()


def test_saved_members_come_back(tmp_path):
    learner = TorchLearner(network, epochs=3, members=VariationalMembers(count=5))
    learner.fit(INPUTS, TARGETS, seed=0)
    learner.save(tmp_path)
    other = TorchLearner(network, members=VariationalMembers(count=5))
    other.load(tmp_path)
    np.testing.assert_array_equal(
        other.represent(INPUTS, ["member_probabilities"])["member_probabilities"],
        learner.represent(INPUTS, ["member_probabilities"])["member_probabilities"],
    )


def test_the_best_epoch_brings_its_deviations_back():
    learner = TorchLearner(
        network, epochs=60, lr=0.1, validation=0.3, patience=3, members=VariationalMembers()
    )
    report = learner.fit(INPUTS, TARGETS, seed=0)
    shorter = TorchLearner(
        network, epochs=report.steps - 3, lr=0.1, validation=0.3, members=VariationalMembers()
    )
    shorter.fit(INPUTS, TARGETS, seed=0)
    torch.testing.assert_close(learner.head.weight_spread, shorter.head.weight_spread)


def test_a_noise_that_is_missing_or_meaningless_is_refused_before_training():
    plain = TorchLearner(network, loss="mse", members=VariationalMembers())
    with pytest.raises(BadInput, match="a regression needs noise; got noise=None"):
        plain.fit(INPUTS, INPUTS[:, :2], seed=0)
    classes = TorchLearner(network, members=VariationalMembers(noise=0.1))
    with pytest.raises(BadInput, match=r"classes have no noise; got noise=0\.1"):
        classes.fit(INPUTS, TARGETS, seed=0)


def test_heads_that_cannot_be_exchanged_are_refused():
    class Scaled(nn.Linear):
        def forward(self, inputs):
            return 2 * super().forward(inputs)

    members = VariationalMembers()
    with pytest.raises(BadInput, match=r"only a plain nn.Linear .* '1' is a Scaled"):
        members.adapt(nn.Sequential(nn.ReLU(), Scaled(4, 2)), "1")
    with pytest.raises(BadInput, match="the module is its own head"):
        members.adapt(nn.Linear(4, 2), "")
    with pytest.raises(BadInput, match="no weights are drawn yet"):
        members.outputs(network(), "2", torch.ones(1, 4), torch.ones(1, 8))


@pytest.mark.parametrize("name", ["prior_scale", "start", "noise"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_impossible_scales_are_refused(name, value):
    with pytest.raises(BadInput, match=f"{name} must be above 0 and finite; got {value}"):
        VariationalMembers(**{name: value})


def test_a_count_below_one_is_refused():
    with pytest.raises(BadInput, match="count must be 1 or more; got 0"):
        VariationalMembers(count=0)
