"""Non-negative least squares against SciPy and against its optimality conditions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from labelwise.kernels.sparse.nonnegative import solve_nonnegative_least_squares


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
