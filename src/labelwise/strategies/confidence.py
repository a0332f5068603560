r"""Least confidence: pick the items whose most likely class is least likely.

The score of item :math:`i` is :math:`1 - \max_k p_{ik}`. Scores of several models are scaled to
[0, 1] over the pool and averaged.

Cost: one pass over the probabilities, ``O(n K)``.

Reference: D. Lewis, W. Gale, "A Sequential Algorithm for Training Text Classifiers", SIGIR 1994.
"""

from labelwise.arrays import Array, namespace
from labelwise.kernels.information.uncertainty import make_uncertainty_strategy
from labelwise.strategy import read_reference


def least_confidence(probabilities: Array) -> Array:
    """One minus the highest probability: ``(n, K)`` to ``(n,)``."""
    return 1 - namespace(probabilities).max(probabilities, axis=1)


STRATEGY = make_uncertainty_strategy(
    least_confidence,
    name="confidence",
    good_for="quick uncertainty when only the top class matters",
    reference=read_reference(__doc__),
)
