"""Run a strategy over blocks of rows: the one place where picks are made, checked and recorded.

Masking of taken items, refusal of NaN, ties, and the check of the batch size live here and in what
it calls (`labelwise.kernels.loop.picking` and its greedy loop), not in the strategies.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from labelwise.arrays import is_array, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.loop.picking import pick
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.selection.result import Selection
from labelwise.strategy import Strategy


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
    choice = pick(strategy, shards, labelled, budget, seed)
    facts = {"strategy": strategy.name, "seed": seed, "options": plain(strategy.options)}
    return Selection(
        np.asarray(choice.ids, dtype=np.int64),
        choice.weights,
        choice.counts,
        choice.scores,
        {**facts, **plain(choice.info)},
    )


def check_budget(budget: int, left: int) -> None:
    """Refuse a budget that is not a whole number from 0 to what is left."""
    check_count(budget)
    if budget > left == 0:
        raise BadInput(f"budget is {budget} but no unlabelled items are left; add some to the pool")
    if budget > left:
        raise BadInput(
            f"budget is {budget} but only {left} unlabelled items are left; ask for {left} or fewer"
        )


def check_count(budget: int) -> None:
    """Refuse a budget that is no number of items."""
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 0:
        raise BadInput(f"budget must be a whole number of items, 0 or more; got {budget!r}")


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Diagnostics as values that strict JSON can hold.

    It has no infinity and no NaN: they are the texts that ``float`` reads.

    >>> plain({"gamma": np.inf, "ranks": np.array([3, 4]), "loss": [0.5, -np.inf, np.nan]})
    {'gamma': 'inf', 'ranks': [3, 4], 'loss': [0.5, '-inf', 'nan']}
    """
    return {str(name): _plain_value(value) for name, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return plain(value)
    if is_array(value):
        value = to_numpy(value).tolist()
    if isinstance(value, list | tuple):
        return [_plain_value(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, bool | int) else str(value)
