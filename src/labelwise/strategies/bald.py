r"""BALD: pick the items whose label would tell most about the members of a committee.

With :math:`p_{im}` the class probabilities of item :math:`i` under member :math:`m` (a posterior
draw, a dropout mask, a model of an ensemble), the score is the mutual information of label and
member,

.. math:: H\big(\tfrac{1}{M} \sum_m p_{im}\big) - \tfrac{1}{M} \sum_m H(p_{im}) .

It is high where the members are confident and disagree. Items are scored one by one, so a batch may
be redundant; ``batchbald`` scores the batch as a whole.

Cost: one pass over the members' probabilities, ``O(n M K)``.

Reference: N. Houlsby, F. Huszár, Z. Ghahramani, M. Lengyel, "Bayesian Active Learning for
Classification and Preference Learning", 2011.
"""

from labelwise.arrays import Floats
from labelwise.kernels.information.mutual_information import information_gains, prior_outcome
from labelwise.pool.rows import Rows
from labelwise.strategy import ScoreStrategy, read_reference

DISAGREEMENT = "The models disagree about this item more than about most others."


def score_bald(rows: Rows, labelled: Rows | None) -> Floats:
    """The mutual information in nats, ``(n,)``; members' probabilities are ``(n, M, K)``."""
    members = rows["member_probabilities"]
    return information_gains(members, prior_outcome(members.shape[1]))


STRATEGY = ScoreStrategy(
    name="bald",
    needs=("member_probabilities",),
    score=score_bald,
    explain=DISAGREEMENT,
    good_for="posterior draws, dropout or ensembles; small batches",
    reference=read_reference(__doc__),
)
