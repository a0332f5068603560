r"""Spectrum of the weighted picks relative to the pool.

With :math:`T` such that the columns of :math:`V = A T` are orthonormal over the pool, the matrix

.. math:: S = \sum_{i \in \text{picks}} w_i \, v_i v_i^\top

is the identity if every item is picked with weight 1. Its smallest and largest eigenvalue bound the
ratio of the picks' energy to the pool's energy in every direction :math:`x`:

.. math:: \lambda_{\min} \le \frac{\sum_{\text{picks}} w_i (a_i \cdot x)^2}
    {\sum_{\text{pool}} (a_i \cdot x)^2} \le \lambda_{\max} .

If all eigenvalues lie in [3/4, 5/4], a weighted least-squares fit on the picks is close to the fit
on the pool.

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
"""Range of the eigenvalues that the theory requires."""

_UNSEEN = 1e-10
"""Directions with a smaller eigenvalue count as not covered by the picks."""


@dataclass(frozen=True)
class Spectrum:
    """Eigendecomposition of the weighted picks relative to the pool.

    Attributes:
        values: ``(r,)`` eigenvalues, smallest first; all 1 for the whole pool.
        vectors: ``(r, r)``, eigenvectors as columns, in whitened coordinates.
        transform: ``(d, r)``, maps features to whitened coordinates.
    """

    values: Floats
    vectors: Floats
    transform: Floats

    @property
    def rank(self) -> int:
        """Rank of the pool's features."""
        return len(self.values)

    @property
    def lower(self) -> float:
        """The smallest eigenvalue; 1 if the rank is 0."""
        return float(self.values[0]) if self.rank else 1.0

    @property
    def upper(self) -> float:
        """The largest eigenvalue; 1 if the rank is 0."""
        return float(self.values[-1]) if self.rank else 1.0

    @property
    def inside(self) -> bool:
        """Whether all eigenvalues are in [3/4, 5/4]."""
        return BAND[0] <= self.lower and self.upper <= BAND[1]

    @property
    def unseen(self) -> int:
        """Number of directions that no pick covers."""
        return int(np.count_nonzero(self.values < _UNSEEN))


def weighted_spectrum(
    picks: Selection,
    features: Any,
    *,
    model: int = 0,
    bias: bool = False,
    rtol: float | None = None,
) -> Spectrum:
    """Compute the spectrum of the weighted picks relative to the pool.

    Args:
        picks: unweighted picks get weight ``n / b`` each.
        features: ``(n, d)`` of the whole pool, a list of such arrays (one per model), or shards.
        model: index of the model whose features are used.
        bias: whether the linear model has a constant column.
        rtol: relative rank tolerance, as in `labelwise.kernels`.

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
