r"""Local searches for one neuron whose activation is not the identity.

The loss :math:`\sum_i w_i |f(q_i \beta) - y_i|^p` has many local minima and, for ReLU and for
p = 1, edges. Every search runs L-BFGS on :math:`(r^2 + \delta^2)^{p/2}` instead of
:math:`|r|^p`, with a falling :math:`\delta` where p is below 2.

A limit on :math:`\sum_i w_i |q_i \beta|^p` is kept by an augmented Lagrangian, and by scaling down
what is left of a violation.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from labelwise.arrays import Floats
from labelwise.learners.neuron.lp_regression import LpSolution, lp_regression, orthonormalize

SMOOTHINGS = (1e-1, 1e-2, 1e-4, 1e-7)
"""Deltas, relative to the largest target, for p below 2."""
OUTER = 12
"""How often the multiplier of the limit is brought up to date."""


class Activation(NamedTuple):
    """A function that is 0 at 0 with Lipschitz constant 1, its slope, and where it comes from."""

    value: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]
    inverse: Callable[[Floats], Floats]


def _relu_activation(z: Floats) -> Floats:
    return np.maximum(z, 0.0)


def _tanh_slope(z: Floats) -> Floats:
    return 1 - np.tanh(z) ** 2


def _tanh_inverse(y: Floats) -> Floats:
    return np.arctanh(np.clip(y, -0.95, 0.95))


def _step_activation(z: Floats) -> Floats:
    return (z > 0).astype(np.float64)


def _identity_activation(z: Floats) -> Floats:
    return z


ACTIVATIONS = {
    "identity": Activation(_identity_activation, np.ones_like, _identity_activation),
    "relu": Activation(_relu_activation, _step_activation, _relu_activation),
    "tanh": Activation(np.tanh, _tanh_slope, _tanh_inverse),
}


class NeuronProblem(NamedTuple):
    """What to minimise: `labelwise.learners.neuron.lp_regression` behind an activation."""

    span: Floats
    targets: Floats
    weights: Floats
    p: float
    activation: Activation
    allowed: float

    def loss(self, beta: Floats) -> float:
        """``sum w |f(q beta) - y|^p``."""
        errors = np.abs(self.activation.value(self.span @ beta) - self.targets)
        return float(self.weights @ errors**self.p)

    def size(self, beta: Floats) -> float:
        """``sum w |q beta|^p`` as a share of what is allowed."""
        if math.isinf(self.allowed):
            return 0.0
        scale = np.max(np.abs(self.targets))
        top = self.weights @ np.abs(self.span @ beta / scale) ** self.p
        return float(top / (self.allowed * (self.weights @ np.abs(self.targets / scale) ** self.p)))

    def project_inside(self, beta: Floats) -> Floats:
        """The same direction, shortened where it breaks the limit."""
        size = self.size(beta)
        return beta if size <= 1 else beta * size ** (-1 / self.p)


def search_neuron(problem: NeuronProblem, starts: int, seed: int) -> LpSolution:
    """The best of several local searches, never worse than all zeros."""
    best = LpSolution(np.zeros(problem.span.shape[1]), 0, True)
    if problem.span.shape[1] == 0 or not problem.targets.any():
        return best
    lowest, steps = problem.loss(best.beta), 0
    for start in _draw_starts(problem, starts, seed):
        found = _descend_from(problem, problem.project_inside(start))
        steps += found.steps
        loss = problem.loss(found.beta)
        if loss < lowest:
            best, lowest = found, loss
    return best._replace(steps=steps)


def _draw_starts(problem: NeuronProblem, count: int, seed: int) -> Iterator[Floats]:
    """Regressions on the inverse of the activation, on all rows and on the positive ones."""
    span, targets, weights, p = problem[:4]
    aims = problem.activation.inverse(targets)
    first = lp_regression(span, aims, weights, min(p, 2.0)).beta
    yield first
    positive = targets > 0
    if positive.any() and not positive.all():
        basis = orthonormalize(span[positive])
        yield basis.back @ lp_regression(basis.span, aims[positive], weights[positive], p).beta
    length = float(np.linalg.norm(first)) or float(np.linalg.norm(targets))
    generator = np.random.default_rng(seed)
    for _ in range(count):
        direction = generator.normal(size=span.shape[1])
        yield np.asarray(length * direction / np.linalg.norm(direction))


def _descend_from(problem: NeuronProblem, start: Floats) -> LpSolution:
    """One search: without the limit first, and with it where that leads outside."""
    free = _minimize_loss(problem, start)
    if problem.size(free.beta) <= 1:
        return free
    held = _hold_constraint(problem, problem.project_inside(start))
    shrunk = problem.project_inside(free.beta)
    if problem.loss(shrunk) < problem.loss(held.beta):
        held = held._replace(beta=shrunk)
    return held._replace(steps=free.steps + held.steps)


def _minimize_loss(problem: NeuronProblem, start: Floats) -> LpSolution:
    beta, steps, converged = start, 0, True
    for delta in _schedule_deltas(problem):
        answer = minimize(_smoothed_power, beta, (problem, delta), jac=True, **_LBFGS)
        beta, steps, converged = answer.x, steps + int(answer.nit), bool(answer.success)
    return LpSolution(beta, steps, converged)


_LBFGS = {"method": "L-BFGS-B", "options": {"maxiter": 1000, "ftol": 1e-15, "gtol": 1e-11}}


def _schedule_deltas(problem: NeuronProblem) -> list[float]:
    scale = float(np.max(np.abs(problem.targets)))
    return [scale * delta for delta in SMOOTHINGS] if problem.p < 2 else [0.0]


def _smoothed_power(beta: Floats, problem: NeuronProblem, delta: float) -> tuple[float, Floats]:
    """The smoothed loss relative to that of all zeros, and its gradient."""
    before = problem.span @ beta
    errors = problem.activation.value(before) - problem.targets
    value, slopes = _loss_power(errors, problem, delta)
    whole = _loss_power(problem.targets, problem, delta)[0]
    return value / whole, problem.span.T @ (slopes * problem.activation.slope(before)) / whole


def _loss_power(errors: Floats, problem: NeuronProblem, delta: float) -> tuple[float, Floats]:
    """``sum w (e^2 + delta^2)^(p/2)`` and its derivative by ``e``, ``(m,)``."""
    squares = errors**2 + delta**2
    with np.errstate(divide="ignore"):
        factors = np.where(squares > 0, squares, 1.0) ** (problem.p / 2 - 1)
    value = float(problem.weights @ squares ** (problem.p / 2))
    return value, problem.p * problem.weights * errors * factors


def _hold_constraint(problem: NeuronProblem, start: Floats) -> LpSolution:
    """Minimise within the limit: an augmented Lagrangian, then scaled to fit exactly."""
    beta, steps, multiplier, stiffness = start, 0, 0.0, 10.0
    delta = _schedule_deltas(problem)[-1]
    violation = math.inf

    def lagrangian(b: Floats) -> tuple[float, Floats]:
        value, slopes = _smoothed_power(b, problem, delta)
        before = problem.span @ b
        size, pull = _loss_power(before, problem, delta)
        whole = problem.allowed * _loss_power(problem.targets, problem, delta)[0]
        push = max(0.0, multiplier + stiffness * (size / whole - 1))
        return value + push**2 / (2 * stiffness), slopes + push * (problem.span.T @ pull) / whole

    converged = True
    for _ in range(OUTER):
        answer = minimize(lagrangian, beta, jac=True, **_LBFGS)
        beta, steps, converged = answer.x, steps + int(answer.nit), bool(answer.success)
        excess = problem.size(beta) - 1
        multiplier = max(0.0, multiplier + stiffness * excess)
        if abs(excess) > 0.25 * violation:
            stiffness *= 4
        violation = abs(excess)
    return LpSolution(problem.project_inside(beta), steps, converged)
