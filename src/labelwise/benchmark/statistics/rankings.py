"""Rankings of many strategies: who beats whom how often, and mean ranks over data sets.

References: J. Ash et al., "Deep Batch Active Learning by Diverse, Uncertain Gradient Lower Bounds",
ICLR 2020 (win matrix). J. Demsar, "Statistical Comparisons of Classifiers over Multiple Data Sets",
JMLR, 2006 (ranks).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from labelwise.arrays import Floats
from labelwise.benchmark.statistics.differences import t_test
from labelwise.errors import BadInput


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
