r"""Sparse approximation by iterative hard thresholding: all picks are optimized together.

Solves the same problem as ``sparse_greedy`` (`kernels.sparse.problem`) by proximal gradient
steps: after a step to the point ``s`` of length :math:`\mu`, the ``b`` items with the largest

.. math:: \tfrac12 [s_j]_+^2 + \mu \, \alpha \sigma_j^2

are kept. The rule printed in the paper (``projection="printed"``) keeps the ``b`` smallest
:math:`\frac12 [-s_j]_+^2 - \mu \, \alpha \sigma_j^2`, which omits the cost of leaving an item
out. The best iterate is returned, with the best weights for its items (``polish``).

Thresholding needs a small ``beta``: a strong pull of all weights towards 1 hides the gradients, and
greedy picks are better. With ``compare_with_greedy`` the greedy batch is computed too (by exact
gains) and the batch with the lower objective is returned; ``info["returned"]`` says which one.

Cost: one pass over the features per iteration (`kernels.sparse.iht`).

Reference: M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the Perspective of
Sparse Approximation", 2022, Algorithm 2.
"""

import numpy as np

from labelwise.kernels.checks import check_choice, check_integer
from labelwise.kernels.loop.picking import pick_greedily
from labelwise.kernels.placement import join_resident_blocks
from labelwise.kernels.sparse.iht import is_lower_objective, run_thresholding
from labelwise.kernels.sparse.label_gradients import LabelLaw
from labelwise.kernels.sparse.problem import (
    ObjectiveTerms,
    SparseProblem,
    build_choice,
    check_sparse_beta,
    compute_vectors,
    find_largest_variances,
    pose_sparse_problem,
    warn_degenerate_problem,
)
from labelwise.kernels.sparse.weights import solve_best_weights
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.strategies.sparse_greedy import REPRESENTS, adapt_label_law, check_sparse_options
from labelwise.strategies.sparse_greedy import STRATEGY as GREEDY
from labelwise.strategy import Choice, Cost, Job, PassStrategy, read_reference

DEFAULTS = {"last_layer": (1e-8, 1e-6), "bayesian": (1.0, 1e-6)}


def choose_sparse_iht_batch(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    alpha: float | None = None,
    relative_alpha: float | None = None,
    beta: float | None = None,
    iterations: int = 100,
    projection: str = "corrected",
    debias_steps: int = 1,
    polish: bool = True,
    compare_with_greedy: bool = False,
    temperature: float = 1.0,
    label_law: str = "calibrated",
    rho: float = 0.1,
    sigma_scale: str = "none",
) -> Choice:
    """Pick ``budget`` items; labelled rows are not used.

    Options:
        alpha: weight of the label uncertainty in the objective; None for the default.
        relative_alpha: instead of alpha, without units: the reward of an item of high variance as
            a fraction of the objective without picks.
        beta: pull of the weights towards 1; None for the default.
        iterations: at most; it stops earlier on convergence.
        projection: rule for the kept items: "corrected", or "printed" as in the paper.
        debias_steps: gradient steps on the weights after every iteration.
        polish: whether the weights are optimized at the end.
        compare_with_greedy: whether to compute the greedy batch too and return the better one.
        temperature: of the softmax that labels are assumed to follow; fit it to held-out labels.
        label_law: "calibrated" (softmax at another temperature) or "label_smoothing".
        rho: probability mass that smoothing spreads evenly over the classes.
        sigma_scale: "none", or "paper" to divide the deviations by the number of items.
    """
    shards = join_resident_blocks(shards)
    law = LabelLaw(label_law, temperature, rho)
    problem = pose_sparse_problem(
        shards, budget, law, ObjectiveTerms(alpha, relative_alpha, beta, sigma_scale), DEFAULTS
    )
    if problem.degenerate:
        warn_degenerate_problem(problem, "sparse_iht")
        ids, _ = find_largest_variances(shards, problem.law, budget)
        picked = compute_vectors(shards.rows(ids), problem.law)
        return build_choice(problem, ids, picked, np.ones(budget), {"polished": False})
    check_sparse_beta(problem, "sparse_iht")
    best, made = run_thresholding(
        shards, problem, iterations, debias_steps=debias_steps, projection=projection
    )
    picked = compute_vectors(shards.rows(best.ids), problem.law)
    weights = solve_best_weights(picked[0], best.weights, problem) if polish else best.weights
    facts = {"iterations": made, "polished": polish, "returned": "thresholding"}
    choice = build_choice(problem, best.ids, picked, weights, facts)
    return (
        _choose_better_batch(choice, problem, shards, seed, polish)
        if compare_with_greedy
        else choice
    )


def check_sparse_iht_job(job: Job) -> None:
    """Reject options out of range."""
    check_choice("projection", job.options["projection"], ("corrected", "printed"))
    check_integer("iterations", job.options["iterations"], 1)
    check_integer("debias_steps", job.options["debias_steps"], 0)
    check_sparse_options(job)


def _choose_better_batch(
    choice: Choice, problem: SparseProblem, shards: Shards, seed: int, polish: bool
) -> Choice:
    """The thresholded batch, or the greedy one if that has a lower objective."""
    strategy = GREEDY.with_options(
        alpha=problem.alpha,
        beta=problem.given_beta,
        gain="exact",
        debias_steps=5,
        polish=polish,
        temperature=problem.law.temperature,
        label_law=problem.law.kind,
        rho=problem.law.rho,
    )
    rival = pick_greedily(strategy, shards, None, problem.budget, seed)
    theirs, ours = (one.info["f"] * problem.squared_scale for one in (rival, choice))
    wins = is_lower_objective(theirs, ours, problem)
    facts = {
        "iterations": choice.info["iterations"],
        "f_thresholding": choice.info["f"],
        "f_greedy": rival.info["f"],
        "returned": "greedy" if wins else "thresholding",
    }
    chosen = rival if wins else choice
    return chosen._replace(info={**chosen.info, **facts})


def estimate_sparse_iht_cost(job: Job) -> Cost:
    """Passes to set up, one per iteration, and those of the greedy batch if computed."""
    options, classes = job.options, max(job.width("logits"), job.width("probabilities"))
    rounds = options["iterations"]
    more = job.budget + 4 if options["compare_with_greedy"] else 0
    members = sum(map(sum, job.shapes.get("member_probabilities", ())))
    kept = 8.0 * (members or classes)
    return Cost(
        passes=(3, rounds + 4 + more),
        usual=rounds / 2 + 3 + more,
        columns=2 * max(classes, 1) * rounds / 2,
        item_bytes=104.0 + kept,
        state_bytes=24.0 + kept,
        holds="the factors of its gradient per item",
    )


STRATEGY = PassStrategy(
    name="sparse_iht",
    needs=("features", "logits"),
    or_needs=(("features", "probabilities"), ("member_probabilities",)),
    weighted=True,
    choose=choose_sparse_iht_batch,
    good_for="the same weighted batch as sparse_greedy, in a number of passes that does not grow "
    "with the batch",
    reference=read_reference(__doc__),
    cost=estimate_sparse_iht_cost,
    check=check_sparse_iht_job,
    adapt=adapt_label_law,
    explain=REPRESENTS,
)
