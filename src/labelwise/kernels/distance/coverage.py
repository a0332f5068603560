r"""Greedy coverage (facility location): cover targets with similar picks.

With :math:`m_j` the similarity of target :math:`j` to the most similar labelled or picked item,
the next pick maximizes the gain

.. math:: \frac1T \sum_j u_j \max(0, k(c, j) - m_j) ,

a submodular function: gains only fall as items are picked, so old gains are upper bounds.

Every block keeps an upper bound of each candidate's gain, from similarities that are rounded to 16
bits. In a pass, a block brings its highest bounds up to date, until enough of them exceed all
others, and proposes those candidates. Only targets whose :math:`m_j` has changed since count for
that. The driver picks among the proposed candidates of all blocks until a bound of another
candidate intervenes. Gains that decide are computed in float64 from the definition, over the
targets that the candidate can improve; equal gains (`labelwise.arrays.comparable`) go to the
smaller id. The picks are those of the plain greedy algorithm.

Cost: one product of candidates and targets, ``n T d``, for the first bounds. If the similarities
fit into `STORED_BYTES` they are kept, and later passes only read those of changed targets;
otherwise later passes multiply the candidates that could win with the changed targets. On a GPU
the similarities stay in its memory (`labelwise.kernels.distance.resident_coverage`).

Reference: M. Minoux, "Accelerated Greedy Algorithms for Maximizing Submodular Set Functions",
Optimization Techniques, 1978.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import (
    Array,
    Floats,
    HostArray,
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
from labelwise.kernels.distance.resident_coverage import NO_GAIN, TIE, ResidentCoverage
from labelwise.kernels.distance.similarity import LEVELS, SimilarityKernel, choose_by_hash
from labelwise.kernels.linear.row_chunks import scratch_buffer
from labelwise.pool.blocks import LocalShards, Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PickFacts
from labelwise.threads import run_in_threads, split_range

KEY = "coverage"
FULL_PRODUCT = 5e10
"""All candidates are targets if their product with themselves has at most this many terms: about
the work of 3,000 targets for 14,000 images."""
SAMPLED_TARGETS, TARGETS_PER_PICK = 3000, 10
"""Targets of larger pools: 3,000, or 10 per pick, which cover almost as well as all of them."""
STORED_BYTES, RESIDENT_BYTES = 2 << 30, 16 << 30
"""Largest matrix of similarities that is kept, in the memory of the host and of a GPU."""
STORED_BUDGET = 64
"""Smaller batches do not keep it: few candidates are multiplied again."""
CHUNK, DEVICE_CHUNK = 1 << 23, 1 << 28
"""Similarities computed at a time, on a CPU and on a GPU."""
TILE, TILE_COLUMNS = 1 << 18, 2048
"""Similarities added up at a time by one thread, so that they stay in its cache."""
FEWEST, FEWEST_PER_BLOCK, MOST, WINDOW_BYTES = 256, 16, 8192, 128 << 20
"""Candidates that all blocks together and each block propose in a pass, and the memory of their
similarities."""
PER_PICK = 12
"""Candidates proposed per pick of the last pass."""
LEAST_REFRESHED, MOST_REFRESHED = 1024, 1 << 14
"""Candidates whose bounds are brought up to date first, and at a time."""
AT_ONCE = 16
"""Gains computed in float64 at a time."""
SUM_ROUNDING = 2.0**-20
"""Relative rounding of sums of float32 numbers."""
LOOSE = 0.05
"""Bounds are computed again when rounding may have moved the highest one by this part."""
TIED = 3e-7
"""Bounds that differ by at most this part of the first gain may be those of equal rows."""


def count_targets(items: int, columns: int, budget: int) -> int:
    """Number of targets for a number of candidates, of their features and of picks."""
    if items * items * columns <= FULL_PRODUCT:
        return items
    return min(items, max(SAMPLED_TARGETS, TARGETS_PER_PICK * budget))


@dataclass(frozen=True)
class CoverageTargets:
    """The items to cover, in the order of ids.

    Attributes:
        kernel: compares rows.
        ids: ``(T,)``.
        prepared: rows for `SimilarityKernel.compare`, ``(T, d)``.
        sampled: whether there are candidates that are not targets. The similarity of a candidate to
            itself then does not count, or targets would have an advantage.
    """

    kernel: SimilarityKernel
    ids: Ids
    prepared: Array
    sampled: bool

    def find_own(self, ids: Ids) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Pairs of positions: of a target, and of the candidate that is the same item."""
        places = np.searchsorted(self.ids, ids)
        places[places == len(self.ids)] = 0
        mine = np.flatnonzero(self.ids[places] == ids)
        return places[mine], mine

    def move(self, other: Array) -> "CoverageTargets":
        """The targets in the library and on the device of another array."""
        if isinstance(other, np.ndarray):
            return self
        return replace(self, prepared=like(self.prepared, other))

    def compare(self, rows: Array, ids: Ids, some: NDArray[np.intp] | None = None) -> Array:
        """Levels of similarities of targets with prepared candidates, ``(T, n)``.

        Args:
            rows: ``(n, d)``.
            ids: ``(n,)`` of the candidates.
            some: sorted positions of targets; all if None.
        """
        targets = self.prepared if some is None else take(self.prepared, some)
        levels = self.kernel.compare_levels(targets, rows)
        mine, candidates = self.find_own(ids)
        if some is not None:
            places = np.searchsorted(some, mine)
            places[places == len(some)] = 0
            found = some[places] == mine if len(some) else np.zeros(len(mine), dtype=bool)
            mine, candidates = places[found], candidates[found]
        if len(mine):
            own = 0 if self.sampled else LEVELS
            levels[_index(mine, levels), _index(candidates, levels)] = own
        return levels


def _index(positions: NDArray[np.intp], other: Array) -> Any:
    return positions if isinstance(other, np.ndarray) else like(positions, other)


def sum_clipped(
    levels: Array,
    low: Floats,
    high: Floats,
    weights: Floats,
    some: NDArray[np.intp] | None = None,
) -> Floats:
    """``sum_j weights_j (min(max(levels_jc, low_j), high_j) - low_j)`` for every column ``c``.

    Args:
        levels: ``(T, n)`` from `to_levels`.
        low: ``(T,)`` whole numbers from 0 to `LEVELS`.
        high: ``(T,)`` likewise, not below ``low``.
        weights: ``(T,)``, not negative.
        some: positions of rows of ``levels`` that the other arguments are for; all if None.

    Returns:
        ``(n,)`` float64 on the host.
    """
    count, factors = levels.shape[1], like(weights.astype(np.float32), levels)
    if not isinstance(levels, np.ndarray):
        xp = namespace(levels)
        floor, ceiling = (like(part.astype(np.float32), levels)[:, None] for part in (low, high))
        levels = levels if some is None else take(levels, some)
        levels = xp.minimum(xp.maximum(levels, floor), ceiling) - floor
        return np.asarray(to_numpy(xp.matmul(float64(factors), float64(levels))))
    floor, ceiling = (part.astype(np.uint16)[:, None] for part in (low, high))
    bounded = bool((high < LEVELS).any())
    width = min(count, TILE_COLUMNS) or 1
    step = max(TILE // width, 16)

    def add_columns(span: slice) -> Floats:
        total = np.zeros(span.stop - span.start)
        shape, columns = (step, span.stop - span.start), levels[:, span]
        with scratch_buffer(shape, np.uint16) as whole, scratch_buffer(shape, np.float32) as exact:
            for first in range(0, len(low), step):
                rows = slice(first, first + step)
                part, numbers = whole[: len(low) - first], exact[: len(low) - first]
                mine = columns[rows if some is None else some[rows]]
                np.maximum(mine, floor[rows], out=part)
                if bounded:
                    np.minimum(part, ceiling[rows], out=part)
                part -= floor[rows]
                np.copyto(numbers, part)
                # float32 within a tile, float64 across tiles; BLAS would wake its own threads
                total += np.einsum("r,rc->c", factors[rows], numbers)
        return total

    return np.concatenate(run_in_threads(add_columns, split_range(count, width)))


@dataclass
class BlockCoverage:
    """The state of a block; arrays have one entry per candidate.

    Attributes:
        targets: on the device of the rows.
        weights: ``(T,)``, divided by their number.
        bounds: upper bounds of the gains; minus infinity for picks.
        known: number of the pass that the bound belongs to; -1 for an infinite bound.
        covered: coverage of the targets in every pass, ``(T,)`` each.
        stored: similarities with all targets, ``(T, c)`` per chunk of candidates, or None.
        tied: bounds that differ by less may be those of equal rows.
        loose: how far rounding may have moved bounds since they were computed.
    """

    targets: CoverageTargets
    weights: Floats
    bounds: Floats
    known: NDArray[np.int32]
    stored: list[Array] | None
    covered: list[Floats] = field(default_factory=list)
    tied: float = 0.0
    loose: float = 0.0

    @property
    def chunk(self) -> int:
        """Candidates compared with all targets at a time."""
        on_host = str(device(self.targets.prepared)) == "cpu"
        return max((CHUNK if on_host else DEVICE_CHUNK) // max(len(self.weights), 1), 256)

    def find_changed(self, since: int) -> NDArray[np.intp]:
        """Targets whose coverage rose after the pass number ``since``."""
        return np.flatnonzero(self.covered[-1] > self.covered[since])

    def sum_gains(self, levels: Array) -> Floats:
        """Upper bounds of gains, from similarities with all targets."""
        return sum_gains(levels, self.covered[-1], self.weights, self.targets.kernel)

    def sum_losses(self, levels: Array, changed: NDArray[np.intp], since: int) -> Floats:
        """Lower bounds of what gains lost after a pass.

        Args:
            levels: similarities with the changed targets.
            changed: sorted positions of the changed targets.
            since: number of the pass.
        """
        before, now = self.covered[since][changed], self.covered[-1][changed]
        return sum_losses(levels, before, now, self.weights[changed], self.targets.kernel)


def sum_gains(levels: Array, covered: Floats, weights: Floats, kernel: SimilarityKernel) -> Floats:
    """Upper bounds of gains, ``(n,)``; a level stands for similarities up to the next one."""
    low = _round_down(covered, kernel)
    least = float(weights @ np.maximum(-low, 0))
    sums = sum_clipped(levels, np.maximum(low, 0), np.full(len(low), LEVELS), weights)
    return (sums * (1 + SUM_ROUNDING) + least) / LEVELS


def sum_differences(
    levels: Array,
    before: Floats,
    now: Floats,
    weights: Floats,
    kernel: SimilarityKernel,
    some: NDArray[np.intp] | None = None,
) -> Floats:
    """By how much `sum_gains` falls when the coverage of targets rises, ``(n,)``.

    It is rounded like `sum_gains`, whose bounds therefore stay as tight as new ones.
    """
    low, high = _round_down(before, kernel), _round_down(now, kernel)
    least = float(weights @ (np.maximum(-low, 0) - np.maximum(-high, 0)))
    sums = sum_clipped(levels, np.maximum(low, 0), np.maximum(high, 0), weights, some)
    return (sums * (1 - SUM_ROUNDING) + least) / LEVELS


def _round_down(covered: Floats, kernel: SimilarityKernel) -> Floats:
    """Levels that similarities of covered targets have at least, below 0 for almost none."""
    return np.asarray(np.floor((covered - kernel.rounding) * LEVELS) - kernel.step)


def sum_losses(
    levels: Array,
    before: Floats,
    now: Floats,
    weights: Floats,
    kernel: SimilarityKernel,
    some: NDArray[np.intp] | None = None,
) -> Floats:
    """Lower bounds of what gains lose when the coverage of targets rises, ``(n,)``."""
    low = np.clip(np.ceil((before + kernel.rounding) * LEVELS), 0, LEVELS)
    high = np.clip(np.floor((now + kernel.rounding) * LEVELS), low, LEVELS)
    return sum_clipped(levels, low, high, weights, some) * ((1 - SUM_ROUNDING) / LEVELS)


class PassMessage(NamedTuple):
    """The facts that blocks get before a pass.

    Attributes:
        covered: ``(T,)`` coverage of the targets.
        picked: ids of new picks.
        ids: of candidates whose gains are known better.
        bounds: upper bounds of these.
        width: number of candidates that a block proposes.
        local: whether similarities can be handed over without sending them.
    """

    covered: Floats
    picked: Ids
    ids: Ids
    bounds: Floats
    width: int
    local: bool


class CoverageProposal(NamedTuple):
    """Candidates of a block that may be picked next.

    Attributes:
        ids: ``(w,)``.
        features: ``(w, d)`` on the host.
        bounds: ``(w,)`` upper bounds of their gains.
        outside: upper bound of the gains of all other candidates of the block.
        untied: the same without those that tie with the best one and have larger ids.
        tied: bounds that differ by less tie.
        compared: number of similarities computed.
        levels: ``(T, w)`` similarities with all targets, if they are stored and wanted.
    """

    ids: Ids
    features: NDArray[Any]
    bounds: Floats
    outside: float
    untied: float
    tied: float
    compared: int
    levels: HostArray | None = None


def _start_block(shard: Shard, targets: CoverageTargets, weights: Floats, store: bool) -> None:
    """Begin without bounds."""
    count = len(shard)
    targets = targets.move(shard.rows["features"])
    known = np.full(count, -1, dtype=np.int32)
    stored: list[Array] | None = [] if store else None
    shard.state[KEY] = BlockCoverage(targets, weights, np.full(count, np.inf), known, stored)


def _propose_candidates(shard: Shard, message: PassMessage) -> CoverageProposal:
    """Bring the highest bounds of a block up to date, and propose their candidates."""
    block: BlockCoverage = shard.state[KEY]
    ids, features = shard.ids, shard.rows["features"]
    block.covered.append(message.covered)
    current = len(block.covered) - 1
    if block.stored is not None:
        compared = _refresh_stored(block, features, ids)
    block.bounds[np.isin(ids, message.picked)] = -np.inf
    if block.stored is None and (known := np.isin(message.ids, ids)).any():
        order = np.argsort(ids, kind="stable")
        places = order[np.searchsorted(ids, message.ids[known], sorter=order)]
        block.bounds[places] = np.minimum(block.bounds[places], message.bounds[known])
        block.known[places] = current
    if block.stored is None:
        compared = _refresh_highest(block, features, ids, message.width)
    bounds, width = block.bounds, message.width
    block.tied = max(block.tied, TIED * float(bounds.max(initial=0.0)))
    chosen, (outside, untied) = choose_highest(bounds, width, ids, block.tied)
    rows = to_numpy(take(features, chosen))
    levels = _take_stored(block, chosen) if block.stored is not None and message.local else None
    return CoverageProposal(
        ids[chosen], rows, bounds[chosen], outside, untied, block.tied, compared, levels
    )


def _take_stored(block: BlockCoverage, positions: NDArray[np.intp]) -> HostArray:
    """Stored similarities of some candidates, ``(T, w)``."""
    assert block.stored is not None
    levels = np.empty((len(block.weights), len(positions)), dtype=np.uint16)
    chunks, places = np.divmod(positions, block.chunk)

    def copy_columns(chunk: int, stored: Array) -> None:
        mine = np.flatnonzero(chunks == chunk)
        levels[:, mine] = to_numpy(stored[:, _index(places[mine], stored)])

    run_in_threads(lambda pair: copy_columns(*pair), enumerate(block.stored))
    return levels


def choose_highest(
    bounds: Floats, count: int, ids: Ids, tied: float
) -> tuple[NDArray[np.intp], tuple[float, float]]:
    """Positions of the highest bounds, and the highest bound of the others.

    Of bounds that tie with the highest one, those of the smallest ids are chosen. The last number
    leaves out the others of these.
    """
    highest = float(bounds.max(initial=-np.inf))
    level = np.where(bounds >= highest - tied, np.inf, bounds)
    chosen = largest(level, min(count, len(ids)), ids)
    chosen = chosen[bounds[chosen] > -np.inf]
    others = np.ones(len(ids), dtype=bool)
    others[chosen] = False
    outside = float(bounds[others].max(initial=-np.inf))
    untied = float(bounds[others & (level < np.inf)].max(initial=-np.inf))
    return chosen, (outside, untied)


def _refresh_stored(block: BlockCoverage, features: Array, ids: Ids) -> int:
    """Update all bounds from the stored similarities, which the first pass computes."""
    assert block.stored is not None
    current, kernel = len(block.covered) - 1, block.targets.kernel
    if current == 0:
        for span in split_range(len(ids), block.chunk):
            rows = kernel.prepare(features[span])
            block.stored.append(block.targets.compare(rows, ids[span]))
        block.bounds[:] = np.concatenate(run_in_threads(block.sum_gains, block.stored))
        return len(ids) * len(block.weights)
    changed = block.find_changed(current - 1)
    if not len(changed):
        return 0
    before, now = block.covered[current - 1][changed], block.covered[current][changed]
    weights = block.weights[changed]

    def sum_falls(levels: Array) -> Floats:
        return sum_differences(levels, before, now, weights, kernel, changed)

    falls = np.concatenate(run_in_threads(sum_falls, block.stored))
    block.bounds -= falls
    # Rounding of the sums adds up; bounds that it may have moved far are computed again.
    block.loose += 2 * SUM_ROUNDING * float(falls.max(initial=0.0))
    if block.loose > LOOSE * float(block.bounds.max(initial=0.0)):
        block.loose, picked = 0.0, block.bounds == -np.inf
        block.bounds[:] = np.concatenate(run_in_threads(block.sum_gains, block.stored))
        block.bounds[picked] = -np.inf
    return 0


def _refresh_highest(block: BlockCoverage, features: Array, ids: Ids, width: int) -> int:
    """Update the highest bounds until ``width`` of them reach all that are out of date."""
    current, batch, compared = len(block.covered) - 1, max(2 * width, LEAST_REFRESHED), 0
    while True:
        # A bound that is out of date matters only above the ``width``-th best up-to-date one.
        fresh = block.bounds[block.known == current]
        bar = fresh[np.argpartition(fresh, -width)[-width]] if len(fresh) >= width else -np.inf
        stale = np.flatnonzero((block.known < current) & (block.bounds > bar))
        if not len(stale):
            return compared
        if len(stale) > batch:
            highest = np.argpartition(-block.bounds[stale], batch - 1)[:batch]
            stale = np.sort(stale[highest])
        compared += _refresh_rows(block, features, ids, stale)
        batch *= 2


def _refresh_rows(
    block: BlockCoverage, features: Array, ids: Ids, positions: NDArray[np.intp]
) -> int:
    """Bring the bounds of some candidates up to date; the number of similarities computed."""
    compared, current, targets = 0, len(block.covered) - 1, block.targets
    for since in np.unique(block.known[positions]).tolist():
        mine = positions[block.known[positions] == since]
        changed = None if since < 0 else block.find_changed(since)
        count = len(block.weights) if changed is None else len(changed)
        if not count:
            continue
        step = min(max(block.chunk * len(block.weights) // count, 256), MOST_REFRESHED)
        for span in split_range(len(mine), step):
            some = mine[span]
            rows = targets.kernel.prepare(take(features, some))
            levels = targets.compare(rows, ids[some], changed)
            if changed is None:
                block.bounds[some] = block.sum_gains(levels)
            else:
                block.bounds[some] -= block.sum_losses(levels, changed, since)
        compared += len(mine) * count
    block.known[positions] = current
    return compared


@dataclass
class CoverageWindow:
    """Proposed candidates and their similarities with all targets.

    Attributes:
        ids: ``(w,)``.
        embedded: ``(w, d)`` rows in float64.
        levels: ``(T, w)`` similarities, rounded.
        bounds: ``(w,)`` upper bounds of the gains; minus infinity for picks.
        exact: ``(w,)``, where the bound is the gain itself.
        own: the position of the target that is the same item, or -1, ``(w,)``.
        outside: upper bound of the gains of all other candidates.
        untied: the same without those that tie with the best one and have larger ids.
    """

    ids: Ids
    embedded: Floats
    levels: NDArray[np.uint16]
    bounds: Floats
    exact: NDArray[np.bool_]
    own: NDArray[np.intp]
    outside: float
    untied: float


@dataclass
class CoverageDriver:
    """Picks among the candidates that blocks propose.

    Attributes:
        targets: on the host.
        embedded: ``(T, d)`` their rows in float64.
        covered: ``(T,)`` similarity to the most similar labelled or picked item.
        ids: of the picks.
        gains: of the picks.
        passes: over the candidates.
        compared: similarities computed by the blocks.
    """

    targets: CoverageTargets
    embedded: Floats
    covered: Floats
    ids: list[int] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)
    passes: int = 0
    compared: int = 0

    @property
    def kernel(self) -> SimilarityKernel:
        """What compares rows."""
        return self.targets.kernel

    @classmethod
    def start(
        cls, shards: Shards, labelled: Rows | None, targets: Ids, kernel: SimilarityKernel
    ) -> "CoverageDriver":
        """Read the targets (ascending ids), covered by labelled items."""
        features = to_numpy(shards.rows(targets)["features"])
        sampled = len(targets) < len(shards)
        prepared = CoverageTargets(kernel, targets, kernel.prepare(features), sampled)
        embedded = kernel.prepare(features, exact=True)
        covered = cover_labelled(prepared, embedded, labelled)
        if kernel.narrows:
            kernel = kernel.narrow(covered)
            covered, prepared = covered**kernel.power, replace(prepared, kernel=kernel)
        return cls(prepared, embedded, covered)

    def pick(self, shards: Shards, weights: Floats, budget: int) -> None:
        """Pick until there are ``budget`` picks or no candidate has a gain.

        Args:
            shards: the candidates.
            weights: ``(T,)`` of the targets.
            budget: number of picks, with those made before.
        """
        count = max(len(self.covered), 1)
        weights = weights / count
        store = is_stored(len(shards), count, budget)
        blocks = len(shards.map(_start_block, self.targets, weights, store))
        local = isinstance(shards, LocalShards)
        most = int(np.clip(WINDOW_BYTES // (2 * count), FEWEST, MOST))
        width, picked = FEWEST, np.array(self.ids, dtype=np.int64)
        ids, bounds = np.empty(0, dtype=np.int64), np.empty(0)
        while len(self.ids) < budget:
            share = max(-(-width // blocks), FEWEST_PER_BLOCK)
            message = PassMessage(self.covered.copy(), picked, ids, bounds, share, local)
            proposals = shards.map(_propose_candidates, message)
            self.passes += 1
            self.compared += sum(one.compared for one in proposals)
            window = self._open_window(proposals, width)
            before = len(self.ids)
            self._pick_in_window(window, weights, budget)
            shards.progress("coverage", len(self.ids), budget)
            picked = np.array(self.ids[before:], dtype=np.int64)
            if max(window.outside, window.bounds.max(initial=0.0)) <= NO_GAIN * (1 + TIE):
                return
            # Blocks learn the bounds that the window brought up to date.
            left = window.bounds > -np.inf
            ids, bounds = window.ids[left], window.bounds[left]
            wanted = max(PER_PICK * len(picked), FEWEST) if len(picked) else 2 * width
            width = min(wanted, most)

    def _open_window(self, proposals: list[CoverageProposal], width: int) -> CoverageWindow:
        """Join the proposals of all blocks, at most the ``width`` best ones."""
        ids, bounds = (np.concatenate([one[part] for one in proposals]) for part in (0, 2))
        features = np.concatenate([one.features for one in proposals])
        outside = max(one.outside for one in proposals)
        untied = max(one.untied for one in proposals)
        kept = None
        if len(ids) > width:
            tied = max(one.tied for one in proposals)
            kept, dropped = choose_highest(bounds, width, ids, tied)
            outside, untied = max(outside, dropped[0]), max(untied, dropped[1])
            ids, bounds, features = ids[kept], bounds[kept], features[kept]
        embedded = self.targets.kernel.embed(features)
        if proposals[0].levels is None:
            levels = self.targets.compare(self.targets.kernel.prepare(features), ids)
        else:
            levels = np.concatenate([one.levels for one in proposals], axis=1)
            levels = levels if kept is None else levels[:, kept]
        own = np.full(len(ids), -1, dtype=np.intp)
        targets, candidates = self.targets.find_own(ids)
        own[candidates] = targets
        exact = np.zeros(len(ids), dtype=bool)
        return CoverageWindow(ids, embedded, levels, bounds, exact, own, outside, untied)

    def _pick_in_window(
        self,
        window: CoverageWindow,
        weights: Floats,
        budget: int,
    ) -> None:
        """Pick until a candidate outside of the window could be better."""
        outside = window.untied
        while len(self.ids) < budget:
            best = self._find_best(window, weights, max(outside, NO_GAIN))
            if best is None:
                return
            self.ids.append(int(window.ids[best]))
            self.gains.append(float(window.bounds[best]))
            self._cover(window, weights, best)
            outside = window.outside

    def _find_best(self, window: CoverageWindow, weights: Floats, above: float) -> int | None:
        """Position of the candidate of the largest gain, if that is certain and above a number."""
        while True:
            exact = np.flatnonzero(window.exact & (window.bounds > -np.inf))
            # The best of the gains that are known exactly; the smaller id wins a tie.
            best: int | None = None
            if len(exact):
                gains = comparable(window.bounds[exact])
                best = int(exact[np.lexsort((window.ids[exact], -gains))[0]])
            bar = above if best is None else max(above, float(window.bounds[best]))
            open_ones = np.flatnonzero(~window.exact & (window.bounds >= bar * (1 - TIE)))
            if not len(open_ones):
                certain = best is not None and window.bounds[best] > above * (1 + TIE)
                return best if certain else None
            # The highest bounds first: an exact gain may rule out all others.
            order = np.argsort(-window.bounds[open_ones], kind="stable")
            self._evaluate(window, weights, open_ones[order[: 1 if best is None else AT_ONCE]])

    def _evaluate(self, window: CoverageWindow, weights: Floats, some: NDArray[np.intp]) -> None:
        """Compute gains in float64, over the targets that the candidates may improve."""
        rows, values = self._compare_exactly(window, some)
        for place, candidate in enumerate(some.tolist()):
            own = window.own[candidate]
            if own >= 0:
                values[rows == own, place] = 0.0 if self.targets.sampled else 1.0
        gains = np.maximum(values - self.covered[rows, None], 0) * weights[rows, None]
        window.bounds[some] = gains.sum(axis=0)
        window.exact[some] = True

    def _compare_exactly(
        self, window: CoverageWindow, some: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], Floats]:
        """Targets that some candidates may improve, and exact similarities with them."""
        kernel = self.targets.kernel
        low = np.maximum(np.floor((self.covered - kernel.rounding) * LEVELS) - kernel.step, 0)
        rows = np.flatnonzero(
            (window.levels[:, some] >= low[:, None].astype(np.uint16)).any(axis=1)
        )
        own = window.own[some]
        rows = np.union1d(rows, own[own >= 0])
        targets = self.embedded if len(rows) == len(low) else self.embedded[rows]
        return rows, kernel.compare_exactly(targets, window.embedded[some])

    def _cover(self, window: CoverageWindow, weights: Floats, best: int) -> None:
        """Count a pick: targets are covered better, and gains in the window fall."""
        rows, values = self._compare_exactly(window, np.array([best]))
        if window.own[best] >= 0:
            values[rows == window.own[best]] = 1.0  # also for a row without a direction
        before = self.covered[rows]
        now = np.maximum(before, values[:, 0])
        changed = now > before
        rows, before, now = rows[changed], before[changed], now[changed]
        self.covered[rows] = now
        kernel = self.targets.kernel
        window.bounds -= sum_losses(window.levels, before, now, weights[rows], kernel, rows)
        window.bounds[best] = -np.inf
        window.exact[:] = False


def cover_labelled(targets: CoverageTargets, embedded: Floats, labelled: Rows | None) -> Floats:
    """Similarity of every target to the most similar labelled item, ``(T,)`` float64."""
    covered = np.zeros(len(targets.ids))
    if labelled is None:
        return covered
    kernel, known = targets.kernel, to_numpy(labelled["features"])
    prepared, exact = kernel.prepare(known), kernel.embed(known)
    for span in split_range(len(covered), max(CHUNK // max(len(known), 1), 256)):
        values = kernel.compare(prepared, targets.prepared[span])  # (m, t)
        highest = values.max(axis=0)
        if not kernel.rounding:
            covered[span] = highest
            continue
        # What could be the largest is computed exactly; a similarity of 0 covers nothing.
        close = (values >= highest - 2 * kernel.rounding) & (values > -kernel.rounding)
        items, places = np.nonzero(close)
        for part in split_range(len(items), 1 << 12):
            pairs = kernel.compare_pairs(exact[items[part]], embedded[span][places[part]])
            np.maximum.at(covered[span], places[part], pairs)
    return covered


def cover_greedily(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    kernel: SimilarityKernel,
    weigh: Callable[[Rows], Floats] | None = None,
    *,
    resident: bool | None = None,
) -> Choice:
    """Pick ``budget`` candidates that cover the pool.

    When no gain is left, targets count equally; when there is still none, the smallest ids follow.

    Args:
        shards: the candidates, with ``features``.
        labelled: labelled rows, which cover targets from the start.
        budget: number of picks.
        kernel: compares rows.
        weigh: from rows of targets to their weights ``(T,)``, not negative; None for ones.
        resident: whether all similarities stay where the rows are; by default on a GPU, if they
            fit into `RESIDENT_BYTES`.
    """
    columns = shards.rows(shards.ids[:1])["features"].shape[1]
    count = count_targets(len(shards), columns, budget)
    # The targets follow from their ids alone, so every split of the pool has the same ones.
    ids = choose_by_hash(shards.ids, count)
    rows = shards.rows(ids)
    if resident is None:
        on_device = str(device(rows["features"])) != "cpu"
        resident = on_device and 8 * count * len(shards) <= RESIDENT_BYTES
    start = ResidentCoverage.start if resident else CoverageDriver.start
    driver = start(shards, labelled, ids, kernel)
    weights = np.ones(count) if weigh is None else np.asarray(weigh(rows), dtype=np.float64)
    driver.pick(shards, weights, budget)
    # Targets of weight 0 are covered only when nothing else is left.
    weighted = len(driver.ids)
    if weighted < budget and not (weights == 1).all():
        driver.pick(shards, np.ones(count), budget)
    info: dict[str, Any] = {
        "candidates": len(shards),
        "targets": count,
        "covered": float(driver.covered.mean()) if count else 0.0,
        "passes": driver.passes,
        "products": round(driver.compared / max(count * len(shards), 1), 3),
    }
    if kernel.narrows:
        info["power"] = driver.kernel.power
    if weigh is not None:
        info["mean_weight"] = float(weights.mean()) if count else 0.0
    covering = len(driver.ids)
    if weighted < covering:
        info["unweighted"] = f"picks from number {weighted + 1} on cover items of weight 0, too"
    # Without any gain, the smallest ids fill the batch.
    ids = np.array(driver.ids, dtype=np.int64)
    if covering < budget:
        info["without_gain"] = f"nothing was left to cover for the last {budget - covering} picks"
        ids = np.concatenate([ids, np.setdiff1d(shards.ids, ids)[: budget - covering]])
    gains = np.concatenate([driver.gains, np.zeros(len(ids) - covering)])
    return Choice(ids, scores=gains, info=info)


def estimate_coverage_cost(job: Job) -> Cost:
    """The mean, the product with the targets, and passes for candidates that could still win."""
    targets = count_targets(job.items, job.width(), job.budget)
    stored = 2.0 * targets * is_stored(job.items, targets, job.budget)
    return Cost(
        passes=(2, job.budget + 2),
        usual=min(job.budget, 4 + job.budget // 16) + 2,
        columns=targets * (1.0 if stored else 2.5),
        item_bytes=72.0 + stored,
        held_bytes=targets * (12.0 * job.width() + 8.0 * job.budget) + 2.0 * WINDOW_BYTES,
        holds="its similarities with all targets" if stored else "",
    )


def is_stored(items: int, targets: int, budget: int) -> bool:
    """Whether the similarities of all candidates with all targets are kept, by the CPU's rule."""
    return budget >= STORED_BUDGET and 2 * items * targets <= STORED_BYTES


def explain_coverage(facts: PickFacts) -> str:
    """Say how many items a pick represents that nothing labelled or picked before resembles."""
    count = (facts.score or 0.0) * facts.info.get("candidates", 0)
    if count < 1.5:
        return "Of all items left, it adds most to what the labelled items represent."
    unsure = "uncertain " if facts.info.get("mean_weight", 1.0) < 0.999 else ""
    items = f"about {count:,.0f} {unsure}unlabelled items"
    return f"It represents {items} that no labelled item resembles."
