"""The loop behind every greedy strategy: one pick at a time, or exact blocks of picks.

*One at a time*: every block proposes its best item, the best of the proposals is picked, and
every block counts it. One pass over the rows per pick.

*In blocks*, for strategies whose scores only fall (`GreedyStrategy.bounded`): an old score is an
upper bound. Each block brings up to date only the rows with the highest bounds and proposes them;
the proposals are settled here, pick after pick, for as long as the best of them is certain to beat
every row that was not proposed. The picks are those of one at a time, ties included, while most
rows are never touched again.

Scores that the arithmetic cannot tell apart are ties, and the smaller id wins.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Floats, Ids, put, take, to_numpy
from labelwise.blocks import GrowingRows, Rows, Shard, Shards, join_rows, take_rows
from labelwise.errors import BadInput
from labelwise.strategy import Choice, GreedyStrategy

KEY = "greedy"
WIDTH = 1024
"""How many rows a block proposes at least."""
HOT = 256
"""How many of the proposals are looked at for a pick."""
FRESHEN = 32
"""How many of those are brought up to date at a time."""
CONTENDERS = 256
"""How many tied rows are looked at in a tie that a block of picks could not settle."""


def pick(
    strategy: GreedyStrategy, shards: Shards, labelled: Rows | None, budget: int, seed: int
) -> Choice:
    """Pick ``budget`` items greedily; ``0 < budget <= n``."""
    plan = strategy.begin(shards, labelled, budget, seed)
    shards.map(_start, strategy, labelled, plan)
    loop = _Loop(strategy, shards, labelled, plan, budget)
    if strategy.bounded:
        loop.pick_in_blocks()
    else:
        loop.pick_one_at_a_time()
    ids = np.array(loop.ids, dtype=np.int64)
    scores = np.array(loop.scores, dtype=np.float64)
    if strategy.finish is None:
        return Choice(ids, scores=scores)
    choice = strategy.finish(loop.plan, shards, ids)
    return choice if choice.scores is not None else choice._replace(scores=scores)


@dataclass
class _Part:
    """What a block remembers; all arrays have one entry per row of the block.

    ``bounds`` are upper bounds of the present scores; row ``i`` has counted the first ``seen[i]``
    picks, and every row has counted the first ``base``. ``picked`` are the picks' rows.
    """

    state: Any
    bounds: Floats
    slack: Floats
    taken: NDArray[np.bool_]
    seen: NDArray[np.int64]
    base: int = 0
    picked: GrowingRows = field(default_factory=GrowingRows)

    def hear(self, new: Rows, new_ids: Ids, ids: Ids) -> None:
        """Remember new picks and take those that live here out of the race."""
        if not len(new_ids):
            return
        self.picked.append(new)
        self.taken |= np.isin(ids, new_ids)
        self.bounds[self.taken] = -np.inf


@dataclass
class _Proposal:
    """Rows of one block that may be picked next, and a bound for all its other rows."""

    ids: Ids
    rows: dict[str, Any]
    state: Any
    scores: Floats
    slack: Floats
    outside: float


def _take_state(state: Any, positions: Any) -> Any:
    return type(state)(*(take(field, positions) for field in state))


def _put_state(state: Any, positions: Any, new: Any) -> None:
    for whole, part in zip(state, new, strict=True):
        put(whole, positions, part)


def _scores(strategy: GreedyStrategy, state: Any, plan: Any, ids: Ids) -> tuple[Floats, Floats]:
    """Scores and how far each may be off, on the host; NaN is refused."""
    scores = np.array(to_numpy(strategy.score(state, plan)), dtype=np.float64)
    wrong = np.isnan(scores)
    if wrong.any():
        raise BadInput(
            f"strategy {strategy.name!r} scored item {ids[wrong][0]} as NaN; check its rows"
        )
    if strategy.slack is not None:
        slack = np.array(to_numpy(strategy.slack(state)), dtype=np.float64)
    else:
        slack = np.abs(scores) * 1e-9
    return scores, slack


def _start(shard: Shard, strategy: GreedyStrategy, labelled: Rows | None, plan: Any) -> None:
    state = strategy.start(shard.rows, labelled, plan)
    scores, slack = _scores(strategy, state, plan, shard.ids)
    count = len(shard)
    shard.state[KEY] = _Part(
        state,
        scores + slack,
        slack,
        np.zeros(count, dtype=bool),
        np.zeros(count, dtype=np.int64),
    )


def _best(shard: Shard, strategy: GreedyStrategy, plan: Any, new: Rows, new_ids: Ids) -> _Proposal:
    """Count the new picks in every row; propose the rows that tie for the best score."""
    _catch_up(shard, strategy, plan, new, new_ids)
    part: _Part = shard.state[KEY]
    slack, upper = part.slack, part.bounds
    lower = (upper - 2 * slack).max(initial=-np.inf)
    ties = np.flatnonzero((upper >= lower) & ~part.taken)
    if len(ties) > CONTENDERS:
        ties = ties[np.argpartition(shard.ids[ties], CONTENDERS)[:CONTENDERS]]
    return _Proposal(
        shard.ids[ties],
        take_rows(shard.rows, ties) if strategy.exact is not None and len(ties) > 1 else {},
        None,
        upper[ties] - slack[ties],
        slack[ties],
        -np.inf,
    )


def _refresh(part: _Part, shard: Shard, strategy: GreedyStrategy, plan: Any) -> None:
    """Count all picks that are not yet counted everywhere in every row of the block."""
    if part.base == len(part.picked):
        return
    part.state = strategy.add(part.state, shard.rows, part.picked.since(part.base), plan)
    scores, part.slack = _scores(strategy, part.state, plan, shard.ids)
    part.bounds = scores + part.slack
    part.bounds[part.taken] = -np.inf
    part.seen[:] = len(part.picked)
    part.base = len(part.picked)


def _catch_up(shard: Shard, strategy: GreedyStrategy, plan: Any, new: Rows, new_ids: Ids) -> None:
    """Count the new picks in every row."""
    part: _Part = shard.state[KEY]
    part.hear(new, new_ids, shard.ids)
    _refresh(part, shard, strategy, plan)


def _freshen(
    part: _Part, shard: Shard, strategy: GreedyStrategy, plan: Any, positions: Any
) -> None:
    """Count the picks that the rows at ``positions`` have not seen, in those rows alone."""
    state = _take_state(part.state, positions)
    rows = take_rows(shard.rows, positions)
    first = int(part.seen[positions].min())
    state = strategy.add(state, rows, part.picked.since(first), plan)
    _put_state(part.state, positions, state)
    scores, slack = _scores(strategy, state, plan, shard.ids[positions])
    part.bounds[positions] = scores + slack
    part.slack[positions] = slack
    part.bounds[part.taken] = -np.inf
    part.seen[positions] = len(part.picked)


def _propose(
    shard: Shard, strategy: GreedyStrategy, plan: Any, new: Rows, new_ids: Ids, width: int
) -> _Proposal:
    """Bring the highest bounds up to date until the best row beats all bounds left out."""
    part: _Part = shard.state[KEY]
    part.hear(new, new_ids, shard.ids)
    while True:
        width = min(width, len(shard))
        top = np.argpartition(-part.bounds, width - 1)[:width] if width else np.arange(0)
        stale = top[(part.seen[top] < len(part.picked)) & ~part.taken[top]]
        if len(stale) * 4 > len(shard):
            _refresh(part, shard, strategy, plan)
        elif len(stale):
            _freshen(part, shard, strategy, plan, stale)
        rest = part.bounds.copy()
        rest[top] = -np.inf
        outside = float(rest.max(initial=-np.inf))
        best = (part.bounds[top] - 2 * part.slack[top]).max(initial=-np.inf)
        if best > outside or width == len(shard) or not len(stale):
            break
        width *= 2
    top = top[~part.taken[top]]
    slack = part.slack[top]
    return _Proposal(
        shard.ids[top],
        take_rows(shard.rows, top),
        _take_state(part.state, top),
        part.bounds[top] - slack,
        slack,
        outside,
    )


class _Loop:
    """The picks so far and what is needed to make the next."""

    def __init__(
        self,
        strategy: GreedyStrategy,
        shards: Shards,
        labelled: Rows | None,
        plan: Any,
        budget: int,
    ) -> None:
        self.strategy, self.shards, self.labelled = strategy, shards, labelled
        self.plan, self.budget = plan, budget
        self.ids: list[int] = []
        self.scores: list[float] = []
        self._told = 0
        self._picked = GrowingRows()

    def _count(self, item: int, score: float, row: dict[str, Any]) -> None:
        self.ids.append(item)
        self.scores.append(score)
        self._picked.append(row)
        self.plan = self.strategy.advance(self.plan, row)
        self.shards.progress(self.strategy.name, len(self.ids), self.budget)

    def _news(self) -> tuple[dict[str, Any], Ids]:
        """The picks that the blocks have not heard of yet."""
        rows, ids = self._picked.since(self._told), self.ids[self._told :]
        self._told = len(self.ids)
        return rows, np.array(ids, dtype=np.int64)

    def pick_one_at_a_time(self) -> None:
        while len(self.ids) < self.budget:
            self._pick_best()

    def _pick_best(self) -> None:
        parts = self.shards.map(_best, self.strategy, self.plan, *self._news())
        ids = np.concatenate([part.ids for part in parts])
        scores = np.concatenate([part.scores for part in parts])
        slack = np.concatenate([part.slack for part in parts])
        ties = np.flatnonzero(scores + slack >= (scores - slack).max())
        if len(ties) > CONTENDERS:
            ties = ties[np.argsort(ids[ties])[:CONTENDERS]]
        if self.strategy.exact is None or len(ties) == 1:
            winner = ties[np.argmin(ids[ties])]
            score = scores[winner]
        else:
            rows = self.shards.rows(ids[ties])
            winner, score = self._settle(ties, ids, rows)
        self._count(int(ids[winner]), float(score), self.shards.rows(ids[winner : winner + 1]))

    def _settle(self, ties: Any, ids: Ids, rows: Rows) -> tuple[int, float]:
        """Which of some near ties is best by the strategy's definition, in float64."""
        assert self.strategy.exact is not None
        picked = self._picked.since(0) if self.ids else None
        exact = self.strategy.exact(rows, self.labelled, picked, self.plan)
        equal = ties[exact >= exact.max() - 1e-12 * abs(exact.max())]
        winner = int(equal[np.argmin(ids[equal])])
        return winner, float(exact.max())

    def pick_in_blocks(self) -> None:
        # Scores are bounds only once there is something to fall from: count the first pick at once.
        self._pick_best()
        self.shards.map(_catch_up, self.strategy, self.plan, *self._news())
        width = WIDTH
        while len(self.ids) < self.budget:
            before = len(self.ids)
            parts = self.shards.map(_propose, self.strategy, self.plan, *self._news(), width)
            self._settle_block(_Window(parts))
            if len(self.ids) == before:
                self._pick_best()
            # A block of few picks wastes a round; a wide one is settled from more rows.
            width = min(2 * width, 32 * WIDTH) if len(self.ids) - before < 16 else width

    def _settle_block(self, window: "_Window") -> None:
        """Pick from the proposals while the best of them is certain to be the best of all."""
        while len(self.ids) < self.budget:
            contenders = window.contenders(self.strategy, self.plan)
            if contenders is None:
                return
            if len(contenders) == 1 or self.strategy.exact is None:
                winner = int(contenders[np.argmin(window.ids[contenders])])
                score = float(window.scores[winner])
            else:
                rows = take_rows(window.rows, contenders)
                winner, score = self._settle(contenders, window.ids, rows)
            self._count(int(window.ids[winner]), score, window.pick(winner))


class _Window:
    """The proposals of all blocks, kept up to date as picks are made from them.

    Only the `HOT` rows with the highest bounds are looked at for a pick; ``cold`` bounds the rest.
    """

    def __init__(self, parts: list[_Proposal]) -> None:
        parts = [part for part in parts if len(part.ids)] or parts[:1]
        self.ids = np.concatenate([part.ids for part in parts])
        self.rows = join_rows([part.rows for part in parts])
        states = [part.state._asdict() for part in parts]
        self.state = type(parts[0].state)(**join_rows(states))
        self.scores = np.concatenate([part.scores for part in parts])
        slack = np.concatenate([part.slack for part in parts])
        self.outside = max(part.outside for part in parts)
        self.upper, self.lower = self.scores + slack, self.scores - slack
        self.seen = np.zeros(len(self.ids), dtype=np.int64)
        self.picked = GrowingRows()
        self._heat()

    def _heat(self) -> None:
        """Choose the hot rows anew."""
        if len(self.ids) <= HOT:
            self.hot, self.cold = np.arange(len(self.ids)), -np.inf
            return
        order = np.argpartition(-self.upper, HOT)
        self.hot, self.cold = order[:HOT], float(self.upper[order[HOT]])

    def pick(self, winner: int) -> dict[str, Any]:
        """Take a row out of the race; its rows are returned."""
        row = take_rows(self.rows, np.array([winner]))
        self.picked.append(row)
        self.upper[winner] = self.lower[winner] = -np.inf
        self.seen[winner] = np.iinfo(np.int64).max
        return row

    def contenders(self, strategy: GreedyStrategy, plan: Any) -> Any:
        """The up-to-date rows that may be best; None if a row outside may be better."""
        while True:
            upper = self.upper[self.hot]
            best = upper.max(initial=-np.inf)
            if best < self.cold:
                self._heat()
                continue
            if best == -np.inf or best < self.outside:
                return None
            fresh = self.seen[self.hot] >= len(self.picked)
            bar = self.lower[self.hot[fresh]].max(initial=-np.inf)
            stale = self.hot[~fresh & (upper >= bar)]
            if len(stale):
                if len(stale) > FRESHEN:
                    order = np.argpartition(-self.upper[stale], FRESHEN)
                    stale = stale[order[:FRESHEN]]
                self._freshen(strategy, plan, stale)
            elif bar <= self.outside:
                return None
            elif bar <= self.cold:
                self._heat()
                if bar <= self.cold:  # more ties than hot rows: look at all of them
                    self.hot, self.cold = np.arange(len(self.ids)), -np.inf
            else:
                return self.hot[upper >= bar]

    def _freshen(self, strategy: GreedyStrategy, plan: Any, positions: Any) -> None:
        """Count the picks that the rows at ``positions`` have not seen."""
        picked = self.picked.since(int(self.seen[positions].min()))
        state = _take_state(self.state, positions)
        state = strategy.add(state, take_rows(self.rows, positions), picked, plan)
        _put_state(self.state, positions, state)
        scores, slack = _scores(strategy, state, plan, self.ids[positions])
        self.scores[positions] = scores
        self.upper[positions], self.lower[positions] = scores + slack, scores - slack
        self.seen[positions] = len(self.picked)
