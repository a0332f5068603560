r"""Logistic and ridge regression on features, fast for few rows and for wide ones.

With centred rows :math:`z_i`, weights :math:`w_i` and one-hot targets, the logistic loss is

.. math::
    \sum_i w_i \, \mathrm{CE}(y_i, W z_i + b) + K \, \mathrm{CE}(1/K, b)
    + \frac\lambda2 \lVert W \rVert^2 .

The second term is one observation of every class at the mean of the features: it gives classes
without labels a mean probability of about :math:`1 / m`, and keeps the offsets from following the
chance frequencies of few labels (20 random labels of 10 classes of CIFAR-10, EfficientNet-Lite0:
41 % instead of 32 %). The ridge loss is the squared error with the same penalty.

Both minima lie in the span of the rows, so :math:`m` rows with :math:`m < d` are replaced by their
coordinates in an orthonormal basis of the span, which come from the eigenvectors of the smaller
Gram matrix. L-BFGS runs with each coordinate scaled by the curvature
:math:`\lVert z_{\cdot j} \rVert^2 (1/K) (1 - 1/K) + \lambda`, which is the Hessian at equal
probabilities: about 15 iterations are enough where the unscaled problem takes a hundred.

Cost: ``min(m, d)^2 max(m, d)`` for the basis; an iteration is two products, ``4 m r K``, with
``r = min(m, d)``. Bases are computed up to `LARGEST_BASIS` directions.

Reference: D. Böhning, "Multinomial Logistic Regression Algorithm", Annals of the Institute of
Statistical Mathematics 1992, for the bound on the Hessian.
"""

from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import Floats, Ids

LARGEST_BASIS = 700  # Largest number of directions of a basis; above, the rows are used as they are
TOLERANCE = 1e-4
"""Largest entry of the gradient of the mean loss, in scaled coordinates, at the end."""

MOST_ITERATIONS = 500


class RowSpan(NamedTuple):
    """Rows as coordinates in an orthogonal basis of their span."""

    coordinates: Floats  # ``(m, r)``
    # ``(d, r)`` with orthonormal columns; None for the coordinates of the rows themselves
    basis: Floats | None
    squares: Floats  # ``(r,)``, squared norms of the columns of the coordinates

    def expand(self, coefficients: Floats) -> Floats:
        """Coefficients ``(r, K)`` of the coordinates as those of the rows, ``(d, K)``."""
        return coefficients if self.basis is None else self.basis @ coefficients


def span_rows(rows: Floats, largest: int = LARGEST_BASIS) -> RowSpan:
    """Coordinates of ``(m, d)`` rows; the columns are orthogonal if there is a basis.

    >>> span = span_rows(np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 2.0]]))
    >>> span.coordinates.shape, span.squares.round(6).tolist()
    ((2, 2), [4.0, 25.0])
    """
    count, width = rows.shape
    if min(count, width) > largest:
        return RowSpan(rows, None, np.sum(rows**2, axis=0))
    if count < width:
        squares, left = np.linalg.eigh(rows @ rows.T)
        kept = squares > 1e-12 * max(squares[-1], 1e-300)
        squares, left = squares[kept], left[:, kept]
        roots = np.sqrt(squares)
        return RowSpan(left * roots, rows.T @ (left / roots), squares)
    squares, basis = np.linalg.eigh(rows.T @ rows)
    return RowSpan(rows @ basis, basis, np.maximum(squares, 0.0))


class LinearFit(NamedTuple):
    """Coefficients ``(r, K)``, offsets ``(K,)``, the loss per row, and the iterations it took."""

    coefficients: Floats
    offsets: Floats
    loss: float
    iterations: int
    converged: bool


def fit_logistic(
    coordinates: Floats,
    squares: Floats,
    targets: Ids,
    classes: int,
    weights: Floats,
    penalty: float,
    *,
    start: LinearFit | None = None,
    tolerance: float = TOLERANCE,
) -> LinearFit:
    """Minimize the logistic loss of ``(m, r)`` centred coordinates.

    ``squares`` ``(r,)``, squared norms of their columns, set the scale of the search only;
    ``penalty`` is the factor of half the squared coefficients; ``start`` is a fit to begin with.
    """
    from scipy.optimize import minimize  # takes a quarter of a second to import

    count, width = coordinates.shape
    total = weights.sum()
    scale = 1 / np.sqrt(squares * (1 - 1 / classes) / classes + penalty)
    scaled = coordinates * scale
    decay = (penalty * scale * scale)[:, None]
    places = np.arange(count)

    def evaluate(flat: Floats) -> tuple[float, Floats]:
        """Loss per row and its gradient."""
        own, offsets = flat[:-classes].reshape(width, classes), flat[-classes:]
        logits = scaled @ own
        logits += offsets
        chosen = logits[places, targets]
        # The softmax in place, with the largest logit taken out; then its gradient.
        most = logits.max(axis=1, keepdims=True)
        logits -= most
        np.exp(logits, out=logits)
        sums = logits.sum(axis=1, keepdims=True)
        loss = float(weights @ (np.log(sums) + most)[:, 0] - weights @ chosen)
        logits /= sums
        logits[places, targets] -= 1.0
        logits *= weights[:, None]
        # The observation of every class at the mean, which depends on the offsets only.
        peak = offsets.max()
        middle = np.exp(offsets - peak)
        loss += classes * float(np.log(middle.sum()) + peak - offsets.mean())
        slope = logits.sum(axis=0) + classes * middle / middle.sum() - 1.0
        loss += 0.5 * float(np.vdot(decay * own, own))
        gradient = scaled.T @ logits
        gradient += decay * own
        return loss / total, np.concatenate([gradient.ravel(), slope]) / total

    flat = np.zeros((width + 1) * classes)
    if start is not None:
        flat[:-classes] = (start.coefficients / scale[:, None]).ravel()
        flat[-classes:] = start.offsets
    options: dict[str, Any] = {"gtol": tolerance, "ftol": 1e-12, "maxiter": MOST_ITERATIONS}
    found = minimize(evaluate, flat, jac=True, method="L-BFGS-B", options=options)
    own = found.x[:-classes].reshape(width, classes) * scale[:, None]
    return LinearFit(own, found.x[-classes:], float(found.fun), int(found.nit), bool(found.success))


class RidgeFit(NamedTuple):
    """Coefficients ``(r, k)`` of a ridge regression and its leave-one-out errors, ``(m, k)``."""

    coefficients: Floats
    errors: Floats


def fit_ridge(span: RowSpan, values: Floats, weights: Floats, penalty: float) -> RidgeFit:
    r"""Ridge regression of centred values on coordinates with orthogonal columns.

    Leave-one-out errors are exact: the residual divided by one minus the leverage :math:`h_i = w_i
    / \sum_j w_j + \sum_j c_{ij}^2 / (s_j + \lambda)`. Rows and values are centred and multiplied by
    the roots of their weights; ``penalty`` is the factor of the squared coefficients.
    """
    shrunk = 1 / (span.squares + penalty)
    own = shrunk[:, None] * (span.coordinates.T @ values)
    leverage = weights / weights.sum() + (span.coordinates**2) @ shrunk
    residuals = values - span.coordinates @ own
    return RidgeFit(own, residuals / np.maximum(1 - leverage, 1e-9)[:, None])
