"""The demo: buy labels for handwritten digits, by several strategies, and compare.

Every run starts with the same few labels, trains a small network, buys a batch that the strategy
picks, trains anew, and so on. The accuracy is measured on images that no run ever sees. Nothing is
stored beforehand: data come with scikit-learn, and every number is computed on the spot.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np
from sklearn.datasets import load_digits

from labelwise.arrays import Floats, Ids
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.learners.primal_dual import PrimalDualLearner
from labelwise.learners.small_networks import Perceptron
from labelwise.learners.torch_learner import TorchLearner
from labelwise.pool.blocks import Progress
from labelwise.selection.entry import select
from labelwise.selection.result import Selection
from labelwise.strategies import get

BASELINE = "random"

OPTIONS: dict[str, dict[str, Any]] = {
    # A softmax of its own labels has no gradient; calibration would need labels held out.
    "sparse_greedy": {"label_law": "label_smoothing", "rho": 0.1},
    "sparse_iht": {"label_law": "label_smoothing", "rho": 0.1},
}
"""Options that differ from a strategy's own defaults, and why."""

TRAINING: dict[str, Any] = {"epochs": 60, "lr": 0.01, "weight_decay": 1e-3, "batch_size": 256}
"""One step an epoch: there are never more labels than fit in a batch."""


@dataclass(frozen=True)
class Plan:
    """What the demo runs.

    Attributes:
        strategies: names of the strategies to compare with random.
        seeds: how many runs of each; a seed fixes the split, the first labels and the training.
        start: labels at the start, drawn at random.
        batch: labels bought at a time.
        labels: labels at the end.
        held_out: images kept for measuring.
        workers: processes side by side.
    """

    strategies: tuple[str, ...] = (
        "margin",
        "badge",
        "lewis",
        "sparse_greedy",
        "bss",
        "dynamics",
        "ally",
    )
    seeds: int = 12
    start: int = 20
    batch: int = 10
    labels: int = 130
    held_out: int = 597
    workers: int = 2

    def __post_init__(self) -> None:
        if self.seeds < 2:
            raise BadInput(f"an interval over seeds needs 2 seeds or more; got {self.seeds}")
        if self.workers < 1:
            raise BadInput(f"workers must be 1 or more; got {self.workers}")
        bought = self.labels - self.start
        if bought < self.batch or bought % self.batch:
            raise BadInput(
                f"labels must be {self.start} and some batches of {self.batch}; got {self.labels}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The baseline, then the strategies compared with it."""
        return (BASELINE, *(name for name in self.strategies if name != BASELINE))

    @property
    def counts(self) -> Ids:
        """``(r,)``, how many labels there are at each measurement."""
        return np.arange(self.start, self.labels + 1, self.batch)


@dataclass(frozen=True)
class Run:
    """What came of one strategy under one seed.

    Attributes:
        strategy: its name.
        seed: the seed.
        accuracies: ``(r,)``, on the held-out images.
        first: row numbers of the first labels and of the first batch bought.
        weights: ``(batch,)`` of the first batch, or None.
        notes: what the strategy warned of, each text once.
    """

    strategy: str
    seed: int
    accuracies: Floats
    first: tuple[Ids, Ids]
    weights: Floats | None
    notes: tuple[str, ...] = ()


def make_network() -> Perceptron:
    """One hidden layer of 64; trained to the end in a few hundredths of a second."""
    return Perceptron(64, 64, 10)


def make_picker(strategy: str, learner: TorchLearner) -> TorchLearner:
    """The learner that a strategy reads: its own for dual variables, else the one measured."""
    if "duals" not in get(strategy).needs:
        return learner
    return PrimalDualLearner(make_network, epsilon=0.2, **TRAINING)


def run_all(plan: Plan, progress: Progress | None = None) -> list[Run]:
    """Run every strategy under every seed, ``plan.workers`` at a time.

    Args:
        plan: what to run.
        progress: called with a strategy's name, its runs that are done, and all its runs.

    Returns:
        The runs, seed after seed, in the order of ``plan.names``.
    """
    for name in plan.names:
        get(name)  # a wrong name is refused before the work
    tell = progress or (lambda stage, done, total: None)
    done = dict.fromkeys(plan.names, 0)
    for name in plan.names:
        tell(name, 0, plan.seeds)
    tasks = [(name, seed) for seed in range(plan.seeds) for name in plan.names]
    runs = {}
    for run in _side_by_side(run_one, [(plan, *task) for task in tasks], plan.workers):
        runs[run.strategy, run.seed] = run
        done[run.strategy] += 1
        tell(run.strategy, done[run.strategy], plan.seeds)
        if run.notes and done[run.strategy] == 1:
            warnings.warn(f"{run.strategy}: {run.notes[0]}", LabelwiseWarning, stacklevel=2)
    return [runs[task] for task in tasks]


def run_one(plan: Plan, strategy: str, seed: int) -> Run:
    """Buy labels up to the plan's number, training before every purchase and at the end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LabelwiseWarning)
        run = _buy(plan, strategy, seed)
    return replace(run, notes=tuple(dict.fromkeys(str(warning.message) for warning in caught)))


def _buy(plan: Plan, strategy: str, seed: int) -> Run:
    images, digits = load_digits(return_X_y=True)
    images = images / 16
    mixed = np.random.default_rng(seed).permutation(len(images))
    held_out, pool = mixed[: plan.held_out], mixed[plan.held_out :]
    needs = get(strategy).needs or ("features",)
    learner = TorchLearner(make_network, **TRAINING)
    picker = make_picker(strategy, learner)
    labelled = np.arange(plan.start)  # positions in the pool, which is in random order
    weights = np.ones(plan.start)
    accuracies = []
    batches: list[Selection] = []
    for count in plan.counts:
        known = images[pool[labelled]], digits[pool[labelled]], weights
        learner.fit(*known, seed=seed)
        right = learner.predict(images[held_out]) == digits[held_out]
        accuracies.append(right.mean())
        if count == plan.counts[-1]:
            break
        if picker is not learner:
            picker.fit(*known, seed=seed)
        rows = picker.represent(images[pool], needs)
        draw = 1000 * seed + len(batches)
        options = OPTIONS.get(strategy, {})
        batch = select(strategy, plan.batch, **rows, labelled=labelled, seed=draw, **options)
        batches.append(batch)
        labelled = np.concatenate([labelled, batch.ids])
        weights = np.concatenate([weights, batch.training_weights()])
    first = batches[0]
    shown = (pool[: plan.start], pool[first.ids])
    return Run(strategy, seed, np.array(accuracies), shown, first.weights)


def accuracies_by_strategy(runs: Sequence[Run]) -> dict[str, Floats]:
    """Per strategy ``(s, r)``, one row per seed, in the order of the seeds."""
    names = list(dict.fromkeys(run.strategy for run in runs))
    return {
        name: np.stack([run.accuracies for run in runs if run.strategy == name]) for name in names
    }


def _side_by_side(
    function: Callable[..., Run], tasks: Sequence[tuple[Any, ...]], workers: int
) -> Iterator[Run]:
    """Results as they come; each process computes on one thread, so that none waits for another."""
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
        yield from parallel(joblib.delayed(function)(*task) for task in tasks)
