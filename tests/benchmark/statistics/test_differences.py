"""Paired differences and their p-values, against definitions and SciPy."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from labelwise.benchmark.statistics import (
    correct_holm,
    paired_difference,
    sign_flip_test,
    t_test,
)
from labelwise.errors import BadInput


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
    assert np.isnan(sign_flip_test(differences)) and np.isnan(t_test(differences))


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
    assert t_test(ours - theirs) == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)
    assert np.isnan(t_test([1.0]))
    assert t_test([0.1 + 0.2, 0.3]) == 0.0 and t_test([0.0, 0.0]) == 1.0


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
