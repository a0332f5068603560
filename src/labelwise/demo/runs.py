"""The runs of the demo: buy labels for handwritten digits by several strategies, and compare.

Every run buys batch after batch and trains a linear model on the pixels. The first batch is picked
by the strategy itself, or at random if it needs a model. Accuracy is measured on images that no run
ever sees. The data come with scikit-learn, and every number is computed on the spot.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from labelwise.arrays import Floats, Ids
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.labelling_run import (
    BatchChooser,
    LabelledPool,
    StrategyChooser,
    buy_labels,
    can_start_cold,
)
from labelwise.benchmark.processes import call_in_processes
from labelwise.benchmark.protocol import Entrant
from labelwise.benchmark.statistics import Estimate, bootstrap, labels_needed, mean_estimate
from labelwise.errors import BadInput, LabelwiseWarning, MissingDependency, require_extra
from labelwise.learner import Label, Learner
from labelwise.learners.linear_probe import LinearProbe
from labelwise.pool.blocks import Progress
from labelwise.rounds import Round
from labelwise.rounds.default_strategies import BASELINE, DEMONSTRATED
from labelwise.selection.result import Selection
from labelwise.strategies import get

TRAINING: dict[str, Any] = {"epochs": 60, "lr": 0.01, "weight_decay": 1e-3, "batch_size": 256}
"""Of the networks that some strategies read; all labels fit in one batch."""


def choose_strategies() -> tuple[str, ...]:
    """The strategies of the demo, without torch only those that read no network."""
    found = []
    for name in DEMONSTRATED:
        with suppress(MissingDependency):
            _find_reader(name)
            found.append(name)
    return tuple(found)


@dataclass(frozen=True)
class DemoPlan:
    """Settings of the demo."""

    strategies: tuple[str, ...] = field(default_factory=choose_strategies)
    seeds: int = 12  # runs of each; a seed fixes the split and the training
    batch: int = 10  # labels bought at a time
    labels: int = 130
    held_out: int = 597  # images for measuring
    workers: int = 2  # parallel processes

    def __post_init__(self) -> None:
        if self.seeds < 2:
            raise BadInput(f"an interval over seeds needs 2 seeds or more; got {self.seeds}")
        if self.workers < 1:
            raise BadInput(f"workers must be 1 or more; got {self.workers}")
        if self.labels < 2 * self.batch or self.labels % self.batch:
            raise BadInput(f"labels must be two or more batches of {self.batch}; got {self.labels}")

    @property
    def names(self) -> tuple[str, ...]:
        """The baseline, then the strategies compared with it."""
        return (BASELINE, *(name for name in self.strategies if name != BASELINE))

    @property
    def counts(self) -> Ids:
        """``(r,)``, the number of labels at each measurement."""
        return np.arange(self.batch, self.labels + 1, self.batch)


@dataclass(frozen=True)
class DemoRun:
    """The result of one strategy under one seed."""

    strategy: str
    seed: int
    accuracies: Floats  # ``(r,)``, on the held-out images
    first: Ids  # ``(batch,)``, row numbers of the first batch that the strategy picked
    weights: Floats | None  # ``(batch,)`` of that batch, or None
    notes: tuple[str, ...] = ()  # warnings of the strategy, each once


def run_demo(plan: DemoPlan, progress: Progress | None = None) -> list[DemoRun]:
    """Run every strategy under every seed, ``plan.workers`` at a time."""
    for name in plan.names:
        get(name)  # reject unknown names before the work
    report = progress or (lambda stage, done, total: None)
    done = dict.fromkeys(plan.names, 0)
    for name in plan.names:
        report(name, 0, plan.seeds)
    tasks = [(name, seed) for seed in range(plan.seeds) for name in plan.names]
    runs = {}
    calls = [(plan, *task) for task in tasks]
    for run in call_in_processes(run_one, calls, plan.workers):
        runs[run.strategy, run.seed] = run
        done[run.strategy] += 1
        report(run.strategy, done[run.strategy], plan.seeds)
        if run.notes and done[run.strategy] == 1:
            warnings.warn(f"{run.strategy}: {run.notes[0]}", LabelwiseWarning, stacklevel=2)
    return [runs[task] for task in tasks]


def run_one(plan: DemoPlan, strategy: str, seed: int) -> DemoRun:
    """Buy labels up to the plan's number, training before every purchase and at the end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LabelwiseWarning)
        run = _buy_labels(plan, strategy, seed)
    return replace(run, notes=tuple(dict.fromkeys(str(warning.message) for warning in caught)))


def _buy_labels(plan: DemoPlan, strategy: str, seed: int) -> DemoRun:
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    mixed = np.random.default_rng(seed).permutation(len(images))
    held_out, rows = mixed[: plan.held_out], np.sort(mixed[plan.held_out :])
    pool = LabelledPool(rows, images[rows], digits[rows], images[held_out], digits[held_out], 10)
    make_probe = partial(LinearProbe, classes=10)
    chooser: BatchChooser = StrategyChooser(Entrant(strategy))
    make_reader = _find_reader(strategy)
    if make_reader is not None:
        chooser = ReaderChooser(make_reader, chooser)
    rounds = plan.labels // plan.batch
    steps = list(
        buy_labels(
            pool, make_probe, chooser, batch=plan.batch, rounds=rounds, seed=seed, weighted=True
        )
    )
    own = steps[0 if can_start_cold(get(strategy)) else 1]
    accuracies = np.array([step.measures["accuracy"] for step in steps])
    return DemoRun(strategy, seed, accuracies, own.picks, own.weights)


@dataclass(frozen=True)
class ReaderChooser:
    """Trains a learner of its own on the labels, which only the strategy reads."""

    make_reader: Callable[[], Learner]
    choose: BatchChooser

    def __call__(
        self, round_: Round, labels: Mapping[int, Label], budget: int, *, seed: int
    ) -> Selection:
        """The batch that the strategy picks by the other learner."""
        read = Round(round_.pool, self.make_reader())
        if labels:
            read.fit(labels, seed=seed)
        return self.choose(read, labels, budget, seed=seed)


def _find_reader(strategy: str) -> Callable[[], Learner] | None:
    """A network for a strategy that reads gradients or dual variables; None for the others."""
    needs = set(get(strategy).needs)
    if needs <= set(LinearProbe().offered()):
        return None
    words = f"{strategy} reads a network and needs torch (choose others with --strategy)"
    with require_extra(words, "torch"):
        from labelwise.learners.default_network import Perceptron
        from labelwise.learners.primal_dual import PrimalDualLearner
        from labelwise.learners.torch_learner import TorchLearner
    make_network = partial(Perceptron, 64, 64, 10)
    if "duals" in needs:
        return partial(PrimalDualLearner, make_network, epsilon=0.2, **TRAINING)
    return partial(TorchLearner, make_network, **TRAINING)


def group_accuracies(runs: Sequence[DemoRun]) -> dict[str, Floats]:
    """Per strategy ``(s, r)``, one row per seed, in the order of the seeds."""
    names = list(dict.fromkeys(run.strategy for run in runs))
    return {
        name: np.stack([run.accuracies for run in runs if run.strategy == name]) for name in names
    }


@dataclass(frozen=True)
class DemoComparison:
    """One strategy against the baseline."""

    strategy: str  # its name
    needed: Estimate  # labels at which its mean curve first reaches the baseline's last accuracy
    final: Estimate  # mean accuracy with all labels
    gain: Estimate  # difference of that to the baseline's

    def verdict(self, limit: int) -> str:
        """What the interval of the labels needed shows; ``limit`` is the number of all labels."""
        if self.strategy == BASELINE:
            return ""
        if self.needed.high < limit:
            return "fewer labels"
        return "more labels" if self.needed.low > limit else "unclear"


def compare_strategies(labels: Arrays, accuracies: Mapping[str, Floats]) -> list[DemoComparison]:
    """Compare all strategies with the baseline; the bootstrap draws seeds for all together."""
    seeds = len(accuracies[BASELINE])
    if any(curves.shape != (seeds, len(labels)) for curves in accuracies.values()):
        raise BadInput("every strategy needs one curve per seed, as long as labels")
    reached = accuracies[BASELINE][:, -1]

    def needed(curves: Floats, shares: Floats) -> Floats:
        found: Floats = labels_needed(labels, shares @ curves, shares @ reached)
        return found

    return [
        DemoComparison(
            name,
            bootstrap(partial(needed, curves), seeds),
            mean_estimate(curves[:, -1]),
            mean_estimate(curves[:, -1] - reached),
        )
        for name, curves in accuracies.items()
    ]
