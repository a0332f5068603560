"""Training dynamics, alignment and the approximation ratio against their definitions."""

import numpy as np
import pytest

from labelwise.errors import BadInput
from labelwise.kernels import Factored
from labelwise.theory.dynamics import (
    alignment,
    approximation_ratio,
    approximation_ratio_of_gram,
    last_layer_kernel,
    one_hot,
    training_dynamics,
)


def slow_gain(gradients, batch, labelled):
    """G(S with the batch) - G(S)."""
    return np.sum((labelled + gradients[batch].sum(axis=0)) ** 2) - np.sum(labelled**2)


@pytest.mark.parametrize("seed", range(4))
def test_the_ratio_is_that_of_gains_taken_apart_and_together(seed):
    generator = np.random.default_rng(seed)
    gradients, labelled = generator.normal(size=(7, 30)), 0.1 * generator.normal(size=30)
    apart = sum(slow_gain(gradients, [u], labelled) for u in range(7))
    expected = apart / slow_gain(gradients, list(range(7)), labelled)
    assert approximation_ratio(gradients, labelled) == pytest.approx(expected, rel=1e-9)
    gram, products = gradients @ gradients.T, gradients @ labelled
    assert approximation_ratio_of_gram(gram, products) == pytest.approx(expected, rel=1e-9)


def test_the_gain_of_a_batch_is_its_items_gains_and_their_products():
    generator = np.random.default_rng(0)
    gradients, labelled = generator.normal(size=(5, 9)), generator.normal(size=9)
    apart = sum(slow_gain(gradients, [u], labelled) for u in range(5))
    gram = gradients @ gradients.T
    pairs = gram.sum() - np.trace(gram)
    assert slow_gain(gradients, range(5), labelled) == pytest.approx(apart + pairs, rel=1e-9)


def test_orthogonal_gradients_have_ratio_one():
    rows, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(20, 6)))
    assert approximation_ratio(3 * rows.T) == pytest.approx(1.0, abs=1e-12)


def test_a_batch_that_gains_nothing_has_no_ratio():
    assert np.isnan(approximation_ratio(np.array([[1.0], [-1.0]])))
    assert np.isnan(approximation_ratio(np.eye(2), labelled=np.array([-9.0, 0.0])))


def test_kronecker_rows_give_what_they_give_multiplied_out():
    generator = np.random.default_rng(0)
    rows = Factored(generator.normal(size=(8, 3)), generator.normal(size=(8, 5)))
    labelled, targets = generator.normal(size=(3, 5)), generator.normal(size=(8, 2))
    dense = rows.dense()
    expected = approximation_ratio(dense, labelled.ravel())
    assert approximation_ratio(rows, labelled) == pytest.approx(expected, rel=1e-12)
    assert alignment(rows, targets) == pytest.approx(alignment(dense @ dense.T, targets), rel=1e-12)
    outputs = generator.normal(size=(8, 2))
    expected = training_dynamics(dense @ dense.T, outputs, targets)
    assert training_dynamics(rows, outputs, targets) == pytest.approx(expected, rel=1e-12)


def test_alignment_is_the_sum_over_the_kernels_directions():
    generator = np.random.default_rng(0)
    root, targets = generator.normal(size=(6, 6)), generator.normal(size=(6, 2))
    theta = root @ root.T
    values, vectors = np.linalg.eigh(theta)
    expected = np.sum(values[:, None] * (vectors.T @ targets) ** 2)
    assert alignment(theta, targets) == pytest.approx(expected, rel=1e-12)


def test_dynamics_of_zero_outputs_are_the_alignment():
    theta, targets = np.diag([1.0, 2.0, 3.0]), one_hot([0, 1, 1])
    found = training_dynamics(theta, np.zeros((3, 2)), targets)
    assert found == alignment(theta, targets) == 6.0


def test_dynamics_are_the_squared_gradient_of_a_linear_model():
    generator = np.random.default_rng(0)
    features, targets = generator.normal(size=(10, 4)), generator.normal(size=(10, 3))
    weights = generator.normal(size=(4, 3))
    gradient = features.T @ (features @ weights - targets)  # of half the squared error
    theta = last_layer_kernel(features, bias=False)
    found = training_dynamics(theta, features @ weights, targets)
    assert found == pytest.approx(np.sum(gradient**2), rel=1e-12)


def test_wrong_shapes_are_refused():
    with pytest.raises(BadInput, match="kernel must be square"):
        alignment(np.ones((2, 3)), np.ones(2))
    with pytest.raises(BadInput, match="kernel must be symmetric"):
        alignment(np.array([[1.0, 2.0], [0.0, 1.0]]), np.ones(2))
    with pytest.raises(BadInput, match="one row for each of 2 items"):
        alignment(np.eye(2), np.ones(3))
    with pytest.raises(BadInput, match="outputs have shape"):
        training_dynamics(np.eye(2), np.ones(2), np.ones((2, 1)))
    with pytest.raises(BadInput, match="labelled gradient has 2 numbers"):
        approximation_ratio(np.eye(3), np.ones(2))
    with pytest.raises(BadInput, match="labelled gradient holds NaN"):
        approximation_ratio(np.eye(2), np.array([0.0, np.nan]))
    with pytest.raises(BadInput, match=r"products must be 2 finite numbers; got \(3,\)"):
        approximation_ratio_of_gram(np.eye(2), np.ones(3))
    with pytest.raises(BadInput, match="products must be 2 finite numbers"):
        approximation_ratio_of_gram(np.eye(2), [np.inf, 0.0])
    with pytest.raises(BadInput, match="gradients holds NaN"):
        approximation_ratio(np.array([[np.nan]]))
