r"""Kernel herding: a batch distributed like the pool, by the maximum mean discrepancy (MMD).

With :math:`C` the labelled and already picked items, the next pick is

.. math::
    \arg\max_i \; \frac1n \sum_{j} k(i, j)
        - \frac{1}{|C| + 1} \Bigl( \sum_{c \in C} k(i, c) + \tfrac12 k(i, i) \Bigr) ,

the item that brings the mean of the kernel over :math:`C` closest to its mean over the candidates.
The kernel is :math:`k(i, j) = \exp(-|x_i - x_j|^2 / 2 h^2)`; without ``bandwidth``, ``h`` is the
median distance between two items (of 1,000 drawn ones in a larger pool). The mean over a pool of
more than ``references`` candidates is estimated from that many drawn ones, as ``info`` reports.

Cost: ``n`` times ``references`` kernels once, then one pass over the features per pick, in
float64; memory ``O(n)``.

Reference: Y. Chen, M. Welling, A. Smola, "Super-Samples from Kernel Herding", UAI 2010;
R. Chattopadhyay, Z. Wang, W. Fan, I. Davidson, S. Panchanathan, J. Ye, "Batch Mode Active Sampling
Based on Marginal Probability Distribution Matching", KDD 2012.
"""

from typing import NamedTuple

import numpy as np

from labelwise.arrays import (
    Array,
    Floats,
    Ids,
    float64,
    like,
    namespace,
    squared_norms,
    to_numpy,
)
from labelwise.errors import BadInput
from labelwise.kernels.checks import check_integer, check_positive
from labelwise.kernels.distance.gaussian import kernel_sums, median_distance
from labelwise.kernels.distance.similarity import choose_by_hash
from labelwise.kernels.float64_blocks import iterate_float64_chunks
from labelwise.kernels.scaling import apply_scale, scale_near_one
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, GreedyStrategy, Job, read_reference

BANDWIDTH_ITEMS = 1000  # Items for the median distance
NOISE_REFERENCES, NOISE_BANDWIDTH = 0, 1  # Noise streams


class HerdingPlan(NamedTuple):
    """The kernel, the number of chosen items, and the references (until all blocks have started).

    Features, references and bandwidth are multiplied by ``unit``, which does not change the kernel,
    so that squared distances neither overflow nor underflow.
    """

    bandwidth: float
    unit: float
    chosen: int
    references: Floats | None
    reference_count: int
    exact: bool


class HerdingState(NamedTuple):
    """All ``(n,)``: squared norms, mean kernel with the references, sum over the chosen items."""

    norms: Array
    mean: Array
    chosen: Array


def begin_herding(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    bandwidth: float | None = None,
    references: int = 2000,
) -> HerdingPlan:
    """Draw the references and fix the bandwidth.

    Options:
        bandwidth: h of the kernel, above 0; None for the median distance between items.
        references: number of drawn items that estimate the mean of the pool.
    """
    if bandwidth is None:
        bandwidth = median_distance(draw_features(shards, BANDWIDTH_ITEMS, seed, NOISE_BANDWIDTH))
    points = draw_features(shards, references, seed, NOISE_REFERENCES)
    chosen = 0 if labelled is None else len(labelled["features"])
    unit = scale_near_one(bandwidth)
    exact = len(points) == len(shards)
    plan = HerdingPlan(bandwidth * unit, unit, chosen, None, len(points), exact)
    return plan._replace(references=_scale_herding_features(points, plan)[0])


def check_herding_job(job: Job) -> None:
    """Reject a bandwidth or a number of references out of range."""
    if job.options["bandwidth"] is not None:
        check_positive("bandwidth", job.options["bandwidth"])
    check_integer("references", job.options["references"], 1)


def draw_features(shards: Shards, count: int, seed: int, stream: int) -> Floats:
    """Features of ``count`` items drawn uniformly (or of all), in the order of their ids."""
    ids = choose_by_hash(shards.ids, count, stream, seed=seed)
    return to_numpy(float64(shards.rows(ids)["features"]))


def start_herding(rows: Rows, labelled: Rows | None, plan: HerdingPlan) -> HerdingState:
    """Compare every row with the references and the labelled items."""
    features, norms = _scale_herding_features(rows["features"], plan)
    mean = kernel_sums(features, norms, like(plan.references, features), plan.bandwidth)
    mean = mean / plan.reference_count
    if labelled is None:
        return HerdingState(norms, mean, namespace(mean).zeros_like(mean))
    known, _ = _scale_herding_features(labelled["features"], plan)
    return HerdingState(norms, mean, kernel_sums(features, norms, known, plan.bandwidth))


def _scale_herding_features(features: Array, plan: HerdingPlan) -> tuple[Array, Array]:
    """Features in the plan's unit and their squared norms in float64, ``(n,)``."""
    xp = namespace(features)
    with np.errstate(over="ignore"):
        features = apply_scale(features, plan.unit)
        norms = xp.concat([squared_norms(part) for (part,) in iterate_float64_chunks(features)])
    if bool(xp.any(xp.isinf(norms))):
        raise BadInput(
            f"features are too large for a bandwidth of {plan.bandwidth / plan.unit:.3g}: their "
            "squares overflow float64; give a larger bandwidth"
        )
    return features, norms


def score_herding(state: HerdingState, plan: HerdingPlan) -> Array:
    """The decrease of the distance between batch and pool by each item, ``(n,)``."""
    return state.mean - (state.chosen + 0.5) / (plan.chosen + 1)


def bound_herding_rounding(state: HerdingState) -> Array:
    """Rounding of kernels, which are at most 1, ``(n,)``."""
    return namespace(state.mean).full_like(state.mean, 1e-12)


def advance_herding(plan: HerdingPlan, picked: Rows) -> HerdingPlan:
    """Count one pick."""
    return plan._replace(chosen=plan.chosen + len(picked["features"]), references=None)


def add_to_herding(
    state: HerdingState, rows: Rows, picked: Rows, plan: HerdingPlan
) -> HerdingState:
    """Count new picks in a block."""
    features, new = (apply_scale(some["features"], plan.unit) for some in (rows, picked))
    kernels = kernel_sums(features, state.norms, new, plan.bandwidth)
    return state._replace(chosen=state.chosen + kernels)


def finish_herding(plan: HerdingPlan, shards: Shards, ids: Ids) -> Choice:
    """Report the kernel and how the mean of the pool was computed."""
    bandwidth, references = plan.bandwidth / plan.unit, plan.reference_count
    info = {"bandwidth": bandwidth, "references": references, "exact_mean": plan.exact}
    return Choice(ids, info=info)


def estimate_herding_cost(job: Job) -> Cost:
    """Products with the references, and a pass per pick."""
    references = min(job.options["references"], job.items)
    return Cost(
        passes=(job.budget, job.budget + 2),
        columns=references + 8 * job.budget,
        item_bytes=72.0 + job.picked_bytes,
        state_bytes=48.0 + job.picked_bytes,
        held_bytes=32.0 * references * job.width() + 160.0 * BANDWIDTH_ITEMS**2,
    )


STRATEGY = GreedyStrategy(
    name="herding",
    needs=("features",),
    begin=begin_herding,
    start=start_herding,
    score=score_herding,
    add=add_to_herding,
    advance=advance_herding,
    finish=finish_herding,
    slack=bound_herding_rounding,
    good_for="a first batch that looks like the pool, without any model of the classes",
    reference=read_reference(__doc__),
    cost=estimate_herding_cost,
    check=check_herding_job,
    explain="With it, the batch resembles the whole pool more closely.",
)
