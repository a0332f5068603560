r"""Transductive experimental design: pick items from which all others can be predicted best.

With the kernel :math:`K = H H^\top` of the candidates and :math:`\mu > 0`, the next pick is the
item that explains most of the residual, which is then reduced:

.. math::
    \arg\max_i \frac{\lVert K_{:i} \rVert^2}{K_{ii} + \mu} , \qquad
    K \leftarrow K - \frac{K_{:i} K_{i:}}{K_{ii} + \mu} .

The ``(n, n)`` kernel is never formed. It equals :math:`H C H^\top` with
:math:`C = (I + \mu^{-1} \sum_{s} h_s h_s^\top)^{-1}` over the labelled and picked items, so that
:math:`K_{ii} = h_i^\top C h_i` and :math:`\lVert K_{:i} \rVert^2 = h_i^\top C G C h_i` with
:math:`G = H^\top H`, and a pick changes both by two products with every row. ``regularisation``
is :math:`\mu` as a fraction of the mean :math:`|h_i|^2`, so that picks do not depend on the
scale of the features.

Cost: :math:`O(n d^2)` once, then one pass over the features per pick, in float64 because of
cancellation; memory ``O(n + d^2)``.

Reference: K. Yu, J. Bi, V. Tresp, "Active Learning via Transductive Experimental Design",
ICML 2006.
"""

from typing import NamedTuple

import numpy as np

from labelwise.arrays import Array, Floats, Ids, float64, like, namespace, row_dots, to_numpy
from labelwise.kernels.checks import check_positive
from labelwise.kernels.float64_blocks import iterate_float64_chunks, multiply_in_float64
from labelwise.kernels.scaling import apply_scale, find_scale
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, GreedyStrategy, Job, read_reference


class DesignState(NamedTuple):
    """Residual ``K_ii`` and ``|K_:i|^2``, both ``(n,)``."""

    diagonal: Array
    columns: Array


class DesignUpdate(NamedTuple):
    """A pick as the blocks count it: ``C h`` and ``C G C h``, ``(d, 2)``, and two scalars."""

    vectors: Floats
    scale: float
    energy: float


class DesignPlan:
    """The residual as ``(d, d)`` matrices, which are not sent to the blocks."""

    def __init__(self, gram: Floats, labelled: Floats, mu: float, unit: float = 1.0) -> None:
        """Start from the candidates' ``G`` and labelled features, ``(m, d)``, in the same unit."""
        self._gram, self.mu, self.unit = gram, mu, unit
        information = np.eye(len(gram)) + labelled.T @ labelled / mu
        self._inverse = np.linalg.inv(information).astype(np.float64, copy=False)
        left = self._inverse @ gram @ self._inverse
        self.start: tuple[Floats, Floats] | None = (self._inverse, left)
        self.update = DesignUpdate(np.zeros((len(gram), 2)), 1.0, 0.0)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def add(self, feature: Floats) -> None:
        """Count one pick, ``(d,)`` in the units of the rows."""
        feature = apply_scale(feature, self.unit)
        image = self._inverse @ feature
        far = self._gram @ image
        scale = float(feature @ image) + self.mu
        self.update = DesignUpdate(
            np.stack([image, self._inverse @ far], axis=1), scale, float(image @ far)
        )
        self._inverse = self._inverse - np.outer(image, image) / scale
        self.start = None

    def scores(self, features: Floats) -> Floats:
        """The scores from their definition: ``(n, d)`` in the units of the rows to ``(n,)``."""
        features = apply_scale(features, self.unit)
        images = features @ self._inverse
        columns = np.vecdot(images @ self._gram, images)
        return np.asarray(columns / (np.vecdot(images, features) + self.mu) / self.unit**2)


def begin_design(
    shards: Shards, labelled: Rows | None, budget: int, seed: int, *, regularisation: float = 0.01
) -> DesignPlan:
    """Sum ``G`` and count the labelled rows as picked.

    Options:
        regularisation: mu as a fraction of the mean squared length of a row, above 0.
    """
    gram = shards.sum(_sum_design_gram, 1.0)
    unit = find_scale(shards, float(np.trace(gram)) / len(shards))
    if unit != 1:
        gram = shards.sum(_sum_design_gram, unit)
    known = np.empty((0, len(gram))) if labelled is None else to_numpy(labelled["features"])
    known = apply_scale(known.astype(np.float64), unit)
    mean = float(np.trace(gram)) / len(shards)
    return DesignPlan(gram, known, regularisation * mean if mean > 0 else 1.0, unit)


def check_design_job(job: Job) -> None:
    """Reject a regularisation that is not above 0."""
    check_positive("regularisation", job.options["regularisation"])


def _sum_design_gram(shard: Shard, unit: float) -> Floats:
    total = np.zeros((shard.rows["features"].shape[1],) * 2)
    with np.errstate(over="ignore", invalid="ignore"):  # features may be of any size
        for (chunk,) in iterate_float64_chunks(shard.rows["features"]):
            xp, chunk = namespace(chunk), apply_scale(chunk, unit)
            total += to_numpy(xp.matmul(xp.matrix_transpose(chunk), chunk))
    return total


def start_design(rows: Rows, labelled: Rows | None, plan: DesignPlan) -> DesignState:
    """Score every row in one pass."""
    features = rows["features"]
    xp = namespace(features)
    assert plan.start is not None
    inverse, left = (like(matrix, features) for matrix in plan.start)
    chunks = [
        (row_dots(xp.matmul(chunk, inverse), chunk), row_dots(xp.matmul(chunk, left), chunk))
        for chunk in (
            apply_scale(chunk, plan.unit) for (chunk,) in iterate_float64_chunks(features)
        )
    ]
    diagonal, columns = zip(*chunks, strict=True)
    return DesignState(xp.concat(list(diagonal)), xp.concat(list(columns)))


def score_design(state: DesignState, plan: DesignPlan) -> Array:
    """The part of the residual that each item explains, ``(n,)``."""
    scores = state.columns / (state.diagonal + plan.mu)
    return scores if plan.unit == 1 else scores / plan.unit**2


def advance_design(plan: DesignPlan, picked: Rows) -> DesignPlan:
    """Reduce the residual by the pick."""
    plan.add(to_numpy(float64(picked["features"]))[0])
    return plan


def add_design_pick(state: DesignState, rows: Rows, picked: Rows, plan: DesignPlan) -> DesignState:
    """Count one pick in a block."""
    features = rows["features"]
    vectors, scale, energy = plan.update
    products = multiply_in_float64(features, like(apply_scale(vectors, plan.unit), features))
    near, far = products[:, 0], products[:, 1]
    xp = namespace(near)
    diagonal = state.diagonal - near * near / scale
    columns = state.columns - near * (2 * far - near * (energy / scale)) / scale
    return DesignState(xp.clip(diagonal, 0, None), xp.clip(columns, 0, None))


def exact_design(
    rows: Rows, labelled: Rows | None, picked: Rows | None, plan: DesignPlan
) -> Floats:
    """The scores of a few items from their definition, ``(n,)``."""
    return plan.scores(to_numpy(float64(rows["features"])))


def finish_design(plan: DesignPlan, shards: Shards, ids: Ids) -> Choice:
    """Report the regularisation."""
    return Choice(ids, info={"mu": plan.mu / plan.unit**2})


def estimate_design_cost(job: Job) -> Cost:
    """The Gram matrix, the first scores, and a pass per pick."""
    return Cost(
        passes=(job.budget + 1, job.budget + 3),
        columns=3 * job.width() + 8 * job.budget,
        item_bytes=56.0 + job.picked_bytes,
        state_bytes=40.0 + job.picked_bytes,
        held_bytes=job.gram_bytes,
    )


STRATEGY = GreedyStrategy(
    name="design",
    needs=("features",),
    begin=begin_design,
    start=start_design,
    score=score_design,
    add=add_design_pick,
    advance=advance_design,
    finish=finish_design,
    exact=exact_design,
    good_for="linear models and regression: a batch from which the pool can be predicted",
    reference=read_reference(__doc__),
    cost=estimate_design_cost,
    check=check_design_job,
    explain="Many other items can be predicted well from it and the picks before it.",
)
