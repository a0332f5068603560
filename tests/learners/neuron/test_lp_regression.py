"""Regression in the l_p norm against SciPy's general solvers and optimality conditions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog, minimize

from labelwise.learners.neuron import lp_regression, orthonormalize_columns

NORMS = [1, 1.05, 1.5, 2, 2.5, 3, 6]


def make_problem(m=50, d=4, seed=0):
    """Rows, heavy-tailed targets and uneven weights."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(m, d))
    targets = rows @ generator.normal(size=d) + generator.standard_t(2, size=m)
    return rows, targets, generator.exponential(size=m) + 0.05


def solve(rows, targets, weights, p):
    basis = orthonormalize_columns(rows)
    found = lp_regression(basis.span, targets, weights, p)
    assert found.converged
    return basis.back @ found.beta


def loss(theta, rows, targets, weights, p):
    return weights @ np.abs(rows @ theta - targets) ** p


def slow_least_absolute(rows, targets, weights):
    """The linear program with one bound per residual, on the rows as they are."""
    m, d = rows.shape
    costs = np.concatenate([np.zeros(d), weights])
    above = np.block([[rows, -np.eye(m)], [-rows, -np.eye(m)]])
    right = np.concatenate([targets, -targets])
    return linprog(costs, A_ub=above, b_ub=right, bounds=[(None, None)] * (d + m)).fun


@pytest.mark.parametrize("seed", range(3))
def test_least_absolute_deviations_are_those_of_another_linear_program(seed):
    problem = make_problem(seed=seed)
    expected = slow_least_absolute(*problem)
    assert loss(solve(*problem, 1), *problem, 1) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("p", [p for p in NORMS if p > 1])
def test_the_gradient_vanishes_and_no_general_solver_finds_less(p):
    rows, targets, weights = problem = make_problem()
    theta = solve(*problem, p)
    residuals = rows @ theta - targets
    pulls = rows * (weights * np.sign(residuals) * np.abs(residuals) ** (p - 1))[:, None]
    if p >= 1.5:  # near p = 1 a residual of rounding size still has a pull of size 1
        assert np.abs(pulls.sum(axis=0)).max() < 1e-6 * np.abs(pulls).sum()
    least = loss(theta, *problem, p)
    for method in ("BFGS", "Nelder-Mead"):
        other = minimize(
            loss, theta + 0.01, (*problem, p), method=method, options={"maxiter": 2000}
        )
        assert other.fun >= least * (1 - 1e-9)


@pytest.mark.parametrize("p", NORMS)
def test_fewer_rows_than_columns_are_fitted_exactly_by_the_shortest(p):
    rows, targets, weights = make_problem(m=4, d=9)
    expected = np.linalg.pinv(rows) @ targets
    np.testing.assert_allclose(solve(rows, targets, weights, p), expected, atol=1e-9)


@pytest.mark.parametrize("p", [1.5, 2, 3])
def test_columns_that_depend_on_others_leave_the_shortest(p):
    rows, targets, weights = make_problem()
    wide = np.hstack([rows, rows @ np.ones((4, 1)), np.zeros((50, 1))])
    theta, plain = solve(wide, targets, weights, p), solve(rows, targets, weights, p)
    np.testing.assert_allclose(wide @ theta, rows @ plain, atol=1e-8)
    np.testing.assert_allclose(np.linalg.pinv(wide) @ (wide @ theta), theta, atol=1e-10)


@pytest.mark.parametrize("p", NORMS)
def test_the_size_of_targets_and_rows_does_not_matter(p):
    rows, targets, weights = make_problem()
    plain = solve(rows, targets, weights, p)
    large = solve(1e-6 * rows, 1e8 * targets, 1e5 * weights, p)
    np.testing.assert_allclose(large, 1e14 * plain, rtol=1e-6)


def test_single_precision_noise_is_no_direction():
    generator = np.random.default_rng(0)
    rows = (generator.normal(size=(80, 3)) @ generator.normal(size=(3, 7))).astype(np.float32)
    basis = orthonormalize_columns(rows.astype(np.float64), float(np.finfo(np.float32).eps))
    assert basis.span.shape == (80, 3)
    assert orthonormalize_columns(rows.astype(np.float64)).span.shape == (80, 7)


@given(
    rows=arrays(np.float64, (6, 3), elements=st.integers(-2, 2).map(float)),
    targets=arrays(np.float64, 6, elements=st.integers(-3, 3).map(float)),
    p=st.sampled_from(NORMS),
)
def test_no_small_change_helps_on_degenerate_rows(rows, targets, p):
    weights = np.arange(1.0, 7.0)
    theta = solve(rows, targets, weights, p)
    assert np.isfinite(theta).all()
    least = loss(theta, rows, targets, weights, p)
    generator = np.random.default_rng(0)
    for size in (1e-3, 1e-1, 1.0):
        for move in size * generator.normal(size=(20, 3)):
            assert loss(theta + move, rows, targets, weights, p) >= least * (1 - 1e-7) - 1e-9
