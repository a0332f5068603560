r"""Margin: pick the items whose two most likely classes are closest.

The score of item :math:`i` is :math:`p_{i(2)} - p_{i(1)}`, the second highest probability minus
the highest. Scores of several models are scaled to [0, 1] over the pool and averaged.

Cost: one pass over the probabilities, ``O(n K)``.

Reference: T. Scheffer, C. Decomain, S. Wrobel, "Active Hidden Markov Models for Information
Extraction", IDA 2001.
"""

from labelwise.arrays import Array, namespace
from labelwise.kernels.information.uncertainty import make_uncertainty_strategy
from labelwise.strategy import PickFacts, read_reference


def negative_margin(probabilities: Array) -> Array:
    """The second highest probability minus the highest: ``(n, K)`` to ``(n,)``, at most 0."""
    if probabilities.shape[1] == 1:
        return -probabilities[:, 0]
    ordered = namespace(probabilities).sort(probabilities, axis=1)
    return ordered[:, -2] - ordered[:, -1]


def explain_margin_pick(facts: PickFacts) -> str:
    """Say how close the two classes are, unless scores of several models were scaled."""
    sentence = "Its two most likely classes are closer than those of most other items"
    if facts.score is None or not -1 <= facts.score <= 0:
        return f"{sentence}."
    points = round(-100 * facts.score)
    apart = "1 percentage point" if points == 1 else f"{points} percentage points"
    return f"{sentence}: {apart if points else 'less than 1 percentage point'} apart."


STRATEGY = make_uncertainty_strategy(
    negative_margin,
    name="margin",
    explain=explain_margin_pick,
    good_for="the strongest simple uncertainty for many classes and small batches",
    reference=read_reference(__doc__),
)
