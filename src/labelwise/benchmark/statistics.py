r"""What learning curves show, and how sure that is.

A curve is a metric over the number of labels, one per strategy and seed. Runs are paired: a seed
fixes the first labels, the initial weights and the split for all strategies, so two strategies
are compared by their differences under the same seed, and a bootstrap draws seeds and takes the
runs of all strategies under a drawn seed together.

Measures. *Area*: the trapezoid of the metric over the labels, divided by the range of labels
(sparse paper, whose text leaves it undefined). *Labels needed*: where the mean curve first reaches
a target, by straight lines between rounds; inf if it never does. *Label saving* (ally paper):
:math:`1 - n_{method} / n_{baseline}` at 97 % of the best final mean.

Intervals are percentile bootstrap intervals over seeds with expanded tails: the tail is
:math:`\Phi(-\sqrt{s/(s-1)}\; t_{0.975, s-1})` in place of 2.5 %. The plain one is too short for
few seeds (it covers 83 % at 5 seeds of normal differences; expanded 92 %, at 8 seeds 94 %). Up to
8 seeds all resamples are enumerated, so nothing depends on a draw. No bootstrap interval of a mean
leaves the range of its seeds, so with s seeds it covers at most :math:`1 - 2^{1-s}`: 50, 75 and
88 % at 2, 3 and 4 seeds.

Tests. Sign flips: if two strategies are alike, a seed's difference is as likely with the other
sign, whatever its law; the p-value is the share of all :math:`2^s` sign patterns whose mean is at
least as far from zero. It is exact, but cannot go below :math:`2^{1-s}` (0.0625 at 5 seeds), so
Student's paired t, which assumes normal differences, stands beside it. Holm's method corrects for
the number of comparisons.

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
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import gammaln

from labelwise.arrays import Floats
from labelwise.benchmark.curves import Estimate
from labelwise.errors import BadInput

EXACT_RESAMPLES, DRAWS = 8, 10_000
"""Up to so many seeds all resamples are enumerated; beyond, so many are drawn."""

EXACT_FLIPS, FLIPS = 14, 20_000
"""The same for the sign patterns of the test."""


def area(labels: ArrayLike, curves: ArrayLike) -> Any:
    """The mean height of curves: trapezoid over the labels, divided by their range.

    Args:
        labels: ``(r,)``, rising.
        curves: ``(..., r)``.

    Returns:
        ``(...)``, in the unit of the curves; with one measurement, that measurement.

    Example:
        >>> float(area([10, 20, 40], [0.0, 60.0, 60.0]))
        50.0
    """
    at, heights = np.asarray(labels, dtype=np.float64), np.asarray(curves, dtype=np.float64)
    if at.ndim != 1 or heights.shape[-1] != len(at):
        raise BadInput(
            f"labels have shape {at.shape} but curves {heights.shape}; give (r,), (.., r)"
        )
    if not len(at) or (np.diff(at) <= 0).any():
        raise BadInput("labels must rise from round to round, and there must be a round")
    if len(at) == 1:
        return heights[..., 0]
    return np.trapezoid(heights, at, axis=-1) / (at[-1] - at[0])


def labels_needed(
    labels: ArrayLike, curves: ArrayLike, targets: ArrayLike, *, higher_is_better: bool = True
) -> Any:
    """Where curves first reach their targets, between two rounds by a straight line.

    Args:
        labels: ``(r,)``, rising.
        curves: ``(..., r)``.
        targets: ``(...)``, or one for all.
        higher_is_better: whether reaching means at least, or at most.

    Returns:
        ``(...)``; inf where a curve never gets there.

    Example:
        >>> float(labels_needed([10, 20, 30], [0.5, 0.7, 0.8], 0.6))
        15.0
    """
    sign = 1 if higher_is_better else -1
    at, heights = np.asarray(labels, dtype=np.float64), sign * np.asarray(curves)
    wanted = np.broadcast_to(sign * np.asarray(targets, dtype=np.float64), heights.shape[:-1])
    # A target that is itself a mean of these curves counts as reached whatever the rounding.
    reached = heights >= (wanted - 1e-12 * np.abs(wanted))[..., None]
    after = reached.argmax(axis=-1)
    before = np.maximum(after - 1, 0)
    low = np.take_along_axis(heights, before[..., None], axis=-1)[..., 0]
    high = np.take_along_axis(heights, after[..., None], axis=-1)[..., 0]
    rise = np.where(after > before, high - low, 1.0)
    share = np.clip(np.where(after > 0, (wanted - low) / rise, 0.0), 0.0, 1.0)
    needed = at[before] + share * (at[after] - at[before])
    return np.where(reached.any(axis=-1), needed, np.inf)


def saving_target(finals: ArrayLike, *, share: float = 0.97, higher_is_better: bool = True) -> Any:
    """What the ally paper asks every method to reach: a share of the best final mean.

    Args:
        finals: ``(k, ...)``, the mean of each method in the last round; nan where there is none.
        share: of the best; an error, where lower is better, may be ``1 / share`` times the best.
        higher_is_better: which is the best.

    Returns:
        ``(...)``; nan where the best is not positive, so that a share of it means nothing.

    Example:
        >>> float(saving_target([0.8, 0.9], share=0.9))
        0.81
    """
    values = np.asarray(finals, dtype=np.float64)
    best = np.nanmax(values, axis=0) if higher_is_better else np.nanmin(values, axis=0)
    return np.where(best > 0, best * share if higher_is_better else best / share, np.nan)


def label_saving(needed: ArrayLike, baseline: ArrayLike) -> Any:
    """The share of the baseline's labels that a method does without: ``1 - needed / baseline``.

    Returns:
        1 where only the baseline never gets there, -inf where only the method does not, nan where
        neither does.

    Example:
        >>> float(label_saving(150, 200))
        0.25
    """
    ours, theirs = np.asarray(needed, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return 1 - ours / theirs


@lru_cache(maxsize=32)
def resamples(seeds: int, draws: int = DRAWS, seed: int = 0) -> tuple[Floats, Floats]:
    """Shares of the seeds in bootstrap resamples, ``(m, s)``, and their probabilities, ``(m,)``.

    Up to 8 seeds they are all resamples there are; beyond that ``draws`` drawn ones.
    """
    if seeds > EXACT_RESAMPLES:
        drawn = np.random.default_rng(seed).multinomial(seeds, np.full(seeds, 1 / seeds), draws)
        return drawn / seeds, np.full(draws, 1 / draws)
    sets = combinations_with_replacement(range(seeds), seeds)
    counts = np.array([np.bincount(chosen, minlength=seeds) for chosen in sets])
    log_chance = gammaln(seeds + 1) - gammaln(counts + 1).sum(axis=1) - seeds * np.log(seeds)
    return counts / seeds, np.exp(log_chance)


@lru_cache(maxsize=32)
def tail(seeds: int, level: float = 0.95) -> float:
    """How much of the bootstrap law lies beyond each end: expanded as Hesterberg advises."""
    quantile = stats.t.ppf((1 + level) / 2, seeds - 1)
    return float(stats.norm.cdf(-np.sqrt(seeds / (seeds - 1)) * quantile))


def bootstrap(statistic: Callable[[Floats], Any], seeds: int) -> Estimate:
    """A statistic of weighted seeds with its 95 % interval.

    Args:
        statistic: takes shares ``(m, s)`` that sum to 1, gives ``(m,)``; inf is a value, and nan
            stands for "could be anything", which widens the interval on both sides.
        seeds: s; with one seed the ends are nan.

    Example:
        >>> values = np.array([1.0, 2.0, 6.0])
        >>> bootstrap(lambda shares: shares @ values, 3)
        Estimate(value=3.0, low=1.0, high=6.0)
    """
    value = float(statistic(np.full((1, seeds), 1 / seeds))[0])
    if seeds < 2:
        return Estimate(value, np.nan, np.nan)
    shares, chances = resamples(seeds)
    drawn = np.asarray(statistic(shares), dtype=np.float64)
    beyond = tail(seeds)
    low = _lower(np.where(np.isnan(drawn), -np.inf, drawn), chances, beyond)
    high = -_lower(np.where(np.isnan(drawn), -np.inf, -drawn), chances, beyond)
    return Estimate(value, min(low, value), max(high, value))


def mean_estimate(values: ArrayLike) -> Estimate:
    """The mean of one number per seed, ``(s,)``, with its interval."""
    numbers = np.asarray(values, dtype=np.float64)
    return bootstrap(lambda shares: shares @ numbers, len(numbers))


def sign_flip_test(differences: ArrayLike, *, seed: int = 0) -> float:
    """Two-sided p-value of "the differences are as likely with the other sign".

    Exact over all sign patterns up to 14 differences; beyond, 20,000 drawn ones, themselves
    counted with the observed one.

    Args:
        differences: ``(s,)``, one per seed.
        seed: decides the patterns that are drawn.

    Example:
        >>> sign_flip_test([1.0, 2.0, 3.0, 4.0, 5.0])
        0.0625
    """
    numbers = np.asarray(differences, dtype=np.float64)
    count = len(numbers)
    exact = count <= EXACT_FLIPS
    if exact:
        flips = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
    else:
        flips = np.random.default_rng(seed).integers(2, size=(FLIPS, count))
    means = (1 - 2 * flips) @ numbers
    slack = 1e-9 * np.abs(numbers).sum()  # the observed pattern counts whatever the rounding
    extreme = int((np.abs(means) >= abs(numbers.sum()) - slack).sum())
    return extreme / len(means) if exact else (extreme + 1) / (FLIPS + 1)


def t_test(differences: ArrayLike) -> float:
    """Two-sided p-value of Student's paired t; nan for one difference, 0 if all are alike."""
    numbers = np.asarray(differences, dtype=np.float64)
    if len(numbers) < 2:
        return float("nan")
    centre, spread = numbers.mean(), numbers.std(ddof=1)
    if spread <= 1e-12 * np.abs(numbers).max():
        return 0.0 if centre else 1.0
    score = abs(centre) / (spread / np.sqrt(len(numbers)))
    return float(2 * stats.t.sf(score, len(numbers) - 1))


def holm(p_values: ArrayLike) -> Floats:
    """P-values corrected for their number by Holm's method; nan stays and does not count.

    Example:
        >>> holm([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.06, 0.06]
    """
    given = np.asarray(p_values, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(given))
    order = known[np.argsort(given[known], kind="stable")]
    steps = given[order] * (len(order) - np.arange(len(order)))
    adjusted = np.full(len(given), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


@dataclass(frozen=True)
class Difference:
    """How much better one strategy is than another under the same seeds.

    Attributes:
        gain: mean difference with its interval; positive is better, whatever the metric.
        seeds: pairs.
        ahead: pairs in which it was better.
        p_flip: of the sign-flip test.
        p_t: of Student's paired t.
    """

    gain: Estimate
    seeds: int
    ahead: int
    p_flip: float
    p_t: float


def paired_difference(
    ours: ArrayLike, theirs: ArrayLike, *, higher_is_better: bool = True
) -> Difference:
    """Compare one number per seed of two strategies.

    Args:
        ours: ``(s,)``.
        theirs: ``(s,)``, of the same seeds in the same order.
        higher_is_better: otherwise the sign is turned, so that a gain is always better.

    Example:
        >>> found = paired_difference([0.9, 0.8, 0.7], [0.8, 0.7, 0.6])
        >>> found.ahead, round(found.gain.value, 3), found.p_flip
        (3, 0.1, 0.25)
    """
    sign = 1 if higher_is_better else -1
    numbers = sign * (np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64))
    if not len(numbers):
        raise BadInput("two strategies without a seed in common cannot be compared")
    return Difference(
        mean_estimate(numbers),
        len(numbers),
        int((numbers > 0).sum()),
        sign_flip_test(numbers),
        t_test(numbers),
    )


def win_matrix(
    experiments: Sequence[Mapping[str, Floats]], names: Sequence[str], *, level: float = 0.05
) -> Floats:
    """How often the row's strategy beats the column's, as in the BADGE paper.

    In one experiment it is the share of the rounds in which the paired differences have a
    significant t (two-sided, ``level``; 2.776 at 5 seeds) in favour of the row; then the mean over
    the experiments that have both. The BADGE paper sums over experiments and takes label counts
    that double; here all given rounds count.

    Args:
        experiments: per strategy ``(s, r)``, higher is better, nan where something is missing.
        names: the order of rows and columns.
        level: of the test.

    Returns:
        ``(k, k)``, from 0 to 1; nan where two strategies were never compared.
    """
    wins = np.full((len(names), len(names)), np.nan)
    for row, first in enumerate(names):
        for column, second in enumerate(names):
            if first == second:
                continue
            both = [entry for entry in experiments if first in entry and second in entry]
            shares = [_won(entry[first] - entry[second], level) for entry in both]
            shares = [share for share in shares if not np.isnan(share)]
            if shares:
                wins[row, column] = np.mean(shares)
    return wins


@dataclass(frozen=True)
class Ranks:
    """Mean ranks over data sets (1 is best), and what differs significantly.

    Attributes:
        names: the strategies, best first.
        ranks: ``(k,)``, their mean ranks; ties share a rank.
        data_sets: how many there are.
        p_value: of Friedman's test that all strategies are alike; nan for two strategies.
        critical_difference: of Nemenyi's test at 5 %: mean ranks closer than this do not differ.
        groups: first and last position of every longest run of strategies that do not differ.
    """

    names: tuple[str, ...]
    ranks: Floats
    data_sets: int
    p_value: float
    critical_difference: float
    groups: tuple[tuple[int, int], ...]


def mean_ranks(scores: ArrayLike, names: Sequence[str], *, level: float = 0.05) -> Ranks:
    """Rank strategies on every data set, and average.

    Args:
        scores: ``(N, k)``, one row per data set, higher is better.
        names: of the k strategies.
        level: of Nemenyi's test.

    Example:
        >>> found = mean_ranks([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4]], ["a", "b", "c"])
        >>> found.names, found.ranks.tolist(), round(found.critical_difference, 3)
        (('a', 'b', 'c'), [1.0, 2.0, 3.0], 2.344)
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != len(names) or min(table.shape) < 2:
        raise BadInput(f"ranks need 2 data sets and 2 strategies or more; got {table.shape}")
    if not np.isfinite(table).all():
        raise BadInput("ranks need a finite score of every strategy on every data set")
    blocks, count = table.shape
    ranks = stats.rankdata(-table, axis=1).mean(axis=0)
    alike = (table == table[:, :1]).all()
    p_value = 1.0 if alike else np.nan
    if count > 2 and not alike:
        p_value = float(stats.friedmanchisquare(*table.T).pvalue)
    quantile = stats.studentized_range.ppf(1 - level, count, np.inf) / np.sqrt(2)
    critical = float(quantile * np.sqrt(count * (count + 1) / (6 * blocks)))
    order = np.argsort(ranks, kind="stable")
    best_first = tuple(names[place] for place in order)
    groups = _groups(ranks[order], critical)
    return Ranks(best_first, ranks[order], blocks, p_value, critical, groups)


def _lower(values: NDArray[Any], chances: Floats, beyond: float) -> float:
    """The smallest value with at least ``beyond`` of the probability at or below it."""
    order = np.argsort(values, kind="stable")
    place = int(np.searchsorted(np.cumsum(chances[order]), beyond * (1 - 1e-9)))
    return float(values[order[min(place, len(order) - 1)]])


def _won(differences: Floats, level: float) -> float:
    """The share of rounds ``(s, r)`` that are won with significance; nan if none has 2 seeds."""
    rounds = [column[~np.isnan(column)] for column in differences.T]
    tested = [column for column in rounds if len(column) > 1]
    if not tested:
        return float("nan")
    return float(np.mean([column.mean() > 0 and t_test(column) <= level for column in tested]))


def _groups(ranks: Floats, critical: float) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for first in range(len(ranks)):
        last = int(np.flatnonzero(ranks - ranks[first] <= critical)[-1])
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return tuple(found)
