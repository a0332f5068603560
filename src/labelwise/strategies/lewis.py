r"""Lewis: draw items by the largest of their Lewis weights over one or several models.

With :math:`w_i(U^j)` the :math:`\ell_p` Lewis weight of item :math:`i` in the features of model
:math:`j` (its leverage score for p = 2), the chance of an item is in proportion to

.. math:: t_i = \max_j w_i(U^j) , \qquad T = \sum_i t_i , \qquad p_i = t_i / T .

``sampling="with_replacement"`` draws until ``budget`` items are distinct. Item :math:`i`, drawn
:math:`c_i` times out of :math:`m`, weighs :math:`c_i / (m p_i)`, so that the weighted sum of any
loss over the picks estimates its sum over the pool, whatever p is: the factor
:math:`(m p_i)^{-1/p}` of the theory stands inside a p-th power. ``sampling="poisson"`` keeps each
item on its own with probability :math:`\pi_i = \min(1, \beta t_i)` and weighs it
:math:`1/\pi_i`; the number of picks is then random and ``budget`` on average.

A least-squares (or :math:`\ell_p`) fit of every model's last layer on the weighted picks is then
close to the fit on the whole pool. A budget of the whole pool returns every item with weight 1.

Cost: two passes per model for p = 2, one more per round of the iteration otherwise (about 15 for
p = 1 or 3), ``O(n d^2)`` each, and ``O(n)`` for the draw.

Reference: S. Huang, Y. Li, Y. Sun, Y. Tang, "One-shot Active Learning Based on Lewis Weight
Sampling for Multiple Deep Models", ICLR 2024, Algorithm 1 and Appendix B.
"""

from functools import partial
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids, comparable
from labelwise.blocks import Rows, Shards
from labelwise.errors import BadInput
from labelwise.kernels.draws import draw_until_distinct, poisson_draw
from labelwise.kernels.leverage import read_features
from labelwise.kernels.lewis import Lewis, lewis_iteration
from labelwise.strategy import Choice, PassStrategy

SAMPLINGS = ("with_replacement", "poisson")


def choose(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    p: float = 2.0,
    sampling: str = "with_replacement",
    tol: float = 1e-6,
    rtol: float | None = None,
) -> Choice:
    """Draw items by their Lewis weights.

    Args:
        shards: ``features`` is ``(n, d)``, or a list of such arrays, one per model.
        labelled: not used; the weights are those of the candidates alone.
        budget: how many items; the expected number for ``sampling="poisson"``.
        seed: decides the draw.
        p: the norm of the loss, any positive number.
        sampling: "with_replacement" or "poisson".
        tol: how far a Lewis weight may be from its fixed point, relatively; 1e-3 is enough for
            drawing and saves half of the rounds.
        rtol: singular values of the features up to this fraction of the largest count as zero;
            by default it follows their precision. Give 1e-3 for float32 features that were
            computed in half precision.
    """
    if sampling not in SAMPLINGS:
        raise BadInput(f"sampling must be one of {', '.join(SAMPLINGS)}; got {sampling!r}")
    # float64 products, so that a draw does not depend on the split of float32 rows
    settings = Lewis(p=p, tol=tol, rtol=rtol, double=True)
    scores, info = _largest_weights(shards, settings)
    if budget == len(shards):
        return _everything(shards.ids, scores, info)
    support = int(np.count_nonzero(scores))
    if support < budget:
        raise BadInput(
            f"budget is {budget} but only {support} of {len(shards)} items have features that are "
            f"not all zero; ask for {support} or fewer"
        )
    draw = _poisson if sampling == "poisson" else _with_replacement
    return _report(draw(shards.ids, scores, budget, seed), info)


def _largest_weights(shards: Shards, settings: Lewis) -> tuple[Floats, dict[str, Any]]:
    """The largest Lewis weight of every item over all models, ``(n,)``, and diagnostics."""
    features = shards.rows(shards.ids[:1])["features"]
    models = len(features) if isinstance(features, list | tuple) else 1
    scores = np.zeros(len(shards))
    ranks, iterations, totals = [], [], []
    for model in range(models):
        found = lewis_iteration(shards, settings, partial(read_features, model=model))
        scores = np.maximum(scores, found.weights)
        ranks.append(found.rank)
        iterations.append(found.iterations)
        totals.append(float(scores.sum()))
        shards.progress("lewis weights", model + 1, models)
    info = {
        "total": totals[-1],
        "total_by_models": totals,
        "ranks": ranks,
        "sum_of_ranks": sum(ranks),
        "iterations": iterations,
    }
    return scores, info


def _everything(ids: Ids, scores: Floats, info: dict[str, Any]) -> Choice:
    """All items, the largest weight first: nothing is drawn, and each stands for itself."""
    order = np.lexsort((ids, -comparable(scores)))
    ones = np.ones(len(ids), dtype=np.int64)
    return _report(Choice(ids[order], ones.astype(np.float64), ones, scores[order]), info)


def _with_replacement(ids: Ids, scores: Floats, budget: int, seed: int) -> Choice:
    picks, counts, draws = draw_until_distinct(scores, budget, seed, ids)
    chosen = _scores_of(picks, ids, scores)
    weights = counts * (scores.sum() / (draws * chosen))
    return Choice(picks, weights, counts, chosen)


def _poisson(ids: Ids, scores: Floats, budget: int, seed: int) -> Choice:
    picks, kept = poisson_draw(scores, budget, seed, ids)
    return Choice(picks, 1 / kept, None, _scores_of(picks, ids, scores))


def _scores_of(picks: Ids, ids: Ids, scores: Floats) -> Floats:
    order = np.argsort(ids, kind="stable")
    return np.asarray(scores[order[np.searchsorted(ids, picks, sorter=order)]])


def _report(choice: Choice, info: dict[str, Any]) -> Choice:
    """Add the number of draws and how many equally weighted picks are worth as much."""
    weights = np.asarray(choice.weights)
    squares = float(weights @ weights)
    draws = len(weights) if choice.counts is None else int(choice.counts.sum())
    effective = float(weights.sum()) ** 2 / squares if squares else 0.0
    return choice._replace(info={**info, "draws": draws, "effective_size": effective})


STRATEGY = PassStrategy(
    name="lewis",
    needs=("features",),
    several=True,
    weighted=True,
    draws=True,
    choose=choose,
    good_for="labelling once for one or several models, with weights that make sums unbiased",
    reference="Huang, Li, Sun and Tang, One-shot Active Learning Based on Lewis Weight Sampling "
    "for Multiple Deep Models, ICLR 2024",
)
