"""Primal-dual training: multipliers of a convex problem, limits of epsilon, and real data."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, nnls
from scipy.stats import spearmanr
from sklearn.datasets import load_diabetes, load_digits
from torch import nn

import labelwise
from labelwise.errors import BadInput, LabelwiseWarning, NotConverged, UnknownName
from labelwise.learners.primal_dual import PrimalDualLearner
from labelwise.learners.primal_dual.dual_head import PAPER, DualHeadRecipe
from labelwise.learners.torch_learner import TorchLearner

N = 12


def plain_sgd(parameters, lr, weight_decay):
    return torch.optim.SGD(parameters, lr=lr)


class LeastSquares:
    """Linear least squares with an outlier, and its constrained optimum by a convex solver."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.x = np.round(rng.normal(size=(N, 3)), 2)
        y = self.x @ np.array([1.0, -2.0, 0.5]) + 0.3 * rng.normal(size=N)
        y[4] += 3
        self.y = y.astype(np.float32).astype(np.float64)
        best = np.linalg.lstsq(self.x, self.y, rcond=None)[0]
        self.largest = self.losses(best).max()
        self.minimax, self.start = self._minimax(best)
        self.epsilon = self.minimax + 0.15 * (self.largest - self.minimax)

    def losses(self, theta):
        return (self.x @ theta - self.y) ** 2

    def gradients(self, theta):
        return 2 * (self.x @ theta - self.y)[:, None] * self.x

    def _minimax(self, best):
        found = minimize(
            lambda z: z[3],
            np.r_[best, self.largest],
            constraints={
                "type": "ineq",
                "fun": lambda z: z[3] - self.losses(z[:3]),
                "jac": lambda z: np.c_[-self.gradients(z[:3]), np.ones(N)],
            },
            options={"ftol": 1e-14, "maxiter": 500},
        )
        return found.fun, found.x[:3]

    def solve(self, epsilon):
        return minimize(
            lambda theta: self.losses(theta).mean(),
            self.start,
            jac=lambda theta: self.gradients(theta).mean(axis=0),
            constraints={
                "type": "ineq",
                "fun": lambda theta: epsilon - self.losses(theta),
                "jac": lambda theta: -self.gradients(theta),
            },
            options={"ftol": 1e-15, "maxiter": 1000},
        )

    def multipliers(self):
        """Of the active constraints, from the gradients at the optimum (KKT)."""
        theta = self.solve(np.full(N, self.epsilon)).x
        active = self.losses(theta) > self.epsilon - 1e-6
        found = np.zeros(N)
        pull = -self.gradients(theta).mean(axis=0)
        found[active], left = nnls(self.gradients(theta)[active].T, pull)
        assert left < 1e-6
        return found

    def sensitivity(self, step=1e-4):
        """Central differences of the optimum by every bound."""
        values = []
        for item in np.eye(N):
            above, below = (self.solve(self.epsilon + sign * step * item) for sign in (1, -1))
            values.append((above.fun - below.fun) / (2 * step))
        return np.array(values)

    def learner(self, **changes):
        settings = {"loss": "mse", "granularity": "full", "dual_lr": 2.0, "lr": 0.1}
        settings |= {"epsilon": self.epsilon, "epochs": 600, "batch_size": N}
        settings |= {"optimizer": plain_sgd, "dual_head": DualHeadRecipe(epochs=1)}
        make = lambda: nn.Sequential(nn.Linear(3, 1, bias=False)).double()  # noqa: E731
        return PrimalDualLearner(make, **(settings | changes))


@pytest.mark.parametrize("seed", [4, 5])
def test_duals_over_n_are_the_multipliers_and_the_sensitivity_of_the_optimum(seed):
    problem = LeastSquares(seed)
    assert problem.minimax < problem.epsilon < problem.largest
    learner = problem.learner()
    learner.fit(problem.x, problem.y, seed=0)
    multipliers = problem.multipliers()
    assert (multipliers > 0.01).sum() == 2 and multipliers[4] > 0.01  # the outlier is among them
    np.testing.assert_allclose(learner.duals / N, multipliers, atol=1e-3)
    np.testing.assert_allclose(learner.duals / N, -problem.sensitivity(), atol=1e-3)
    assert (learner.duals[multipliers == 0] == 0).all()


@pytest.mark.slow
def test_without_normalising_the_multipliers_are_the_same():
    problem = LeastSquares(4)
    learner = problem.learner(normalise=False, lr=0.02, dual_lr=0.5, epochs=3000)
    learner.fit(problem.x, problem.y, seed=0)
    np.testing.assert_allclose(learner.duals / N, problem.multipliers(), atol=1e-3)


def test_normalising_keeps_gradient_descent_from_overflowing():
    problem = LeastSquares(4)
    problem.learner(lr=0.05, epochs=100).fit(problem.x, problem.y, seed=0)
    with pytest.raises(NotConverged):
        problem.learner(lr=0.05, epochs=100, normalise=False).fit(problem.x, problem.y, seed=0)


def test_a_weighted_items_multiplier_is_weight_times_dual_over_n():
    """The optimum of a weighted problem moves by w_i lambda_i / N with the bound of item i."""
    problem, weights = LeastSquares(4), np.where(np.arange(N) == 0, 3.0, 1.0)
    weights /= weights.mean()
    learner = problem.learner(epochs=500)
    learner.fit(problem.x, problem.y, weights, seed=0)
    theta = learner.head.weight.detach().numpy()[0]
    pulls = problem.gradients(theta) * (weights / N)[:, None]
    assert learner.duals.max() > 0.1
    np.testing.assert_allclose((pulls * (1 + learner.duals)[:, None]).sum(axis=0), 0, atol=1e-6)
    binding = learner.duals > 1e-6
    np.testing.assert_allclose(problem.losses(theta)[binding], problem.epsilon, atol=1e-6)


def make_classes(n=40, seed=0):
    inputs = np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)
    return inputs, (inputs[:, 0] > 0).astype(np.int64)


def small():
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))


def quick(make, **options):
    """A learner whose dual head plays no part."""
    return PrimalDualLearner(make, **({"dual_head": DualHeadRecipe(epochs=1)} | options))


def test_a_huge_epsilon_leaves_all_duals_zero_and_says_so():
    inputs, targets = make_classes()
    learner = quick(small, epsilon=100.0, epochs=5)
    with pytest.warns(LabelwiseWarning, match="epsilon is too large"):
        learner.fit(inputs, targets, seed=0)
    assert (learner.duals == 0).all()
    rows = learner.represent(inputs, ["duals", "features"])
    assert (rows["duals"] == 0).all() and rows["duals"].shape == (40,)
    assert len(labelwise.select("ally", 5, **rows)) == 5


def test_a_huge_epsilon_trains_as_without_constraints():
    inputs, targets = make_classes()
    free, bound = TorchLearner(small, epochs=5), quick(small, epsilon=100.0, epochs=5)
    free.fit(inputs, targets, seed=3)
    with pytest.warns(LabelwiseWarning):
        bound.fit(inputs, targets, seed=3)
    for one, other in zip(free.module.parameters(), bound.module.parameters(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "options",
    [{"optimizer": "adam", "normalise": False}, {"optimizer": plain_sgd, "lr": 0.5}],
    ids=["adam", "sgd, normalised"],
)
def test_constraints_that_cannot_be_met_let_duals_grow_without_nan(options):
    inputs, targets = make_classes(20)
    inputs, targets = np.r_[inputs, inputs[:2]], np.r_[targets, 1 - targets[:2]]  # contradictions
    duals = []
    for epochs in (100, 200):
        learner = quick(small, epsilon=0.05, dual_lr=5.0, epochs=epochs, **options)
        learner.fit(inputs, targets, seed=0)
        assert all(torch.isfinite(parameter).all() for parameter in learner.module.parameters())
        duals.append(learner.duals)
    assert np.isfinite(duals).all()
    contradicted = [0, 1, 20, 21]
    assert (duals[1][contradicted] > 1.5 * duals[0][contradicted]).all()
    assert duals[1][contradicted].min() > 100


def test_without_epsilon_it_is_115_percent_of_the_unconstrained_loss():
    inputs, targets = make_classes()
    targets[:4] = 1 - targets[:4]
    free, bound = (kind(small, epochs=20, lr=0.01) for kind in (TorchLearner, PrimalDualLearner))
    free.fit(inputs, targets, seed=1)
    report = bound.fit(inputs, targets, seed=1)
    chance = free.represent(inputs, ["probabilities"])["probabilities"]
    mean = -np.log(chance[np.arange(40), targets]).mean()
    assert bound.unconstrained_loss == pytest.approx(mean, rel=1e-5)
    np.testing.assert_allclose(bound.epsilon, 1.15 * mean, rtol=1e-5)
    assert report.training_labels == 40 and report.steps == 20
    assert 0 < (bound.duals > 0).sum() < 40


def test_without_epsilon_a_network_that_fits_everything_gets_the_floor():
    inputs, targets = make_classes()
    inputs[:, 0] += np.sign(inputs[:, 0])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        base = small()
    start = nn.functional.cross_entropy(base(torch.tensor(inputs)), torch.tensor(targets)).item()
    learner = quick(lambda: copy.deepcopy(base), epochs=400, lr=0.05)
    learner.fit(inputs, targets, seed=0)
    assert 1.15 * learner.unconstrained_loss < 1e-3 * start
    np.testing.assert_allclose(learner.epsilon, 1e-3 * start, rtol=1e-5)


def test_the_floor_of_another_constraint_loss_is_in_its_own_units():
    inputs, targets = make_classes()
    learner = PrimalDualLearner(
        small,
        epochs=20,
        constraint_loss=lambda o, t: 1000 * nn.functional.cross_entropy(o, t, reduction="none"),
    )
    learner.fit(inputs, targets, seed=0)
    plain = quick(small, epochs=20)
    plain.fit(inputs, targets, seed=0)
    np.testing.assert_allclose(learner.epsilon, 1000 * plain.epsilon, rtol=1e-4)


def test_parameters_and_duals_come_from_the_same_epoch():
    inputs, targets = make_classes()
    options = {"epsilon": 0.1, "lr": 0.01}
    flipped = (inputs, 1 - targets)  # learning makes it worse: the first epoch is the best
    first, last = (quick(small, epochs=e, **options) for e in (1, 6))
    kept = quick(small, epochs=6, validation=flipped, **options)
    loose = quick(small, epochs=6, validation=flipped, restore_duals=False, **options)
    for learner in (first, last, kept, loose):
        learner.fit(inputs, targets, seed=2)
    for learner in (kept, loose):
        torch.testing.assert_close(learner.head.weight, first.head.weight)
    np.testing.assert_allclose(kept.duals, first.duals)
    np.testing.assert_allclose(loose.duals, last.duals)
    assert np.abs(first.duals - last.duals).max() > 0.01


def test_duals_of_items_held_out_are_nan_and_bounds_stay_with_their_items():
    inputs, targets = make_classes()
    bounds = np.where(np.arange(40) % 2 == 0, 50.0, 0.0)
    learner = quick(small, epsilon=bounds, epochs=5, validation=0.25)
    report = learner.fit(inputs, targets, seed=0)
    held = np.isnan(learner.duals)
    assert held.sum() == report.validation_labels == 10
    assert (learner.duals[~held & (bounds > 0)] == 0).all()
    assert (learner.duals[~held & (bounds == 0)] > 0).all()


def test_a_warm_start_goes_on_from_the_constrained_module(tmp_path):
    inputs, targets = make_classes()
    learner = quick(small, epochs=10, warm_start=True)
    learner.fit(inputs[:30], targets[:30], seed=0)
    learner.save(tmp_path)
    learner.fit(inputs, targets, seed=1)
    told = quick(small, epsilon=learner.epsilon, epochs=10, warm_start=True)
    told.load(tmp_path)
    told.fit(inputs, targets, seed=1)
    np.testing.assert_allclose(told.duals, learner.duals)
    torch.testing.assert_close(told.head.weight, learner.head.weight)


def test_the_same_seed_gives_the_same_duals_and_leaves_torchs_randomness_alone():
    inputs, targets = make_classes()
    before = torch.random.get_rng_state()
    duals = []
    for seed in (0, 0, 1):
        learner = quick(small, epsilon=0.3, epochs=5)
        learner.fit(inputs, targets, seed=seed)
        duals.append(learner.represent(inputs, ["duals"])["duals"])
    np.testing.assert_array_equal(duals[0], duals[1])
    assert not np.array_equal(duals[0], duals[2])
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("head", ["robust", replace(PAPER, lr=0.01, goal=None)])
def test_saves_and_loads_with_its_dual_head(head, tmp_path):
    inputs, targets = make_classes()
    learner = quick(small, epsilon=0.3, epochs=5, dual_head=head)
    learner.fit(inputs, targets, seed=0)
    learner.save(tmp_path)
    other = quick(small, epsilon=0.3)
    other.load(tmp_path)
    for name in ("duals", "features"):
        expected = learner.represent(inputs, [name])[name]
        np.testing.assert_array_equal(other.represent(inputs, [name])[name], expected)
    np.testing.assert_array_equal(other.duals, learner.duals)
    np.testing.assert_array_equal(other.epsilon, learner.epsilon)


def test_zero_duals_save_and_load_too(tmp_path):
    inputs, targets = make_classes()
    learner = quick(small, epsilon=100.0, epochs=2)
    with pytest.warns(LabelwiseWarning):
        learner.fit(inputs, targets, seed=0)
    learner.save(tmp_path)
    other = PrimalDualLearner(small)
    other.load(tmp_path)
    assert (other.represent(inputs, ["duals"])["duals"] == 0).all()


def test_duals_come_with_the_other_representations_in_one_pass_and_any_batch_size():
    inputs, targets = make_classes(70)
    learner = quick(small, epsilon=0.3, epochs=5, represent_batch_size=16)
    learner.fit(inputs, targets, seed=0)
    assert learner.offered()[-1] == "duals"
    rows = learner.represent(inputs, ["duals", "probabilities"])
    assert list(rows) == ["duals", "probabilities"] and rows["duals"].shape == (70,)
    with torch.no_grad():
        whole = learner.predicted_duals(torch.tensor(inputs)).numpy()
    np.testing.assert_allclose(rows["duals"], whole, rtol=1e-4, atol=1e-6)
    assert (rows["duals"][-6:] > 0).all()  # the last, incomplete batch is predicted too


def hard_and_rest(duals, losses, share=0.1):
    """Mean loss of the items with the largest duals, and of the others."""
    top = np.argsort(-duals)[: int(share * len(duals))]
    return losses[top].mean(), np.delete(losses, top).mean()


def test_on_digits_items_with_large_duals_are_hard():
    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, digits = images[order] / 16, digits[order]

    def make():
        return nn.Sequential(
            nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)
        )

    learner = PrimalDualLearner(make, epsilon=0.2, epochs=40, lr=3e-3)
    learner.fit(images[:200], digits[:200], seed=0)
    rows = learner.represent(images[200:], ["features", "duals", "probabilities"])
    chance = rows.pop("probabilities")[np.arange(len(images) - 200), digits[200:]]
    losses = -np.log(np.maximum(chance, 1e-12))
    hard, rest = hard_and_rest(rows["duals"], losses)
    assert hard > rest
    assert spearmanr(rows["duals"], losses)[0] > 0
    picks = labelwise.select("ally", 100, **rows, seed=0)
    assert losses[picks.ids].mean() > losses.mean()
    assert picks.info["clusters"] == 100 and max(picks.info["shares"]) == 1


def test_on_diabetes_items_with_large_duals_were_fitted_late():
    inputs, values = load_diabetes(return_X_y=True)
    inputs = (inputs / inputs.std(axis=0)).astype(np.float32)
    values = ((values - values.mean()) / values.std()).astype(np.float32)

    def make():
        return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))

    learner = PrimalDualLearner(make, loss="mse", epsilon=0.1, epochs=100, lr=3e-3)
    learner.fit(inputs[:200], values[:200], seed=0)
    errors = (learner.predict(inputs[:200])[:, 0] - values[:200]) ** 2
    hard, rest = hard_and_rest(learner.duals, errors)
    assert hard > rest
    rows = learner.represent(inputs[200:], ["features", "duals"])
    assert (rows["duals"] > 0).all() and rows["duals"].std() > 0
    assert len(labelwise.select("ally", 20, **rows)) == 20


def test_bad_input_gets_a_clear_error():
    inputs, targets = make_classes()
    with pytest.raises(BadInput, match="there are 40 items but epsilon of shape"):
        quick(small, epsilon=[0.1, 0.2]).fit(inputs, targets, seed=0)
    with pytest.raises(BadInput, match=r"epsilon must be finite and not negative; got -1\.0"):
        quick(small, epsilon=-1.0)
    with pytest.raises(BadInput, match="got nan"):
        quick(small, epsilon=[0.1, np.nan])
    with pytest.raises(UnknownName, match="no loss is called 'hinge'"):
        quick(small, constraint_loss="hinge")
    with pytest.raises(UnknownName, match="no dual head is called 'deep'"):
        quick(small, dual_head="deep")
    with pytest.raises(BadInput, match="not trained yet"):
        PrimalDualLearner(small).duals  # noqa: B018
