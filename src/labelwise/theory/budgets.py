r"""Label budgets: number of labels that a method needs for a given error.

The error :math:`\epsilon` is relative: the expected excess error on the pool of a least-squares fit
to the weighted picks is at most :math:`\epsilon` times the smallest possible error.

*Randomized BSS* on features of rank ``d``, with :math:`\gamma = \min(\sqrt\epsilon / 3, 0.1165)`,
ends after about :math:`1.56\, d (1 - \gamma^2) / \gamma^2` draws.

*Lewis draws* with :math:`T = \sum_i \max_j w_i(U^j)`. For p = 2 two conditions suffice for every
model: :math:`m \ge 2 T / \epsilon` limits the weight of a single draw, and
:math:`m \ge T \log(20 d) / 0.0289` keeps the eigenvalues in [3/4, 5/4] with probability 0.9 (matrix
Chernoff bound). For every p the analysis of the paper requires

.. math:: m = \epsilon^{-4}\, T\, d^{\max(p/2 - 1, 0)} \log^2 d \, \log(d T / \epsilon) ,

and an improved analysis :math:`\epsilon^{-2}` instead of :math:`\epsilon^{-4}`. Their constants are
unknown and set to 1; logarithms are at least 1.

*Rule of thumb*: :math:`T / \epsilon`, as measured on noisy linear data; far below these bounds.

*Pool size*: with :math:`K = \sup_i n \tau_i`, :math:`\tau` the leverage, a pool represents its
distribution if it has :math:`K \log d + K / \epsilon` items; with the constants of the matrix
Chernoff bound, :math:`\max(K \log(20 d) / 0.0289, 2 K / \epsilon)`.

References: X. Chen, E. Price, "Active Regression via Linear-Sample Sparsification", COLT 2019;
"Sample Complexity of Deep Active Learning", submitted to ICLR 2022, Theorem 4.1, Lemmas 5.8, 5.9;
S. Huang, Y. Li, Y. Sun, Y. Tang, "One-shot Active Learning Based on Lewis Weight Sampling for
Multiple Deep Models", ICLR 2024, Corollary 3.7; J. Tropp, "User-friendly tail bounds for sums of
random matrices", Foundations of Computational Mathematics, 2012.
"""

import math
from dataclasses import dataclass

import numpy as np

from labelwise.arrays import Array, Floats
from labelwise.errors import BadInput
from labelwise.kernels.linear.bss import theory_gamma

_BSS_PACE = 1.56
"""Measured number of rounds of randomized BSS, divided by ``d (1 - gamma^2) / gamma^2``."""

_CHERNOFF = 1.25 * math.log(1.25) - 0.25
"""Chernoff exponent of an eigenvalue above 5/4; that of one below 3/4 is larger."""


@dataclass(frozen=True)
class Budget:
    """Label budget of one method.

    Attributes:
        method: name of the method.
        draws: number of draws with replacement.
        labels: number of distinct items drawn: the expected number if the distribution of the
            draws is known, otherwise the maximum.
        formula: formula of ``draws`` with its constants.
        guidance: kind of the number, for example a bound or a measurement.
        known: whether it is a bound with known constants.
    """

    method: str
    draws: float
    labels: float
    formula: str
    guidance: str
    known: bool = False


def label_budgets(
    *,
    rank: int,
    total: float,
    items: int,
    error: float,
    p: float = 2.0,
    directions: int | None = None,
    law: Floats | None = None,
) -> tuple[Budget, ...]:
    """Compute the label budget of each method.

    Args:
        rank: the largest rank among the models' features.
        total: ``T``, the sum over items of the largest Lewis weight of any model; the rank for one
            model.
        items: number of items in the pool, an upper limit on the labels.
        error: relative error, above 0 and at most 1.
        p: the norm of the loss.
        directions: rank of the concatenated features of all models, used by BSS; ``rank`` if None.
        law: ``(n,)``, largest Lewis weight of every item; if given, ``labels`` of Lewis draws is
            the expected number of distinct items.

    >>> for budget in label_budgets(rank=10, total=10.0, items=100_000, error=0.1)[:2]:
    ...     print(budget.method, round(budget.labels))
    rule of thumb 100
    bss 1388
    """
    check_budget_error(error)
    rank, wide = max(rank, 1), max(directions or rank, 1)
    total = max(total, 1.0)
    gamma = theory_gamma(error)
    found = [
        Budget(
            "rule of thumb",
            total / error,
            min(total / error, items),
            "T / error",
            "what is measured on noisy linear data, no bound",
        )
    ]
    rounds = _BSS_PACE * wide * (1 - gamma**2) / gamma**2
    formula = f"1.56 d (1 - g^2) / g^2, g = min(sqrt(error) / 3, 0.1165) = {gamma:.4f}, d = {wide}"
    found.append(
        Budget("bss", rounds, min(rounds, items), formula, "bound, measured constant", True)
    )
    if p == 2:
        draws = max(total * math.log(20 * rank) / _CHERNOFF, 2 * total / error)
        formula = "max(T log(20 d) / 0.0289, 2 T / error)"
        found.append(
            _lewis_budget("lewis", draws, items, law, formula, "bound, all constants known", True)
        )
    growth = total * rank ** max(p / 2 - 1, 0.0)
    logs = _log_at_least_one(rank) ** 2 * _log_at_least_one(rank * total / error)
    for power in (2, 4):
        formula = f"error^-{power} T d^max(p/2-1, 0) log(d)^2 log(d T / error)"
        text = "improved analysis" if power == 2 else "the paper's analysis"
        draws = growth * logs / error**power
        kind = f"{text}, constant unknown and taken as 1"
        found.append(_lewis_budget(f"lewis, 1/error^{power}", draws, items, law, formula, kind))
    return tuple(found)


def pool_size(*, rank: int, condition: float, error: float) -> tuple[float, float]:
    """Number of unlabelled items needed to represent their distribution.

    ``condition`` is ``K``, the largest leverage times the number of items. Returns ``K log d + K /
    error``, the bound with constants of 1, and the number that is sufficient by the matrix Chernoff
    bound.

    >>> [round(size) for size in pool_size(rank=10, condition=20.0, error=0.1)]
    [246, 3663]
    """
    check_budget_error(error)
    printed = condition * (_log_at_least_one(rank) + 1 / error)
    return printed, max(condition * math.log(20 * max(rank, 1)) / _CHERNOFF, 2 * condition / error)


def expected_distinct(law: Array, draws: float) -> float:
    """Expected number of distinct items in draws with probabilities proportional to ``law``.

    >>> import numpy as np
    >>> expected_distinct(np.ones(2), 2)
    1.5
    """
    weights = np.asarray(law, dtype=np.float64)
    shares = weights / weights.sum()
    with np.errstate(divide="ignore"):
        return float(-np.expm1(draws * np.log1p(-np.minimum(shares, 1.0))).sum())


def whole(value: float) -> int:
    """Round a number of items or labels up, ignoring excess within rounding error.

    >>> whole(160.0000001), whole(160.2)
    (160, 161)
    """
    return math.ceil(value * (1 - 1e-6))


def check_budget_error(error: float) -> None:
    """Reject an error outside (0, 1]."""
    if not 0 < error <= 1:
        raise BadInput(f"error must be above 0 and at most 1; got {error}")


def _lewis_budget(
    method: str,
    draws: float,
    items: int,
    law: Floats | None,
    formula: str,
    guidance: str,
    sure: bool = False,
) -> Budget:
    known = law is not None and law.sum() > 0
    labels = expected_distinct(law, draws) if known else min(draws, items)
    return Budget(method, draws, labels, formula, guidance, sure)


def _log_at_least_one(value: float) -> float:
    return max(math.log(max(value, 1.0)), 1.0)
