r"""Greedy sparse approximation: picks and weights whose mean gradient is that of the whole pool.

Looks for a weighted batch that makes :math:`\lVert v - \Phi w \rVert^2 + \beta \lVert w - 1
\rVert^2 - \alpha \sum_{j \in S} \sigma_j^2` small (`kernels.sparse.problem`): little bias,
weights near 1, and items whose labels are uncertain. With the residual :math:`R = \Phi w - v`, the
next pick is

.. math:: \arg\max_j \; \alpha \sigma_j^2 - 2 \tau \, \Phi_j \cdot R

(``gain="linear"``), or the item whose best weight lowers the objective most (``"exact"``). The
pick gets its best weight, and all weights are then de-biased: one exact gradient step on the
picked set, negative weights set to 0. At the end, ``polish`` finds the best weights of the set.

The vectors are last-layer gradients under a label law that is not the model's own softmax: at
``temperature`` 1 they vanish, and only the variances decide. With ``member_probabilities`` alone
they are the members' losses. Without ``alpha`` and ``beta`` the paper's values are used; those
depend on the scale of the features, and ``relative_alpha`` does not.

Cost: one pass over the features per pick, kept up to date from the products with the picks while
these fit in memory (`labelwise.kernels.sparse.greedy`), and :math:`O(b^2)` on the driver.

Reference: M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the Perspective of
Sparse Approximation", 2022, Algorithm 1.
"""

from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import Array, Floats, Ids, to_numpy
from labelwise.kernels.calibration import calibrate_temperature
from labelwise.kernels.checks import check_choice, check_integer, check_positive
from labelwise.kernels.placement import find_placement
from labelwise.kernels.sparse.greedy import (
    COLUMN_BYTES,
    GainRule,
    GreedyPursuit,
    GreedySparseState,
    exact_scores,
    start_block,
    update_block,
)
from labelwise.kernels.sparse.greedy_ahead import LookaheadPursuit
from labelwise.kernels.sparse.label_gradients import LabelLaw
from labelwise.kernels.sparse.problem import (
    ObjectiveTerms,
    build_choice,
    check_beta,
    compute_vectors,
    pose_problem,
    warn_if_degenerate,
)
from labelwise.kernels.sparse.weights import solve_best_weights
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import AheadPicker, Choice, Cost, GreedyStrategy, History, Job

DEFAULTS = {"last_layer": (1e-2, 0.1), "bayesian": (2.0, 0.5)}
"""The paper's ``(alpha, beta)``."""
REPRESENTS = "It belongs to a batch that represents the whole pool{weight}."
LEAST_HOLDOUT = 20
"""A temperature is fitted to at least this many held-out items."""


class Plan(NamedTuple):
    """The picks so far, and whether their weights are made best at the end."""

    pursuit: GreedyPursuit
    polish: bool


def begin(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    alpha: float | None = None,
    relative_alpha: float | None = None,
    beta: float | None = None,
    tau: float = 1.0,
    gain: str = "linear",
    debias_steps: int = 1,
    polish: bool = True,
    temperature: float = 1.0,
    label_law: str = "calibrated",
    rho: float = 0.1,
    sigma_scale: str = "none",
) -> Plan:
    """Set up the problem; its vectors are averaged in one pass.

    Options:
        alpha: weight of the uncertainty of the labels in the objective; None for the default.
        relative_alpha: instead of alpha, free of units: the reward of an item of high variance as
            a fraction of the objective without picks.
        beta: how strongly the weights are pulled towards 1; None for the default.
        tau: the step that a linear gain is worth.
        gain: how a pick is valued: "linear" as in the paper, or "exact", by its best weight.
        debias_steps: steps along the gradient of the weights after every pick.
        polish: whether the weights are made the best ones at the end.
        temperature: of the softmax that labels are assumed to follow; fit it on held-out labels.
        label_law: "calibrated" (softmax at another temperature) or "label_smoothing".
        rho: the mass that smoothing spreads evenly over the classes.
        sigma_scale: "none", or "paper" to divide the deviations by the number of items.
    """
    law, terms = (
        LabelLaw(label_law, temperature, rho),
        ObjectiveTerms(alpha, relative_alpha, beta, sigma_scale),
    )
    problem = pose_problem(shards, budget, law, terms, DEFAULTS)
    warn_if_degenerate(problem, "sparse_greedy")
    if gain == "exact":
        check_beta(problem, "sparse_greedy")
    pursuit = GreedyPursuit(problem, GainRule(gain, tau), debias_steps, find_placement(shards))
    return Plan(pursuit, polish)


def check_job(job: Job) -> None:
    """Reject options out of range."""
    check_choice("gain", job.options["gain"], ("linear", "exact"))
    check_positive("tau", job.options["tau"])
    check_integer("debias_steps", job.options["debias_steps"], 0)
    check_problem(job)


def check_problem(job: Job) -> None:
    """Reject the options that describe the problem; both solvers have them."""
    options = job.options
    LabelLaw(options["label_law"], options["temperature"], options["rho"]).check()
    ObjectiveTerms(*(options[name] for name in ObjectiveTerms._fields)).check()


def adapt_label_law(history: History) -> dict[str, Any]:
    """The temperature that fits held-out labels; without enough of them, smoothed labels.

    Under the model's own softmax all expected gradients vanish, so that nothing could be picked by
    them.
    """
    if not history.trained or {"label_law", "temperature", "rho"} & history.options.keys():
        return {}
    holdout = history.evaluate_holdout()
    if holdout is None or len(holdout[1]) < LEAST_HOLDOUT:
        return {"label_law": "label_smoothing", "rho": 0.1}
    return {"temperature": calibrate_temperature(*holdout)}


def start(rows: Rows, labelled: Rows | None, plan: Plan) -> GreedySparseState:
    """Compute the vectors of a block; labelled rows do not matter."""
    return start_block(rows, plan.pursuit)


def score(state: GreedySparseState, plan: Plan) -> Array:
    """How much each item would lower the objective, up to a constant, ``(n,)``."""
    return state.scores


def slack(state: GreedySparseState) -> Array:
    """How far rounding may have moved each score, ``(n,)``."""
    return state.slack


def exact(rows: Rows, labelled: Rows | None, picked: Rows | None, plan: Plan) -> Floats:
    """The scores of a few items in float64, ``(n,)``."""
    return exact_scores(rows, plan.pursuit)


def advance(plan: Plan, picked: Rows) -> Plan:
    """Weigh all picks anew, with the new one among them."""
    if not plan.pursuit.problem.degenerate:
        pursuit = plan.pursuit
        pursuit.add_pick(compute_vectors(picked, pursuit.problem.law, pursuit.weights)[0])
    return plan


def add(state: GreedySparseState, rows: Rows, picked: Rows, plan: Plan) -> GreedySparseState:
    """Bring the scores of a block up to date after one pick."""
    return state if plan.pursuit.problem.degenerate else update_block(state, rows, plan.pursuit)


def look_ahead(strategy: GreedyStrategy, shards: Shards, labelled: Rows | None) -> AheadPicker:
    """Make many picks at a time where the rows are; labelled rows do not matter."""
    return LookaheadPursuit(strategy, shards)


def finish(plan: Plan, shards: Shards, ids: Ids) -> Choice:
    """Make the weights the best ones and report the objective."""
    pursuit, problem = plan.pursuit, plan.pursuit.problem
    polished = plan.polish and not problem.degenerate
    weights = np.ones(len(ids)) if problem.degenerate else to_numpy(pursuit.weights)
    if polished:
        weights = solve_best_weights(pursuit.vectors, weights, problem)
    facts = {"gain": pursuit.gain.kind, "polished": polished}
    return build_choice(
        problem, ids, compute_vectors(shards.rows(ids), problem.law), weights, facts
    )


def _cost(job: Job) -> Cost:
    """Passes to set up, for the first scores, and one per pick; columns of picks are kept."""
    classes = max(job.width("logits"), job.width("probabilities"))
    members = sum(map(sum, job.shapes.get("member_probabilities", ())))
    products = min(job.budget, COLUMN_BYTES / (8 * job.items))
    kept = job.picked_bytes + 8.0 * (members or classes) + 8.0 * products
    return Cost(
        passes=(2, job.budget + 4),
        usual=job.budget + 3,
        columns=job.budget + 4 * max(classes, 1),
        item_bytes=80.0 + kept,
        state_bytes=48.0 + kept,
        holds="the factors of its gradient, and products with picks, per item",
    )


STRATEGY = GreedyStrategy(
    name="sparse_greedy",
    needs=("features", "logits"),
    or_needs=(("features", "probabilities"), ("member_probabilities",)),
    weighted=True,
    begin=begin,
    start=start,
    score=score,
    add=add,
    advance=advance,
    finish=finish,
    ahead=look_ahead,
    slack=slack,
    exact=exact,
    good_for="a weighted batch whose gradient is that of the whole pool, with uncertain labels",
    reference="Shen, Jiang, Zhang and Koyejo, Batch Active Learning from the Perspective of "
    "Sparse Approximation, 2022, Algorithm 1",
    cost=_cost,
    check=check_job,
    adapt=adapt_label_law,
    explain=REPRESENTS,
)
