r"""k-means++ seeding, exactly, without touching every row for every pick.

Each pick is drawn with probability proportional to :math:`D_i^2`, the squared distance to the
nearest centre so far. :math:`D_i^2` only falls, so an old value is an upper bound. Give every item
a Poisson clock that rings at the rate of its old :math:`D_i^2`; when it rings, measure the item
against the centres added since and accept it with probability (:math:`D_i^2` now) / (then). The
thinned clocks ring at the rate :math:`D_i^2` now, so the next accepted ring is a draw from the
k-means++ law. An item that rang is known exactly, so its clock goes on at its present
:math:`D_i^2`. All rows are measured again, with one matrix product, only when that is cheaper than
the rejected rings to come.

The clocks (`kernels.distance.clocks`) are functions of (seed, epoch, item id): the picks depend
neither on the order nor on the split of the rows.

Reference: D. Arthur, S. Vassilvitskii, "k-means++: The Advantages of Careful Seeding", SODA 2007.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids, largest, row_noise, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.distance import clocks
from labelwise.kernels.distance.centering import move_near_origin
from labelwise.kernels.distance.clocks import PICK, Rings
from labelwise.kernels.distance.factored import (
    Embedding,
    features,
    make_single_block,
    split_embedding,
    squared_distances,
    squared_norms,
    take,
)
from labelwise.kernels.distance.farthest import nearest_distances
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import GrowingRows, Rows

FIRST, RINGS, MOST_RINGS, WANTED = 96, 512, 8192, 256
"""How many rings are looked at together: before any row was measured, when the clocks ring at mere
bounds and few rings do; afterwards; at most; and how many of them should do."""
RING_COST, ROW_COST = 100, 16
"""What a ring and a row cost beside the inner products that measure them, in inner products."""
NOTHING = 1e-290
"""A sum of D^2 up to this is none: clocks of such rates would ring after an infinite time."""
PATIENCE = 1.0
"""How much cheaper measuring all rows again must be; 0 does it after every pick."""


def draw_kmeans_plus_plus(
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
        ids ``(k,)`` in the order drawn, and their D^2 at that moment (the first: its norm, of the
        rows as `labelwise.kernels.distance.centering` moves them).
    """
    # Norms, by which the largest goes, do not outlast a shift.
    moved = move_near_origin(shards, embed, shifted=first != "largest")
    best = shards.map(clocks.start, moved, seed, first)
    draw = _Draw(shards, moved, seed, k, name)
    if centres is None:
        _, norm, item = max(best, key=lambda entry: (entry[0], -entry[2]))
        draw.accept([item], [norm], moved(shards.rows(np.array([item]))))
        draw.bound(norm)
    else:
        draw.refresh(moved.move(centres))
    draw.run()
    return np.array(draw.ids, dtype=np.int64), moved.squares_back(np.array(draw.scores))


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


class _Draw:
    """The picks so far, and the centres added since all rows were last measured."""

    def __init__(self, shards: Shards, embed: Any, seed: int, k: int, name: str) -> None:
        self.shards, self.embed, self.seed, self.k, self.name = shards, embed, seed, k, name
        self.ids: list[int] = []
        self.scores: list[float] = []
        self._centres = GrowingRows()
        self._restore: Callable[[Rows], Embedding] = features
        self._run_epoch, self._turn, self._measured = 0, 0, 0
        self._now, self._mass = 0.0, 0.0
        self._known: tuple[Ids, Any] = np.empty(0, dtype=np.int64), np.empty(0)

    def accept(self, ids: list[int], scores: list[float], embedding: Embedding) -> None:
        """Count picks as centres."""
        self.ids += ids
        self.scores += scores
        rows, self._restore = split_embedding(embedding)
        self._centres.append(rows)
        self.shards.progress(self.name, len(self.ids), self.k)

    def bound(self, norm: float) -> None:
        """Start the clocks at bounds: no row but the first pick has been measured yet."""
        self._restart(clocks.bound, norm)

    def refresh(self, centres: Embedding | None) -> None:
        """Measure all rows against the centres added since the last time; start the clocks anew."""
        self._restart(clocks.refresh, self.embed, centres)
        self._measured = len(self.ids)

    def _restart(self, function: Callable[..., float], *arguments: Any) -> None:
        self._run_epoch += 1
        self._turn, self._now = 0, 0.0
        taken = np.array(self.ids, dtype=np.int64)
        masses = self.shards.map(function, *arguments, taken, self.seed, self._run_epoch)
        self._mass = float(sum(masses))
        if not self._mass < np.inf:
            raise BadInput("squared distances of the rows add up to infinity; scale them down")

    def run(self) -> None:
        rate = 1.0
        while len(self.ids) < self.k:
            if self._mass <= NOTHING:
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

    def _next_rings(self, rate: float) -> Rings:
        """The next rings of all clocks, in the order of time; ``rate`` is how many are accepted."""
        wanted = min(WANTED, self.k - len(self.ids)) / rate
        count = min(max(wanted, min(RINGS, 2 * wanted + 4)), MOST_RINGS)
        if not self._measured and not self._turn:
            count = min(count, FIRST)
        since, self._now = self._now, self._now + count / self._mass
        self._turn += 1
        turn = (self._run_epoch, self._turn)
        return clocks.join(
            self.shards.map(clocks.ring, since, self._now, self._known, self.seed, turn)
        )

    def _settle(self, rings: Rings) -> None:
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
    shards, embed, centers = make_single_block(rows, k, centers)
    if first not in ("uniform", "largest"):
        raise BadInput(f"first must be 'uniform' or 'largest'; got {first!r}")
    if k == 0:
        return np.empty(0, dtype=np.int64)
    return draw_kmeans_plus_plus(shards, embed, k, seed, centres=centers, first=first)[0]
