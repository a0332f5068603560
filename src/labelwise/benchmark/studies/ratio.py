"""Study of the approximation ratio of random batches while a network trains."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from labelwise.arrays import to_numpy
from labelwise.benchmark.batched import BatchableLearner
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.devices import Device, move_items_to_device
from labelwise.benchmark.models import train_on_first_labels
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.splits import split_dataset
from labelwise.learners.gradients import summed_gradient
from labelwise.learners.network import evaluation_mode

BATCH = 256
"""Batch size of the summed gradient."""


def study_ratio(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[tuple[int, float]]:
    """The approximation ratio of random batches, after more and more epochs of training.

    The option ``b`` is the size of the batches. Every line is a separate training.
    """
    split = split_dataset(protocol, seed)
    left = np.setdiff1d(np.arange(len(split.ids)), split.find_positions(split.first))
    rng = np.random.default_rng([seed, int(entrant.options["b"])])
    draws = [
        rng.choice(left, size=int(entrant.options["b"]), replace=False)
        for _ in range(protocol.settings["draws"])
    ]
    for epochs in protocol.settings["epochs"]:
        trained = replace(protocol, learner={**protocol.learner, "epochs": epochs})
        (learner,) = train_on_first_labels(trained, split, device, seed).learners.values()
        values = [_measure_batch_ratio(learner, split.inputs[draw], device) for draw in draws]
        yield epochs, float(np.mean(values))


def _measure_batch_ratio(learner: BatchableLearner, inputs: Arrays, device: Device) -> float:
    """``R`` of a batch, over the whole network, at the predicted labels."""
    names = ["gradient_norms", "gradient_products", "logits"]
    rows = {name: to_numpy(value) for name, value in learner.represent(inputs, names).items()}
    items, labels = (
        move_items_to_device(inputs, device),
        move_items_to_device(rows["logits"].argmax(axis=1), device),
    )
    parts = np.array_split(np.arange(len(inputs)), -(-len(inputs) // BATCH))
    with evaluation_mode(learner.module):
        total = summed_gradient(
            learner.module,
            [(items.batch(part), labels.batch(part)) for part in parts],
            learner.settings.loss,
        )
    norm = sum(float(value.double().square().sum()) for value in total.values())
    cross = 2 * float(rows["gradient_products"].astype(np.float64).sum())
    apart = float(rows["gradient_norms"].astype(np.float64).sum())
    return (apart + cross) / (norm + cross) if norm + cross > 0 else float("nan")
