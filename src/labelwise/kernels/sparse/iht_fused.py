# mypy: ignore-errors
"""The iteration of `labelwise.kernels.sparse.iht` in few launches, for GPUs with Triton.

As array operations an iteration is 170 launches, most of them on a few thousand numbers, and reads
rows in float64. Here rows are read as they are, widened on the way and multiplied by
tensor cores, and the items kept are found by counting instead of sorting. Iterates are as long as
the pool, so that nothing has to be searched for.

`labelwise.kernels.sparse.iht_dense` puts them together. Products are in float64, as everywhere.
"""

import triton
import triton.language as tl

VERSION = tuple(int(number) for number in triton.__version__.split(".")[:2])
BINS, FIRST = tl.constexpr(2048), tl.constexpr(256)
"""Keys have 41 bits: the first eight of them are counted at once, then eleven at a time."""
SCALE, ALPHA, BETA = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""Where ``1 / b``, ``alpha`` and ``beta`` are among the facts; given singly, they would come in
float32."""


@triton.jit
def _total(numbers, count, SIZE: tl.constexpr):
    """The sum of the numbers that programs have left."""
    every = tl.arange(0, SIZE)
    return tl.sum(tl.load(numbers + every, mask=every < count, other=0.0), axis=0)


@triton.jit
def _length(squares, norms, facts, tiles, TINY: tl.constexpr, SIZE: tl.constexpr):
    """How far it is along a gradient, from the squares of it and of its image."""
    squared = _total(squares, tiles, SIZE)
    curvature = _total(norms, tiles, SIZE) + tl.load(facts + BETA) * squared
    return tl.where(curvature > TINY, squared / 2 / tl.maximum(curvature, TINY), 0.0)


@triton.jit
def between(
    image, before, target, factor, residual, d, K: tl.constexpr, CLASSES: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """The residual ``Phi z - v`` between two iterates, column by column, with room for classes."""
    columns = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    classes = tl.arange(0, CLASSES)
    inside = (columns < d)[:, None] & (classes < K)[None, :]
    entries = classes[None, :] * d + columns[:, None]
    here = tl.load(image + entries, mask=inside, other=0.0)
    found = here + tl.load(factor) * (here - tl.load(before + entries, mask=inside, other=0.0))
    found -= tl.load(target + entries, mask=inside, other=0.0)
    at = residual + columns[:, None] * CLASSES + classes[None, :]
    tl.store(at, found, mask=(columns < d)[:, None])


@triton.jit
def slopes(
    h, a, places, new, old, factor, residual, gradient, squares, facts, n, d,
    LISTED: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The gradient at ``new + factor (new - old)``, whose residual is given."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mine = rows < n
    rows = tl.minimum(rows, n - 1)  # rows beyond the last are read and not counted
    at = tl.load(places + rows) if LISTED else rows.to(tl.int64)
    classes = tl.arange(0, CLASSES)
    mixed = tl.zeros((ROWS, CLASSES), dtype=tl.float64)
    for first in range(0, d, WIDE):
        columns = first + tl.arange(0, WIDE)
        inside = (columns < d)[None, :]
        tile = tl.load(h + at[:, None] * d + columns[None, :], mask=inside, other=0.0)
        entries = residual + columns[:, None] * CLASSES + classes[None, :]
        matrix = tl.load(entries, mask=(columns < d)[:, None], other=0.0)
        mixed = tl.dot(tile.to(tl.float64), matrix, mixed, out_dtype=tl.float64)
    mixed *= tl.load(a + at[:, None] * CLASSES + classes[None, :])
    there = tl.load(new + rows)
    away = there + tl.load(factor) * (there - tl.load(old + rows)) - 1.0
    steep = tl.load(facts + SCALE) * tl.sum(mixed, axis=1) + tl.load(facts + BETA) * away
    steep = tl.where(mine, 2.0 * steep, 0.0)
    tl.store(gradient + rows, steep, mask=mine)
    tl.store(squares + tl.program_id(0), tl.sum(steep * steep, axis=0))


@triton.jit
def image(
    h, a, places, start, direction, squares, norms, weights, dense, partial,
    facts, n, d, tiles,
    LISTED: tl.constexpr, STEP: tl.constexpr, LAST: tl.constexpr,
    TINY: tl.constexpr, SIZE: tl.constexpr,
    K: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Parts of the image of weights, after a step along a direction if wanted, none below 0 then.

    The rows read last by `slopes`, which may still be in cache, are read first.
    """
    columns = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    classes = tl.arange(0, CLASSES)
    length = 0.0
    if STEP:
        length = _length(squares, norms, facts, tiles, TINY, SIZE)
    total = tl.zeros((CLASSES, WIDE), dtype=tl.float64)
    for first in range(tl.program_id(1) * ROWS, n, tl.num_programs(1) * ROWS):
        rows = n - 1 - (first + tl.arange(0, ROWS))
        mine = rows >= 0
        rows = tl.maximum(rows, 0)
        at = tl.load(places + rows) if LISTED else rows.to(tl.int64)
        inside = (columns < d)[None, :]
        tile = tl.load(h + at[:, None] * d + columns[None, :], mask=inside, other=0.0)
        weight = tl.load(start + rows)
        if STEP:
            weight = tl.maximum(weight - length * tl.load(direction + rows), 0.0)
        if LISTED and tl.program_id(0) == 0:
            tl.store(weights + rows, weight, mask=mine)
            if LAST:
                tl.store(dense + at, weight, mask=mine)
        share = tl.load(a + at[:, None] * CLASSES + classes[None, :])
        share *= tl.where(mine, weight, 0.0)[:, None]
        total = tl.dot(tl.trans(share), tile.to(tl.float64), total, out_dtype=tl.float64)
    out = partial + tl.program_id(1) * K * d + classes[:, None] * d + columns[None, :]
    tl.store(out, total, mask=(classes < K)[:, None] & (columns < d)[None, :])


@triton.jit
def gather(
    partial, target, image, norms, squares, fewer, facts, programs, size, count,
    LESS: tl.constexpr, PARTS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """An image from its parts, and sums of its squared entries, less the target's if wanted.

    The ``count`` sums of squares that `slopes` has left become as few.
    """
    entries = tl.program_id(0) * TILE + tl.arange(0, TILE)
    valid = entries < size
    total = tl.zeros((PARTS, TILE), dtype=tl.float64)
    for first in range(0, programs, PARTS):
        parts = first + tl.arange(0, PARTS)
        inside = (parts < programs)[:, None] & valid[None, :]
        total += tl.load(partial + parts[:, None] * size + entries[None, :], mask=inside, other=0.0)
    found = tl.load(facts + SCALE) * tl.sum(total, axis=0)
    tl.store(image + entries, found, mask=valid)
    if LESS:
        found -= tl.load(target + entries, mask=valid, other=0.0)
    tl.store(norms + tl.program_id(0), tl.sum(found * found, axis=0))
    squared = tl.zeros((PARTS,), dtype=tl.float64)
    for first in range(tl.program_id(0) * PARTS, count, tl.num_programs(0) * PARTS):
        at = first + tl.arange(0, PARTS)
        squared += tl.load(squares + at, mask=at < count, other=0.0)
    tl.store(fewer + tl.program_id(0), tl.sum(squared, axis=0))


@triton.jit
def worth(
    new, old, factor, gradient, variances, squares, norms, stepped, keys, counts,
    facts, n, tiles,
    STEPPED: tl.constexpr, PRINTED: tl.constexpr,
    TINY: tl.constexpr, SIZE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The point after the step, and what its items are worth as whole numbers of 41 bits.

    These are in the order of the worth, rounded to 30 bits; their first bits are counted.
    """
    rows = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    mine = rows < n
    length = _length(squares, norms, facts, tiles, TINY, SIZE)
    there = tl.load(new + rows, mask=mine, other=0.0)
    point = there + tl.load(factor) * (there - tl.load(old + rows, mask=mine, other=0.0))
    point -= length * tl.load(gradient + rows, mask=mine, other=0.0)
    tl.store(stepped + rows, point, mask=mine)
    worth = tl.load(facts + ALPHA) * tl.load(variances + rows, mask=mine, other=0.0)
    if STEPPED:
        worth *= length
    part = tl.minimum(point, 0.0) if PRINTED else tl.maximum(point, 0.0)
    worth = worth - part * part / 2 if PRINTED else worth + part * part / 2
    bits = tl.abs(worth).to(tl.int64, bitcast=True)
    bits = (bits + (1 << 22) - 1 + ((bits >> 23) & 1)) >> 23  # to the nearest, halves to even
    key = tl.where(worth < 0, -bits, bits) + (1 << 40)
    tl.store(keys + rows, key, mask=mine)
    found = tl.histogram((key >> 33).to(tl.int32), FIRST, mask=mine)  # most are in one bin
    tl.atomic_add(counts + tl.arange(0, FIRST), found, mask=found > 0, sem="relaxed")


@triton.jit
def _last_kept(counts, bars, budget, LEVEL: tl.constexpr):
    """The first bits of the last key that is kept, and how many of the items with them are.

    Eight bits at level 1, eleven more at every other; ``bars`` says what they are level by level.
    """
    first, left = tl.full((), 0, tl.int64), tl.full((), 0, tl.int64) + budget
    if LEVEL > 1:
        first, left = tl.load(bars + 2 * LEVEL - 4), tl.load(bars + 2 * LEVEL - 3)
    bins = tl.arange(0, BINS)
    found = tl.load(counts + (LEVEL - 1) * BINS + bins).to(tl.int64)
    reached = tl.cumsum(found, axis=0, reverse=True) >= left
    chosen = tl.sum(reached.to(tl.int64), axis=0) - 1
    left -= tl.sum(tl.where(bins > chosen, found, 0), axis=0)
    first = (first << 11) | chosen
    if tl.program_id(0) == 0:
        tl.store(bars + 2 * LEVEL - 2, first)
        tl.store(bars + 2 * LEVEL - 1, left)
    return first


@triton.jit
def count(keys, counts, bars, n, budget, LEVEL: tl.constexpr, CHUNK: tl.constexpr):
    """Count the next bits of the keys that begin like the last one that is kept."""
    rows = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    key = tl.load(keys + rows, mask=rows < n, other=-1)
    first = _last_kept(counts, bars, budget, LEVEL)
    digits = (key >> (33 - 11 * LEVEL)) & (BINS - 1)
    alike = (key >> (44 - 11 * LEVEL)) == first
    one = tl.full((CHUNK,), 1, tl.int32)
    tl.atomic_add(counts + LEVEL * BINS + digits, one, mask=alike, sem="relaxed")


@triton.jit
def tally(keys, counts, bars, tallies, n, budget, CHUNK: tl.constexpr):
    """How many keys of every chunk are above the last one that is kept, and how many are equal."""
    rows = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    key = tl.load(keys + rows, mask=rows < n, other=-1)
    last = _last_kept(counts, bars, budget, 4)
    tl.store(tallies + tl.program_id(0), tl.sum((key > last).to(tl.int32), axis=0))
    at = tl.num_programs(0) + tl.program_id(0)
    tl.store(tallies + at, tl.sum((key == last).to(tl.int32), axis=0))


@triton.jit
def list_kept(
    keys, bars, tallies, stepped, places, start, kept_keys, dense, n,
    SIZE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The places of the items kept, in order: all above the last key, and the first equal ones."""
    rows = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    key = tl.load(keys + rows, mask=rows < n, other=-1)
    last, left = tl.load(bars + 6), tl.load(bars + 7).to(tl.int32)
    chunks = tl.arange(0, SIZE)
    earlier = chunks < tl.program_id(0)
    above = tl.sum(tl.load(tallies + chunks, mask=earlier, other=0), axis=0)
    equal = tl.sum(tl.load(tallies + tl.num_programs(0) + chunks, mask=earlier, other=0), axis=0)
    ties = (key == last).to(tl.int32)
    kept = (key > last) | ((key == last) & (equal + tl.cumsum(ties, axis=0) <= left))
    number = above + tl.minimum(equal, left) + tl.cumsum(kept.to(tl.int32), axis=0) - 1
    tl.store(places + number, rows.to(tl.int64), mask=kept)
    tl.store(kept_keys + number, key, mask=kept)
    value = tl.load(stepped + rows, mask=rows < n, other=0.0)
    tl.store(start + number, tl.maximum(value, 0.0), mask=kept)
    tl.store(dense + rows, tl.zeros((CHUNK,), dtype=tl.float64), mask=rows < n)


@triton.jit
def compare(new, old, sums, n, CHUNK: tl.constexpr):
    """What `settle` needs to know of two iterates, chunk by chunk."""
    rows = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    value = tl.load(new + rows, mask=rows < n, other=0.0)
    change = value - tl.load(old + rows, mask=rows < n, other=0.0)
    tl.store(sums + tl.program_id(0), tl.sum((value - 1.0) * change, axis=0))
    tl.store(sums + tl.num_programs(0) + tl.program_id(0), tl.sum(change * change, axis=0))


@triton.jit
def settle(
    image, before, target, norms, sums, weights, variances, places, old_places, last, standstill,
    factor, objective, stands,
    facts, size, budget, tiles, chunks,
    TINY: tl.constexpr, SIZE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The objective, whether it stands still, and how far beyond the new iterate to go."""
    alpha, beta = tl.load(facts + ALPHA), tl.load(facts + BETA)
    slope, curvature = tl.zeros((CHUNK,), tl.float64), tl.zeros((CHUNK,), tl.float64)
    for first in range(0, size, CHUNK):
        at = first + tl.arange(0, CHUNK)
        here = tl.load(image + at, mask=at < size, other=0.0)
        moved = here - tl.load(before + at, mask=at < size, other=0.0)
        slope += (here - tl.load(target + at, mask=at < size, other=0.0)) * moved
        curvature += moved * moved
    cost, other = tl.zeros((CHUNK,), tl.float64), tl.zeros((CHUNK,), tl.int32)
    for first in range(0, budget, CHUNK):
        at = first + tl.arange(0, CHUNK)
        mine = at < budget
        away = tl.load(weights + at, mask=mine, other=1.0) - 1.0
        place = tl.load(places + at, mask=mine, other=0)
        cost += beta * away * away - alpha * tl.load(variances + place, mask=mine, other=0.0)
        other += (place != tl.load(old_places + at, mask=mine, other=0)).to(tl.int32)
    f = _total(norms, tiles, SIZE) + tl.sum(cost, axis=0)
    still = (tl.abs(f - tl.load(last)) <= tl.load(standstill)) & (tl.sum(other, axis=0) == 0)
    along = tl.sum(slope, axis=0) + beta * _total(sums, chunks, SIZE)
    bend = tl.sum(curvature, axis=0) + beta * _total(sums + chunks, chunks, SIZE)
    tl.store(factor, -tl.where(bend > TINY, along / tl.maximum(bend, TINY), 0.0))
    tl.store(objective, f)
    tl.store(stands, still.to(tl.int64))
