r"""Statistics of learning curves: measures, bootstrap intervals, paired tests and rankings.

A curve is a metric over the number of labels, one per strategy and seed. Runs are paired: a seed
fixes the first labels, the initial weights and the split for all strategies. Two strategies are
therefore compared by their differences under the same seed, and the bootstrap draws seeds and takes
the runs of all strategies under a drawn seed together.

*Intervals* are percentile bootstrap intervals with expanded tails: the tail probability is
:math:`\Phi(-\sqrt{s/(s-1)}\; t_{0.975, s-1})` instead of 2.5 %, because the plain interval is too
short for few seeds (it covers 83 % at 5 seeds of normal differences; expanded 92 %, at 8 seeds
94 %). Up to 8 seeds all resamples are enumerated. A bootstrap interval of a mean stays within the
range of its seeds, so with s seeds it covers at most :math:`1 - 2^{1-s}`.

*Tests*: the sign-flip test assumes only that a difference is equally likely with either sign if two
strategies are equal; it is exact but cannot give less than :math:`2^{1-s}`. Student's paired t
assumes normal differences. Holm's method corrects both for the number of comparisons.

References: T. Hesterberg, "What Teachers Should Know About the Bootstrap", The American
Statistician, 2015 (expanded tails). S. Holm, "A Simple Sequentially Rejective Multiple Test
Procedure", Scandinavian Journal of Statistics, 1979. J. Ash et al., "Deep Batch Active Learning by
Diverse, Uncertain Gradient Lower Bounds", ICLR 2020 (win matrix). J. Demsar, "Statistical
Comparisons of Classifiers over Multiple Data Sets", JMLR, 2006 (ranks).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import gammaln

from labelwise.arrays import Floats
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.errors import BadInput

LEVEL = 0.05  # Significance level of the tests

EXACT_RESAMPLES, DRAWS = 8, 10_000
"""Largest number of seeds whose resamples are enumerated, and number of draws beyond."""

EXACT_FLIPS, FLIPS = 14, 20_000
"""Largest number of differences whose sign patterns are enumerated, and number of draws beyond."""


# Measures of curves.


def curve_area(labels: ArrayLike, curves: ArrayLike) -> Floats:
    """Mean height of curves: trapezoid over the labels, divided by their range.

    ``curves`` are ``(..., r)``, ``labels`` ``(r,)``; one measurement is returned as it is.

    >>> float(curve_area([10, 20, 40], [0.0, 60.0, 60.0]))
    50.0
    """
    at, heights = np.asarray(labels, dtype=np.float64), np.asarray(curves, dtype=np.float64)
    if at.ndim != 1 or heights.shape[-1] != len(at):
        raise BadInput(
            f"labels have shape {at.shape} but curves {heights.shape}; give (r,), (.., r)"
        )
    if not len(at) or (np.diff(at) <= 0).any():
        raise BadInput("labels must increase from round to round, and there must be a round")
    if len(at) == 1:
        return heights[..., 0]
    found: Floats = np.trapezoid(heights, at, axis=-1) / (at[-1] - at[0])
    return found


def labels_needed(
    labels: ArrayLike, curves: ArrayLike, targets: ArrayLike, *, higher_is_better: bool = True
) -> Floats:
    """Number of labels at which curves first reach their targets, interpolated linearly.

    ``labels`` ``(r,)`` increase; ``curves`` are ``(..., r)`` and ``targets`` ``(...)``, or one for
    all. Infinite where a curve never reaches its target.

    >>> float(labels_needed([10, 20, 30], [0.5, 0.7, 0.8], 0.6))
    15.0
    """
    sign = 1 if higher_is_better else -1
    at, heights = np.asarray(labels, dtype=np.float64), sign * np.asarray(curves)
    wanted = np.broadcast_to(sign * np.asarray(targets, dtype=np.float64), heights.shape[:-1])
    # A target that is itself a mean of these curves counts as reached despite rounding.
    reached = heights >= (wanted - 1e-12 * np.abs(wanted))[..., None]
    # The first round that reaches the target, and the one before it.
    after = reached.argmax(axis=-1)
    before = np.maximum(after - 1, 0)
    low = np.take_along_axis(heights, before[..., None], axis=-1)[..., 0]
    high = np.take_along_axis(heights, after[..., None], axis=-1)[..., 0]
    rise = np.where(after > before, high - low, 1.0)
    share = np.clip(np.where(after > 0, (wanted - low) / rise, 0.0), 0.0, 1.0)
    needed = at[before] + share * (at[after] - at[before])
    return np.where(reached.any(axis=-1), needed, np.inf)


def saving_target(
    finals: ArrayLike, *, share: float = 0.97, higher_is_better: bool = True
) -> Floats:
    """Target of the ally paper: a share of the best final mean ``(k, ...)``.

    Where lower is better, the target is the best divided by the share. Nan where the best is not
    positive.

    >>> float(saving_target([0.8, 0.9], share=0.9))
    0.81
    """
    values = np.asarray(finals, dtype=np.float64)
    best = np.nanmax(values, axis=0) if higher_is_better else np.nanmin(values, axis=0)
    return np.where(best > 0, best * share if higher_is_better else best / share, np.nan)


def label_saving(needed: ArrayLike, baseline: ArrayLike) -> Floats:
    """Share of the baseline's labels that a method saves: ``1 - needed / baseline``.

    1 where only the baseline fails to reach the target, -inf where only the method does, nan where
    both do.

    >>> float(label_saving(150, 200))
    0.25
    """
    ours, theirs = np.asarray(needed, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return 1 - ours / theirs


# Bootstrap intervals.


@dataclass(frozen=True)
class Estimate:
    """A value with the ends of its 95 % bootstrap interval; inf means "not reached"."""

    value: float
    low: float
    high: float


@lru_cache(maxsize=32)
def resample_seeds(seeds: int) -> tuple[Floats, Floats]:
    """Shares of seeds in resamples ``(m, s)`` (all up to 8 seeds) and probabilities ``(m,)``."""
    if seeds > EXACT_RESAMPLES:
        drawn = np.random.default_rng(0).multinomial(seeds, np.full(seeds, 1 / seeds), DRAWS)
        return drawn / seeds, np.full(DRAWS, 1 / DRAWS)
    sets = combinations_with_replacement(range(seeds), seeds)
    counts = np.array([np.bincount(chosen, minlength=seeds) for chosen in sets])
    # The multinomial probability of every resample.
    log_chance = gammaln(seeds + 1) - gammaln(counts + 1).sum(axis=1) - seeds * np.log(seeds)
    return counts / seeds, np.exp(log_chance)


@lru_cache(maxsize=32)
def bootstrap_tail_probability(seeds: int) -> float:
    """Probability of the bootstrap distribution beyond each end, expanded for few seeds."""
    quantile = stats.t.ppf(0.975, seeds - 1)
    return float(stats.norm.cdf(-np.sqrt(seeds / (seeds - 1)) * quantile))


def bootstrap(statistic: Callable[[Floats], Floats], seeds: int) -> Estimate:
    """A statistic of weighted seeds with its 95 % interval.

    The statistic takes shares ``(m, s)`` that sum to 1 and returns ``(m,)``; inf is a value, and
    nan ("could be anything") widens the interval on both sides. With one seed the ends are nan.

    >>> values = np.array([1.0, 2.0, 6.0])
    >>> bootstrap(lambda shares: shares @ values, 3)
    Estimate(value=3.0, low=1.0, high=6.0)
    """
    if seeds < 1:
        raise BadInput("an interval over seeds needs at least one seed")
    value = float(statistic(np.full((1, seeds), 1 / seeds))[0])
    if seeds < 2:
        return Estimate(value, np.nan, np.nan)
    shares, chances = resample_seeds(seeds)
    drawn = np.asarray(statistic(shares), dtype=np.float64)
    tail = bootstrap_tail_probability(seeds)
    low = _weighted_lower_quantile(np.where(np.isnan(drawn), -np.inf, drawn), chances, tail)
    high = -_weighted_lower_quantile(np.where(np.isnan(drawn), -np.inf, -drawn), chances, tail)
    return Estimate(value, min(low, value), max(high, value))


def bootstrap_mean(values: ArrayLike) -> Estimate:
    """The mean of one number per seed, ``(s,)``, with its interval."""
    numbers = np.asarray(values, dtype=np.float64)
    return bootstrap(lambda shares: shares @ numbers, len(numbers))


def _weighted_lower_quantile(values: Arrays, chances: Floats, tail: float) -> float:
    """The smallest value with at least ``tail`` of the probability at or below it."""
    order = np.argsort(values, kind="stable")
    place = int(np.searchsorted(np.cumsum(chances[order]), tail * (1 - 1e-9)))
    return float(values[order[min(place, len(order) - 1)]])


# Paired differences.


def sign_flip_test(differences: ArrayLike) -> float:
    """Two-sided p-value of the paired sign-flip test.

    Exact over all sign patterns up to 14 differences; beyond, from 20,000 draws and the observed
    pattern.

    >>> sign_flip_test([1.0, 2.0, 3.0, 4.0, 5.0])
    0.0625
    """
    numbers = np.asarray(differences, dtype=np.float64)
    if not np.isfinite(numbers).all():
        return float("nan")
    count = len(numbers)
    exact = count <= EXACT_FLIPS
    if exact:
        flips = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
    else:
        flips = np.random.default_rng(0).integers(2, size=(FLIPS, count))
    sums = (1 - 2 * flips) @ numbers
    slack = 1e-9 * np.abs(numbers).sum()  # the observed pattern counts despite rounding
    extreme = int((np.abs(sums) >= abs(numbers.sum()) - slack).sum())
    return extreme / len(sums) if exact else (extreme + 1) / (FLIPS + 1)


def paired_t_test(differences: ArrayLike) -> float:
    """Two-sided p-value of Student's paired t test; nan if undefined, 0 for equal differences."""
    numbers = np.asarray(differences, dtype=np.float64)
    if len(numbers) < 2 or not np.isfinite(numbers).all():
        return float("nan")
    if numbers.std(ddof=1) <= 1e-12 * np.abs(numbers).max():
        return 0.0 if numbers.mean() else 1.0
    return float(stats.ttest_1samp(numbers, 0.0).pvalue)


def correct_holm(p_values: ArrayLike) -> Floats:
    """P-values corrected for their number by Holm's method; nan stays and does not count.

    >>> correct_holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    given = np.asarray(p_values, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(given))
    # The smallest p-value counts for all comparisons, the next for one less, and so on.
    order = known[np.argsort(given[known], kind="stable")]
    steps = given[order] * (len(order) - np.arange(len(order)))
    adjusted = np.full(len(given), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


@dataclass(frozen=True)
class PairedDifference:
    """Difference of two strategies under the same seeds."""

    gain: Estimate  # mean difference with its interval; positive is better for any metric
    seeds: int
    ahead: int  # number of pairs with a positive difference
    p_flip: float
    p_t: float


def paired_difference(
    ours: ArrayLike, theirs: ArrayLike, *, higher_is_better: bool = True
) -> PairedDifference:
    """Compare one number per seed of two strategies."""
    first, second = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise BadInput(f"give one number per seed of both; got {first.shape} and {second.shape}")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise BadInput("a run without a finite number cannot be compared; leave its seed out")
    if not len(first):
        raise BadInput("two strategies without a seed in common cannot be compared")
    numbers = (1 if higher_is_better else -1) * (first - second)
    ahead = int((numbers > 0).sum())
    tests = sign_flip_test(numbers), paired_t_test(numbers)
    return PairedDifference(bootstrap_mean(numbers), len(numbers), ahead, *tests)


# Rankings of many strategies.


def win_matrix(experiments: Sequence[Mapping[str, Floats]], names: Sequence[str]) -> Floats:
    """Share of rounds in which the row's strategy beats the column's, as in the BADGE paper.

    In one experiment, the share of rounds whose paired differences have a significant t (two-sided
    at 5 %) in favour of the row; then the mean over experiments that have both. The BADGE
    paper sums over experiments and uses label counts that double; here all given rounds count.
    Curves are ``(s, r)`` per strategy, nan where a value is missing; the shares ``(k, k)`` are nan
    where two strategies were never compared.
    """
    wins = np.full((len(names), len(names)), np.nan)
    for row, first in enumerate(names):
        for column, second in enumerate(names):
            if first == second:
                continue
            both = [entry for entry in experiments if first in entry and second in entry]
            shares = [_share_of_rounds_won(entry[first] - entry[second]) for entry in both]
            shares = [share for share in shares if not np.isnan(share)]
            if shares:
                wins[row, column] = np.mean(shares)
    return wins


def _share_of_rounds_won(differences: Floats) -> float:
    """The share of rounds ``(s, r)`` won with significance; nan if none has 2 seeds."""
    rounds = [column[~np.isnan(column)] for column in differences.T]
    tested = [column for column in rounds if len(column) > 1]
    if not tested:
        return float("nan")
    return float(
        np.mean([column.mean() > 0 and paired_t_test(column) <= LEVEL for column in tested])
    )


@dataclass(frozen=True)
class MeanRanks:
    """Mean ranks over data sets (1 is best), and significant differences."""

    names: tuple[str, ...]
    ranks: Floats  # ``(k,)``, their mean ranks; ties share a rank
    data_sets: int
    p_value: float  # of Friedman's test that all strategies are equal; nan for two strategies
    critical_difference: float  # of Nemenyi's test at 5 %: closer mean ranks do not differ
    # First and last position of every longest run of strategies that do not differ
    groups: tuple[tuple[int, int], ...]


def mean_ranks(scores: ArrayLike, names: Sequence[str]) -> MeanRanks:
    """Rank strategies on every data set by scores ``(N, k)``, and average the ranks."""
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != len(names) or min(table.shape) < 2:
        raise BadInput(f"ranks need 2 data sets and 2 strategies or more; got {table.shape}")
    if not np.isfinite(table).all():
        raise BadInput("ranks need a finite score of every strategy on every data set")
    blocks, count = table.shape
    ranks = stats.rankdata(-table, axis=1).mean(axis=0)
    equal = (table == table[:, :1]).all()
    p_value = 1.0 if equal else np.nan
    if count > 2 and not equal:
        p_value = float(stats.friedmanchisquare(*table.T).pvalue)
    quantile = stats.studentized_range.ppf(1 - LEVEL, count, np.inf) / np.sqrt(2)
    critical = float(quantile * np.sqrt(count * (count + 1) / (6 * blocks)))
    order = np.argsort(ranks, kind="stable")
    best_first = tuple(names[place] for place in order)
    groups = _group_equal_ranks(ranks[order], critical)
    return MeanRanks(best_first, ranks[order], blocks, p_value, critical, groups)


def _group_equal_ranks(ranks: Floats, critical: float) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for first in range(len(ranks)):
        last = int(np.flatnonzero(ranks - ranks[first] <= critical)[-1])
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return tuple(found)
