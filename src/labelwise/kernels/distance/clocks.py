r"""The clocks of k-means++ (`kmeans_plus_plus`), as a block keeps them beside its rows.

Each row has a rate, a bound of its squared distance to the nearest centre, and the time when its
clock rings next. The clocks are functions of (seed, epoch, item id).

Memory: a norm and a rate in the precision of the rows and the time of a ring for every row, 16
bytes of float32 rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids, largest, row_clocks, row_noise, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.distance.factored import ROUNDED, Embedding, size, squared_norms
from labelwise.kernels.distance.farthest import nearest_distances
from labelwise.kernels.loop.block_scores import find_positions
from labelwise.pool.blocks import Shard
from labelwise.pool.pieces import in_pieces
from labelwise.pool.rows import Rows, join_rows, take_rows
from labelwise.threads import side_by_side, spans

KEY = "seeding"
KEPT = 1 << 21
"""A block whose embedding has at most so many numbers keeps it instead of making it again."""
SPAN = 1 << 15
"""How many numbers of a block are worked on at a time: they stay in a core's cache."""
FEW_CENTRES = 32
"""Rows are measured against fewer centres than this in pieces, where little of it is products."""
PICK, RING, ACCEPT, AGAIN = 1, 2, 3, 4
"""The streams of noise: picks without a law, times between rings, acceptance, new clocks."""

Turn = tuple[int, int]
"""How often all rows were measured, and which round of rings it is since."""


@dataclass
class Part:
    """A block's memory, ``(n,)`` each; all but the embedding and the norms on the host.

    ``rung`` are the positions of the items that rang last; the embedding is kept if it is small.
    Picks have a rate of 0.
    """

    embedding: Embedding | None
    norms: Any
    rates: Any
    rings: Floats
    rung: Any

    def rounding(self, positions: Any = slice(None)) -> Any:
        """Distances that could be rounding alone: copies of a centre are never drawn."""
        norms = to_numpy(self.norms)[positions]
        return norms * (ROUNDED * np.finfo(norms.dtype).eps)


@dataclass
class Rings:
    """Rings of clocks: of which item, when, and noise to accept it by; and the items that rang."""

    owners: Any
    times: Floats
    accept: Floats
    ids: Ids
    rates: Any
    rounding: Any
    rows: dict[str, Any]


def start(shard: Shard, embed: Any, seed: int, first: str) -> tuple[float, float, int]:
    """Measure the norms; propose the block's candidate for the first pick."""
    kept: list[Embedding] = []
    norms = in_pieces(partial(_norms, embed, len(shard), kept), shard.rows)
    host = to_numpy(norms)
    wrong = ~np.isfinite(host)
    if wrong.any():
        raise BadInput(
            f"the row of item {shard.ids[wrong][0]} is NaN, infinite or too large; leave it out"
        )
    embedding = kept[0] if kept else None
    shard.state[KEY] = Part(embedding, norms, None, np.empty(0), np.empty(0, dtype=np.intp))
    if not len(shard):
        return -np.inf, 0.0, 0
    ids = shard.ids
    order = host if first == "largest" else row_noise(seed, ids, PICK)
    best = largest(order, 1, ids)[0]
    return float(order[best]), float(host[best]), int(ids[best])


def _norms(embed: Any, count: int, kept: list[Embedding], rows: Rows) -> Any:
    """The squared norms; an embedding of all ``count`` rows of the block is kept if it is small."""
    embedding = embed(rows)
    if len(embedding) == count and size(embedding) <= KEPT:
        kept.append(embedding)
    return squared_norms(embedding)


def _distances(embed: Any, centres: Embedding, rows: Rows, norms: Any) -> Any:
    return nearest_distances(embed(rows), norms, centres)


def refresh(
    shard: Shard, embed: Any, centres: Embedding | None, taken: Ids, seed: int, epoch: int
) -> float:
    """Measure every row against new centres and start its clock anew; return the mass of D^2."""
    part: Part = shard.state[KEY]
    if centres is None:
        return _restart(shard, part.rates, taken, seed, epoch)
    if part.embedding is not None:
        distances = nearest_distances(part.embedding, part.norms, centres)
    elif len(centres) < FEW_CENTRES:
        distances = in_pieces(partial(_distances, embed, centres), shard.rows, part.norms)
    else:
        distances = _distances(embed, centres, shard.rows, part.norms)
    rates = np.array(to_numpy(distances))
    rates[rates <= part.rounding()] = 0
    if part.rates is not None:
        np.minimum(part.rates, rates, out=rates)
    return _restart(shard, rates, taken, seed, epoch)


def bound(shard: Shard, norm: float, taken: Ids, seed: int, epoch: int) -> float:
    """Start the clocks at bounds of D^2 to a centre of this squared norm; return their mass."""
    part: Part = shard.state[KEY]
    rates = _in_spans(partial(_bounds, norm), to_numpy(part.norms))
    return _restart(shard, rates, taken, seed, epoch)


def _bounds(norm: float, norms: Any) -> Any:
    """What squared distances to a centre of this squared norm are at most, by the norms of rows."""
    finest = np.finfo(norms.dtype)
    bounds = np.sqrt(norms, dtype=np.float64)
    bounds += np.sqrt(norm)
    bounds *= bounds
    bounds *= 1 + 8 * float(finest.eps)  # they stay bounds in spite of rounding
    return np.minimum(bounds, float(finest.max), out=bounds).astype(norms.dtype)


def _restart(shard: Shard, rates: Any, taken: Ids, seed: int, epoch: int) -> float:
    part: Part = shard.state[KEY]
    ids = shard.ids
    rates[find_positions(ids, taken)] = 0
    part.rates, part.rung = rates, part.rung[:0]
    part.rings = _in_spans(lambda some, theirs: _waits(some, seed, theirs, RING, epoch), rates, ids)
    return float(rates.sum(dtype=np.float64))


def _in_spans(function: Callable[..., Any], *arrays: Any) -> Any:
    """``function(*arrays)``, ``(n,)``, of host arrays with one entry per row, some at a time."""

    def some(span: slice) -> Any:
        return function(*(array[span] for array in arrays))

    return np.concatenate(side_by_side(some, spans(len(arrays[0]), SPAN)))


def _waits(rates: Any, seed: int, ids: Ids, *stream: int) -> Floats:
    """Times until the next ring of clocks; a clock of rate 0 never rings."""
    with np.errstate(divide="ignore"):
        return np.asarray(row_clocks(seed, ids, *stream) / rates)


def ring(
    shard: Shard, since: float, until: float, known: tuple[Ids, Any], seed: int, turn: Turn
) -> Rings:
    """All rings of the block's clocks up to a time; the clocks then stand at their next ring.

    The clocks that rang last go on from ``since`` at the rates that are ``known`` of them by now
    (item ids in order, and rates).
    """
    part: Part = shard.state[KEY]
    everyone = shard.ids
    ids = everyone[part.rung]
    part.rates[part.rung] = known[1][np.searchsorted(known[0], ids)]
    part.rings[part.rung] = since + _waits(part.rates[part.rung], seed, ids, AGAIN, *turn)
    positions = part.rung = np.flatnonzero(part.rings <= until)
    owners, times, accept = [positions[:0]], [np.empty(0)], [np.empty(0)]
    repeat = 0
    while len(positions):
        ids = everyone[positions]
        owners.append(np.searchsorted(part.rung, positions))
        times.append(part.rings[positions])
        accept.append(row_noise(seed, ids, ACCEPT, *turn, repeat))
        part.rings[positions] += _waits(part.rates[positions], seed, ids, RING, *turn, repeat)
        positions = positions[part.rings[positions] <= until]
        repeat += 1
    return Rings(
        np.concatenate(owners),
        np.concatenate(times),
        np.concatenate(accept),
        everyone[part.rung],
        part.rates[part.rung],
        part.rounding(part.rung),
        take_rows(shard.rows, part.rung),
    )


def join(parts: list[Rings]) -> Rings:
    """The rings of all blocks, in the order of time."""
    parts = [part for part in parts if len(part.ids)] or parts[:1]
    starts = np.cumsum([0, *(len(part.ids) for part in parts[:-1])])
    owners = np.concatenate(
        [part.owners + first for part, first in zip(parts, starts, strict=True)]
    )
    times, accept, ids, rates, rounding = (
        np.concatenate([getattr(part, field) for part in parts])
        for field in ("times", "accept", "ids", "rates", "rounding")
    )
    order = np.lexsort((ids[owners], times))
    rows = join_rows([part.rows for part in parts])
    return Rings(owners[order], times[order], accept[order], ids, rates, rounding, rows)
