"""Inputs of a torch learner in any supported form, in batches that a module can be called with.

=============================  ====================================================================
form                           a batch
=============================  ====================================================================
array or tensor ``(n, ...)``   a tensor
path of a ``.npy`` file        a tensor; the file is mapped, and only the batch is read
data frame, nested lists       a tensor
mapping of the above           a dict of tensors: the module is called with its entries as keywords
``torch.utils.data.Dataset``   the items, collated; of an item that is a tuple, the first entry
other sequence                 the same: anything with a length that gives item ``i`` for ``[i]``
Hugging Face ``Dataset``       a dict of its columns, without ``label`` and ``labels``
=============================  ====================================================================

A ``torch.utils.data.DataLoader`` is read in its own batches (`LoaderItems`); it can be represented
but not trained on. A batch is always a copy, so that a module or an augmentation may modify it in
place.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler, default_collate

from labelwise.arrays import Array, HostArray
from labelwise.errors import BadInput, first_line
from labelwise.files import ARRAY_ERRORS

Batch = Any  # Argument of a module: a tensor, a tuple of tensors, or a dict of tensors by keyword
Collate = Callable[[Any], Any]
"""Makes a batch of a list of items, like ``torch.utils.data.default_collate``."""

LABELS = ("label", "labels")  # Entries of an item that are not given to the module
RESIDENT_BYTES = 2 << 30  # Arrays up to this size are moved to a device once, not batch by batch


class Items(Protocol):
    """Items by position."""

    def __len__(self) -> int:
        """The number of items."""

    def batch(self, positions: NDArray[np.int64]) -> Batch:
        """The items at ``positions``, in that order."""


@dataclass(frozen=True)
class TensorItems:
    """A tensor ``(n, ...)`` on any device."""

    rows: Tensor

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def batch(self, positions: NDArray[np.int64]) -> Tensor:
        """The rows at ``positions``."""
        if _are_consecutive_items(positions):
            return self.rows[int(positions[0]) : int(positions[-1]) + 1].clone()
        return self.rows[torch.from_numpy(positions).to(self.rows.device)]


@dataclass(frozen=True)
class ArrayItems:
    """A NumPy array ``(n, ...)``, in memory or mapped from a file."""

    rows: HostArray

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, positions: NDArray[np.int64]) -> Tensor:
        """The rows at ``positions``, copied into a tensor."""
        if _are_consecutive_items(positions):
            return as_tensor(self.rows[int(positions[0]) : int(positions[-1]) + 1])
        return as_tensor(self.rows[positions])


@dataclass(frozen=True)
class MappingItems:
    """Several arrays with the same first axis, by the keyword a module takes them under."""

    parts: Mapping[str, Items]

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))

    def batch(self, positions: NDArray[np.int64]) -> dict[str, Tensor]:
        """The rows of every array at ``positions``."""
        return {name: part.batch(positions) for name, part in self.parts.items()}


@dataclass(frozen=True)
class SequenceItems:
    """A data set or sequence that gives one item at a time; ``collate`` makes a batch of a list."""

    items: Sequence[Batch]
    collate: Collate | None = None

    def __len__(self) -> int:
        return len(self.items)

    def batch(self, positions: NDArray[np.int64]) -> Batch:
        """The items at ``positions``, collated."""
        taken = [self.items[int(position)] for position in positions]
        if self.collate is not None:
            return drop_batch_labels(self.collate(taken))
        inputs = [drop_batch_labels(item[0] if isinstance(item, tuple) else item) for item in taken]
        try:
            return default_collate([_convert_item_lists(item) for item in inputs])
        except (RuntimeError, TypeError) as error:
            raise BadInput(
                f"the items do not fit in one batch ({first_line(error)}); pad them to one length "
                "and leave out texts, or give collate_fn, such as DataCollatorWithPadding"
            ) from error


@dataclass(frozen=True)
class TableItems:
    """A Hugging Face ``Dataset``, read by columns."""

    table: Any

    def __len__(self) -> int:
        return len(self.table)

    def batch(self, positions: NDArray[np.int64]) -> dict[str, Tensor]:
        """The columns of the items at ``positions``."""
        columns = drop_batch_labels(self.table[positions.tolist()])
        return {name: self._stack_column(name, values) for name, values in columns.items()}

    def _stack_column(self, name: str, values: Any) -> Tensor:
        if isinstance(values, Tensor):
            return values
        try:
            array = np.stack([np.asarray(value) for value in values])
        except (TypeError, ValueError) as error:
            raise BadInput(
                f"the rows of column {name!r} differ in length; pad them to one length, as a "
                "tokenizer does with padding='max_length', or give collate_fn"
            ) from error
        if array.dtype.kind not in "biuf":
            raise BadInput(
                f"column {name!r} does not hold numbers; leave it out with "
                f"remove_columns({name!r}), or convert it with set_transform"
            )
        return as_tensor(array)


@dataclass(frozen=True)
class LoaderItems:
    """A ``DataLoader`` that gives its items in their order, in batches of its own."""

    loader: DataLoader[Any]

    def __post_init__(self) -> None:
        loader = self.loader
        if isinstance(loader.dataset, IterableDataset):
            raise BadInput("the DataLoader's dataset has no length; give one that has, or a list")
        if loader.drop_last:
            raise BadInput("the DataLoader drops its last items; give drop_last=False")
        if type(loader.sampler) is not SequentialSampler or loader.batch_size is None:
            raise BadInput(
                "the DataLoader shuffles or batches in its own way, so rows could not be told "
                "apart; give shuffle=False and a batch_size"
            )

    def __len__(self) -> int:
        return len(self.loader.dataset)  # type: ignore[arg-type]

    def batch(self, positions: NDArray[np.int64]) -> Batch:
        """Not possible: a loader gives its batches one after the other."""
        raise BadInput("a DataLoader can be represented only; train on its dataset instead")

    def iterate(self) -> Iterator[Batch]:
        """The batches of the loader; of a pair, the first entry."""
        for batch in self.loader:
            pair = isinstance(batch, list | tuple)
            yield drop_batch_labels(batch[0] if pair else batch)


def drop_batch_labels(batch: Batch) -> Batch:
    """A batch without the labels that data sets hold next to the inputs."""
    if not isinstance(batch, Mapping):
        return batch
    return {name: value for name, value in batch.items() if name not in LABELS}


def _convert_item_lists(item: Batch) -> Batch:
    """An item with its lists of numbers as arrays, which `default_collate` would take apart."""
    if isinstance(item, Mapping):
        return {name: _convert_item_lists(value) for name, value in item.items()}
    if isinstance(item, list) and item and isinstance(item[0], int | float | list):
        return torch.as_tensor(_stack_input_lists(item))
    return item


def iterate_batches(items: "Items", size: int) -> Iterator[Batch]:
    """All items in their order, in batches of at most ``size``; a loader decides for itself."""
    if isinstance(items, LoaderItems):
        yield from items.iterate()
        return
    for positions in split_into_batches(np.arange(len(items)), size):
        yield items.batch(positions)


@dataclass(frozen=True)
class ItemSubset:
    """Some of the items, by their positions among all."""

    items: Items
    positions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.positions)

    def batch(self, positions: NDArray[np.int64]) -> Batch:
        """The items at ``positions`` of this part."""
        return self.items.batch(self.positions[positions])


_WRAPPED = (
    TensorItems | ArrayItems | MappingItems | SequenceItems | TableItems | LoaderItems | ItemSubset
)


def as_items(inputs: Array, collate: Collate | None = None) -> Items:
    """Wrap inputs in one of the forms above; ``collate`` makes batches of lists of items."""
    if isinstance(inputs, _WRAPPED):
        return inputs
    if isinstance(inputs, DataLoader):
        return LoaderItems(inputs)
    if collate is not None:
        if not (hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__")):
            kind = type(inputs).__name__
            raise BadInput(f"collate_fn is for a data set or a list of items; got {kind}")
        return SequenceItems(inputs, collate)
    if hasattr(inputs, "column_names") and hasattr(inputs, "with_format"):
        return TableItems(inputs)
    if isinstance(inputs, Tensor):
        return TensorItems(_check_input_axes(inputs.detach()))
    if isinstance(inputs, str | Path):
        return ArrayItems(_check_input_axes(_map_input_file(Path(inputs))))
    if isinstance(inputs, np.ndarray):
        return ArrayItems(_check_input_axes(_check_input_numbers(inputs)))
    if issparse(inputs):
        raise BadInput(
            f"inputs are a sparse matrix of {inputs.shape}; give inputs.toarray(), or fewer "
            "columns made of them"
        )
    if hasattr(inputs, "to_numpy"):
        return as_items(inputs.to_numpy())
    if hasattr(inputs, "__array__"):
        return as_items(np.asarray(inputs))
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], list | int | float):
        return as_items(_stack_input_lists(inputs))
    if isinstance(inputs, Mapping):
        return _join_input_mapping({str(name): as_items(value) for name, value in inputs.items()})
    if isinstance(inputs, IterableDataset) or not (
        hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__")
    ):
        raise BadInput(
            "inputs must be an array, a tensor, a .npy file, a mapping of them, or a sequence with "
            f"a length; got {type(inputs).__name__}"
        )
    return SequenceItems(inputs)


def _map_input_file(path: Path) -> HostArray:
    if not path.is_file():
        raise BadInput(f"{path} does not exist")
    if path.suffix != ".npy":
        raise BadInput(f"a file of inputs must be .npy; got {path}: save it with numpy.save")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ARRAY_ERRORS as error:
        raise BadInput(f"{path} is not a readable .npy file ({first_line(error)})") from error
    return _check_input_numbers(array)


def _check_input_numbers(array: HostArray) -> HostArray:
    if np.ma.is_masked(array):
        raise BadInput("inputs hold masked entries; fill them or leave these items out")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise BadInput(f"inputs must be numbers of 64 bits at most; got an array of {array.dtype}")
    return array


def _stack_input_lists(rows: Sequence[Array]) -> HostArray:
    try:
        return np.asarray(rows)
    except ValueError as error:
        raise BadInput(
            "the lists of the inputs differ in length; pad them to one length"
        ) from error


def _check_input_axes(rows: Array) -> Array:
    if not rows.ndim:
        raise BadInput("inputs must have one row per item; got a single number")
    return rows


def _join_input_mapping(parts: dict[str, Items]) -> MappingItems:
    lengths = {name: len(part) for name, part in parts.items()}
    if len(set(lengths.values())) != 1:
        raise BadInput(
            f"all inputs must have the same number of items; got {lengths or 'an empty mapping'}"
        )
    return MappingItems(parts)


def as_tensor(array: HostArray) -> Tensor:
    """Copy to a tensor in the native byte order, the only one that torch supports."""
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))


def move_to_device(items: Items, device: torch.device, dtype: torch.dtype | None = None) -> Items:
    """Move items to a device if they are arrays and small enough to stay there."""
    if isinstance(items, ArrayItems) and items.rows.nbytes <= RESIDENT_BYTES:
        return move_to_device(TensorItems(as_tensor(items.rows)), device, dtype)
    if isinstance(items, TensorItems) and items.rows.nbytes <= RESIDENT_BYTES:
        kind = dtype if items.rows.is_floating_point() else None
        return TensorItems(items.rows.to(device=device, dtype=kind))
    if isinstance(items, ItemSubset) and not isinstance(items.items, SequenceItems):
        return ItemSubset(move_to_device(items.items, device, dtype), items.positions)
    if isinstance(items, MappingItems):
        near = {name: move_to_device(part, device, dtype) for name, part in items.parts.items()}
        return MappingItems(near)
    return items


def prepare_batch(batch: Batch, device: torch.device, dtype: torch.dtype) -> Batch:
    """Move a batch to the device, with floating-point numbers in the module's precision."""
    if isinstance(batch, Tensor):
        kind = dtype if batch.is_floating_point() else None
        return batch.to(device=device, dtype=kind, non_blocking=True)
    if isinstance(batch, Mapping):
        return {name: prepare_batch(value, device, dtype) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        return tuple(prepare_batch(value, device, dtype) for value in batch)
    raise BadInput(f"items must be numbers, arrays or tensors; got {type(batch).__name__}")


def batch_length(batch: Batch) -> int:
    """Number of items in a batch."""
    if isinstance(batch, Tensor):
        return int(batch.shape[0])
    parts: Sequence[Batch] = list(batch.values()) if isinstance(batch, Mapping) else batch
    return batch_length(parts[0])


def find_nonfinite_item(items: Items, size: int = 512) -> int | None:
    """Position of the first item with a NaN or infinite number, or None."""
    for positions in split_into_batches(np.arange(len(items)), size):
        wrong = _mark_nonfinite_items(items.batch(positions), len(positions))
        if wrong.any():
            found = int(positions[int(wrong.nonzero()[0, 0])])
            return int(items.positions[found]) if isinstance(items, ItemSubset) else found
    return None


def _mark_nonfinite_items(batch: Batch, count: int) -> Tensor:
    if isinstance(batch, Tensor):
        return ~torch.isfinite(batch.reshape(count, -1)).all(dim=1).cpu()
    parts = list(batch.values()) if isinstance(batch, Mapping) else list(batch)
    return torch.stack([_mark_nonfinite_items(part, count) for part in parts]).any(dim=0)


def split_into_batches(order: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Split positions into batches of at most ``size`` whose sizes differ by at most one.

    A short last batch would give its items more weight, and batch normalization fails on a single
    item.
    """
    count = -(-len(order) // size)
    return list(np.array_split(order, count)) if count else []


def _are_consecutive_items(positions: NDArray[np.int64]) -> bool:
    count = len(positions)
    return bool(
        count
        and positions[-1] - positions[0] == count - 1
        and (count < 3 or (np.diff(positions) == 1).all())
    )
