r"""Fisher information of a last layer, and the state of BAIT's candidates.

With class probabilities :math:`p` and features :math:`h` the information of an item is
:math:`V^\top V = (\mathrm{diag}\, p - p p^\top) \otimes h h^\top`, where :math:`V` has the ``K``
rows :math:`\sqrt{p_c} (e_c - p) \otimes h`. For regression ``K`` is 1 and :math:`V = h^\top`. The
matrices :math:`V` are multiplied without being formed.

Every candidate of a block keeps :math:`A = V M^{-1} V^\top` and
:math:`B = V M^{-1} F M^{-1} V^\top`, ``K x K`` each, and its features if they are projected. A
block updates the matrices after each added or removed item and returns its best candidate. The
worth :math:`\mathrm{tr} [B (I + A)^{-1}]` of an addition is a mean of :math:`1 / (1 + x)` over the
eigenvalues of :math:`A`, times :math:`\mathrm{tr} B`. This function is convex, so that the worth
lies between its tangent at the mean and its chord:

.. math:: \frac{(\mathrm{tr} B)^2}{\mathrm{tr} B + \mathrm{tr} A B}
    \le \mathrm{tr} [B (I + A)^{-1}]
    \le \mathrm{tr} B - \frac{\mathrm{tr} A B}{1 + \lVert A \rVert} .

Equations are solved only for candidates that can be the best by these bounds.

Cost: see `labelwise.strategies.bait`. Memory: ``2 K^2`` numbers per candidate.

Reference: J. Ash, S. Goel, A. Krishnamurthy, S. Kakade, "Gone Fishing: Neural Active Learning with
Fisher Embeddings", NeurIPS 2021.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
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
    row_dots,
    take,
    to_numpy,
)
from labelwise.errors import BadInput
from labelwise.kernels.scaling import apply_scale
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.threads import run_in_threads, split_range

TOO_LARGE = "the squares of the features are infinite; divide the features by 1e100"
KEY = "bait"
ROUNDED = "rounding hides the differences between the items; give a larger ridge to bait"
POSSIBLE = 1e-6  # Part by which rounding may lower the bound of a candidate that is the best
NUMBERS_AT_ONCE = 1 << 20  # Numbers per temporary array
ROWS_AT_ONCE = 8192  # Rows that are multiplied with a matrix at a time
ROWS_IN_CACHE = 512  # Candidates whose small matrices one thread updates at a time


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


def multiply_classes(features: Array, matrix: Array, classes: int) -> Array:
    """Features times each of the ``K`` parts of a ``(K d, m)`` matrix: ``(n, K, m)``."""
    xp, (n, d), columns = namespace(features), features.shape, matrix.shape[1]
    parts = xp.permute_dims(xp.reshape(matrix, (classes, d, columns)), (1, 0, 2))
    return xp.reshape(xp.matmul(features, xp.reshape(parts, (d, -1))), (n, classes, columns))


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
        blocks[:, a + 1 :, a] = blocks[:, a, a + 1 :]
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
    """Candidates of a block, with ``V M^-1 V^T`` and ``V M^-1 F M^-1 V^T``, ``(n, K, K)``.

    If a plan projects features, ``projected`` are those of the candidates ``(n, d)``, and
    ``probabilities`` are kept, too; else both are None.
    """

    positions: NDArray[np.intp]
    ids: Ids
    open: NDArray[np.bool_]
    inner: Array
    outer: Array
    projected: Array | None = None
    probabilities: Array | None = None

    def iterate_chunks(
        self, rows: Rows, plan: FisherPlan, step: int = 0
    ) -> Iterator[tuple[slice, Array, Array | None]]:
        """Like the function of this name, for the candidates."""
        if self.projected is None:
            yield from iterate_chunks(rows, self.positions, plan, step)
            return
        for at in split_range(len(self.positions), step or _count_chunk_rows(plan)):
            known = self.probabilities
            yield at, self.projected[at], None if known is None else known[at]


class BestCandidate(NamedTuple):
    """Worth and id of the best candidate, and the largest trace of ``outer`` of all."""

    worth: float
    item: int
    size: float


def iterate_chunks(
    rows: Rows, positions: NDArray[np.intp], plan: FisherPlan, step: int = 0
) -> Iterator[tuple[slice, Array, Array | None]]:
    """Features and probabilities (None for regression) in float64, some rows at a time."""
    step = step or _count_chunk_rows(plan)
    for first in range(0, len(positions), step):
        at = slice(first, first + step)
        features = apply_scale(float64(take(rows["features"], positions[at])), plan.unit)
        if plan.directions is not None:
            features = namespace(features).matmul(features, like(plan.directions, features))
        yield at, features, _take_probabilities(rows, positions[at], plan)


def _count_chunk_rows(plan: FisherPlan) -> int:
    """Rows of a chunk."""
    return max(NUMBERS_AT_ONCE // (plan.classes * max(plan.dimension, plan.classes)), 1)


def _take_probabilities(rows: Rows, positions: NDArray[np.intp], plan: FisherPlan) -> Array | None:
    return None if plan.regression else float64(take(rows["probabilities"], positions))


def find_feature_directions(shards: Shards, count: int) -> Floats | None:
    """The ``(d, count)`` directions of largest mean square of all features; None if all are kept.

    Raises:
        BadInput: if features are so large that their squares are infinite.
    """
    width = int(shards.rows(shards.ids[:1])["features"].shape[1])
    if count >= width:
        return None
    # The information of a regression is the Gram matrix of the features.
    plan = FisherPlan(regression=True, classes=1, dimension=width, scale=1.0)
    moments = shards.sum(sum_fisher_information, plan)
    if not np.isfinite(moments).all():
        raise BadInput(TOO_LARGE)
    return np.ascontiguousarray(np.linalg.eigh(moments)[1][:, -count:])


def sum_fisher_information(shard: Shard, plan: FisherPlan) -> Floats:
    """The sum of ``V^T V`` over a block, ``(K d, K d)``."""
    total = np.zeros((plan.classes * plan.dimension,) * 2)
    with np.errstate(over="ignore", invalid="ignore"):  # features may be of any size
        for _, h, p in iterate_chunks(shard.rows, np.arange(len(shard)), plan, ROWS_AT_ONCE):
            total += to_numpy(fisher_sum(h, p))
    return total


def start_fisher_candidates(
    shard: Shard, plan: FisherPlan, inverse: Floats, outer: Floats, chosen: Ids
) -> None:
    """Compute the two matrices of every candidate of a block."""
    positions = np.flatnonzero(np.isin(shard.ids, chosen))
    features, count = shard.rows["features"], len(positions)
    make_empty = partial(namespace(features).empty, device=device(features))
    dtype = namespace(features).float64
    shape = (count, plan.classes, plan.classes)
    inner_part, outer_part = (make_empty(shape, dtype=dtype) for _ in range(2))
    still = np.ones(count, dtype=bool)
    part = CandidateMatrices(positions, shard.ids[positions], still, inner_part, outer_part)
    if plan.directions is not None:
        part.projected = make_empty((count, plan.dimension), dtype=dtype)
        part.probabilities = _take_probabilities(shard.rows, positions, plan)
        for at, h, _ in iterate_chunks(shard.rows, positions, plan):
            part.projected[at] = h
    for array, matrix in ((part.inner, inverse), (part.outer, outer)):
        there = like(matrix, features)
        with np.errstate(over="ignore", invalid="ignore"):
            for at, h, p in part.iterate_chunks(shard.rows, plan):
                array[at] = plan.scale**2 * fisher_squares(h, p, there)
        if not bool(namespace(array).isfinite(array).all()):
            raise BadInput(TOO_LARGE)
    shard.state[KEY] = part


def find_best_fisher_candidate(
    shard: Shard, plan: FisherPlan, update: InverseUpdate | None, sign: int
) -> BestCandidate | None:
    """Apply an update to a block and find its best candidate, None if it has none."""
    part: CandidateMatrices = shard.state[KEY]
    if update is not None:
        part.open &= part.ids != update.item
        _update_fisher_matrices(part, shard.rows, plan, update)
    places = np.flatnonzero(part.open)
    if not len(places):
        return None
    lowest, highest, traces = _bound_fisher_worths(part)
    size = float(traces[places].max())
    if sign < 0:
        # Equations are solved only where the upper bound reaches the best lower bound.
        bar = float(lowest[places].max()) * (1 - POSSIBLE)
        places = places[highest[places] + POSSIBLE * traces[places] >= bar]
    worth, ids = comparable(_solve_fisher_worths(part, places, sign)), part.ids[places]
    best = largest(-sign * worth, 1, -sign * ids)[0]
    return BestCandidate(float(worth[best]), int(ids[best]), size)


def _solve_fisher_worths(part: CandidateMatrices, places: NDArray[np.intp], sign: int) -> Floats:
    """``tr [B (I - s A)^-1]`` of some candidates, ``(n,)`` on the host."""
    xp = namespace(part.inner)
    unit = xp.eye(part.inner.shape[1], dtype=xp.float64, device=device(part.inner))

    def solve(span: slice) -> Floats:
        inner, outer = take(part.inner, places[span]), take(part.outer, places[span])
        return to_numpy(xp.linalg.trace(xp.linalg.solve(unit - sign * inner, outer)))

    try:
        return np.concatenate(run_in_threads(solve, _split_candidates(len(places), part.inner)))
    except (np.linalg.LinAlgError, RuntimeError) as error:  # torch raises RuntimeError
        raise BadInput(ROUNDED) from error


def _bound_fisher_worths(part: CandidateMatrices) -> tuple[Floats, Floats, Floats]:
    """Bounds of what adding each candidate is worth, and ``tr B``, ``(n,)`` on the host."""
    xp, (count, classes, _) = namespace(part.inner), part.inner.shape

    def sum_products(span: slice) -> Floats:
        inner, outer = (xp.reshape(m[span], (-1, classes**2)) for m in (part.inner, part.outer))
        sums = (xp.linalg.trace(part.outer[span]), row_dots(inner, outer), row_dots(inner, inner))
        return to_numpy(xp.stack(sums))

    spans = _split_candidates(count, part.inner)
    traces, cross, squares = np.concatenate(run_in_threads(sum_products, spans), axis=1)
    cross = np.maximum(cross, 0)
    highest = traces - cross / (1 + np.sqrt(squares))
    # The tangent from below; a trace of 0 is worth nothing.
    total = traces + cross
    return traces * (traces / np.where(total > 0, total, 1.0)), highest, traces


def _split_candidates(count: int, rows: Array) -> list[slice]:
    """Slices for one thread each, or one slice of an array that is not NumPy's."""
    return split_range(count, ROWS_IN_CACHE if isinstance(rows, np.ndarray) else max(count, 1))


def _update_fisher_matrices(
    part: CandidateMatrices, rows: Rows, plan: FisherPlan, update: InverseUpdate
) -> None:
    """Count one added or removed item in the matrices of the candidates.

    With ``Y = V W`` and ``Z = V (s G + W C / 2)``, where ``W``, ``G``, ``C`` and ``s`` are the
    update's root, image, core and sign, the matrices change by ``s Y Y^T`` and ``Z Y^T + Y Z^T``.
    """
    classes = plan.classes
    # Half of the core on each side makes the change of B symmetric.
    image = update.sign * update.image + 0.5 * (update.root @ update.core)
    both = np.concatenate([update.root, image], axis=1) * plan.scale
    for at, h, p in part.iterate_chunks(rows, plan, ROWS_AT_ONCE):
        products = multiply_classes(h, like(both, h), classes)
        add = partial(_add_products, products, p, part.inner[at], part.outer[at], update.sign)
        run_in_threads(add, _split_candidates(len(h), h))


def _add_products(
    products: Array, probabilities: Array | None, inner: Array, outer: Array, sign: int, span: slice
) -> None:
    """Update the matrices of some candidates by ``V`` times the root and the image."""
    xp, classes = namespace(products), inner.shape[1]
    mixed = _mix_classes(products[span], None if probabilities is None else probabilities[span])
    y, z = mixed[..., :classes], mixed[..., classes:]
    transposed = xp.matrix_transpose(y)
    inner[span] += sign * xp.matmul(y, transposed)
    cross = xp.matmul(z, transposed)
    outer[span] += cross + xp.matrix_transpose(cross)
