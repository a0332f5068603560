r"""What blocks of rows keep and answer while BAIT adds and takes back items.

Every candidate of a block keeps :math:`V M^{-1} V^\top` and :math:`V M^{-1} F M^{-1} V^\top`,
``K x K`` each, from the factors of its Fisher information (`information.fisher`). A block is
told of an item that was added or taken back, brings them up to date, and answers with its best
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
from labelwise.kernels.information.fisher import fisher_products, fisher_squares, fisher_sum
from labelwise.kernels.scaling import apply_scale
from labelwise.pool.blocks import Shard
from labelwise.pool.rows import Rows

KEY = "bait"
ROUNDED = "rounding has taken what tells the items apart; give a larger ridge to bait"
NUMBERS = 1 << 20
"""Numbers per temporary array."""
FISHER_ROWS = 8192
"""Rows whose Fisher information is summed up at a time."""


class Plan(NamedTuple):
    """``K`` (1 for regression), ``d``, and what rows of ``V`` and features are multiplied by."""

    regression: bool
    classes: int
    dimension: int
    scale: float
    unit: float = 1.0


class Change(NamedTuple):
    """What one item changes: the inverse of ``M`` becomes itself plus ``sign W W^T``.

    Attributes:
        item: its id.
        sign: -1 where it is added, 1 where it is taken back.
        root: ``W``, ``(K d, K)``.
        image: the inverse before times ``F W``, ``(K d, K)``.
        core: ``W^T F W``, ``(K, K)``.
    """

    item: int
    sign: int
    root: Floats
    image: Floats
    core: Floats


@dataclass
class Part:
    """The candidates of a block: where they are, and what they keep of ``M``.

    ``inner`` is ``V M^-1 V^T`` and ``outer`` is ``V M^-1 F M^-1 V^T``, both ``(n, K, K)``.
    """

    positions: NDArray[np.intp]
    ids: Ids
    open: NDArray[np.bool_]
    inner: Array
    outer: Array


class Best(NamedTuple):
    """The worth and id of the best candidate, and the largest trace of ``outer`` of all."""

    worth: float
    item: int
    size: float


def chunks(
    rows: Rows, positions: NDArray[np.intp], plan: Plan, step: int = 0
) -> Iterator[tuple[slice, Array, Array | None]]:
    """Features and probabilities (None for regression) in float64, some rows at a time."""
    step = step or max(NUMBERS // (plan.classes * max(plan.dimension, plan.classes)), 1)
    for first in range(0, len(positions), step):
        at = slice(first, first + step)
        features = apply_scale(float64(take(rows["features"], positions[at])), plan.unit)
        if plan.regression:
            yield at, features, None
        else:
            yield at, features, float64(take(rows["probabilities"], positions[at]))


def block_fisher(shard: Shard, plan: Plan) -> Floats:
    """The sum of ``V^T V`` over a block, ``(K d, K d)``."""
    total = np.zeros((plan.classes * plan.dimension,) * 2)
    with np.errstate(over="ignore", invalid="ignore"):  # features may be of any size
        for _, h, p in chunks(shard.rows, np.arange(len(shard)), plan, FISHER_ROWS):
            total += to_numpy(fisher_sum(h, p))
    return total


def begin(shard: Shard, plan: Plan, inverse: Floats, outer: Floats, chosen: Ids) -> None:
    """Give every candidate of a block its two matrices."""
    positions = np.flatnonzero(np.isin(shard.ids, chosen))
    features = shard.rows["features"]
    xp = namespace(features)
    shape = (len(positions), plan.classes, plan.classes)
    kept = [xp.empty(shape, dtype=xp.float64, device=device(features)) for _ in range(2)]
    for array, matrix in zip(kept, (inverse, outer), strict=True):
        there = like(matrix, features)
        for at, h, p in chunks(shard.rows, positions, plan):
            array[at] = plan.scale**2 * fisher_squares(h, p, there)
    still = np.ones(len(positions), dtype=bool)
    shard.state[KEY] = Part(positions, shard.ids[positions], still, *kept)


def best_of(shard: Shard, plan: Plan, change: Change | None, sign: int) -> Best | None:
    """Bring a block up to date and find its best candidate, None if it has none."""
    part: Part = shard.state[KEY]
    if change is not None:
        part.open &= part.ids != change.item
        _advance(part, shard.rows, plan, change)
    if not part.open.any():
        return None
    xp = namespace(part.inner)
    unit = xp.eye(plan.classes, dtype=xp.float64, device=device(part.inner))
    try:
        solved = xp.linalg.solve(unit - sign * part.inner, part.outer)
    except (np.linalg.LinAlgError, RuntimeError) as error:  # the second is torch's
        raise BadInput(ROUNDED) from error
    worth = comparable(xp.linalg.trace(solved))[part.open]
    ids = part.ids[part.open]
    best = largest(-sign * worth, 1, -sign * ids)[0]
    sizes = to_numpy(xp.linalg.trace(part.outer))[part.open]
    return Best(float(worth[best]), int(ids[best]), float(sizes.max()))


def _advance(part: Part, rows: Rows, plan: Plan, change: Change) -> None:
    """Count one added or removed item in what the candidates keep."""
    xp = namespace(part.inner)
    for at, h, p in chunks(rows, part.positions, plan):
        y = plan.scale * fisher_products(h, p, like(change.root, h))
        z = plan.scale * fisher_products(h, p, like(change.image, h))
        turned = xp.matrix_transpose(y)
        cross = xp.matmul(z, turned)
        core = xp.matmul(y, xp.matmul(like(change.core, h), turned))
        part.inner[at] += change.sign * xp.matmul(y, turned)
        part.outer[at] += change.sign * (cross + xp.matrix_transpose(cross)) + core


def forget(shard: Shard) -> None:
    """Drop what a block has kept."""
    shard.state.pop(KEY, None)
