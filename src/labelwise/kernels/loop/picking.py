"""The picking loop: from a strategy of any form and blocks of rows to a choice.

Score strategies: the highest scores are merged block by block.

Greedy strategies pick in one of three ways, with equal results:

* *one at a time*: every block proposes its best item, the best proposal is picked, and every block
  counts it, one pass over the rows per pick;
* *in batches*, for strategies whose scores only fall (`GreedyStrategy.bounded`): blocks update only
  the rows with the highest bounds and propose them (`kernels.loop.block_scores`); proposals are
  picked for as long as the best one certainly beats every row that was not proposed;
* *ahead*, on a GPU: the strategy makes many picks on the device and says how many are certain
  (`GreedyStrategy.ahead`).

Scores that rounding cannot tell apart are ties, and the smaller id wins.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Floats, Ids, comparable, largest, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.loop.block_scores import (
    MOST_TIES,
    CandidateWindow,
    choose_score_threshold,
    propose_best_ties,
    propose_rows,
    sample_score_bounds,
    start_scores,
    update_block_scores,
)
from labelwise.kernels.placement import find_placement, join_resident_blocks
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import ArrayDict, GrowingRows, Rows, copy_to_host, take_rows
from labelwise.strategy import (
    AheadPicker,
    Choice,
    GreedyStrategy,
    PassStrategy,
    Plan,
    ScoreStrategy,
    Strategy,
)

SAMPLED_SCORE = 16
"""Every 16th score estimates the threshold of a block with many more items than picks."""
LEAST_ROWS, ROWS_SHARE, MOST_ROWS = 1 << 11, 200, 1 << 16
"""A batch of picks is made from one in 200 rows, within these limits."""
SAMPLED_ROW, SAMPLE_SIZE = 64, 1 << 12
"""Every 64th row, or at most about 4,096 rows, show how far the scores have fallen."""
LEAST_PICKS, SAFETY = 16, 0.98
"""The last score of the batch is extrapolated after 16 picks, and lowered by this factor."""


def pick(
    strategy: Strategy, shards: Shards, labelled: Rows | None, budget: int, seed: int
) -> Choice:
    """Let a strategy choose ``budget`` items.

    >>> from labelwise.pool.blocks import LocalShards
    >>> def score(rows, labelled):
    ...     return -rows["features"][:, 0]
    >>> lowest = ScoreStrategy(name="lowest", needs=("features",), score=score,
    ...                        good_for="an example", reference="none")
    >>> pool = LocalShards.of(features=np.array([[3.0], [1.0], [2.0]]))
    >>> pick(lowest, pool, None, 2, seed=0).ids.tolist()
    [1, 2]
    """
    if isinstance(strategy, PassStrategy):
        return strategy.choose(shards, labelled, budget, seed)
    if isinstance(strategy, GreedyStrategy):
        return pick_greedily(strategy, shards, labelled, budget, seed)
    if isinstance(strategy, ScoreStrategy):
        return _pick_highest_scores(strategy, shards, labelled, budget)
    raise BadInput(f"{strategy!r} is not a score, greedy or pass strategy")


# Score strategies.


@dataclass(frozen=True)
class BestItems:
    """The best items of some blocks: enough to know the ``count`` best of all.

    Pieces are merged only when they hold several times the count, so that items are not sorted
    again for every block.
    """

    count: int
    ids: tuple[Ids, ...]
    scores: tuple[Floats, ...]

    def __add__(self, other: "BestItems") -> "BestItems":
        both = BestItems(self.count, self.ids + other.ids, self.scores + other.scores)
        return both.merge_pieces() if sum(map(len, both.ids)) > 4 * self.count else both

    def merge_pieces(self) -> "BestItems":
        """One piece, best first, of at most ``count`` items."""
        ids, scores = np.concatenate(self.ids), np.concatenate(self.scores)
        best = largest(comparable(scores), min(self.count, len(ids)), ids)
        return BestItems(self.count, (ids[best],), (scores[best],))


def _pick_highest_scores(
    strategy: ScoreStrategy, shards: Shards, labelled: Rows | None, budget: int
) -> Choice:
    summary = [shards.map(strategy.summarise)] if strategy.summarise is not None else []
    best: BestItems = shards.sum(
        _score_items_of_block, strategy, labelled, summary, budget
    ).merge_pieces()
    return Choice(best.ids[0], scores=best.scores[0])


def _score_items_of_block(
    shard: Shard,
    strategy: ScoreStrategy,
    labelled: Rows | None,
    summary: list[list[object]],
    budget: int,
) -> BestItems:
    """Ids and scores of a block's items, without most of those that cannot be picked."""
    scores = np.asarray(to_numpy(strategy.score(shard.rows, labelled, *summary)), dtype=np.float64)
    wrong = np.isnan(scores)
    if wrong.any():
        raise BadInput(
            f"strategy {strategy.name!r} scored item {shard.ids[wrong][0]} as NaN; check its rows"
        )
    few = np.arange(len(scores))
    if len(scores) > SAMPLED_SCORE * budget:
        few = _find_highest_scores(scores, budget)
    found = BestItems(budget, (shard.ids_at(few),), (scores[few],))
    return found.merge_pieces() if len(few) > budget else found


def _find_highest_scores(scores: Floats, count: int) -> NDArray[np.intp]:
    """Positions that could be among the ``count`` largest scores, by the threshold of a sample."""
    some = scores[::SAMPLED_SCORE]
    place = max(len(some) - 2 * count // SAMPLED_SCORE - 16, 0)
    guess = np.partition(some, place)[place]
    with np.errstate(invalid="ignore"):  # infinite scores
        threshold = comparable(guess) - 2.0**-29 * abs(guess)  # keeps scores that round to a tie
    few = np.flatnonzero(scores >= threshold)
    return few if np.count_nonzero(scores[few] >= guess) >= count else np.arange(len(scores))


# Greedy strategies.


def pick_greedily(
    strategy: GreedyStrategy,
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    ahead: bool | None = None,
) -> Choice:
    """Pick ``budget`` items, ``ahead`` (forced or forbidden) by default where rows are on a GPU."""
    if strategy.ahead is not None and ahead is None:
        ahead = not isinstance(find_placement(shards), np.ndarray)
    picker = None
    if strategy.ahead is not None and ahead:
        shards = join_resident_blocks(shards)
        picker = strategy.ahead(strategy, shards, labelled)
    plan = strategy.begin(shards, labelled, budget, seed)
    shards.map(start_scores, strategy, labelled, plan)
    loop = GreedyLoop(strategy, shards, labelled, plan, budget, on_device=picker is not None)
    if picker is not None:
        loop.pick_ahead(picker)
    elif strategy.bounded:
        loop.pick_in_batches()
    else:
        while len(loop.ids) < budget:
            loop.pick_best()
    ids = np.array(loop.ids, dtype=np.int64)
    scores = np.array(loop.scores, dtype=np.float64)
    if strategy.rescale is not None:
        scores = strategy.rescale(loop.plan, scores)
    if strategy.finish is None:
        return Choice(ids, scores=scores)
    choice = strategy.finish(loop.plan, shards, ids)
    return choice if choice.scores is not None else choice._replace(scores=scores)


class GreedyLoop:
    """The picks so far, and the ways to make the next ones."""

    def __init__(
        self,
        strategy: GreedyStrategy,
        shards: Shards,
        labelled: Rows | None,
        plan: Plan,
        budget: int,
        *,
        on_device: bool = False,
    ) -> None:
        """Start without picks; the blocks have started."""
        self.strategy, self.shards, self.plan, self.budget = strategy, shards, plan, budget
        self.ids: list[int] = []
        self.scores: list[float] = []
        self._reported = 0
        self._picked = GrowingRows()
        # Batches of picks are made on the host, from a few rows; ahead, on the device.
        fetch = copy_to_host if strategy.bounded and not on_device else dict
        self._fetch: Callable[[Rows], ArrayDict] = fetch
        self._labelled = None if labelled is None else fetch(labelled)

    def _add_pick(self, item: int, score: float, row: ArrayDict) -> None:
        self.ids.append(item)
        self.scores.append(score)
        self._picked.append(self._fetch(row))
        self.plan = self.strategy.advance(self.plan, row)
        self.shards.progress(self.strategy.name, len(self.ids), self.budget)

    def _take_new_picks(self) -> tuple[ArrayDict, Ids]:
        """Rows and ids of the picks that were not reported to the blocks yet."""
        rows, ids = self._picked.since(self._reported), self.ids[self._reported :]
        self._reported = len(self.ids)
        return rows, np.array(ids, dtype=np.int64)

    def pick_best(self) -> None:
        """Make one pick: the best of what the blocks propose."""
        new = self._take_new_picks()
        parts = self.shards.map(propose_best_ties, self.strategy, self.plan, *new)
        ids = np.concatenate([part.ids for part in parts])
        scores = np.concatenate([part.scores for part in parts])
        slack = np.concatenate([part.slack for part in parts])
        ties = np.flatnonzero(scores + slack >= (scores - slack).max())
        if len(ties) > MOST_TIES:
            ties = ties[np.argsort(ids[ties])[:MOST_TIES]]
        if self.strategy.exact is None or len(ties) == 1:
            winner = ties[np.argmin(ids[ties])]
            score = scores[winner]
        else:
            rows = self._fetch(self.shards.rows(ids[ties]))
            winner, score = self._settle_ties(ties, ids, rows)
        self._add_pick(int(ids[winner]), float(score), self.shards.rows(ids[winner : winner + 1]))

    def _settle_ties(self, ties: NDArray[np.intp], ids: Ids, rows: Rows) -> tuple[int, float]:
        """The best of some near ties by the strategy's exact score; equal ones by id."""
        assert self.strategy.exact is not None
        picked = self._picked.since(0) if self.ids else None
        exact = self.strategy.exact(rows, self._labelled, picked, self.plan)
        equal = ties[exact >= exact.max() - 1e-12 * abs(exact.max())]
        return int(equal[np.argmin(ids[equal])]), float(exact.max())

    def pick_ahead(self, picker: AheadPicker) -> None:
        """Let the strategy pick ahead; `pick_best` makes each pick that is not certain."""
        self.pick_best()
        while len(self.ids) < self.budget:
            new = self._take_new_picks()
            found = picker.pick_ahead(self.plan, *new, self.budget - len(self.ids))
            if not len(found.ids):
                self.pick_best()
                continue
            self.ids += found.ids.tolist()
            self.scores += found.scores.tolist()
            self._picked.append(self._fetch(self.shards.rows(found.ids)))
            self.shards.progress(self.strategy.name, len(self.ids), self.budget)

    def pick_in_batches(self) -> None:
        """Pick many items between two passes over the rows."""
        # Scores are upper bounds only after the first pick was counted in every row.
        self.pick_best()
        self.shards.map(update_block_scores, self.strategy, self.plan, *self._take_new_picks())
        count = len(self.shards)
        share = min(max(LEAST_ROWS, count // ROWS_SHARE), MOST_ROWS) / count
        stride = max(SAMPLED_ROW, count // SAMPLE_SIZE)
        progress = True
        while len(self.ids) < self.budget:
            before, given = len(self.ids), (self.strategy, self.plan)
            sampled = self.shards.map(sample_score_bounds, *given, *self._take_new_picks(), stride)
            least = self._extrapolate_score() if progress else -np.inf
            threshold = choose_score_threshold(np.concatenate(sampled), share, least)
            parts = self.shards.map(propose_rows, *given, threshold)
            self._pick_from_window(CandidateWindow(parts, *given))
            progress = len(self.ids) > before
            if progress or any(part.updated for part in parts):
                continue
            if share >= MOST_ROWS / count:
                self.pick_best()  # a tie with rows below the threshold
            share = min(2 * share, MOST_ROWS / count)

    def _extrapolate_score(self) -> float:
        """A low estimate of the last pick's score; rows below it need no update.

        Every doubling of the picks is assumed to lower the score by the same factor.
        """
        count = len(self.ids)
        now, before = self.scores[-1], self.scores[count // 2 - 1]
        if count < LEAST_PICKS or not 0 < now <= before:
            return -np.inf
        return SAFETY * now * float((now / before) ** np.log2(self.budget / count))

    def _pick_from_window(self, window: CandidateWindow) -> None:
        """Pick from the proposals while the best one certainly beats all other rows."""
        while len(self.ids) < self.budget:
            found = window.find_contenders(self.plan)
            if found is None:
                return
            ties, scores = found
            if len(ties) == 1 or self.strategy.exact is None:
                first = int(np.argmin(window.ids[ties]))
                winner, score = int(ties[first]), float(scores[first])
            else:
                winner, score = self._settle_ties(ties, window.ids, take_rows(window.rows, ties))
            row = window.remove_row(winner)
            self._add_pick(int(window.ids[winner]), score, row)
            window.count_pick(row, self.plan)
