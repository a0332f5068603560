r"""Do training dynamics and alignment rank batches alike? Kendall's rank correlation.

For random batches :math:`Q` beside a fixed labelled set :math:`S`, the dynamics
:math:`G_{MSE}(S \cup Q)` and the alignment :math:`A(S \cup Q)` are compared over all pairs of
batches: the correlation is the share of pairs that both order alike minus the share that they
order differently.

A network whose outputs are zero has :math:`G_{MSE} = A`, so part of the agreement is built in; what
it says is how much of that is left after training.

Reference: H. Wang, W. Huang, Z. Wu, A. Margenot, H. Tong, J. He, "Deep Active Learning by
Leveraging Training Dynamics", NeurIPS 2022, Figure 2 and Appendix D.2 (150 batches of 250 beside
500 labelled items).
"""

from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import Floats, row_noise
from labelwise.errors import BadInput
from labelwise.theory.dynamics import alignment, check_kernel, check_targets, training_dynamics


class Agreement(NamedTuple):
    """Kendall's correlation, in [-1, 1], and both quantities of every batch, ``(draws,)``."""

    correlation: float
    dynamics: Floats
    alignments: Floats


def dynamics_agreement(
    kernel: Any,
    outputs: Any,
    targets: Any,
    *,
    batch: int,
    labelled: int = 0,
    draws: int = 150,
    seed: int = 0,
) -> Agreement:
    """Rank random batches by both, and compare the ranks.

    Args:
        kernel: ``(n, n)`` of all items, the labelled ones first.
        outputs: ``(n, K)`` or ``(n,)``, what the network gives.
        targets: the same shape.
        batch: how many of the items that are not labelled make a batch.
        labelled: how many of the first items are in every batch.
        draws: how many batches.
        seed: decides them.

    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(40, 5))
    >>> targets = np.sign(rows[:, 0])
    >>> dynamics_agreement(rows @ rows.T, 0 * targets, targets, batch=8).correlation
    1.0
    """
    from scipy.stats import kendalltau

    theta = check_kernel(kernel)
    n = len(theta)
    f, y = check_targets(outputs, n), check_targets(targets, n)
    if not (0 <= labelled < n and 0 < batch <= n - labelled and draws >= 2):
        raise BadInput(
            f"cannot draw {draws} batches of {batch} from {n - labelled} items; give 1 to "
            f"{n - labelled} items a batch, and 2 batches or more"
        )
    first, rest = np.arange(labelled), np.arange(labelled, n)
    dynamics, alignments = np.empty(draws), np.empty(draws)
    for number in range(draws):
        drawn = rest[np.argsort(row_noise(seed, rest, number))[:batch]]
        both = np.concatenate([first, drawn])
        part = theta[np.ix_(both, both)]
        dynamics[number] = training_dynamics(part, f[both], y[both])
        alignments[number] = alignment(part, y[both])
    found = float(kendalltau(dynamics, alignments).statistic)
    return Agreement(round(found, 12), dynamics, alignments)
