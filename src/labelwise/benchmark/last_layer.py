r"""The last layer of a frozen network, fitted exactly.

With features :math:`x_i`, values :math:`y_i` in :math:`k` columns, weights :math:`w_i` and weight
decay :math:`\lambda`, gradient descent converges to

.. math:: \arg\min_{A, b} \; \frac{\sum_i w_i |A x_i + b - y_i|^2}{k \sum_i w_i}
          + \frac{\lambda}{2} \left( |A|^2 + |b|^2 \right) ,

a least squares problem, which is solved directly, so that no learning rate has to suit the features
of every network. Features are not standardised, because rare features divided by their deviations
would become very large.

Cost: ``O(m d^2)`` for m labels.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from labelwise.arrays import Floats
from labelwise.benchmark.batched import BatchableLearner
from labelwise.benchmark.devices import DeviceClock
from labelwise.learner import FitReport
from labelwise.learners.training import TrainingOutcome


class LastLayerLearner(BatchableLearner):
    """A linear layer for regression whose `fit` is the least squares solution.

    Only the option ``weight_decay`` affects the fit.
    """

    @property
    def alone(self) -> bool:
        """An exact fit is never batched."""
        return True

    def fit(self, inputs: Any, targets: Any, weights: Any = None, *, seed: int) -> FitReport:
        """Solve the problem; the arguments are those of `TorchLearner.fit`."""
        clock = DeviceClock(self.device)
        start = self.prepare(inputs, targets, weights, seed=seed)
        labelled = start.labelled
        rows = _to_float64(labelled.items.batch(np.arange(len(labelled))))
        values, shares = _to_float64(labelled.targets), _to_float64(labelled.weights)
        solution = solve_ridge(rows, values, shares, self.settings.weight_decay)
        loss = shares @ np.square(rows @ solution[:-1] + solution[-1] - values).mean(axis=1)
        layer = start.module[0]  # type: ignore[index]
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(solution[:-1].T))
            layer.bias.copy_(torch.from_numpy(solution[-1]))
        outcome = TrainingOutcome(float(loss) / len(labelled), 1, converged=True)
        return self.finish(start, outcome, seconds=clock.lap())


def solve_ridge(features: Floats, values: Floats, weights: Floats, decay: float) -> Floats:
    """Weighted least squares with weight decay: ``(d + 1, k)``, intercepts last, of least norm."""
    rows = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    roots = np.sqrt(weights / weights.sum())[:, None]
    penalty = np.sqrt(decay * values.shape[1] / 2) * np.eye(rows.shape[1])
    left = np.concatenate([roots * rows, penalty])
    right = np.concatenate([roots * values, np.zeros((rows.shape[1], values.shape[1]))])
    solution: Floats = np.linalg.lstsq(left, right)[0]
    return solution


def _to_float64(values: Tensor) -> Floats:
    """A NumPy array in float64."""
    return values.double().cpu().numpy()
