"""Greedy coverage with all similarities in float64 on one device, as a GPU has the memory for.

The gains of all candidates are kept. A pick covers some targets better; what every candidate loses
by that is read from the similarities of these targets alone. A target's coverage rises about
``log b`` times in ``b`` picks, so that all similarities are read some ten times in all. Candidates
whose gains are the largest up to rounding are evaluated from the definition, and equal gains
(`labelwise.arrays.comparable`) go to the smaller id, as in `labelwise.kernels.distance.coverage`.

Cost: one product of candidates and targets, ``n T d``, then ``O(n T log b)``. The host waits for
three small results per pick. Memory: ``8 n T`` bytes.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array, Floats, Ids, comparable, device, like, namespace, take, to_numpy
from labelwise.kernels.distance.similarity import SimilarityKernel
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.threads import split_range

NO_GAIN, TIE = 1e-9, 2.0**-29
"""A gain of at most this is none, and relative rounding of exact gains that may be equal."""
CHUNK = 1 << 27
"""Similarities of a temporary array."""
SLACK = 2.0**-38
"""Rounding of a gain that was updated, relative to the sum of the weights."""


@dataclass
class ResidentCoverage:
    """Picks from all similarities; arrays are on the device of the candidates but for ids.

    Attributes:
        kernel: compares rows.
        candidates: ids, ascending, ``(n,)``.
        own: the position of the target that is the same item, or -1, ``(n,)``.
        values: ``(T, n)`` similarities; of an item to itself 1, or 0 if targets are sampled.
        covered: ``(T,)`` similarity to the most similar labelled or picked item.
        zero: ``(1, 1)``; a number would be copied to the device every time.
        ids: of the picks.
        gains: of the picks.
    """

    kernel: SimilarityKernel
    candidates: Ids
    own: NDArray[np.intp]
    values: Array
    covered: Array
    zero: Array
    ids: list[int] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)

    passes = 1
    """Over the candidates."""

    @property
    def compared(self) -> int:
        """Number of similarities computed."""
        return int(self.values.shape[0] * self.values.shape[1])

    @classmethod
    def start(
        cls, shards: Shards, labelled: Rows | None, targets: Ids, kernel: SimilarityKernel
    ) -> "ResidentCoverage":
        """Compare all candidates with the targets (ascending ids)."""
        candidates = np.sort(shards.ids)
        embedded = kernel.embed(shards.rows(candidates)["features"])
        places = np.searchsorted(candidates, targets)
        chosen = take(embedded, places)
        covered = _cover_labelled(chosen, labelled, kernel)
        if kernel.narrows:
            kernel = kernel.narrow(to_numpy(covered))
            covered = covered**kernel.power
        xp, count = namespace(embedded), len(targets)
        values = xp.empty((count, len(candidates)), dtype=xp.float64, device=device(embedded))
        for span in split_range(count, max(CHUNK // max(len(candidates), 1), 1)):
            values[span] = kernel.compare_exactly(chosen[span], embedded)
        same = 1.0 if count == len(candidates) else 0.0
        values[like(np.arange(count), values), like(places, values)] = same
        own = np.full(len(candidates), -1, dtype=np.intp)
        own[places] = np.arange(count)
        return cls(kernel, candidates, own, values, covered, xp.zeros_like(values[:1, :1]))

    def pick(self, shards: Shards, weights: Floats, budget: int) -> None:
        """Pick until there are ``budget`` picks or no candidate has a gain.

        Args:
            shards: report progress.
            weights: ``(T,)`` of the targets.
            budget: number of picks, with those made before.
        """
        weights = weights / max(len(weights), 1)
        slack, scale = SLACK * float(weights.sum()), like(weights, self.values)
        xp, totals = namespace(self.values), self._sum_gains(scale)
        picked = np.searchsorted(self.candidates, np.array(self.ids, dtype=np.int64))
        totals[like(picked, totals)] = -np.inf
        while len(self.ids) < budget:
            near = xp.nonzero(totals >= xp.max(totals) - slack)[0]
            best, gain, now = self._find_best(near, scale)
            if gain <= NO_GAIN * (1 + TIE):
                return
            self.ids.append(int(self.candidates[best]))
            self.gains.append(gain)
            if self.own[best] >= 0:
                now[self.own[best]] = 1.0
            self._cover(now, scale, totals)
            totals[best] = -np.inf
            shards.progress("coverage", len(self.ids), budget)

    def _chunk(self, count: int, width: int) -> list[slice]:
        return split_range(count, max(CHUNK // max(width, 1), 1))

    def _sum_gains(self, weights: Array) -> Array:
        """Gains of all candidates, ``(n,)``."""
        xp, (count, width) = namespace(self.values), self.values.shape
        totals = xp.zeros_like(self.values[0])
        for span in self._chunk(count, width):
            above = self.values[span] - self.covered[span, None]
            totals += weights[span] @ xp.maximum(above, self.zero)
        return totals

    def _find_best(self, near: Array, weights: Array) -> tuple[int, float, Array]:
        """Of candidates with nearly the largest gain: position, exact gain and similarities.

        A column of the similarities is scattered over memory, so that it is read once.
        """
        xp, zero = namespace(self.values), self.zero
        found: list[Floats] = []
        spans = self._chunk(len(near), len(self.covered))
        for span in spans:
            columns = self.values[:, near[span]]
            gains = weights @ xp.maximum(columns - self.covered[:, None], zero)
            found.append(to_numpy(xp.stack([xp.astype(near[span], gains.dtype), gains])))
        positions, values = np.concatenate(found, axis=1)
        first = int(np.argmax(comparable(values)))
        best = int(positions[first])
        now = columns[:, first] if len(spans) == 1 else self.values[:, best]
        return best, float(values[first]), xp.asarray(now, copy=True)

    def _cover(self, now: Array, weights: Array, totals: Array) -> None:
        """Raise the coverage of targets, and lower the gains of all candidates, ``(n,)``."""
        xp, zero, rise = namespace(self.values), self.zero, now - self.covered
        changed = xp.nonzero(rise > zero[0])[0]
        for span in self._chunk(len(changed), self.values.shape[1]):
            some = changed[span]
            part = self.values[some]
            part -= self.covered[some][:, None]
            part = xp.minimum(xp.maximum(part, zero), rise[some][:, None])
            totals -= weights[some] @ part
        self.covered = xp.maximum(self.covered, now)


def _cover_labelled(targets: Array, labelled: Rows | None, kernel: SimilarityKernel) -> Array:
    """Similarity of every embedded target to the most similar labelled item, ``(T,)``."""
    xp, count = namespace(targets), len(targets)
    covered = xp.zeros((count,), dtype=xp.float64, device=device(targets))
    if labelled is None or not len(labelled["features"]):
        return covered
    known = kernel.embed(like(to_numpy(labelled["features"]), targets))
    for span in split_range(count, max(CHUNK // len(known), 1)):
        highest = xp.max(kernel.compare_exactly(targets[span], known), axis=1)
        covered[span] = xp.clip(highest, 0.0, 1.0)
    return covered
