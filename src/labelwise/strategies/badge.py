r"""BADGE: k-means++ seeding over last-layer gradients at the predicted labels.

The gradient of item :math:`i` is the outer product :math:`g_i = a_i h_i^\top`, with
:math:`a_i = p_i - e_{\hat y_i}` over classes and :math:`h_i` the last hidden layer. It is never
formed, since

.. math::
    \lVert g_i - g_j \rVert^2 = |a_i|^2 |h_i|^2 + |a_j|^2 |h_j|^2
        - 2 \, (a_i \cdot a_j)(h_i \cdot h_j) .

The first pick has the largest gradient; each further one is drawn in proportion to its squared
distance to the nearest pick, so picks are uncertain (long gradients) and diverse.

Cost: a few passes over the rows instead of one per pick (`kernels.distance.kmeans_plus_plus`);
memory ``O(n)``.

Reference: J. Ash, C. Zhang, A. Krishnamurthy, J. Langford, A. Agarwal, "Deep Batch Active Learning
by Diverse, Uncertain Gradient Lower Bounds", ICLR 2020.
"""

import numpy as np

from labelwise.arrays import namespace
from labelwise.kernels.distance.embedding import Factored
from labelwise.kernels.distance.kmeans_plus_plus import draw_kmeans_plus_plus
from labelwise.kernels.pseudo_gradients import subtract_one_hot
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PassStrategy, read_reference


def choose_badge_batch(shards: Shards, labelled: Rows | None, budget: int, seed: int) -> Choice:
    """Draw the batch; labelled items are not used."""
    ids, distances = draw_kmeans_plus_plus(
        shards, compute_badge_gradients, budget, seed, first="largest", name="badge"
    )
    return Choice(ids, scores=distances)


def compute_badge_gradients(rows: Rows) -> Factored:
    """Last-layer gradients at the predicted label; ``a`` is ``(n, K)`` and ``h`` ``(n, d)``.

    ``a`` holds the probabilities, with 1 subtracted from the highest of each row (the first of
    ties).
    """
    features, probabilities = rows["features"], rows["probabilities"]
    if isinstance(probabilities, np.ndarray):
        # Class by class takes a third of the time of an argmax over short rows.
        by_class = np.array(probabilities.T, dtype=features.dtype, order="C")
        highest = by_class == by_class.max(axis=0)
        if np.count_nonzero(highest) == len(probabilities):  # without ties
            by_class -= highest
            return Factored(by_class.T, features)
    xp = namespace(probabilities)
    residuals = subtract_one_hot(probabilities, xp.argmax(probabilities, axis=1), features.dtype)
    return Factored(residuals, features)


def estimate_badge_cost(job: Job) -> Cost:
    """All rows are measured again whenever old distances have become poor bounds."""
    return Cost(
        passes=(1, job.budget + 2),
        usual=min(3, job.budget + 2),
        columns=16 + job.budget / 20,
        item_bytes=40.0,
        state_bytes=28.0,
    )


STRATEGY = PassStrategy(
    name="badge",
    needs=("features", "probabilities"),
    choose=choose_badge_batch,
    draws=True,
    cost=estimate_badge_cost,
    explain="A label would change the model{doubt}, and the item differs from the other picks of "
    "this batch.",
    good_for="classification with a network: uncertain and diverse at once; a strong default",
    reference=read_reference(__doc__),
)
