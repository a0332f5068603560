"""Growth studies: total Lewis weight of a batch that serves one model, two models, and so on.

`study_shared_items` measures how many items of high leverage the models share.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from labelwise.arrays import Array, Floats, to_numpy
from labelwise.benchmark.batched import fit_together
from labelwise.benchmark.devices import Device, DeviceClock, make_line
from labelwise.benchmark.models import make_models
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.splits import split_dataset
from labelwise.benchmark.studies.encoded import SUFFIX, combine_encoders, load_encoded
from labelwise.kernels.linear.leverage import leverage_scores
from labelwise.kernels.linear.lewis import lewis_weights
from labelwise.rounds.default_strategies import BASELINE

ORDER = 19
"""Random stream of the order of encoders."""


def study_growth(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[RoundResult]:
    """Growth of the sum of the largest weights with the number of models.

    The option ``p`` is that of the Lewis weights; ``curve="ranks"`` gives the sum of the models'
    ranks instead, which is an upper bound.
    """
    models = _iterate_features(protocol, seed, device)
    weights = (_compute_weights(features, _get_power(entrant)) for features in models)
    yield from _make_lines(protocol, entrant, seed, device, weights)


def study_encoder_growth(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[RoundResult]:
    """The same for frozen encoders, in an order drawn by the seed."""
    settings = protocol.settings
    key = protocol.dataset.removesuffix(SUFFIX), tuple(settings["encoders"])
    order = np.random.default_rng([seed, ORDER]).permutation(len(load_encoded(protocol).ends))
    weights = (
        _weigh_encoder(*key, settings.get("components"), int(place), _get_power(entrant))
        for place in order
    )
    yield from _make_lines(protocol, entrant, seed, device, weights)


def study_shared_items(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[RoundResult]:
    r"""Items of high leverage that a batch for all models shares with each of them.

    One line per percentage ``t`` in the protocol's setting ``percents``:

    .. math:: \kappa(t) = \frac1k \sum_j |I_j^t \cap I^t| / |I^t|,

    where :math:`I_j^t` are the ``t`` percent of items with the highest leverage by model ``j``, and
    :math:`I^t` those with the highest maximum over the ``k`` models.
    """
    clock = DeviceClock(device)
    features = _iterate_features(protocol, seed, device)
    each = np.stack([_compute_weights(own, _get_power(entrant)) for own in features])
    for number, percent in enumerate(protocol.settings["percents"]):
        share = measure_sharing(each, percent)
        yield make_line(protocol, entrant, seed, device, number, percent, share, clock.lap())


def measure_sharing(weights: Floats, percent: float) -> float:
    """Mean share of the top items of each model, ``(k, n)``, among those of their maximum.

    >>> measure_sharing(np.array([[4.0, 3, 2, 1], [1, 2, 3, 9]]), 50)
    0.5
    """
    count = round(weights.shape[1] * percent / 100)
    tops = np.argsort(-weights, axis=1, kind="stable")[:, :count]
    common = np.argsort(-weights.max(axis=0), kind="stable")[:count]
    return float(np.isin(tops, common).mean())


def _make_lines(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device, weights: Iterable[Floats]
) -> Iterator[RoundResult]:
    """A line after every model: the sum of the items' largest weights, or of the ranks."""
    clock = DeviceClock(device)
    largest: Floats | None = None
    ranks = 0.0
    for number, own in enumerate(weights):
        largest = own if largest is None else np.maximum(largest, own)
        ranks += float(own.sum())
        bounded = min(ranks, float(len(own)))
        value = bounded if entrant.options.get("curve") == "ranks" else float(largest.sum())
        yield make_line(protocol, entrant, seed, device, number, number + 1, value, clock.lap())


def _get_power(entrant: Entrant) -> float:
    """The ``p`` of the Lewis weights."""
    return float(entrant.options.get("p", 2.0))


def _compute_weights(features: Array, p: float) -> Floats:
    """The Lewis weights of all items by one model, ``(n,)``."""
    weights = leverage_scores(features) if p == 2 else lewis_weights(features, p)
    return np.asarray(to_numpy(weights), dtype=np.float64)


@lru_cache(maxsize=64)
def _weigh_encoder(
    dataset: str, encoders: tuple[str, ...], components: int | None, number: int, p: float
) -> Floats:
    """The weights of all items by one encoder; seeds differ only in the order of the encoders."""
    data = combine_encoders(dataset, encoders, components)
    features = data.inputs[:, data.find_columns(number)].astype(np.float64)
    return _compute_weights(features, p)


def _iterate_features(protocol: Protocol, seed: int, device: Device) -> Iterator[Any]:
    """The pool's features by each network, trained on the same first labels."""
    split = split_dataset(protocol, seed)
    models = make_models(protocol, Entrant(BASELINE), split, device)
    places = split.find_positions(split.first)
    targets = np.eye(split.outputs, dtype=np.float32)[split.targets[places]]
    tasks = models.make_tasks(places, targets, None, seed)
    fit_together(tasks)
    for task in tasks:
        yield task.learner.represent(models.pool, ["features"])["features"]
