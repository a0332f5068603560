"""Networks of many runs trained as one batched model, where the architecture allows.

Runs of the same round differ in what they have bought, but not in how much. Their networks have the
same number of items, and so the same number of steps: they are stacked and trained by
`labelwise.learners.ensemble.training`, each on its own items from its own first parameters. On a
GPU, where a small network leaves most of the machine idle, many take little longer than one.

The answer is that of `labelwise.TorchLearner.fit` one by one, up to rounding.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from labelwise.benchmark.devices import Clock, Device
from labelwise.learner import FitReport
from labelwise.learners.ensemble.training import can_stack, train_together
from labelwise.learners.members import Members
from labelwise.learners.preparation import seed_torch
from labelwise.learners.settings import TrainingSettings
from labelwise.learners.torch_learner import TorchLearner, TrainingStart
from labelwise.learners.training import TrainingOutcome
from labelwise.pool.blocks import Progress

LARGEST = 1_000_000
"""A network with more parameters keeps a GPU busy by itself."""


WATCHING = ("adapt", "factors", "extra", "stepped")
"""The methods of members that touch every step of a training."""

LOOKING = ("begin", "epoch_done")
"""Those that look at it from epoch to epoch."""


class Trainee(TorchLearner):
    """A `TorchLearner` whose training can also be made by others, between `prepare` and `finish`.

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> make = lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> inputs = np.random.default_rng(0).normal(size=(60, 4))
        >>> targets = (inputs[:, 0] > 0).astype(int)
        >>> learners = [Trainee(make, kind="small", epochs=10) for _ in range(2)]
        >>> tasks = [Task(learner, inputs, targets, None, 0) for learner in learners]
        >>> [report.training_labels for report in fit_together(tasks)]
        [60, 60]
    """

    def __init__(self, make_module: Any, *, kind: Hashable, **options: Any) -> None:
        """Remember how to train.

        Args:
            make_module: gives a new module, not yet trained, at every call.
            kind: two learners of the same kind differ in nothing but their modules' state.
            **options: those of `TorchLearner`.
        """
        super().__init__(make_module, **options)
        self.kind = kind

    @property
    def alone(self) -> bool:
        """Whether something looks at every step of the training, which must be made by itself."""
        holds_out = isinstance(self._validation, tuple) or self._validation > 0
        # Of a best epoch, members must be asked what goes back to it with the parameters.
        return self._overridden(WATCHING) or (holds_out and self.watcher is not None)

    @property
    def watcher(self) -> Members | None:
        """The members, if they look at the training from epoch to epoch."""
        return self._members if self._overridden(LOOKING) else None

    def _overridden(self, names: Sequence[str]) -> bool:
        own = Members if self._members is None else type(self._members)
        return any(getattr(own, name) is not getattr(Members, name) for name in names)

    @property
    def device(self) -> Device:
        """Where it is trained."""
        return self._device

    @property
    def settings(self) -> TrainingSettings:
        """How it is trained."""
        return self._settings

    def prepare(self, inputs: Any, targets: Any, weights: Any, *, seed: int) -> TrainingStart:
        """All that `fit` does before the training itself."""
        with seed_torch(seed, self._device):
            return self._prepare(inputs, targets, weights, seed)

    def finish(
        self, start: TrainingStart, outcome: TrainingOutcome, *, seconds: float
    ) -> FitReport:
        """All that `fit` does after it."""
        with seed_torch(start.seed, self._device):
            return replace(self._finish(start, outcome), seconds=seconds)


@dataclass(frozen=True, eq=False)
class Task:
    """What `fit` of a learner is to be called with."""

    learner: Trainee
    inputs: Any
    targets: Any
    weights: Any
    seed: int

    def fit(self) -> FitReport:
        """Train it by itself."""
        return self.learner.fit(self.inputs, self.targets, self.weights, seed=self.seed)


def fit_together(
    tasks: Sequence[Task],
    *,
    on_cpu: bool = False,
    limit: int = 64,
    progress: Progress | None = None,
) -> list[FitReport]:
    """Train learners, those of the same kind and number of items as one batched model.

    Args:
        tasks: any.
        on_cpu: train together on a CPU too, where convolutions gain nothing by it.
        limit: so many networks at most in one model.
        progress: called as ``progress("training", tasks done, tasks)``.

    Returns:
        The reports in the order of the tasks; the seconds of a batched training are shared evenly.
    """
    reports: dict[int, FitReport] = {}
    for numbers in grouped(tasks, on_cpu=on_cpu, limit=limit):
        found = _fit([tasks[number] for number in numbers], checked=on_cpu)
        reports.update(zip(numbers, found, strict=True))
        if progress is not None:
            progress("training", len(reports), len(tasks))
    return [reports[number] for number in range(len(tasks))]


def grouped(tasks: Sequence[Task], *, on_cpu: bool = False, limit: int = 64) -> list[list[int]]:
    """The numbers of the tasks that can be trained together, group by group."""
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


def _fit(tasks: list[Task], *, checked: bool) -> list[FitReport]:
    """Train learners of one kind together, or one by one where that cannot be."""
    if len(tasks) == 1:
        return [tasks[0].fit()]
    settings, device = tasks[0].learner.settings, tasks[0].learner.device
    clock = Clock(device)
    starts = [
        task.learner.prepare(task.inputs, task.targets, task.weights, seed=task.seed)
        for task in tasks
    ]
    modules = [start.module for start in starts]
    sets = [start.labelled for start in starts]
    size = sum(parameter.numel() for parameter in modules[0].parameters())
    if size > LARGEST or not (checked or can_stack(modules, sets, settings, device)):
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
