"""Measures, bootstrap intervals, paired tests and rankings against slow versions."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from labelwise.benchmark.statistics import (
    bootstrap,
    bootstrap_mean,
    bootstrap_tail_probability,
    correct_holm,
    curve_area,
    label_saving,
    labels_needed,
    mean_ranks,
    paired_difference,
    paired_t_test,
    resample_seeds,
    saving_target,
    sign_flip_test,
    win_matrix,
)
from labelwise.errors import BadInput

# Measures.

LABELS = np.array([20, 30, 50, 90])


def test_the_area_of_a_straight_line_is_its_middle():
    assert curve_area([40, 80, 640], [0.0, 40.0, 600.0]) == pytest.approx(300.0)


def test_the_area_weighs_measurements_by_the_labels_between_them():
    assert curve_area([0, 10, 100], [[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]]) == pytest.approx(
        [0.95, 1.0]
    )


def test_the_area_of_one_measurement_is_that_measurement():
    assert curve_area([40], [[0.5], [0.7]]).tolist() == [0.5, 0.7]


@pytest.mark.parametrize(("labels", "shape"), [([10, 10], 2), ([20, 10], 2), ([], 0), ([1, 2], 3)])
def test_labels_that_do_not_rise_or_fit_are_refused(labels, shape):
    with pytest.raises(BadInput):
        curve_area(labels, np.zeros(shape))


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


# Intervals.


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_all_resamples_are_there_with_their_probabilities(seeds):
    shares, chances = resample_seeds(seeds)
    counted = {}
    for drawn in itertools.product(range(seeds), repeat=seeds):
        key = tuple(np.bincount(drawn, minlength=seeds))
        counted[key] = counted.get(key, 0) + 1
    found = {
        tuple(np.rint(row * seeds).astype(int)): chance
        for row, chance in zip(shares, chances, strict=True)
    }
    assert found == pytest.approx({key: n / seeds**seeds for key, n in counted.items()})


def slow_interval(values):
    """Every ordered resample, sorted; the value at which the tail is first reached."""
    means = np.sort([np.mean(drawn) for drawn in itertools.product(values, repeat=len(values))])
    size = len(values)
    spread = np.sqrt(size / (size - 1)) * stats.t.ppf(0.975, size - 1)
    place = int(np.ceil(stats.norm.sf(spread) * len(means) - 1e-9)) - 1
    return means[max(place, 0)], means[-1 - max(place, 0)]


@pytest.mark.parametrize("seeds", [2, 4, 5])
def test_the_interval_is_that_of_all_resamples_with_expanded_tails(seeds):
    values = np.random.default_rng(seeds).normal(size=seeds)
    found = bootstrap_mean(values)
    assert (found.low, found.high) == pytest.approx(slow_interval(values))
    assert found.value == pytest.approx(values.mean())


def test_many_seeds_give_students_interval_nearly():
    values = np.random.default_rng(0).normal(size=60)
    found = bootstrap_mean(values)
    half = stats.t.ppf(0.975, 59) * values.std(ddof=1) / np.sqrt(60)
    assert (found.low, found.high) == pytest.approx(
        (values.mean() - half, values.mean() + half), abs=0.1 * half
    )


def test_no_seed_is_refused():
    with pytest.raises(BadInput, match="at least one seed"):
        bootstrap_mean([])


def test_one_seed_has_no_interval():
    found = bootstrap_mean([0.4])
    assert found.value == 0.4 and np.isnan(found.low) and np.isnan(found.high)


def test_infinite_and_unknown_values_reach_the_ends_of_the_interval():
    def infinite(shares):
        return np.where(shares[:, 0] > 0.7, np.inf, 1.0)

    def unknown(shares):
        return np.where(shares[:, 0] > 0.7, np.nan, 1.0)

    found = bootstrap(infinite, 4)
    assert (found.value, found.low, found.high) == (1.0, 1.0, np.inf)
    found = bootstrap(unknown, 4)
    assert (found.value, found.low, found.high) == (1.0, -np.inf, np.inf)


def covered(seeds, trials, generator):
    """How often the interval of a mean difference of areas holds the true one."""
    labels = np.linspace(40, 640, 16)
    shape = 1 - np.exp(-labels / 200)
    shared = generator.normal(0, 0.03, size=(trials, seeds, 1))
    ours, theirs = (
        height * shape
        + shared
        + generator.normal(0, 0.02, size=(trials, seeds, 1))
        + generator.normal(0, 0.01, size=(trials, seeds, 16))
        for height in (0.92, 0.9)
    )
    true = 0.02 * curve_area(labels, shape)
    found = [
        paired_difference(curve_area(labels, a), curve_area(labels, b)).gain
        for a, b in zip(ours, theirs, strict=True)
    ]
    return np.mean([estimate.low <= true <= estimate.high for estimate in found])


@pytest.mark.parametrize(
    ("seeds", "trials", "low", "high"),
    [
        (3, 1000, 0.70, 0.80),  # the bound 1 - 2^(1 - 3) is 75 %
        (5, 2000, 0.895, 0.94),  # called 95 %, covers 92 %: no bootstrap of 5 can pass 93.75 %
        (8, 800, 0.92, 0.97),
        (20, 400, 0.92, 0.98),
    ],
)
def test_intervals_cover_as_often_as_the_module_says(seeds, trials, low, high):
    assert low <= covered(seeds, trials, np.random.default_rng(seeds)) <= high


def test_the_tail_is_expanded_for_few_seeds():
    assert bootstrap_tail_probability(5) == pytest.approx(
        stats.norm.cdf(-np.sqrt(5 / 4) * 2.7764), rel=1e-3
    )
    assert bootstrap_tail_probability(1000) == pytest.approx(0.025, rel=0.01)


# Differences.


def test_pairing_takes_away_what_the_seeds_share():
    shared = np.random.default_rng(0).normal(0, 10, size=6)
    found = paired_difference(shared + 1.0, shared)
    assert (found.gain.low, found.gain.high) == pytest.approx((1.0, 1.0))
    assert found.ahead == found.seeds == 6


def test_a_lower_error_is_a_gain():
    found = paired_difference([1.0, 2.0, 3.0], [2.0, 3.0, 5.0], higher_is_better=False)
    assert found.gain.value == pytest.approx(4 / 3) and found.ahead == 3


def test_nothing_in_common_is_refused():
    with pytest.raises(BadInput, match="without a seed in common"):
        paired_difference([], [])


def test_what_is_not_paired_or_no_number_is_refused():
    with pytest.raises(BadInput, match=r"one number per seed of both; got \(3,\) and \(1,\)"):
        paired_difference([1.0, 2.0, 3.0], [1.0])
    with pytest.raises(BadInput, match="without a finite number cannot be compared"):
        paired_difference([1.0, np.nan], [1.0, 2.0])


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_difference_that_is_no_number_has_no_p_value(wrong):
    differences = [wrong, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert np.isnan(sign_flip_test(differences)) and np.isnan(paired_t_test(differences))


@pytest.mark.parametrize("seed", range(5))
def test_sign_flips_agree_with_scipy(seed):
    generator = np.random.default_rng(seed)
    ours, theirs = generator.normal(0.3, 1, size=(2, 3 + seed))
    expected = stats.permutation_test(
        (ours, theirs),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    assert sign_flip_test(ours - theirs) == pytest.approx(expected.pvalue)


@pytest.mark.parametrize("seeds", [2, 5, 9])
def test_the_smallest_p_of_sign_flips_is_two_over_all_patterns(seeds):
    assert sign_flip_test(np.arange(1.0, seeds + 1)) == 2.0 ** (1 - seeds)
    assert sign_flip_test(np.zeros(seeds)) == 1.0


def test_drawn_sign_flips_are_near_the_exact_ones():
    numbers = np.random.default_rng(3).normal(0.4, 1, size=16)
    signs = np.array(list(itertools.product([-1, 1], repeat=16)))
    exact = np.mean(np.abs(signs @ numbers) >= abs(numbers.sum()) - 1e-9)
    assert sign_flip_test(numbers) == pytest.approx(exact, abs=0.015)


def test_p_values_of_equal_strategies_are_not_too_small():
    generator = np.random.default_rng(0)
    found = np.array([sign_flip_test(generator.standard_t(2, size=8)) for _ in range(1000)])
    assert np.mean(found <= 0.05) <= 0.07
    assert np.mean(found <= 0.5) == pytest.approx(0.5, abs=0.05)


def test_the_t_test_agrees_with_scipy():
    ours, theirs = np.random.default_rng(1).normal(size=(2, 7))
    assert paired_t_test(ours - theirs) == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)
    assert np.isnan(paired_t_test([1.0]))
    assert paired_t_test([0.1 + 0.2, 0.3]) == 0.0 and paired_t_test([0.0, 0.0]) == 1.0


def slow_holm(p_values):
    """The smallest level at which the step-down procedure rejects each."""
    adjusted = []
    for p in p_values:
        smaller = [q for q in p_values if q <= p]
        steps = [(len(p_values) - sum(r < q for r in p_values)) * q for q in smaller]
        adjusted.append(min(1.0, max(steps)))
    return adjusted


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_holm_agrees_with_its_definition(p_values):
    assert correct_holm(p_values).tolist() == pytest.approx(slow_holm(p_values))


def test_holm_does_not_count_what_is_unknown():
    found = correct_holm([0.02, np.nan, 0.03])
    assert found[[0, 2]].tolist() == pytest.approx([0.04, 0.04]) and np.isnan(found[1])


# Rankings.


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
