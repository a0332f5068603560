"""Ratio: the approximation ratio of random batches while a network trains."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import to_numpy
from labelwise.benchmark.batched import Trainee, fit_together
from labelwise.benchmark.devices import Clock, Device, on_device
from labelwise.benchmark.models import make_models
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.scenes import prepare
from labelwise.benchmark.studies.lines import line
from labelwise.learners.gradients import summed_gradient
from labelwise.learners.network import evaluation_mode

BATCH = 256
"""Items of a batch that gradients are summed over."""


def ratio(protocol: Protocol, entrant: Entrant, seed: int, device: Device) -> Iterator[RoundResult]:
    """The approximation ratio of random batches, after more and more epochs of training.

    The option ``b`` is the size of the batches. A network that is trained for more epochs passes
    through the states of those before, so every line is a training of its own.
    """
    clock = Clock(device)
    scene = prepare(protocol, seed)
    places = scene.positions(scene.first)
    left = np.setdiff1d(np.arange(len(scene.ids)), places)
    rng = np.random.default_rng([seed, int(entrant.options["b"])])
    draws = [
        rng.choice(left, size=int(entrant.options["b"]), replace=False)
        for _ in range(protocol.settings["draws"])
    ]
    for number, epochs in enumerate(protocol.settings["epochs"]):
        trained = replace(protocol, learner={**protocol.learner, "epochs": epochs})
        models = make_models(trained, Entrant("random"), scene, device)
        tasks = models.tasks(places, scene.targets[places], None, seed)
        fit_together(tasks)
        values = [_ratio(tasks[0].learner, scene.inputs[draw], device) for draw in draws]
        value = float(np.mean(values))
        yield line(protocol, entrant, seed, device, number, epochs, value, clock.lap())


def _ratio(learner: Trainee, inputs: NDArray[Any], device: Device) -> float:
    """``R`` of a batch, over the whole network, at the predicted labels."""
    names = ["gradient_norms", "gradient_products", "logits"]
    rows = {name: to_numpy(value) for name, value in learner.represent(inputs, names).items()}
    items, labels = on_device(inputs, device), on_device(rows["logits"].argmax(axis=1), device)
    parts = np.array_split(np.arange(len(inputs)), -(-len(inputs) // BATCH))
    with evaluation_mode(learner.module):
        together = summed_gradient(
            learner.module,
            [(items.batch(part), labels.batch(part)) for part in parts],
            learner.settings.loss,
        )
    norm = sum(float(value.double().square().sum()) for value in together.values())
    cross = 2 * float(rows["gradient_products"].astype(np.float64).sum())
    apart = float(rows["gradient_norms"].astype(np.float64).sum())
    return (apart + cross) / (norm + cross) if norm + cross > 0 else float("nan")
