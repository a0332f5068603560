"""Linear models on frozen encoders, as the several models of one selection.

The items of such an experiment are the concatenated features of all its encoders, each encoder's
centred and scaled to mean square 1 (one scale for all of its columns, so that directions of small
spread stay small). A model is a linear layer on the columns of its encoder.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from labelwise.arrays import Ids
from labelwise.benchmark.batched import BatchableLearner
from labelwise.benchmark.benchmark_run import BenchmarkRun, play_benchmark_runs
from labelwise.benchmark.datasets import load
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.devices import Device
from labelwise.benchmark.encoders import encode_dataset_items
from labelwise.benchmark.frozen_run import SPLIT
from labelwise.benchmark.models import ModelSet, make_learner_options, make_network_members
from labelwise.benchmark.networks import make_column_head
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.splits import DataSplit, SplitCache
from labelwise.errors import BadInput
from labelwise.learners.inputs import Items

SUFFIX = "_encoded"
"""Suffix of the data set's name where the items are features of encoders."""


class EncodedDataset(NamedTuple):
    """A data set by several encoders.

    Attributes:
        rows: ``(n,)``, rows of the items in the data set.
        inputs: ``(n, sum of the widths)``.
        ends: end of the columns of each encoder.
    """

    rows: Ids
    inputs: Arrays
    targets: Arrays
    test_inputs: Arrays
    test_targets: Arrays
    classes: int
    ends: tuple[int, ...]

    def find_columns(self, number: int) -> slice:
        """The columns of an encoder."""
        return slice(self.ends[number - 1] if number else 0, self.ends[number])


@lru_cache(maxsize=1)
def combine_encoders(
    dataset: str,
    encoders: tuple[str, ...],
    components: int | None = None,
) -> EncodedDataset:
    """Features of several encoders, side by side, each reduced to its principal ``components``."""
    found = [encode_dataset_items(name, dataset) for name in encoders]
    first = found[0]
    pairs = [
        standardize_encoded_features(
            *_reduce_encoded_features(own.features, own.test_features, components)
        )
        for own in found
    ]
    data = load(dataset)
    if data.classes is None:
        raise BadInput(f"{dataset} is a regression; heads on encoders are for classes")
    return EncodedDataset(
        first.rows,
        np.concatenate([near for near, _ in pairs], axis=1),
        data.targets[first.rows],
        np.concatenate([far for _, far in pairs], axis=1),
        data.test_targets[first.test_rows],
        data.classes,
        tuple(accumulate(near.shape[1] for near, _ in pairs)),
    )


def standardize_encoded_features(features: Arrays, test_features: Arrays) -> tuple[Arrays, ...]:
    """Center and scale both by the first, to mean square 1; one scale for all columns.

    >>> train, test = np.array([[1.0, 2.0], [3.0, 2.0]]), np.array([[2.0, 3.0]])
    >>> near, far = standardize_encoded_features(train, test)
    >>> near.round(3).tolist(), far.round(3).tolist()
    ([[-1.414, 0.0], [1.414, 0.0]], [[0.0, 1.414]])
    """
    centre = features.mean(axis=0)
    spread = float(np.sqrt(np.square(features - centre).mean()))
    if not spread > 0:
        spread = 1.0  # all items are equal
    return (features - centre) / spread, (test_features - centre) / spread


def _reduce_encoded_features(
    features: Arrays, test_features: Arrays, count: int | None
) -> tuple[Arrays, Arrays]:
    """Project both onto the first principal components of the first."""
    if count is None or count >= features.shape[1]:
        return features, test_features
    centre = features.mean(axis=0)
    centred = features - centre
    _, vectors = np.linalg.eigh((centred.T @ centred).astype(np.float64))  # ascending
    kept = vectors[:, : -count - 1 : -1].astype(np.float32)
    return centred @ kept, (test_features - centre) @ kept


def load_encoded_dataset(protocol: Protocol) -> EncodedDataset:
    """The data of an experiment."""
    name = protocol.dataset.removesuffix(SUFFIX)
    encoders = tuple(protocol.settings["encoders"])
    return combine_encoders(name, encoders, protocol.settings.get("components"))


def split_encoded_dataset(protocol: Protocol, seed: int) -> DataSplit:
    """Split the items by a seed into pool and first labels; the test items are fixed."""
    data = load_encoded_dataset(protocol)
    order = np.random.default_rng([seed, SPLIT]).permutation(len(data.rows))
    taken = order if protocol.pool is None else order[: protocol.pool]
    bought = protocol.start + protocol.rounds * protocol.batch
    if bought > len(taken):
        raise BadInput(f"{protocol.name} buys {bought} labels from a pool of {len(taken)}")
    rows = np.sort(taken)
    return DataSplit(
        data.rows[rows],
        data.inputs[rows],
        data.targets[rows],
        data.rows[taken[: protocol.start]],
        data.test_inputs,
        data.test_targets,
        None,
        data.classes,
    )


def make_encoder_heads(
    protocol: Protocol,
    entrant: Entrant,
    split: DataSplit,
    device: Device,
    items: tuple[Items, Items],
) -> ModelSet:
    """An untrained linear layer for every encoder."""
    names: Sequence[str] = protocol.settings["encoders"]
    data = load_encoded_dataset(protocol)
    learners = {}
    for number, name in enumerate(names):
        place = data.find_columns(number)
        learners[f"encoder_{number}"] = BatchableLearner(
            partial(make_column_head, place.start, place.stop, split.outputs),
            kind=("head", name, protocol.name, protocol.scale),
            members=make_network_members(protocol, entrant, split, models=len(names)),
            **make_learner_options(protocol, split, device),
        )
    return ModelSet(learners, [items[0]] * len(names), [items[1]] * len(names))


def study_encoder_heads(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[RoundResult]:
    """Rounds of buying labels for linear layers on the encoders."""
    splits = SplitCache(protocol, device, split=split_encoded_dataset)
    yield from play_benchmark_runs([BenchmarkRun(splits, entrant, seed, make_encoder_heads)])
