"""Several predictions per item from one trained network.

A learner with ``members`` gives ``member_probabilities`` ``(n, m, K)`` and ``member_votes``
``(n, m)``: what each of ``m`` versions of the network predicts. How the versions come about is a
class of its own, derived from `Members`:

====================  ==========================================================================
`LaplaceMembers`      drawn from a closed-form posterior of the last layer
`VariationalMembers`  drawn from a last layer that was trained as a distribution
`DropoutMembers`      the network with some of its units switched off
`SnapshotMembers`     the network as it was at the ends of its later epochs
====================  ==========================================================================
"""

from labelwise.learners.members.base import Members
from labelwise.learners.members.dropout import DropoutMembers
from labelwise.learners.members.laplace import LaplaceMembers
from labelwise.learners.members.snapshots import SnapshotMembers
from labelwise.learners.members.variational import VariationalMembers

__all__ = [
    "DropoutMembers",
    "LaplaceMembers",
    "Members",
    "SnapshotMembers",
    "VariationalMembers",
]
