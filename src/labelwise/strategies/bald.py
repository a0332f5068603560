r"""BALD: pick the items whose label would tell most about the members of a committee.

With :math:`p_{im}` the class probabilities of item :math:`i` under member :math:`m` (a posterior
draw, a dropout mask, a model of an ensemble), the score is the mutual information of label and
member,

.. math:: H\big(\tfrac{1}{M} \textstyle\sum_m p_{im}\big) - \tfrac{1}{M} \sum_m H(p_{im}) .

It is high where the members are sure of themselves and disagree. Items are scored one by one, so
that a batch may hold the same news many times over; ``batchbald`` looks at the batch as a whole.

Cost: one pass over the members' probabilities, ``O(n M K)``.

Reference: N. Houlsby, F. Huszár, Z. Ghahramani, M. Lengyel, "Bayesian Active Learning for
Classification and Preference Learning", 2011.
"""

from labelwise.arrays import Floats
from labelwise.kernels.information.mutual_information import information_gains, no_picks
from labelwise.pool.rows import Rows
from labelwise.strategy import PickFacts, ScoreStrategy


def score(rows: Rows, labelled: Rows | None) -> Floats:
    """Return the mutual information in nats, ``(n,)``; members' probabilities are ``(n, M, K)``."""
    members = rows["member_probabilities"]
    return information_gains(members, no_picks(members.shape[1]))


def explain_pick(facts: PickFacts) -> str:
    """Say why an item was picked."""
    return "The models disagree about this item more than about most others."


STRATEGY = ScoreStrategy(
    name="bald",
    needs=("member_probabilities",),
    score=score,
    good_for="posterior draws, dropout or ensembles; small batches",
    reference="Houlsby, Huszár, Ghahramani and Lengyel, Bayesian Active Learning for "
    "Classification and Preference Learning, 2011",
    explain=explain_pick,
)
