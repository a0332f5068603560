"""Fisher information against the matrices multiplied out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labelwise.kernels.information.fisher import (
    fisher_roots,
    fisher_squares,
    fisher_sum,
    multiply_classes,
)


def slow_roots(features, probabilities):
    """``V`` row by row."""
    roots = []
    for h, p in zip(features, probabilities, strict=True):
        unit = np.eye(len(p))
        roots.append([np.sqrt(p[c]) * np.kron(unit[c] - p, h) for c in range(len(p))])
    return np.array(roots)


@pytest.mark.parametrize("library", [np, torch])
def test_fisher_information_matches_the_matrices_multiplied_out(library):
    generator = np.random.default_rng(0)
    h, p = generator.normal(size=(9, 4)), generator.dirichlet(np.ones(3), size=9)
    roots = slow_roots(h, p)
    square = generator.normal(size=(12, 12))
    square, tall = square @ square.T, generator.normal(size=(12, 5))
    h, p, there, side = (library.asarray(part) for part in (h, p, square, tall))
    np.testing.assert_allclose(fisher_roots(h, p), roots, atol=1e-12)
    np.testing.assert_allclose(fisher_sum(h, p), np.einsum("nca,ncb->ab", roots, roots), atol=1e-12)
    parts = np.einsum("nd,cdm->ncm", h, tall.reshape(3, 4, 5))
    np.testing.assert_allclose(multiply_classes(h, side, 3), parts, atol=1e-12)
    expected = roots @ square @ roots.transpose(0, 2, 1)
    np.testing.assert_allclose(fisher_squares(h, p, there), expected, atol=1e-11)


def test_fisher_information_of_regression_is_that_of_the_features():
    generator = np.random.default_rng(0)
    h, square = generator.normal(size=(9, 4)), np.diag([1.0, 2, 3, 4])
    np.testing.assert_allclose(fisher_sum(h, None), h.T @ h)
    np.testing.assert_allclose(fisher_roots(h, None)[:, 0], h)
    expected = ((h @ square) * h).sum(axis=1)
    np.testing.assert_allclose(fisher_squares(h, None, square)[:, 0, 0], expected)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 100))
def test_fisher_information_of_certain_items_is_nothing(classes, d, seed):
    h = np.random.default_rng(seed).normal(size=(5, d))
    p = np.eye(classes)[np.random.default_rng(seed).integers(classes, size=5)]
    assert not fisher_sum(h, p).any()
    assert not fisher_roots(h, p).any()
