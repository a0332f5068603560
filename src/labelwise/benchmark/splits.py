"""Data splits: pool, first labels, validation and test items of a seed.

A split is the same for all strategies, so the runs of a seed are paired. Images are scaled to mean
0 and deviation 1 per channel, columns of tables and values of a regression likewise, by the first
`SCALED_BY` items of the data set.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Floats, Ids
from labelwise.benchmark.datasets import CATALOGUE, Dataset, find_available_datasets, load
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.devices import Device, move_items_to_device
from labelwise.benchmark.frozen_run import SPLIT
from labelwise.benchmark.protocol import Protocol
from labelwise.errors import BadInput
from labelwise.learners.inputs import Items

SCALED_BY = 10_000  # Number of items that determine mean and deviation


@dataclass(frozen=True, eq=False)
class DataSplit:
    """The data of a seed."""

    # ``(n,)``, rows of the pool's items in the data set, ascending; copies of items have ids after
    # all rows
    ids: Ids
    inputs: Arrays  # ``(n, ...)`` float32
    targets: Arrays  # ``(n,)`` classes or ``(n, k)`` values
    first: Ids  # ids of the first labels
    test_inputs: Arrays
    test_targets: Arrays
    validation: tuple[Arrays, Arrays] | None
    classes: int | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one item."""
        return tuple(self.inputs.shape[1:])

    @property
    def outputs(self) -> int:
        """Number of outputs of a network."""
        return self.classes or int(self.targets.shape[1])

    def find_positions(self, ids: Ids) -> NDArray[np.intp]:
        """Positions of items in the pool."""
        return np.searchsorted(self.ids, ids)


def split_dataset(protocol: Protocol, seed: int) -> DataSplit:
    """Split a protocol's data set by a seed."""
    data = load_standardized_dataset(protocol.dataset)
    _check_dataset_size(protocol, data.n, data.classes)
    order = np.random.default_rng([seed, SPLIT]).permutation(data.n)
    held, rest = order[: protocol.validation], order[protocol.validation :]
    taken = rest if protocol.pool is None else rest[: protocol.pool]
    rows = np.sort(taken)
    test = _choose_test_items(len(data.test_inputs), protocol.test)
    copies = np.arange(protocol.copies)[:, None] * data.n
    return DataSplit(
        (rows + copies).ravel(),
        np.tile(data.inputs[rows], (protocol.copies, *[1] * (data.inputs.ndim - 1))),
        np.tile(data.targets[rows], (protocol.copies, *[1] * (data.targets.ndim - 1))),
        taken[: protocol.start],
        data.test_inputs[test],
        data.test_targets[test],
        (data.inputs[held], data.targets[held]) if len(held) else None,
        data.classes,
    )


@dataclass
class SplitCache:
    """Splits by seed with their pool and test items on the device, shared by runs of a process."""

    protocol: Protocol
    device: Device
    keep: int = 1
    split: Callable[[Protocol, int], DataSplit] = split_dataset
    _cache: dict[int, tuple[DataSplit, tuple[Items, Items]]] = field(default_factory=dict)

    def get(self, seed: int) -> tuple[DataSplit, tuple[Items, Items]]:
        """The split of a seed, and its pool and test items."""
        if seed not in self._cache:
            while len(self._cache) >= self.keep:
                del self._cache[next(iter(self._cache))]
            split = self.split(self.protocol, seed)
            self._cache[seed] = split, move_split_to_device(split, self.device)
        return self._cache[seed]


def move_split_to_device(split: DataSplit, device: Device) -> tuple[Items, Items]:
    """The pool and test items of a split on a device."""
    return move_items_to_device(split.inputs, device), move_items_to_device(
        split.test_inputs, device
    )


@lru_cache(maxsize=1)
def load_standardized_dataset(name: str) -> Dataset:
    """A data set with inputs, and values of a regression, at mean 0 and deviation 1."""
    data = load(name)
    scale = _fit_input_scale(data.inputs)
    data = replace(data, inputs=scale(data.inputs), test_inputs=scale(data.test_inputs))
    if data.classes:
        return data
    scale = _fit_input_scale(data.targets)
    return replace(data, targets=scale(data.targets), test_targets=scale(data.test_targets))


def _fit_input_scale(values: Arrays) -> Callable[[Arrays], Arrays]:
    """The function that scales to mean 0 and deviation 1 per channel or column."""
    some = values[:SCALED_BY].astype(np.float64)
    axes = tuple(axis for axis in range(values.ndim) if axis != 1)
    mean: Floats = some.mean(axis=axes, keepdims=True)
    spread: Floats = some.std(axis=axes, keepdims=True)
    spread[spread <= 1e-8 * np.abs(mean)] = 1  # a constant column
    shift, scale = mean.astype(np.float32), spread.astype(np.float32)
    return lambda rows: (rows.astype(np.float32) - shift) / scale


def _choose_test_items(count: int, wanted: int | None) -> NDArray[np.intp]:
    """The same test items for every seed: all, or a fixed subset."""
    if wanted is None or wanted >= count:
        return np.arange(count)
    return np.sort(np.random.default_rng(SPLIT).permutation(count)[:wanted])


def check_protocol_data(protocol: Protocol) -> None:
    """Reject a data set that is missing or does not suit the protocol."""
    if protocol.study is not None and protocol.dataset not in CATALOGUE:
        return  # the study generates it
    status = find_available_datasets().get(protocol.dataset)
    if status is not None and not status.entry.shape and "encoder" not in protocol.settings:
        raise BadInput(f"{protocol.dataset} has texts, but networks need numbers; choose another")
    if status is None or not status.ready:
        load(protocol.dataset)  # raises with an explanation
        return
    _check_dataset_size(protocol, status.entry.train, status.entry.classes)


def _check_dataset_size(protocol: Protocol, count: int, classes: int | None) -> None:
    if protocol.study is None and (protocol.metric == "mse") != (classes is None):
        task = "a regression" if classes is None else f"{classes} classes"
        raise BadInput(f"{protocol.name} measures {protocol.metric}; {protocol.dataset} is {task}")
    left = count - protocol.validation
    pool = left if protocol.pool is None else min(left, protocol.pool)
    bought = protocol.start + protocol.rounds * protocol.batch
    if bought > pool * protocol.copies:
        raise BadInput(
            f"{protocol.name} buys {bought} labels, and {protocol.dataset} leaves a pool of "
            f"{pool}; choose another scale or data set"
        )
