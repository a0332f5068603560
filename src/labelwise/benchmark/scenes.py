"""What all strategies of a seed share: pool, first labels, validation and test items.

All of it follows from the seed, so that the runs of a seed are paired. Images are scaled to mean 0
and deviation 1 per channel, columns of tables and values of a regression likewise, by the first
`LOOKED_AT` items of the data set (the values of a regression too: their scale is only a unit).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Floats, Ids
from labelwise.benchmark.datasets import CATALOGUE, Dataset, available, load
from labelwise.benchmark.protocol import Protocol
from labelwise.errors import BadInput

SPLIT = 11
"""The stream of randomness that items are divided by."""

LOOKED_AT = 10_000
"""So many items say what mean and deviation are."""


@dataclass(frozen=True, eq=False)
class Scene:
    """The data of a seed.

    Attributes:
        ids: ``(n,)``, the pool's items by their rows in the data set, ascending; the copies of an
            item follow after all rows.
        inputs: ``(n, ...)`` float32.
        targets: ``(n,)`` classes or ``(n, k)`` values.
        first: ids of the first labels.
        test_inputs: float32.
        test_targets: as ``targets``.
        validation: inputs and targets that are set apart, or None.
        classes: how many there are; None for a regression.
    """

    ids: Ids
    inputs: NDArray[Any]
    targets: NDArray[Any]
    first: Ids
    test_inputs: NDArray[Any]
    test_targets: NDArray[Any]
    validation: tuple[NDArray[Any], NDArray[Any]] | None
    classes: int | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one item."""
        return tuple(self.inputs.shape[1:])

    @property
    def outputs(self) -> int:
        """How many outputs a network needs."""
        return self.classes or int(self.targets.shape[1])

    def positions(self, ids: Ids) -> NDArray[np.intp]:
        """Where items are in the pool."""
        return np.searchsorted(self.ids, ids)


def prepare(protocol: Protocol, seed: int) -> Scene:
    """Divide a protocol's data set as a seed says.

    Example:
        >>> from labelwise.benchmark.protocols import get
        >>> scene = prepare(get("sparse-table2-mnist").at("small").on("digits"), 0)
        >>> scene.shape, len(scene.first), scene.classes
        ((1, 8, 8), 40, 10)
    """
    data = standardised(protocol.dataset)
    _check(protocol, data.n, data.classes)
    order = np.random.default_rng([seed, SPLIT]).permutation(data.n)
    held, rest = order[: protocol.validation], order[protocol.validation :]
    taken = rest if protocol.pool is None else rest[: protocol.pool]
    rows = np.sort(taken)
    test = _some(len(data.test_inputs), protocol.test)
    validation = (data.inputs[held], data.targets[held]) if len(held) else None
    copies = np.arange(protocol.copies)[:, None] * data.n
    return Scene(
        (rows + copies).ravel(),
        np.tile(data.inputs[rows], (protocol.copies, *[1] * (data.inputs.ndim - 1))),
        np.tile(data.targets[rows], (protocol.copies, *[1] * (data.targets.ndim - 1))),
        taken[: protocol.start],
        data.test_inputs[test],
        data.test_targets[test],
        validation,
        data.classes,
    )


@lru_cache(maxsize=1)
def standardised(name: str) -> Dataset:
    """A data set with its inputs, and the values of a regression, at mean 0 and deviation 1."""
    data = load(name)
    inputs = _standard(data.inputs)
    targets = (lambda values: values) if data.classes else _standard(data.targets)
    return Dataset(
        data.name,
        inputs(data.inputs),
        targets(data.targets),
        inputs(data.test_inputs),
        targets(data.test_targets),
        data.classes,
        data.source,
    )


def _standard(values: NDArray[Any]) -> Any:
    """What takes values like these to mean 0 and deviation 1, per channel or column."""
    some = values[:LOOKED_AT].astype(np.float64)
    axes = tuple(axis for axis in range(values.ndim) if axis != 1)
    mean: Floats = some.mean(axis=axes, keepdims=True)
    spread: Floats = some.std(axis=axes, keepdims=True)
    spread[spread <= 1e-8 * np.abs(mean)] = 1  # a column that never changes
    centre, scale = mean.astype(np.float32), spread.astype(np.float32)
    return lambda rows: (rows.astype(np.float32) - centre) / scale


def _some(count: int, wanted: int | None) -> NDArray[np.intp]:
    """The same few test items for every seed, or all."""
    if wanted is None or wanted >= count:
        return np.arange(count)
    return np.sort(np.random.default_rng(SPLIT).permutation(count)[:wanted])


def check_data(protocol: Protocol) -> None:
    """Refuse a data set that is not at hand, or that does not suit the protocol."""
    if protocol.study is not None and protocol.dataset not in CATALOGUE:
        return  # it is made up by the study
    status = available().get(protocol.dataset)
    if status is not None and not status.entry.shape:
        raise BadInput(
            f"{protocol.dataset} holds texts, and these networks take numbers; take another"
        )
    if status is None or not status.ready:
        load(protocol.dataset)  # which says what is wrong
        return
    _check(protocol, status.entry.train, status.entry.classes)


def _check(protocol: Protocol, count: int, classes: int | None) -> None:
    if protocol.study is None and (protocol.metric == "mse") != (classes is None):
        task = "a regression" if classes is None else f"{classes} classes"
        raise BadInput(f"{protocol.name} measures {protocol.metric}; {protocol.dataset} is {task}")
    left = count - protocol.validation
    pool = left if protocol.pool is None else min(left, protocol.pool)
    bought = protocol.start + protocol.rounds * protocol.batch
    if bought > pool * protocol.copies:
        raise BadInput(
            f"{protocol.name} buys {bought} labels, and {protocol.dataset} leaves a pool of "
            f"{pool}; take another scale or data set"
        )
