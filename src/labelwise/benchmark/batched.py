"""Train networks of many runs as one batched model, where the architecture allows it.

Runs in the same round have different labelled items but the same number of them, so their networks
need the same number of steps. They are stacked and trained by
`labelwise.learners.stacked_training`, each on its own items from its own initial parameters. On a
GPU, which a small network does not fill, many take little longer than one. The result equals
`labelwise.TorchLearner.fit` of each network up to rounding.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.arrays import Array, Floats
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.devices import Device, DeviceClock
from labelwise.learner import FitReport
from labelwise.learners.inputs import Items, prepare_batch
from labelwise.learners.members import Members
from labelwise.learners.network import evaluation_mode
from labelwise.learners.preparation import seed_torch
from labelwise.learners.settings import TrainingSettings
from labelwise.learners.stacked_training import can_stack, train_together
from labelwise.learners.torch_learner import TorchLearner, TrainingStart
from labelwise.learners.training import LabelledItems, TrainingOutcome, TrainingWatcher

LARGEST_BATCHED = 1_000_000  # A network with more parameters fills a GPU by itself
STEP_METHODS = ("adapt", "factors", "extra", "stepped")
"""Methods of members that take part in every training step."""

EPOCH_METHODS = ("begin", "epoch_done")  # Methods of members that are called per epoch


class BatchableLearner(TorchLearner):
    """A `TorchLearner` whose training can run outside, between `prepare` and `finish`."""

    def __init__(
        self,
        make_module: Callable[[], nn.Module],
        *,
        kind: Hashable,
        observer: TrainingWatcher | None = None,
        **options: Any,
    ) -> None:
        """Store the options.

        Learners of the same ``kind`` differ only in the state of their modules; the ``observer`` is
        called after every epoch and changes nothing; ``options`` are those of `TorchLearner`.
        """
        super().__init__(make_module, **options)
        self.kind, self.observer = kind, observer

    @property
    def alone(self) -> bool:
        """Whether the training cannot be batched."""
        holds_out = isinstance(self._validation, tuple) or self._validation > 0
        # Restoring the best epoch would have to restore the state of the members too.
        followed = self.watcher is not None
        several = self.observer is not None and self._overridden(EPOCH_METHODS)
        return self._overridden(STEP_METHODS) or several or (holds_out and followed)

    @property
    def watcher(self) -> TrainingWatcher | None:
        """The members, if they follow the epochs of the training, or the observer."""
        return self._members if self._overridden(EPOCH_METHODS) else self.observer

    def _list_watchers(self) -> list[TrainingWatcher]:
        own = super()._list_watchers()
        return own if self.observer is None else [*own, self.observer]

    def _overridden(self, names: Sequence[str]) -> bool:
        own = Members if self._members is None else type(self._members)
        return any(getattr(own, name) is not getattr(Members, name) for name in names)

    @property
    def device(self) -> Device:
        """The device of the training."""
        return self._device

    @property
    def settings(self) -> TrainingSettings:
        """The settings of the training."""
        return self._settings

    def prepare(self, inputs: Array, targets: Array, weights: Array, *, seed: int) -> TrainingStart:
        """The part of `fit` before the training."""
        with seed_torch(seed, self._device):
            return self._prepare_training(inputs, targets, weights, seed)

    def finish(
        self, start: TrainingStart, outcome: TrainingOutcome, *, seconds: float
    ) -> FitReport:
        """The part of `fit` after the training."""
        with seed_torch(start.seed, self._device):
            return replace(self._finish_training(start, outcome), seconds=seconds)


class BestEpoch(TrainingWatcher):
    """The highest accuracy on the test items after any epoch of the last training.

    Some papers report it. It is too high for a comparison: the test items choose the epoch.
    """

    def __init__(self, items: Items, targets: Arrays, device: Device) -> None:
        """Test items and their classes."""
        self._items, self._device = items, device
        self._targets = torch.as_tensor(targets, device=device)
        self.accuracy = 0.0

    def begin(self, labelled: LabelledItems) -> None:
        """Forget the last training."""
        self.accuracy = 0.0

    def epoch_done(
        self, module: nn.Module, epoch: int, epochs: int, losses: Callable[..., Tensor]
    ) -> None:
        """Measure the network."""
        right = torch.zeros((), dtype=torch.int64, device=self._device)
        with evaluation_mode(module), torch.no_grad():
            for part in np.array_split(np.arange(len(self._items)), -(-len(self._items) // 5000)):
                batch = prepare_batch(self._items.batch(part), self._device, torch.float32)
                predicted = module(batch).argmax(1)
                right += (predicted == self._targets[int(part[0]) : int(part[-1]) + 1]).sum()
        self.accuracy = max(self.accuracy, float(right) / len(self._items))


@dataclass(frozen=True, eq=False)
class TrainingTask:
    """A learner and the arguments of its `fit`."""

    learner: BatchableLearner
    inputs: Array
    targets: Array
    weights: Array
    seed: int

    def fit(self) -> FitReport:
        """Train the learner alone."""
        return self.learner.fit(self.inputs, self.targets, self.weights, seed=self.seed)


def fit_batched_tasks(
    tasks: Sequence[TrainingTask],
    *,
    on_cpu: bool = False,
    limit: int = 64,
) -> list[FitReport]:
    """Train learners; those of the same kind and number of items as one batched model.

    ``on_cpu`` batches on a CPU too, where it is not faster for convolutions; ``limit`` is the
    largest number of networks in one model. The seconds of a batched training are divided evenly.
    """
    reports: dict[int, FitReport] = {}
    for numbers in group_batched_tasks(tasks, on_cpu=on_cpu, limit=limit):
        found = _fit_batched_group([tasks[number] for number in numbers], checked=on_cpu)
        reports.update(zip(numbers, found, strict=True))
    return [reports[number] for number in range(len(tasks))]


def group_batched_tasks(
    tasks: Sequence[TrainingTask], *, on_cpu: bool = False, limit: int = 64
) -> list[list[int]]:
    """Groups of task numbers that can be trained together."""
    groups: dict[Hashable, list[int]] = {}
    for number, task in enumerate(tasks):
        alone = task.learner.alone or not (on_cpu or task.learner.device.type == "cuda")
        key = number if alone else (task.learner.kind, len(task.targets))
        groups.setdefault(key, []).append(number)
    return [
        numbers[begin : begin + limit]
        for numbers in groups.values()
        for begin in range(0, len(numbers), limit)
    ]


def _fit_batched_group(tasks: list[TrainingTask], *, checked: bool) -> list[FitReport]:
    """Train learners of one kind together, or one by one where batching is impossible."""
    if len(tasks) == 1:
        return [tasks[0].fit()]
    settings, device = tasks[0].learner.settings, tasks[0].learner.device
    clock = DeviceClock(device)
    starts = [
        task.learner.prepare(task.inputs, task.targets, task.weights, seed=task.seed)
        for task in tasks
    ]
    modules = [start.module for start in starts]
    sets = [start.labelled for start in starts]
    size = sum(parameter.numel() for parameter in modules[0].parameters())
    if size > LARGEST_BATCHED or not (checked or can_stack(modules, sets, settings, device)):
        return [task.fit() for task in tasks]
    held = [start.validation for start in starts if start.validation is not None]
    watchers = {number: task.learner.watcher for number, task in enumerate(tasks)}
    with seed_torch(tasks[0].seed, device):
        outcomes = train_together(
            modules,
            sets,
            settings,
            seeds=[task.seed for task in tasks],
            device=device,
            validation=held or None,
            watchers={number: own for number, own in watchers.items() if own is not None},
        )
    seconds = clock.lap() / len(tasks)
    return [
        task.learner.finish(start, outcome, seconds=seconds)
        for task, start, outcome in zip(tasks, starts, outcomes, strict=True)
    ]


class LastLayerLearner(BatchableLearner):
    r"""A linear layer on features of a frozen network, whose `fit` is the least squares solution.

    With features :math:`x_i`, values :math:`y_i` in :math:`k` columns, weights :math:`w_i` and the
    option ``weight_decay`` :math:`\lambda` it solves what gradient descent converges to,

    .. math:: \arg\min_{A, b} \; \frac{\sum_i w_i |A x_i + b - y_i|^2}{k \sum_i w_i}
              + \frac{\lambda}{2} \left( |A|^2 + |b|^2 \right) ,

    so that no learning rate has to suit the features of every network. They are not standardized:
    rare features divided by their deviations would become very large.
    """

    @property
    def alone(self) -> bool:
        """An exact fit is never batched."""
        return True

    def fit(
        self, inputs: Array, targets: Array, weights: Array = None, *, seed: int = 0
    ) -> FitReport:
        """Solve the problem; the arguments are those of `TorchLearner.fit`."""
        clock = DeviceClock(self.device)
        start = self.prepare(inputs, targets, weights, seed=seed)
        labelled = start.labelled
        rows = _tensor_to_float64(labelled.items.batch(np.arange(len(labelled))))
        values, shares = _tensor_to_float64(labelled.targets), _tensor_to_float64(labelled.weights)
        solution = solve_last_layer_ridge(rows, values, shares, self.settings.weight_decay)
        loss = shares @ np.square(rows @ solution[:-1] + solution[-1] - values).mean(axis=1)
        layer = start.module[0]  # type: ignore[index]
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(solution[:-1].T))
            layer.bias.copy_(torch.from_numpy(solution[-1]))
        outcome = TrainingOutcome(float(loss) / len(labelled), 1, converged=True)
        return self.finish(start, outcome, seconds=clock.lap())


def solve_last_layer_ridge(
    features: Floats, values: Floats, weights: Floats, decay: float
) -> Floats:
    """Weighted least squares with weight decay: ``(d + 1, k)``, intercepts last, of least norm."""
    rows = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    roots = np.sqrt(weights / weights.sum())[:, None]
    penalty = np.sqrt(decay * values.shape[1] / 2) * np.eye(rows.shape[1])
    left = np.concatenate([roots * rows, penalty])
    right = np.concatenate([roots * values, np.zeros((rows.shape[1], values.shape[1]))])
    solution: Floats = np.linalg.lstsq(left, right)[0]
    return solution


def _tensor_to_float64(values: Tensor) -> Floats:
    """A NumPy array in float64."""
    return values.double().cpu().numpy()
