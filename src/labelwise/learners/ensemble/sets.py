"""What each of several networks is trained on: one set for all, or a set of its own for each.

Sets of their own have the same number of items, so that the networks make the same number of steps.
Where they are parts of one pool that lies on the device, or small enough to be put side by side, a
batch for all networks is one look-up.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelwise.errors import BadInput
from labelwise.learners.inputs import RESIDENT_BYTES, Batch, Items, Part, TensorItems, ready
from labelwise.learners.training import Labelled

Positions = NDArray[np.int64]


class Sets:
    """The labelled items of ``M`` networks, ``m`` each.

    Attributes:
        each: every network's own.
        shared: whether all networks have the same one.
        targets: ``(M, m, ...)``, on the device.
        weights: ``(M, m)``, on the device.
    """

    def __init__(
        self, sets: Labelled | Sequence[Labelled], count: int, device: torch.device
    ) -> None:
        """Put sets together; ``count`` is how many networks there are."""
        self.shared = isinstance(sets, Labelled)
        self.each: list[Labelled] = [sets] * count if isinstance(sets, Labelled) else list(sets)
        sizes = sorted({len(own) for own in self.each})
        if len(self.each) != count or len(sizes) != 1:
            raise BadInput(
                f"give one set, or {count} sets of one size; got {len(self.each)} of sizes {sizes}"
            )
        self.targets = self._together([own.targets for own in self.each], device)
        self.weights = self._together([own.weights for own in self.each], device)
        self._device = device
        self._networks = torch.arange(count, device=device)[:, None]
        self._pool, self._where = _pool([own.items for own in self.each])
        self._places = None if self._where is None else torch.from_numpy(self._where).to(device)
        self._rows = _side_by_side([own.items for own in self.each]) if self._pool is None else None

    def __len__(self) -> int:
        return len(self.each[0])

    @property
    def near(self) -> bool:
        """Whether a batch is one look-up on the device, with nothing to ask the host for."""
        rows = self._pool.rows if isinstance(self._pool, TensorItems) else self._rows
        return rows is not None and rows.device == self.targets.device

    def numbers(self, values: Tensor, places: Tensor) -> Tensor:
        """What `targets` or `weights` hold for the items at ``places`` ``(M, b)``."""
        return values[self._networks, places]

    def batch(self, positions: Positions, places: Tensor, dtype: torch.dtype) -> Batch:
        """The items at ``positions`` ``(M, b)``, and ``places`` is the same on the device."""
        rows = self._pool.rows if isinstance(self._pool, TensorItems) else None
        if rows is not None and rows.device == places.device:
            inside = places if self._places is None else self.numbers(self._places, places)
            return ready(rows[inside], self._device, dtype)
        if self._pool is not None:
            where = self._where
            wanted = positions if where is None else np.take_along_axis(where, positions, axis=1)
            flat = ready(self._pool.batch(wanted.ravel()), self._device, dtype)
            return leaves(lambda part: part.reshape(*positions.shape, *part.shape[1:]), flat)
        if self._rows is not None and self._rows.device == places.device:
            return ready(self.numbers(self._rows, places), self._device, dtype)
        return stacked(self.batches(positions, dtype))

    def batches(self, positions: Positions, dtype: torch.dtype) -> list[Batch]:
        """The same, one network after the other."""
        pairs = zip(self.each, positions, strict=True)
        return [ready(own.items.batch(row), self._device, dtype) for own, row in pairs]

    def _together(self, parts: list[Tensor], device: torch.device) -> Tensor:
        if self.shared:
            return parts[0].to(device).expand(len(parts), *parts[0].shape)
        return torch.stack([part.to(device) for part in parts])


def _pool(items: list[Items]) -> tuple[Items | None, Positions | None]:
    """The pool that all items are from, and where in it, ``(M, m)``; None for all of it."""
    first = items[0]
    if all(_same(own, first) for own in items):
        if not isinstance(first, Part):
            return first, None
        return first.items, np.tile(first.positions, (len(items), 1))
    parts = [own for own in items if isinstance(own, Part)]
    if len(parts) < len(items) or not all(_same(own.items, parts[0].items) for own in parts):
        return None, None
    return parts[0].items, np.stack([own.positions for own in parts])


def _side_by_side(items: list[Items]) -> Tensor | None:
    """Items of different pools as one tensor ``(M, m, ...)``, if they are tensors and not large."""
    tensors = [own.items if isinstance(own, Part) else own for own in items]
    rows = [tensor.rows for tensor in tensors if isinstance(tensor, TensorItems)]
    alike = {(part.shape[1:], part.dtype, part.device) for part in rows}
    if len(rows) < len(items) or len(alike) > 1:
        return None
    every = np.arange(len(items[0]))
    if len(items) * len(every) * rows[0][:1].nbytes > RESIDENT_BYTES:
        return None
    return torch.stack([own.batch(every) for own in items])


def _same(one: Items, other: Items) -> bool:
    """Whether two are the same items; a tensor that is on the device already stays the same."""
    if isinstance(one, TensorItems) and isinstance(other, TensorItems):
        return one.rows is other.rows
    return one is other


def stacked(batches: Sequence[Batch]) -> Batch:
    """Batches of the same form as one, ``(M, b, ...)``."""
    return leaves(lambda *parts: torch.stack(parts), *batches)


def leaves(function: Callable[..., Tensor], first: Batch, *others: Any) -> Batch:
    """A function of the tensors at the same place of every batch."""
    if isinstance(first, Tensor):
        return function(first, *others)
    if isinstance(first, Mapping):
        return {
            name: leaves(function, value, *(other[name] for other in others))
            for name, value in first.items()
        }
    return tuple(leaves(function, *parts) for parts in zip(first, *others, strict=True))
