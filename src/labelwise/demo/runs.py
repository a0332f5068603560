"""The runs of the demo: buy labels for handwritten digits by several strategies, and compare.

Every run starts with the same few labels, trains a small network, buys a batch that the strategy
picks, trains again, and so on. Accuracy is measured on images that no run ever sees. The data come
with scikit-learn, and every number is computed on the spot.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import joblib
import numpy as np
from sklearn.datasets import load_digits

from labelwise.arrays import Floats, Ids
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.statistics import Estimate, bootstrap, labels_needed, mean_estimate
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.learners.primal_dual import PrimalDualLearner
from labelwise.learners.small_networks import Perceptron
from labelwise.learners.torch_learner import TorchLearner
from labelwise.pool.blocks import Progress
from labelwise.pool.pool import Pool
from labelwise.rounds import Round, adapt_options
from labelwise.strategies import get
from labelwise.strategy import PastBatch

BASELINE = "random"

TRAINING: dict[str, Any] = {"epochs": 60, "lr": 0.01, "weight_decay": 1e-3, "batch_size": 256}
"""All labels fit in one batch, so an epoch is one step."""


@dataclass(frozen=True)
class DemoPlan:
    """Settings of the demo.

    Attributes:
        strategies: names of the strategies to compare with random.
        seeds: runs of each; a seed fixes the split, the first labels and the training.
        start: labels at the start, drawn at random.
        batch: labels bought at a time.
        labels: labels at the end.
        held_out: images for measuring.
        workers: parallel processes.
    """

    strategies: tuple[str, ...] = (
        *("margin", "badge", "lewis", "sparse_greedy", "bss", "dynamics", "ally"),
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
        """``(r,)``, the number of labels at each measurement."""
        return np.arange(self.start, self.labels + 1, self.batch)


@dataclass(frozen=True)
class DemoRun:
    """The result of one strategy under one seed.

    Attributes:
        strategy: its name.
        seed: the seed.
        accuracies: ``(r,)``, on the held-out images.
        first: row numbers of the first labels and of the first batch.
        weights: ``(batch,)`` of the first batch, or None.
        notes: warnings of the strategy, each once.
    """

    strategy: str
    seed: int
    accuracies: Floats
    first: tuple[Ids, Ids]
    weights: Floats | None
    notes: tuple[str, ...] = ()


def run_demo(plan: DemoPlan, progress: Progress | None = None) -> list[DemoRun]:
    """Run every strategy under every seed, ``plan.workers`` at a time.

    Args:
        plan: the settings.
        progress: called with a strategy's name, its finished runs, and all its runs.

    Returns:
        The runs, seed by seed, in the order of ``plan.names``.
    """
    for name in plan.names:
        get(name)  # reject unknown names before the work
    report = progress or (lambda stage, done, total: None)
    done = dict.fromkeys(plan.names, 0)
    for name in plan.names:
        report(name, 0, plan.seeds)
    tasks = [(name, seed) for seed in range(plan.seeds) for name in plan.names]
    runs = {}
    # One thread per process, so that processes do not compete for cores.
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = joblib.Parallel(n_jobs=plan.workers, return_as="generator_unordered")
        for run in parallel(joblib.delayed(run_one)(plan, *task) for task in tasks):
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
    images = images / 16
    mixed = np.random.default_rng(seed).permutation(len(images))
    held_out, rows = mixed[: plan.held_out], mixed[plan.held_out :]
    pool = Pool(images[rows])
    measured = Round(pool, TorchLearner(_make_network, **TRAINING))
    # Dual variables come from a learner of their own; all strategies are measured alike.
    read = measured
    if "duals" in get(strategy).needs:
        read = Round(pool, PrimalDualLearner(_make_network, epsilon=0.2, **TRAINING))
    labels = {item: int(digits[rows[item]]) for item in range(plan.start)}
    weights = np.ones(plan.start)
    accuracies: list[float] = []
    batches: list[PastBatch] = []
    first: tuple[Ids, Floats | None] | None = None
    for count in plan.counts:
        measured.fit(labels, weights, seed=seed)
        predicted = measured.learner.predict(images[held_out])  # type: ignore[attr-defined]
        accuracies.append(float((predicted == digits[held_out]).mean()))
        if count == plan.counts[-1]:
            break
        if read is not measured:
            read.fit(labels, weights, seed=seed)
        options = adapt_options(strategy, {}, read.make_history(batches, labels))
        picked = read.select_batch(
            strategy,
            plan.batch,
            labelled=list(labels),
            options=options,
            seed=1000 * seed + len(batches),
        )
        first = first or (rows[picked.ids], picked.weights)
        batches.append(PastBatch(strategy, options, tuple(picked.ids.tolist()), picked.info))
        labels |= {item: int(digits[rows[item]]) for item in picked.ids.tolist()}
        weights = np.concatenate([weights, picked.training_weights()])
    assert first is not None
    return DemoRun(strategy, seed, np.array(accuracies), (rows[: plan.start], first[0]), first[1])


def _make_network() -> Perceptron:
    """One hidden layer of 64; training takes a few hundredths of a second."""
    return Perceptron(64, 64, 10)


def group_accuracies(runs: Sequence[DemoRun]) -> dict[str, Floats]:
    """Per strategy ``(s, r)``, one row per seed, in the order of the seeds."""
    names = list(dict.fromkeys(run.strategy for run in runs))
    return {
        name: np.stack([run.accuracies for run in runs if run.strategy == name]) for name in names
    }


@dataclass(frozen=True)
class DemoComparison:
    """One strategy against the baseline.

    Attributes:
        strategy: its name.
        needed: labels at which its mean curve first reaches the baseline's last accuracy.
        final: mean accuracy with all labels.
        gain: difference of that to the baseline's.
    """

    strategy: str
    needed: Estimate
    final: Estimate
    gain: Estimate

    def verdict(self, limit: int) -> str:
        """What the interval of the labels needed shows; ``limit`` is the number of all labels."""
        if self.strategy == BASELINE:
            return ""
        if self.needed.high < limit:
            return "fewer labels"
        return "more labels" if self.needed.low > limit else "unclear"


def compare_strategies(
    labels: Arrays, accuracies: Mapping[str, Floats], baseline: str = BASELINE
) -> list[DemoComparison]:
    """Compare all strategies with the baseline; the bootstrap draws seeds for all together.

    Args:
        labels: ``(r,)``, number of labels at each measurement.
        accuracies: per strategy ``(s, r)``, one row per seed, in the same order of seeds.
        baseline: the strategy whose last accuracy is the target.
    """
    seeds = len(accuracies[baseline])
    if any(curves.shape != (seeds, len(labels)) for curves in accuracies.values()):
        raise BadInput("every strategy needs one curve per seed, as long as labels")
    reached = accuracies[baseline][:, -1]

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
