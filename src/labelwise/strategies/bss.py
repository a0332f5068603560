r"""Randomized BSS: draw few items whose weighted features approximate those of the whole pool.

Items are drawn one after the other, each with probability proportional to
:math:`v_i^\top [(uI - B)^{-1} + (B - lI)^{-1}] v_i`, where :math:`v_i` are the whitened features
and :math:`B` is the weighted Gram matrix of the draws so far, kept between two rising barriers
:math:`l` and :math:`u` (`kernels.linear.bss`). Unlike leverage or Lewis draws it needs no factor
:math:`\log d`: no direction of the features is missed. The weighted least squares fit on the picks
has an expected excess error of at most :math:`\epsilon` times the smallest possible error.

With ``mode="budget"`` draws stop at that many different items. With ``mode="theory"`` they stop
when the guarantee for ``epsilon`` holds, and the budget is an upper limit.

Cost: three passes over the features, ``O(n d^2)``, then independent of ``n``.

Reference: "Sample Complexity of Deep Active Learning", submitted to ICLR 2022, and its revision
X. Chen, Z. Song, B. Sun, J. Yin, D. Zhuo, "Query Complexity of Active Learning for Function Family
With Nearly Orthogonal Basis", 2023. X. Chen, E. Price, "Active Regression via Linear-Sample
Sparsification", COLT 2019.
"""

import warnings

from labelwise.arrays import Floats
from labelwise.errors import LabelwiseWarning
from labelwise.files import JsonObject
from labelwise.kernels.checks import check_boolean, check_choice
from labelwise.kernels.linear.bases import (
    ModelColumns,
    SubdividedShards,
    check_fourier_basis,
    check_polynomial_basis,
    make_fourier_basis,
    make_polynomial_basis,
)
from labelwise.kernels.linear.bss import (
    BssDraws,
    draw_bss_by_budget,
    draw_bss_by_theory,
    theory_gamma,
    warn_few_bss_labels,
)
from labelwise.kernels.linear.leverage import whiten
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PassStrategy, read_reference

MODES = ("budget", "theory")
BASES = ("features", "polynomial", "fourier")


def choose_bss_batch(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    mode: str = "budget",
    epsilon: float = 0.1,
    basis: str = "features",
    bias: bool = True,
    degree: int = 2,
    frequencies: int = 128,
    length_scale: float | None = None,
    rtol: float | None = None,
) -> Choice:
    """Draw the picks.

    Options:
        mode: ``"budget"`` or ``"theory"``.
        epsilon: the relative excess error, for theory mode.
        basis: ``"features"``, ``"polynomial"`` or ``"fourier"``: the columns of the linear model.
        bias: whether the linear model has a constant column.
        degree: the highest degree of the polynomial basis.
        frequencies: the number of columns of the Fourier basis.
        length_scale: of the Fourier basis; None measures it.
        rtol: singular values up to this fraction of the largest count as zero; by default it
            follows the precision of the features.
    """
    shards = SubdividedShards(shards)
    columns = _make_bss_columns(shards, basis, bias, degree, frequencies, length_scale, seed)
    transform = whiten(shards, columns, rtol=rtol, principal=True).transform
    info: JsonObject = {"mode": mode, "basis": basis, "columns": len(transform)}
    if mode == "theory":
        gamma = theory_gamma(epsilon)
        draws = draw_bss_by_theory(shards, columns, transform, gamma=gamma, most=budget, seed=seed)
        info |= {"epsilon": epsilon, "unused_budget": budget - len(draws.ids)}
    else:
        transform, said = _limit_bss_directions(transform, budget, len(shards))
        draws = draw_bss_by_budget(shards, columns, transform, budget=budget, seed=seed)
        info |= said
    return Choice(draws.ids, draws.weights, draws.counts, info=info | _summarize_bss_draws(draws))


def check_bss_job(job: Job) -> None:
    """Reject options out of range; those of a basis or mode only where it is used."""
    options = job.options
    check_choice("mode", options["mode"], MODES)
    check_choice("basis", options["basis"], BASES)
    check_boolean("bias", options["bias"])
    if options["basis"] == "polynomial":
        check_polynomial_basis(options["degree"], job.width())
    if options["basis"] == "fourier":
        check_fourier_basis(options["frequencies"], options["length_scale"])
    if options["mode"] == "theory":
        theory_gamma(options["epsilon"])


def _make_bss_columns(
    shards: Shards,
    basis: str,
    bias: bool,
    degree: int,
    frequencies: int,
    length_scale: float | None,
    seed: int,
) -> ModelColumns:
    if basis == "polynomial":
        return ModelColumns(make_polynomial_basis(shards, degree, centred=bias), bias)
    if basis == "fourier":
        return ModelColumns(
            make_fourier_basis(shards, frequencies, length_scale=length_scale, seed=seed), bias
        )
    return ModelColumns(None, bias)


def _limit_bss_directions(transform: Floats, budget: int, n: int) -> tuple[Floats, JsonObject]:
    """The directions that the budget can cover, and diagnostics."""
    rank = transform.shape[1]
    if rank <= budget or budget == n:
        few = warn_few_bss_labels(rank, budget, n)
        return transform, {"caution": "fewer than 3 labels per direction"} if few else {}
    kept = max(1, budget // 3)
    warnings.warn(
        f"budget is {budget} but the columns have rank {rank}; bss keeps only the {kept} first "
        f"principal directions, ask for {rank} or more to keep all",
        LabelwiseWarning,
        stacklevel=2,
    )
    return transform[:, :kept], {"reduced_from_rank": rank}


def _summarize_bss_draws(draws: BssDraws) -> JsonObject:
    """The kernel's diagnostics without those that have an entry per round."""
    kept = dict(draws.info)
    upper, lower = kept.pop("barriers")
    betas = kept.pop("betas")
    kept.pop("potentials")
    return kept | {"barriers": [upper[-1:], lower[-1:]], "beta_sum": float(sum(betas))}


def estimate_bss_cost(job: Job) -> Cost:
    """The Gram matrix (twice if it is badly conditioned), leverage, and means of a basis."""
    more = 0 if job.options["basis"] == "features" else 3
    width = job.width() if not more else max(job.width(), job.options["frequencies"])
    return Cost(
        passes=(2, 4 + more),
        usual=2 + more,
        columns=2 * (width + job.budget),
        item_bytes=72.0,
        held_bytes=job.gram_bytes,
    )


STRATEGY = PassStrategy(
    name="bss",
    needs=("features",),
    several=True,
    weighted=True,
    draws=True,
    choose=choose_bss_batch,
    good_for="least squares and linear heads where no direction of the features may be missed",
    reference=read_reference(__doc__),
    cost=estimate_bss_cost,
    check=check_bss_job,
    explain="Drawn by how unusual its features are{weight}.",
)
