"""A run: rounds of train, measure, represent and select, one line of a results file each.

All strategies of a seed share pool, first labels, validation items and first parameters, so that
their differences are those of the strategies. A run is continued from its lines: what it bought is
read off them, and only what later rounds depend on is computed again (networks that are trained on
rather than anew, and the first round of one that picks everything at once). It then gives the
numbers it would have given without the interruption.

What is measured is the network after its last epoch, or after the best one on validation items; the
test items decide nothing.
"""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids
from labelwise.benchmark import devices, selecting
from labelwise.benchmark.batched import Task, fit_together
from labelwise.benchmark.devices import Clock, Device
from labelwise.benchmark.models import make_models, make_picker, near_items
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult, RunKey
from labelwise.benchmark.scenes import Scene, prepare
from labelwise.errors import BadInput
from labelwise.learner import FitReport
from labelwise.learners.inputs import Items
from labelwise.selection.result import Selection
from labelwise.theory.imbalance import imbalance_ratio

TRAINING, PICKING = 13, 17
"""Streams of randomness."""


@dataclass
class Stage:
    """Scenes by seed, with their items on the device; shared by all runs of a process.

    Attributes:
        protocol: the experiment.
        device: where everything is computed.
        keep: so many scenes are kept.
    """

    protocol: Protocol
    device: Device
    keep: int = 1
    _scenes: dict[int, tuple[Scene, tuple[Items, Items]]] = field(default_factory=dict)

    def scene(self, seed: int) -> tuple[Scene, tuple[Items, Items]]:
        """The data of a seed."""
        if seed not in self._scenes:
            while len(self._scenes) >= self.keep:
                del self._scenes[next(iter(self._scenes))]
            scene = prepare(self.protocol, seed)
            self._scenes[seed] = scene, near_items(scene, self.device)
        return self._scenes[seed]


class Run:
    """One strategy under one seed, round after round.

    Example:
        >>> from labelwise.benchmark.devices import find_device
        >>> from labelwise.benchmark.protocol import changed
        >>> from labelwise.benchmark.protocols import get
        >>> tiny = get("sparse-table2-mnist").at("small").on("digits")
        >>> tiny = changed(tiny, rounds=1, learner={**tiny.learner, "epochs": 3})
        >>> run = Run(Stage(tiny, find_device("cpu")), Entrant("margin"), seed=0)
        >>> [(line.labels, len(line.picks)) for line in play([run])]
        [(40, 40), (80, 0)]
    """

    def __init__(self, stage: Stage, entrant: Entrant, seed: int) -> None:
        """Begin with the first labels."""
        self.protocol, self.entrant, self.seed = stage.protocol, entrant, seed
        self._device = stage.device
        self._scene, items = stage.scene(seed)
        self._models = make_models(self.protocol, entrant, self._scene, stage.device, items)
        self._picker = make_picker(self.protocol, entrant, self._scene, stage.device)
        self._pool = items[0]
        self._memory = selecting.Memory() if entrant.strategy == "bandit" else None
        self._one_shot = entrant.one_shot or self.protocol.frozen
        self._rows: Mapping[str, Any] = {}  # of round 0, where everything is picked by it
        self._first = self._scene.first
        self._bought: Ids = np.empty(0, np.int64)
        self._weights: Floats = np.empty(0)
        self._seconds = {"train": 0.0, "represent": 0.0, "select": 0.0}
        self._reports: Sequence[FitReport] = ()
        self._started = ""
        self.round = 0

    @property
    def key(self) -> RunKey:
        """What tells this run from others in a results file."""
        return key_of(self.protocol, self.entrant, self.seed)

    @property
    def trains_again(self) -> bool:
        """Whether a round that is in the results file must be trained again to go on from it."""
        warm = bool(self.protocol.learner.get("warm_start"))
        return warm or self._memory is not None or (self._one_shot and self.round == 0)

    def tasks(self) -> list[Task]:
        """What is to be trained in this round, which begins."""
        self._started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        devices.forget_peak(self._device)
        return self._tasks()

    def _tasks(self) -> list[Task]:
        labelled = np.concatenate([self._first, self._bought])
        places = self._scene.positions(labelled)
        seed = seed_of(self.seed, self.round, TRAINING)
        return self._models.tasks(places, self._scene.targets[places], self._shares(), seed)

    def trained(self, reports: Sequence[FitReport]) -> None:
        """The networks of this round are trained."""
        self._reports = reports
        self._seconds["train"] = sum(report.seconds for report in reports)

    def play(self) -> RoundResult:
        """Measure, buy, and say so in a line; the networks are trained."""
        values = self._measure()
        labels = len(self._first) + len(self._bought)
        imbalance = self._imbalance()
        picks, weights, size = self._bought[:0], None, None
        self._seconds |= {"represent": 0.0, "select": 0.0}
        if self.round < self.protocol.rounds:
            batch = self._select()
            picks, weights = self._buy(batch)
            size = None if batch.weights is None else batch.effective_size()
        line = RoundResult(
            **key_fields(self.protocol, self.entrant, self.seed),
            round=self.round,
            labels=labels,
            metric=self.protocol.metric,
            higher_is_better=self.protocol.higher_is_better,
            value=float(np.mean(values)),
            values=tuple(values),
            reduced=self.protocol.reduced,
            validation_labels=self._validation_labels(),
            seconds={name: round(value, 6) for name, value in self._seconds.items()},
            peak_megabytes=devices.peak_megabytes(self._device),
            imbalance=imbalance,
            effective_size=size,
            picks=tuple(picks.tolist()),
            weights=None if weights is None else tuple(weights.tolist()),
            device=devices.described(self._device),
            versions=devices.versions(),
            started=self._started,
            code=devices.code(),
        )
        self.round += 1
        return line

    def replay(self, line: RoundResult) -> None:
        """Buy what a line says; where later picks depend on it, choose again and compare."""
        picks = np.array(line.picks, dtype=np.int64)
        weights = None if line.weights is None else np.array(line.weights)
        if self.round < self.protocol.rounds:
            if self._one_shot or self._memory is not None:
                again = self._buy(self._select())[0]
                if again.tolist() != picks.tolist():
                    raise BadInput(
                        f"round {self.round} of {self.entrant.label}, seed {self.seed}, picks "
                        "other items than its line says: it was made by another version or "
                        "machine; start a new results file"
                    )
            else:
                if self._picker is not None and self.trains_again:
                    self._fit_picker()
                self._take(Selection(picks, weights))
        self.round += 1

    def _measure(self) -> list[float]:
        if self.protocol.metric == "imbalance":
            found = self._imbalance()
            assert found is not None
            return [found]
        return self._models.errors(self._scene.test_targets, self.protocol.metric)

    def _select(self) -> Selection:
        """The batch of this round; of one that picks at once, all picks up to now."""
        clock = Clock(self._device)
        reader = self._models.reader
        rows, labelled = self._rows, np.concatenate([self._first, self._bought])
        number, budget = self.round, self.protocol.batch
        if self._one_shot:
            labelled, number, budget = self._first, 0, (self.round + 1) * self.protocol.batch
        if not self._one_shot or self.round == 0:
            if self._picker is not None:
                self._fit_picker()
                reader = self._picker
            rows = selecting.represent(self.protocol, self.entrant, self._scene, reader, self._pool)
            self._seconds["represent"] = clock.lap()
        picked = selecting.choose(
            self.protocol,
            self.entrant,
            self._scene,
            rows,
            labelled,
            budget,
            seed=seed_of(self.seed, number, PICKING),
            reader=reader,
            memory=self._memory,
        )
        self._seconds["select"] = clock.lap()
        if self._one_shot and self.round == 0:
            self._rows = rows
        return picked

    def _buy(self, picked: Selection) -> tuple[Ids, Floats | None]:
        """Take a batch; what is new of it, and its weights."""
        before = self._bought
        if self._one_shot:
            if set(before.tolist()) - set(picked.ids.tolist()):
                raise BadInput(
                    f"{self.entrant.strategy} picks other items for a larger budget, so it cannot "
                    "pick everything at once; leave one_shot out"
                )
            new = ~np.isin(picked.ids, before)
            self._bought, self._weights = before[:0], self._weights[:0]
            self._take(picked)
            if self.protocol.frozen and self.round == 0:
                own = self.protocol.settings["frozen"]
                self._models = self._models.frozen(own, self._device)
            weights = None if picked.weights is None else picked.weights[new]
            return picked.ids[new], weights
        self._take(picked)
        return picked.ids, picked.weights

    def _take(self, picked: Selection) -> None:
        mode = self.entrant.weights or self.protocol.weights
        shares = np.ones(len(picked))
        if picked.weights is not None and mode != "none":
            shares = picked.training_weights() if mode == "mean" else picked.weights
        self._bought = np.concatenate([self._bought, picked.ids])
        self._weights = np.concatenate([self._weights, shares])

    def _shares(self) -> Floats | None:
        """Weights of all labelled items; None where all weigh the same."""
        shares = np.concatenate([np.ones(len(self._first)), self._weights])
        return None if (shares == 1).all() else shares

    def _fit_picker(self) -> None:
        """Train the network that only the strategy reads, as the measured one is trained."""
        assert self._picker is not None
        task = self._tasks()[0]
        self._picker.fit(task.inputs, task.targets, task.weights, seed=task.seed)

    def _imbalance(self) -> float | None:
        if self._scene.classes is None:
            return None
        places = self._scene.positions(np.concatenate([self._first, self._bought]))
        return imbalance_ratio(self._scene.targets[places], self._scene.classes)

    def _validation_labels(self) -> int:
        stops = self.protocol.learner.get("patience") is not None
        used = stops or selecting.calibrates(self.protocol, self.entrant)
        return self.protocol.validation if used else 0


def play(
    runs: Sequence[Run],
    known: Mapping[RunKey, Sequence[RoundResult]] | None = None,
    *,
    on_cpu: bool = False,
) -> Iterator[RoundResult]:
    """Rounds of several runs side by side, line by line.

    Args:
        runs: at round 0.
        known: the lines that are in the results file already, by run; they are not given again.
        on_cpu: train as one batched model on a CPU too, where it gains nothing.
    """
    lines = known or {}
    for number in range(runs[0].protocol.rounds + 1):
        there = {
            run: lines[run.key][number] for run in runs if len(lines.get(run.key, ())) > number
        }
        # Networks are batched with the same companions whether their lines are there or not:
        # another number of them would round differently.
        active = [run for run in runs if run.trains_again] if len(there) == len(runs) else runs
        train(active, on_cpu=on_cpu)
        for run in runs:
            if run in there:
                run.replay(there[run])
            else:
                yield run.play()


def train(runs: Sequence[Run], *, on_cpu: bool = False) -> None:
    """Train the networks of runs for their rounds, together where that can be."""
    tasks = [run.tasks() for run in runs]
    reports = iter(fit_together([task for own in tasks for task in own], on_cpu=on_cpu))
    for run, own in zip(runs, tasks, strict=True):
        run.trained([next(reports) for _ in own])


def key_fields(protocol: Protocol, entrant: Entrant, seed: int) -> dict[str, Any]:
    """The fields of a line that tell runs apart."""
    entrant = replace(entrant, one_shot=entrant.one_shot or protocol.frozen)
    return {
        "experiment": protocol.name,
        "scale": protocol.scale,
        "dataset": protocol.dataset,
        "network": protocol.network,
        "strategy": entrant.strategy,
        "options": entrant.facts,
        "seed": seed,
    }


def key_of(protocol: Protocol, entrant: Entrant, seed: int) -> RunKey:
    """The key of a run in a results file."""
    fields = key_fields(protocol, entrant, seed)
    return RoundResult(**fields, round=0, labels=0, metric="", value=0.0).key


def seed_of(*numbers: int) -> int:
    """One seed from several numbers.

    >>> seed_of(1, 0, TRAINING) != seed_of(0, 1, TRAINING)
    True
    """
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
