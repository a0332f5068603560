r"""k-means++ seeding, exactly, without touching every row for every pick.

Each pick is drawn with probability proportional to :math:`D_i^2`, the squared distance to the
nearest centre so far. :math:`D_i^2` only falls, so an old value is an upper bound. Give every item
a Poisson clock that rings at the rate of its old :math:`D_i^2`; when it rings, measure the item
against the centres added since and accept it with probability (:math:`D_i^2` now) / (then). The
thinned clocks ring at the rate :math:`D_i^2` now, so the next accepted ring is a draw from the
k-means++ law. All rows are measured again, with one matrix product, only when rejected rings have
cost more than that would.

The clocks are functions of (seed, epoch, item id): the picks depend neither on the order nor on
the split of the rows.

Reference: D. Arthur, S. Vassilvitskii, "k-means++: The Advantages of Careful Seeding", SODA 2007.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids, largest, row_clocks, row_noise, to_numpy
from labelwise.blocks import GrowingRows, LocalShards, Rows, Shard, Shards, join_rows, take_rows
from labelwise.errors import BadInput
from labelwise.kernels.factored import Embedding, squared_distances, squared_norms
from labelwise.kernels.farthest import embedding_rows, nearest_distances

KEY = "seeding"
RINGS = 256
"""How many rings of the clocks are looked at together, at most, about."""
RING_COST, ROW_COST = 400, 16
"""What a ring and a row cost beside the inner products that measure them, in inner products."""
PATIENCE = 0.5
"""How much rejected rings may cost before all rows are measured again, in units of that cost."""
PICK, RING, ACCEPT = 1, 2, 3
"""The streams of noise: picks without a law, times between rings, acceptance."""


@dataclass
class _Part:
    """A block's memory, ``(n,)`` each; all but the norms on the host.

    A distance up to ``rounding`` could be rounding alone: copies of a centre are never drawn.
    """

    norms: Any
    rounding: Floats
    rates: Any
    rings: Floats
    taken: Any


@dataclass
class _Rings:
    """Rings of a block's clocks: who, when, at which rate, noise to accept it by, its rows."""

    ids: Ids
    times: Floats
    rates: Floats
    accept: Floats
    rounding: Floats
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
        draw.accept(item, norm, shards.rows(np.array([item])))
        centres = embed(draw.rows.since(0))
    draw.refresh(centres)
    draw.run()
    return np.array(draw.ids, dtype=np.int64), np.array(draw.scores)


def _start(shard: Shard, embed: Any, seed: int, first: str) -> tuple[float, float, int]:
    """Measure the norms; propose the block's candidate for the first pick."""
    norms = squared_norms(embed(shard.rows))
    host = to_numpy(norms).astype(np.float64)
    rounding = host * (32 * float(np.finfo(to_numpy(norms[:0]).dtype).eps))
    shard.state[KEY] = _Part(norms, rounding, None, np.empty(0), np.zeros(len(shard), dtype=bool))
    if not len(shard):
        return -np.inf, 0.0, 0
    order = host if first == "largest" else row_noise(seed, shard.ids, PICK)
    best = largest(order, 1, shard.ids)[0]
    return float(order[best]), float(host[best]), int(shard.ids[best])


def _refresh(
    shard: Shard, embed: Any, centres: Embedding, taken: Ids, seed: int, epoch: int
) -> float:
    """Measure every row against new centres and start its clock anew; return the mass of D^2."""
    part: _Part = shard.state[KEY]
    distances = nearest_distances(embed(shard.rows), part.norms, centres)
    host = to_numpy(distances).astype(np.float64)
    host[host <= part.rounding] = 0
    part.rates = host if part.rates is None else np.minimum(part.rates, host)
    part.taken |= np.isin(shard.ids, taken)
    part.rates[part.taken] = 0
    with np.errstate(divide="ignore"):
        part.rings = row_clocks(seed, shard.ids, RING, epoch) / part.rates
    return float(part.rates.sum())


def _ring(shard: Shard, until: float, seed: int, epoch: int, turn: int) -> _Rings:
    """All rings of the block's clocks up to a time; the clocks then stand at their next ring."""
    part: _Part = shard.state[KEY]
    positions = np.flatnonzero(part.rings <= until)
    who, times, accept = [], [], []
    repeat = 0
    while len(positions):
        ids = shard.ids[positions]
        who.append(positions)
        times.append(part.rings[positions])
        accept.append(row_noise(seed, ids, ACCEPT, epoch, turn, repeat))
        waits = row_clocks(seed, ids, RING, epoch, turn, repeat)
        part.rings[positions] += waits / part.rates[positions]
        positions = positions[part.rings[positions] <= until]
        repeat += 1
    rung = np.concatenate(who) if who else positions
    none = np.empty(0)
    return _Rings(
        shard.ids[rung],
        np.concatenate(times) if times else none,
        part.rates[rung],
        np.concatenate(accept) if accept else none,
        part.rounding[rung],
        take_rows(shard.rows, rung),
    )


class _Draw:
    """The picks so far, and the centres added since all rows were last measured."""

    def __init__(self, shards: Shards, embed: Any, seed: int, k: int, name: str) -> None:
        self.shards, self.embed, self.seed, self.k, self.name = shards, embed, seed, k, name
        self.ids: list[int] = []
        self.scores: list[float] = []
        self.rows = GrowingRows()
        self._epoch, self._turn, self._now, self._mass, self._measured = 0, 0, 0.0, 0.0, 0

    def accept(self, item: int, score: float, row: dict[str, Any]) -> None:
        self.ids.append(item)
        self.scores.append(score)
        self.rows.append(row)
        self.shards.progress(self.name, len(self.ids), self.k)

    def refresh(self, centres: Embedding) -> None:
        """Measure all rows against the centres added since the last time; start the clocks anew."""
        self._epoch += 1
        self._turn, self._now = 0, 0.0
        taken = np.array(self.ids, dtype=np.int64)
        masses = self.shards.map(_refresh, self.embed, centres, taken, self.seed, self._epoch)
        self._mass = float(sum(masses))
        self._measured = len(self.ids)

    def run(self) -> None:
        wasted = 0
        while len(self.ids) < self.k:
            if self._mass <= 0:
                self._fill()
                return
            before, added = len(self.ids), len(self.ids) - self._measured
            rings = self._next_rings()
            self._settle(rings)
            rejected = len(rings.ids) - (len(self.ids) - before)
            # Both costs in inner products; the constants stand for reading the rows and the rest.
            wasted += rejected * (added + len(rings.ids) + RING_COST)
            again = len(self.shards) * (len(self.ids) - self._measured + ROW_COST)
            if len(self.ids) < self.k and wasted > PATIENCE * again:
                self.refresh(self._added())
                wasted = 0

    def _added(self) -> Embedding:
        """The centres added since all rows were measured (one that was measured, if none was)."""
        return self.embed(self.rows.since(min(self._measured, len(self.rows) - 1)))

    def _next_rings(self) -> _Rings:
        """The next rings of all clocks, at most about `RINGS`, in the order of time."""
        self._now += min(RINGS, 2 * (self.k - len(self.ids)) + 4) / self._mass
        self._turn += 1
        parts = self.shards.map(_ring, self._now, self.seed, self._epoch, self._turn)
        parts = [part for part in parts if len(part.ids)] or parts[:1]
        ids, times, rates, accept, rounding = (
            np.concatenate([getattr(part, field) for part in parts])
            for field in ("ids", "times", "rates", "accept", "rounding")
        )
        order = np.lexsort((ids, times))
        rows = take_rows(join_rows([part.rows for part in parts]), order)
        return _Rings(ids[order], times[order], rates[order], accept[order], rounding[order], rows)

    def _settle(self, rings: _Rings) -> None:
        """Accept rings in the order of time, each with its D^2 at that moment."""
        if not len(rings.ids):
            return
        embedding = self.embed(rings.rows)
        now = rings.rates.copy()
        if len(self.ids) > self._measured:
            distances = to_numpy(
                nearest_distances(embedding, squared_norms(embedding), self._added())
            )
            now = np.minimum(now, distances)
        between = to_numpy(squared_distances(embedding, embedding)).astype(np.float64)
        bars = rings.accept * rings.rates
        for position, item in enumerate(rings.ids.tolist()):
            if now[position] <= rings.rounding[position] or now[position] < bars[position]:
                continue
            self.accept(item, float(now[position]), take_rows(rings.rows, np.array([position])))
            if len(self.ids) == self.k:
                return
            np.minimum(now, between[position], out=now)
            now[rings.ids == item] = 0

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
