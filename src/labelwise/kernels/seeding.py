r"""k-means++ seeding, exactly, without touching every row for every pick.

Each pick is drawn with probability proportional to :math:`D_i^2`, the squared distance to the
nearest centre so far. :math:`D_i^2` only falls, so an old value is an upper bound. Give every item
a Poisson clock that rings at the rate of its old :math:`D_i^2`; when it rings, measure the item
against the centres added since and accept it with probability (:math:`D_i^2` now) / (then). The
thinned clocks ring at the rate :math:`D_i^2` now, so the next accepted ring is a draw from the
k-means++ law. An item that rang is known exactly, so its clock goes on at its present
:math:`D_i^2`. All rows are measured again, with one matrix product, only when that is cheaper than
the rejected rings to come.

The clocks are functions of (seed, epoch, item id): the picks depend neither on the order nor on
the split of the rows.

Memory: a norm and a rate in the precision of the rows and the time of a ring for every row, 16
bytes of float32 rows.

Reference: D. Arthur, S. Vassilvitskii, "k-means++: The Advantages of Careful Seeding", SODA 2007.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids, largest, row_clocks, row_noise, to_numpy
from labelwise.blocks import GrowingRows, LocalShards, Rows, Shard, Shards, join_rows, take_rows
from labelwise.errors import BadInput
from labelwise.kernels.factored import Embedding, size, squared_distances, squared_norms, take
from labelwise.kernels.farthest import embedding_rows, nearest_distances
from labelwise.pieces import in_pieces
from labelwise.threads import side_by_side, spans

KEY = "seeding"
FIRST, RINGS, MOST_RINGS, WANTED = 96, 512, 8192, 256
"""How many rings are looked at together: before any row was measured, when the clocks ring at mere
bounds and few rings do; afterwards; at most; and how many of them should do."""
RING_COST, ROW_COST = 100, 16
"""What a ring and a row cost beside the inner products that measure them, in inner products."""
KEPT = 1 << 21
"""A block whose embedding has at most so many numbers keeps it instead of making it again."""
FEW_CENTRES = 32
"""Rows are measured against fewer centres than this in pieces, where little of it is products."""
ITEMS = 1 << 15
"""How many clocks a thread starts at a time."""
PATIENCE = 1.0
"""How much cheaper measuring all rows again must be; 0 does it after every pick."""
PICK, RING, ACCEPT, AGAIN = 1, 2, 3, 4
"""The streams of noise: picks without a law, times between rings, acceptance, new clocks."""

Turn = tuple[int, int]
"""How often all rows were measured, and which round of rings it is since."""


@dataclass
class _Part:
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
        return norms * (32 * np.finfo(norms.dtype).eps)


@dataclass
class _Rings:
    """Rings of clocks: of which item, when, and noise to accept it by; and the items that rang."""

    owners: Any
    times: Floats
    accept: Floats
    ids: Ids
    rates: Any
    rounding: Any
    rows: dict[str, Any]


def draw_far_items(
    shards: Shards,
    embed: Callable[[Rows], Embedding],
    k: int,
    seed: int,
    *,
    centres: Embedding | None = None,
    first: str = "uniform",
    name: str = "k-means++",
) -> tuple[Ids, Floats]:
    """Draw ``k`` items by the k-means++ law.

    Args:
        shards: the rows.
        embed: makes the embedding, ``(n, d)`` or `Factored`, of rows.
        k: at most the number of rows.
        seed: decides all draws.
        centres: an embedding that counts as centres from the start.
        first: without centres, the first pick: ``"uniform"``, or ``"largest"`` norm.
        name: what progress is reported as.

    Returns:
        ids ``(k,)`` in the order drawn, and their D^2 at that moment (the first: its norm).
    """
    best = shards.map(_start, embed, seed, first)
    draw = _Draw(shards, embed, seed, k, name)
    if centres is None:
        _, norm, item = max(best, key=lambda entry: (entry[0], -entry[2]))
        draw.accept([item], [norm], embed(shards.rows(np.array([item]))))
        draw.bound(norm)
    else:
        draw.refresh(centres)
    draw.run()
    return np.array(draw.ids, dtype=np.int64), np.array(draw.scores)


def _start(shard: Shard, embed: Any, seed: int, first: str) -> tuple[float, float, int]:
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
    shard.state[KEY] = _Part(embedding, norms, None, np.empty(0), np.empty(0, dtype=np.intp))
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


def _refresh(
    shard: Shard, embed: Any, centres: Embedding | None, taken: Ids, seed: int, epoch: int
) -> float:
    """Measure every row against new centres and start its clock anew; return the mass of D^2."""
    part: _Part = shard.state[KEY]
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


def _bound(shard: Shard, norm: float, taken: Ids, seed: int, epoch: int) -> float:
    """Start the clocks at bounds of D^2 to a centre of this squared norm; return their mass."""
    part: _Part = shard.state[KEY]
    norms = to_numpy(part.norms)
    finest = np.finfo(norms.dtype)

    def bounds(span: slice) -> Any:
        rates = (np.sqrt(norms[span].astype(np.float64)) + np.sqrt(norm)) ** 2
        rates *= 1 + 8 * float(finest.eps)  # they stay bounds in spite of rounding
        return np.minimum(rates, float(finest.max)).astype(norms.dtype)

    rates = np.concatenate(side_by_side(bounds, spans(len(norms), ITEMS)))
    return _restart(shard, rates, taken, seed, epoch)


def _restart(shard: Shard, rates: Any, taken: Ids, seed: int, epoch: int) -> float:
    part: _Part = shard.state[KEY]
    ids = shard.ids
    rates[_places(ids, taken)] = 0
    part.rates, part.rung = rates, part.rung[:0]
    part.rings = _waits(rates, seed, ids, RING, epoch)
    return float(rates.sum(dtype=np.float64))


def _places(ids: Ids, wanted: Ids) -> Any:
    """Where a block has the wanted items, as far as it has them."""
    if len(ids):  # most are elsewhere, and a few are found much faster
        wanted = wanted[(wanted >= ids.min()) & (wanted <= ids.max())]
    return np.flatnonzero(np.isin(ids, wanted)) if len(wanted) else np.empty(0, dtype=np.intp)


def _waits(rates: Any, seed: int, ids: Ids, *stream: int) -> Floats:
    """Times until the next ring of clocks; a clock of rate 0 never rings."""

    def waits(span: slice) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(row_clocks(seed, ids[span], *stream) / rates[span])

    return np.concatenate(side_by_side(waits, spans(len(rates), ITEMS)))


def _ring(
    shard: Shard, since: float, until: float, known: tuple[Ids, Any], seed: int, turn: Turn
) -> _Rings:
    """All rings of the block's clocks up to a time; the clocks then stand at their next ring.

    The clocks that rang last go on from ``since`` at the rates that are ``known`` of them by now
    (item ids in order, and rates).
    """
    part: _Part = shard.state[KEY]
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
    return _Rings(
        np.concatenate(owners),
        np.concatenate(times),
        np.concatenate(accept),
        everyone[part.rung],
        part.rates[part.rung],
        part.rounding(part.rung),
        take_rows(shard.rows, part.rung),
    )


def _join(parts: list[_Rings]) -> _Rings:
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
    return _Rings(owners[order], times[order], accept[order], ids, rates, rounding, rows)


def _accept_in_turn(
    now: Any, embedding: Embedding, owners: Any, bars: Floats, most: int
) -> list[tuple[int, float]]:
    """Which items are accepted, in the order of their rings, and their D^2 at that moment.

    Args:
        now: ``(u,)`` D^2 of the items; brought up to date in place.
        embedding: their rows.
        owners: ``(r,)`` the item of every ring.
        bars: ``(r,)`` the D^2 that a ring must exceed to be accepted.
        most: accept no more than so many.
    """
    between = to_numpy(squared_distances(embedding, embedding))
    np.fill_diagonal(between, 0)
    left = now.astype(between.dtype)  # a minimum of two types would take twice as long
    accepted: list[tuple[int, float]] = []
    for owner, bar in zip(owners.tolist(), bars.tolist(), strict=True):
        distance = left.item(owner)
        if distance > bar and len(accepted) < most:
            accepted.append((owner, distance))
            np.minimum(left, between[owner], out=left)
    np.minimum(now, left, out=now)
    return accepted


def _as_it_is(rows: Rows) -> Embedding:
    return rows


class _Draw:
    """The picks so far, and the centres added since all rows were last measured."""

    def __init__(self, shards: Shards, embed: Any, seed: int, k: int, name: str) -> None:
        self.shards, self.embed, self.seed, self.k, self.name = shards, embed, seed, k, name
        self.ids: list[int] = []
        self.scores: list[float] = []
        self._centres, self._restore = GrowingRows(), _as_it_is
        self._epoch, self._turn, self._measured = 0, 0, 0
        self._now, self._mass = 0.0, 0.0
        self._known: tuple[Ids, Any] = np.empty(0, dtype=np.int64), np.empty(0)

    def accept(self, ids: list[int], scores: list[float], embedding: Embedding) -> None:
        """Count picks as centres."""
        self.ids += ids
        self.scores += scores
        rows, self._restore = embedding_rows(embedding)
        self._centres.append(rows)
        self.shards.progress(self.name, len(self.ids), self.k)

    def bound(self, norm: float) -> None:
        """Start the clocks at bounds: no row but the first pick has been measured yet."""
        self._restart(_bound, norm)

    def refresh(self, centres: Embedding | None) -> None:
        """Measure all rows against the centres added since the last time; start the clocks anew."""
        self._restart(_refresh, self.embed, centres)
        self._measured = len(self.ids)

    def _restart(self, function: Callable[..., float], *arguments: Any) -> None:
        self._epoch += 1
        self._turn, self._now = 0, 0.0
        taken = np.array(self.ids, dtype=np.int64)
        masses = self.shards.map(function, *arguments, taken, self.seed, self._epoch)
        self._mass = float(sum(masses))

    def run(self) -> None:
        rate = 1.0
        while len(self.ids) < self.k:
            if self._mass <= 0:
                self._fill()
                return
            before = len(self.ids)
            rings = self._next_rings(rate)
            self._settle(rings)
            rate = (len(self.ids) - before + 1) / (len(rings.owners) + 2)
            # No ring at all: the mass may be what rounding left of it, and is added up anew.
            if not len(rings.owners) or self._worth_measuring(rate):
                self.refresh(self.added() if len(self.ids) > self._measured else None)
                rate = 1.0

    def _worth_measuring(self, rate: float) -> bool:
        """Whether measuring all rows again, after which most rings do, is cheaper than going on.

        The part of the rings that do falls on the way; that it does so in inverse proportion to
        the number of picks is a guess which errs on the side of measuring.
        """
        left, added = self.k - len(self.ids), len(self.ids) - self._measured
        falling = 1 + left / (2 * max(len(self.ids), 1))
        going_on = left / rate * falling * (added + left / 2 + RING_COST)
        again = len(self.shards) * (added + ROW_COST) + 2 * left * (left / 2 + RING_COST)
        return added > 0 and going_on > PATIENCE * again

    def added(self) -> Embedding:
        """The centres added since all rows were measured, of which there is one at least."""
        return self._restore(self._centres.since(self._measured))

    def _next_rings(self, rate: float) -> _Rings:
        """The next rings of all clocks, in the order of time; ``rate`` is how many are accepted."""
        wanted = min(WANTED, self.k - len(self.ids)) / rate
        count = min(max(wanted, min(RINGS, 2 * wanted + 4)), MOST_RINGS)
        if not self._measured and not self._turn:
            count = min(count, FIRST)
        since, self._now = self._now, self._now + count / self._mass
        self._turn += 1
        turn = (self._epoch, self._turn)
        return _join(self.shards.map(_ring, since, self._now, self._known, self.seed, turn))

    def _settle(self, rings: _Rings) -> None:
        """Accept rings in the order of time, each with its D^2 at that moment."""
        if not len(rings.ids):
            return
        now, embedding = rings.rates.copy(), self.embed(rings.rows)
        if len(self.ids) > self._measured:
            norms = squared_norms(embedding)
            now = np.minimum(now, to_numpy(nearest_distances(embedding, norms, self.added())))
        now[now <= rings.rounding] = 0
        bars = rings.accept * rings.rates[rings.owners]
        # D^2 only falls: what is rejected against the centres so far stays rejected.
        alive = np.flatnonzero(now[rings.owners] > bars)
        items, owners = np.unique(rings.owners[alive], return_inverse=True)
        left, close = now[items], take(embedding, items)
        accepted = _accept_in_turn(left, close, owners, bars[alive], self.k - len(self.ids))
        where = [place for place, _ in accepted]
        self.accept(
            rings.ids[items[where]].tolist(),
            [distance for _, distance in accepted],
            take(close, np.array(where, dtype=np.intp)),
        )
        now[items] = np.where(left <= rings.rounding[items], 0, left)
        order = np.argsort(rings.ids)
        self._known = rings.ids[order], now[order]
        fallen = rings.rates.sum(dtype=np.float64) - now.sum(dtype=np.float64)
        self._mass = max(self._mass - float(fallen), 0.0)

    def _fill(self) -> None:
        """All that is left lies on a centre: draw uniformly."""
        ids = np.setdiff1d(self.shards.ids, np.array(self.ids, dtype=np.int64))
        left = self.k - len(self.ids)
        order = largest(row_noise(self.seed, ids, PICK, 1), left, ids)
        self.ids += ids[order].tolist()
        self.scores += [0.0] * left
        self.shards.progress(self.name, self.k, self.k)


def kmeans_plus_plus(
    rows: Embedding, k: int, seed: int, centers: Embedding | None = None, *, first: str = "uniform"
) -> Ids:
    """Draw ``k`` different rows by the k-means++ law.

    Args:
        rows: ``(n, d)`` or `labelwise.kernels.Factored`.
        k: at most ``n``.
        seed: decides the draw.
        centers: rows that count as centres from the start; without any, the first pick is
            uniform, or the row of the largest norm with ``first="largest"``.
        first: ``"uniform"`` or ``"largest"``.

    Returns:
        ``(k,)`` row numbers, in the order drawn.

    Example:
        >>> import numpy as np
        >>> rows = np.array([[0.0], [0.1], [10.0], [10.1]])
        >>> ids = kmeans_plus_plus(rows, 2, seed=0)
        >>> sorted((ids // 2).tolist())  # almost surely one of each pair
        [0, 1]
    """
    names, embed = embedding_rows(rows)
    count = len(rows)
    if not 0 <= k <= count:
        raise BadInput(f"k must be from 0 to {count}, the number of rows; got {k}")
    if first not in ("uniform", "largest"):
        raise BadInput(f"first must be 'uniform' or 'largest'; got {first!r}")
    if k == 0:
        return np.empty(0, dtype=np.int64)
    shards = LocalShards([Shard(np.arange(count, dtype=np.int64), names)])
    centres = None if centers is None or not len(centers) else centers
    return draw_far_items(shards, embed, k, seed, centres=centres, first=first)[0]
