"""How much faster the networks of many runs train as one batched model than one after the other.

Run: PYTHONPATH=src python benchmarks/batched_training.py --device cuda --out batched.jsonl

One JSON object per line, for one number of networks. Every network has labels of its own (random
images of 28 x 28, 10 classes), as the runs of a round have. Both ways take turns in one process
after a warm-up, so that their ratio holds on a busy machine too; time is the median of the repeats.
``ratio`` is networks trained per second together over one by one; the largest difference between
the parameters of both says that they are the same networks.
"""

import argparse
import json
import statistics
from functools import partial
from pathlib import Path

import numpy as np
import torch

from labelwise.benchmark.batched import BatchableLearner, TrainingTask, fit_batched_tasks
from labelwise.benchmark.devices import (
    DeviceClock,
    describe_device,
    find_benchmark_device,
    move_items_to_device,
)
from labelwise.benchmark.networks import make_network
from labelwise.learners.inputs import ItemSubset

POOL, SIDE, CLASSES, SEED = 2000, 28, 10, 0


def tasks(given: argparse.Namespace, count: int, pool, targets, device) -> list[TrainingTask]:
    """Networks with labels of their own, not yet trained."""
    made = []
    for number in range(count):
        chosen = np.random.default_rng([SEED, number]).permutation(POOL)[: given.labels]
        learner = BatchableLearner(
            partial(make_network, given.network, (1, SIDE, SIDE), CLASSES),
            kind=given.network,
            optimizer="sgd",
            lr=0.01,
            weight_decay=5e-4,
            epochs=given.epochs,
            batch_size=32,
            device=device,
        )
        made.append(TrainingTask(learner, ItemSubset(pool, chosen), targets[chosen], None, number))
    return made


def difference(one: list[TrainingTask], other: list[TrainingTask]) -> float:
    """The largest difference between parameters of networks that should be the same."""
    pairs = [
        (task.learner.module.state_dict(), twin.learner.module.state_dict())
        for task, twin in zip(one, other, strict=True)
    ]
    return max(
        float((state[name] - twin[name]).abs().max()) for state, twin in pairs for name in state
    )


def measure(given: argparse.Namespace, count: int, device) -> dict:
    """Both ways in turns; one by one only as many networks as it takes to know their speed."""
    rng = np.random.default_rng(SEED)
    pool = move_items_to_device(rng.normal(size=(POOL, 1, SIDE, SIDE)).astype(np.float32), device)
    targets = rng.integers(CLASSES, size=POOL)
    together, alone = [], []
    few = min(count, given.alone)
    gap = 0.0
    for repeat in range(given.repeats + 1):
        batch, single = (tasks(given, many, pool, targets, device) for many in (count, few))
        clock = DeviceClock(device)
        fit_batched_tasks(batch, on_cpu=True, limit=count)
        first = clock.lap()
        for task in single:
            task.fit()
        second = clock.lap()
        gap = max(gap, difference(batch[:few], single))
        if repeat:  # the first is the warm-up
            together.append(first / count)
            alone.append(second / few)
    return {
        "network": given.network,
        "networks": count,
        "labels": given.labels,
        "epochs": given.epochs,
        "milliseconds_together": 1000 * statistics.median(together),
        "milliseconds_one_by_one": 1000 * statistics.median(alone),
        "ratio": statistics.median(alone) / statistics.median(together),
        "largest_difference": gap,
        "device": describe_device(device),
        "torch": torch.__version__,
    }


def main() -> None:
    """Measure all numbers of networks, print a line each, and append them to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--network", default="lenet5")
    parser.add_argument("--networks", type=int, nargs="+", default=[8, 16, 40, 64])
    parser.add_argument("--labels", type=int, default=320)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--alone", type=int, default=4, help="networks to train one by one")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device = find_benchmark_device(given.device)
    for count in given.networks:
        line = json.dumps(measure(given, count, device))
        print(line, flush=True)
        if given.out is not None:
            with given.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
