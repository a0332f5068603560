"""Run a strategy over blocks of rows: picks are made, checked and recorded here only.

Masking of labelled items, rejection of NaN, ties, and the check of the batch size live here and in
the picking loop (`labelwise.kernels.loop`), not in the strategies.
"""

import warnings

import numpy as np

from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.files import to_json
from labelwise.kernels.loop.picking import pick
from labelwise.pool.blocks import Shards, read_all_rows
from labelwise.pool.rows import Rows
from labelwise.selection.result import Selection
from labelwise.strategy import Strategy


def select(
    strategy: Strategy, shards: Shards, budget: int, *, labelled: Rows | None = None, seed: int = 0
) -> Selection:
    """Pick ``budget`` items.

    Every row of ``shards`` may be picked; ``labelled`` are rows of labelled items, which are
    context.
    """
    check_budget(budget, len(shards))
    if budget == 0:
        return Selection(np.empty(0, dtype=np.int64), info={"strategy": strategy.name})
    if not strategy.needs:
        shards.map(read_all_rows)  # invalid rows are rejected even if the strategy reads none
    choice = pick(strategy, shards, labelled, budget, seed)
    info = {"strategy": strategy.name, "seed": seed, "options": strategy.options, **choice.info}
    scores = choice.scores
    if scores is not None and not np.isfinite(scores).all():
        message = "scores are beyond what float64 can hold and were left out; scale the features"
        warnings.warn(message, LabelwiseWarning, stacklevel=2)
        scores, info["warning"] = None, message
    return Selection(
        np.asarray(choice.ids, dtype=np.int64), choice.weights, choice.counts, scores, to_json(info)
    )


def check_budget(budget: int, left: int | None = None) -> None:
    """Reject a budget that is not a whole number from 0 to the number of unlabelled items."""
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 0:
        raise BadInput(f"budget must be a whole number of items, 0 or more; got {budget!r}")
    if left is None or budget <= left:
        return
    if left == 0:
        raise BadInput(f"budget is {budget} but no unlabelled items are left; add some to the pool")
    raise BadInput(
        f"budget is {budget} but only {left} unlabelled items are left; ask for {left} or fewer"
    )
