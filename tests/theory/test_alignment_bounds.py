"""The two theorems on random kernels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.errors import BadInput
from labelwise.theory.alignment_bounds import (
    convergence_bounds,
    convergence_error,
    generalisation_bound,
    generalisation_bounds,
)

SEEDS = st.integers(0, 2**32 - 1)


def random_kernel(seed, n=7, outputs=3, least=0.05):
    """A positive definite kernel with a wide spectrum, and targets."""
    generator = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(generator.normal(size=(n, n)))
    values = least + generator.exponential(size=n) ** 2
    theta = basis * values @ basis.T
    return (theta + theta.T) / 2, generator.normal(size=(n, outputs)), values


@given(seed=SEEDS, steps=st.integers(1, 12), slowness=st.floats(1.0, 20.0))
def test_theorem_1_holds(seed, steps, slowness):
    theta, targets, values = random_kernel(seed)
    rate = 1 / (slowness * values.max())
    squared = convergence_error(theta, targets, rate=rate, steps=steps) ** 2
    low, high = convergence_bounds(theta, targets, rate=rate, steps=steps)
    assert low - 1e-9 <= squared <= high + 1e-9


@given(seed=SEEDS)
def test_theorem_2_holds_with_both_constants(seed):
    theta, targets, _ = random_kernel(seed)
    value = generalisation_bound(theta, targets, jitter=0.0)
    low, sharp = generalisation_bounds(theta, targets)
    _, loose = generalisation_bounds(theta, targets, kantorovich=False)
    assert low * (1 - 1e-9) <= value <= sharp * (1 + 1e-9)
    assert sharp <= loose * (1 + 1e-9)


def test_kantorovichs_constant_is_reached():
    theta, targets = np.diag([9.0, 1.0]), np.array([1.0, 1.0])
    # with equal parts along both eigenvectors the inequality is an equality
    value = generalisation_bound(theta, targets, jitter=0.0)
    assert value == pytest.approx(generalisation_bounds(theta, targets)[1], rel=1e-12)
    assert value < 0.7 * generalisation_bounds(theta, targets, kantorovich=False)[1]


def test_the_error_is_what_gradient_descent_leaves():
    theta, targets, values = random_kernel(3)
    rate = 0.7 / values.max()
    outputs = np.zeros_like(targets)
    for _ in range(5):
        outputs -= rate * theta @ (outputs - targets)
    expected = np.linalg.norm(outputs - targets)
    found = convergence_error(theta, targets, rate=rate, steps=5)
    assert found == pytest.approx(expected, rel=1e-9)
    start = convergence_error(theta, targets, rate=rate, steps=0)
    assert start == pytest.approx(np.linalg.norm(targets), rel=1e-12)


def test_the_bound_is_that_of_the_inverse():
    theta, targets, _ = random_kernel(1)
    expected = np.sqrt(2 * np.trace(targets.T @ np.linalg.inv(theta) @ targets) / 7)
    assert generalisation_bound(theta, targets, jitter=0.0) == pytest.approx(expected, rel=1e-9)
    assert generalisation_bound(theta, targets) == pytest.approx(expected, rel=1e-5)


def test_a_singular_kernel_needs_jitter_and_has_no_upper_bound():
    rows = np.random.default_rng(0).normal(size=(6, 2))
    theta, targets = rows @ rows.T, rows[:, :1]  # targets in the kernel's range
    with pytest.raises(BadInput, match="not positive definite with a jitter of 0"):
        generalisation_bound(np.ones((2, 2)), np.ones(2), jitter=0.0)
    expected = np.sqrt(2 * np.trace(targets.T @ np.linalg.pinv(theta) @ targets) / 6)
    assert generalisation_bound(theta, targets) == pytest.approx(expected, rel=1e-5)
    assert generalisation_bounds(np.zeros((2, 2)), np.ones(2)) == (np.inf, np.inf)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 1.1, "steps": 1}, "at most 1 / largest eigenvalue = 1"),
        ({"rate": 0.0, "steps": 1}, "rate must be above 0"),
        ({"rate": 0.5, "steps": -1}, "steps must be a whole number"),
        ({"rate": 0.5, "steps": 0}, "at least one step"),
    ],
)
def test_a_descent_outside_the_theorem_is_refused(options, message):
    with pytest.raises(BadInput, match=message):
        convergence_bounds(np.eye(2), np.ones(2), **options)


def test_a_kernel_that_no_gradients_have_is_refused():
    with pytest.raises(BadInput, match="has the eigenvalue -1; one of gradients has none below 0"):
        convergence_bounds(np.diag([1.0, -1.0]), np.ones(2), rate=0.5, steps=3)


def test_targets_that_are_zero_have_no_error_to_bound():
    assert generalisation_bound(np.eye(2), np.zeros(2)) == 0
    assert generalisation_bounds(np.eye(2), np.zeros(2)) == (0, 0)


def test_a_negative_jitter_is_refused():
    with pytest.raises(BadInput, match="jitter must be zero or a positive number"):
        generalisation_bound(np.eye(2), np.ones(2), jitter=-1.0)
