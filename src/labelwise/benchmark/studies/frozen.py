"""Study of frozen features: labels bought for a head on the features of one encoder.

The settings ``encoder`` and ``counts`` name the encoder and the numbers of encoded training and
test items, which are encoded once and cached; without an encoder, the items are the standardized
columns of a table. The run itself is in `labelwise.benchmark.frozen_run`.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from labelwise.benchmark.datasets import load
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.devices import Device
from labelwise.benchmark.encoders import encode
from labelwise.benchmark.frozen_run import play_frozen
from labelwise.benchmark.labelling_run import LabelledPool
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.splits import load_standardized


def study_frozen(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[RoundResult]:
    """Rounds of buying labels for a head on frozen features; heads do not use a device."""
    return play_frozen(protocol, entrant, seed, load_items(protocol))


def load_items(protocol: Protocol) -> LabelledPool:
    """All items of an experiment with their features."""
    settings = protocol.settings
    return _load_features(protocol.dataset, settings["encoder"], *settings["counts"])


@lru_cache(maxsize=1)
def _load_features(dataset: str, encoder: str, *counts: int) -> LabelledPool:
    if not encoder:
        data = load_standardized(dataset)
        return _join_items(
            np.arange(data.n),
            (data.inputs, data.targets, data.test_inputs, data.test_targets),
            data.classes,
        )
    data = load(dataset)
    encoded = encode(encoder, dataset, counts=(counts[0], counts[1]))
    targets, test_targets = data.targets[encoded.rows], data.test_targets[encoded.test_rows]
    arrays = encoded.features, targets, encoded.test_features, test_targets
    return _join_items(encoded.rows, arrays, data.classes)


def _join_items(
    ids: Arrays, arrays: tuple[Arrays, Arrays, Arrays, Arrays], classes: int | None
) -> LabelledPool:
    inputs, targets, test_inputs, test_targets = arrays
    kind = np.float64 if classes is None else np.int64
    return LabelledPool(
        ids,
        np.asarray(inputs, np.float32).reshape(len(inputs), -1),
        targets.astype(kind).reshape(len(inputs)),
        np.asarray(test_inputs, np.float32).reshape(len(test_inputs), -1),
        test_targets.astype(kind).reshape(len(test_inputs)),
        classes,
    )
