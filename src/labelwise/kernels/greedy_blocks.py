"""Exact blocks of greedy picks: what a block of rows remembers, proposes, and how it is settled.

For strategies whose scores only fall, an old score is an upper bound. `sampled_bounds` finds from a
few rows how far scores have fallen, and so a bar that as many rows reach as are wanted. `propose`
brings up to date only the rows of a block whose bounds reach it, each until it falls below: most do
so long before they have counted all picks. `Window` settles picks from what all blocks propose, for
as long as the best row is certain to beat every row below the bar.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array, Floats, Ids, float64, namespace, put, take, to_numpy
from labelwise.blocks import GrowingRows, Rows, Shard, beside, each, join_rows, on_host, take_rows
from labelwise.errors import BadInput
from labelwise.strategy import GreedyStrategy
from labelwise.threads import side_by_side, spans

KEY = "greedy"
PIECE, STEP = 1 << 14, 128
"""How many rows are brought up to date at a time, and how many picks they count first. Those that
are above the bar then count twice as many, and so on."""
READ, FETCH = 32, 128
"""To read a row among all others, or by itself, takes as long as to count so many picks in it."""
HOT, IN = 256, 32
"""How many of the proposals count every pick at once: so many, or one in so many of all."""
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
        here = _places(ids, new_ids)
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


def _places(ids: Ids, wanted: Ids) -> Any:
    """Where a block has the wanted items, as far as it has them."""
    if len(wanted) == 1:
        return np.flatnonzero(ids == wanted[0])
    if len(ids):  # most are elsewhere, and a few are found much faster
        wanted = wanted[(wanted >= ids.min()) & (wanted <= ids.max())]
    return np.flatnonzero(np.isin(ids, wanted)) if len(wanted) else np.empty(0, dtype=np.intp)


def _take_state(state: Any, positions: Any) -> Any:
    return type(state)(*(take(field, positions) for field in state))


def _host_state(state: Any) -> Any:
    """A pick from a few rows is a hundred small steps: on a GPU each would be a launch."""
    return type(state)(*(to_numpy(part) for part in state))


def _put_state(state: Any, positions: Any, new: Any) -> None:
    for whole, part in zip(state, new, strict=True):
        put(whole, positions, part)


def _scores(
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
    return np.add(*_scores(strategy, state, plan, ids))


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
        _scores(strategy, part.state, plan, lambda: shard.ids)
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
            state = strategy.add(_take_state(part.state, some), theirs, new, plan)
            _put_state(part.state, some, state)
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
    ids, state = shard.ids_at(top), _take_state(part.state, top)
    return Proposal(
        ids,
        on_host(take_rows(shard.rows, top)),
        _host_state(state),
        *_scores(strategy, state, plan, lambda: ids),
        float(others.max(initial=-np.inf)),
        len(stale),
    )


class Window:
    """The proposals of all blocks, from which picks are made.

    The hot rows, those with the highest bounds, count every pick at once; ``cold`` bounds the
    others, of which row ``i`` has counted the first ``seen[i]`` picks.
    """

    def __init__(self, parts: list[Proposal], strategy: GreedyStrategy, plan: Any) -> None:
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
        self._strategy, self._size = strategy, max(HOT, len(self.ids) // IN)
        self._hot_state: Any = None
        self._heat(plan)

    def contenders(self, plan: Any) -> tuple[Any, Floats] | None:
        """The rows that may be best, and their scores; None if a row outside may be better."""
        while True:
            bar = (self._scores - self._slack).max(initial=-np.inf)
            if bar == self._cold == -np.inf:
                return None
            if bar <= self._cold:
                self._cool()
                if not self._heat(plan):  # more ties than hot rows: look at more
                    self._size *= 2
                    self._heat(plan)
            elif bar <= self._outside:
                return None
            else:
                ties = np.flatnonzero(self._scores + self._slack >= bar)
                return self._hot[ties], self._scores[ties]

    def pick(self, winner: int) -> dict[str, Any]:
        """Take a row out of the race; its representations are returned."""
        self._upper[winner] = -np.inf
        return take_rows(self.rows, np.array([winner]))

    def count(self, row: Rows, plan: Any) -> None:
        """Count a pick in all hot rows."""
        self._picked.append(row)
        self._hot_state = self._strategy.add(self._hot_state, self._hot_rows, row, plan)
        self._measure(plan)

    def _measure(self, plan: Any) -> None:
        scores, self._slack = _scores(
            self._strategy, self._hot_state, plan, lambda: self.ids[self._hot]
        )
        self._scores = np.where(self._upper[self._hot] == -np.inf, -np.inf, scores)

    def _heat(self, plan: Any) -> bool:
        """Choose the hot rows anew; whether any of them had to be brought up to date."""
        self._hot, self._cold = np.arange(len(self.ids)), -np.inf
        if self._size < len(self.ids):
            order = np.argpartition(-self._upper, self._size)
            self._hot, self._cold = order[: self._size], float(self._upper[order[self._size]])
        self._hot = self._hot[self._upper[self._hot] > -np.inf]
        self._hot_rows = take_rows(self.rows, self._hot)
        self._hot_state = _take_state(self._state, self._hot)
        first = int(self._seen[self._hot].min(initial=len(self._picked)))
        stale = first < len(self._picked)
        if stale:
            new = self._picked.since(first)
            self._hot_state = self._strategy.add(self._hot_state, self._hot_rows, new, plan)
        self._measure(plan)
        return stale

    def _cool(self) -> None:
        """Write what the hot rows have counted back among the others."""
        _put_state(self._state, self._hot, self._hot_state)
        taken = self._upper[self._hot] == -np.inf
        self._upper[self._hot] = np.where(taken, -np.inf, self._scores + self._slack)
        self._seen[self._hot] = len(self._picked)
