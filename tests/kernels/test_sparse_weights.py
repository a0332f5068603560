"""Line search, de-bias, scores and the projection, against differences and brute force."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar, nnls

from labelwise.kernels.sparse.greedy import GainRule, greedy_scores
from labelwise.kernels.sparse.iht import projection_scores
from labelwise.kernels.sparse.label_gradients import LabelLaw
from labelwise.kernels.sparse.problem import (
    ObjectiveTerms,
    compute_vectors,
    pose_sparse_problem,
)
from labelwise.kernels.sparse.weights import (
    WeightFit,
    debias_and_clip_weights,
    debias_weights,
    divide_or_zero,
    solve_best_weights,
    solve_nonnegative_least_squares,
)
from tests.kernels.sparse_twin import make_rows, shards_of, twin_of


def small_fit(seed, beta=0.3, items=8):
    """A fit on the first items of a pool, and ``f1`` there from the dense vectors."""
    rows = make_rows(30, 4, 3, seed)
    shards, ids = shards_of(rows), np.arange(items)
    problem = pose_sparse_problem(
        shards,
        items,
        LabelLaw(temperature=2.0),
        ObjectiveTerms(alpha=0.0, beta=beta),
        {"last_layer": (0, 0)},
    )
    twin = twin_of(rows, items, 0.0, beta)

    def f1(weights):
        return twin.f1(np.append(weights, np.zeros(30 - items)), ids)

    vectors, _ = compute_vectors(shards.rows(ids), problem.law, np.empty(0))
    fit = WeightFit(vectors, problem.target, problem.budget, problem.beta)
    return fit, f1, vectors, problem


@pytest.mark.parametrize("seed", range(3))
def test_gradient_agrees_with_differences(seed):
    fit, f1, _, _ = small_fit(seed)
    w = np.random.default_rng(seed).random(8)
    differences = [(f1(w + 1e-4 * e) - f1(w - 1e-4 * e)) / 2e-4 for e in np.eye(8)]
    np.testing.assert_allclose(fit.gradient(w), differences, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_debias_goes_to_the_lowest_point_along_the_gradient(seed):
    fit, f1, _, _ = small_fit(seed)
    w = np.random.default_rng(seed).random(8)
    u = fit.gradient(w)
    best = minimize_scalar(lambda mu: f1(w - mu * u))
    found = debias_weights(fit, w)
    np.testing.assert_allclose(found, w - best.x * u, rtol=1e-5, atol=1e-7)
    for other in (best.x * 0.99, best.x * 1.01, best.x):
        assert f1(found) <= f1(w - other * u) + 1e-15


def test_without_curvature_there_is_no_step():
    assert divide_or_zero(np.float64(1.0), np.float64(0.0)) == 0
    assert divide_or_zero(np.float64(1.0), np.float64(4.0)) == 0.25


@pytest.mark.parametrize("beta", [0.0, 1e-6, 0.5])
def test_debias_never_raises_the_objective(beta):
    for seed in range(10):
        fit, f1, _, _ = small_fit(seed, beta)
        w = 3 * np.random.default_rng(seed).normal(size=8)
        values = [f1(w)]
        for _ in range(5):
            w = debias_weights(fit, w)
            values.append(f1(w))
        assert all(new < old for old, new in pairwise(values))


def test_clipped_debias_keeps_weights_from_going_negative():
    fit, _, _, _ = small_fit(1)
    start = np.array([-5.0, *np.ones(7)])
    assert debias_and_clip_weights(fit, start, 0).tolist() == [0.0, *np.ones(7)]
    twice = np.maximum(debias_weights(fit, np.maximum(debias_weights(fit, start), 0)), 0)
    np.testing.assert_array_equal(debias_and_clip_weights(fit, start, 2), twice)


@pytest.mark.parametrize("beta", [0.0, 1e-6, 0.5])
@pytest.mark.parametrize("seed", range(5))
def test_best_weights_are_those_of_nonnegative_least_squares(seed, beta):
    _, f1, vectors, problem = small_fit(seed, beta)
    stacked = np.vstack([vectors.dense().T / 8, np.sqrt(beta) * np.eye(8)])
    right = np.append(problem.target.ravel(), np.full(8, np.sqrt(beta)))
    weights = solve_best_weights(vectors, np.ones(8), problem)
    np.testing.assert_allclose(weights, nnls(stacked, right)[0], atol=1e-7)
    assert f1(weights) <= f1(nnls(stacked, right)[0]) + 1e-13


def test_linear_gain_is_the_first_order_change_up_to_a_constant():
    slopes, costs = np.array([0.3, -0.2]), np.array([0.1, 0.0])
    scores = greedy_scores(slopes, np.ones(2), costs, 0.7, GainRule("linear", 0.5))
    change = 0.5 * (2 * slopes + 2 * 0.7 * (0 - 1)) - costs
    np.testing.assert_allclose(scores, -change - 2 * 0.7 * 0.5)


@pytest.mark.parametrize("beta", [0.0, 0.4])
def test_exact_gain_is_what_the_best_weight_of_one_item_gains(beta):
    rows = make_rows(20, 3, 3)
    twin = twin_of(rows, 4, 0.2, beta)
    slopes, norms = twin.phi.T @ -twin.v, (twin.phi**2).sum(axis=0)
    scores = greedy_scores(slopes, norms, twin.c, beta, GainRule("exact"))
    for j in range(20):

        def one(weight, j=j):
            w = weight * np.eye(20)[j]
            return ((twin.v - twin.phi @ w) ** 2).sum() + beta * (weight - 1) ** 2

        best = minimize_scalar(one, bounds=(0, 1e4), method="bounded", options={"xatol": 1e-10})
        assert scores[j] == pytest.approx(one(0) - best.fun + twin.c[j], abs=1e-9)


def test_an_item_without_a_vector_gains_its_variance_alone():
    scores = greedy_scores(np.zeros(2), np.zeros(2), np.array([0.0, 3.0]), 0.0, GainRule("exact"))
    assert scores.tolist() == [0, 3]


def projected_value(point, costs, scale, support):
    """What a point made sparse on a support costs."""
    w = np.zeros(len(point))
    w[support] = np.maximum(point[support], 0)
    return ((w - point) ** 2).sum() / 2 - scale * costs[support].sum()


def test_the_projection_is_the_best_of_all_supports():
    for seed in range(200):
        generator = np.random.default_rng(seed)
        point, costs, scale = generator.normal(size=7), generator.random(7), generator.random()
        values = [projected_value(point, costs, scale, list(s)) for s in combinations(range(7), 3)]
        chosen = np.argsort(-projection_scores(point, costs, scale))[:3]
        assert projected_value(point, costs, scale, chosen) <= min(values) + 1e-12


def value(w, matrix, target):
    return w @ matrix @ w / 2 - target @ w


def normal_form(rows, right):
    return rows.T @ rows, rows.T @ right


@pytest.mark.parametrize("start", ["zero", "one"])
@pytest.mark.parametrize("seed", range(10))
def test_matches_scipy_from_any_start(seed, start):
    generator = np.random.default_rng(seed)
    rows, right = generator.normal(size=(40, 25)), generator.normal(size=40)
    begin = np.zeros(25) if start == "zero" else np.ones(25)
    weights = solve_nonnegative_least_squares(*normal_form(rows, right), begin)
    np.testing.assert_allclose(weights, nnls(rows, right)[0], atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_tensors_give_the_answer_of_arrays(seed):
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(seed)
    rows, right = generator.normal(size=(20, 25)), generator.normal(size=20)
    given = (*normal_form(rows, right), generator.normal(size=25))
    expected = solve_nonnegative_least_squares(*given)
    found = solve_nonnegative_least_squares(*map(torch.as_tensor, given))
    assert 0 < (expected > 0).sum() < 25
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_reaches_the_same_value_where_items_depend_on_each_other(seed):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(5, 12))
    rows[:, 3] = rows[:, 4]
    right = rows @ generator.random(12)
    matrix, target = normal_form(rows, right)
    weights = solve_nonnegative_least_squares(matrix, target, np.ones(12))
    best = value(nnls(rows, right)[0], matrix, target)
    assert weights.min() >= 0
    assert value(weights, matrix, target) <= best + 1e-9 * abs(best)


def test_items_without_a_vector_get_weight_zero():
    rows = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
    weights = solve_nonnegative_least_squares(*normal_form(rows, np.array([3.0, 4.0])), np.ones(3))
    np.testing.assert_allclose(weights, [3, 0, 2])
    assert not solve_nonnegative_least_squares(np.zeros((2, 2)), np.zeros(2), np.ones(2)).any()


def test_items_that_point_away_get_weight_zero():
    weights = solve_nonnegative_least_squares(
        np.eye(2), np.array([-1.0, 2.0]), np.array([5.0, 0.0])
    )
    np.testing.assert_allclose(weights, [0, 2])


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 10_000), st.floats(1e-6, 1e6))
def test_nothing_is_better_than_the_answer(d, t, seed, scale):
    generator = np.random.default_rng(seed)
    rows = scale * np.round(generator.normal(size=(d, t)), 1)
    right = scale * np.round(generator.normal(size=d), 1)
    matrix, target = normal_form(rows, right)
    weights = solve_nonnegative_least_squares(matrix, target, generator.normal(size=t))
    assert weights.min() >= 0
    best = value(nnls(rows, right)[0], matrix, target)
    assert value(weights, matrix, target) <= best + 1e-8 * (right @ right) / 2 + 1e-300
