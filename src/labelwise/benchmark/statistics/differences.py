r"""Differences of two strategies under the same seeds, and how likely chance explains them.

Sign flips: if two strategies are alike, a seed's difference is as likely with the other sign,
whatever its law; the p-value is the share of all :math:`2^s` sign patterns whose mean is at least
as far from zero. It is exact, but cannot go below :math:`2^{1-s}` (0.0625 at 5 seeds), so Student's
paired t, which assumes normal differences, stands beside it. Holm's method corrects for the number
of comparisons.

Reference: S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal
of Statistics, 1979.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from labelwise.arrays import Floats
from labelwise.benchmark.statistics.intervals import Estimate, mean_estimate
from labelwise.errors import BadInput

EXACT_FLIPS, FLIPS = 14, 20_000
"""Up to so many differences all sign patterns are enumerated; beyond, so many are drawn."""


def sign_flip_test(differences: ArrayLike, *, seed: int = 0) -> float:
    """Two-sided p-value of "the differences are as likely with the other sign".

    Exact over all sign patterns up to 14 differences; beyond, 20,000 drawn ones, themselves
    counted with the observed one.

    Args:
        differences: ``(s,)``, one per seed; with one that is no finite number, the answer is nan.
        seed: decides the patterns that are drawn.

    Example:
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
        flips = np.random.default_rng(seed).integers(2, size=(FLIPS, count))
    means = (1 - 2 * flips) @ numbers
    slack = 1e-9 * np.abs(numbers).sum()  # the observed pattern counts whatever the rounding
    extreme = int((np.abs(means) >= abs(numbers.sum()) - slack).sum())
    return extreme / len(means) if exact else (extreme + 1) / (FLIPS + 1)


def t_test(differences: ArrayLike) -> float:
    """Two-sided p-value of Student's paired t; 0 if all are alike.

    It is nan for fewer than two differences, and with one that is no finite number.
    """
    numbers = np.asarray(differences, dtype=np.float64)
    if len(numbers) < 2 or not np.isfinite(numbers).all():
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
    first, second = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise BadInput(f"give one number per seed of both; got {first.shape} and {second.shape}")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise BadInput("a run without a finite number cannot be compared; leave its seed out")
    numbers = sign * (first - second)
    if not len(numbers):
        raise BadInput("two strategies without a seed in common cannot be compared")
    return Difference(
        mean_estimate(numbers),
        len(numbers),
        int((numbers > 0).sum()),
        sign_flip_test(numbers),
        t_test(numbers),
    )
