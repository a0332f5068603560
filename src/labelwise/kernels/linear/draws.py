r"""Random draws of items in which every random number belongs to an item.

`draw_until_distinct` draws with replacement, item :math:`i` with probability :math:`p_i`, until
``k`` distinct items have occurred. Every item gets a Poisson clock of rate :math:`p_i`; the order
of all rings has the same law as the sequence of draws. The first ring of item :math:`i`
is at :math:`t_i = e_i / p_i` with :math:`e_i` a unit exponential; the ``k`` smallest are the items,
and with :math:`t^*` the largest of those, item :math:`i` has rung
:math:`1 + \mathrm{Poisson}(p_i (t^* - t_i))` times by then. The law is exact.

A Poisson draw keeps each item independently with probability :math:`\min(1, \beta t_i)`, where
:math:`\beta` makes ``k`` the expected number of items.

Both process one block at a time and join the few items that matter.

Cost: ``O(n)`` and a sort of ``k`` numbers, for any probabilities.

Reference: P. Efraimidis, P. Spirakis, "Weighted Random Sampling with a Reservoir", Information
Processing Letters 97, 2006 (the smallest :math:`e_i / p_i`).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from labelwise.arrays import Floats, Ids, row_noise, waiting_times
from labelwise.errors import BadInput

_ARRIVALS, _REPEATS, _KEPT = 11, 12, 13  # streams of noise, so that the draws are independent


class ClockRings(NamedTuple):
    """Items with a positive weight, their weights, and the times that order them; ``(m,)``."""

    ids: Ids
    weights: Floats
    times: Floats

    def select(self, positions: Any) -> "ClockRings":
        """The rings at some positions."""
        return ClockRings(*(column[positions] for column in self))


def draw_until_distinct(
    p: ArrayLike, k: int, seed: int, ids: Ids | None = None
) -> tuple[Ids, Ids, int]:
    """Draw with replacement until ``k`` items are distinct.

    Args:
        p: ``(n,)`` probabilities or weights proportional to them; zero means never.
        k: number of distinct items.
        seed: determines the draw, together with the items' ids.
        ids: ``(n,)``, the items' ids; row numbers if None.

    Returns:
        ids ``(k,)`` in the order of their first draw, counts ``(k,)`` of their draws, and the
        total number of draws, the sum of the counts.

    Example:
        >>> ids, counts, draws = draw_until_distinct([0.9, 0.05, 0.05, 0.0], 3, seed=0)
        >>> sorted(ids.tolist()), int(counts.sum()) == draws
        ([0, 1, 2], True)
    """
    if not isinstance(k, int | np.integer):
        raise BadInput(f"k must be a whole number; got {k!r}")
    weights = _check_draw_weights(p, k, ids)
    if k == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), 0
    highest = float(weights.max())
    ids = np.arange(len(weights), dtype=np.int64) if ids is None else np.asarray(ids, np.int64)
    drawn, counts = count_rings(first_rings(weights, ids, k, seed, highest), k, seed, highest)
    return drawn.ids, counts, int(counts.sum())


def join_clock_rings(parts: list[ClockRings]) -> ClockRings:
    """The rings of several blocks."""
    return ClockRings(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def sort_clock_rings(rings: ClockRings) -> ClockRings:
    """The rings in the order of time, ties by id."""
    return rings.select(np.lexsort((rings.ids, rings.times)))


def first_rings(weights: Floats, ids: Ids, k: int, seed: int, highest: float) -> ClockRings:
    """The ``k`` first rings of a block; the clock of the ``highest`` weight has rate 1."""
    some = np.flatnonzero(weights > 0)
    times = waiting_times(seed, (_ARRIVALS,), weights[some] / highest, ids[some])
    if k < len(some):
        first = np.argpartition(times, k - 1)[:k]
        some, times = some[first], times[first]
    return ClockRings(ids[some], weights[some], times)


def count_rings(rings: ClockRings, k: int, seed: int, highest: float) -> tuple[ClockRings, Ids]:
    """The first ``k`` rings of all blocks, and how often each item has rung by then."""
    first = rings.select(np.lexsort((rings.ids, rings.times))[:k])
    means = first.weights / highest * (first.times[-1] - first.times)
    if not means.sum() < 2**53:
        raise BadInput(
            f"{k} distinct items would take over {2.0**53:.0e} draws with these probabilities; "
            "ask for fewer, or use sampling='poisson'"
        )
    return first, 1 + _poisson_quantile(row_noise(seed, first.ids, _REPEATS), means)


def _poisson_quantile(levels: Floats, means: Floats) -> Ids:
    """The smallest count whose cumulative Poisson probability reaches the level, ``(k,)``.

    For means from a billion on, where the exact inverse fails, the normal law with its first
    correction is used, which is at most one count off.
    """
    normal = special.ndtri(levels)
    counts = np.ceil(means + np.sqrt(means) * normal + (normal**2 - 1) / 6 - 0.5)
    counts[levels <= np.exp(-means)] = 0
    exact = np.flatnonzero((levels > np.exp(-means)) & (means < 1e9))
    level, mean = levels[exact], means[exact]
    guess = np.ceil(special.pdtrik(level, mean))
    guess -= special.pdtr(np.maximum(guess - 1, 0), mean) >= level  # pdtrik may round up
    guess += special.pdtr(guess, mean) < level  # or down
    counts[exact] = guess
    return np.asarray(counts, dtype=np.int64)


class HeaviestWeights(NamedTuple):
    """The largest weights of a block, unordered, and the sum of the others."""

    weights: Floats
    others: float


def find_heaviest_weights(weights: Floats, k: float) -> HeaviestWeights:
    """The positive weights of a block that may be among the ``k`` largest of all."""
    count, rest = max(int(np.ceil(k)), 1), 0.0
    if count < len(weights):
        weights = np.partition(weights, len(weights) - count)
        rest = float(weights[: len(weights) - count].sum())
        weights = weights[len(weights) - count :]
    return HeaviestWeights(weights[weights > 0], rest)


def solve_poisson_rate(parts: list[HeaviestWeights], k: float) -> float:
    r"""The :math:`\beta` with :math:`\sum_i \min(1, \beta t_i) = k`.

    ``parts`` come from `find_heaviest_weights`; at least ``k`` weights must be positive.
    """
    if k == 0:
        return 0.0
    largest = np.sort(np.concatenate([part.weights for part in parts]))[::-1]
    others = sum(part.others for part in parts)
    rest = np.cumsum(largest[::-1])[::-1] + others  # rest[s]: the sum without the s largest
    certain = np.arange(min(len(largest), int(np.ceil(k))))
    rates = (k - certain) / rest[: len(certain)]
    fits = rates * largest[: len(certain)] <= 1
    return float(rates[fits.argmax()] if fits.any() else 1 / largest[-1])


def keep_poisson_items(weights: Floats, ids: Ids, seed: int, rate: float) -> ClockRings:
    """The items of a block that are kept, each with probability ``min(1, rate * weight)``."""
    some = np.flatnonzero(rate * weights > 0)
    times = row_noise(seed, ids[some], _KEPT) / np.minimum(1.0, rate * weights[some])
    inside = np.flatnonzero(times < 1)
    some = some[inside]
    return ClockRings(ids[some], weights[some], times[inside])


def _check_draw_weights(p: ArrayLike, k: float, ids: Ids | None) -> Floats:
    """The weights in float64 if they, their ids and ``k`` are valid."""
    weights = np.asarray(p, dtype=np.float64)
    if weights.ndim != 1:
        raise BadInput(f"p must have one axis; got shape {weights.shape}")
    if ids is not None and len(ids) != len(weights):
        raise BadInput(f"there are {len(ids)} ids but {len(weights)} probabilities")
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        at = int(wrong.argmax())
        item = at if ids is None else ids[at]
        raise BadInput(f"p must be finite and not negative; item {item} has {weights[at]}")
    positive = int(np.count_nonzero(weights))
    if not 0 <= k <= positive:
        raise BadInput(
            f"k is {k} but {positive} of {len(weights)} items have a positive probability; "
            f"ask for 0 to {positive}"
        )
    return weights
