r"""Exact k-means++ seeding that does not measure every row for every pick.

Each pick is drawn with probability proportional to :math:`D_i^2`, the squared distance to the
nearest center so far, which only falls. Every item has a Poisson clock that rings at the rate of an
old :math:`D_i^2`; when it rings, the item is measured against the centers added since and accepted
with probability (:math:`D_i^2` now) / (old value). The thinned clocks ring at the rate
:math:`D_i^2` now, so the next accepted ring is a draw from the k-means++ law. All rows are measured
again, with one matrix product, only when that is cheaper than the expected rejected rings.

The clocks are functions of (seed, epoch, item id): the picks depend neither on the order nor on the
split of the rows.

Cost: a few passes over the rows and :math:`O(b^2 d)` for the rings. Memory per row: a norm and a
rate in the precision of the rows and the time of the next ring, 16 bytes for float32 rows.

Reference: D. Arthur, S. Vassilvitskii, "k-means++: The Advantages of Careful Seeding", SODA 2007.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array, Floats, Ids, largest, row_noise, to_numpy, waiting_times
from labelwise.errors import BadInput
from labelwise.kernels.distance.embedding import (
    DISTANCE_ROUNDING,
    Embedding,
    MovedReader,
    Read,
    concat_embeddings,
    make_embedding_block,
    move_near_origin,
    nearest_distances,
    squared_distances,
    squared_norms,
    take_embedding,
)
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.ids import find_member_positions
from labelwise.pool.rows import ArrayDict, Rows, join_rows, map_pieces, take_rows
from labelwise.threads import run_in_threads, split_range

FIRST_RINGS, RINGS, MAX_RINGS = 96, 512, 8192
"""Rings examined together: before any row was measured (few are accepted), later, at most."""
WANTED = 256  # Accepted rings wanted per batch
RING_COST, ROW_COST = 100, 16
"""Cost of a ring and of a row in addition to its inner products, in inner products."""
SMALLEST_MASS = 1e-290  # A sum of D^2 up to this counts as zero: times of rings would overflow
PATIENCE = 1.0  # Factor by which measuring all rows must be cheaper; 0 measures after every pick
KEY = "kmeans_plus_plus"
SPAN = 1 << 15  # Numbers of a block that are processed at a time, which stay in a core's cache
FEW_CENTERS = 32
"""With fewer centers rows are measured in pieces, because products take little of the time."""
PICK, RING, ACCEPT, AGAIN = 1, 2, 3, 4
"""Streams of noise: uniform picks, times between rings, acceptance, restarted clocks."""

Turn = tuple[int, int]
"""Number of times that all rows were measured, and number of ring batches since."""


def kmeans_plus_plus(
    rows: Embedding, k: int, seed: int, centers: Embedding | None = None, *, first: str = "uniform"
) -> Ids:
    """Draw ``k`` distinct rows from the k-means++ distribution.

    Args:
        rows: ``(n, d)`` or `labelwise.kernels.Factored`.
        k: at most ``n``.
        seed: determines the draw.
        centers: rows that count as centers from the start; without any, the first pick is
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
    shards, embed, centers = make_embedding_block(rows, k, centers)
    if first not in ("uniform", "largest"):
        raise BadInput(f"first must be 'uniform' or 'largest'; got {first!r}")
    if k == 0:
        return np.empty(0, dtype=np.int64)
    return draw_kmeans_plus_plus(shards, embed, k, seed, centres=centers, first=first)[0]


def draw_kmeans_plus_plus(
    shards: Shards,
    embed: Read,
    k: int,
    seed: int,
    *,
    centres: Embedding | None = None,
    first: str = "uniform",
    name: str = "k-means++",
) -> tuple[Ids, Floats]:
    """Draw ``k`` items from the k-means++ distribution.

    ``centres`` are an embedding that counts as centers from the start; without them the first pick
    is ``"uniform"``, or of the ``"largest"`` norm. Returns ids ``(k,)`` in the order drawn, and
    their D^2 at that moment (the first: its norm, of the moved rows).
    """
    # A shift would change the norms, by which the largest is chosen.
    moved = move_near_origin(shards, embed, shifted=first != "largest")
    best = shards.map(measure_seeding_norms, moved, seed, first)
    draw = SeedingRun(shards, moved, seed, k, name)
    if centres is None:
        _, last, norm = max(best)
        item = -last
        draw.add_centers([item], [norm], moved(shards.rows(np.array([item]))))
        draw.restart_clocks(norm)  # no row but the first pick has been measured yet
    else:
        draw.restart_clocks(moved.move(centres))
    draw.run_clocks()
    return np.array(draw.ids, dtype=np.int64), moved.unscale_squares(np.array(draw.scores))


@dataclass
class RingBatch:
    """Rings of clocks (item, time, noise for acceptance), and the items that rang.

    ``owners``, ``times`` and ``accept`` have one entry per ring; ``owners`` are positions in
    ``ids``, which like ``rates``, ``rounding`` and ``rows`` has one entry per item.
    """

    owners: NDArray[np.intp]
    times: Floats
    accept: Floats
    ids: Ids
    rates: Array
    rounding: Array
    rows: ArrayDict


@dataclass
class SeedingRun:
    """A seeding in progress."""

    shards: Shards  # the rows
    embed: MovedReader  # reads them
    seed: int  # determines all draws
    k: int  # number of picks wanted
    name: str  # label of the progress reports
    ids: list[int] = field(default_factory=list)  # the picks so far
    scores: list[float] = field(default_factory=list)  # their D^2 when they were drawn
    _added: list[Embedding] = field(default_factory=list)  # since all rows were measured
    _measured: int = 0  # number of picks that the rates of all rows count
    _epoch: int = 0
    _turn: int = 0
    _now: float = 0.0
    _mass: float = 0.0
    _known: tuple[Ids, Array] = (np.empty(0, np.int64), np.empty(0))  # rates of items that rang

    def add_centers(self, ids: list[int], scores: list[float], embedding: Embedding) -> None:
        """Count picks as centers."""
        self.ids += ids
        self.scores += scores
        self._added.append(embedding)
        self.shards.progress(self.name, len(self.ids), self.k)

    def restart_clocks(self, centres: Embedding | float | None) -> None:
        """Start all clocks at new rates, as in `restart_block_clocks`."""
        self._epoch += 1
        self._turn, self._now = 0, 0.0
        taken = np.array(self.ids, dtype=np.int64)
        given = (self.embed, centres, taken, self.seed, self._epoch)
        self._mass = float(sum(self.shards.map(restart_block_clocks, *given)))
        if not self._mass < np.inf:
            raise BadInput("squared distances of the rows add up to infinity; scale them down")
        if not isinstance(centres, float):
            self._measured, self._added = len(self.ids), []

    def run_clocks(self) -> None:
        """Accept rings until ``k`` items are picked."""
        rate = 1.0
        while len(self.ids) < self.k:
            if self._mass <= SMALLEST_MASS:
                self._draw_remaining()
                return
            before = len(self.ids)
            rings = self._next_rings(rate)
            self._accept_rings(rings)
            rate = (len(self.ids) - before + 1) / (len(rings.owners) + 2)
            left, added = self.k - len(self.ids), len(self.ids) - self._measured
            # The acceptance rate is assumed to fall in inverse proportion to the number of picks,
            # which errs on the side of measuring; after it most rings are accepted.
            falling = 1 + left / (2 * max(len(self.ids), 1))
            continuing = left / rate * falling * (added + left / 2 + RING_COST)
            measuring = len(self.shards) * (added + ROW_COST) + 2 * left * (left / 2 + RING_COST)
            # Without any ring the mass may be a rounding residue; measuring sums it again.
            if not len(rings.owners) or (added > 0 and continuing > PATIENCE * measuring):
                self.restart_clocks(concat_embeddings(self._added) if self._added else None)
                rate = 1.0

    def _next_rings(self, rate: float) -> RingBatch:
        """The next rings of all clocks in the order of time; ``rate`` is the acceptance rate."""
        wanted = min(WANTED, self.k - len(self.ids)) / rate
        count = min(max(wanted, min(RINGS, 2 * wanted + 4)), MAX_RINGS)
        if not self._measured and not self._turn:
            count = min(count, FIRST_RINGS)
        since, self._now = self._now, self._now + count / self._mass
        self._turn += 1
        turn = (self._epoch, self._turn)
        parts = self.shards.map(ring_clocks, since, self._now, self._known, self.seed, turn)
        parts = [part for part in parts if len(part.ids)] or parts[:1]
        starts = np.cumsum([0, *(len(part.ids) for part in parts[:-1])])
        owners = np.concatenate([part.owners + at for part, at in zip(parts, starts, strict=True)])
        times, accept, ids, rates, rounding = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("times", "accept", "ids", "rates", "rounding")
        )
        order = np.lexsort((ids[owners], times))
        rows = join_rows([part.rows for part in parts])
        return RingBatch(owners[order], times[order], accept[order], ids, rates, rounding, rows)

    def _accept_rings(self, rings: RingBatch) -> None:
        """Accept rings in the order of time, each with its D^2 at that moment."""
        if not len(rings.ids):
            return
        now, embedding = rings.rates.copy(), self.embed(rings.rows)
        if self._added:
            self._added = [concat_embeddings(self._added)]
            distances = nearest_distances(embedding, squared_norms(embedding), self._added[0])
            now = np.minimum(now, to_numpy(distances))
        now[now <= rings.rounding] = 0
        bars = rings.accept * rings.rates[rings.owners]
        # D^2 only falls: a ring rejected against the centers so far stays rejected.
        alive = np.flatnonzero(now[rings.owners] > bars)
        items, owners = np.unique(rings.owners[alive], return_inverse=True)
        close = take_embedding(embedding, items)
        between = to_numpy(squared_distances(close, close))
        np.fill_diagonal(between, 0)
        left = now[items].astype(between.dtype)  # a minimum of two types would take twice as long
        where: list[int] = []
        scores: list[float] = []
        most = self.k - len(self.ids)
        for owner, bar in zip(owners.tolist(), bars[alive].tolist(), strict=True):
            distance = left.item(owner)  # D^2 at this moment
            if distance > bar and len(where) < most:
                where.append(owner)
                scores.append(distance)
                np.minimum(left, between[owner], out=left)
        left = np.minimum(now[items], left)
        accepted = take_embedding(close, np.array(where, dtype=np.intp))
        self.add_centers(rings.ids[items[where]].tolist(), scores, accepted)
        now[items] = np.where(left <= rings.rounding[items], 0, left)
        order = np.argsort(rings.ids)
        self._known = rings.ids[order], now[order]
        fallen = rings.rates.sum(dtype=np.float64) - now.sum(dtype=np.float64)
        self._mass = max(self._mass - float(fallen), 0.0)

    def _draw_remaining(self) -> None:
        """All remaining items coincide with a center: draw uniformly."""
        ids = np.setdiff1d(self.shards.ids, np.array(self.ids, dtype=np.int64))
        left = self.k - len(self.ids)
        order = largest(row_noise(self.seed, ids, PICK, 1), left, ids)
        self.ids += ids[order].tolist()
        self.scores += [0.0] * left
        self.shards.progress(self.name, self.k, self.k)


@dataclass
class ClockBlock:
    """State of a block; ``(n,)`` each, on the host except the norms."""

    norms: Array  # squared norms of the rows
    rates: Array  # bounds of D^2; 0 for picks
    rings: Floats  # time of the next ring of every clock
    rung: NDArray[np.intp]  # positions of the items that rang last
    # Squared distances up to this multiple of the norm may be rounding alone, so that copies of a
    # center are never drawn
    rounding: float


def measure_seeding_norms(
    shard: Shard, embed: MovedReader, seed: int, first: str
) -> tuple[float, int, float]:
    """Measure the norms of a block; return its candidate for the first pick.

    That is what it is chosen by, the negative id, which breaks ties, and the squared norm.
    """
    norms = map_pieces(lambda rows: squared_norms(embed(rows)), shard.rows)
    host = to_numpy(norms)
    wrong = ~np.isfinite(host)
    if wrong.any():
        raise BadInput(
            f"the row of item {shard.ids[wrong][0]} is NaN, infinite or too large; leave it out"
        )
    rounding = DISTANCE_ROUNDING * float(np.finfo(host.dtype).eps)
    nobody = np.empty(0, dtype=np.intp)
    shard.state[KEY] = ClockBlock(norms, None, np.empty(0), nobody, rounding)
    if not len(host):
        return -np.inf, 0, 0.0
    ids = shard.ids
    order = host if first == "largest" else row_noise(seed, ids, PICK)
    best = largest(order, 1, ids)[0]
    return float(order[best]), -int(ids[best]), float(host[best])


def restart_block_clocks(
    shard: Shard,
    embed: MovedReader,
    centres: Embedding | float | None,
    taken: Ids,
    seed: int,
    epoch: int,
) -> float:
    """Start the clocks of a block at new rates; return the sum of the rates.

    Every row is measured against new ``centres``. If that is a number, the squared norm of the only
    center, rates are bounds of D^2; if None, the old rates stay. ``taken`` are ids of the picks.
    """
    part: ClockBlock = shard.state[KEY]
    if isinstance(centres, float):
        part.rates = _map_row_spans(partial(_bound_clock_rates, centres), to_numpy(part.norms))
    elif centres is not None:

        def measure_rows(rows: Rows, norms: Array) -> Array:
            return nearest_distances(embed(rows), norms, centres)

        if len(centres) < FEW_CENTERS:
            distances = map_pieces(measure_rows, shard.rows, part.norms)
        else:
            distances = measure_rows(shard.rows, part.norms)
        rates = np.array(to_numpy(distances))
        rates[rates <= to_numpy(part.norms) * part.rounding] = 0
        part.rates = rates if part.rates is None else np.minimum(part.rates, rates, out=rates)
    ids = shard.ids
    part.rates[find_member_positions(ids, taken)] = 0
    part.rung = part.rung[:0]
    part.rings = _map_row_spans(partial(waiting_times, seed, (RING, epoch)), part.rates, ids)
    return float(part.rates.sum(dtype=np.float64))


def _bound_clock_rates(norm: float, norms: Array) -> Array:
    """Upper bound of the squared distance to a center, by the triangle inequality."""
    finest = np.finfo(norms.dtype)
    bounds = np.sqrt(norms, dtype=np.float64)
    bounds += np.sqrt(norm)
    bounds *= bounds
    bounds *= 1 + 8 * float(finest.eps)  # remains an upper bound after rounding
    return np.minimum(bounds, float(finest.max), out=bounds).astype(norms.dtype)


def _map_row_spans(function: Callable[..., Array], *arrays: Array) -> Array:
    """``function(*arrays)``, ``(n,)``, of host arrays with one entry per row, span by span."""
    if len(arrays[0]) <= SPAN:
        return function(*arrays)

    def apply_to_span(span: slice) -> Array:
        return function(*(array[span] for array in arrays))

    return np.concatenate(run_in_threads(apply_to_span, split_range(len(arrays[0]), SPAN)))


def ring_clocks(
    shard: Shard, since: float, until: float, known: tuple[Ids, Array], seed: int, turn: Turn
) -> RingBatch:
    """All rings of the block's clocks up to a time; the clocks then show their next ring.

    Clocks that rang last continue from ``since`` at the rates in ``known`` (sorted item ids, and
    rates).
    """
    part: ClockBlock = shard.state[KEY]
    everyone = shard.ids
    ids = everyone[part.rung]
    part.rates[part.rung] = known[1][np.searchsorted(known[0], ids)]
    waits = waiting_times(seed, (AGAIN, *turn), part.rates[part.rung], ids)
    part.rings[part.rung] = since + waits
    positions = part.rung = np.flatnonzero(part.rings <= until)
    owners, times, accept = [positions[:0]], [np.empty(0)], [np.empty(0)]
    repeat = 0
    while len(positions):
        ids = everyone[positions]
        owners.append(np.searchsorted(part.rung, positions))
        times.append(part.rings[positions])
        accept.append(row_noise(seed, ids, ACCEPT, *turn, repeat))
        waits = waiting_times(seed, (RING, *turn, repeat), part.rates[positions], ids)
        part.rings[positions] += waits
        positions = positions[part.rings[positions] <= until]
        repeat += 1
    return RingBatch(
        np.concatenate(owners),
        np.concatenate(times),
        np.concatenate(accept),
        everyone[part.rung],
        part.rates[part.rung],
        to_numpy(part.norms)[part.rung] * part.rounding,
        take_rows(shard.rows, part.rung),
    )
