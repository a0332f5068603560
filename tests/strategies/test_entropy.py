"""Entropy, worked by hand; more in tests/kernels/test_uncertainty.py."""

import numpy as np

import labelwise


def test_a_certain_item_has_no_entropy_and_an_even_one_the_most():
    probabilities = np.array([[1.0, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0]])
    picks = labelwise.select("entropy", 3, probabilities=probabilities)
    assert picks.ids.tolist() == [1, 2, 0]
    np.testing.assert_allclose(picks.scores, [np.log(3), np.log(2), 0], atol=1e-9)
