r"""Do the weighted picks stand for the pool in every direction of the features?

With :math:`T` such that the columns of :math:`V = A T` are orthonormal over the pool, the matrix

.. math:: S = \sum_{i \in \text{picks}} w_i \, v_i v_i^\top

would be the identity if every item were picked with weight 1. Its smallest and largest eigenvalue
say how much of the pool's energy the picks see in the worst and the best direction :math:`x`:

.. math:: \lambda_{\min} \le \frac{\sum_{\text{picks}} w_i (a_i \cdot x)^2}
    {\sum_{\text{pool}} (a_i \cdot x)^2} \le \lambda_{\max} .

If all lie in [3/4, 5/4], a weighted least-squares fit on the picks is close to the fit on the pool.

Cost: one or two passes over the pool, ``O(n d^2)``.

Reference: X. Chen, E. Price, "Active Regression via Linear-Sample Sparsification", COLT 2019, and
"Sample Complexity of Deep Active Learning", submitted to ICLR 2022, Definition 5.5.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from labelwise.arrays import Floats
from labelwise.kernels.linear.leverage import whiten
from labelwise.selection.result import Selection
from labelwise.theory.pool import ModelReader, as_pool, check_picks, read_picked_rows

BAND = (0.75, 1.25)
"""Where the theory wants all eigenvalues."""

_UNSEEN = 1e-10
"""Directions of which the picks see less than this are not seen at all."""


@dataclass(frozen=True)
class Spectrum:
    """The eigenvalues of the weighted picks against the pool.

    Attributes:
        values: ``(r,)``, smallest first; the pool's own are all 1.
        vectors: ``(r, r)``, the eigenvectors as columns, in the whitened coordinates.
        transform: ``(d, r)``, from features to whitened coordinates.
    """

    values: Floats
    vectors: Floats
    transform: Floats

    @property
    def rank(self) -> int:
        """How many directions the pool's features have."""
        return len(self.values)

    @property
    def lower(self) -> float:
        """The smallest eigenvalue; 1 where there is no direction at all."""
        return float(self.values[0]) if self.rank else 1.0

    @property
    def upper(self) -> float:
        """The largest eigenvalue; 1 where there is no direction at all."""
        return float(self.values[-1]) if self.rank else 1.0

    @property
    def inside(self) -> bool:
        """Whether all eigenvalues are in [3/4, 5/4]."""
        return BAND[0] <= self.lower and self.upper <= BAND[1]

    @property
    def unseen(self) -> int:
        """How many directions of the pool no pick touches."""
        return int(np.count_nonzero(self.values < _UNSEEN))


def weighted_spectrum(
    picks: Selection,
    features: Any,
    *,
    model: int = 0,
    bias: bool = False,
    rtol: float | None = None,
) -> Spectrum:
    """Compare the weighted picks with the pool, direction by direction.

    Args:
        picks: without weights, every pick stands for ``n / b`` items.
        features: ``(n, d)`` of the whole pool, a list of such arrays (one per model), or shards.
        model: which model's features.
        bias: whether the linear model has a constant column.
        rtol: what counts as zero when the rank is judged, as in `labelwise.kernels`.

    >>> import numpy as np
    >>> from labelwise import Selection
    >>> pool = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> found = weighted_spectrum(Selection(np.array([0, 2]), np.array([2.0, 1.5])), pool)
    >>> [round(float(value), 6) for value in found.values], found.inside
    ([0.75, 1.0], True)
    """
    shards = as_pool(features)
    read = ModelReader(model, bias)
    ids, weights, _ = check_picks(picks, len(shards))
    transform = whiten(shards, read, rtol=rtol).transform
    rows = read_picked_rows(shards, ids, read) @ transform
    values, vectors = np.linalg.eigh((rows * weights[:, None]).T @ rows)
    return Spectrum(np.clip(values, 0.0, None), vectors, transform)
