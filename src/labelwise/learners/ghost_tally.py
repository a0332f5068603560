"""Sums over parameters, one entry per item: squared norms, and products with a fixed vector.

Layers add to a `Tally` what they contribute. Per-item gradients that must be formed come in chunks
of items, so that memory does not grow with items x parameters.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

_MOST_FLOATS = {"cpu": 2**21, "cuda": 2**25}
"""What a chunk may take: a cache of a processor, enough work for every part of a GPU."""
_FEW_FLOATS = 2**20
"""What a chunk may always take, however small the layer."""


class Tally:
    """The sums so far, in float64 where the device has it.

    Attributes:
        vector: the fixed vector by parameter name; None where no products are wanted.
        wants_norms: whether norms are wanted.
    """

    def __init__(
        self, b: int, device: torch.device, vector: Mapping[str, Tensor] | None, norms: bool
    ) -> None:
        exact = torch.float32 if device.type == "mps" else torch.float64
        self._norms = torch.zeros(b, dtype=exact, device=device)
        self._products = torch.zeros_like(self._norms)
        self.vector = vector
        self.wants_norms = norms

    def add_norms(self, rows: slice, values: Tensor) -> None:
        """Add ``(m,)`` squared norms of some items."""
        self._norms[rows] += values

    def add_products(self, rows: slice, values: Tensor) -> None:
        """Add ``(m,)`` products of some items."""
        self._products[rows] += values

    def part(self, name: str) -> Tensor | None:
        """The part of the vector for one parameter; None where no products are wanted."""
        return None if self.vector is None else self.vector[name]

    def add_gradients(self, rows: slice, gradients: Tensor, vector: Tensor | None) -> None:
        """Add what the per-item gradients ``(m, ...)`` of a parameter or a part of it come to.

        ``vector`` is of the shape of one gradient, or None.
        """
        if self.wants_norms:
            self.add_norms(rows, squared_norms(gradients))
        if vector is not None:
            self.add_products(rows, gradients.flatten(1) @ vector.flatten().to(gradients.dtype))

    def results(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Norms and products, both ``(b,)``, in this type or float32 if that is better."""
        dtype = torch.promote_types(dtype, torch.float32)
        return self._norms.to(dtype), self._products.to(dtype)


def squared_norms(values: Tensor) -> Tensor:
    """``(m, ..., a) -> (m,)``, in one pass; exact enough because only ``a`` numbers are lumped."""
    lengths: Tensor = torch.linalg.vector_norm(values, dim=-1)
    return lengths.square().flatten(1).sum(1) if lengths.ndim > 1 else lengths.square()


def dots(left: Tensor, right: Tensor) -> Tensor:
    """The inner product of every item's two arrays: ``(m, ...), (m, ...) -> (m,)``."""
    return (left * right).flatten(1).sum(1)


def chunks(floats_per_item: int, x: Tensor, delta: Tensor) -> Iterator[slice]:
    """Slices of the items, small enough that what is formed for one of them is small.

    It is at most twice what the layer's input ``x`` and output gradient ``delta`` take together,
    so that the peak stays near that of the forward and backward pass themselves.
    """
    room = 2 * (x.numel() + delta.numel())
    room = min(max(room, _FEW_FLOATS), _MOST_FLOATS.get(x.device.type, _MOST_FLOATS["cuda"]))
    return slices(len(x), room // max(floats_per_item, 1), x.device)


def slices(b: int, size: int, device: torch.device) -> Iterator[slice]:
    """Slices of ``size`` items; at least 1, and enough for every thread to have one."""
    size = max(size, torch.get_num_threads() if device.type == "cpu" else 1)
    return (slice(i, min(i + size, b)) for i in range(0, b, size))
