r"""Batch selection as sparse approximation: the objective and the value of a batch.

With mean vectors :math:`\bar\varphi_j` and deviations :math:`\sigma_j` of the ``n`` candidates
(`kernels.sparse.label_gradients`) and a budget ``b``, find a set :math:`S` of ``b`` items and
weights :math:`w \ge 0` on it that minimize

.. math::
    f = \underbrace{\lVert v - \Phi w \rVert^2 + \beta \lVert w_S - 1 \rVert^2}_{f_1}
        \; \underbrace{- \sum_{j \in S} \alpha \sigma_j^2}_{f_2} , \qquad
    v = \frac1n \sum_j \bar\varphi_j , \quad \Phi = \frac1b [\bar\varphi_1 \dots \bar\varphi_n] .

The constant :math:`\beta (n - b)` of the items left out is dropped, and :math:`f_2` counts all of
``S``, including items of weight 0: their labels are paid for as well.

Features of extreme size are multiplied by a power of two :math:`s` (`labelwise.kernels.scaling`)
and :math:`\beta` by :math:`s^2`. That multiplies :math:`f` by :math:`s^2` and changes neither picks
nor weights; reported values are divided by :math:`s^2`.

Vectors stay Kronecker rows and a combination of them is a ``(K, d)`` matrix; ``Phi`` is never
formed. Setting up costs one pass over the rows, ``O(n K d)``.

Reference: M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the Perspective of
Sparse Approximation", 2022, Problem 2.
"""

import math
import warnings
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from labelwise.arrays import Array, Floats, Ids, bring, comparable, largest, namespace, to_numpy
from labelwise.arrays import workplace as find_row_placement
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.files import Json
from labelwise.kernels.checks import check_choice
from labelwise.kernels.distance.embedding import Factored, squared_norms, weighted_sum
from labelwise.kernels.float64_blocks import iterate_float64_chunks
from labelwise.kernels.scaling import binary_exponent, find_scale
from labelwise.kernels.sparse.label_gradients import (
    SAME_TEMPERATURE,
    LabelLaw,
    label_gradients,
    uses_member_losses,
)
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice

SIGMA_SCALES = ("none", "paper")
ZERO_LENGTH = 1e-12  # Mean vectors shorter than this fraction of the features count as zero
RESOLUTION = 1e-12  # Contributions below this fraction of beta are lost to rounding
MAX_BETA_EXPONENT, MIN_FEATURE_EXPONENT = 100, -460
"""After scaling, beta is at most and features are at least two to these powers."""


class ObjectiveTerms(NamedTuple):
    """Weights of the three parts of the objective; None selects the solver's default."""

    alpha: float | None = None  # weight of the variances
    # Alternative to ``alpha`` that does not depend on the scale of the features: the reward of an
    # item of high variance as a fraction of ``|v|^2``
    relative_alpha: float | None = None
    beta: float | None = None  # strength that pulls the weights towards 1
    sigma_scale: str = "none"  # ``none``, or ``paper`` to divide the deviations by n

    def check(self) -> "ObjectiveTerms":
        """Reject values out of range."""
        for name in ("alpha", "relative_alpha", "beta"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise BadInput(f"{name} must be 0 or more; got {value}")
        if self.alpha is not None and self.relative_alpha is not None:
            raise BadInput("alpha and relative_alpha say the same thing; give one of them")
        check_choice("sigma_scale", self.sigma_scale, SIGMA_SCALES)
        return self


class SparseProblem(NamedTuple):
    """The objective; small, and sent to every block."""

    law: LabelLaw
    mode: str
    n: int
    budget: int
    target: Floats  # ``v`` as a ``(K, d)`` matrix on the host
    alpha: float  # weight of the variances, for deviations without the factor ``1/n``
    beta: float  # pull of the weights towards 1, multiplied by the squared scale
    given_beta: float  # beta before scaling
    item_value: float  # typical contribution of one item to the objective apart from beta, unscaled
    degenerate: str  # why all mean vectors are zero, or an empty string

    @property
    def copies_features(self) -> bool:
        """Whether the second factors of the vectors differ from the stored features."""
        return self.mode == "bayesian" or self.law.scale != 1

    @property
    def squared_scale(self) -> float:
        """Divisor that turns squares of scaled vectors into reported values."""
        return self.law.scale**2


def pose_sparse_problem(
    shards: Shards,
    budget: int,
    law: LabelLaw,
    terms: ObjectiveTerms,
    defaults: Mapping[str, tuple[float, float]],
) -> SparseProblem:
    """Set up the problem in one pass; ``defaults`` are ``(alpha, beta)`` by the kind of vectors."""
    law, terms = law.check(), terms.check()
    mode = "bayesian" if all(shards.map(lambda b: uses_member_losses(b.rows))) else "last_layer"
    beta = defaults[mode][1] if terms.beta is None else terms.beta
    n, (total, energy, reference, variance) = len(shards), shards.sum(_sum_gradient_block, law)
    if mode == "last_layer" and (scale := _choose_feature_scale(shards, reference / n, beta)) != 1:
        law = law._replace(scale=scale)
        total, energy, reference, variance = shards.sum(_sum_gradient_block, law)
    target = total / n
    alpha = defaults[mode][0] if terms.alpha is None else terms.alpha
    if terms.sigma_scale == "paper":
        alpha = alpha / n**2
    if terms.relative_alpha is not None:
        mean = float(find_largest_variances(shards, law, budget)[1].mean())
        alpha = terms.relative_alpha * float(np.vdot(target, target)) / mean if mean > 0 else 0.0
    degenerate = "" if energy > ZERO_LENGTH**2 * reference else "all expected gradients are zero"
    if mode == "last_layer" and law.kind == "calibrated":
        if abs(math.log(law.temperature)) < SAME_TEMPERATURE:
            degenerate = "at temperature 1 all expected gradients are zero"
    value = (energy / budget + alpha * variance) / n / law.scale**2
    scaled_beta = beta * law.scale**2
    return SparseProblem(law, mode, n, budget, target, alpha, scaled_beta, beta, value, degenerate)


def _choose_feature_scale(shards: Shards, square: float, beta: float) -> float:
    """Factor for the features that keeps their squares and beta within float64."""
    scale = find_scale(shards, square)
    if scale == 1 or beta == 0:
        return scale
    wanted = binary_exponent(scale) - 1
    exponent = min(wanted, (MAX_BETA_EXPONENT - binary_exponent(beta)) // 2)
    if exponent - wanted < MIN_FEATURE_EXPONENT:
        raise BadInput(
            f"features are up to {1 / scale:.3g}, too small for beta {beta}; multiply all features "
            "by a number that brings them near 1, or give a smaller beta"
        )
    return 2.0**exponent


def warn_degenerate_problem(problem: SparseProblem, name: str) -> None:
    """Warn that only the variances decide."""
    if problem.degenerate:
        warnings.warn(
            f"{name}: {problem.degenerate}, so the items of largest variance are picked, all with "
            "the same weight; fit a temperature on held-out labels or set label_law",
            LabelwiseWarning,
            stacklevel=2,
        )


def check_sparse_beta(problem: SparseProblem, name: str) -> None:
    """Reject a beta so large that float64 cannot tell the items apart."""
    if problem.item_value < RESOLUTION * problem.given_beta and not problem.degenerate:
        raise BadInput(
            f"{name}: beta is {problem.given_beta}; the items differ by about "
            f"{problem.item_value:.1g}, which is lost to rounding next to it; give a smaller beta "
            "or multiply the features"
        )


def _sum_gradient_block(shard: Shard, law: LabelLaw) -> tuple[Floats, float, float, float]:
    """Sums over a block: mean vectors, their squares, squares to compare with, variances."""
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow makes `find_scale` act
        vectors, deviations = label_gradients(shard.rows, law)
        total, energy, reference = np.zeros((vectors.a.shape[1], vectors.h.shape[1])), 0.0, 0.0
        for a, h in iterate_float64_chunks(vectors.a, vectors.h):
            xp = namespace(h)
            total += to_numpy(xp.matmul(xp.matrix_transpose(a), h))
            energy += float(xp.sum(squared_norms(Factored(a, h))))
            reference += float(
                h.shape[0] if uses_member_losses(shard.rows) else xp.sum(squared_norms(h))
            )
        return total, energy, reference, float(deviations @ deviations)


def _find_largest_block_variances(shard: Shard, law: LabelLaw, budget: int) -> tuple[Ids, Floats]:
    variances = comparable(to_numpy(label_gradients(shard.rows, law)[1]) ** 2)
    best = largest(variances, min(budget, len(shard)), shard.ids)
    return shard.ids[best], variances[best]


def find_largest_variances(shards: Shards, law: LabelLaw, budget: int) -> tuple[Ids, Floats]:
    """The items of largest variance and their variances, largest first."""
    parts = shards.map(_find_largest_block_variances, law, budget)
    ids, variances = (np.concatenate(column) for column in zip(*parts, strict=True))
    best = largest(variances, budget, ids)
    return ids[best], variances[best]


def compute_vectors(
    rows: Rows, law: LabelLaw, placement: Array | None = None
) -> tuple[Factored, Array]:
    """Vectors and variances of a few items in float64, on the device of ``placement`` if given."""
    if placement is None:
        placement = find_row_placement(next(iter(rows.values())))
    vectors, deviations = label_gradients(rows, law)
    moved = Factored(bring(vectors.a, placement), bring(vectors.h, placement))
    return moved, bring(deviations, placement) ** 2


def build_choice(
    problem: SparseProblem,
    ids: Ids,
    found: tuple[Factored, Array],
    weights: Floats,
    facts: Mapping[str, Json],
) -> Choice:
    """The picks, their weights on the sum scale, and the value of the objective.

    ``found`` are vectors and variances of the picks; ``weights`` enter the objective.
    """
    vectors, variances = found
    residual = weighted_sum(vectors, bring(weights, vectors.h)) / problem.budget
    residual = residual - bring(problem.target, vectors.h)
    xp = namespace(residual)
    sums = to_numpy(xp.stack([xp.sum(residual * residual), xp.sum(variances)]))  # one transfer
    bias, variance = (sums / problem.squared_scale).tolist()
    f1 = bias + problem.given_beta * float(((weights - 1) ** 2).sum())
    f2 = -problem.alpha * variance
    info = {
        "mode": problem.mode,
        "f": f1 + f2,
        "f1": f1,
        "f2": f2,
        "bias": bias,
        "bias_without_picks": float(np.vdot(problem.target, problem.target))
        / problem.squared_scale,
        "alpha": problem.alpha,
        "beta": problem.given_beta,
        "raw_weights": {
            "smallest": float(weights.min()),
            "mean": float(weights.mean()),
            "largest": float(weights.max()),
            "zero": int((weights == 0).sum()),
        },
        **({} if problem.mode == "bayesian" else problem.law.to_info()),
        **({"fallback": problem.degenerate} if problem.degenerate else {}),
        **facts,
    }
    return Choice(ids, problem.n * weights / problem.budget, info=info)
