"""Per-item sums over parameters: squared norms and products with a fixed vector.

Layers add their contribution to a `GradientTally`. Per-item gradients are formed in chunks of
items, which bounds memory.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

_MOST_FLOATS = {"cpu": 2**21, "cuda": 2**29}
"""Size limit of a chunk: a CPU cache; on a GPU few large chunks are faster."""
_RELATIVE_SIZE = {"cpu": 2, "cuda": 6}
"""Size limit of a chunk relative to a layer's input and output gradient."""
_FEW_FLOATS = 2**20  # Size that a chunk may always have, even for small layers
_SHORT = 2**11
"""Gradients of up to this many numbers per item are kept and summed together at the end."""


def get_tally_dtype(device: torch.device) -> torch.dtype:
    """float64 if the device supports it."""
    return torch.float32 if device.type == "mps" else torch.float64


class GradientTally:
    """The sums of ``count`` items so far.

    Attributes:
        vector: the fixed vector by parameter name; None if products are not requested.
    """

    def __init__(
        self, count: int, device: torch.device, vector: Mapping[str, Tensor] | None
    ) -> None:
        self._norms = torch.zeros(count, dtype=get_tally_dtype(device), device=device)
        self._products = torch.zeros_like(self._norms)
        self._short: list[tuple[Tensor, Tensor | None]] = []
        self.count, self.device = count, device
        self.vector = vector

    def add_norms(self, rows: slice, values: Tensor) -> None:
        """Add ``(m,)`` squared norms of some items."""
        self._norms[rows] += values

    def add_products(self, rows: slice, values: Tensor) -> None:
        """Add ``(m,)`` products of some items."""
        self._products[rows] += values

    def get_vector(self, name: str) -> Tensor | None:
        """The part of the vector for one parameter; None if products are not requested."""
        return None if self.vector is None else self.vector[name]

    def add_gradients(self, rows: slice, gradients: Tensor, vector: Tensor | None) -> None:
        """Add per-item gradients ``(m, ...)``; ``vector`` has the shape of one, or is None."""
        flat = gradients.flatten(1)
        if len(flat) == self.count and flat.shape[1] <= _SHORT:
            self._short.append((flat, vector))
            return
        self.add_norms(rows, item_squared_norms(gradients))
        if vector is not None:
            self.add_products(rows, flat @ vector.flatten().to(flat.dtype))

    def get_results(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Norms and products, both ``(b,)``, in ``dtype`` but at least float32."""
        if self._short:  # all short gradients at once, to save small operations
            parts, vectors = zip(*self._short, strict=True)
            self._short = []
            everything = torch.cat(parts, 1)
            self._norms += item_squared_norms(everything)
            if self.vector is not None:
                vector = torch.cat([part.flatten() for part in vectors])
                self._products += everything @ vector.to(everything.dtype)
        dtype = torch.promote_types(dtype, torch.float32)
        return self._norms.to(dtype), self._products.to(dtype)


def item_squared_norms(values: Tensor) -> Tensor:
    """``(m, ..., a) -> (m,)``, in one pass.

    A CPU sums the last axis first, since long sums accumulate rounding errors; a GPU sums in a
    tree, which is precise for any length.
    """
    if values.is_cuda:
        values = values.flatten(1)
    lengths: Tensor = torch.linalg.vector_norm(values, dim=-1)
    return lengths.square().flatten(1).sum(1) if lengths.ndim > 1 else lengths.square()


def item_inner_products(left: Tensor, right: Tensor) -> Tensor:
    """The inner product of every item's two arrays: ``(m, ...), (m, ...) -> (m,)``."""
    return (left * right).flatten(1).sum(1)


def split_tally_items(floats_per_item: int, x: Tensor, delta: Tensor) -> Iterator[slice]:
    """Slices of the items with a bounded size of their per-item gradients.

    The bound is a small multiple of the size of the layer's input ``x`` and output gradient
    ``delta``, so peak memory stays near that of the forward and backward pass.
    """
    kind = x.device.type if x.device.type in _RELATIVE_SIZE else "cuda"
    allowed = max(_RELATIVE_SIZE[kind] * (x.numel() + delta.numel()), _FEW_FLOATS)
    allowed = min(allowed, _MOST_FLOATS[kind])
    return split_item_slices(len(x), allowed // max(floats_per_item, 1), x.device)


def split_item_slices(b: int, size: int, device: torch.device) -> Iterator[slice]:
    """Even slices of at most ``size`` items, but at least 1 item, or 1 per CPU thread."""
    size = max(size, torch.get_num_threads() if device.type == "cpu" else 1)
    size = -(-b // -(-b // size)) if b else size
    return (slice(i, min(i + size, b)) for i in range(0, b, size))
