"""State and proposals of a block of rows while a greedy strategy picks.

For strategies whose scores only fall, an old score is an upper bound. `sample_score_bounds`
estimates from a few rows how far scores have fallen, which gives a threshold that the wanted number
of rows reach. `propose_rows` updates only the rows whose bounds reach it, and each only
until it falls below: most do so long before they have counted all picks. `CandidateWindow` joins
the proposals of all blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array, Floats, Ids, float64, namespace, put, take, to_numpy
from labelwise.errors import BadInput
from labelwise.pool.blocks import Shard
from labelwise.pool.ids import find_member_positions
from labelwise.pool.rows import (
    ArrayDict,
    GrowingRows,
    Rows,
    copy_to_host,
    join_rows,
    map_models,
    move_rows,
    take_rows,
)
from labelwise.strategy import BlockState, GreedyStrategy, Plan
from labelwise.threads import run_in_threads, split_range

KEY = "greedy"
ROWS_AT_ONCE, FIRST_PICKS = 1 << 14, 128
"""Rows updated at a time, and picks they count first; rows that stay above the threshold count
twice as many next, and so on."""
READ_COST, FETCH_COST = 32, 128
"""Reading a row in a pass, or on its own, costs as much as counting this many picks in it."""
MOST_TIES = 256  # Tied rows that a block proposes at most
HOT_ROWS, HOT_SHARE = 256, 32  # Proposals that count every pick at once: at least 256, or one in 32


@dataclass
class BlockScores:
    """The state of a block; all arrays have one entry per row of the block."""

    state: BlockState
    bounds: Floats
    taken: Array  # marks picked rows, on the device of the rows
    seen: NDArray[np.int32]  # row ``i`` has counted the first ``seen[i]`` picks
    base: int = 0  # every row has counted at least this many
    # Rows of the picks, on the device of the rows
    picked: GrowingRows = field(default_factory=GrowingRows)

    def add_picks(self, new: Rows, new_ids: Ids, ids: Ids) -> None:
        """Remember new picks, and mark those that are rows of this block."""
        if not len(new_ids):
            return
        self.picked.append(move_rows(new, self.taken))
        here = find_member_positions(ids, new_ids)
        put(self.taken, here, True)
        self.bounds[here] = -np.inf

    def find_stale(self, positions: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those rows at ``positions`` that can be picked and have not counted all picks."""
        stale = (self.seen[positions] < len(self.picked)) & (self.bounds[positions] > -np.inf)
        return np.asarray(positions[stale])


@dataclass
class Proposal:
    """Rows of one block that may be picked next."""

    ids: Ids
    rows: ArrayDict
    state: BlockState  # of the strategy for these rows
    scores: Floats
    slack: Floats  # ``(n,)``, how far rounding may have moved each score
    outside: float = -np.inf  # upper bound on the scores of all other rows of the block
    updated: int = 0  # number of rows that had to be updated for the proposal


def take_block_state(state: BlockState, positions: NDArray[np.intp]) -> BlockState:
    """The state of the rows at some positions."""
    return type(state)(*(take(part, positions) for part in state))


def put_block_state(state: BlockState, positions: NDArray[np.intp], new: BlockState) -> None:
    """Overwrite the state of the rows at some positions, in place."""
    for whole, part in zip(state, new, strict=True):
        put(whole, positions, part)


def score_rows(
    strategy: GreedyStrategy, state: BlockState, plan: Plan, ids: Callable[[], Ids]
) -> tuple[Floats, Floats]:
    """Scores and their slack on the host; ``ids()`` names an item whose score is not finite."""
    scores, slack = map(to_numpy, _score_on_device(strategy, state, plan))
    if not scores.max(initial=-np.inf) < np.inf:  # true for NaN, too
        wrong = ~(scores < np.inf)
        value = "NaN" if np.isnan(scores[wrong][0]) else "infinite"
        raise BadInput(
            f"strategy {strategy.name!r} scored item {ids()[wrong][0]} as {value}; check its rows"
        )
    return scores, slack


def _score_on_device(
    strategy: GreedyStrategy, state: BlockState, plan: Plan
) -> tuple[Array, Array]:
    """Scores and their slack in float64, on the device of the rows."""
    scores = float64(strategy.score(state, plan))
    if strategy.slack is not None:
        return scores, float64(strategy.slack(state))
    return scores, 1e-9 * namespace(scores).abs(scores)


def _bound_scores(
    strategy: GreedyStrategy, state: BlockState, plan: Plan, ids: Callable[[], Ids]
) -> Floats:
    """Upper bounds of the scores."""
    return np.add(*score_rows(strategy, state, plan, ids))


def start_scores(shard: Shard, strategy: GreedyStrategy, labelled: Rows | None, plan: Plan) -> None:
    """Score a block's rows for the first time."""
    state = strategy.start(shard.rows, labelled, plan)
    if strategy.bounded:  # its arrays are overwritten later, and may be views of the rows
        state = type(state)(*(namespace(part).asarray(part, copy=True) for part in state))
    bounds = _bound_scores(strategy, state, plan, lambda: shard.ids)
    scores = strategy.score(state, plan)
    taken = namespace(scores).zeros_like(scores, dtype=namespace(scores).bool)
    shard.state[KEY] = BlockScores(state, bounds, taken, np.zeros(len(shard), dtype=np.int32))


def count_picks(block: BlockScores, shard: Shard, strategy: GreedyStrategy, plan: Plan) -> bool:
    """Count new picks in every row; whether there were any."""
    if block.base == len(block.picked):
        return False
    block.state = strategy.add(block.state, shard.rows, block.picked.since(block.base), plan)
    block.seen[:] = block.base = len(block.picked)
    return True


def _refresh_scores(block: BlockScores, shard: Shard, strategy: GreedyStrategy, plan: Plan) -> None:
    """Count all picks in every row, and update the bounds."""
    if count_picks(block, shard, strategy, plan):
        block.bounds = _bound_scores(strategy, block.state, plan, lambda: shard.ids)
        block.bounds[to_numpy(block.taken)] = -np.inf


def update_block_scores(
    shard: Shard, strategy: GreedyStrategy, plan: Plan, new: Rows, new_ids: Ids
) -> None:
    """Count the new picks in every row."""
    block: BlockScores = shard.state[KEY]
    block.add_picks(new, new_ids, shard.ids)
    _refresh_scores(block, shard, strategy, plan)


def propose_best_ties(
    shard: Shard, strategy: GreedyStrategy, plan: Plan, new: Rows, new_ids: Ids
) -> Proposal:
    """Count the new picks in every row; propose the rows that tie for the best score."""
    block: BlockScores = shard.state[KEY]
    block.add_picks(new, new_ids, shard.ids)
    (_refresh_scores if strategy.bounded else count_picks)(block, shard, strategy, plan)
    scores, slack = _score_on_device(strategy, block.state, plan)
    xp = namespace(scores)
    lowest = xp.full_like(scores, -xp.inf)
    best = float(xp.max(xp.where(block.taken, lowest, scores - slack))) if len(shard) else 0.0
    if not best < np.inf:  # true for NaN, too
        score_rows(strategy, block.state, plan, lambda: shard.ids)
    # The comparison is made on the device of the rows; only ties are brought to the host.
    ties = to_numpy(xp.nonzero((scores + slack >= best) & ~block.taken)[0])
    if len(ties) > MOST_TIES:
        ties = ties[np.argpartition(shard.ids[ties], MOST_TIES)[:MOST_TIES]]
    found = to_numpy(xp.stack([take(scores, ties), take(slack, ties)]))
    return Proposal(shard.ids[ties], {}, None, found[0], found[1])


def _update_stale_rows(
    block: BlockScores,
    shard: Shard,
    strategy: GreedyStrategy,
    plan: Plan,
    stale: NDArray[np.intp],
    threshold: float,
) -> None:
    """Count missing picks in the ``stale`` rows alone, each until it falls below the threshold."""
    pieces = [stale[span] for span in split_range(len(stale), ROWS_AT_ONCE) if len(stale)]
    rows = run_in_threads(lambda some: take_rows(shard.rows, some), pieces)
    for some, theirs in zip(pieces, rows, strict=True):
        first, count = int(block.seen[some].min()), FIRST_PICKS
        while len(some) and first < len(block.picked):
            new = _slice_picks(block.picked, first, count)
            state = strategy.add(take_block_state(block.state, some), theirs, new, plan)
            put_block_state(block.state, some, state)
            bounds = _bound_scores(strategy, state, plan, partial(shard.ids_at, some))
            block.bounds[some] = bounds
            first, count = min(first + count, len(block.picked)), 2 * count
            block.seen[some] = np.maximum(block.seen[some], first)
            above = np.flatnonzero(bounds >= threshold)
            some, theirs = some[above], take_rows(theirs, above)


def _slice_picks(picked: GrowingRows, first: int, count: int) -> ArrayDict:
    """At most ``count`` picks, from number ``first`` on."""
    rows = picked.since(first)
    return {name: map_models(value, lambda array: array[:count]) for name, value in rows.items()}


def sample_score_bounds(
    shard: Shard, strategy: GreedyStrategy, plan: Plan, new: Rows, new_ids: Ids, stride: int
) -> Floats:
    """Remember new picks; the bounds of every ``stride``-th row after it has counted them."""
    block: BlockScores = shard.state[KEY]
    block.add_picks(new, new_ids, shard.ids)
    some = np.arange(0, len(shard), stride)
    _update_stale_rows(block, shard, strategy, plan, block.find_stale(some), -np.inf)
    return block.bounds[some]


def choose_score_threshold(bounds: Floats, share: float, least: float = -np.inf) -> float:
    """A threshold that about this share of the rows reach, from the bounds of a sample.

    It is at least ``least``, unless no row would reach that. It decides only how soon rows are
    picked, not which. Picked rows never reach it.
    """
    threshold = np.finfo(np.float64).min
    if share < 1:
        place = len(bounds) - max(round(share * len(bounds)), 1)
        threshold = max(threshold, np.partition(bounds, place)[place])
    return float(max(threshold, min(least, bounds.max())))


def propose_rows(shard: Shard, strategy: GreedyStrategy, plan: Plan, threshold: float) -> Proposal:
    """Propose all rows whose updated bounds reach the threshold."""
    block: BlockScores = shard.state[KEY]
    stale = block.find_stale(np.flatnonzero(block.bounds >= threshold))
    new = len(block.picked) - block.base
    # A pass over all rows is cheaper than fetching many of them one by one.
    if len(stale) * (FETCH_COST + min(new, FIRST_PICKS)) > len(shard) * (READ_COST + new):
        _refresh_scores(block, shard, strategy, plan)
    else:
        _update_stale_rows(block, shard, strategy, plan, stale, threshold)
    top = np.flatnonzero(block.bounds >= threshold)
    others = block.bounds.copy()
    others[top] = -np.inf
    ids, state = shard.ids_at(top), take_block_state(block.state, top)
    scores, slack = score_rows(strategy, state, plan, lambda: ids)
    # Picks from a few rows take a hundred small steps, each of which would be a launch on a GPU.
    state = type(state)(*(to_numpy(part) for part in state))
    outside = float(others.max(initial=-np.inf))
    rows = copy_to_host(take_rows(shard.rows, top))
    return Proposal(ids, rows, state, scores, slack, outside, len(stale))


class CandidateWindow:
    """The proposals of all blocks, from which picks are made on the host.

    Hot rows, those with the highest bounds, count every pick at once. ``_cold`` bounds the others,
    of which row ``i`` has counted the first ``_seen[i]`` picks.
    """

    def __init__(self, parts: list[Proposal], strategy: GreedyStrategy, plan: Plan) -> None:
        """Join the proposals."""
        self._outside = max(part.outside for part in parts)
        parts = [part for part in parts if len(part.ids)] or parts[:1]
        self.ids = np.concatenate([part.ids for part in parts])
        self.rows = join_rows([part.rows for part in parts])
        states = [part.state._asdict() for part in parts]
        self._state = type(parts[0].state)(**join_rows(states))
        slack = np.concatenate([part.slack for part in parts])
        self._upper = np.concatenate([part.scores for part in parts]) + slack
        self._seen = np.zeros(len(self.ids), dtype=np.int64)
        self._picked = GrowingRows()
        self._strategy, self._size = strategy, max(HOT_ROWS, len(self.ids) // HOT_SHARE)
        self._hot_state: BlockState = None
        self._choose_hot_rows(plan)

    def find_contenders(self, plan: Plan) -> tuple[NDArray[np.intp], Floats] | None:
        """The rows that may be best, and their scores; None if a row outside may be better."""
        while True:
            best = (self._scores - self._slack).max(initial=-np.inf)
            if best == self._cold == -np.inf:
                return None
            if best <= self._cold:
                self._store_hot_rows()
                if not self._choose_hot_rows(plan):  # more ties than hot rows
                    self._size *= 2
                    self._choose_hot_rows(plan)
            elif best <= self._outside:
                return None
            else:
                ties = np.flatnonzero(self._scores + self._slack >= best)
                return self._hot[ties], self._scores[ties]

    def remove_row(self, winner: int) -> ArrayDict:
        """Mark a row as picked; its representations are returned."""
        self._upper[winner] = -np.inf
        return take_rows(self.rows, np.array([winner]))

    def count_pick(self, row: Rows, plan: Plan) -> None:
        """Count a pick in all hot rows."""
        self._picked.append(row)
        self._hot_state = self._strategy.add(self._hot_state, self._hot_rows, row, plan)
        self._score_hot_rows(plan)

    def _score_hot_rows(self, plan: Plan) -> None:
        scores, self._slack = score_rows(
            self._strategy, self._hot_state, plan, lambda: self.ids[self._hot]
        )
        self._scores = np.where(self._upper[self._hot] == -np.inf, -np.inf, scores)

    def _choose_hot_rows(self, plan: Plan) -> bool:
        """Choose the rows with the highest bounds; whether any of them had to be updated."""
        self._hot, self._cold = np.arange(len(self.ids)), -np.inf
        if self._size < len(self.ids):
            order = np.argpartition(-self._upper, self._size)
            self._hot, self._cold = order[: self._size], float(self._upper[order[self._size]])
        self._hot = self._hot[self._upper[self._hot] > -np.inf]
        self._hot_rows = take_rows(self.rows, self._hot)
        self._hot_state = take_block_state(self._state, self._hot)
        first = int(self._seen[self._hot].min(initial=len(self._picked)))
        stale = first < len(self._picked)
        if stale:
            new = self._picked.since(first)
            self._hot_state = self._strategy.add(self._hot_state, self._hot_rows, new, plan)
        self._score_hot_rows(plan)
        return stale

    def _store_hot_rows(self) -> None:
        """Write the state and scores of the hot rows back among the others."""
        put_block_state(self._state, self._hot, self._hot_state)
        taken = self._upper[self._hot] == -np.inf
        self._upper[self._hot] = np.where(taken, -np.inf, self._scores + self._slack)
        self._seen[self._hot] = len(self._picked)
