r"""Margin: pick the items whose two most likely classes are closest.

The score of item :math:`i` is :math:`p_{i(2)} - p_{i(1)}`, the second highest probability
minus the highest. Scores of several models are scaled to [0, 1] over the pool, each by itself, and
averaged.

Cost: one pass over the probabilities, ``O(n K)``.

Reference: T. Scheffer, C. Decomain, S. Wrobel, "Active Hidden Markov Models for Information
Extraction", IDA 2001.
"""

from labelwise.kernels.information.uncertainty import margin, uncertainty_strategy
from labelwise.strategy import PickFacts


def explain_pick(facts: PickFacts) -> str:
    """Say why an item was picked."""
    sentence = "Its two most likely classes are closer than those of most other items"
    if facts.score is None or not -1 <= facts.score <= 0:  # scores of several models are scaled
        return f"{sentence}."
    points = round(-100 * facts.score)
    apart = "1 percentage point" if points == 1 else f"{points} percentage points"
    return f"{sentence}: {apart if points else 'less than 1 percentage point'} apart."


STRATEGY = uncertainty_strategy(
    margin,
    name="margin",
    good_for="the strongest simple uncertainty for many classes and small batches",
    reference="Scheffer, Decomain and Wrobel, Active Hidden Markov Models for Information "
    "Extraction, IDA 2001",
    explain=explain_pick,
)
