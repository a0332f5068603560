"""Experiments that are no rounds of buying labels, with lines of the same form.

==============  =========================  =======================  ==============================
study           ``labels`` of a line is    ``metric``               what
==============  =========================  =======================  ==============================
first_query     labels at the start        seconds                  how long the first batch takes
growth          the number of models       lewis_total              T, or the sum of the ranks
encoder_growth  the number of encoders     lewis_total              the same, of frozen encoders
encoder_heads   labels                     accuracy                 linear layers on encoders
ratio           the epochs of training     approximation_ratio      R of random batches
recovery        labels                     excess_error             least squares on few labels
network         labels                     excess_error             a network on few labels
==============  =========================  =======================  ==============================
"""

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Floats, to_numpy
from labelwise.benchmark import devices
from labelwise.benchmark.batched import Trainee, fit_together
from labelwise.benchmark.devices import Clock, Device, on_device
from labelwise.benchmark.encoders.studies import encoder_growth, encoder_heads
from labelwise.benchmark.models import make_models
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import Round
from labelwise.benchmark.rounds import key_fields
from labelwise.benchmark.scenes import prepare
from labelwise.benchmark.study_network import network_values
from labelwise.benchmark.study_query import query
from labelwise.benchmark.study_recovery import recovery_values
from labelwise.kernels import leverage_scores, lewis_weights
from labelwise.learners.gradients import summed_gradient
from labelwise.learners.network import evaluating

BATCH = 256
"""Items of a batch that gradients are summed over."""


@dataclass(frozen=True)
class Study:
    """A runner: ``lines(protocol, entrant, seed, device)``, and how many lines it gives."""

    lines: Callable[[Protocol, Entrant, int, Device], Iterator[Round]]
    rounds: Callable[[Protocol], int]


def first_query(protocol: Protocol, entrant: Entrant, seed: int, device: Device) -> Iterator[Round]:
    """Seconds to represent the pool and pick the first batch; the training is not counted."""
    picked, seconds = query(protocol, entrant, seed, device)
    value = seconds["represent"] + seconds["select"]
    line = _line(protocol, entrant, seed, device, 0, protocol.start, value, 0.0)
    yield replace(
        line,
        seconds={name: round(passed, 6) for name, passed in seconds.items()},
        picks=tuple(picked.ids.tolist()),
    )


def growth(protocol: Protocol, entrant: Entrant, seed: int, device: Device) -> Iterator[Round]:
    """How the sum of the largest weights grows with the models that a batch must serve.

    The option ``p`` is that of the Lewis weights; with ``curve="ranks"`` it is the sum of the
    models' ranks instead, which bounds it.
    """
    clock = Clock(device)
    p = float(entrant.options.get("p", 2.0))
    largest: Floats | None = None
    ranks = 0.0
    for number, features in enumerate(_features_by_model(protocol, seed, device)):
        weights = leverage_scores(features) if p == 2 else lewis_weights(features, p)
        own = np.asarray(to_numpy(weights), dtype=np.float64)
        largest = own if largest is None else np.maximum(largest, own)
        ranks += float(own.sum())
        value = min(ranks, len(own)) if entrant.options.get("curve") == "ranks" else largest.sum()
        yield _line(protocol, entrant, seed, device, number, number + 1, float(value), clock.lap())


def _features_by_model(protocol: Protocol, seed: int, device: Device) -> Iterator[Any]:
    """The pool's features by network after network, each trained on the same first labels."""
    scene = prepare(protocol, seed)
    models = make_models(protocol, Entrant("random"), scene, device)
    places = scene.positions(scene.first)
    targets = np.eye(scene.outputs, dtype=np.float32)[scene.targets[places]]
    for task in models.tasks(places, targets, None, seed):
        task.fit()
        yield task.learner.represent(models.pool, ["features"])["features"]


def ratio(protocol: Protocol, entrant: Entrant, seed: int, device: Device) -> Iterator[Round]:
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
        yield _line(protocol, entrant, seed, device, number, epochs, value, clock.lap())


def _ratio(learner: Trainee, inputs: NDArray[Any], device: Device) -> float:
    """``R`` of a batch, over the whole network, at the predicted labels."""
    names = ["gradient_norms", "gradient_products", "logits"]
    rows = {name: to_numpy(value) for name, value in learner.represent(inputs, names).items()}
    items, labels = on_device(inputs, device), on_device(rows["logits"].argmax(axis=1), device)
    parts = np.array_split(np.arange(len(inputs)), -(-len(inputs) // BATCH))
    with evaluating(learner.module):
        together = summed_gradient(
            learner.module,
            [(items.batch(part), labels.batch(part)) for part in parts],
            learner.settings.loss,
        )
    norm = sum(float(value.double().square().sum()) for value in together.values())
    cross = 2 * float(rows["gradient_products"].astype(np.float64).sum())
    apart = float(rows["gradient_norms"].astype(np.float64).sum())
    return (apart + cross) / (norm + cross) if norm + cross > 0 else float("nan")


def recovery(protocol: Protocol, entrant: Entrant, seed: int, device: Device) -> Iterator[Round]:
    """The error of weighted least squares on few labels beyond that on all."""
    clock = Clock(device)
    for number, (budget, value) in enumerate(recovery_values(protocol, entrant, seed, device)):
        yield _line(protocol, entrant, seed, device, number, budget, value, clock.lap())


def network(protocol: Protocol, entrant: Entrant, seed: int, device: Device) -> Iterator[Round]:
    """The error of a network trained on few labels beyond that of one trained on all."""
    clock = Clock(device)
    for number, (budget, value) in enumerate(network_values(protocol, entrant, seed)):
        yield _line(protocol, entrant, seed, device, number, budget, value, clock.lap())


def _line(
    protocol: Protocol,
    entrant: Entrant,
    seed: int,
    device: Device,
    number: int,
    labels: int,
    value: float,
    seconds: float,
) -> Round:
    return Round(
        **key_fields(protocol, entrant, seed),
        round=number,
        labels=labels,
        metric=protocol.metric,
        value=value,
        values=(value,),
        higher_is_better=protocol.higher_is_better,
        reduced=protocol.reduced,
        seconds={"train": 0.0, "represent": 0.0, "select": round(seconds, 6)},
        peak_megabytes=devices.peak_megabytes(device),
        device=devices.described(device),
        versions=devices.versions(),
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


STUDIES = {
    "first_query": Study(first_query, lambda protocol: 1),
    "growth": Study(growth, lambda protocol: len(protocol.networks)),
    "encoder_growth": Study(encoder_growth, lambda protocol: len(protocol.settings["encoders"])),
    "encoder_heads": Study(encoder_heads, lambda protocol: protocol.rounds + 1),
    "ratio": Study(ratio, lambda protocol: len(protocol.settings["epochs"])),
    "recovery": Study(recovery, lambda protocol: len(protocol.settings["budgets"])),
    "network": Study(network, lambda protocol: len(protocol.settings["budgets"])),
}
"""All studies by name."""
