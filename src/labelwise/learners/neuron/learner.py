r"""One neuron fitted in the :math:`\ell_p` norm, with the weights of a selection.

This is what a `lewis` selection is for: for every model whose features it was made from, fit

.. math:: \min_{\theta \in E} \sum_i w_i \, |f(a_i \theta) - y_i|^p ,

over the labelled items and the picks, and the answer is nearly as good as if the whole pool had
been labelled. The paper restricts :math:`\theta` to

.. math:: E = \Bigl\{ \theta : \sum_i w_i |a_i \theta|^p \le \frac{1}{\epsilon L^p}
    \sum_i w_i |y_i|^p \Bigr\} ,

with :math:`L` the Lipschitz constant of :math:`f` (1 for all here), and drops E in its
experiments. For the identity and :math:`\epsilon \le 2^{-p}`, E holds every best :math:`\theta`
anyway.

The activation must be 0 at 0, or a zero row has a loss that no :math:`\theta` changes and no row
norm sees: identity, ReLU and tanh are allowed, the logistic sigmoid (1/2 at 0) is not.

* identity: convex; the global minimum (`labelwise.learners.neuron.lp_regression`).
* ReLU, tanh: not convex. The best of several local searches (L-BFGS on a smoothed loss); it is
  never worse than :math:`\theta = 0`, and nothing more is promised.

Cost: a singular value decomposition, ``O(m d^2)``, then tens of steps of ``O(m d^2)`` (identity)
or some hundreds of ``O(m d)`` for every start. NumPy and SciPy, in float64.

Reference: S.-J. Huang, Y. Li, Y. Sun, Y.-P. Tang, "One-shot Active Learning Based on Lewis Weight
Sampling for Multiple Deep Models", ICLR 2024, Algorithm 1.
"""

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from labelwise.arrays import Floats, is_array, precision, to_numpy
from labelwise.errors import BadInput
from labelwise.learner import FitReport, check_names, check_seed
from labelwise.learners.neuron.lp_regression import lp_regression, orthonormalize
from labelwise.learners.neuron.search import ACTIVATIONS, NeuronProblem, search_neuron
from labelwise.learners.weights import convert_numbers, convert_rows, scale_to_mean_one


class NeuronFit(NamedTuple):
    """A fitted neuron.

    Attributes:
        theta: ``(d,)``; predictions are ``f(features @ theta)``.
        loss: ``sum w |f(a theta) - y|^p``, with the weights as they were given.
        steps: how many iterations were made, over all starts.
        converged: whether the iteration that gave theta reached its tolerance.
        exact: whether theta is the global minimum; False is the best of several local searches.
    """

    theta: Floats
    loss: float
    steps: int
    converged: bool
    exact: bool


def fit_neuron(
    features: Any,
    targets: Any,
    weights: Any = None,
    *,
    p: float = 2.0,
    activation: str = "identity",
    constraint: float | None = None,
    starts: int = 8,
    seed: int = 0,
) -> NeuronFit:
    """The ``theta`` with the least weighted loss ``sum w |f(a theta) - y|^p``.

    Args:
        features: ``(m, d)``, one row per labelled item; end them in a 1 for an offset.
        targets: ``(m,)`` values.
        weights: ``(m,)``, not negative; only their ratios matter. None counts all alike.
        p: the norm, 1 or more.
        activation: ``"identity"``, ``"relu"`` or ``"tanh"``.
        constraint: epsilon of the set E, above 0; None drops E.
        starts: random starts of the non-convex search, in addition to those from regressions.
        seed: decides the random starts.

    Several models, one selection: features of two models, one batch, one neuron each.

    >>> import labelwise
    >>> generator = np.random.default_rng(0)
    >>> F, G = generator.normal(size=(400, 3)), generator.normal(size=(400, 2))
    >>> y = F @ np.array([1.0, -2.0, 0.5])
    >>> picks = labelwise.select("lewis", 40, features=[F, G], p=1.5, seed=0)
    >>> fits = [fit_neuron(A[picks.ids], y[picks.ids], picks.weights, p=1.5) for A in (F, G)]
    >>> fits[0].theta.round(6).tolist()
    [1.0, -2.0, 0.5]
    """
    rows, values, shares = _check_rows(features, targets, weights)
    _check_options(p, activation, constraint, starts)
    kept = shares > 0
    basis = orthonormalize(rows[kept], precision(features if is_array(features) else rows))
    scaled = shares[kept] / shares[kept].mean()
    allowed = math.inf if constraint is None else 1 / constraint
    if activation == "identity":
        found = lp_regression(basis.span, values[kept], scaled, p, allowed)
    else:
        problem = NeuronProblem(
            basis.span, values[kept], scaled, p, ACTIVATIONS[activation], allowed
        )
        found = search_neuron(problem, starts, check_seed(seed))
    theta = basis.back @ found.beta
    errors = np.abs(ACTIVATIONS[activation].value(rows @ theta) - values)
    masses = shares if weights is None else convert_numbers(weights, "weights").astype(np.float64)
    most = float(masses.max())  # of weights near the largest number, the sum would be none
    loss = float(masses / most @ errors**p) * most
    return NeuronFit(theta, loss, found.steps, found.converged, activation == "identity")


def _check_rows(features: Any, targets: Any, weights: Any) -> tuple[Floats, Floats, Floats]:
    """Features, targets and weights of mean 1, in float64."""
    if issparse(features):
        raise BadInput(f"features are a sparse matrix of {features.shape}; give toarray() of it")
    rows = convert_numbers(features, "features").astype(np.float64)
    values = convert_numbers(targets, "targets").astype(np.float64)
    if rows.ndim != 2 or not len(rows):
        raise BadInput(f"features must be (m, d) with one row or more; got shape {rows.shape}")
    if values.shape != (len(rows),):
        raise BadInput(f"there are {len(rows)} rows of features but targets of {values.shape}")
    for name, array in (("features", rows), ("targets", values)):
        if not np.isfinite(array).all():
            row = int(np.argmin(np.isfinite(array.reshape(len(rows), -1)).all(axis=1)))
            raise BadInput(f"{name} of row {row} are NaN or infinite; leave it out")
    shares = np.ones(len(rows)) if weights is None else scale_to_mean_one(weights, len(rows))
    return rows, values, shares


def _check_options(p: float, activation: str, constraint: float | None, starts: int) -> None:
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
    if constraint is not None and not 0 < constraint < math.inf:
        raise BadInput(f"constraint must be None or a number above 0; got {constraint}")
    if isinstance(starts, bool) or not isinstance(starts, int) or starts < 0:
        raise BadInput(f"starts must be a whole number from 0; got {starts!r}")


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
        constraint: float | None = None,
        starts: int = 8,
    ) -> None:
        """Remember how to fit; the arguments are those of `fit_neuron`."""
        _check_options(p, activation, constraint, starts)
        self._options: dict[str, Any] = {
            "p": p,
            "activation": activation,
            "constraint": constraint,
            "starts": starts,
        }
        self._theta: Floats | None = None

    @property
    def theta(self) -> Floats:
        """``(d,)``, or ``(d, k)`` for ``k`` targets; an error before `fit`."""
        if self._theta is None:
            raise BadInput("the learner is not trained yet; call fit first")
        return self._theta

    def fit(self, inputs: Any, targets: Any, weights: Any = None, *, seed: int) -> FitReport:
        """Fit every target by itself; an item of weight 2 counts like the same item twice.

        Args:
            inputs: ``(m, d)`` features.
            targets: ``(m,)`` or ``(m, k)`` values.
            weights: ``(m,)``, not negative; only their ratios matter.
            seed: decides random starts.

        Returns:
            Its loss is the weighted mean of ``|f(a theta) - y|^p``, summed over targets.
        """
        begin = time.perf_counter()
        values = convert_numbers(targets, "targets").astype(np.float64)
        if values.ndim not in (1, 2) or 0 in values.shape:
            raise BadInput(f"targets must be (m,) or (m, k); got shape {values.shape}")
        columns = values.reshape(len(values), -1).T
        fits = [fit_neuron(inputs, y, weights, **self._options, seed=seed) for y in columns]
        thetas = np.stack([fit.theta for fit in fits], axis=1)
        self._theta = thetas[:, 0] if values.ndim == 1 else thetas
        shares = (
            np.ones(len(values)) if weights is None else scale_to_mean_one(weights, len(values))
        )
        errors = np.abs(self.predict(inputs).reshape(columns.T.shape) - columns.T)
        return FitReport(
            float(shares @ (errors ** self._options["p"]).sum(axis=1)) / len(values),
            sum(fit.steps for fit in fits),
            all(fit.converged for fit in fits),
            time.perf_counter() - begin,
        )

    def predict(self, inputs: Any) -> Floats:
        """The neuron's values, ``(n,)`` or ``(n, k)``."""
        rows = np.asarray(to_numpy(inputs), dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.theta):
            raise BadInput(f"inputs must be (n, {len(self.theta)}); got shape {rows.shape}")
        return ACTIVATIONS[self._options["activation"]].value(rows @ self.theta)

    def represent(self, inputs: Any, names: Sequence[str]) -> dict[str, Any]:
        """``features`` (the inputs) and ``outputs`` ``(n, k)``."""
        check_names(names, ["features", "outputs"], "a neuron")
        found: dict[str, Any] = {"features": convert_rows(inputs)}
        if "outputs" in names:
            found["outputs"] = self.predict(inputs).reshape(len(inputs), -1)
        return {name: found[name] for name in names}
