"""Win matrices and mean ranks over data sets."""

import numpy as np
import pytest
from scipy import stats

from labelwise.benchmark.statistics import (
    mean_ranks,
    win_matrix,
)
from labelwise.errors import BadInput


def test_wins_are_shares_of_rounds_with_a_significant_t():
    noise = np.random.default_rng(0).normal(0, 0.01, size=(5, 4))
    base = np.full((5, 4), 0.5)
    ahead = base + noise + np.array([0.0, 0.2, 0.2, 0.2])
    ahead[:, 0] = [0.6, 0.4, 0.6, 0.4, 0.5]  # no difference in the first round
    found = win_matrix([{"a": ahead, "b": base}], ["a", "b"])
    assert found[0, 1] == 0.75 and found[1, 0] == 0.0 and np.isnan(found[0, 0])


def test_a_win_at_5_seeds_needs_a_t_above_2_776():
    unit = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    error = unit.std(ddof=1) / np.sqrt(5)
    for score, expected in ((2.77, 0.0), (2.78, 1.0)):
        entry = {"a": (unit + score * error)[:, None], "b": np.zeros((5, 1))}
        assert win_matrix([entry], ["a", "b"])[0, 1] == expected


def test_wins_average_over_the_experiments_that_have_both_and_over_what_is_there():
    base = np.zeros((3, 2))
    up = np.array([[1.0, 1.0], [1.0, 1.0], [np.nan, 1.0]])
    entries = [{"a": up, "b": base}, {"a": base, "b": base}, {"a": up}]
    found = win_matrix(entries, ["a", "b", "c"])
    assert found[0, 1] == 0.5 and np.isnan(found[0, 2])


def test_critical_differences_have_demsars_quantiles():
    known = {2: 1.960, 3: 2.343, 5: 2.728, 10: 3.164}
    for count, quantile in known.items():
        scores = np.random.default_rng(0).normal(size=(7, count))
        found = mean_ranks(scores, [str(n) for n in range(count)])
        expected = quantile * np.sqrt(count * (count + 1) / 42)
        assert found.critical_difference == pytest.approx(expected, rel=1e-3)


def test_mean_ranks_share_ties_and_friedman_is_scipys():
    scores = np.array([[0.9, 0.8, 0.8], [0.7, 0.9, 0.1], [0.5, 0.4, 0.3], [0.8, 0.7, 0.6]])
    found = mean_ranks(scores, ["a", "b", "c"])
    assert dict(zip(found.names, found.ranks.tolist(), strict=True)) == pytest.approx(
        {"a": 1.25, "b": 1.875, "c": 2.875}
    )
    assert found.p_value == pytest.approx(stats.friedmanchisquare(*scores.T).pvalue)


def test_groups_join_what_is_closer_than_the_critical_difference():
    scores = np.tile([4.0, 3.0, 2.0, 1.0], (20, 1))
    found = mean_ranks(scores, list("abcd"))
    assert 1 < found.critical_difference < 2
    assert found.groups == ((0, 1), (1, 2), (2, 3))


def test_ranks_of_equal_strategies_do_not_differ():
    found = mean_ranks(np.ones((3, 4)), list("abcd"))
    assert found.ranks.tolist() == [2.5] * 4 and found.p_value == 1.0
    assert found.groups == ((0, 3),)


@pytest.mark.parametrize("scores", [np.ones((1, 3)), np.ones((3, 1)), [[1.0, np.nan], [1.0, 2.0]]])
def test_ranks_refuse_too_little_or_holes(scores):
    with pytest.raises(BadInput, match="ranks need"):
        mean_ranks(scores, [str(n) for n in range(np.shape(scores)[1])])
