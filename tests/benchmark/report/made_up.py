"""Made-up learning curves with known answers, and what the report finds in them."""

from dataclasses import replace

import numpy as np

from labelwise.benchmark.report.experiment import group_experiments
from labelwise.benchmark.report.findings import analyse_experiment
from labelwise.benchmark.results import RoundResult

LABELS = (40, 80, 160, 320)
HEIGHTS = np.array([0.5, 0.6, 0.7, 0.8])


def make_rounds(gains, seeds=5, *, noise=0.01, name="sparse-table2-mnist", **changes):
    """Curves ``HEIGHTS`` plus a gain after the first round, plus noise of the seed and the run."""
    generator = np.random.default_rng(0)
    shared = generator.normal(0, noise, size=seeds)
    rounds = []
    for strategy, gain in gains.items():
        own = generator.normal(0, noise / 3, size=seeds)
        for seed in range(seeds):
            for number, labels in enumerate(LABELS):
                value = HEIGHTS[number] + shared[seed] + (gain + own[seed]) * (number > 0)
                entry = RoundResult(
                    name,
                    "small",
                    "mnist",
                    "lenet5",
                    strategy,
                    seed,
                    number,
                    labels,
                    "accuracy",
                    float(value),
                    seconds={"train": 2.0, "represent": 0.25, "select": 0.5 + number},
                    imbalance=1.0 + number,
                    effective_size=1.5 if strategy == "lewis" else None,
                    picks=(1, 2) if number < 3 else (),
                    reduced="60 epochs",
                    versions={"numpy": "2.4"},
                )
                rounds.append(replace(entry, **changes))
    return rounds


def find(rounds, baselines=("random", "badge")):
    (experiment,) = group_experiments(rounds)
    return analyse_experiment(experiment, baselines)


def as_errors(rounds):
    """The same curves as an error that falls."""
    return [
        replace(entry, metric="mse", value=2 - entry.value, higher_is_better=False)
        for entry in rounds
    ]


def drop(rounds, test):
    """The rounds without those that the test is true of."""
    return [entry for entry in rounds if not test(entry)]
