"""Study of frozen features: labels bought for a head on the features of one encoder.

The settings ``encoder`` and ``counts`` name an encoder of `labelwise.encode` and the numbers of
encoded training and test items; without an encoder, the items are the standardized columns of a
table. The run itself is in `labelwise.benchmark.frozen_run`.

Items are encoded once into ``frozen/DATASET-ENCODER-TRAIN-TEST.npz`` of the cache, with their
targets, so that a run needs neither the data set nor the encoder. Features are stored as whole
numbers from 0 to 255 per column: the rounding is at most 0.2 % of the range of a column, and
features are the same on every machine that has the file.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labelwise.arrays import Floats, Ids
from labelwise.benchmark.datasets import load
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.datasets.store import write_npz_file
from labelwise.benchmark.devices import Device
from labelwise.benchmark.encoders import encode_dataset_items
from labelwise.benchmark.frozen_run import run_frozen_experiment
from labelwise.benchmark.labelling_run import LabelledPool
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.splits import load_standardized_dataset
from labelwise.encoders.registry import BUILT_IN
from labelwise.errors import BadInput
from labelwise.media.packages import cache_folder

LEVELS = 255
"""Largest stored number."""


def study_frozen(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[RoundResult]:
    """Rounds of buying labels for a head on frozen features; heads do not use a device."""
    return run_frozen_experiment(protocol, entrant, seed, load_frozen_items(protocol))


def load_frozen_items(protocol: Protocol) -> LabelledPool:
    """All items of an experiment with their features."""
    settings = protocol.settings
    return _load_cached_items(protocol.dataset, settings["encoder"], *settings["counts"])


@lru_cache(maxsize=2)
def _load_cached_items(dataset: str, encoder: str, *counts: int) -> LabelledPool:
    if encoder:
        return read_frozen_features(dataset, encoder, counts)
    data = load_standardized_dataset(dataset)
    kind = np.float64 if data.classes is None else np.int64
    return LabelledPool(
        np.arange(data.n),
        np.asarray(data.inputs, np.float32).reshape(data.n, -1),
        data.targets.astype(kind).reshape(data.n),
        np.asarray(data.test_inputs, np.float32).reshape(len(data.test_inputs), -1),
        data.test_targets.astype(kind).reshape(len(data.test_inputs)),
        data.classes,
    )


class StoredFeatures(NamedTuple):
    """Features ``(n, d)`` and ``(t, d)`` as uint8 levels, from ``low`` in steps ``(d,)``."""

    levels: Arrays
    test_levels: Arrays
    low: Floats
    step: Floats


def round_frozen_features(features: Arrays, test_features: Arrays) -> StoredFeatures:
    """Round both to 256 levels between the extremes of every column.

    >>> near, far = np.array([[0.0, 7.0], [51.0, 7.0]]), np.array([[255.0, 7.0]])
    >>> stored = round_frozen_features(near, far)
    >>> stored.levels.tolist(), stored.test_levels.tolist()
    ([[0, 0], [51, 0]], [[255, 0]])
    """
    low = np.minimum(features.min(axis=0), test_features.min(axis=0))
    high = np.maximum(features.max(axis=0), test_features.max(axis=0))
    step = np.where(high > low, (high - low) / LEVELS, 1.0)
    near, far = (
        np.round((part - low) / step).astype(np.uint8) for part in (features, test_features)
    )
    return StoredFeatures(near, far, low.astype(np.float64), step.astype(np.float64))


def read_frozen_features(dataset: str, encoder: str, counts: tuple[int, ...]) -> LabelledPool:
    """Features of a data set from the cache, encoded first if they are not there."""
    path = find_frozen_file(dataset, encoder, counts)
    if not path.is_file():
        encode_frozen_dataset(dataset, encoder, counts)
    with np.load(path, allow_pickle=False) as held:
        about = json.loads(str(held["about"]))
        if about["encoder_sha256"] != BUILT_IN[encoder].sha256:
            raise BadInput(f"{path} was made by another {encoder}; remove it to encode again")
        near, far = (
            (held[name] * held["step"] + held["low"]).astype(np.float32)
            for name in ("levels", "test_levels")
        )
        targets, test_targets = (
            held[name].astype(np.int64) for name in ("targets", "test_targets")
        )
        return LabelledPool(held["rows"], near, targets, far, test_targets, about["classes"])


def find_frozen_file(dataset: str, encoder: str, counts: tuple[int, ...]) -> Path:
    """The file of encoded items in the cache, whether it exists or not."""
    name = "-".join([dataset, encoder, *map(str, counts)])
    return cache_folder() / "frozen" / f"{name}.npz"


def encode_frozen_dataset(dataset: str, encoder: str, counts: tuple[int, ...]) -> None:
    """Encode some items of a data set, chosen by a hash, and store them."""
    data, encoded = (
        load(dataset),
        encode_dataset_items(encoder, dataset, counts=(counts[0], counts[1])),
    )
    train = encoded.rows, encoded.features, data.targets[encoded.rows]
    test = encoded.test_features, data.test_targets[encoded.test_rows]
    store_frozen_features(dataset, encoder, counts, data.classes, train, test)


def store_frozen_features(
    dataset: str,
    encoder: str,
    counts: tuple[int, ...],
    classes: int | None,
    train: tuple[Ids, Arrays, Arrays],
    test: tuple[Arrays, Arrays],
) -> None:
    """Store rows, features and targets of the training items, and the latter of the test items."""
    (rows, features, targets), (test_features, test_targets) = train, test
    about = {
        "dataset": dataset,
        "classes": classes,
        "encoder": encoder,
        "encoder_sha256": BUILT_IN[encoder].sha256,
        "licence": "the features follow the terms of the data set",
    }
    write_npz_file(
        find_frozen_file(dataset, encoder, counts),
        {
            "about": np.array(json.dumps(about)),
            "rows": rows,
            "targets": targets.astype(np.int32),
            "test_targets": test_targets.astype(np.int32),
            **round_frozen_features(features, test_features)._asdict(),
        },
        compress=True,
    )
