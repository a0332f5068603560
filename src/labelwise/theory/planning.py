r"""Properties of a pool's features, and the labels it needs, computed before any labelling.

For every model ``j`` with features :math:`U^j`:

* the effective dimension :math:`\sum_i s_i^2 / (s_i^2 + \lambda)` over the singular values
  :math:`s_i`, the sum of the ridge leverage scores;
* the condition number :math:`K = \sup_i n \tau_i` with :math:`\tau` the leverage: the largest ratio
  of the maximum square to the mean square of a linear prediction, from the rank to n;
* the concentration of the leverage: the share of the top 1 % and 10 % of the items, and the
  effective number of items :math:`(\sum \tau)^2 / \sum \tau^2`.

For all models together: :math:`T = \sum_i \max_j w_i(U^j)` of the first, first two, ... models with
its bound, the label budgets (`label_budgets`) and the pool size (`pool_size`).

Cost: three passes per model for p = 2, ``O(n d^2)``; about 15 more passes for another p. Memory:
``O(n)`` plus one block of rows.

Reference: S. Huang, Y. Li, Y. Sun, Y. Tang, "One-shot Active Learning Based on Lewis Weight
Sampling for Multiple Deep Models", ICLR 2024, Figure 1; "Sample Complexity of Deep Active
Learning", submitted to ICLR 2022, Theorem 4.1.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from labelwise.arrays import Array, Floats, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.linear.bases import MOST_COLUMNS, ModelColumns, SubdividedShards
from labelwise.kernels.linear.leverage import RowReader, compute_leverage, whiten
from labelwise.kernels.linear.lewis import LewisSettings, iterate_lewis_weights
from labelwise.pool.blocks import Shards
from labelwise.theory.budgets import Budget, check_budget_error, label_budgets, pool_size, whole
from labelwise.theory.pool import (
    Features,
    as_feature_shards,
    count_models,
    make_model_reader,
    sum_pool_moments,
)

SHARES = tuple(float(value) for value in np.round(np.geomspace(0.1, 100, 61), 6))
"""Percentages of items at which the concentration curve is evaluated."""


@dataclass(frozen=True)
class ModelPlan:
    """Properties of the features of one model.

    Attributes:
        columns: number of features.
        rank: numerical rank.
        effective_dimension: sum of the ridge leverage scores at ``ridge``.
        ridge: lambda of the effective dimension.
        condition: ``K``, the largest leverage times the number of items.
        top_1, top_10: share of the leverage in the top 1 % and 10 % of items.
        max_over_mean: largest leverage divided by the mean leverage, ``K / rank``.
        effective_items: effective number of items by leverage.
        energies: the eigenvalues of ``A^T A``, largest first.
        total: ``T`` of this model and all before it.
        bound: upper bound on ``total``: the sum of the ranks so far, at most n.
    """

    columns: int
    rank: int
    effective_dimension: float
    ridge: float
    condition: float
    top_1: float
    top_10: float
    max_over_mean: float
    effective_items: float
    energies: tuple[float, ...]
    total: float
    bound: float


@dataclass(frozen=True)
class Plan:
    """Result of `plan`.

    Attributes:
        items: number of items in the pool.
        error: the requested relative error.
        p: the norm of the Lewis weights.
        models: one entry per model, in order.
        joint_rank: rank of the concatenated features of all models, used by BSS.
        joint_rank_exact: whether ``joint_rank`` was computed; otherwise it is an upper bound, the
            sum of the ranks but at most n.
        concentration: share of ``T`` of the items with the largest weights, at the percentages of
            `SHARES`.
        budgets: label budget of each method.
        pool_printed: required pool size by the bound with constants of 1.
        pool_proved: sufficient pool size by the bound with known constants.
    """

    items: int
    error: float
    p: float
    models: tuple[ModelPlan, ...]
    joint_rank: int
    joint_rank_exact: bool
    concentration: tuple[float, ...]
    budgets: tuple[Budget, ...]
    pool_printed: float
    pool_proved: float

    @property
    def total(self) -> float:
        """``T`` of all models."""
        return self.models[-1].total

    @property
    def bound(self) -> float:
        """The bound on ``T``."""
        return self.models[-1].bound

    def to_dict(self) -> dict[str, Any]:
        """JSON-compatible values."""
        return asdict(self) | {"total": self.total, "bound": self.bound}


def plan(
    features: Features,
    *,
    error: float = 0.1,
    p: float = 2.0,
    ridge: float = 0.01,
    rtol: float | None = None,
    tol: float = 1e-4,
) -> Plan:
    """Measure a pool and estimate how many labels it needs.

    Args:
        features: ``(n, d)``, a list of such arrays (one per model), or shards with ``features``
            for files larger than memory.
        error: relative excess error, above 0 and at most 1.
        p: the norm of the loss; 2 for least squares.
        ridge: lambda for the effective dimension, as a fraction of the mean eigenvalue.
        rtol: relative rank tolerance, as in `labelwise.kernels`.
        tol: relative precision of the Lewis weights.

    >>> import numpy as np
    >>> features = np.random.default_rng(0).normal(size=(2000, 8))
    >>> found = plan([features, 2 * features + 0.0], error=0.1)
    >>> [model.rank for model in found.models], round(found.total, 6), found.bound
    ([8, 8], 8.0, 16.0)
    """
    check_budget_error(error)
    if not (np.isfinite(ridge) and ridge > 0):
        raise BadInput(f"ridge must be a positive number; got {ridge}")
    settings = LewisSettings(p=p, tol=tol, rtol=rtol, double=True)
    shards = as_feature_shards(features)
    count, n = count_models(shards), len(shards)
    shared = np.zeros(n)
    found: list[ModelPlan] = []
    for model in range(count):
        ranks = sum(entry.rank for entry in found)
        part, weights = _plan_model(shards, make_model_reader(model), settings, ridge)
        shared = np.maximum(shared, weights)
        bound = float(min(ranks + part["rank"], n))
        found.append(ModelPlan(**part, total=float(shared.sum()), bound=bound))
        shards.progress("models", model + 1, count)
    rank = max(entry.rank for entry in found)
    joint, exact = _joint_rank(shards, found, rtol)
    budgets = label_budgets(
        rank=rank, total=found[-1].total, items=n, error=error, p=p, directions=joint, law=shared
    )
    sizes = [pool_size(rank=m.rank, condition=m.condition, error=error) for m in found]
    return Plan(
        items=n,
        error=float(error),
        p=float(p),
        models=tuple(found),
        joint_rank=joint,
        joint_rank_exact=exact,
        concentration=tuple(share_of_top(shared, SHARES)),
        budgets=budgets,
        pool_printed=max(size[0] for size in sizes),
        pool_proved=max(size[1] for size in sizes),
    )


def _plan_model(
    shards: Shards, read: RowReader, settings: LewisSettings, ridge: float
) -> tuple[dict[str, Any], Floats]:
    """The `ModelPlan` fields of one model except the totals, and its Lewis weights ``(n,)``."""
    n = len(shards)
    basis = whiten(shards, read, rtol=settings.rtol)
    leverage = compute_leverage(shards, read, basis, double=True)
    if settings.p == 2:
        weights = leverage
    else:
        weights = iterate_lewis_weights(shards, settings, read).weights
    energies = np.clip(np.linalg.eigvalsh(sum_pool_moments(shards, read).gram)[::-1], 0.0, None)
    level = ridge * float(energies.sum()) / max(basis.rank, 1)
    peak, squares = float(leverage.max(initial=0.0)), float(leverage @ leverage)
    top_1, top_10 = share_of_top(leverage, (1.0, 10.0))
    facts = {
        "columns": len(energies),
        "rank": basis.rank,
        "effective_dimension": effective_dimension(energies, level),
        "ridge": level,
        "condition": n * peak,
        "top_1": top_1,
        "top_10": top_10,
        "max_over_mean": n * peak / max(basis.rank, 1),
        "effective_items": float(leverage.sum()) ** 2 / squares if squares else 0.0,
        "energies": tuple(energies.tolist()),
    }
    return facts, weights


def effective_dimension(energies: Array, ridge: float) -> float:
    """``sum e / (e + ridge)`` over the eigenvalues of ``A^T A``: the sum of ridge leverage scores.

    ``energies`` are ``(d,)``; at ridge 0 the result is the number of nonzero ones.

    >>> effective_dimension([1.0, 1.0, 0.0], 1.0)
    1.0
    """
    values = np.asarray(to_numpy(energies) if hasattr(energies, "shape") else energies, float)
    if not np.isfinite(values).all() or not 0 <= ridge < np.inf:
        raise BadInput(f"energies and ridge must be finite, ridge 0 or more; got ridge {ridge}")
    values = values[values > 0]
    return float(np.sum(values / (values + ridge)))


def share_of_top(weights: Floats, percents: Sequence[float]) -> list[float]:
    """Share of the sum of the weights in the largest ``percents`` percent of the items.

    >>> import numpy as np
    >>> share_of_top(np.array([6.0, 2.0, 1.0, 1.0]), [25, 50])
    [0.6, 0.8]
    """
    ordered = np.sort(weights)[::-1]
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    if not sums[-1] > 0:
        return [0.0 for _ in percents]
    # linear interpolation between whole numbers of items
    places = np.asarray(percents, dtype=np.float64) / 100 * len(weights)
    shares = np.interp(places, np.arange(len(sums)), sums / sums[-1])
    return [float(value) for value in np.round(shares, 12)]


def _joint_rank(shards: Shards, found: list[ModelPlan], rtol: float | None) -> tuple[int, bool]:
    """Rank of the concatenated features and True, or an upper bound and False if too wide."""
    ranks = sum(entry.rank for entry in found)
    if len(found) == 1:
        return ranks, True
    if sum(entry.columns for entry in found) > MOST_COLUMNS:
        return min(ranks, len(shards)), False
    return whiten(SubdividedShards(shards), ModelColumns(), rtol=rtol).rank, True


def describe_plan(plan: Plan) -> list[str]:
    """Plain sentences on a plan, from the features to the labels.

    >>> import numpy as np
    >>> lines = describe_plan(plan(np.random.default_rng(0).normal(size=(3000, 4))))
    >>> lines[0]
    'all 4 features are independent; 4.0 directions matter at the stated ridge'
    """
    lines = [*_describe_ranks(plan), _describe_leverage(plan)]
    if len(plan.models) > 1:
        lines.append(_describe_lewis_total(plan))
    lines += [_describe_label_budget(plan), _describe_pool_size(plan)]
    return lines


def _describe_ranks(plan: Plan) -> list[str]:
    texts = []
    for number, model in enumerate(plan.models, 1):
        name = f"model {number}: " if len(plan.models) > 1 else ""
        full = model.rank == model.columns
        count = f"all {model.columns}" if full else f"{model.rank} of {model.columns}"
        texts.append(
            f"{name}{count} features are independent; {model.effective_dimension:.1f} directions "
            "matter at the stated ridge"
        )
    return texts


def _describe_leverage(plan: Plan) -> str:
    worst = max(plan.models, key=lambda model: model.max_over_mean)
    text = f"the top 1 % of items hold {100 * worst.top_1:.0f} % of the leverage, and one item has "
    text += f"{worst.max_over_mean:.1f} times the mean"
    if worst.max_over_mean < 4:
        return text + ": items are similar, random picks lose little"
    if worst.top_1 < 0.2:
        return text + ": somewhat uneven, weighted picking helps"
    return text + ": a few items carry whole directions that random picks would miss"


def _describe_lewis_total(plan: Plan) -> str:
    least = max(model.rank for model in plan.models)  # T of models that need the same items
    room = plan.bound - least
    share = (plan.total - least) / room if room > 0 else 1.0
    text = f"T = {plan.total:.1f} for {len(plan.models)} models, {100 * max(share, 0):.0f} % of "
    text += f"the way from the largest rank {least} to the bound {plan.bound:.0f}"
    if share < 0.5:
        return text + ": the models need the same items, one selection serves them all"
    return text + ": the models need different items, sharing a selection saves little"


def _describe_label_budget(plan: Plan) -> str:
    text = f"for an error of {plan.error:g}, start with about {whole(plan.budgets[0].labels):,} "
    sure = [budget for budget in plan.budgets if budget.known and whole(budget.labels) < plan.items]
    if not sure:
        return text + "labels; the bounds ask for the whole pool or more, which is not unusual"
    best = min(sure, key=lambda budget: budget.labels)
    return text + f"labels; {whole(best.labels):,} with {best.method} are enough by its bound"


def _describe_pool_size(plan: Plan) -> str:
    if plan.items >= plan.pool_proved:
        return f"{plan.items:,} items are provably enough to represent their distribution"
    if plan.items >= plan.pool_printed:
        return (
            f"{plan.items:,} items are as many as the bound asks for "
            f"({whole(plan.pool_printed):,}), with its constants taken as 1"
        )
    return (
        f"the bound asks for {whole(plan.pool_printed):,} items but there are "
        f"{plan.items:,}: rare directions may be missing, add unlabelled items"
    )
