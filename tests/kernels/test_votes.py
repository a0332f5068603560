"""Vote entropy against counting, row by row."""

import doctest

import numpy as np
import pytest
from scipy import stats

from labelwise.kernels.information import votes
from labelwise.kernels.information.votes import vote_entropy


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32])
@pytest.mark.parametrize("size", [1, 2, 13])
def test_is_the_entropy_of_the_counts(size, dtype):
    given = np.random.default_rng(size).integers(5, size=(80, size)).astype(dtype)
    expected = [stats.entropy(np.unique(row, return_counts=True)[1]) for row in given]
    np.testing.assert_allclose(vote_entropy(given), expected, atol=1e-14)


def test_does_not_depend_on_the_order_or_the_names_of_the_classes():
    given = np.random.default_rng(0).integers(4, size=(50, 9))
    renamed = np.array([900, -3, 17, 5])[given][:, ::-1]
    np.testing.assert_allclose(vote_entropy(renamed), vote_entropy(given), atol=1e-14)


def test_the_examples_run():
    result = doctest.testmod(votes)
    assert result.attempted > 0 and result.failed == 0
