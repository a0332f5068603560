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

from collections.abc import Callable
from typing import Any

import numpy as np

from labelwise.arrays import Ids
from labelwise.kernels.loop.greedy_ahead import Ahead, AheadStrategy
from labelwise.kernels.loop.greedy_blocks import (
    CONTENDERS,
    bar_for,
    catch_up,
    propose,
    propose_best,
    sampled_bounds,
    start,
)
from labelwise.kernels.loop.greedy_window import Window
from labelwise.kernels.placement import find_placement, join_resident_blocks
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import GrowingRows, Rows, on_host, take_rows
from labelwise.strategy import Choice, GreedyStrategy

LEAST, SHARE, MOST = 1 << 11, 200, 1 << 16
"""From about how many rows a block of picks is made: one in so many of all, within limits; from
twice as many where the best of them cannot be told from the others."""
SAMPLE, LOOKED_AT = 64, 1 << 12
"""One in so many rows says how far scores have fallen; or fewer, if these are enough."""
KNOWN, MARGIN = 16, 0.98
"""After how many picks the score of the last one is guessed, and what of it is safe to rely on."""


def pick(
    strategy: GreedyStrategy,
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    ahead: bool | None = None,
) -> Choice:
    """Pick ``budget`` items greedily; ``0 < budget <= n``.

    ``ahead`` says whether a strategy that can look ahead does; if None, where rows are on a GPU.
    """
    if not isinstance(strategy, AheadStrategy):
        ahead = False
    elif ahead is None:
        ahead = not isinstance(find_placement(shards), np.ndarray)
    shards = join_resident_blocks(shards) if ahead else shards
    plan = strategy.begin(shards, labelled, budget, seed)
    shards.map(start, strategy, labelled, plan)
    loop = _Loop(strategy, shards, labelled, plan, budget, on_spot=ahead)
    if isinstance(strategy, AheadStrategy) and ahead:
        loop.pick_ahead(strategy.ahead(strategy, shards, labelled))
    elif strategy.bounded:
        loop.pick_in_blocks()
    else:
        loop.pick_one_at_a_time()
    ids = np.array(loop.ids, dtype=np.int64)
    scores = np.array(loop.scores, dtype=np.float64)
    if isinstance(strategy, AheadStrategy) and strategy.back is not None:
        scores = strategy.back(loop.plan, scores)
    if strategy.finish is None:
        return Choice(ids, scores=scores)
    choice = strategy.finish(loop.plan, shards, ids)
    return choice if choice.scores is not None else choice._replace(scores=scores)


class _Loop:
    """The picks so far and what is needed to make the next."""

    def __init__(
        self,
        strategy: GreedyStrategy,
        shards: Shards,
        labelled: Rows | None,
        plan: Any,
        budget: int,
        *,
        on_spot: bool = False,
    ) -> None:
        self.strategy, self.shards, self.plan, self.budget = strategy, shards, plan, budget
        self.ids: list[int] = []
        self.scores: list[float] = []
        self._told = 0
        self._picked = GrowingRows()
        # Blocks of picks are settled on the host, pick after pick from a few rows; or on the spot.
        near = on_host if strategy.bounded and not on_spot else dict
        self._near: Callable[[Rows], dict[str, Any]] = near
        self.labelled = None if labelled is None else self._near(labelled)

    def _count(self, item: int, score: float, row: dict[str, Any]) -> None:
        self.ids.append(item)
        self.scores.append(score)
        self._picked.append(self._near(row))
        self.plan = self.strategy.advance(self.plan, row)
        self.shards.progress(self.strategy.name, len(self.ids), self.budget)

    def _news(self) -> tuple[dict[str, Any], Ids]:
        """The picks that the blocks have not heard of yet."""
        rows, ids = self._picked.since(self._told), self.ids[self._told :]
        self._told = len(self.ids)
        return rows, np.array(ids, dtype=np.int64)

    def pick_ahead(self, ahead: Ahead) -> None:
        """Let the strategy make picks ahead; a pick that is not certain is settled here."""
        self._pick_best()
        while len(self.ids) < self.budget:
            found = ahead.picks(self.plan, *self._news(), self.budget - len(self.ids))
            if not len(found.ids):
                self._pick_best()
                continue
            self.ids += found.ids.tolist()
            self.scores += found.scores.tolist()
            self._picked.append(self._near(self.shards.rows(found.ids)))
            self.shards.progress(self.strategy.name, len(self.ids), self.budget)

    def pick_one_at_a_time(self) -> None:
        while len(self.ids) < self.budget:
            self._pick_best()

    def _pick_best(self) -> None:
        parts = self.shards.map(propose_best, self.strategy, self.plan, *self._news())
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
            rows = self._near(self.shards.rows(ids[ties]))
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
        self.shards.map(catch_up, self.strategy, self.plan, *self._news())
        count = len(self.shards)
        share = min(max(LEAST, count // SHARE), MOST) / count
        stride = max(SAMPLE, count // LOOKED_AT)
        made = True
        while len(self.ids) < self.budget:
            before, given = len(self.ids), (self.strategy, self.plan)
            sampled = self.shards.map(sampled_bounds, *given, *self._news(), stride)
            least = self._last_score() if made else -np.inf
            bar = bar_for(np.concatenate(sampled), share, least)
            parts = self.shards.map(propose, *given, bar)
            self._settle_block(Window(parts, *given))
            made = len(self.ids) > before
            if made or any(part.freshened for part in parts):
                continue
            if share >= MOST / count:
                self._pick_best()  # a tie with rows below the bar
            share = min(2 * share, MOST / count)

    def _last_score(self) -> float:
        """A guess at the last pick's score, on the low side: no row below need be looked at.

        Every doubling of the picks is taken to lower the score by as much as the one before.
        """
        count = len(self.ids)
        now, before = self.scores[-1], self.scores[count // 2 - 1]
        if count < KNOWN or not 0 < now <= before:
            return -np.inf
        return MARGIN * now * float((now / before) ** np.log2(self.budget / count))

    def _settle_block(self, window: Window) -> None:
        """Pick from the proposals while the best of them is certain to be the best of all."""
        while len(self.ids) < self.budget:
            found = window.contenders(self.plan)
            if found is None:
                return
            ties, scores = found
            if len(ties) == 1 or self.strategy.exact is None:
                first = int(np.argmin(window.ids[ties]))
                winner, score = int(ties[first]), float(scores[first])
            else:
                winner, score = self._settle(ties, window.ids, take_rows(window.rows, ties))
            row = window.pick(winner)
            self._count(int(window.ids[winner]), score, row)
            window.count(row, self.plan)
