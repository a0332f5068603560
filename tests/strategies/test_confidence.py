"""Least confidence, worked by hand; more in tests/kernels/test_uncertainty.py."""

import numpy as np

import labelwise


def test_the_least_likely_top_class_comes_first():
    probabilities = np.array([[0.9, 0.1, 0.0], [0.4, 0.35, 0.25], [0.5, 0.25, 0.25]])
    picks = labelwise.select("confidence", 3, probabilities=probabilities)
    assert picks.ids.tolist() == [1, 2, 0]
    np.testing.assert_allclose(picks.scores, [0.6, 0.5, 0.1])
