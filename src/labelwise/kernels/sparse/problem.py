r"""Batch selection as sparse approximation: the problem and what an answer to it is worth.

With mean vectors :math:`\bar\varphi_j` and deviations :math:`\sigma_j` of the ``n`` candidates
(`kernels.sparse.label_gradients`) and a budget ``b``, find a set :math:`S` of ``b`` items and
weights :math:`w \ge 0` on it that make

.. math::
    f = \underbrace{\lVert v - \Phi w \rVert^2 + \beta \lVert w_S - 1 \rVert^2}_{f_1}
        \; \underbrace{- \sum_{j \in S} \alpha \sigma_j^2}_{f_2} , \qquad
    v = \frac1n \sum_j \bar\varphi_j , \quad \Phi = \frac1b [\bar\varphi_1 \dots \bar\varphi_n]

small. The constant :math:`\beta (n - b)` of the items left out is dropped, and :math:`f_2` counts
all of ``S``, also items of weight 0: their labels are bought as well.

Features that are not of ordinary size are multiplied by a number :math:`s`
(`labelwise.kernels.scaling`), and :math:`\beta` by :math:`s^2`: that multiplies :math:`f` by
:math:`s^2` and changes neither picks nor weights. What is reported is in the units that were given.

The matrix of all vectors is never formed. A vector is a Kronecker row, a combination of them is a
``(K, d)`` matrix, and what concerns ``S`` alone lives on the host, in float64.

Reference: M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the Perspective of
Sparse Approximation", 2022, SparseProblem 2.
"""

import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import (
    Array,
    Floats,
    Ids,
    bring,
    comparable,
    largest,
    namespace,
    to_numpy,
    workplace,
)
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.kernels.distance.factored import Factored, squared_norms, weighted_sum
from labelwise.kernels.float64_blocks import iterate_float64_chunks
from labelwise.kernels.scaling import binary_exponent, find_scale
from labelwise.kernels.sparse.label_gradients import (
    SAME_TEMPERATURE,
    LabelLaw,
    is_bayesian,
    label_gradients,
)
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice

SIGMA_SCALES = ("none", "paper")
ZERO = 1e-12
"""Mean vectors this much shorter than the features are rounding."""
DROWNED = 1e-12
"""Beside beta, less than this fraction of it is rounding."""
STRONGEST, SHORTEST = 100, -460
"""In other units, beta is two to this power at most, and features to this one at least."""


class ObjectiveTerms(NamedTuple):
    """How the three parts of the objective are weighed; None takes the solver's default.

    Attributes:
        alpha: weight of the variances.
        relative_alpha: instead of ``alpha``, free of units: the reward of an item of high variance
            as a fraction of ``|v|^2``.
        beta: pull of the weights towards 1.
        sigma_scale: ``none``, or ``paper`` to divide the deviations by n.
    """

    alpha: float | None = None
    relative_alpha: float | None = None
    beta: float | None = None
    sigma_scale: str = "none"

    def check(self) -> "ObjectiveTerms":
        """Refuse values that make no sense."""
        for name in ("alpha", "relative_alpha", "beta"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise BadInput(f"{name} must be 0 or more; got {value}")
        if self.alpha is not None and self.relative_alpha is not None:
            raise BadInput("alpha and relative_alpha say the same thing; give one of them")
        if self.sigma_scale not in SIGMA_SCALES:
            choices = ", ".join(SIGMA_SCALES)
            raise BadInput(f"sigma_scale must be one of {choices}; got {self.sigma_scale!r}")
        return self


class SparseProblem(NamedTuple):
    """What the objective is made of; small, and sent to every block.

    Attributes:
        law: how the unknown labels are distributed, and the unit of the features.
        mode: ``last_layer`` or ``bayesian``.
        n: how many candidates there are.
        budget: how many are picked, ``b``.
        target: ``v`` as a ``(K, d)`` matrix on the host.
        alpha: weight of the variances, for deviations without the factor ``1/n``.
        beta: pull of the weights towards 1, in the unit of the law.
        given_beta: the same as it was given.
        worth: about what an item adds to or takes off the objective beside that, as it was given.
        void: why all mean vectors are zero, or an empty string.
    """

    law: LabelLaw
    mode: str
    n: int
    budget: int
    target: Floats
    alpha: float
    beta: float
    given_beta: float
    worth: float
    void: str

    @property
    def keeps_features(self) -> bool:
        """Whether the second factors of the vectors are not the features as they are."""
        return self.mode == "bayesian" or self.law.unit != 1

    @property
    def square(self) -> float:
        """What squares of vectors are divided by to be in the units that were given."""
        return self.law.unit**2

    def residual(self, vectors: Factored, weights: Array) -> Array:
        """``Phi w - v`` for weights on the given vectors, ``(K, d)``."""
        return weighted_sum(vectors, weights) / self.budget - bring(self.target, vectors.h)


def pose_problem(
    shards: Shards,
    budget: int,
    law: LabelLaw,
    terms: ObjectiveTerms,
    defaults: Mapping[str, tuple[float, float]],
) -> SparseProblem:
    """Set up the problem in one pass over the rows.

    Args:
        shards: the candidates.
        budget: how many to pick.
        law: how the unknown labels are distributed.
        terms: the weights of the objective.
        defaults: the solver's ``(alpha, beta)`` for ``last_layer`` and ``bayesian`` vectors.
    """
    law, terms = law.check(), terms.check()
    mode = "bayesian" if all(shards.map(_is_bayesian)) else "last_layer"
    beta = defaults[mode][1] if terms.beta is None else terms.beta
    n, (total, energy, scale, variance) = len(shards), shards.sum(_totals, law)
    if mode == "last_layer" and (unit := _unit(shards, scale / n, beta)) != 1:
        law = law._replace(unit=unit)
        total, energy, scale, variance = shards.sum(_totals, law)
    target = total / n
    alpha = defaults[mode][0] if terms.alpha is None else terms.alpha
    if terms.sigma_scale == "paper":
        alpha = alpha / n**2
    if terms.relative_alpha is not None:
        mean = float(find_largest_variances(shards, law, budget)[1].mean())
        alpha = terms.relative_alpha * float(np.vdot(target, target)) / mean if mean > 0 else 0.0
    void = "" if energy > ZERO**2 * scale else "all expected gradients are zero"
    if mode == "last_layer" and law.kind == "calibrated":
        if abs(math.log(law.temperature)) < SAME_TEMPERATURE:
            void = "at temperature 1 all expected gradients are zero"
    worth = (energy / budget + alpha * variance) / n / law.unit**2
    return SparseProblem(law, mode, n, budget, target, alpha, beta * law.unit**2, beta, worth, void)


def _unit(shards: Shards, square: float, beta: float) -> float:
    """What features are multiplied by, so that neither their squares nor beta leave float64."""
    unit = find_scale(shards, square)
    if unit == 1 or beta == 0:
        return unit
    power = binary_exponent(unit) - 1
    held = min(power, (STRONGEST - binary_exponent(beta)) // 2)
    if held - power < SHORTEST:
        raise BadInput(
            f"features are up to {1 / unit:.3g}, too small for beta {beta}; multiply all features "
            "by a number that brings them near 1, or give a smaller beta"
        )
    return 2.0**held


def warn_if_degenerate(problem: SparseProblem, name: str) -> None:
    """Say that only the variances will decide."""
    if problem.void:
        warnings.warn(
            f"{name}: {problem.void}, so the items of largest variance are picked, all with the "
            "same weight; fit a temperature on held-out labels or set label_law",
            LabelwiseWarning,
            stacklevel=2,
        )


def check_beta(problem: SparseProblem, name: str) -> None:
    """Refuse a beta beside which no item can be told from another."""
    if problem.worth < DROWNED * problem.given_beta and not problem.void:
        raise BadInput(
            f"{name}: beta is {problem.given_beta}, beside which what tells the items apart, about "
            f"{problem.worth:.1g}, is rounding; give a smaller beta or multiply the features"
        )


def _is_bayesian(shard: Shard) -> bool:
    return is_bayesian(shard.rows)


def _totals(shard: Shard, law: LabelLaw) -> tuple[Floats, float, float, float]:
    """Sums of mean vectors, of their squares, of what those are compared with, of variances."""
    with np.errstate(over="ignore", invalid="ignore"):  # features may be of any size
        return _added(shard, law)


def _added(shard: Shard, law: LabelLaw) -> tuple[Floats, float, float, float]:
    vectors, deviations = label_gradients(shard.rows, law)
    total, energy, scale = np.zeros((vectors.a.shape[1], vectors.h.shape[1])), 0.0, 0.0
    for a, h in iterate_float64_chunks(vectors.a, vectors.h):
        xp = namespace(h)
        total += to_numpy(xp.matmul(xp.matrix_transpose(a), h))
        energy += float(xp.sum(squared_norms(Factored(a, h))))
        scale += float(h.shape[0] if is_bayesian(shard.rows) else xp.sum(squared_norms(h)))
    return total, energy, scale, float(deviations @ deviations)


def _largest_variances(shard: Shard, law: LabelLaw, budget: int) -> tuple[Ids, Floats]:
    variances = comparable(to_numpy(label_gradients(shard.rows, law)[1]) ** 2)
    best = largest(variances, min(budget, len(shard)), shard.ids)
    return shard.ids[best], variances[best]


def find_largest_variances(shards: Shards, law: LabelLaw, budget: int) -> tuple[Ids, Floats]:
    """The items of largest variance and their variances, largest first."""
    parts = shards.map(_largest_variances, law, budget)
    ids, variances = (np.concatenate(column) for column in zip(*parts, strict=True))
    best = largest(variances, budget, ids)
    return ids[best], variances[best]


def compute_vectors(
    rows: Rows, law: LabelLaw, place: Array | None = None
) -> tuple[Factored, Array]:
    """Vectors and variances of a few items in float64, where ``place`` is.

    That is where small work is best done beside the rows (`arrays.workplace`) if None.
    """
    if place is None:
        place = workplace(next(iter(rows.values())))
    vectors, deviations = label_gradients(rows, law)
    return Factored(bring(vectors.a, place), bring(vectors.h, place)), bring(deviations, place) ** 2


def compute_host_vectors(rows: Rows, law: LabelLaw) -> tuple[Factored, Floats]:
    """Vectors and variances of a few items, on the host in float64."""
    return compute_vectors(rows, law, np.empty(0))


def build_choice(
    problem: SparseProblem,
    ids: Ids,
    found: tuple[Factored, Array],
    weights: Floats,
    facts: Mapping[str, Any],
) -> Choice:
    """The picks with their weights on the sum scale and the objective they reach.

    Args:
        problem: the objective.
        ids: ``(b,)``.
        found: vectors and variances of the picks (`compute_vectors`).
        weights: ``(b,)``, as they stand in the objective.
        facts: what else there is to say.
    """
    vectors, variances = found
    residual = problem.residual(vectors, bring(weights, vectors.h))
    xp = namespace(residual)
    both = xp.stack([xp.sum(residual * residual), xp.sum(variances)])
    bias, variance = to_numpy(both).tolist()
    bias, variance = bias / problem.square, variance / problem.square
    f1 = bias + problem.given_beta * float(((weights - 1) ** 2).sum())
    f2 = -problem.alpha * variance
    info = {
        "mode": problem.mode,
        "f": f1 + f2,
        "f1": f1,
        "f2": f2,
        "bias": bias,
        "bias_without_picks": float(np.vdot(problem.target, problem.target)) / problem.square,
        "alpha": problem.alpha,
        "beta": problem.given_beta,
        "raw_weights": {
            "smallest": float(weights.min()),
            "mean": float(weights.mean()),
            "largest": float(weights.max()),
            "zero": int((weights == 0).sum()),
        },
        **({} if problem.mode == "bayesian" else problem.law.facts()),
        **({"fallback": problem.void} if problem.void else {}),
        **facts,
    }
    return Choice(ids, problem.n * weights / problem.budget, info=info)
