r"""One neuron per output, fitted in the :math:`\ell_p` norm with the weights of a selection.

For every model whose features a `lewis` selection was made from, and every output,

.. math:: \min_\theta \sum_i w_i \, |f(a_i \theta) - y_i|^p

over the labelled items is nearly as good as a fit to the whole labelled pool. The paper's theorem
bounds :math:`\sum_i w_i |a_i \theta|^p` too; its experiments and this module do not. With a bias
the rows :math:`a_i` end in a 1.

The activation must be 0 at 0; otherwise a zero row has a loss that :math:`\theta` cannot change.
Identity, ReLU and tanh are allowed, the logistic sigmoid (1/2 at 0) is not.

* identity: convex; the global minimum (`lp_regression`).
* ReLU, tanh: not convex; the best of several local searches, never worse than :math:`\theta = 0`.
  A search runs L-BFGS on :math:`(r^2 + \delta^2)^{p/2}` instead of :math:`|r|^p`, with a decreasing
  :math:`\delta` for p below 2.

`lp_regression` reduces the rows to an orthonormal basis of their span, which handles rank
deficiency; the result is the shortest solution. p = 1 is a linear program (HiGHS), p = 2 least
squares; others use Newton's method on :math:`\sum_i w_i (r_i^2 + \delta^2)^{p/2}` with
:math:`\delta` decreasing to 1e-10 of the residuals.

Cost: a singular value decomposition, ``O(m d^2)``, then tens of steps of ``O(m d^2)`` (identity) or
some hundreds of ``O(m d)`` per start and output. NumPy and SciPy, in float64.

Reference: S.-J. Huang, Y. Li, Y. Sun, Y.-P. Tang, "One-shot Active Learning Based on Lewis Weight
Sampling for Multiple Deep Models", ICLR 2024, Algorithm 1.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import solve
from scipy.optimize import linprog, minimize
from scipy.sparse import issparse

from labelwise.arrays import Array, Floats, is_array, precision, to_numpy
from labelwise.errors import BadInput, NotConverged
from labelwise.kernels.linear.leverage import rank_tolerance
from labelwise.learner import FitReport, check_names, check_seed
from labelwise.learners.weights import convert_numbers, convert_rows, scale_to_mean_one

NEWTON_STEPS = 100  # For one delta at most
EPSILON = float(np.finfo(np.float64).eps)
DELTAS = 10.0 ** -np.arange(11)


class OrthonormalBasis(NamedTuple):
    """A basis in which to fit: the predictions of ``theta = back @ beta`` are ``span @ beta``."""

    span: Floats  # ``(m, r)``, orthonormal columns
    back: Floats  # ``(d, r)``; ``back @ beta`` is the shortest theta with these predictions


class LpSolution(NamedTuple):
    """Coefficients ``(r,)``, number of steps, and whether they reached the tolerance."""

    beta: Floats
    steps: int
    converged: bool


def orthonormalize_columns(rows: Floats, precision: float = EPSILON) -> OrthonormalBasis:
    """An orthonormal basis of the columns of ``(m, d)`` rows known to a relative precision."""
    left, values, right = np.linalg.svd(rows, full_matrices=False)
    cut = values[0] * rank_tolerance(precision, *rows.shape) if len(values) else 0.0
    rank = int(np.sum(values > cut))
    return OrthonormalBasis(left[:, :rank], right[:rank].T / values[:rank])


def lp_regression(span: Floats, targets: Floats, weights: Floats, p: float) -> LpSolution:
    """The best coefficients of ``(m, r)`` orthonormal columns; p >= 1 and weights above 0.

    >>> basis = orthonormalize_columns(np.ones((3, 1)))  # the best constant: mean, median, middle
    >>> y, w = np.array([0.0, 1.0, 5.0]), np.ones(3)
    >>> for p in (2, 1, 60):
    ...     print(round(float((basis.back @ lp_regression(basis.span, y, w, p).beta)[0]), 2))
    2.0
    1.0
    2.5
    """
    scale = float(np.max(np.abs(targets), initial=0.0))
    if scale == 0 or span.shape[1] == 0:
        return LpSolution(np.zeros(span.shape[1]), 0, True)
    found = _SOLVERS.get(p, _solve_lp_by_newton)(span, targets / scale, weights, p)
    return found._replace(beta=found.beta * scale)


def _solve_lp_least_squares(
    span: Floats, targets: Floats, weights: Floats, p: float = 2
) -> LpSolution:
    roots = np.sqrt(weights)
    beta = np.linalg.lstsq(span * roots[:, None], targets * roots, rcond=None)[0]
    return LpSolution(np.asarray(beta, dtype=np.float64), 1, True)


def _solve_lp_linear_program(
    span: Floats, targets: Floats, weights: Floats, p: float = 1
) -> LpSolution:
    """Residuals are differences of two nonnegative variables."""
    count, rank = span.shape
    one = sparse.eye_array(count)
    costs = np.concatenate([np.zeros(rank), weights, weights])
    equalities = sparse.block_array([[sparse.csr_array(span), one, -one]])
    bounds = [(None, None)] * rank + [(0, None)] * (2 * count)
    answer = linprog(costs, A_eq=equalities, b_eq=targets, bounds=bounds)
    if answer.x is None:
        raise NotConverged(f"the linear program of p = 1 was not solved ({answer.message})")
    return LpSolution(answer.x[:rank], int(answer.nit), answer.status == 0)


def _solve_lp_by_newton(span: Floats, targets: Floats, weights: Floats, p: float) -> LpSolution:
    """Follow the smoothed problems from least squares to delta near 0."""
    beta = _solve_lp_least_squares(span, targets, weights).beta
    start = float(np.sqrt(np.mean((span @ beta - targets) ** 2)))
    if start <= 1e-14:  # the targets are fitted exactly
        return LpSolution(beta, 1, True)
    steps, converged = 1, True
    for delta in start * DELTAS:
        last = delta == start * DELTAS[-1]
        beta, made, converged = _minimize_smoothed_lp(
            beta, span, targets, weights, p, float(delta), 1e-14 if last else 1e-6
        )
        steps += made
    return LpSolution(beta, steps, converged)


def _minimize_smoothed_lp(
    beta: Floats, span: Floats, targets: Floats, weights: Floats, p: float, delta: float, tol: float
) -> tuple[Floats, int, bool]:
    """Minimise ``sum w (r^2 + delta^2)^(p/2)`` until a step would lower it by ``tol`` of it."""
    residuals = span @ beta - targets
    value = _smoothed_lp_loss(residuals, weights, p, delta)
    for step in range(NEWTON_STEPS):
        squares = residuals**2 + delta**2
        slopes = weights * residuals * squares ** (p / 2 - 1)
        bends = weights * squares ** (p / 2 - 2) * ((p - 1) * residuals**2 + delta**2)
        # The Newton direction, and the fall of the loss that it promises.
        direction = -_solve_newton_system((span * bends[:, None]).T @ span, span.T @ slopes)
        gain = -p * float(direction @ (span.T @ slopes))
        if gain <= tol * value:
            return beta, step, True
        # Halve the step until the loss falls by a tenth of that (Armijo).
        along, length = span @ direction, 1.0
        while (
            _smoothed_lp_loss(residuals + length * along, weights, p, delta)
            > value - 0.1 * length * gain
        ):
            length /= 2
            if length < 1e-10:  # the remaining gain is below rounding
                return beta, step, gain <= 1e-8 * value
        beta, residuals = beta + length * direction, residuals + length * along
        value = _smoothed_lp_loss(residuals, weights, p, delta)
    return beta, NEWTON_STEPS, False


def _smoothed_lp_loss(residuals: Floats, weights: Floats, p: float, delta: float) -> float:
    return float(weights @ (residuals**2 + delta**2) ** (p / 2))


def _solve_newton_system(matrix: Floats, vector: Floats) -> Floats:
    """Solve a positive definite system, up to rounding."""
    ridge = float(np.trace(matrix)) / len(matrix) * 1e-15
    try:
        return np.asarray(solve(matrix + ridge * np.eye(len(matrix)), vector, assume_a="pos"))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(matrix, vector, rcond=None)[0])


_SOLVERS: dict[float, Callable[..., LpSolution]] = {
    1: _solve_lp_linear_program,
    2: _solve_lp_least_squares,
}


SMOOTHINGS = (1e-1, 1e-2, 1e-4, 1e-7)  # Deltas, relative to the largest target, for p below 2


class Activation(NamedTuple):
    """A function that is 0 at 0 with Lipschitz constant 1, its derivative and its inverse."""

    value: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]
    inverse: Callable[[Floats], Floats]


ACTIVATIONS = {
    "identity": Activation(lambda z: z, np.ones_like, lambda y: y),
    "relu": Activation(
        lambda z: np.maximum(z, 0.0),
        lambda z: (z > 0).astype(np.float64),
        lambda y: np.maximum(y, 0.0),
    ),
    "tanh": Activation(
        np.tanh, lambda z: 1 - np.tanh(z) ** 2, lambda y: np.arctanh(np.clip(y, -0.95, 0.95))
    ),
}


class NeuronFit(NamedTuple):
    """A fitted neuron, or ``k`` of them."""

    theta: Floats  # ``(d,)`` or ``(d, k)``; predictions are ``f(features @ theta + bias)``
    bias: Floats  # a number or ``(k,)``; 0 if the neuron has no bias
    loss: float  # ``sum w |f(a theta) - y|^p``, with the given weights, summed over outputs
    steps: int  # number of iterations over all starts and outputs
    converged: bool  # whether the iterations that gave theta reached their tolerance
    exact: bool  # whether theta is the global minimum; otherwise the best of several local searches


def fit_neuron(
    features: Array,
    targets: Array,
    weights: Array = None,
    *,
    p: float = 2.0,
    activation: str = "identity",
    bias: bool = False,
    starts: int = 8,
    seed: int = 0,
) -> NeuronFit:
    """Fit one neuron per output by its weighted loss ``sum w |f(a theta + bias) - y|^p``.

    Args:
        features: ``(m, d)``, one row per labelled item.
        targets: ``(m,)`` or ``(m, k)`` values.
        weights: ``(m,)``, not negative; only their ratios matter. None weights all equally.
        p: the norm, 1 or more.
        activation: ``"identity"``, ``"relu"`` or ``"tanh"``.
        bias: whether to fit a bias.
        starts: random starts of the non-convex search, in addition to those from regressions.
        seed: determines the random starts.

    Several models, one selection: features of two models, one batch, one neuron each.

    >>> import labelwise
    >>> generator = np.random.default_rng(0)
    >>> F, G = generator.normal(size=(400, 3)), generator.normal(size=(400, 2))
    >>> y = F @ np.array([1.0, -2.0, 0.5]) + 4
    >>> picks = labelwise.select("lewis", 40, features=[F, G], p=1.5, seed=0)
    >>> data = y[picks.ids], picks.weights
    >>> fits = [fit_neuron(A[picks.ids], *data, p=1.5, bias=True) for A in (F, G)]
    >>> fits[0].theta.round(6).tolist(), round(float(fits[0].bias), 6)
    ([1.0, -2.0, 0.5], 4.0)
    """
    _check_neuron_options(p, activation, bias, starts)
    rows, columns, shares = _check_neuron_rows(features, targets, weights)
    single = columns.ndim == 1
    columns = columns.reshape(len(rows), -1)
    digits = precision(features if is_array(features) else rows)
    if bias:
        rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    kept = shares > 0
    basis = orthonormalize_columns(rows[kept], digits)
    scaled = shares[kept] / shares[kept].mean()
    found = []
    for values in columns[kept].T:
        if activation == "identity":
            found.append(lp_regression(basis.span, values, scaled, p))
        else:
            problem = NeuronProblem(basis.span, values, scaled, p, ACTIVATIONS[activation])
            found.append(_search_neuron(problem, starts, check_seed(seed)))
    # Back from the orthonormal basis to coefficients of the features.
    thetas = basis.back @ np.stack([solution.beta for solution in found], axis=1)
    errors = np.abs(ACTIVATIONS[activation].value(rows @ thetas) - columns)
    masses = shares if weights is None else convert_numbers(weights, "weights").astype(np.float64)
    most = float(masses.max())  # the sum of weights near the largest float would overflow
    offsets = thetas[-1] if bias else np.zeros(columns.shape[1])
    thetas = thetas[:-1] if bias else thetas
    return NeuronFit(
        theta=thetas[:, 0] if single else thetas,
        bias=offsets[0] if single else offsets,
        loss=float(np.sum(masses / most @ errors**p)) * most,
        steps=sum(solution.steps for solution in found),
        converged=all(solution.converged for solution in found),
        exact=activation == "identity",
    )


def _check_neuron_rows(
    features: Array, targets: Array, weights: Array
) -> tuple[Floats, Floats, Floats]:
    """Features, targets and weights of mean 1, in float64."""
    if issparse(features):
        raise BadInput(f"features are a sparse matrix of {features.shape}; give toarray() of it")
    rows = convert_numbers(features, "features").astype(np.float64)
    values = convert_numbers(targets, "targets").astype(np.float64)
    if rows.ndim != 2 or not len(rows):
        raise BadInput(f"features must be (m, d) with one row or more; got shape {rows.shape}")
    if values.ndim not in (1, 2) or 0 in values.shape:
        raise BadInput(f"targets must be (m,) or (m, k); got shape {values.shape}")
    if len(values) != len(rows):
        raise BadInput(f"there are {len(rows)} rows of features but targets of {values.shape}")
    for name, array in (("features", rows), ("targets", values)):
        if not np.isfinite(array).all():
            row = int(np.argmin(np.isfinite(array.reshape(len(rows), -1)).all(axis=1)))
            raise BadInput(f"{name} of row {row} are NaN or infinite; leave it out")
    shares = np.ones(len(rows)) if weights is None else scale_to_mean_one(weights, len(rows))
    return rows, values, shares


def _check_neuron_options(p: float, activation: str, bias: bool, starts: int) -> None:
    if not 1 <= p < math.inf:
        raise BadInput(f"p must be 1 or more; got {p}")
    if activation in ("sigmoid", "logistic"):
        raise BadInput(
            f"{activation} is 1/2 at 0, but the fit needs an activation that is 0 there; "
            f"choose from {', '.join(ACTIVATIONS)}"
        )
    if activation not in ACTIVATIONS:
        choices = ", ".join(ACTIVATIONS)
        raise BadInput(f"activation must be one of {choices}; got {activation!r}")
    if not isinstance(bias, bool):
        raise BadInput(f"bias must be True or False; got {bias!r}")
    if isinstance(starts, bool) or not isinstance(starts, int) or starts < 0:
        raise BadInput(f"starts must be a whole number from 0; got {starts!r}")


class NeuronProblem(NamedTuple):
    """The loss of one neuron in an orthonormal basis."""

    span: Floats
    targets: Floats
    weights: Floats
    p: float
    activation: Activation

    def loss(self, beta: Floats) -> float:
        """``sum w |f(q beta) - y|^p``."""
        errors = np.abs(self.activation.value(self.span @ beta) - self.targets)
        return float(self.weights @ errors**self.p)

    def smoothed_loss(self, beta: Floats, delta: float) -> tuple[float, Floats]:
        """The smoothed loss relative to that of zeros, and its gradient."""
        before = self.span @ beta
        value, slopes = self._sum_smoothed_powers(
            self.activation.value(before) - self.targets, delta
        )
        whole = self._sum_smoothed_powers(self.targets, delta)[0]
        return value / whole, self.span.T @ (slopes * self.activation.slope(before)) / whole

    def _sum_smoothed_powers(self, errors: Floats, delta: float) -> tuple[float, Floats]:
        """``sum w (e^2 + delta^2)^(p/2)`` and its derivative by ``e``, ``(m,)``."""
        squares = errors**2 + delta**2
        factors = np.where(squares > 0, squares, 1.0) ** (self.p / 2 - 1)
        value = float(self.weights @ squares ** (self.p / 2))
        return value, self.p * self.weights * errors * factors


def _search_neuron(problem: NeuronProblem, starts: int, seed: int) -> LpSolution:
    """The best of several local searches, never worse than zeros."""
    best = LpSolution(np.zeros(problem.span.shape[1]), 0, True)
    if problem.span.shape[1] == 0 or not problem.targets.any():
        return best
    lowest, steps = problem.loss(best.beta), 0
    for start in _draw_neuron_starts(problem, starts, seed):
        found = _descend_neuron_loss(problem, start)
        steps += found.steps
        loss = problem.loss(found.beta)
        if loss < lowest:
            best, lowest = found, loss
    return best._replace(steps=steps)


def _draw_neuron_starts(problem: NeuronProblem, count: int, seed: int) -> Iterator[Floats]:
    """Regressions on the inverse of the activation, on all rows and on the positive ones."""
    span, targets, weights, p = problem[:4]
    inverse = problem.activation.inverse(targets)
    first = lp_regression(span, inverse, weights, min(p, 2.0)).beta
    yield first
    positive = targets > 0
    if positive.any() and not positive.all():
        basis = orthonormalize_columns(span[positive])
        yield basis.back @ lp_regression(basis.span, inverse[positive], weights[positive], p).beta
    length = float(np.linalg.norm(first)) or float(np.linalg.norm(targets))
    generator = np.random.default_rng(seed)
    for _ in range(count):
        direction = generator.normal(size=span.shape[1])
        yield np.asarray(length * direction / np.linalg.norm(direction))


def _descend_neuron_loss(problem: NeuronProblem, start: Floats) -> LpSolution:
    """One search, from the smoothest problem to the sharpest."""
    scale = float(np.max(np.abs(problem.targets)))
    deltas = [scale * delta for delta in SMOOTHINGS] if problem.p < 2 else [0.0]
    options = {"maxiter": 1000, "ftol": 1e-15, "gtol": 1e-11}
    beta, steps, converged = start, 0, True
    for delta in deltas:
        answer = minimize(
            problem.smoothed_loss, beta, (delta,), jac=True, method="L-BFGS-B", options=options
        )
        beta, steps, converged = answer.x, steps + int(answer.nit), bool(answer.success)
    return LpSolution(beta, steps, converged)


class NeuronLearner:
    """One neuron per target, as a learner: features in, values out.

    >>> learner = NeuronLearner(p=1)
    >>> report = learner.fit(np.eye(2), np.array([3.0, 4.0]), seed=0)
    >>> learner.predict(np.array([[1.0, 1.0]])).round(6).tolist()
    [7.0]
    """

    def __init__(
        self,
        *,
        p: float = 2.0,
        activation: str = "identity",
        bias: bool = False,
        starts: int = 8,
    ) -> None:
        """Store the options of `fit_neuron`."""
        _check_neuron_options(p, activation, bias, starts)
        self._p, self._activation = p, activation
        self._options: dict[str, Any] = {"p": p, "activation": activation}
        self._options |= {"bias": bias, "starts": starts}
        self._fit: NeuronFit | None = None

    @property
    def theta(self) -> Floats:
        """``(d,)``, or ``(d, k)`` for ``k`` targets."""
        return self._get_fitted_neuron().theta

    @property
    def bias(self) -> Floats:
        """A number, or ``(k,)``; 0 without a bias."""
        return self._get_fitted_neuron().bias

    def fit(
        self, inputs: Array, targets: Array, weights: Array | None = None, *, seed: int = 0
    ) -> FitReport:
        """Fit one neuron per target; an item of weight 2 counts like the same item twice.

        The arguments are those of `fit_neuron`; reports the weighted mean of ``|f(a theta) -
        y|^p``.
        """
        begin = time.perf_counter()
        self._fit = fit_neuron(inputs, targets, weights, seed=seed, **self._options)
        values = np.asarray(to_numpy(targets), dtype=np.float64)
        shares = np.ones(len(values))
        if weights is not None:
            shares = scale_to_mean_one(weights, len(values))
        errors = np.abs(self.predict(inputs) - values).reshape(len(values), -1)
        loss = float(shares @ (errors**self._p).sum(axis=1)) / len(values)
        seconds = time.perf_counter() - begin
        return FitReport(loss, self._fit.steps, self._fit.converged, seconds)

    def predict(self, inputs: Array) -> Floats:
        """The neuron's values, ``(n,)`` or ``(n, k)``."""
        fit = self._get_fitted_neuron()
        rows = np.asarray(to_numpy(inputs), dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(fit.theta):
            raise BadInput(f"inputs must be (n, {len(fit.theta)}); got shape {rows.shape}")
        return ACTIVATIONS[self._activation].value(rows @ fit.theta + fit.bias)

    def represent(self, inputs: Array, names: Sequence[str]) -> dict[str, Array]:
        """``features`` (the inputs) and ``outputs`` ``(n, k)``."""
        check_names(names, ["features", "outputs"], "a neuron")
        found: dict[str, Array] = {"features": convert_rows(inputs)}
        if "outputs" in names:
            found["outputs"] = self.predict(inputs).reshape(len(inputs), -1)
        return {name: found[name] for name in names}

    def _get_fitted_neuron(self) -> NeuronFit:
        if self._fit is None:
            raise BadInput("the learner is not trained yet; call fit first")
        return self._fit
