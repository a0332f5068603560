r"""Study of a teacher and a student: does a selection by linear theory help a trained network?

The theory of randomized BSS is about linear models; the paper carries it over to networks with two
layers. Here a student of that form,

.. math:: f(W, x) = h^{-1/2} \sum_r a_r \tanh(w_r \cdot x), \quad a_r = \pm 1 \text{ fixed},

is trained on few labels of a teacher of the same form, with noise, by weighted squares. Strategies
read the gradients of the student at its initial parameters, the linear model of a wide network. The
value is

.. math:: \frac{R(\tilde W) - R(W^*)}{R(W^*)} ,

with ``R`` the mean squared error over all items, :math:`\tilde W` trained on the picks and
:math:`W^*` on all, both from the same first parameters.

Inputs have a length of at most 1, as the theory requires, and few of them are long: rare items
carry most of the information on the teacher.

Cost: every budget is one minimisation over the picks by L-BFGS, ``O(budget h d)`` a step.

Reference: "Sample Complexity of Deep Active Learning", submitted to ICLR 2022, Theorem 4.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from labelwise.arrays import Floats, Ids
from labelwise.benchmark.devices import Device
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.studies.recovery import iterate_recovery_picks

STREAM = 29
"""Random stream of the problem."""

STEPS = 500
"""Largest number of L-BFGS iterations."""


@dataclass(frozen=True)
class StudentProblem:
    """Items, values and the untrained student.

    Attributes:
        inputs: ``(n, d)``, of length at most 1.
        values: ``(n,)``, of the teacher, with noise.
        first: ``(h, d)``, initial parameters of the student.
        signs: ``(h,)``, of the second layer.
    """

    inputs: Floats
    values: Floats
    first: Floats
    signs: Floats

    def compute_gradients(self) -> Floats:
        """Gradients of the student's output at the initial parameters, ``(n, h d)``."""
        slopes = self.signs * (1 - np.tanh(self.inputs @ self.first.T) ** 2)
        rows = slopes[:, :, None] * self.inputs[:, None, :] / np.sqrt(len(self.signs))
        gradients: Floats = rows.reshape(len(self.inputs), -1)
        return gradients

    def fit(self, ids: Ids, weights: Floats) -> Floats:
        """Parameters fitted to some items by weighted least squares, ``(h, d)``."""
        inputs, values = self.inputs[ids], self.values[ids]
        shares = weights / weights.sum() / self.values.var()  # losses near 1, for the stopping rule

        def measure_student_loss(flat: Floats) -> tuple[float, Floats]:
            inner = np.tanh(inputs @ flat.reshape(self.first.shape).T)
            wrong = inner @ self.signs / np.sqrt(len(self.signs)) - values
            pulls = (shares * wrong)[:, None] * (self.signs * (1 - inner**2))
            slope = 2 * pulls.T @ inputs / np.sqrt(len(self.signs))
            return float(shares @ wrong**2), slope.ravel()

        options = {"maxiter": STEPS, "ftol": 1e-12, "gtol": 1e-8}
        found = minimize(
            measure_student_loss, self.first.ravel(), jac=True, method="L-BFGS-B", options=options
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
