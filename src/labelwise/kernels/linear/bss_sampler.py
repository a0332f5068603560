r"""Draws in proportion to :math:`v_i^\top E v_i`, exactly, after one pass over the rows.

Randomized BSS keeps a matrix :math:`B` between two barriers, :math:`l I \prec B \prec u I`, and
draws row :math:`i` in proportion to :math:`v_i^\top E v_i` with

.. math:: E = (u I - B)^{-1} + (B - l I)^{-1} .

`Candidates` draws rows in proportion to :math:`|v_i|^2`, which does not change, so one pass over
the pool suffices for a whole run. A candidate is accepted with probability
:math:`v^\top E v / (a |v|^2)`, :math:`a \ge \lambda_{\max}(E)`. Accepted rows follow the law
above for any such bound; since the barriers keep :math:`E` close to a multiple of the identity,
two or three candidates are enough.

`Barriers` holds :math:`B` as an eigendecomposition :math:`Q \Lambda Q^\top`, recomputed every
``m`` rounds, plus the draws since then, so that :math:`\operatorname{tr} E` and
:math:`v^\top E v` come from :math:`m \times m` factors.

Cost: one pass ``O(n d^2)``; then ``O(d m^2 + d^2)`` a round, and ``O(d^3)`` every ``m`` rounds with
``m`` about ``8 d^(1/3)``. Memory ``O(n + d^2)``.
"""

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from labelwise.arrays import (
    Array,
    Floats,
    Ids,
    bring,
    float64,
    like,
    namespace,
    row_noise,
    to_numpy,
    waiting_times,
)
from labelwise.kernels.linear.leverage import RowReader, project_block
from labelwise.pool.blocks import Shards
from labelwise.threads import run_in_threads, split_range

FETCHED = 128
"""Average number of candidates fetched at a time; fewer from a tiny pool."""

AHEAD = 31
"""Number of later fetches whose ringing items are found in the same scan."""

CHUNK = 1 << 16
"""Items whose clocks are computed at a time, so that they stay in cache."""

SUMMED = 4096
"""Rows that are transferred at a time to sum their outer products."""

TRIED = 4
"""Candidates that are evaluated at a time."""

_ARRIVAL, _VERDICT = 0, 1


class Candidates:
    """An endless sequence of rows drawn independently in proportion to their leverage.

    Every item rings at the times of a Poisson process whose rate is its leverage; the items in
    the order in which they ring are the candidates. The times are a function of (seed, id), so
    the candidates depend neither on the order nor on the split of the rows.

    Attributes:
        leverage: ``(n,)``, in the order of ``shards.ids``; sums to ``r``.
    """

    def __init__(self, shards: Shards, read: RowReader, transform: Floats, seed: int) -> None:
        """Measure the leverage of every row; ``transform`` ``(d, r)`` whitens them."""
        self._shards, self._read, self._seed = shards, read, seed
        self._transform = transform
        self.leverage: Floats = np.concatenate(
            shards.map(
                project_block, read, transform, True
            )  # float64: independent of the split into blocks
        )
        self._ids = shards.ids
        self._times = self._first_rings()
        self._turn, self._end, self._seen = 1, 0.0, 0.0
        self._soon: Ids = np.empty(0, dtype=np.int64)
        self._queue = self._fetch_candidates()
        self._rotated: Floats = np.empty(0)
        self._era: tuple[Barriers, int] | None = None

    def _first_rings(self) -> Floats:
        """Time of every item's first ring, ``(n,)``; infinite without leverage."""
        times = np.empty(len(self._ids))

        def start_clocks(part: slice) -> None:
            ids, rates = self._ids[part], self.leverage[part]
            times[part] = waiting_times(self._seed, (_ARRIVAL, 0), rates, ids)

        run_in_threads(start_clocks, split_range(len(times), CHUNK))
        return times

    def _advance_clocks(self, positions: Ids) -> None:
        """Advance the clocks of some items to their next ring."""
        ids, rates = self._ids[positions], self.leverage[positions]
        self._times[positions] += waiting_times(self._seed, (_ARRIVAL, self._turn), rates, ids)
        self._turn += 1

    def _fetch_candidates(self) -> tuple[Ids, Floats, Floats]:
        """The next candidates: ids, noise for their acceptance, whitened rows ``(m, r)``."""
        step = min(FETCHED, 4 * len(self._ids)) / self._transform.shape[1]
        self._end += step
        if self._end > self._seen:
            self._seen = self._end + AHEAD * step
            self._soon = np.flatnonzero(self._times < self._seen)
        times, ids, noise = [], [], []
        while len(due := self._soon[self._times[self._soon] < self._end]):
            times.append(self._times[due])
            ids.append(self._ids[due])
            noise.append(row_noise(self._seed, self._ids[due], _VERDICT, self._turn))
            self._advance_clocks(due)
        if not times:
            return self._fetch_candidates()
        order = np.lexsort((np.concatenate(ids), np.concatenate(times)))
        ordered = np.concatenate(ids)[order]
        return ordered, np.concatenate(noise)[order], self._whiten_rows(ordered)

    def _whiten_rows(self, ids: Ids) -> Floats:
        """``v_i``, with mean outer product ``I`` over the pool, ``(m, r)``."""
        different, back = np.unique(ids, return_inverse=True)
        rows = float64(self._read(self._shards.rows(different)))
        whitened = to_numpy(rows @ like(self._transform, rows)) * np.sqrt(len(self._ids))
        return np.asarray(whitened[back])

    def gram(self, ids: Ids) -> Floats:
        """The mean over the pool of ``v v^T`` for the given items alone, ``(r, r)``."""
        rank = self._transform.shape[1]
        total = np.zeros((rank, rank))
        for first in range(0, len(ids), SUMMED):
            rows = self._whiten_rows(ids[first : first + SUMMED])
            total += rows.T @ rows
        return np.asarray(total / len(self._ids))

    def draw(self, barriers: "Barriers") -> tuple[int, Floats, float]:
        """One row from the law of this round: its id, ``v`` and ``v^T E v``."""
        while True:
            ids, noise, rows = self._queue
            if not len(ids):
                self._queue, self._era = self._fetch_candidates(), None
                continue
            if self._era != (barriers, barriers.renewals):
                self._rotated = barriers.rotate_rows(rows)  # once for several rounds
                self._era = barriers, barriers.renewals
            tried = self._rotated[len(self._rotated) - len(rows) :][:TRIED]
            values, bounds = barriers.evaluate_rotated(tried)
            accepted = np.flatnonzero(noise[:TRIED] * bounds < values)
            # Candidates after the accepted one were not judged and stay in the queue.
            used = int(accepted[0]) + 1 if len(accepted) else len(values)
            self._queue = ids[used:], noise[used:], rows[used:]
            if len(accepted):
                return int(ids[used - 1]), rows[used - 1], float(values[used - 1])


class Barriers:
    """The matrix ``B`` between its barriers.

    Attributes:
        upper: ``u``.
        lower: ``l``.
        potential: ``tr E``.
        renewals: number of decompositions of ``B``.
    """

    def __init__(self, dimension: int, gamma: float, placement: Array | None = None) -> None:
        """Start from ``B = 0``, where ``tr E = gamma``.

        ``B`` is decomposed on the device of ``placement``, on the host if None.
        """
        self.gamma, self.renewals = gamma, 0
        self._placement = np.empty(0) if placement is None else placement
        self.upper = 2 * dimension / gamma
        self.lower = -self.upper
        self._capacity = max(2, round(8 * dimension ** (1 / 3)))
        self._decompose(np.zeros((dimension, dimension)))

    def _decompose(self, matrix: Floats) -> None:
        """Decompose ``B`` and start a new list of draws."""
        self._known, self.renewals = matrix, self.renewals + 1
        here = bring(matrix, self._placement)
        self._values, self._vectors = map(to_numpy, namespace(here).linalg.eigh(here))
        self._draws = np.empty((self._capacity, len(matrix)))
        self._rotated = np.empty((self._capacity, len(matrix)))
        self._count = 0
        self._margin = (self._values[0] - self.lower) / 2
        self._update_factors()

    def matrix(self) -> Floats:
        """``B``, ``(r, r)``."""
        draws = self._draws[: self._count]
        return np.asarray(self._known + draws.T @ draws)

    def _update_factors(self) -> None:
        r"""Update ``E``: in the eigenbasis, a diagonal and two thin factors.

        With :math:`W` the draws since the last decomposition, :math:`D = (u - \Lambda)^{-1}` and
        :math:`R R^\top = I - W^\top D W`, Woodbury's identity gives
        :math:`(uI - B)^{-1} = D + P^\top P`, :math:`P = R^{-1} W^\top D`;
        the lower barrier likewise.
        """
        rotated = self._rotated[: self._count]
        above, below = 1 / (self.upper - self._values), 1 / (self._values - self.lower)
        self._diagonal = above + below
        self._above, self._below = ThinFactor(rotated, above, -1.0), ThinFactor(rotated, below, 1.0)
        traces = np.trace(self._above.gram) - np.trace(self._below.gram)
        self.potential = float(self._diagonal.sum() + traces)
        self._bound = self._bound_eigenvalues(float(above[-1]))

    def _bound_eigenvalues(self, above: float) -> float:
        """Upper bound on the largest eigenvalue of ``E``, which is at an extreme one of ``B``.

        ``B`` only grows, so its old smallest eigenvalue bounds the new one.
        """
        fourth = np.linalg.norm(self._above.gram @ self._above.gram)  # (trace of the 4th power)^1/2
        high, low = 1 / (above + float(np.sqrt(fourth))), float(self._values[0] - self.lower)
        width = self.upper - self.lower
        return max(width / (low * (width - low)), width / (high * (width - high)))

    def forms(self, rows: Floats) -> tuple[Floats, Floats]:
        """``v^T E v`` for every row of ``(m, r)``, and the bound ``a |v|^2`` on it."""
        return self.evaluate_rotated(self.rotate_rows(rows))

    def rotate_rows(self, rows: Floats) -> Floats:
        """Rows in the basis of the last decomposition, ``(m, r)``."""
        return np.asarray(rows @ self._vectors)

    def evaluate_rotated(self, rotated: Floats) -> tuple[Floats, Floats]:
        """`forms` of rows from `rotate_rows` since the last decomposition."""
        squares = rotated**2
        values = squares @ self._diagonal + self._above.forms(rotated) - self._below.forms(rotated)
        return values, self._bound * squares.sum(axis=1)

    def raised(self) -> tuple[float, float]:
        """The upper and the lower barrier after this round."""
        step = self.gamma / self.potential
        return self.upper + step / (1 - self.gamma), self.lower + step / (1 + self.gamma)

    def add(self, row: Floats, scale: float) -> None:
        """Add ``scale v v^T`` to ``B`` and raise the barriers."""
        self.upper, self.lower = self.raised()
        draw = np.sqrt(scale) * row
        self._draws[self._count] = draw
        self._rotated[self._count] = draw @ self._vectors
        self._count += 1
        # The factors need the lower barrier below the old eigenvalues: decompose in time.
        if self._count == self._capacity or self._values[0] - self.lower < self._margin:
            self._decompose(self.matrix())
        else:
            self._update_factors()


class ThinFactor:
    """``P = R^-1 W^T D`` with ``R R^T = I + sign W^T D W``, in factors.

    Attributes:
        gram: ``P P^T``, ``(m, m)``.
    """

    def __init__(self, rotated: Floats, diagonal: Floats, sign: float) -> None:
        """Factor ``rotated``, which is ``W^T``, ``(m, r)``."""
        self._scaled = rotated * diagonal
        inner = np.eye(len(rotated)) + sign * (self._scaled @ rotated.T)
        self._root = _invert_root(inner)
        self.gram: Floats = self._root @ (self._scaled @ self._scaled.T) @ self._root.T

    def forms(self, rows: Floats) -> Floats:
        """``|P z|^2`` for every row ``z``."""
        return np.asarray(((rows @ self._scaled.T @ self._root.T) ** 2).sum(axis=1))


def _invert_root(matrix: Floats) -> Floats:
    """``R^-1`` for ``R R^T`` a small positive definite matrix.

    Triangular LAPACK routines take a third of the time of a general inverse.
    """
    factor, failed = dpotrf(matrix, lower=1, clean=1)
    if failed:
        raise np.linalg.LinAlgError("the barriers have been crossed")
    return np.asarray(dtrtri(factor, lower=1)[0]) if len(matrix) else np.asarray(matrix)
