"""Run a strategy over blocks of rows: the one place where picks are made, checked and recorded.

Masking of taken items, refusal of NaN, ties, and the check of the batch size live here and in the
greedy loop (`labelwise.kernels.greedy`) that it calls, not in the strategies.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids, comparable, largest, to_numpy
from labelwise.blocks import Rows, Shard, Shards
from labelwise.errors import BadInput
from labelwise.kernels import greedy
from labelwise.selection import Selection
from labelwise.strategy import Choice, GreedyStrategy, PassStrategy, ScoreStrategy, Strategy


def select(
    strategy: Strategy,
    shards: Shards,
    budget: int,
    *,
    labelled: Rows | None = None,
    seed: int = 0,
) -> Selection:
    """Pick ``budget`` items.

    Args:
        strategy: what decides.
        shards: the candidates; every row in them may be picked.
        budget: how many items to pick, at most as many as there are rows.
        labelled: rows of the items that are labelled already; they are context, never picked.
        seed: decides every draw.
    """
    check_budget(budget, len(shards))
    if budget == 0:
        return Selection(np.empty(0, dtype=np.int64), info={"strategy": strategy.name})
    if isinstance(strategy, ScoreStrategy):
        choice = _highest(strategy, shards, labelled, budget)
    elif isinstance(strategy, GreedyStrategy):
        choice = greedy.pick(strategy, shards, labelled, budget, seed)
    elif isinstance(strategy, PassStrategy):
        choice = strategy.choose(shards, labelled, budget, seed)
    else:
        raise BadInput(f"{strategy!r} is none of the three forms of a strategy")
    facts = {"strategy": strategy.name, "seed": seed, "options": _plain(strategy.options)}
    return Selection(
        np.asarray(choice.ids, dtype=np.int64),
        choice.weights,
        choice.counts,
        choice.scores,
        {**facts, **_plain(choice.info)},
    )


def check_budget(budget: int, left: int) -> None:
    """Refuse a budget that is not a whole number from 0 to what is left."""
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 0:
        raise BadInput(f"budget must be a whole number of items, 0 or more; got {budget!r}")
    if budget > left:
        raise BadInput(
            f"budget is {budget} but only {left} unlabelled items are left; ask for {left} or fewer"
        )


def _highest(strategy: ScoreStrategy, shards: Shards, labelled: Rows | None, budget: int) -> Choice:
    summary = shards.map(strategy.summarise) if strategy.summarise is not None else None
    parts = shards.map(_scores, strategy, labelled, summary, budget)
    ids = np.concatenate([part[0] for part in parts])
    scores = np.concatenate([part[1] for part in parts])
    best = largest(comparable(scores), budget, ids)
    return Choice(ids[best], scores=scores[best])


def _scores(
    shard: Shard,
    strategy: ScoreStrategy,
    labelled: Rows | None,
    summary: list[Any] | None,
    budget: int,
) -> tuple[Ids, Floats]:
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
    best = largest(comparable(values), min(budget, len(values)), shard.ids)
    return shard.ids[best], values[best]


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Diagnostics as values that JSON can hold."""
    return {name: _plain_value(value) for name, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _plain(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain_value(entry) for entry in value]
    return value
