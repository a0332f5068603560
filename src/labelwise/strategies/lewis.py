r"""Lewis: draw items by their largest Lewis weight over one or several models.

With :math:`w_i(U^j)` the :math:`\ell_p` Lewis weight of item :math:`i` in the features of model
:math:`j` (its leverage score for p = 2), the probability of an item is proportional to

.. math:: t_i = \max_j w_i(U^j) , \qquad T = \sum_i t_i , \qquad p_i = t_i / T .

``sampling="with_replacement"`` draws until ``budget`` items are distinct. Item :math:`i`, drawn
:math:`c_i` times out of :math:`m`, weighs :math:`c_i / (m p_i)`, so that the weighted sum of any
loss over the picks estimates its sum over the pool. Stopping at ``budget`` distinct items makes
these weights too large on average, by several percent where few items have most of the probability.
``sampling="poisson"``, which has no such bias, keeps each item independently with probability
:math:`\pi_i = \min(1, \beta t_i)` and weighs it :math:`1/\pi_i`; the number of picks is then random
and ``budget`` on average. A budget of the whole pool returns every item with weight 1.

Cost: two passes per model for p = 2, one more per round of the iteration otherwise (about 15 for
p = 1 or 3), ``O(n d^2)`` each, and ``O(n)`` for the draw. Memory: two numbers per item at most, in
the blocks; results of the blocks grow with the budget, not with the pool.

Reference: S. Huang, Y. Li, Y. Sun, Y. Tang, "One-shot Active Learning Based on Lewis Weight
Sampling for Multiple Deep Models", ICLR 2024, Algorithm 1 and Appendix B.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from labelwise.arrays import comparable
from labelwise.errors import BadInput
from labelwise.files import JsonObject
from labelwise.kernels.checks import check_boolean, check_choice
from labelwise.kernels.linear import draws
from labelwise.kernels.linear.lewis import WEIGHTS, LewisSettings, store_lewis_weights
from labelwise.kernels.placement import read_first_id
from labelwise.pool.blocks import Shard, Shards, drop_state
from labelwise.pool.rows import Rows, read_features
from labelwise.strategy import Choice, Cost, Job, PassStrategy, read_reference

KEY = "lewis_scores"
SAMPLINGS = ("with_replacement", "poisson")


def choose_lewis_batch(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    p: float = 2.0,
    sampling: str = "with_replacement",
    tol: float = 1e-6,
    rtol: float | None = None,
    bias: bool = False,
) -> Choice:
    """Draw items by their Lewis weights; ``"poisson"`` sampling draws ``budget`` on average.

    Options:
        p: the norm of the loss, any positive number.
        sampling: "with_replacement" or "poisson".
        tol: relative tolerance of the Lewis weights; 1e-3 is enough for drawing and saves half of
            the rounds.
        rtol: singular values of the features up to this fraction of the largest count as zero;
            by default it follows their precision. Give 1e-3 for float32 features that were
            computed in half precision.
        bias: whether the linear models have a constant column.
    """
    # float64 products, so that a draw does not depend on the split of float32 rows
    settings = LewisSettings(p=p, tol=tol, rtol=rtol, double=True)
    try:
        scores, info = _store_lewis_scores(shards, settings, bias)
        if budget == len(shards):
            return _add_draw_diagnostics(_take_lewis_pool(shards), info)
        if scores.support < budget:
            raise BadInput(
                f"budget is {budget} but only {scores.support} of {len(shards)} items have "
                f"features that are not all zero; ask for {scores.support} or fewer"
            )
        draw = _draw_lewis_poisson if sampling == "poisson" else _draw_lewis_with_replacement
        return _add_draw_diagnostics(draw(shards, scores, budget, seed), info)
    finally:
        for key in (WEIGHTS, KEY):
            shards.map(drop_state, key)


def check_lewis_job(job: Job) -> None:
    """Reject an unknown sampling, and numbers out of range."""
    options = job.options
    check_choice("sampling", options["sampling"], SAMPLINGS)
    check_boolean("bias", options["bias"])
    LewisSettings(p=options["p"], tol=options["tol"], rtol=options["rtol"])


class ScoreSummary(NamedTuple):
    """Summary of the scores, which stay with the blocks."""

    total: float
    highest: float
    support: int


def _store_lewis_scores(
    shards: Shards, settings: LewisSettings, bias: bool
) -> tuple[ScoreSummary, JsonObject]:
    """Store the largest Lewis weight of every item over all models; returns diagnostics."""
    first = next(item for item in shards.map(read_first_id) if item is not None)
    features = shards.rows(np.array([first]))["features"]
    models = len(features) if isinstance(features, list | tuple) else 1
    ranks, iterations, totals = [], [], []
    for model in range(models):
        found = store_lewis_weights(
            shards, settings, partial(read_features, model=model, bias=bias)
        )
        parts = shards.map(_merge_lewis_scores)
        scores = ScoreSummary(
            sum(part.total for part in parts),
            max(part.highest for part in parts),
            sum(part.support for part in parts),
        )
        ranks.append(found.rank)
        iterations.append(found.iterations)
        totals.append(scores.total)
        shards.progress("lewis weights", model + 1, models)
    info = {
        "total": totals[-1],
        "total_by_models": totals,
        "ranks": ranks,
        "sum_of_ranks": sum(ranks),
        "iterations": iterations,
    }
    return scores, info


def _merge_lewis_scores(shard: Shard) -> ScoreSummary:
    """Merge another model's weights into the scores of a block."""
    scores = shard.state.pop(WEIGHTS)
    if KEY in shard.state:
        scores = np.maximum(scores, shard.state[KEY], out=scores)
    shard.state[KEY] = scores
    highest = float(scores.max(initial=0.0))
    return ScoreSummary(float(scores.sum()), highest, int(np.count_nonzero(scores)))


def _take_lewis_pool(shards: Shards) -> Choice:
    """All items with weight 1, the largest Lewis weight first; nothing is drawn."""
    ids, scores = shards.ids, np.concatenate(shards.map(lambda shard: shard.state[KEY]))
    order = np.lexsort((ids, -comparable(scores)))
    ones = np.ones(len(ids), dtype=np.int64)
    return Choice(ids[order], ones.astype(np.float64), ones, scores[order])


def _draw_lewis_with_replacement(
    shards: Shards, scores: ScoreSummary, budget: int, seed: int
) -> Choice:
    high = scores.highest
    rings = draws.join_clock_rings(
        shards.map(lambda b: draws.first_rings(b.state[KEY], b.ids, budget, seed, high))
    )
    first, counts = draws.count_rings(rings, budget, seed, high)
    weights = counts * (scores.total / (counts.sum() * first.weights))
    return Choice(first.ids, weights, counts, first.weights)


def _draw_lewis_poisson(shards: Shards, scores: ScoreSummary, budget: int, seed: int) -> Choice:
    heaviest = shards.map(lambda shard: draws.find_heaviest_weights(shard.state[KEY], budget))
    rate = draws.solve_poisson_rate(heaviest, budget)
    parts = shards.map(lambda b: draws.keep_poisson_items(b.state[KEY], b.ids, seed, rate))
    kept = draws.sort_clock_rings(draws.join_clock_rings(parts))
    return Choice(kept.ids, 1 / np.minimum(1.0, rate * kept.weights), None, kept.weights)


def _add_draw_diagnostics(choice: Choice, info: JsonObject) -> Choice:
    """Add the number of draws and the effective sample size."""
    weights = np.asarray(choice.weights)
    squares = float(weights @ weights)
    drawn = len(weights) if choice.counts is None else int(choice.counts.sum())
    effective = float(weights.sum()) ** 2 / squares if squares else 0.0
    return choice._replace(info={**info, "draws": drawn, "effective_size": effective})


def estimate_lewis_cost(job: Job) -> Cost:
    """Two passes per model for p = 2; else the rounds that its damping needs to reach ``tol``."""
    p, rounds = float(job.options["p"]), 0.0
    if p != 2:
        rounds = math.log(float(job.options["tol"])) / math.log(abs(p - 2) / (p + 2))
    most = 3 if p == 2 else 2 + LewisSettings(p=p).max_iterations
    usual, width = 2 + math.ceil(rounds), job.width() / job.models
    return Cost(
        passes=(job.models, most * job.models),
        usual=usual * job.models,
        columns=job.models * (1 + usual) * width,
        item_bytes=16.0,
        state_bytes=8.0,
        held_bytes=job.gram_bytes,
    )


STRATEGY = PassStrategy(
    name="lewis",
    needs=("features",),
    several=True,
    weighted=True,
    draws=True,
    choose=choose_lewis_batch,
    good_for="labelling once for one or several models, with weights that estimate sums",
    reference=read_reference(__doc__),
    cost=estimate_lewis_cost,
    check=check_lewis_job,
    explain="Drawn by how unusual its features are{weight}.",
)
