r"""Teacher and student: does picking by a linear theory help a network that is trained?

The theory of randomized BSS is about linear models; the paper carries it over to networks with two
layers. Here a student of that form,

.. math:: f(W, x) = h^{-1/2} \sum_r a_r \tanh(w_r \cdot x), \quad a_r = \pm 1 \text{ fixed},

is trained on few labels of a teacher of the same form, with noise, by weighted squares. Strategies
see the student's gradients at its first parameters, which is the linear model that a wide network
follows. The value is

.. math:: \frac{R(\tilde W) - R(W^*)}{R(W^*)} ,

with ``R`` the mean squared error over all items, :math:`\tilde W` trained on the picks and
:math:`W^*` on all, both from the same first parameters.

Inputs have a length of at most 1, as the theory asks, and few of them are long: most of what tells
the teacher's directions apart is in rare items.

Cost: every budget is one minimisation over the picks by L-BFGS, ``O(budget h d)`` a step.

Reference: "Sample Complexity of Deep Active Learning", submitted to ICLR 2022, Theorem 4.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from labelwise.arrays import Floats, Ids
from labelwise.benchmark.devices import Clock, Device
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.studies.lines import line
from labelwise.selection.entry import select
from labelwise.strategies import get

STREAM = 29
"""The stream of randomness that makes a problem."""

STEPS = 500
"""L-BFGS stops here at the latest."""


@dataclass(frozen=True)
class Problem:
    """Items, values and the student before its training.

    Attributes:
        inputs: ``(n, d)``, no longer than 1.
        values: ``(n,)``, the teacher's with noise.
        first: ``(h, d)``, the student's first parameters.
        signs: ``(h,)``.
    """

    inputs: Floats
    values: Floats
    first: Floats
    signs: Floats

    def gradients(self) -> Floats:
        """Of the student's output by its parameters, at the first ones, ``(n, h d)``."""
        slopes = self.signs * (1 - np.tanh(self.inputs @ self.first.T) ** 2)
        rows = slopes[:, :, None] * self.inputs[:, None, :] / np.sqrt(len(self.signs))
        gradients: Floats = rows.reshape(len(self.inputs), -1)
        return gradients

    def fit(self, ids: Ids, weights: Floats) -> Floats:
        """The parameters that weighted squares on some items lead to, ``(h, d)``."""
        inputs, values = self.inputs[ids], self.values[ids]
        shares = weights / weights.sum() / self.values.var()  # losses near 1, for the stopping rule

        def loss(flat: Floats) -> tuple[float, Floats]:
            inner = np.tanh(inputs @ flat.reshape(self.first.shape).T)
            wrong = inner @ self.signs / np.sqrt(len(self.signs)) - values
            pulls = (shares * wrong)[:, None] * (self.signs * (1 - inner**2))
            slope = 2 * pulls.T @ inputs / np.sqrt(len(self.signs))
            return float(shares @ wrong**2), slope.ravel()

        options = {"maxiter": STEPS, "ftol": 1e-12, "gtol": 1e-8}
        found = minimize(loss, self.first.ravel(), jac=True, method="L-BFGS-B", options=options)
        parameters: Floats = found.x.reshape(self.first.shape)
        return parameters

    def risk(self, parameters: Floats) -> float:
        """The mean squared error over all items."""
        outputs = student(parameters, self.signs, self.inputs)
        return float(np.mean((outputs - self.values) ** 2))


def student(parameters: Floats, signs: Floats, inputs: Floats) -> Floats:
    """The outputs ``(n,)`` of a network with two layers.

    >>> student(np.ones((2, 1)), np.array([1.0, -1.0]), np.ones((1, 1))).tolist()
    [0.0]
    """
    outputs: Floats = np.tanh(inputs @ parameters.T) @ signs / np.sqrt(len(signs))
    return outputs


def make_problem(protocol: Protocol, seed: int) -> Problem:
    """The problem of a seed; sizes are in the protocol's settings."""
    sizes = protocol.settings
    rng = np.random.default_rng([seed, STREAM])
    items, width = sizes["items"], sizes["columns"]
    directions = rng.normal(size=(items, width))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = np.minimum(1, 0.1 * np.abs(rng.standard_t(2, size=(items, 1))))
    inputs = directions * lengths
    teacher = sizes["scale"] * rng.normal(size=(sizes["teacher"], width))
    values = student(teacher, rng.choice([-1.0, 1.0], size=sizes["teacher"]), inputs)
    values += sizes["noise"] * values.std() * rng.normal(size=items)
    first = rng.normal(size=(sizes["hidden"], width))
    return Problem(inputs, values, first, rng.choice([-1.0, 1.0], size=sizes["hidden"]))


def network(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[RoundResult]:
    """The error of a network trained on few labels beyond that of one trained on all."""
    clock = Clock(device)
    for number, (budget, value) in enumerate(network_values(protocol, entrant, seed)):
        yield line(protocol, entrant, seed, device, number, budget, value, clock.lap())


def network_values(protocol: Protocol, entrant: Entrant, seed: int) -> Iterator[tuple[int, float]]:
    """Labels and excess risk, budget after budget."""
    problem = make_problem(protocol, seed)
    features = problem.gradients()
    every = np.arange(len(features))
    least = problem.risk(problem.fit(every, np.ones(len(features))))
    needs = get(entrant.strategy).needs
    for times in protocol.settings["budgets"]:
        budget = int(times * features.shape[1])
        given = {"features": features} if needs else {"ids": every}
        picked = select(entrant.strategy, budget, seed=seed, **given, **entrant.options)
        weights = np.ones(budget)
        if picked.weights is not None and (entrant.weights or protocol.weights) != "none":
            weights = picked.training_weights()
        found = problem.risk(problem.fit(picked.ids, weights))
        yield budget, (found - least) / least
