"""Areas, labels needed and savings of learning curves."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.benchmark import statistics
from labelwise.benchmark.statistics import (
    area,
    label_saving,
    labels_needed,
    saving_target,
)
from labelwise.errors import BadInput

LABELS = np.array([20, 30, 50, 90])


def test_the_doctests_pass():
    found = doctest.testmod(statistics)
    assert found.attempted > 0 and found.failed == 0


def test_the_area_of_a_straight_line_is_its_middle():
    assert area([40, 80, 640], [0.0, 40.0, 600.0]) == pytest.approx(300.0)


def test_the_area_weighs_measurements_by_the_labels_between_them():
    assert area([0, 10, 100], [[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]]) == pytest.approx([0.95, 1.0])


def test_the_area_of_one_measurement_is_that_measurement():
    assert area([40], [[0.5], [0.7]]).tolist() == [0.5, 0.7]


@pytest.mark.parametrize(("labels", "shape"), [([10, 10], 2), ([20, 10], 2), ([], 0), ([1, 2], 3)])
def test_labels_that_do_not_rise_or_fit_are_refused(labels, shape):
    with pytest.raises(BadInput):
        area(labels, np.zeros(shape))


def slow_labels_needed(labels, curve, target):
    """The same for one curve, from the first round that reaches the target."""
    reached = np.flatnonzero(curve >= target)
    if not len(reached):
        return np.inf
    after = reached[0]
    if after == 0:
        return labels[0]
    share = (target - curve[after - 1]) / (curve[after] - curve[after - 1])
    return labels[after - 1] + share * (labels[after] - labels[after - 1])


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.floats(0, 1))
def test_labels_needed_agree_with_the_one_curve_version(curve, target):
    assert labels_needed(LABELS, curve, target) == pytest.approx(
        slow_labels_needed(LABELS, np.array(curve), target), rel=1e-9
    )


def test_labels_needed_of_many_curves_and_errors():
    found = labels_needed(
        LABELS,
        [[4.0, 3.0, 2.0, 1.0], [4.0, 4.0, 4.0, 4.0], [1.0, 1.0, 1.0, 1.0]],
        [2.5, 2.5, 2.5],
        higher_is_better=False,
    )
    assert found.tolist() == [40.0, np.inf, 20.0]


def test_a_target_that_is_the_last_mean_up_to_rounding_is_reached():
    target = 0.1 + 0.2  # one unit above 0.3
    assert labels_needed(LABELS, [0.0, 0.0, 0.1, 0.3], target) == 90.0


def test_the_saving_at_97_percent_of_the_best_final_mean_is_as_in_the_ally_paper():
    labels = [0, 100, 200]
    method, baseline = [0.0, 1.0, 1.0], [0.0, 0.5, 1.0]
    target = saving_target([method[-1], baseline[-1]])
    assert target == pytest.approx(0.97)
    ours, theirs = labels_needed(labels, [method, baseline], [target, target])
    assert (ours, theirs) == pytest.approx((97.0, 194.0))
    assert label_saving(ours, theirs) == pytest.approx(0.5)


def test_a_saving_says_who_did_not_get_there():
    found = label_saving([50.0, np.inf, np.inf], [np.inf, 50.0, np.inf])
    assert found[0] == 1 and found[1] == -np.inf and np.isnan(found[2])


def test_the_target_of_an_error_is_above_the_best_and_needs_a_positive_one():
    assert saving_target([2.0, 4.0], share=0.5, higher_is_better=False) == 4.0
    assert np.isnan(saving_target([-0.2, -0.1]))
    assert saving_target([[0.5, np.nan], [np.nan, 1.0]], share=0.5).tolist() == [0.25, 0.5]
