"""From a strategy of any form and blocks of rows to a choice.

`pick` is what `labelwise.selection.run` calls, and what a strategy calls that leaves its choice to
another one (bandit). A score strategy's highest scores are found here; the greedy loop has its own
module (`labelwise.kernels.loop.greedy`); a pass strategy chooses by itself.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids, comparable, largest, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.loop import greedy
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, GreedyStrategy, PassStrategy, ScoreStrategy, Strategy


def pick(
    strategy: Strategy, shards: Shards, labelled: Rows | None, budget: int, seed: int
) -> Choice:
    """Let a strategy choose ``budget`` items.

    Args:
        strategy: of any of the three forms.
        shards: the candidates; every row in them may be picked.
        labelled: rows of the items that are labelled already, or None.
        budget: how many items to pick; ``0 < budget <= n``.
        seed: decides every draw.

    >>> from labelwise.pool.blocks import LocalShards
    >>> def score(rows, labelled):
    ...     return -rows["features"][:, 0]
    >>> lowest = ScoreStrategy(name="lowest", needs=("features",), score=score,
    ...                        good_for="an example", reference="none")
    >>> pool = LocalShards.of(features=np.array([[3.0], [1.0], [2.0]]))
    >>> pick(lowest, pool, None, 2, seed=0).ids.tolist()
    [1, 2]
    """
    if isinstance(strategy, ScoreStrategy):
        return _highest(strategy, shards, labelled, budget)
    if isinstance(strategy, GreedyStrategy):
        return greedy.pick(strategy, shards, labelled, budget, seed)
    if isinstance(strategy, PassStrategy):
        return strategy.choose(shards, labelled, budget, seed)
    raise BadInput(f"{strategy!r} is none of the three forms of a strategy")


@dataclass(frozen=True)
class _Best:
    """The best items of some blocks, in pieces: of ``count`` that will be picked, all that can be.

    Pieces are joined and cut only when they have grown to several times the count, so that what is
    kept does not grow with the pool, and no block's items are looked at often.
    """

    count: int
    ids: tuple[Ids, ...]
    scores: tuple[Floats, ...]

    def __add__(self, other: "_Best") -> "_Best":
        both = _Best(self.count, self.ids + other.ids, self.scores + other.scores)
        return both.cut() if sum(map(len, both.ids)) > 4 * self.count else both

    def cut(self) -> "_Best":
        """One piece, best first, with no more items than will be picked."""
        ids, scores = np.concatenate(self.ids), np.concatenate(self.scores)
        best = largest(comparable(scores), min(self.count, len(ids)), ids)
        return _Best(self.count, (ids[best],), (scores[best],))


MANY = 16
"""From so many times the picks on, most items are put aside by a look at some of them."""


def _contenders(scores: Floats, count: int) -> Any:
    """Positions of all items that could be among the ``count`` largest scores, and a few more.

    Every sixteenth score tells about how high the bar is. A guess that is too high shows, and all
    items are kept.
    """
    some = scores[::MANY]
    place = max(len(some) - 2 * count // MANY - 16, 0)
    guess = np.partition(some, place)[place]
    with np.errstate(invalid="ignore"):  # of infinite scores
        bar = comparable(guess) - 2.0**-29 * abs(guess)  # what rounds to the same is as good
    few = np.flatnonzero(scores >= bar)
    return few if np.count_nonzero(scores[few] >= guess) >= count else np.arange(len(scores))


def _highest(strategy: ScoreStrategy, shards: Shards, labelled: Rows | None, budget: int) -> Choice:
    summary = shards.map(strategy.summarise) if strategy.summarise is not None else None
    best: _Best = shards.sum(_scores, strategy, labelled, summary, budget).cut()
    return Choice(best.ids[0], scores=best.scores[0])


def _scores(
    shard: Shard,
    strategy: ScoreStrategy,
    labelled: Rows | None,
    summary: list[Any] | None,
    budget: int,
) -> _Best:
    """The ids and scores of a block's items, no more of them than could be picked."""
    if summary is None:
        scores = strategy.score(shard.rows, labelled)
    else:
        scores = strategy.score(shard.rows, labelled, summary)
    values = np.asarray(to_numpy(scores), dtype=np.float64)
    wrong = np.isnan(values)
    if wrong.any():
        raise BadInput(
            f"strategy {strategy.name!r} scored item {shard.ids[wrong][0]} as NaN; check its rows"
        )
    few = np.arange(len(values))
    if len(values) > MANY * budget:
        few = _contenders(values, budget)
    found = _Best(budget, (shard.ids_at(few),), (values[few],))
    return found.cut() if len(few) > budget else found
