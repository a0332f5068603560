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
=============================  ====================================================================

A batch is always a copy, so that a module or an augmentation may modify it in place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from torch import Tensor
from torch.utils.data import IterableDataset, default_collate

from labelwise.arrays import Array, HostArray
from labelwise.errors import BadInput

Batch = Any
"""Argument of a module: a tensor, a tuple of tensors, or a dict of tensors by keyword."""

RESIDENT_BYTES = 2 << 30
"""Arrays up to this size are moved to a device once, not batch by batch."""


class Items(Protocol):
    """Items by position."""

    def __len__(self) -> int:
        """How many items there are."""

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
        if _is_consecutive(positions):
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
        if _is_consecutive(positions):
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
    """A data set or sequence that gives one item at a time."""

    items: Sequence[Batch]

    def __len__(self) -> int:
        return len(self.items)

    def batch(self, positions: NDArray[np.int64]) -> Batch:
        """The items at ``positions``, collated."""
        taken = [self.items[int(position)] for position in positions]
        return default_collate([entry[0] if isinstance(entry, tuple) else entry for entry in taken])


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


def as_items(inputs: Array) -> Items:
    """Wrap inputs in one of the forms above."""
    if isinstance(inputs, TensorItems | ArrayItems | MappingItems | SequenceItems | ItemSubset):
        return inputs
    if isinstance(inputs, Tensor):
        return TensorItems(_check_dimensions(inputs.detach()))
    if isinstance(inputs, str | Path):
        return ArrayItems(_check_dimensions(_map_npy(Path(inputs))))
    if isinstance(inputs, np.ndarray):
        return ArrayItems(_check_dimensions(_check_numbers(inputs)))
    if issparse(inputs):
        raise BadInput(
            f"inputs are a sparse matrix of {inputs.shape}; give inputs.toarray(), or fewer "
            "columns made of them"
        )
    if hasattr(inputs, "to_numpy"):
        return as_items(inputs.to_numpy())
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], list | int | float):
        return as_items(_stack_lists(inputs))
    if isinstance(inputs, Mapping):
        return _join_mapping({str(name): as_items(value) for name, value in inputs.items()})
    if isinstance(inputs, IterableDataset) or not (
        hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__")
    ):
        raise BadInput(
            "inputs must be an array, a tensor, a .npy file, a mapping of them, or a sequence with "
            f"a length; got {type(inputs).__name__}"
        )
    return SequenceItems(inputs)


def _map_npy(path: Path) -> HostArray:
    if not path.is_file():
        raise BadInput(f"{path} does not exist")
    if path.suffix != ".npy":
        raise BadInput(f"a file of inputs must be .npy; got {path}: save it with numpy.save")
    return _check_numbers(np.load(path, mmap_mode="r", allow_pickle=False))


def _check_numbers(array: HostArray) -> HostArray:
    if np.ma.is_masked(array):
        raise BadInput("inputs hold masked entries; fill them or leave these items out")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise BadInput(f"inputs must be numbers of 64 bits at most; got an array of {array.dtype}")
    return array


def _stack_lists(rows: Sequence[Array]) -> HostArray:
    try:
        return np.asarray(rows)
    except ValueError as error:
        raise BadInput(
            "the lists of the inputs differ in length; pad them to one length"
        ) from error


def _check_dimensions(rows: Array) -> Array:
    if not rows.ndim:
        raise BadInput("inputs must have one row per item; got a single number")
    return rows


def _join_mapping(parts: dict[str, Items]) -> MappingItems:
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
    """Move items to a device if they are arrays and small enough to stay there.

    Args:
        items: any.
        device: where to.
        dtype: target type of floating-point numbers; None keeps theirs.
    """
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


def find_nonfinite(items: Items, size: int = 512) -> int | None:
    """Position of the first item with a NaN or infinite number, or None."""
    for positions in split_evenly(np.arange(len(items)), size):
        wrong = _mark_nonfinite(items.batch(positions), len(positions))
        if wrong.any():
            found = int(positions[int(wrong.nonzero()[0, 0])])
            return int(items.positions[found]) if isinstance(items, ItemSubset) else found
    return None


def _mark_nonfinite(batch: Batch, count: int) -> Tensor:
    if isinstance(batch, Tensor):
        return ~torch.isfinite(batch.reshape(count, -1)).all(dim=1).cpu()
    parts = list(batch.values()) if isinstance(batch, Mapping) else list(batch)
    return torch.stack([_mark_nonfinite(part, count) for part in parts]).any(dim=0)


def split_evenly(order: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Split positions into batches of at most ``size`` whose sizes differ by at most one.

    A short last batch would give its items more weight, and batch normalization fails on a single
    item.
    """
    count = -(-len(order) // size)
    return list(np.array_split(order, count)) if count else []


def _is_consecutive(positions: NDArray[np.int64]) -> bool:
    count = len(positions)
    return bool(
        count
        and positions[-1] - positions[0] == count - 1
        and (count < 3 or (np.diff(positions) == 1).all())
    )
