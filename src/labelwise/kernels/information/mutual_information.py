r"""Mutual information of labels and the members of a committee, in nats.

The :math:`M` members (posterior draws, dropout masks, models of an ensemble) are equally likely
beforehand. An *outcome* :math:`s` is one assignment of labels to all picks; it has a probability
:math:`\omega_s` and leaves the members with posterior probabilities :math:`u_{sm}`. The label of
item :math:`i` then has the conditional mutual information

.. math::
    I_i = \sum_s \omega_s \Big[ H\big(\textstyle\sum_m u_{sm} p_{im}\big)
        - \sum_m u_{sm} H(p_{im}) \Big] ,

with :math:`H` the entropy of class probabilities. Without picks there is one outcome with
:math:`u_m = 1/M`, and :math:`I_i` is BALD's score. Weighting the members' entropies by the same
drawn outcomes keeps every :math:`I_i` non-negative and reduces the standard deviation of the
difference of two items to between a third and two thirds.

Cost: ``O(n S M K)`` for ``n`` items and ``S`` outcomes, in matrix products.

Reference: A. Kirsch, J. van Amersfoort, Y. Gal, "BatchBALD: Efficient and Diverse Batch
Acquisition for Deep Bayesian Active Learning", NeurIPS 2019.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from labelwise.arrays import Array, Floats, device, like, namespace, row_noise, take, to_numpy

ITEMS_AT_ONCE = 16  # Items per product at least, if `OUTCOMES_AT_ONCE` fit too
OUTCOMES_AT_ONCE = 1024  # Outcomes per product at least
NUMBERS_ON_PROCESSOR = 1 << 21  # Numbers per temporary array on a processor (16 MB in float64)
NUMBERS_ON_DEVICE = 1 << 26  # Numbers per temporary array on a GPU
LOGARITHMS = 1 << 16  # Logarithms per temporary array on a processor
SMALLEST = {True: 1e-100, False: 1e-18}
"""Smallest probability in float64 and float32: subnormal products are very slow."""
SMALLEST_WEIGHT = {True: 1e-60, False: 1e-12}
"""Outcomes below this share of the largest weight are dropped."""
NOISE_STREAM = 11


class Outcomes(NamedTuple):
    """Possible labels of the picks, and the members' posteriors given them."""

    weights: Floats  # ``(S,)``, the probability of each outcome; they sum to 1
    # ``(S, M)``, the probability of each member given the outcome; rows sum to 1
    posteriors: Floats


def information_gains(members: Array, outcomes: Outcomes, *, precise: bool = True) -> Floats:
    """The mutual information of every item's label and the members, given the outcomes, ``(n,)``.

    ``members`` are ``(n, M, K)`` class probabilities. ``precise`` computes in float64, rounded to
    1e-13; otherwise in float32, with an error below `float32_error`. Cost ``O(n S M K)``, in
    temporary arrays of a fixed size.
    """
    average = outcomes.weights @ outcomes.posteriors
    gains = np.empty(members.shape[0])
    for at, rows in _iterate_members(members, precise):
        gains[at] = _outcome_entropies(rows, outcomes) - _member_entropies(rows, average)
    return np.maximum(np.round(gains, 13), 0.0) if precise else gains


def information_gains_above(
    members: Array, parts: list[tuple[Outcomes, Outcomes]], least: float, *, precise: bool = False
) -> Floats:
    """`information_gains` that are at least ``least``, ``(n,)``; others may be minus infinity.

    ``parts`` are outcomes with their groups, from `group_outcomes`. Part after part, the upper
    bound by groups is replaced by the outcomes, for items still above ``least``.
    """
    average = np.sum([full.weights @ full.posteriors for full, _ in parts], axis=0)
    gains = np.full(members.shape[0], -np.inf)
    for at, rows in _iterate_members(members, precise):
        own = _member_entropies(rows, average)
        mixed = np.stack([_outcome_entropies(rows, groups) for _, groups in parts], axis=1)
        above = np.arange(len(own))
        for part, (full, _) in enumerate(parts):
            above = above[mixed[above].sum(axis=1) - own[above] >= least]
            mixed[above, part] = _outcome_entropies(take(rows, above), full)
        gains[at][above] = mixed[above].sum(axis=1) - own[above]
    return gains


def _iterate_members(members: Array, precise: bool) -> Iterator[tuple[slice, Array]]:
    """Some items at a time, as ``(c, K, M)`` in float64 or float32 and a little above 0."""
    xp = namespace(members)
    n, size, classes = members.shape
    # On a device float32 products may be rounded to far fewer digits (TF32).
    wide = precise or not _is_on_cpu(members)
    step = max(_count_numbers_at_once(members) // (size * classes), 1)
    for first in range(0, n, step):
        at = slice(first, first + step)
        rows = xp.astype(members[at], xp.float64 if wide else xp.float32)
        # Adding the smallest probability keeps every logarithm finite.
        yield at, xp.permute_dims(rows, (0, 2, 1)) + SMALLEST[wide]


def _is_on_cpu(array: Array) -> bool:
    return str(device(array)) == "cpu"


def _count_numbers_at_once(array: Array) -> int:
    return NUMBERS_ON_PROCESSOR if _is_on_cpu(array) else NUMBERS_ON_DEVICE


def _member_entropies(rows: Array, average: Floats) -> Floats:
    """``sum_m u_m H(p_im)`` of ``(n, K, M)`` rows for one distribution ``(M,)``: ``(n,)``."""
    xp = namespace(rows)
    own = -xp.sum(rows * xp.log(rows), axis=1)
    return np.asarray(to_numpy(xp.matmul(own, like(average, rows, dtype=rows.dtype))), np.float64)


def _outcome_entropies(rows: Array, outcomes: Outcomes) -> Floats:
    r"""``sum_s w_s H(sum_m u_sm p_im)`` of ``(n, K, M)`` rows: ``(n,)``.

    With :math:`r_s = \sum_m u_{sm} p_m` and weights relative to the largest,
    :math:`\sum_s w_s r_s \log r_s = \sum_s (w_s r_s) \log (w_s r_s) - \sum_m p_m z_m`, where
    :math:`z_m = \sum_s w_s \log w_s \, u_{sm}`: one product and one logarithm per outcome.
    """
    xp = namespace(rows)
    n, classes, size = rows.shape
    wide = rows.dtype == xp.float64
    largest = outcomes.weights.max()
    weights = outcomes.weights / largest
    kept = weights > SMALLEST_WEIGHT[wide]
    table = outcomes.posteriors[kept] * weights[kept, None]
    shift = like(np.log(weights[kept]) @ table, rows, dtype=rows.dtype)
    table[table < SMALLEST[wide]] = 0.0
    table = like(np.ascontiguousarray(table.T), rows, dtype=rows.dtype)
    width = max(_count_numbers_at_once(rows) // (ITEMS_AT_ONCE * classes), OUTCOMES_AT_ONCE)
    step = max(_count_numbers_at_once(rows) // (classes * min(width, table.shape[1])), 1)
    result = np.empty(n)
    for first in range(0, n, step):
        some = xp.reshape(rows[first : first + step], (-1, size))
        total = xp.astype(xp.matmul(some, shift), xp.float64)
        for start in range(0, table.shape[1], width):
            total -= _sums_of_logs(xp.matmul(some, table[:, start : start + width]))
        result[first : first + step] = to_numpy(xp.sum(xp.reshape(total, (-1, classes)), axis=1))
    return np.asarray(result * largest)


def _sums_of_logs(rows: Array) -> Array:
    """``sum_s v_s log v_s`` of every row, with the logarithms of few rows at a time in cache."""
    xp = namespace(rows)
    step = max(LOGARITHMS // rows.shape[1], 1) if _is_on_cpu(rows) else rows.shape[0]
    sums = []
    for first in range(0, rows.shape[0], step):
        part = rows[first : first + step]
        terms = xp.log(part)
        terms *= part
        sums.append(xp.sum(terms, axis=1))  # pairwise, unlike an inner product
    return xp.astype(xp.concat(sums), xp.float64)


def float32_error(shape: tuple[int, ...]) -> float:
    """Bound on the error of `information_gains` in float32 for ``(M, K)`` probabilities.

    Rounding errors of M products add up like a random walk, and the sum over classes is at most
    ``1 + log K``. The bound is more than ten times that.
    """
    size, classes = shape
    return 1e-6 * (1 + float(np.log(classes))) * (1 + 0.1 * float(np.sqrt(size)))


def prior_outcome(size: int) -> Outcomes:
    """The one outcome without labels: all ``M = size`` members are equally likely."""
    return Outcomes(np.ones(1), np.full((1, size), 1 / size))


def extend_outcomes(outcomes: Outcomes, picked: Floats) -> Outcomes:
    """Every outcome combined with every label of one more pick ``(M, K)``, if it is possible."""
    joint = outcomes.posteriors[:, None, :] * picked.T[None]
    joint = joint.reshape(-1, len(picked))
    chances = joint.sum(axis=1)
    weights = np.repeat(outcomes.weights, picked.shape[1]) * chances
    kept = weights > SMALLEST[True]
    return Outcomes(weights[kept], joint[kept] / chances[kept, None])


class PickedLabels:
    """Outcomes of the picks: all of them while they are few, else a sample.

    A sampled outcome is a member and, for every pick, a label drawn from that member's
    probabilities; every member gives equally many. Draws depend on the seed, the draw's number and
    the pick's number, so that one more pick does not change the labels of the others.
    """

    def __init__(self, size: int, most: int, seed: int) -> None:
        """No picks yet; ``size`` members, at most ``most`` outcomes (one per member at least)."""
        self.outcomes = prior_outcome(size)
        self.exact = True
        self._most = most
        self._seed = seed
        self._picked: list[Floats] = []
        self._owners = np.repeat(np.arange(size), max(most // size, 1))
        self._log_likelihoods = np.zeros((0, size))

    def add(self, picked: Floats) -> None:
        """Count one more pick, with ``(M, K)`` class probabilities."""
        self._picked.append(picked)
        self.exact = picked.shape[1] ** len(self._picked) <= self._most
        if self.exact:
            self.outcomes = extend_outcomes(self.outcomes, picked)
            return
        if not len(self._log_likelihoods):
            self._log_likelihoods = np.zeros((len(self._owners), len(picked)))
            for number in range(len(self._picked)):
                self._draw_labels(number)
        else:
            self._draw_labels(len(self._picked) - 1)
        relative = self._log_likelihoods - self._log_likelihoods.max(axis=1, keepdims=True)
        posteriors = np.exp(np.maximum(relative, -700.0)) * (relative > -200)
        posteriors /= posteriors.sum(axis=1, keepdims=True)
        self.outcomes = Outcomes(np.full(len(posteriors), 1 / len(posteriors)), posteriors)

    def _draw_labels(self, number: int) -> None:
        """Draw the labels of one pick and weigh all members by them."""
        picked = self._picked[number]
        cumulative = np.cumsum(picked, axis=1)
        cumulative /= cumulative[:, -1:]
        draws = np.arange(len(self._owners))
        noise = row_noise(self._seed, draws, NOISE_STREAM, number)
        labels = np.sum(cumulative[self._owners] <= noise[:, None], axis=1)
        with np.errstate(divide="ignore"):
            self._log_likelihoods += np.log(picked)[:, labels].T


def group_outcomes(outcomes: Outcomes, groups: int, parts: int) -> list[tuple[Outcomes, Outcomes]]:
    r"""Split the outcomes into parts, and merge similar ones of each part into groups.

    Entropy is concave, so that :math:`\sum_{s \in g} \omega_s H(u_s p) \le \omega_g H(\bar u_g p)`
    with :math:`\bar u_g` the mean of a group, while the second term of a gain is linear: gains
    given any groups are upper bounds, part by part. These groups are the cells around outcomes
    evenly spaced by weight. At most ``groups`` in all parts together.
    """
    weights, posteriors = outcomes
    marks = (np.arange(groups) + 0.5) / groups * weights.sum()
    positions = np.unique(np.searchsorted(np.cumsum(weights), marks))
    rows = posteriors.astype(np.float32)
    centres = rows[np.minimum(positions, len(rows) - 1)]
    nearest = np.argmax(rows @ centres.T - 0.5 * np.vecdot(centres, centres), axis=1)
    order = np.argsort(nearest, kind="stable")
    weights, posteriors = weights[order], posteriors[order]
    starts = np.flatnonzero(np.diff(nearest[order], prepend=-1))
    total = np.add.reduceat(weights, starts)
    mean = np.add.reduceat(posteriors * weights[:, None], starts, axis=0) / total[:, None]
    edges = np.append(starts, len(weights))
    # Parts of about equal size, cut between groups.
    cuts = np.searchsorted(edges, np.linspace(0, len(weights), parts + 1))
    return [
        (
            Outcomes(weights[edges[a] : edges[b]], posteriors[edges[a] : edges[b]]),
            Outcomes(total[a:b], mean[a:b]),
        )
        for a, b in itertools.pairwise(np.unique(cuts))
    ]


def join_outcomes(parts: list[Outcomes]) -> Outcomes:
    """Concatenated parts of outcomes."""
    return Outcomes(*(np.concatenate(field) for field in zip(*parts, strict=True)))
