"""Exact blocks of greedy picks: what a block of rows remembers, and what it proposes.

For strategies whose scores only fall, an old score is an upper bound. `sampled_bounds` finds from a
few rows how far scores have fallen, and so a bar that as many rows reach as are wanted. `propose`
brings up to date only the rows of a block whose bounds reach it, each until it falls below: most do
so long before they have counted all picks. From what all blocks propose, picks are settled
(`labelwise.kernels.loop.greedy_window`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array, Floats, Ids, float64, namespace, put, take, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.loop.index import places
from labelwise.pool.blocks import Shard
from labelwise.pool.rows import GrowingRows, Rows, beside, each, on_host, take_rows
from labelwise.strategy import GreedyStrategy
from labelwise.threads import side_by_side, spans

KEY = "greedy"
PIECE, STEP = 1 << 14, 128
"""How many rows are brought up to date at a time, and how many picks they count first. Those that
are above the bar then count twice as many, and so on."""
READ, FETCH = 32, 128
"""To read a row among all others, or by itself, takes as long as to count so many picks in it."""
CONTENDERS = 256
"""How many tied rows of a block are proposed when it proposes its best."""


@dataclass
class Part:
    """What a block remembers; all arrays have one entry per row of the block.

    ``bounds`` are upper bounds of the present scores; row ``i`` has counted the first ``seen[i]``
    picks, and every row has counted the first ``base``. ``picked`` are the picks' rows; they and
    ``taken``, which marks them, are where the block's rows are.
    """

    state: Any
    bounds: Floats
    taken: Array
    seen: NDArray[np.int32]
    base: int = 0
    picked: GrowingRows = field(default_factory=GrowingRows)

    def hear(self, new: Rows, new_ids: Ids, ids: Ids) -> None:
        """Remember new picks and take those that live here out of the race."""
        if not len(new_ids):
            return
        self.picked.append(beside(new, self.taken))
        here = places(ids, new_ids)
        put(self.taken, here, True)
        self.bounds[here] = -np.inf

    def stale(self, positions: Any) -> Any:
        """Those of the rows at ``positions`` that are in the race and have not seen all picks."""
        waits = (self.seen[positions] < len(self.picked)) & (self.bounds[positions] > -np.inf)
        return positions[waits]


@dataclass
class Proposal:
    """Rows of one block that may be picked next, and a bound for all its other rows.

    ``freshened`` says how many of them had to be brought up to date.
    """

    ids: Ids
    rows: dict[str, Any]
    state: Any
    scores: Floats
    slack: Floats
    outside: float = -np.inf
    freshened: int = 0


def take_state(state: Any, positions: Any) -> Any:
    """The state of the rows at some positions."""
    return type(state)(*(take(field, positions) for field in state))


def _host_state(state: Any) -> Any:
    """A pick from a few rows is a hundred small steps: on a GPU each would be a launch."""
    return type(state)(*(to_numpy(part) for part in state))


def put_state(state: Any, positions: Any, new: Any) -> None:
    """Overwrite the state of the rows at some positions, in place."""
    for whole, part in zip(state, new, strict=True):
        put(whole, positions, part)


def checked_scores(
    strategy: GreedyStrategy, state: Any, plan: Any, ids: Callable[[], Ids]
) -> tuple[Floats, Floats]:
    """Scores and how far each may be off, on the host; NaN and infinity are refused.

    ``ids()`` are the items'; they are listed only to name a wrong one.
    """
    scores, slack = map(to_numpy, _measured(strategy, state, plan))
    if not scores.max(initial=-np.inf) < np.inf:  # NaN, too
        wrong = ~(scores < np.inf)
        value = "NaN" if np.isnan(scores[wrong][0]) else "infinite"
        raise BadInput(
            f"strategy {strategy.name!r} scored item {ids()[wrong][0]} as {value}; check its rows"
        )
    return scores, slack


def _bounds(strategy: GreedyStrategy, state: Any, plan: Any, ids: Callable[[], Ids]) -> Floats:
    """What the scores are at most."""
    return np.add(*checked_scores(strategy, state, plan, ids))


def _measured(strategy: GreedyStrategy, state: Any, plan: Any) -> tuple[Array, Array]:
    """Scores and how far each may be off in float64, where the rows are."""
    scores = float64(strategy.score(state, plan))
    if strategy.slack is not None:
        return scores, float64(strategy.slack(state))
    return scores, 1e-9 * namespace(scores).abs(scores)


def start(shard: Shard, strategy: GreedyStrategy, labelled: Rows | None, plan: Any) -> None:
    """Measure a block's rows for the first time."""
    state = strategy.start(shard.rows, labelled, plan)
    if strategy.bounded:  # its arrays are written to later, and may be views of the rows
        state = type(state)(*(namespace(part).asarray(part, copy=True) for part in state))
    bounds = _bounds(strategy, state, plan, lambda: shard.ids)
    measured = strategy.score(state, plan)
    taken = namespace(measured).zeros_like(measured, dtype=namespace(measured).bool)
    shard.state[KEY] = Part(state, bounds, taken, np.zeros(len(shard), dtype=np.int32))


def propose_best(
    shard: Shard, strategy: GreedyStrategy, plan: Any, new: Rows, new_ids: Ids
) -> Proposal:
    """Count the new picks in every row; propose the rows that tie for the best score."""
    part: Part = shard.state[KEY]
    part.hear(new, new_ids, shard.ids)
    (_refresh if strategy.bounded else count_all)(part, shard, strategy, plan)
    scores, slack = _measured(strategy, part.state, plan)
    xp = namespace(scores)
    lowest = xp.full_like(scores, -xp.inf)
    bar = float(xp.max(xp.where(part.taken, lowest, scores - slack))) if len(shard) else 0.0
    if not bar < np.inf:  # NaN, too
        checked_scores(strategy, part.state, plan, lambda: shard.ids)
    # Everything up to here, and the comparison, is done where the rows are: only ties travel.
    ties = to_numpy(xp.nonzero((scores + slack >= bar) & ~part.taken)[0])
    if len(ties) > CONTENDERS:
        ties = ties[np.argpartition(shard.ids[ties], CONTENDERS)[:CONTENDERS]]
    found = to_numpy(xp.stack([take(scores, ties), take(slack, ties)]))
    return Proposal(shard.ids[ties], {}, None, found[0], found[1])


def count_all(part: Part, shard: Shard, strategy: GreedyStrategy, plan: Any) -> bool:
    """Count the picks that are not yet counted in every row; whether there were any."""
    if part.base == len(part.picked):
        return False
    part.state = strategy.add(part.state, shard.rows, part.picked.since(part.base), plan)
    part.seen[:] = part.base = len(part.picked)
    return True


def _refresh(part: Part, shard: Shard, strategy: GreedyStrategy, plan: Any) -> None:
    """Count all picks in every row of the block, and bring the bounds up to date."""
    if count_all(part, shard, strategy, plan):
        part.bounds = _bounds(strategy, part.state, plan, lambda: shard.ids)
        part.bounds[to_numpy(part.taken)] = -np.inf


def catch_up(shard: Shard, strategy: GreedyStrategy, plan: Any, new: Rows, new_ids: Ids) -> None:
    """Count the new picks in every row."""
    part: Part = shard.state[KEY]
    part.hear(new, new_ids, shard.ids)
    _refresh(part, shard, strategy, plan)


def _freshen(
    part: Part, shard: Shard, strategy: GreedyStrategy, plan: Any, stale: Any, bar: float
) -> None:
    """Count the picks that the ``stale`` rows have not seen, in those rows alone.

    A row that falls below the bar is left there; it will count the other picks if it has to.
    """
    pieces = [stale[span] for span in spans(len(stale), PIECE) if len(stale)]
    rows = side_by_side(lambda some: take_rows(shard.rows, some), pieces)
    for some, theirs in zip(pieces, rows, strict=True):
        first, count = int(part.seen[some].min()), STEP
        while len(some) and first < len(part.picked):
            new = _some_picks(part.picked, first, count)
            state = strategy.add(take_state(part.state, some), theirs, new, plan)
            put_state(part.state, some, state)
            bounds = _bounds(strategy, state, plan, partial(shard.ids_at, some))
            part.bounds[some] = bounds
            first, count = min(first + count, len(part.picked)), 2 * count
            part.seen[some] = np.maximum(part.seen[some], first)
            above = np.flatnonzero(bounds >= bar)
            some, theirs = some[above], take_rows(theirs, above)


def _some_picks(picked: GrowingRows, first: int, count: int) -> dict[str, Any]:
    """At most ``count`` picks, from number ``first`` on."""
    rows = picked.since(first)
    return {name: each(value, lambda array: array[:count]) for name, value in rows.items()}


def sampled_bounds(
    shard: Shard, strategy: GreedyStrategy, plan: Any, new: Rows, new_ids: Ids, stride: int
) -> Floats:
    """Hear of new picks; the bounds of every ``stride``-th row once it has counted them."""
    part: Part = shard.state[KEY]
    part.hear(new, new_ids, shard.ids)
    some = np.arange(0, len(shard), stride)
    _freshen(part, shard, strategy, plan, part.stale(some), -np.inf)
    return part.bounds[some]


def bar_for(bounds: Floats, share: float, least: float = -np.inf) -> float:
    """A bound that this share of the rows reach, about, from the bounds of some of them.

    It is not below ``least``, unless no row would reach it. Which rows are picked does not depend
    on it, only how soon. Rows that are picked reach no bar.
    """
    bar = np.finfo(np.float64).min
    if share < 1:
        place = len(bounds) - max(round(share * len(bounds)), 1)
        bar = max(bar, np.partition(bounds, place)[place])
    return float(max(bar, min(least, bounds.max())))


def propose(shard: Shard, strategy: GreedyStrategy, plan: Any, bar: float) -> Proposal:
    """All rows whose bounds reach the bar once they are up to date."""
    part: Part = shard.state[KEY]
    stale = part.stale(np.flatnonzero(part.bounds >= bar))
    new = len(part.picked) - part.base
    if len(stale) * (FETCH + min(new, STEP)) > len(shard) * (READ + new):
        _refresh(part, shard, strategy, plan)
    else:
        _freshen(part, shard, strategy, plan, stale, bar)
    top = np.flatnonzero(part.bounds >= bar)  # most of the stale ones have fallen below it
    others = part.bounds.copy()
    others[top] = -np.inf
    ids, state = shard.ids_at(top), take_state(part.state, top)
    return Proposal(
        ids,
        on_host(take_rows(shard.rows, top)),
        _host_state(state),
        *checked_scores(strategy, state, plan, lambda: ids),
        float(others.max(initial=-np.inf)),
        len(stale),
    )
