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

Example:
    >>> import numpy as np
    >>> from torch import nn
    >>> from labelwise import TorchLearner
    >>> inputs = np.random.default_rng(0).normal(size=(60, 4))
    >>> targets = (inputs[:, 0] > 0).astype(int)
    >>> layers = lambda: (nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    >>> make = lambda: nn.Sequential(*layers())
    >>> for kind in (LaplaceMembers, VariationalMembers, DropoutMembers):
    ...     learner = TorchLearner(make, epochs=5, members=kind(count=9))
    ...     report = learner.fit(inputs, targets, seed=0)
    ...     learner.represent(inputs, ["member_probabilities"])["member_probabilities"].shape
    (60, 9, 2)
    (60, 9, 2)
    (60, 9, 2)
"""

from labelwise.learners.members.base import Members
from labelwise.learners.members.dropout import DropoutMembers
from labelwise.learners.members.laplace import LaplaceMembers
from labelwise.learners.members.snapshots import SnapshotMembers
from labelwise.learners.members.variational import VariationalMembers

__all__ = ["DropoutMembers", "LaplaceMembers", "Members", "SnapshotMembers", "VariationalMembers"]
