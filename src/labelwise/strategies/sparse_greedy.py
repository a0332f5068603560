r"""Greedy sparse approximation: a weighted batch with the mean gradient of the whole pool.

Minimizes :math:`\lVert v - \Phi w \rVert^2 + \beta \lVert w - 1
\rVert^2 - \alpha \sum_{j \in S} \sigma_j^2` (`kernels.sparse.problem`): little bias,
weights near 1, and items whose labels are uncertain. With the residual :math:`R = \Phi w - v`, the
next pick is

.. math:: \arg\max_j \; \alpha \sigma_j^2 - 2 \tau \, \Phi_j \cdot R

(``gain="linear"``), or the item whose best weight lowers the objective most (``"exact"``). It gets
its best weight, and all weights are then de-biased: one exact gradient step on the picked set,
negative weights set to 0. At the end, ``polish`` finds the best weights of the set.

The vectors are last-layer gradients under a label law other than the model's own softmax: at
``temperature`` 1 they vanish, and only the variances decide. With ``member_probabilities`` alone
they are the members' losses. The defaults of ``alpha`` and ``beta`` depend on the scale of the
features; ``relative_alpha`` does not.

Cost: one pass over the features per pick, or an update from the products with the picks while
these fit in memory (`kernels.sparse.greedy`), and :math:`O(b^2)` on the host.

Reference: M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the Perspective of
Sparse Approximation", 2022, Algorithm 1.
"""

from typing import NamedTuple

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
    score_pursuit_exactly,
    start_pursuit,
    update_pursuit,
)
from labelwise.kernels.sparse.greedy_ahead import LookaheadPursuit
from labelwise.kernels.sparse.label_gradients import LabelLaw
from labelwise.kernels.sparse.problem import (
    ObjectiveTerms,
    build_choice,
    check_sparse_beta,
    compute_vectors,
    pose_sparse_problem,
    warn_degenerate_problem,
)
from labelwise.kernels.sparse.weights import solve_best_weights
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import (
    AheadPicker,
    Choice,
    Cost,
    GreedyStrategy,
    History,
    Job,
    Options,
    read_reference,
)

DEFAULTS = {"last_layer": (1e-2, 0.1), "bayesian": (2.0, 0.5)}  # The paper's ``(alpha, beta)``
REPRESENTS = "It belongs to a batch that represents the whole pool{weight}."
LEAST_HOLDOUT = 20  # A temperature is fitted to at least this many held-out items
UNFITTED_TEMPERATURE = 1.1  # Without them


class SparseGreedyPlan(NamedTuple):
    """The picks so far, and whether their weights are optimized at the end."""

    pursuit: GreedyPursuit
    polish: bool


def begin_sparse_greedy(
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
) -> SparseGreedyPlan:
    """Set up the problem; one pass averages its vectors.

    Options:
        alpha: weight of the label uncertainty in the objective; None for the default.
        relative_alpha: instead of alpha, without units: the reward of an item of high variance as
            a fraction of the objective without picks.
        beta: pull of the weights towards 1; None for the default.
        tau: step size of a linear gain.
        gain: "linear" as in the paper, or "exact", the gain at the best weight.
        debias_steps: gradient steps on the weights after every pick.
        polish: whether the weights are optimized at the end.
        temperature: of the softmax that labels are assumed to follow; fit it to held-out labels.
        label_law: "calibrated" (softmax at another temperature) or "label_smoothing".
        rho: probability mass that smoothing spreads evenly over the classes.
        sigma_scale: "none", or "paper" to divide the deviations by the number of items.
    """
    law, terms = (
        LabelLaw(label_law, temperature, rho),
        ObjectiveTerms(alpha, relative_alpha, beta, sigma_scale),
    )
    problem = pose_sparse_problem(shards, budget, law, terms, DEFAULTS)
    warn_degenerate_problem(problem, "sparse_greedy")
    if gain == "exact":
        check_sparse_beta(problem, "sparse_greedy")
    pursuit = GreedyPursuit(problem, GainRule(gain, tau), debias_steps, find_placement(shards))
    return SparseGreedyPlan(pursuit, polish)


def check_sparse_greedy_job(job: Job) -> None:
    """Reject options out of range."""
    check_choice("gain", job.options["gain"], ("linear", "exact"))
    check_positive("tau", job.options["tau"])
    check_integer("debias_steps", job.options["debias_steps"], 0)
    check_sparse_options(job)


def check_sparse_options(job: Job) -> None:
    """Reject the options that describe the problem; both solvers have them."""
    options = job.options
    LabelLaw(options["label_law"], options["temperature"], options["rho"]).check()
    ObjectiveTerms(*(options[name] for name in ObjectiveTerms._fields)).check()


def adapt_label_law(history: History) -> Options:
    """The temperature that fits held-out labels; without enough of them, one a little above 1.

    At temperature 1 all expected gradients vanish, so that nothing could be picked by them. Close
    to 1, the most confident items have the smallest ones; smoothed labels would give them the
    largest, and the batch would consist of items that the model knows.
    """
    if not history.trained or {"label_law", "temperature", "rho"} & history.options.keys():
        return {}
    holdout = history.evaluate_holdout()
    if holdout is None or len(holdout[1]) < LEAST_HOLDOUT:
        return {"temperature": UNFITTED_TEMPERATURE}
    return {"temperature": calibrate_temperature(*holdout)}


def start_sparse_greedy(
    rows: Rows, labelled: Rows | None, plan: SparseGreedyPlan
) -> GreedySparseState:
    """Compute the vectors of a block; labelled rows are not used."""
    return start_pursuit(rows, plan.pursuit)


def score_sparse_greedy(state: GreedySparseState, plan: SparseGreedyPlan) -> Array:
    """The decrease of the objective by each item, up to a constant, ``(n,)``."""
    return state.scores


def bound_sparse_greedy_rounding(state: GreedySparseState) -> Array:
    """Bound on the rounding error of each score, ``(n,)``."""
    return state.slack


def exact_sparse_greedy(
    rows: Rows, labelled: Rows | None, picked: Rows | None, plan: SparseGreedyPlan
) -> Floats:
    """The scores of a few items in float64, ``(n,)``."""
    return score_pursuit_exactly(rows, plan.pursuit)


def advance_sparse_greedy(plan: SparseGreedyPlan, picked: Rows) -> SparseGreedyPlan:
    """Update the weights of all picks, including the new one."""
    if not plan.pursuit.problem.degenerate:
        pursuit = plan.pursuit
        pursuit.add_pick(compute_vectors(picked, pursuit.problem.law, pursuit.weights)[0])
    return plan


def add_sparse_greedy_pick(
    state: GreedySparseState, rows: Rows, picked: Rows, plan: SparseGreedyPlan
) -> GreedySparseState:
    """Update the scores of a block after one pick."""
    pursuit = plan.pursuit
    return state if pursuit.problem.degenerate else update_pursuit(state, rows, pursuit)


def make_sparse_lookahead(
    strategy: GreedyStrategy, shards: Shards, labelled: Rows | None
) -> AheadPicker:
    """Make many picks at a time on a GPU; labelled rows are not used."""
    return LookaheadPursuit(strategy, shards)


def finish_sparse_greedy(plan: SparseGreedyPlan, shards: Shards, ids: Ids) -> Choice:
    """Optimize the weights and report the objective."""
    pursuit, problem = plan.pursuit, plan.pursuit.problem
    polished = plan.polish and not problem.degenerate
    weights = np.ones(len(ids)) if problem.degenerate else to_numpy(pursuit.weights)
    if polished:
        weights = solve_best_weights(pursuit.vectors, weights, problem)
    facts = {"gain": pursuit.gain.kind, "polished": polished}
    return build_choice(
        problem, ids, compute_vectors(shards.rows(ids), problem.law), weights, facts
    )


def estimate_sparse_greedy_cost(job: Job) -> Cost:
    """Passes to set up, for the first scores, and one per pick; products with picks are kept."""
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
    begin=begin_sparse_greedy,
    start=start_sparse_greedy,
    score=score_sparse_greedy,
    add=add_sparse_greedy_pick,
    advance=advance_sparse_greedy,
    finish=finish_sparse_greedy,
    ahead=make_sparse_lookahead,
    slack=bound_sparse_greedy_rounding,
    exact=exact_sparse_greedy,
    good_for="a weighted batch whose gradient is that of the whole pool, with uncertain labels",
    reference=read_reference(__doc__),
    cost=estimate_sparse_greedy_cost,
    check=check_sparse_greedy_job,
    adapt=adapt_label_law,
    explain=REPRESENTS,
)
