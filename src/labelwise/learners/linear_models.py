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
:math:`c \lVert z_{\cdot j} \rVert^2 + \lambda`, with :math:`c` the mean of :math:`p (1 - p)` over
items and classes: that of equal probabilities for a first, rough fit, and then the one it finds.
About 30 iterations are enough where the unscaled problem takes several hundred.

Cost: ``min(m, d)^2 max(m, d)`` for the basis; an iteration is two products, ``4 m r K``, with
``r = min(m, d)``. Bases are computed up to `LARGEST_BASIS` directions. The folds of a
cross-validation are fitted together: they share the products, which then read the rows once.
"""

from typing import NamedTuple

import numpy as np

from labelwise.arrays import Floats, HostArray, Ids
from labelwise.kernels.calibration import softmax

LARGEST_BASIS = 700  # Largest number of directions of a basis; above, the rows are used as they are
ROUGH, TOLERANCE = 1e-2, 1e-5
"""Decreases of the mean loss in an iteration at which a rough fit, and a fit, end."""

MOST_ITERATIONS = 500


class RowSpan(NamedTuple):
    """Rows as coordinates in an orthogonal basis of their span."""

    coordinates: Floats  # ``(m, r)``
    # ``(d, r)`` with orthonormal columns; None for the coordinates of the rows themselves
    basis: Floats | None
    squares: Floats  # ``(r,)``, squared norms of the columns of the coordinates

    def expand_coefficients(self, coefficients: Floats) -> Floats:
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


class LogisticFit(NamedTuple):
    """Fits of ``F`` weightings; logits are ``coefficients @ coordinates + offsets``."""

    coefficients: Floats  # ``(F, K, r)``
    offsets: Floats  # ``(F, K)``
    loss: float  # mean over the items of all weightings
    iterations: int
    converged: bool


def fit_logistic(
    coordinates: HostArray,
    squares: Floats,
    targets: Ids,
    classes: int,
    weights: Floats,
    penalty: float,
    *,
    start: LogisticFit | None = None,
    tolerance: float = TOLERANCE,
) -> LogisticFit:
    """Minimize the logistic loss of ``(m, r)`` coordinates for weights ``(F, m)``.

    The ``F`` weightings, such as the folds of a cross-validation, are separate problems, each with
    its own mean of the coordinates. ``squares`` ``(r,)``, squared norms of the columns, set the
    scale of the search only; ``penalty`` is the factor of half the squared coefficients; ``start``
    is a fit to begin with. Products are computed in the precision of the coordinates.
    """
    from scipy.optimize import minimize  # takes a quarter of a second to import

    problem = _LogisticProblem(coordinates, targets, classes, weights, penalty)
    iterations, converged = 0, False
    if start is None:
        own = np.zeros((len(weights), classes, coordinates.shape[1]))
        offsets = np.zeros((len(weights), classes))
    else:
        own, offsets = (
            start.coefficients,
            start.offsets + problem.multiply_means(start.coefficients),
        )
    for goal in (ROUGH, tolerance) if start is None else (tolerance,):
        scale = 1 / np.sqrt(squares * problem.measure_curvature(own, offsets) + penalty)
        found = minimize(
            problem.evaluate_loss,
            np.concatenate([(own / scale).ravel(), offsets.ravel()]),
            args=(scale,),
            jac=True,
            method="L-BFGS-B",
            options={"gtol": 1e-8, "ftol": goal, "maxiter": MOST_ITERATIONS},
        )
        own, offsets = problem.split_numbers(found.x, scale)
        iterations, converged = iterations + int(found.nit), bool(found.success)
    offsets = offsets - problem.multiply_means(own)
    return LogisticFit(own, offsets, float(found.fun), iterations, converged)


class _LogisticProblem:
    """Loss and gradient at coefficients ``(F, K, r)`` and offsets ``(F, K)`` at the means."""

    def __init__(
        self,
        coordinates: HostArray,
        targets: Ids,
        classes: int,
        weights: Floats,
        penalty: float,
    ) -> None:
        self._coordinates, self._targets = coordinates, targets
        self._weights, self._penalty = weights, penalty
        self._shape = len(weights), classes, coordinates.shape[1]
        self._means = weights @ coordinates / weights.sum(axis=1, keepdims=True)
        self._total, self._items = weights.sum(), np.arange(len(targets))

    def split_numbers(self, flat: Floats, scale: Floats) -> tuple[Floats, Floats]:
        """Coefficients and offsets from the scaled numbers of the search."""
        offsets = flat[-self._shape[0] * self._shape[1] :].reshape(self._shape[:2])
        return scale * flat[: -offsets.size].reshape(self._shape), offsets

    def multiply_means(self, own: Floats) -> Floats:
        """Products ``(F, K)`` of the coefficients with the means."""
        return np.asarray(np.einsum("fkr,fr->fk", own, self._means))

    def measure_curvature(self, own: Floats, offsets: Floats) -> float:
        """The weighted mean of ``p (1 - p)``."""
        chances = softmax(self._compute_logits(own, offsets).swapaxes(1, 2))
        return float(np.vdot(self._weights, np.mean(chances * (1 - chances), axis=2)) / self._total)

    def _compute_logits(self, own: Floats, offsets: Floats) -> HostArray:
        """``(F, K, m)``: the items are last, where NumPy is fastest."""
        folds, classes, width = self._shape
        flat = own.reshape(folds * classes, width).astype(self._coordinates.dtype, copy=False)
        logits = (flat @ self._coordinates.T).reshape(folds, classes, -1)
        logits += (offsets - self.multiply_means(own))[:, :, None]
        return logits

    def evaluate_loss(self, numbers: Floats, scale: Floats) -> tuple[float, Floats]:
        """Loss per item and its gradient, both in the scaled numbers of the search."""
        own, offsets = self.split_numbers(numbers, scale)
        logits = self._compute_logits(own, offsets)
        chosen = logits[:, self._targets, self._items]
        # The softmax in place, with the largest logit taken out; then its gradient.
        most = logits.max(axis=1, keepdims=True)
        logits -= most
        np.exp(logits, out=logits)
        sums = logits.sum(axis=1, keepdims=True)
        loss = float(np.vdot(self._weights, (np.log(sums) + most)[:, 0] - chosen))
        logits /= sums
        logits[:, self._targets, self._items] -= 1.0
        logits *= self._weights[:, None]
        slope = logits.sum(axis=2, dtype=np.float64)
        flat = logits.reshape(-1, len(self._items))
        gradient = (flat @ self._coordinates).reshape(self._shape)
        gradient = gradient - slope[:, :, None] * self._means[:, None] + self._penalty * own
        loss += 0.5 * self._penalty * float(np.vdot(own, own))
        # The observation of every class at the mean, which depends on the offsets only.
        middle = softmax(offsets)
        loss -= float(np.log(np.maximum(middle, 1e-300)).sum())
        slope += self._shape[1] * middle - 1.0
        both = np.concatenate([(gradient * scale).ravel(), slope.ravel()])
        return loss / self._total, both / self._total


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
