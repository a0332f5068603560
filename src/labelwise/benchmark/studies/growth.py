"""Growth: what a batch must weigh to serve one model, two models, and so on."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from labelwise.arrays import Array, Floats, to_numpy
from labelwise.benchmark.devices import Clock, Device
from labelwise.benchmark.models import make_models
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.scenes import prepare
from labelwise.benchmark.studies.lines import line
from labelwise.kernels import leverage_scores, lewis_weights


def growth(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[RoundResult]:
    """How the sum of the largest weights grows with the models that a batch must serve.

    The option ``p`` is that of the Lewis weights; with ``curve="ranks"`` it is the sum of the
    models' ranks instead, which bounds it.
    """
    clock = Clock(device)
    models = _features_by_model(protocol, seed, device)
    weights = (model_weights(features, power(entrant)) for features in models)
    for number, value in enumerate(totals(weights, entrant)):
        yield line(protocol, entrant, seed, device, number, number + 1, value, clock.lap())


def power(entrant: Entrant) -> float:
    """The ``p`` of the Lewis weights."""
    return float(entrant.options.get("p", 2.0))


def model_weights(features: Array, p: float) -> Floats:
    """The Lewis weights of all items by one model, ``(n,)``."""
    weights = leverage_scores(features) if p == 2 else lewis_weights(features, p)
    return np.asarray(to_numpy(weights), dtype=np.float64)


def totals(weights: Iterable[Floats], entrant: Entrant) -> Iterator[float]:
    """The sum of the items' largest weights, or of the ranks, after every model's ``(n,)``."""
    largest: Floats | None = None
    ranks = 0.0
    for own in weights:
        largest = own if largest is None else np.maximum(largest, own)
        ranks += float(own.sum())
        bounded = min(ranks, float(len(own)))
        yield bounded if entrant.options.get("curve") == "ranks" else float(largest.sum())


def _features_by_model(protocol: Protocol, seed: int, device: Device) -> Iterator[Any]:
    """The pool's features by network after network, each trained on the same first labels."""
    scene = prepare(protocol, seed)
    models = make_models(protocol, Entrant("random"), scene, device)
    places = scene.positions(scene.first)
    targets = np.eye(scene.outputs, dtype=np.float32)[scene.targets[places]]
    for task in models.tasks(places, targets, None, seed):
        task.fit()
        yield task.learner.represent(models.pool, ["features"])["features"]
