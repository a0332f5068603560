"""Bootstrap intervals against all resample_seeds, and how often they cover."""

import itertools

import numpy as np
import pytest
from scipy import stats

from labelwise.benchmark.statistics import (
    area,
    bootstrap,
    mean_estimate,
    paired_difference,
    resample_seeds,
    tail_probability,
)
from labelwise.errors import BadInput


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
    found = mean_estimate(values)
    assert (found.low, found.high) == pytest.approx(slow_interval(values))
    assert found.value == pytest.approx(values.mean())


def test_many_seeds_give_students_interval_nearly():
    values = np.random.default_rng(0).normal(size=60)
    found = mean_estimate(values)
    half = stats.t.ppf(0.975, 59) * values.std(ddof=1) / np.sqrt(60)
    assert (found.low, found.high) == pytest.approx(
        (values.mean() - half, values.mean() + half), abs=0.1 * half
    )


def test_no_seed_is_refused():
    with pytest.raises(BadInput, match="at least one seed"):
        mean_estimate([])


def test_one_seed_has_no_interval():
    found = mean_estimate([0.4])
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
    true = 0.02 * area(labels, shape)
    found = [
        paired_difference(area(labels, a), area(labels, b)).gain
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
    assert tail_probability(5) == pytest.approx(stats.norm.cdf(-np.sqrt(5 / 4) * 2.7764), rel=1e-3)
    assert tail_probability(1000) == pytest.approx(0.025, rel=0.01)
