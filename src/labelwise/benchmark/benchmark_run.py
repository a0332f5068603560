"""A benchmark run: rounds of train, measure, represent and select, one result line each.

All strategies of a seed share pool, first labels, validation items and initial parameters. A run
continues from its recorded lines: picks are read from them, and only the state that later rounds
depend on is computed again (networks with warm start, the first round of one-shot picks, strategies
that read diagnostics of earlier batches). It gives the same numbers as an uninterrupted run.

The measured network is that of the last epoch, or of the best epoch on the validation items; test
items decide nothing.
"""

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from labelwise.arrays import Floats, Ids
from labelwise.benchmark import devices
from labelwise.benchmark.batched import TrainingTask, fit_batched_tasks
from labelwise.benchmark.devices import DeviceClock
from labelwise.benchmark.labelling_run import PICKING, TRAINING, mix_run_seed
from labelwise.benchmark.lines import make_result_line, make_run_key
from labelwise.benchmark.models import (
    ItemPool,
    ModelSet,
    make_benchmark_networks,
    make_picker_network,
)
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult, RunKey
from labelwise.benchmark.splits import DataSplit, SplitCache
from labelwise.errors import BadInput
from labelwise.files import JsonObject
from labelwise.learner import FitReport, Learner
from labelwise.learners.inputs import Items
from labelwise.pool.rows import Rows
from labelwise.rounds import Holdout, LabelEncoding, Round, adapt_options
from labelwise.selection.result import Selection
from labelwise.strategies import get
from labelwise.strategy import PastBatch
from labelwise.theory.coverage import imbalance_ratio


class BatchSelector:
    """Selects batches for one strategy of an experiment with a shared `Round`.

    Attributes:
        used_validation: whether options were adapted to the validation items.
    """

    def __init__(self, protocol: Protocol, entrant: Entrant, split: DataSplit, pool: Items) -> None:
        """Start without earlier batches."""
        self._entrant, self._split = entrant, split
        self._strategy = get(entrant.strategy).with_options(**entrant.options)
        self._bayesian = protocol.learner.get("members") is not None
        self._pool = ItemPool(pool, split.ids)
        self._past: list[PastBatch] = []
        self.used_validation = False

    def make_round(self, reader: Learner) -> Round:
        """The pool with a trained learner."""
        round_ = Round(self._pool, reader)
        regression = self._split.classes is None
        round_.hold_model(LabelEncoding(regression), range(self._split.classes or 0))
        return round_

    def represent(self, reader: Learner) -> Rows:
        """The representations of the pool that the strategy reads."""
        return self.make_round(reader).represent(self._strategy, prefer_members=self._bayesian)

    def select(
        self, reader: Learner, rows: Rows, labelled: Ids, budget: int, *, seed: int
    ) -> Selection:
        """Select a batch, with options adapted to the history."""
        round_ = self.make_round(reader)
        options = self._adapt_options(round_, rows, labelled)
        picked = round_.select_batch(
            self._entrant.strategy, budget, labelled=labelled, options=options, rows=rows, seed=seed
        )
        ids = tuple(picked.ids.tolist())
        self._past.append(PastBatch(self._entrant.strategy, options, ids, picked.info))
        return picked

    def _adapt_options(self, round_: Round, rows: Rows, labelled: Ids) -> JsonObject:
        options = dict(self._entrant.options)
        split = self._split
        reads_members = any(name.startswith("member_") for name in rows)
        # The members of a Bayesian network need no calibration.
        if split.classes is None or (reads_members and not self._strategy.repeats_batches):
            return options
        targets = split.targets[split.find_positions(labelled)].tolist()
        labels = dict(zip(labelled.tolist(), targets, strict=True))
        holdout = None
        if split.validation is not None:
            holdout = Holdout(split.validation[0], split.validation[1].tolist())
        history = round_.make_history(self._past, labels, holdout)

        def evaluate_holdout() -> tuple[Floats, Ids] | None:
            found = history.evaluate_holdout()
            self.used_validation |= found is not None
            return found

        observed = replace(history, evaluate_holdout=evaluate_holdout)
        return adapt_options(self._strategy, options, observed)


class BenchmarkRun:
    """One strategy under one seed, round by round."""

    def __init__(
        self,
        splits: SplitCache,
        entrant: Entrant,
        seed: int,
        make: Callable[..., ModelSet] = make_benchmark_networks,
    ) -> None:
        """Start with the first labels."""
        self.protocol, self.entrant, self.seed = splits.protocol, entrant, seed
        self._device = splits.device
        self._split, items = splits.get(seed)
        self._models = make(self.protocol, entrant, self._split, splits.device, items)
        self._picker = make_picker_network(self.protocol, entrant, self._split, splits.device)
        self._picker_task: tuple[int, bytes] | None = None  # what it was trained on
        self._picker_owner: BenchmarkRun | None = None  # the run whose picker this one shares
        self._warm = bool(self.protocol.learner.get("warm_start"))
        self._selector = BatchSelector(self.protocol, entrant, self._split, items[0])
        self._repeats = get(entrant.strategy).repeats_batches
        self._one_shot = entrant.one_shot or self.protocol.frozen
        self._rows: Rows = {}  # of round 0, for one-shot picks
        self._first = self._split.first
        self._bought: Ids = np.empty(0, np.int64)
        self._weights: Floats = np.empty(0)
        self._seconds = {"train": 0.0, "represent": 0.0, "select": 0.0}
        self._reports: Sequence[FitReport] = ()
        self._started = ""
        self.round = 0

    @property
    def key(self) -> RunKey:
        """Identifies the run in a results file."""
        return make_run_key(self.protocol, self.entrant, self.seed)

    @property
    def trains_again(self) -> bool:
        """Whether a recorded round must be trained again to continue from it."""
        return self._warm or self._repeats or (self._one_shot and self.round == 0)

    def begin_round(self) -> list[TrainingTask]:
        """Begin a round; returns its trainings."""
        self._started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        devices.reset_device_memory(self._device)
        return [] if self.entrant.own_network else self._make_tasks()

    def _make_tasks(self) -> list[TrainingTask]:
        places = self._split.find_positions(self._labelled())
        seed = mix_run_seed(self.seed, self.round, TRAINING)
        shares = np.concatenate([np.ones(len(self._first)), self._weights])
        weights = None if (shares == 1).all() else shares
        return self._models.make_tasks(places, self._split.targets[places], weights, seed)

    def _labelled(self) -> Ids:
        return np.concatenate([self._first, self._bought])

    def end_training(self, reports: Sequence[FitReport]) -> None:
        """Take over the reports of this round's trainings."""
        self._reports = reports
        self._seconds["train"] = sum(report.seconds for report in reports)

    def finish_round(self) -> RoundResult:
        """Measure the trained networks, buy a batch, and return the result."""
        imbalance = self._measure_imbalance()
        values = [imbalance or 0.0]
        own = self._picker if self.entrant.own_network else None
        if own is not None:
            clock = DeviceClock(self._device)
            self._fit_picker()
            self._seconds["train"] = clock.lap()
        if self.protocol.metric != "imbalance":
            values = self._models.measure(self._split.test_targets, self.protocol.metric, own)
        best = self._models.best_epoch
        labels = len(self._first) + len(self._bought)
        picks, weights, size = self._bought[:0], None, None
        self._seconds |= {"represent": 0.0, "select": 0.0}
        if self.round < self.protocol.rounds:
            batch = self._select_batch()
            picks, weights = self._buy_batch(batch)
            size = None if batch.weights is None else batch.effective_size()
        stops = self.protocol.learner.get("patience") is not None
        line = make_result_line(
            self.protocol,
            self.entrant,
            self.seed,
            device=devices.describe_device(self._device),
            peak_megabytes=devices.peak_device_memory(self._device),
            round=self.round,
            labels=labels,
            values=tuple(values),
            measures={} if best is None else {"best_epoch_accuracy": best},
            validation_labels=(
                self.protocol.validation if stops or self._selector.used_validation else 0
            ),
            seconds=self._seconds,
            imbalance=imbalance,
            effective_size=size,
            picks=tuple(picks.tolist()),
            weights=None if weights is None else tuple(weights.tolist()),
            started=self._started,
        )
        self.round += 1
        return line

    def replay_round(self, line: RoundResult) -> None:
        """Buy the picks of a recorded line; select again where later picks depend on it."""
        picks = np.array(line.picks, dtype=np.int64)
        self._selector.used_validation |= line.validation_labels > 0
        if self.round < self.protocol.rounds:
            if self._one_shot or self._repeats:
                again = self._buy_batch(self._select_batch())[0]
                if again.tolist() != picks.tolist():
                    raise BadInput(
                        f"round {self.round} of {self.entrant.label}, seed {self.seed}, picks "
                        "other items than its recorded line: it comes from another version or "
                        "machine; start a new results file"
                    )
            else:
                if self._picker is not None and self.trains_again:
                    self._fit_picker()
                weights = None if line.weights is None else np.array(line.weights)
                self._add_batch(Selection(picks, weights))
        self.round += 1

    def _select_batch(self) -> Selection:
        """The batch of this round; for one-shot picks, all picks so far."""
        clock = DeviceClock(self._device)
        reader: Learner = self._models.reader
        rows, labelled = self._rows, self._labelled()
        number, budget = self.round, self.protocol.batch
        if self._one_shot:
            labelled, number, budget = self._first, 0, (self.round + 1) * self.protocol.batch
        if not self._one_shot or self.round == 0:
            if self._picker is not None:
                self._fit_picker()
                reader = self._picker
            rows = self._selector.represent(reader)
            self._seconds["represent"] = clock.lap()
        seed = mix_run_seed(self.seed, number, PICKING)
        picked = self._selector.select(reader, rows, labelled, budget, seed=seed)
        self._seconds["select"] = clock.lap()
        if self._one_shot and self.round == 0:
            self._rows = rows
        return picked

    def _buy_batch(self, picked: Selection) -> tuple[Ids, Floats | None]:
        """Add a batch to the labelled items; returns its new picks and their weights."""
        if not self._one_shot:
            self._add_batch(picked)
            return picked.ids, picked.weights
        new = ~np.isin(picked.ids, self._bought)
        if not np.isin(self._bought, picked.ids).all():
            raise BadInput(
                f"{self.entrant.strategy} picks other items for a larger budget, so it cannot "
                "pick everything at once; leave one_shot out"
            )
        self._bought, self._weights = self._bought[:0], self._weights[:0]
        self._add_batch(picked)
        if self.protocol.frozen and self.round == 0:
            lowest = self._split.targets.min(axis=0).tolist()
            options = self.protocol.settings["frozen"]
            self._models = self._models.freeze(options, self._device, lowest)
        return picked.ids[new], None if picked.weights is None else picked.weights[new]

    def _add_batch(self, picked: Selection) -> None:
        mode = self.entrant.weights or self.protocol.weights
        shares = np.ones(len(picked))
        if picked.weights is not None and mode != "none":
            shares = picked.training_weights() if mode == "mean" else picked.weights
        self._bought = np.concatenate([self._bought, picked.ids])
        self._weights = np.concatenate([self._weights, shares])

    def _fit_picker(self) -> None:
        """Train the network that only the strategy reads, once a round."""
        assert self._picker is not None
        task = self._make_tasks()[0]
        wanted = task.seed, self._labelled().tobytes()
        owner = self._picker_owner or self
        if owner._picker_task != wanted:
            owner._picker_task = wanted
            self._picker.fit(task.inputs, task.targets, task.weights, seed=task.seed)

    def share_picker(self, other: "BenchmarkRun") -> None:
        """Read the picker of a run that differs in ``own_network`` only and so picks alike."""
        mine, theirs = (replace(run.entrant, own_network=False) for run in (self, other))
        if mine == theirs and self.seed == other.seed and not self._warm:
            self._picker_owner = other._picker_owner or other
            self._picker = other._picker

    def _measure_imbalance(self) -> float | None:
        if self._split.classes is None:
            return None
        places = self._split.find_positions(self._labelled())
        return imbalance_ratio(self._split.targets[places], self._split.classes)


def play_benchmark_runs(
    runs: Sequence[BenchmarkRun],
    known: Mapping[RunKey, Sequence[RoundResult]] | None = None,
    *,
    on_cpu: bool = False,
) -> Iterator[RoundResult]:
    """Play runs from round 0 on, training networks together; ``known`` lines are not returned."""
    lines = known or {}
    for one, other in combinations(runs, 2):
        other.share_picker(one)
    for number in range(runs[0].protocol.rounds + 1):
        recorded = {
            run: lines[run.key][number] for run in runs if len(lines.get(run.key, ())) > number
        }
        # Batch networks with the same companions whether their lines exist or not, because
        # another number of networks would round differently.
        active = [run for run in runs if run.trains_again] if len(recorded) == len(runs) else runs
        tasks = [run.begin_round() for run in active]
        reports = iter(fit_batched_tasks([task for own in tasks for task in own], on_cpu=on_cpu))
        for run, own in zip(active, tasks, strict=True):
            run.end_training([next(reports) for _ in own])
        for run in runs:
            if run in recorded:
                run.replay_round(recorded[run])
            else:
                yield run.finish_round()
