"""Class counts and their ratio."""

import numpy as np
import pytest

from labelwise.errors import BadInput
from labelwise.theory.coverage import class_counts, imbalance_ratio


def test_a_planted_imbalance_is_found():
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [40, 10, 25]))
    assert class_counts(labels).tolist() == [40, 10, 25]
    assert imbalance_ratio(labels) == 4.0


def test_a_missing_class_is_infinite_even_if_it_is_the_last():
    assert imbalance_ratio([0, 2]) == np.inf
    assert imbalance_ratio([0, 1]) == 1.0
    assert imbalance_ratio([0, 1], classes=3) == np.inf


def test_whole_numbers_stored_as_floats_are_classes():
    assert imbalance_ratio(np.array([0.0, 1.0, 1.0])) == 2.0


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([], None, "at least one class"),
        ([[0, 1]], None, "at least one class"),
        ([0.5, 1.0], None, "whole numbers"),
        ([-1, 0], None, "0 or more; got -1"),
        ([0, 3], 3, "label 3 is out of range for 3 classes"),
    ],
)
def test_labels_that_are_no_classes_are_refused(labels, classes, message):
    with pytest.raises(BadInput, match=message):
        class_counts(np.asarray(labels), classes)
