r"""Least confidence: pick the items whose most likely class is least likely.

The score of item :math:`i` is :math:`1 - \max_k p_{ik}`. Scores of several models are scaled
to [0, 1] over the pool, each by itself, and averaged.

Cost: one pass over the probabilities, ``O(n K)``.

Reference: D. Lewis, W. Gale, "A Sequential Algorithm for Training Text Classifiers", SIGIR 1994.
"""

from labelwise.kernels.information.uncertainty import confidence, uncertainty_strategy
from labelwise.strategy import PickFacts


def explain_pick(facts: PickFacts) -> str:
    """Say why an item was picked."""
    return f"The model is less sure about it than about most other items{facts.describe_doubt()}."


STRATEGY = uncertainty_strategy(
    confidence,
    name="confidence",
    good_for="quick uncertainty when only the top class matters",
    reference="Lewis and Gale, A Sequential Algorithm for Training Text Classifiers, SIGIR 1994",
    explain=explain_pick,
)
