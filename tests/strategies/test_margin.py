"""Margin, worked by hand; more in tests/kernels/test_uncertainty.py."""

import numpy as np

import labelwise


def test_the_closest_two_classes_come_first():
    probabilities = np.array([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3], [0.48, 0.47, 0.05]])
    picks = labelwise.select("margin", 3, probabilities=probabilities)
    assert picks.ids.tolist() == [2, 1, 0]
    np.testing.assert_allclose(picks.scores, [-0.01, -0.1, -0.8])


def test_one_class_has_no_second():
    assert labelwise.select("margin", 2, probabilities=np.ones((3, 1))).ids.tolist() == [0, 1]
