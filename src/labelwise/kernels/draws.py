r"""Random draws of items in which every random number belongs to an item.

`draw_until_distinct` draws with replacement, item :math:`i` with probability :math:`p_i`, until
``k`` different items have come up. Drawing one by one takes forever when the last of them is rare.
Instead every item gets a Poisson clock of rate :math:`p_i`: the sequence of rings of all clocks has
the same law as the sequence of draws. The first ring of item :math:`i` is at
:math:`t_i = e_i / p_i` with :math:`e_i` a unit exponential; the ``k`` smallest are the items, and
with :math:`t^*` the largest of those, item :math:`i` has rung
:math:`1 + \mathrm{Poisson}(p_i (t^* - t_i))` times by then. The law is exact.

Cost: ``O(n)`` and a sort of ``k`` numbers, whatever the probabilities.

`poisson_draw` keeps each item independently of the others with probability
:math:`\min(1, \beta t_i)`, where :math:`\beta` makes ``k`` the expected number of items.
"""

from typing import Any

import numpy as np
from scipy import special

from labelwise.arrays import Floats, Ids, row_clocks, row_noise
from labelwise.errors import BadInput

_ARRIVALS, _REPEATS, _KEPT = 11, 12, 13  # streams of noise, so that the draws are independent


def draw_until_distinct(p: Any, k: int, seed: int, ids: Ids | None = None) -> tuple[Ids, Ids, int]:
    """Draw with replacement until ``k`` items are distinct.

    Args:
        p: ``(n,)`` probabilities, or weights in proportion to them; zero means never.
        k: how many different items.
        seed: decides the draw, together with the items' ids.
        ids: ``(n,)``, the items' ids; row numbers if None.

    Returns:
        ids ``(k,)`` in the order in which they first came up, counts ``(k,)``, how often each was
        drawn, and how many draws there were in all, the sum of the counts.

    Example:
        >>> ids, counts, draws = draw_until_distinct([0.9, 0.05, 0.05, 0.0], 3, seed=0)
        >>> sorted(ids.tolist()), int(counts.sum()) == draws
        ([0, 1, 2], True)
    """
    if not isinstance(k, int | np.integer):
        raise BadInput(f"k must be a whole number; got {k!r}")
    weights, ids = _checked(p, k, ids)
    if k == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), 0
    some = np.flatnonzero(weights > 0)
    rates = weights[some] / weights.max()
    with np.errstate(over="ignore"):  # a ring that is never heard is at infinity
        arrivals = row_clocks(seed, ids[some], _ARRIVALS) / rates
    first = np.argpartition(arrivals, k - 1)[:k]
    first = first[np.lexsort((ids[some[first]], arrivals[first]))]
    times = arrivals[first]
    means = rates[first] * (times[-1] - times)
    if not means.sum() < 2**53:
        raise BadInput(
            f"{k} distinct items would take over {2.0**53:.0e} draws with these probabilities; "
            "ask for fewer, or draw by poisson_draw"
        )
    drawn = ids[some[first]]
    counts = 1 + _poisson_quantile(row_noise(seed, drawn, _REPEATS), means)
    return drawn, counts, int(counts.sum())


def _poisson_quantile(levels: Floats, means: Floats) -> Ids:
    """The smallest count whose cumulative Poisson probability reaches the level, ``(k,)``.

    Means from a billion on, where the exact inverse fails, take the normal law with its first
    correction, which is at most one count off.
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


def poisson_rate(t: Any, k: float) -> float:
    r"""The :math:`\beta` with :math:`\sum_i \min(1, \beta t_i) = k`.

    Args:
        t: ``(n,)``, not negative, at least ``k`` of them positive.
        k: the expected number of items.
    """
    weights, _ = _checked(t, k, None)
    if k == 0:
        return 0.0
    largest = np.sort(weights[weights > 0])[::-1]
    rest = np.cumsum(largest[::-1])[::-1]  # rest[s]: the sum without the s largest
    certain = np.arange(min(len(largest), int(np.ceil(k))))
    rates = (k - certain) / rest[: len(certain)]
    fits = rates * largest[: len(certain)] <= 1
    return float(rates[fits.argmax()] if fits.any() else 1 / largest[-1])


def poisson_draw(t: Any, k: float, seed: int, ids: Ids | None = None) -> tuple[Ids, Floats]:
    """Keep each item on its own, about ``k`` in all.

    Args:
        t: ``(n,)``, not negative; an item is kept with probability ``min(1, beta t_i)``.
        k: the expected number of items kept; the number itself is random.
        seed: decides the draw, together with the items' ids.
        ids: ``(n,)``, the items' ids; row numbers if None.

    Returns:
        the ids kept and their probabilities of being kept, those first that a smaller ``k`` would
        keep too.
    """
    weights, ids = _checked(t, k, ids)
    kept = np.minimum(1.0, poisson_rate(weights, k) * weights)
    some = np.flatnonzero(kept > 0)
    order = row_noise(seed, ids[some], _KEPT) / kept[some]
    inside = np.flatnonzero(order < 1)
    inside = inside[np.lexsort((ids[some[inside]], order[inside]))]
    return ids[some[inside]], kept[some[inside]]


def _checked(p: Any, k: float, ids: Ids | None) -> tuple[Floats, Ids]:
    """The weights in float64 with their ids, after a look at both and at ``k``."""
    weights = np.asarray(p, dtype=np.float64)
    if weights.ndim != 1:
        raise BadInput(f"p must have one axis; got shape {weights.shape}")
    ids = np.arange(len(weights)) if ids is None else np.asarray(ids, dtype=np.int64)
    if len(ids) != len(weights):
        raise BadInput(f"there are {len(ids)} ids but {len(weights)} probabilities")
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        at = int(wrong.argmax())
        raise BadInput(f"p must be finite and not negative; item {ids[at]} has {weights[at]}")
    positive = int(np.count_nonzero(weights))
    if not 0 <= k <= positive:
        raise BadInput(
            f"k is {k} but {positive} of {len(weights)} items have a positive probability; "
            f"ask for 0 to {positive}"
        )
    return weights, ids
