"""Several predictions per item from one trained network.

A learner with ``members`` gives ``member_probabilities`` ``(n, m, K)`` and ``member_votes``
``(n, m)``: the predictions of ``m`` versions of the network. A subclass of `Members` makes the
versions:

====================  ==========================================================================
`LaplaceMembers`      drawn from a closed-form posterior of the last layer
`VariationalMembers`  drawn from a last layer that was trained as a distribution
`DropoutMembers`      the network with fixed dropout masks
`SnapshotMembers`     the network at the ends of its later epochs
====================  ==========================================================================
"""

from labelwise.learners.members.base import Members
from labelwise.learners.members.dropout import DropoutMembers
from labelwise.learners.members.laplace import LaplaceMembers
from labelwise.learners.members.snapshots import SnapshotMembers
from labelwise.learners.members.variational import VariationalMembers

__all__ = ["DropoutMembers", "LaplaceMembers", "Members", "SnapshotMembers", "VariationalMembers"]
