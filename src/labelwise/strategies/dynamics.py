r"""DynamicAL: pick the items that would speed up training most.

Under gradient flow the summed training loss falls at the rate :math:`G(S) = \lVert g_S \rVert^2`,
with :math:`g_S = \sum_{s \in S} \nabla \ell_s` over the labelled items. One more item :math:`u`,
with its pseudo-label, changes that rate by

.. math:: G(S + u) - G(S) = \lVert g_u \rVert^2 + 2 \, g_u \cdot g_S .

The score is :math:`\lVert g_u \rVert^2 + \gamma \, g_u \cdot g_S`; ``gamma`` is 2 for that change,
0 for the gradient norm alone, infinity for the product alone. After training to convergence
:math:`g_S` is near 0, and all but the last are nearly equal.

*Whole network*: ``gradient_norms`` (:math:`\lVert g_u \rVert^2`) and ``gradient_products``
(:math:`g_u \cdot g_S`, with the sum over the labelled items), from a learner; or
``gradient_sketch``, random projections of the gradients, in place of the norms.

*Last layer*: ``features`` and ``probabilities`` (`labelwise.kernels.pseudo_gradients`); the
labelled items' ``labels`` are needed for :math:`g_S`.

*Regression* (loss :math:`\frac{1}{2} |f - y|^2`): ``features`` and a list of ``outputs``, first the
prediction :math:`f` of the model to be trained, then others (an ensemble, dropout, earlier epochs)
whose mean is the pseudo-label: the gradient at the model's own prediction is zero.

*Redundancy.* The best :math:`b` scores may point the same way. With ``redundancy`` the batch is
picked in steps, and after each step every score changes by ``coef`` :math:`g_u \cdot g_Q`, with
:math:`g_Q` the mean (or sum) of the step's gradients. A negative ``coef`` keeps the batch diverse,
but no longer approximates :math:`G`. The exact greedy maximisation of :math:`G` is the opposite:
``step=1, coef=2, normalize="sum"``.

>>> import labelwise
>>> features = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])
>>> probabilities = np.array([[0.5, 0.5], [0.9, 0.1], [0.6, 0.4], [0.6, 0.4]])
>>> picks = labelwise.select("dynamics", 2, features=features, probabilities=probabilities,
...                          labelled=[1, 0], labels=[0, 1])
>>> picks.ids.tolist(), picks.scores.round(2).tolist()
([3, 2], [3.36, -0.32])

Cost: one pass, ``O(n K d)`` for the last layer; with redundancy one more per step.

Reference: H. Wang, W. Huang, Z. Wu, H. Tong, A. Margenot, J. He, "Deep Active Learning by
Leveraging Training Dynamics", NeurIPS 2022.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from labelwise.arrays import Array, Floats, Ids, comparable, largest, like, namespace, to_numpy
from labelwise.errors import BadInput, UnknownName
from labelwise.files import Json
from labelwise.kernels.checks import check_choice, check_integer, is_number
from labelwise.kernels.distance.embedding import (
    Factored,
    inner_products,
    inner_products_with_matrix,
    squared_norms,
)
from labelwise.kernels.pseudo_gradients import (
    Labels,
    PseudoLabels,
    check_gradient_labels,
    get_single_model,
    labelled_gradient,
    pseudo_gradients,
)
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PassStrategy, read_reference

NORMALIZE = ("mean", "sum")
SKETCH_ROWS = 4096
"""Sketches that are converted to float64 at a time."""


class Redundancy(NamedTuple):
    """The change of the remaining items' scores by the picks of one step."""

    step: int = 50
    coef: float = -1.0
    normalize: str = "mean"


class DynamicsPlan(NamedTuple):
    """Facts for every block."""

    own: float  # the factor of the squared norm, 1 or 0
    cross: float  # the factor of the product with the labelled gradient
    pull: Floats | None  # ``(K, d)`` labelled gradient of the last layer; None if it is not used
    pseudo: PseudoLabels  # how the gradients of the last layer are computed


def choose_dynamics_batch(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    gamma: float = 2.0,
    labels: Labels = None,
    pseudo: str = "argmax",
    bias: bool = False,
    redundancy: Mapping[str, Json] | None = None,
) -> Choice:
    """Pick the highest scores.

    Options:
        gamma: the factor of the product with the labelled gradient, from 0 to infinity.
        labels: ``(m,)`` classes, or ``(m,)`` or ``(m, k)`` values of a regression, of the labelled
            items in the order in which ``labelled`` names them; for the last layer, where
            ``gamma`` is not 0 and something is labelled.
        pseudo: ``"argmax"``, or ``"sample"`` to draw a label from the probabilities (from the
            other models' predictions in a regression). For the last layer.
        bias: whether the last layer has a bias whose gradient counts: the features then end in
            a 1. False takes the features as they are given.
        redundancy: None, or a mapping with some of ``step``, ``coef`` and ``normalize`` (50, -1.0
            and ``"mean"`` where left out). For the last layer, or with ``gradient_sketch``.
    """
    own, cross = _split_dynamics_gamma(gamma)
    source = PseudoLabels(pseudo, bias, seed)
    steps = None if redundancy is None else Redundancy(**redundancy)
    given = shards.map(lambda shard: tuple(shard.rows))[0]
    if "gradient_norms" in given or "gradient_sketch" in given:
        plan = DynamicsPlan(own, cross, None, source)
        shards.map(_score_whole_network, plan)
        return _pick_dynamics_in_steps(shards, plan, budget, steps)
    pull = labelled_gradient(labelled, labels, bias) if cross and labelled is not None else None
    plan = DynamicsPlan(own, cross, pull, source)
    shards.map(_score_last_layer, plan)
    length = 0.0 if pull is None else float(np.linalg.norm(pull))
    return _pick_dynamics_in_steps(shards, plan, budget, steps)._replace(
        info={"labelled_gradient": length}
    )


def check_dynamics_job(job: Job) -> None:
    """Reject options out of range, and labels that do not fit the labelled items."""
    gamma, labels = job.options["gamma"], job.options["labels"]
    if not is_number(gamma) or not gamma >= 0:
        raise BadInput(f"gamma must be a number from 0 to infinity; got {gamma!r}")
    own, cross = _split_dynamics_gamma(gamma)
    PseudoLabels(job.options["pseudo"], job.options["bias"]).check()
    if job.options["redundancy"] is not None:
        _check_redundancy(job.options["redundancy"])
    if "gradient_norms" in job.shapes or "gradient_sketch" in job.shapes:
        _check_network_gradients(job, cross)
        return
    if len(job.shapes.get("outputs", "two")) < 2:
        raise BadInput(
            "the gradient of a regression is zero at the model's own prediction; give outputs as "
            "a list: the model's first, then others (an ensemble, earlier epochs) as pseudo-labels"
        )
    if not job.labelled and (labels is not None or not own):
        reason = "labels are given" if labels is not None else "gamma is infinite"
        raise BadInput(f"{reason} but no item is labelled; name the items in labelled")
    if cross and job.labelled:
        regression = "outputs" in job.shapes
        width = job.shapes["outputs" if regression else "probabilities"][0][0]
        check_gradient_labels(labels, job.labelled, width, regression=regression)


def _split_dynamics_gamma(gamma: float) -> tuple[float, float]:
    return (0.0, 1.0) if math.isinf(gamma) else (1.0, float(gamma))


def _check_redundancy(given: Mapping[str, Json]) -> None:
    if not isinstance(given, Mapping):
        raise BadInput(f"redundancy must be None or a mapping; got {given!r}")
    for name in given:
        if name not in Redundancy._fields:
            known = ", ".join(Redundancy._fields)
            raise UnknownName(f"redundancy has no entry {name!r}; choose from {known}")
    steps = Redundancy(**given)
    check_integer("step of redundancy", steps.step, 1)
    if not is_number(steps.coef) or not math.isfinite(steps.coef):
        raise BadInput(f"coef of redundancy must be a finite number; got {steps.coef!r}")
    check_choice("normalize of redundancy", steps.normalize, NORMALIZE)


def _check_network_gradients(job: Job, cross: float) -> None:
    """Reject options of the last layer: gradients of the whole network include the labels."""
    if job.options["redundancy"] is not None and "gradient_sketch" not in job.shapes:
        raise BadInput(
            "redundancy needs products of gradients of the pool, which gradient_norms do not give; "
            "give gradient_sketch instead of them, or features and probabilities"
        )
    for name, default in {"labels": None, "pseudo": "argmax", "bias": False}.items():
        if job.options[name] is not default and job.options[name] != default:
            raise BadInput(
                f"{name} is for the last layer but gradients of the whole network are given; "
                f"give features and probabilities instead of them, or leave {name} out"
            )
    if cross and "gradient_products" not in job.shapes:
        raise BadInput("dynamics needs gradient_products too unless gamma is 0; give both")


def _item_gradients(rows: Rows, ids: Ids, pseudo: PseudoLabels) -> Iterator[Factored]:
    """The items' gradients, some rows at a time: of the last layer, or sketches."""
    if "gradient_sketch" not in rows:
        yield from pseudo_gradients(rows, ids, pseudo)
        return
    sketch = get_single_model(rows, "gradient_sketch")
    xp = namespace(sketch)
    for begin in range(0, len(ids), SKETCH_ROWS):
        part = xp.astype(sketch[begin : begin + SKETCH_ROWS], xp.float64)
        yield Factored(xp.ones_like(part[:, :1]), part)


def _score_whole_network(shard: Shard, plan: DynamicsPlan) -> None:
    """The scores of a block, and where sketches are given the norms that bound the rounding."""
    if "gradient_sketch" in shard.rows:
        gradients = _item_gradients(shard.rows, shard.ids, plan.pseudo)
        lengths = np.concatenate([to_numpy(squared_norms(rows)) for rows in gradients])
        shard.state["scores"] = plan.own * lengths + _weigh_products(shard, plan)
        shard.state["lengths"] = np.sqrt(lengths)
        return
    norms = np.asarray(to_numpy(get_single_model(shard.rows, "gradient_norms")), dtype=np.float64)
    if (norms < 0).any():
        raise BadInput(
            f"gradient_norms are squared norms, but item {shard.ids[norms < 0][0]} has "
            f"{norms[norms < 0][0]:g}"
        )
    shard.state["scores"] = plan.own * norms + _weigh_products(shard, plan)
    shard.state["lengths"] = np.zeros(len(shard))


def _weigh_products(shard: Shard, plan: DynamicsPlan) -> Floats | float:
    """The products with the labelled gradient, times their factor."""
    if not plan.cross:
        return 0.0
    given = to_numpy(get_single_model(shard.rows, "gradient_products"))
    return plan.cross * np.asarray(given, dtype=np.float64)


def _score_last_layer(shard: Shard, plan: DynamicsPlan) -> None:
    """The scores of a block, and the norms of its gradients, which bound the rounding."""
    norms, pulled = [], []
    for rows in pseudo_gradients(shard.rows, shard.ids, plan.pseudo):
        norms.append(to_numpy(squared_norms(rows)))
        if plan.pull is not None:
            pulled.append(to_numpy(inner_products_with_matrix(rows, like(plan.pull, rows.h))))
    lengths = np.concatenate(norms)
    scores = plan.own * lengths
    if pulled:
        scores = scores + plan.cross * np.concatenate(pulled)
    shard.state["scores"], shard.state["lengths"] = scores, np.sqrt(lengths)


def _pick_dynamics_in_steps(
    shards: Shards, plan: DynamicsPlan, budget: int, redundancy: Redundancy | None
) -> Choice:
    """Pick the highest scores, all at once or in steps that change the remaining scores."""
    step = budget if redundancy is None else redundancy.step
    reach = 0.0 if plan.pull is None else plan.cross * float(np.linalg.norm(plan.pull))
    ids, scores, done = [], [], 0
    while done < budget:
        count = min(step, budget - done)
        parts = shards.map(_find_highest_dynamics, count, plan.own, reach)
        offered = np.concatenate([part[0] for part in parts])
        values = np.concatenate([part[1] for part in parts])
        best = largest(comparable(values), count, offered)
        ids.append(offered[best])
        scores.append(values[best])
        done += count
        shards.progress("dynamics", done, budget)
        if redundancy is not None and done < budget:
            reach += _count_redundant_step(shards, plan, ids[-1], redundancy)
    return Choice(np.concatenate(ids), scores=np.concatenate(scores))


def _find_highest_dynamics(
    shard: Shard, count: int, own: float, reach: float
) -> tuple[Ids, Floats]:
    """The ids and scores of a block's best items that are not taken yet.

    The terms of a score may cancel. Scores are rounded to a trillionth of the terms, so that equal
    rows tie whatever the order of the additions was.
    """
    scores, lengths = shard.state["scores"], shard.state["lengths"]
    terms = lengths * (own * lengths + reach)
    grid = np.where(terms > 1e-290, np.ldexp(1.0, np.frexp(comparable(terms))[1] - 40), 0.0)
    rounded = np.where(grid > 0, np.round(scores / np.where(grid > 0, grid, 1.0)) * grid, scores)
    free = np.flatnonzero(rounded > -np.inf)
    best = free[largest(comparable(rounded[free]), min(count, len(free)), shard.ids[free])]
    return shard.ids[best], rounded[best]


def _count_redundant_step(
    shards: Shards, plan: DynamicsPlan, new: Ids, redundancy: Redundancy
) -> float:
    """Count the picks of a step in all scores; returns a bound on the change."""
    taken = list(_item_gradients(shards.rows(new), new, plan.pseudo))
    factor = redundancy.coef / (len(new) if redundancy.normalize == "mean" else 1)
    total = sum(to_numpy(rows.a).T @ to_numpy(rows.h) for rows in taken)
    shards.map(_count_redundancy_in_block, plan, new, taken, total, factor)
    return abs(factor) * float(np.linalg.norm(total))


def _count_redundancy_in_block(
    shard: Shard, plan: DynamicsPlan, new: Ids, taken: list[Factored], total: Floats, factor: float
) -> None:
    classes, width = total.shape
    few = len(new) * (classes + width) < classes * width  # cheaper than with their sum
    changes = []
    for rows in _item_gradients(shard.rows, shard.ids, plan.pseudo):
        xp = namespace(rows.h)
        if few:
            change: Array = sum(xp.sum(inner_products(rows, picks), axis=1) for picks in taken)
        else:
            change = inner_products_with_matrix(rows, like(total, rows.h))
        changes.append(to_numpy(change))
    scores = shard.state["scores"] + factor * np.concatenate(changes)
    scores[np.isin(shard.ids, new)] = -np.inf
    shard.state["scores"] = scores


def estimate_dynamics_cost(job: Job) -> Cost:
    """One pass, or one per step with redundancy."""
    given = job.options["redundancy"]
    steps = 1 if given is None else -(-job.budget // Redundancy(**given).step)
    classes = max(job.width("probabilities"), job.width("outputs"), 1)
    return Cost(
        passes=(1, max(steps, 1)),
        usual=max(steps, 1),
        columns=2 * classes * max(steps, 1),
        item_bytes=40.0,
        state_bytes=16.0,
    )


STRATEGY = PassStrategy(
    name="dynamics",
    needs=("gradient_norms", "gradient_products"),
    or_needs=(
        ("features", "probabilities"),
        ("features", "outputs"),
        ("gradient_norms",),
        ("gradient_sketch", "gradient_products"),
        ("gradient_sketch",),
    ),
    several=True,
    choose=choose_dynamics_batch,
    good_for="networks whose training is continued: items that speed up training most",
    reference=read_reference(__doc__),
    cost=estimate_dynamics_cost,
    check=check_dynamics_job,
    explain="Its label is expected to speed up training more than most others.",
)
