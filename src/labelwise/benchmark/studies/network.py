r"""Study of a teacher and a student: does a selection by linear theory help a trained network?

The theory of randomized BSS is about linear models; the paper carries it over to networks with two
layers. Here a student of that form,

.. math:: f(W, x) = h^{-1/2} \sum_r a_r \tanh(w_r \cdot x), \quad a_r = \pm 1 \text{ fixed},

is trained on few labels of a teacher of the same form, with noise, by weighted squares. Strategies
read the gradients of the student at its initial parameters, the linear model of a wide network. The
value is

.. math:: \frac{R(\tilde W) - R(W^*)}{R(W^*)} ,

with ``R`` the mean squared error over all items, :math:`\tilde W` trained on the picks and
:math:`W^*` on all, both from the same first parameters :math:`W_0`. With ``m`` items, training
minimizes

.. math:: \sum_i \frac{w_i (f(W, x_i) - y_i)^2}{\mathrm{var}(y) \sum_j w_j}
          + \frac{\lambda}{m} \lVert W - W_0 \rVert^2 .

Without the second term, few labels leave directions in which the loss is almost flat, and rounding
decides where the training ends.

Inputs have a length of at most 1, as the theory requires, and few of them are long: rare items
carry most of the information on the teacher.

Cost: every budget is one minimisation over the picks by Levenberg and Marquardt's method,
``O(budget (h d)^2)`` a step.

Reference: "Sample Complexity of Deep Active Learning", submitted to ICLR 2022, Theorem 4.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from labelwise.arrays import Floats, Ids
from labelwise.benchmark.devices import Device
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.studies.recovery import iterate_recovery_picks

STREAM = 29
"""Random stream of the problem."""

PULL = 0.01
"""Default strength ``lambda`` of the pull towards the first parameters."""

STEPS = 2000
"""Largest number of steps of a training."""


@dataclass(frozen=True)
class StudentProblem:
    """Items, values and the untrained student.

    Attributes:
        inputs: ``(n, d)``, of length at most 1.
        values: ``(n,)``, of the teacher, with noise.
        first: ``(h, d)``, initial parameters of the student.
        signs: ``(h,)``, of the second layer.
        pull: strength ``lambda`` of the pull towards the first parameters.
    """

    inputs: Floats
    values: Floats
    first: Floats
    signs: Floats
    pull: float = PULL

    def compute_gradients(self) -> Floats:
        """Gradients of the student's output at the initial parameters, ``(n, h d)``."""
        slopes = self.signs * (1 - np.tanh(self.inputs @ self.first.T) ** 2)
        rows = slopes[:, :, None] * self.inputs[:, None, :] / np.sqrt(len(self.signs))
        gradients: Floats = rows.reshape(len(self.inputs), -1)
        return gradients

    def fit(self, ids: Ids, weights: Floats) -> Floats:
        """Parameters ``(h, d)`` trained on some items, by weighted squares and the pull."""
        inputs, values = self.inputs[ids], self.values[ids]
        width, first = np.sqrt(len(self.signs)), self.first.ravel()
        roots = np.sqrt(weights / weights.sum() / self.values.var())
        pull = np.sqrt(self.pull / len(ids))

        def residuals(flat: Floats) -> Floats:
            outputs = evaluate_student(flat.reshape(self.first.shape), self.signs, inputs)
            return np.concatenate([roots * (outputs - values), pull * (flat - first)])

        def derivatives(flat: Floats) -> Floats:
            inner = np.tanh(inputs @ flat.reshape(self.first.shape).T)
            slopes = roots[:, None] * self.signs * (1 - inner**2) / width
            rows = (slopes[:, :, None] * inputs[:, None, :]).reshape(len(inputs), -1)
            return np.concatenate([rows, pull * np.eye(len(first))])

        found = least_squares(
            residuals, first, derivatives, method="lm", xtol=1e-12, ftol=1e-12, max_nfev=STEPS
        )
        parameters: Floats = found.x.reshape(self.first.shape)
        return parameters

    def measure_risk(self, parameters: Floats) -> float:
        """The mean squared error over all items."""
        outputs = evaluate_student(parameters, self.signs, self.inputs)
        return float(np.mean((outputs - self.values) ** 2))


def evaluate_student(parameters: Floats, signs: Floats, inputs: Floats) -> Floats:
    """The outputs ``(n,)`` of a network with two layers.

    >>> evaluate_student(np.ones((2, 1)), np.array([1.0, -1.0]), np.ones((1, 1))).tolist()
    [0.0]
    """
    outputs: Floats = np.tanh(inputs @ parameters.T) @ signs / np.sqrt(len(signs))
    return outputs


def make_student_problem(protocol: Protocol, seed: int) -> StudentProblem:
    """The problem of a seed; sizes are in the protocol's settings."""
    sizes = protocol.settings
    rng = np.random.default_rng([seed, STREAM])
    items, width = sizes["items"], sizes["columns"]
    directions = rng.normal(size=(items, width))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = np.minimum(1, 0.1 * np.abs(rng.standard_t(2, size=(items, 1))))
    inputs = directions * lengths
    teacher = sizes["scale"] * rng.normal(size=(sizes["teacher"], width))
    values = evaluate_student(teacher, rng.choice([-1.0, 1.0], size=sizes["teacher"]), inputs)
    values += sizes["noise"] * values.std() * rng.normal(size=items)
    first = rng.normal(size=(sizes["hidden"], width))
    return StudentProblem(inputs, values, first, rng.choice([-1.0, 1.0], size=sizes["hidden"]))


def study_network(
    protocol: Protocol, entrant: Entrant, seed: int, _: Device
) -> Iterator[tuple[int, float]]:
    """Excess risk of a network trained on few labels."""
    problem = make_student_problem(protocol, seed)
    features = problem.compute_gradients()
    every = np.arange(len(features))
    least = problem.measure_risk(problem.fit(every, np.ones(len(features))))
    for ids, weights in iterate_recovery_picks(
        protocol, entrant, features, features.shape[1], seed
    ):
        found = problem.measure_risk(problem.fit(ids, weights))
        yield len(ids), (found - least) / least
