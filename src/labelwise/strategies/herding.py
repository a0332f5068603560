r"""Kernel herding: a batch distributed like the pool, by the maximum mean discrepancy (MMD).

With :math:`C` the labelled and already picked items, the next pick is

.. math::
    \arg\max_i \; \frac1n \sum_{j} k(i, j)
        - \frac{1}{|C| + 1} \Bigl( \sum_{c \in C} k(i, c) + \tfrac12 k(i, i) \Bigr) ,

the item that brings the mean of the kernel over :math:`C` closest to its mean over the candidates.
The kernel is :math:`k(i, j) = \exp(-|x_i - x_j|^2 / 2 h^2)`; without ``bandwidth``, ``h`` is the
median distance between two items (of 1,000 drawn ones in a larger pool).

The mean over the pool is exact up to ``references`` candidates. In a larger pool it is taken over
that many drawn ones, and ``info`` says so.

Cost: ``n`` times ``references`` kernels once, then one pass over the features per pick, in
float64; memory ``O(n)``.

References: Y. Chen, M. Welling, A. Smola, "Super-Samples from Kernel Herding", UAI 2010;
R. Chattopadhyay, Z. Wang, W. Fan, I. Davidson, S. Panchanathan, J. Ye, "Batch Mode Active Sampling
Based on Marginal Probability Distribution Matching", KDD 2012.
"""

import math
from typing import NamedTuple

import numpy as np

from labelwise.arrays import (
    Array,
    Floats,
    Ids,
    float64,
    like,
    namespace,
    row_noise,
    squared_norms,
    to_numpy,
)
from labelwise.blocks import Rows, Shards
from labelwise.errors import BadInput
from labelwise.kernels.doubles import double_chunks
from labelwise.kernels.gaussian import kernel_sums, median_distance
from labelwise.strategy import Choice, Cost, GreedyStrategy, Job

BANDWIDTH_ITEMS = 1000
"""How many items the median distance is taken over."""
NOISE_REFERENCES, NOISE_BANDWIDTH = 0, 1
"""Streams of the draws."""


class Plan(NamedTuple):
    """The kernel, how many items are chosen, and the references (until all blocks have started)."""

    bandwidth: float
    chosen: int
    references: Floats | None
    reference_count: int
    exact: bool


class State(NamedTuple):
    """All ``(n,)``: squared norms, mean kernel with the references, sum over the chosen items."""

    norms: Array
    mean: Array
    chosen: Array


def begin(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    bandwidth: float | None = None,
    references: int = 2000,
) -> Plan:
    """Draw the references and settle the bandwidth."""
    if bandwidth is not None and not 0 < bandwidth < math.inf:
        raise BadInput(f"bandwidth must be a number above 0; got {bandwidth}")
    if references < 1:
        raise BadInput(f"references must be 1 or more; got {references}")
    if bandwidth is None:
        bandwidth = median_distance(drawn(shards, BANDWIDTH_ITEMS, seed, NOISE_BANDWIDTH))
    points = drawn(shards, references, seed, NOISE_REFERENCES)
    chosen = 0 if labelled is None else len(labelled["features"])
    return Plan(bandwidth, chosen, points, len(points), len(points) == len(shards))


def drawn(shards: Shards, count: int, seed: int, stream: int) -> Floats:
    """Features of ``count`` items drawn evenly (or of all), in the order of their ids."""
    ids = np.sort(shards.ids)
    if count < len(ids):
        noise = row_noise(seed, ids, stream)
        ids = np.sort(ids[np.argpartition(noise, count - 1)[:count]])
    return to_numpy(float64(shards.rows(ids)["features"]))


def start(rows: Rows, labelled: Rows | None, plan: Plan) -> State:
    """Measure every row against the references and the labelled items."""
    features = rows["features"]
    norms = namespace(features).concat([squared_norms(part) for (part,) in double_chunks(features)])
    mean = kernel_sums(features, norms, like(plan.references, features), plan.bandwidth)
    mean = mean / plan.reference_count
    if labelled is None:
        return State(norms, mean, namespace(mean).zeros_like(mean))
    return State(norms, mean, kernel_sums(features, norms, labelled["features"], plan.bandwidth))


def score(state: State, plan: Plan) -> Array:
    """How much closer the batch would come to the pool, ``(n,)``."""
    return state.mean - (state.chosen + 0.5) / (plan.chosen + 1)


def slack(state: State) -> Array:
    """Rounding of kernels, which are at most 1, ``(n,)``."""
    return namespace(state.mean).full_like(state.mean, 1e-12)


def advance(plan: Plan, picked: Rows) -> Plan:
    """Count one pick."""
    return plan._replace(chosen=plan.chosen + len(picked["features"]), references=None)


def add(state: State, rows: Rows, picked: Rows, plan: Plan) -> State:
    """Count new picks in a block."""
    new = kernel_sums(rows["features"], state.norms, picked["features"], plan.bandwidth)
    return state._replace(chosen=state.chosen + new)


def finish(plan: Plan, shards: Shards, ids: Ids) -> Choice:
    """Report the kernel and how the pool's mean was taken."""
    return Choice(
        ids,
        info={
            "bandwidth": plan.bandwidth,
            "references": plan.reference_count,
            "exact_mean": plan.exact,
        },
    )


def _cost(job: Job) -> Cost:
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
    begin=begin,
    start=start,
    score=score,
    add=add,
    advance=advance,
    finish=finish,
    slack=slack,
    good_for="a first batch that looks like the pool, without any model of the classes",
    reference="Chen, Welling and Smola, Super-Samples from Kernel Herding, UAI 2010",
    cost=_cost,
)
