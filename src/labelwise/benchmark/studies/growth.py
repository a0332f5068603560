"""Growth studies: total Lewis weight of a batch that serves one model, two models, and so on.

`study_shared_items` measures how many items of high leverage the models share.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from labelwise.arrays import Array, Floats, to_numpy
from labelwise.benchmark.devices import Device
from labelwise.benchmark.models import train_on_first_labels
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.splits import split_dataset
from labelwise.benchmark.studies.encoded import SUFFIX, combine_encoders, load_encoded_dataset
from labelwise.kernels.linear.leverage import leverage_scores
from labelwise.kernels.linear.lewis import lewis_weights

ORDER = 19
"""Random stream of the order of encoders."""


def study_growth(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[tuple[int, float]]:
    """Growth of the sum of the largest weights with the number of models.

    The option ``p`` is that of the Lewis weights; ``curve="ranks"`` gives the sum of the models'
    ranks instead, which is an upper bound.
    """
    models = _iterate_network_features(protocol, seed, device)
    p = float(entrant.options.get("p", 2))
    yield from _sum_growing_weights(entrant, (_compute_lewis_weights(own, p) for own in models))


def study_encoder_growth(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[tuple[int, float]]:
    """The same for frozen encoders, in an order drawn by the seed."""
    settings = protocol.settings
    key = protocol.dataset.removesuffix(SUFFIX), tuple(settings["encoders"])
    order = np.random.default_rng([seed, ORDER]).permutation(
        len(load_encoded_dataset(protocol).ends)
    )
    rest = settings.get("components"), float(entrant.options.get("p", 2))
    weights = (_compute_encoder_weights(*key, int(place), *rest) for place in order)
    yield from _sum_growing_weights(entrant, weights)


def study_shared_items(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[tuple[int, float]]:
    r"""Items of high leverage that a batch for all models shares with each of them.

    One value per percentage ``t`` in the protocol's setting ``percents``:

    .. math:: \kappa(t) = \frac1k \sum_j |I_j^t \cap I^t| / |I^t|,

    where :math:`I_j^t` are the ``t`` percent of items with the highest leverage by model ``j``, and
    :math:`I^t` those with the highest maximum over the ``k`` models.
    """
    features = _iterate_network_features(protocol, seed, device)
    p = float(entrant.options.get("p", 2))
    each = np.stack([_compute_lewis_weights(own, p) for own in features])
    for percent in protocol.settings["percents"]:
        yield percent, measure_shared_leverage(each, percent)


def measure_shared_leverage(weights: Floats, percent: float) -> float:
    """Mean share of the top items of each model, ``(k, n)``, among those of their maximum.

    >>> measure_shared_leverage(np.array([[4.0, 3, 2, 1], [1, 2, 3, 9]]), 50)
    0.5
    """
    count = round(weights.shape[1] * percent / 100)
    tops = np.argsort(-weights, axis=1, kind="stable")[:, :count]
    common = np.argsort(-weights.max(axis=0), kind="stable")[:count]
    return float(np.isin(tops, common).mean())


def _sum_growing_weights(
    entrant: Entrant, weights: Iterable[Floats]
) -> Iterator[tuple[int, float]]:
    """After every model the sum of the items' largest weights, or of the ranks."""
    largest: Floats | None = None
    ranks = 0.0
    for count, own in enumerate(weights, start=1):
        largest = own if largest is None else np.maximum(largest, own)
        ranks += float(own.sum())
        bounded = min(ranks, float(len(own)))
        yield count, bounded if entrant.options.get("curve") == "ranks" else float(largest.sum())


def _compute_lewis_weights(features: Array, p: float) -> Floats:
    """The Lewis weights of all items by one model, ``(n,)``."""
    weights = leverage_scores(features) if p == 2 else lewis_weights(features, p)
    return np.asarray(to_numpy(weights), dtype=np.float64)


@lru_cache(maxsize=64)
def _compute_encoder_weights(
    dataset: str, encoders: tuple[str, ...], number: int, components: int | None, p: float
) -> Floats:
    """The weights of all items by one encoder; seeds differ only in the order of the encoders."""
    data = combine_encoders(dataset, encoders, components)
    features = data.inputs[:, data.find_columns(number)].astype(np.float64)
    return _compute_lewis_weights(features, p)


def _iterate_network_features(protocol: Protocol, seed: int, device: Device) -> Iterator[Any]:
    """The pool's features by each network, trained on the same first labels."""
    split = split_dataset(protocol, seed)
    targets = np.eye(split.outputs, dtype=np.float32)[split.targets]
    models = train_on_first_labels(protocol, split, device, seed, targets)
    for learner in models.learners.values():
        yield learner.represent(models.pool, ["features"])["features"]
