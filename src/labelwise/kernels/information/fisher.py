r"""Fisher information of a last layer, and the state of BAIT's candidates.

With class probabilities :math:`p` and features :math:`h` the information of an item is
:math:`V^\top V = (\mathrm{diag}\, p - p p^\top) \otimes h h^\top`, where :math:`V` has the ``K``
rows :math:`\sqrt{p_c} (e_c - p) \otimes h`. For regression ``K`` is 1 and :math:`V = h^\top`. The
matrices :math:`V` are multiplied without being formed.

Every candidate of a block keeps :math:`V M^{-1} V^\top` and :math:`V M^{-1} F M^{-1} V^\top`,
``K x K`` each. A block updates them after each added or removed item and returns its best
candidate.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import (
    Array,
    Floats,
    Ids,
    comparable,
    device,
    float64,
    largest,
    like,
    namespace,
    take,
    to_numpy,
)
from labelwise.errors import BadInput
from labelwise.kernels.scaling import apply_scale
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows

KEY = "bait"
ROUNDED = "rounding hides the differences between the items; give a larger ridge to bait"
POSSIBLE = 1e-6  # Part by which rounding may lower the bound of a candidate that is the best
NUMBERS_AT_ONCE = 1 << 20  # Numbers per temporary array
ROWS_AT_ONCE = 8192  # Rows whose Fisher information is summed at a time


def fisher_sum(features: Array, probabilities: Array | None) -> Array:
    """The information summed over ``(n, d)`` features and ``(n, K)`` probabilities or None.

    Returns:
        ``(K d, K d)``.
    """
    xp = namespace(features)
    transposed = xp.matrix_transpose(features)
    if probabilities is None:
        return xp.matmul(transposed, features)
    d, classes = features.shape[1], probabilities.shape[1]
    total = xp.empty((classes, d, classes, d), dtype=features.dtype, device=device(features))
    for a in range(classes):
        for b in range(a, classes):
            weights = probabilities[:, a] * ((1.0 if a == b else 0.0) - probabilities[:, b])
            total[a, :, b, :] = xp.matmul(transposed * weights, features)
            total[b, :, a, :] = total[a, :, b, :]
    return xp.reshape(total, (classes * d, classes * d))


def fisher_roots(features: Array, probabilities: Array | None) -> Array:
    """The matrices ``V`` themselves, ``(n, K, K d)``; for few items."""
    if probabilities is None:
        return features[:, None, :]
    xp = namespace(features)
    n, classes = probabilities.shape
    unit = xp.eye(classes, dtype=features.dtype, device=device(features))
    mixes = _mix_classes(xp.broadcast_to(unit, (n, classes, classes)), probabilities)
    return xp.reshape(mixes[:, :, :, None] * features[:, None, None, :], (n, classes, -1))


def fisher_products(features: Array, probabilities: Array | None, matrix: Array) -> Array:
    """``V A`` for every item and one ``(K d, m)`` matrix ``A``: ``(n, K, m)``."""
    xp = namespace(features)
    n, d = features.shape
    columns = matrix.shape[1]
    side = xp.reshape(xp.permute_dims(xp.reshape(matrix, (-1, d, columns)), (1, 0, 2)), (d, -1))
    return _mix_classes(xp.reshape(xp.matmul(features, side), (n, -1, columns)), probabilities)


def fisher_squares(features: Array, probabilities: Array | None, matrix: Array) -> Array:
    """``V A V^T`` for every item and one symmetric ``(K d, K d)`` matrix ``A``: ``(n, K, K)``."""
    xp = namespace(features)
    n, d = features.shape
    classes = matrix.shape[0] // d
    blocks = xp.empty((n, classes, classes), dtype=features.dtype, device=device(features))
    for a in range(classes):
        left = xp.matmul(features, matrix[a * d : (a + 1) * d, a * d :])
        products = xp.reshape(left, (n, classes - a, d)) * features[:, None, :]
        blocks[:, a, a:] = xp.sum(products, axis=2)
        blocks[:, a:, a] = blocks[:, a, a:]
    half = xp.matrix_transpose(_mix_classes(blocks, probabilities))
    return _mix_classes(half, probabilities)


def _mix_classes(blocks: Array, probabilities: Array | None) -> Array:
    """``diag(sqrt p) (I - 1 p^T)`` times the ``(K, m)`` block of every item."""
    if probabilities is None:
        return blocks
    xp = namespace(blocks)
    mean = xp.sum(probabilities[:, :, None] * blocks, axis=1, keepdims=True)
    return xp.sqrt(probabilities)[:, :, None] * (blocks - mean)


class FisherPlan(NamedTuple):
    """The arrays that the information is computed from."""

    regression: bool  # whether there are values instead of classes
    classes: int  # ``K``; 1 for regression
    dimension: int  # ``d``, after the projection
    scale: float  # factor of ``V``
    unit: float = 1.0  # factor of the features
    directions: Floats | None = None  # orthonormal columns that features are projected to, or None


class InverseUpdate(NamedTuple):
    """The effect of one item: the inverse of ``M`` becomes itself plus ``sign W W^T``."""

    item: int  # its id
    sign: int  # -1 if it is added, 1 if it is removed
    root: Floats  # ``W``, ``(K d, K)``
    image: Floats  # the inverse before times ``F W``, ``(K d, K)``
    core: Floats  # ``W^T F W``, ``(K, K)``


@dataclass
class CandidateMatrices:
    """Candidates of a block, with ``V M^-1 V^T`` and ``V M^-1 F M^-1 V^T``, ``(n, K, K)``."""

    positions: NDArray[np.intp]
    ids: Ids
    open: NDArray[np.bool_]
    inner: Array
    outer: Array


class BestCandidate(NamedTuple):
    """Worth and id of the best candidate, and the largest trace of ``outer`` of all."""

    worth: float
    item: int
    size: float


def iterate_chunks(
    rows: Rows, positions: NDArray[np.intp], plan: FisherPlan, step: int = 0
) -> Iterator[tuple[slice, Array, Array | None]]:
    """Features and probabilities (None for regression) in float64, some rows at a time."""
    step = step or max(NUMBERS_AT_ONCE // (plan.classes * max(plan.dimension, plan.classes)), 1)
    for first in range(0, len(positions), step):
        at = slice(first, first + step)
        features = apply_scale(float64(take(rows["features"], positions[at])), plan.unit)
        if plan.directions is not None:
            features = namespace(features).matmul(features, like(plan.directions, features))
        if plan.regression:
            yield at, features, None
        else:
            yield at, features, float64(take(rows["probabilities"], positions[at]))


def find_directions(shards: Shards, count: int) -> Floats | None:
    """The ``(d, count)`` directions of largest mean square of all features; None if all are kept.

    Raises:
        BadInput: if features are so large that their squares are infinite.
    """
    width = int(shards.rows(shards.ids[:1])["features"].shape[1])
    if count >= width:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        moments = np.asarray(shards.sum(_sum_block_moments, width))
    if not np.isfinite(moments).all():
        raise BadInput("the squares of the features are infinite; divide the features by 1e100")
    return np.ascontiguousarray(np.linalg.eigh(moments)[1][:, -count:])


def _sum_block_moments(shard: Shard, width: int) -> Floats:
    plan = FisherPlan(regression=True, classes=1, dimension=width, scale=1.0)
    return sum_block_information(shard, plan)


def sum_block_information(shard: Shard, plan: FisherPlan) -> Floats:
    """The sum of ``V^T V`` over a block, ``(K d, K d)``."""
    total = np.zeros((plan.classes * plan.dimension,) * 2)
    with np.errstate(over="ignore", invalid="ignore"):  # features may be of any size
        for _, h, p in iterate_chunks(shard.rows, np.arange(len(shard)), plan, ROWS_AT_ONCE):
            total += to_numpy(fisher_sum(h, p))
    return total


def start_candidates(
    shard: Shard, plan: FisherPlan, inverse: Floats, outer: Floats, chosen: Ids
) -> None:
    """Compute the two matrices of every candidate of a block."""
    positions = np.flatnonzero(np.isin(shard.ids, chosen))
    features = shard.rows["features"]
    xp = namespace(features)
    shape = (len(positions), plan.classes, plan.classes)
    kept = [xp.empty(shape, dtype=xp.float64, device=device(features)) for _ in range(2)]
    for array, matrix in zip(kept, (inverse, outer), strict=True):
        there = like(matrix, features)
        for at, h, p in iterate_chunks(shard.rows, positions, plan):
            array[at] = plan.scale**2 * fisher_squares(h, p, there)
    still = np.ones(len(positions), dtype=bool)
    shard.state[KEY] = CandidateMatrices(positions, shard.ids[positions], still, *kept)


def find_best_candidate(
    shard: Shard, plan: FisherPlan, update: InverseUpdate | None, sign: int
) -> BestCandidate | None:
    """Apply an update to a block and find its best candidate, None if it has none."""
    part: CandidateMatrices = shard.state[KEY]
    if update is not None:
        part.open &= part.ids != update.item
        _update_candidates(part, shard.rows, plan, update)
    places = np.flatnonzero(part.open)
    if not len(places):
        return None
    xp = namespace(part.inner)
    outer_traces = to_numpy(xp.linalg.trace(part.outer))[places]
    size = float(outer_traces.max())
    if sign < 0:
        # tr(outer) / (1 + tr(inner)) <= worth <= tr(outer): most candidates cannot be the best.
        least = outer_traces / (1 + to_numpy(xp.linalg.trace(part.inner))[places])
        places = places[outer_traces >= float(least.max()) * (1 - POSSIBLE)]
    inner, outer = take(part.inner, places), take(part.outer, places)
    unit = xp.eye(plan.classes, dtype=xp.float64, device=device(part.inner))
    try:
        solved = xp.linalg.solve(unit - sign * inner, outer)
    except (np.linalg.LinAlgError, RuntimeError) as error:  # torch raises RuntimeError
        raise BadInput(ROUNDED) from error
    worth, ids = comparable(xp.linalg.trace(solved)), part.ids[places]
    best = largest(-sign * worth, 1, -sign * ids)[0]
    return BestCandidate(float(worth[best]), int(ids[best]), size)


def _update_candidates(
    part: CandidateMatrices, rows: Rows, plan: FisherPlan, update: InverseUpdate
) -> None:
    """Count one added or removed item in the matrices of the candidates."""
    xp = namespace(part.inner)
    for at, h, p in iterate_chunks(rows, part.positions, plan):
        y = plan.scale * fisher_products(h, p, like(update.root, h))
        z = plan.scale * fisher_products(h, p, like(update.image, h))
        transposed = xp.matrix_transpose(y)
        cross = xp.matmul(z, transposed)
        core = xp.matmul(y, xp.matmul(like(update.core, h), transposed))
        part.inner[at] += update.sign * xp.matmul(y, transposed)
        part.outer[at] += update.sign * (cross + xp.matrix_transpose(cross)) + core


def drop_candidates(shard: Shard) -> None:
    """Free what a block has kept."""
    shard.state.pop(KEY, None)
