# mypy: ignore-errors
"""The step of `labelwise.kernels.sparse.greedy_ahead` in three launches, for GPUs with Triton.

As twenty array operations on some thousand numbers each, a step takes two and a half times as long
as its three products of the matrix with a vector. Here each product is one kernel that makes its
vector itself: every program looks at all numbers, which costs it about a microsecond, and
multiplies a few rows of the matrix.
"""

from typing import Any

import triton
import triton.language as tl

from labelwise.arrays import namespace
from labelwise.kernels.loop.scan import Arrays
from labelwise.kernels.sparse.steps import TINY, Gain

ROWS, COLUMNS, WARPS = 8, 256, 4
"""The tile of the matrix that a program multiplies at a time, and its threads in groups of 32."""
MOST = 8192
"""A larger matrix is left to the array operations."""


@triton.jit
def _tile(matrix, rows, columns, size):
    """Some rows and columns of the matrix; zeros beyond it."""
    inside = (rows < size)[:, None] & (columns < size)[None, :]
    return tl.load(matrix + rows[:, None] * size + columns[None, :], mask=inside, other=0.0)


@triton.jit
def _on_picks(gradient, picked, places, size):
    """The gradient where items are picked, and 0 elsewhere."""
    inside = places < size
    slopes = tl.load(gradient + places, mask=inside, other=0.0)
    return slopes * tl.load(picked + places, mask=inside, other=0.0)


@triton.jit
def _pick(
    matrix, gradient, weights, picked, costs, inverse, places,
    new_gradient, new_weights, new_picked, new_costs,
    size, LINEAR: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The best row, its weight, and the gradient with it."""
    every = tl.arange(0, WIDE)
    inside = every < size
    slopes = tl.load(gradient + every, mask=inside, other=0.0)
    scores = tl.load(costs + every, mask=inside, other=float("-inf"))
    if LINEAR:
        scores = scores - slopes
    else:
        falls = tl.maximum(-slopes, 0.0)
        scores = scores - falls * falls * tl.load(inverse + every, mask=inside, other=0.0)
    where = tl.argmax(scores, axis=0)
    weight = tl.load(gradient + where) * tl.load(inverse + where)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mine = rows < size
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)
    for first in range(0, size, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        vector = tl.load(weights + columns, mask=columns < size, other=0.0)
        vector = tl.where(columns == where, weight, vector)
        total += _tile(matrix, rows, columns, size) * vector[None, :]
    here = rows == where
    old = tl.load(weights + rows, mask=mine, other=0.0)
    tl.store(new_gradient + rows, tl.sum(total, axis=1), mask=mine)
    tl.store(new_weights + rows, tl.where(here, weight, old), mask=mine)
    old = tl.load(picked + rows, mask=mine, other=0.0)
    tl.store(new_picked + rows, tl.where(here, 1.0, old), mask=mine)
    old = tl.load(costs + rows, mask=mine, other=0.0)
    tl.store(new_costs + rows, tl.where(here, float("-inf"), old), mask=mine)
    if tl.program_id(0) == 0:
        tl.store(places, where.to(tl.int64))


@triton.jit
def _image(
    matrix, gradient, picked, image, size, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """The image of the gradient on the picks."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)
    for first in range(0, size, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        vector = _on_picks(gradient, picked, columns, size)
        total += _tile(matrix, rows, columns, size) * vector[None, :]
    tl.store(image + rows, tl.sum(total, axis=1), mask=rows < size)


@triton.jit
def _weigh(
    matrix, gradient, weights, picked, image, new_gradient, new_weights,
    size, TINY: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The step along the gradient on the picks, none below 0, and the gradient after it."""
    every = tl.arange(0, WIDE)
    direction = _on_picks(gradient, picked, every, size)
    squared = tl.sum(direction * direction, axis=0)
    curvature = tl.sum(direction * tl.load(image + every, mask=every < size, other=0.0), axis=0)
    length = squared / (curvature + TINY)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mine = rows < size
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)
    for first in range(0, size, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        vector = tl.load(weights + columns, mask=columns < size, other=0.0)
        vector = tl.maximum(vector - length * _on_picks(gradient, picked, columns, size), 0.0)
        total += _tile(matrix, rows, columns, size) * vector[None, :]
    way = _on_picks(gradient, picked, rows, size)
    old = tl.load(weights + rows, mask=mine, other=0.0)
    tl.store(new_gradient + rows, tl.sum(total, axis=1), mask=mine)
    tl.store(new_weights + rows, tl.maximum(old - length * way, 0.0), mask=mine)


def fused_step(
    gain: Gain, beta: float, steps: int, constants: Arrays, state: Arrays
) -> tuple[Arrays, Arrays]:
    """What `labelwise.kernels.sparse.greedy_ahead._step` gives, for at least one de-bias step."""
    matrix, _, inverse, places, *_ = constants
    before, gradient, picked, costs = state
    xp: Any = namespace(before)
    size = before.shape[0]
    grid, tile = (triton.cdiv(size, ROWS),), {"ROWS": ROWS, "COLUMNS": COLUMNS, "num_warps": WARPS}
    wide = {"WIDE": triton.next_power_of_2(size), **tile}
    where = xp.empty_like(places[0])
    new_gradient, weights, new_picked, new_costs, image = (xp.empty_like(before) for _ in range(5))
    _pick[grid](
        matrix, gradient, before, picked, costs, inverse, where,
        new_gradient, weights, new_picked, new_costs,
        size, LINEAR=gain.kind == "linear", **wide,
    )  # fmt: skip
    for _ in range(steps):
        _image[grid](matrix, new_gradient, new_picked, image, size, **tile)
        after, moved = xp.empty_like(before), xp.empty_like(before)
        _weigh[grid](
            matrix, new_gradient, weights, new_picked, image, after, moved, size,
            TINY=TINY, **wide,
        )  # fmt: skip
        new_gradient, weights = after, moved
    return (weights, new_gradient, new_picked, new_costs), (where, before)
