r"""Rows to measure: arrays or Kronecker factors, moved such that distances keep their digits.

*Factors.* The gradient of the loss of item :math:`i` with respect to a last linear layer is the
outer product of the residual :math:`a_i = p_i - e_y` (K numbers) and the layer's input :math:`h_i`
(d numbers). Norms, products and distances of rows :math:`g_i = a_i \otimes h_i` need only these:

.. math::
    \lVert g_i \rVert^2 = |a_i|^2 |h_i|^2 , \qquad g_i \cdot g_j = (a_i \cdot a_j)(h_i \cdot h_j) .

*Moves.* :math:`|x - y|^2 = |x|^2 + |y|^2 - 2 \, x \cdot y` cancels when the norms are much larger
than the distance, and overflows or underflows for extreme numbers. If a sample of a few rows shows
that it is worth a copy of every block, the sample mean is subtracted from all rows and they are
multiplied by a power of two (`kernels.scaling`).

Cost: norms take ``O(n (K + d))``, products and distances to ``b`` rows ``O(n b (K + d))``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from labelwise import arrays
from labelwise.arrays import Array, Floats, Ids, device, like, namespace, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.scaling import ORDINARY_EXPONENT, scale_for_exponent
from labelwise.pool.blocks import LocalShards, Shard, Shards
from labelwise.pool.rows import ArrayDict, Rows, read_features, take_rows

DISTANCE_ROUNDING = 32
"""Rounding error of a squared distance from norms and a product, in roundings of the norms."""
SAMPLE = 64  # Sample size: the items with the smallest ids, independent of the split into blocks
FAR = 16.0  # Rows are shifted if the squared mean exceeds this multiple of the mean squared spread
CHUNK, DEVICE_CHUNK = 1 << 22, 1 << 24
"""Products held at a time, on a CPU (16 MB in float32, which stay in cache) and on a GPU."""


@dataclass(frozen=True)
class Factored:
    """Rows ``a_i x h_i``, ``a`` of shape ``(n, K)`` and ``h`` of shape ``(n, d)``.

    Example:
        >>> import numpy as np
        >>> rows = Factored(np.array([[1.0, -1.0]]), np.array([[2.0, 3.0, 0.0]]))
        >>> rows.dense()  # for illustration: kernels use the factors
        array([[ 2.,  3.,  0., -2., -3., -0.]])
    """

    a: Array
    h: Array

    def __len__(self) -> int:
        return int(self.a.shape[0])

    def dense(self) -> Array:
        """All rows multiplied out, ``(n, K d)``; for tests and small pools only."""
        return namespace(self.a).reshape(self.a[:, :, None] * self.h[:, None, :], (len(self), -1))


Embedding = Array  # An array ``(n, d)`` or a `Factored`
Read = Callable[[Rows], Embedding]  # Makes the embedding of a block's rows


def split_embedding(rows: Embedding) -> tuple[ArrayDict, Read]:
    """Representations of a block, and the function that rebuilds the embedding from them."""
    if isinstance(rows, Factored):
        return {"a": rows.a, "h": rows.h}, lambda parts: Factored(parts["a"], parts["h"])
    return {"features": rows}, read_features


def make_embedding_block(
    rows: Embedding, k: int, centres: Embedding | None
) -> tuple[LocalShards, Read, Embedding | None]:
    """A user's rows as one block with row numbers as ids, the function that reads it, centers."""
    rows, centres = convert_embeddings(rows, centres)
    if not 0 <= k <= len(rows):
        raise BadInput(f"k must be from 0 to {len(rows)}, the number of rows; got {k}")
    names, embed = split_embedding(rows)
    return LocalShards([Shard(np.arange(len(rows), dtype=np.int64), names)]), embed, centres


def convert_embeddings(
    rows: Embedding, centres: Embedding | None
) -> tuple[Embedding, Embedding | None]:
    """A user's rows and centers, converted to one library and to float32 or float64."""
    held, join = _split_factors(rows, "rows")
    if centres is None or not len(centres):
        return join(*map(arrays.working, held)), None
    others, _ = _split_factors(centres, "centers")
    widths, found = ([int(array.shape[1]) for array in some] for some in (held, others))
    if widths != found:
        raise BadInput(f"centers must have the columns of the rows, {widths}; got {found}")
    pairs = [_match_factors(*map(arrays.working, pair)) for pair in zip(held, others, strict=True)]
    held, others = zip(*pairs, strict=True)
    return join(*held), join(*others)


def _split_factors(
    rows: Embedding, name: str
) -> tuple[tuple[Array, ...], Callable[..., Embedding]]:
    """The arrays of an embedding, and the function that rebuilds it."""
    if isinstance(rows, Factored):
        (n, *_), (m, *_) = rows.a.shape, rows.h.shape
        if rows.a.ndim != 2 or rows.h.ndim != 2 or n != m:
            raise BadInput(
                f"factors of {name} must be (n, K) and (n, d) with the same n; got "
                f"{tuple(rows.a.shape)} and {tuple(rows.h.shape)}"
            )
        return (rows.a, rows.h), Factored
    if not arrays.is_array(rows) or rows.ndim != 2:
        shape = f"shape {tuple(rows.shape)}" if hasattr(rows, "shape") else type(rows).__name__
        raise BadInput(f"{name} must be an array with two axes or Factored; got {shape}")
    return (rows,), lambda array: array


def _match_factors(rows: Array, others: Array) -> tuple[Array, Array]:
    """Both arrays in the library and on the device of the first, in the finer precision."""
    xp = namespace(rows)
    near = arrays.like(to_numpy(others) if isinstance(rows, np.ndarray) else others, rows)
    kind = xp.result_type(rows.dtype, near.dtype)
    return xp.astype(rows, kind, copy=False), xp.astype(near, kind, copy=False)


def count_embedding_numbers(rows: Embedding) -> int:
    """Number of stored numbers."""
    held = (rows.a, rows.h) if isinstance(rows, Factored) else (rows,)
    return sum(math.prod(array.shape) for array in held)


def squared_norms(rows: Embedding) -> Array:
    """Squared norm of every row, ``(n,)``."""
    if isinstance(rows, Factored):
        return arrays.row_dots(rows.a, rows.a) * arrays.row_dots(rows.h, rows.h)
    return arrays.squared_norms(rows)


def inner_products(rows: Embedding, points: Embedding, plus: Array | None = None) -> Array:
    """Inner product of every row with every point, ``(n, m)``, plus an optional ``(n, 1)``."""
    if isinstance(rows, Factored):
        result, factors = (
            arrays.row_products(rows.h, points.h),
            arrays.row_products(rows.a, points.a),
        )
        xp = namespace(result)
        if plus is not None and hasattr(xp, "addcmul"):
            return xp.addcmul(plus, result, factors, out=result)  # torch does both in one pass
        result *= factors
    else:
        result = arrays.row_products(rows, points)
    if plus is not None:
        result += plus
    return result


def squared_distances(rows: Embedding, points: Embedding) -> Array:
    """Squared distance of every row to every point, ``(n, m)``, never negative."""
    distances = inner_products(rows, points)
    xp = namespace(distances)
    distances *= -2
    distances += squared_norms(rows)[:, None]
    distances += squared_norms(points)[None, :]
    return xp.clip(distances, 0, None, out=distances)


def weighted_sum(rows: Factored, weights: Array) -> Array:
    """``sum_i w_i a_i h_i^T``, ``(K, d)``."""
    xp = namespace(rows.h)
    return xp.matmul(xp.matrix_transpose(rows.a * weights[:, None]), rows.h)


def inner_products_with_matrix(rows: Factored, matrix: Array) -> Array:
    """``g_i . vec(R)`` for every row and one ``(K, d)`` matrix ``R``, ``(n,)``."""
    xp = namespace(rows.h)
    return arrays.row_dots(xp.matmul(rows.h, xp.matrix_transpose(matrix)), rows.a)


def take_embedding(rows: Embedding, positions: NDArray[np.intp]) -> Embedding:
    """The rows at ``positions``, in that order."""
    if isinstance(rows, Factored):
        return Factored(arrays.take(rows.a, positions), arrays.take(rows.h, positions))
    return arrays.take(rows, positions)


def to_float64(rows: Embedding) -> Embedding:
    """The rows in float64."""
    if isinstance(rows, Factored):
        return Factored(arrays.float64(rows.a), arrays.float64(rows.h))
    return arrays.float64(rows)


def concat_embeddings(parts: list[Embedding]) -> Embedding:
    """Concatenated rows."""
    if isinstance(parts[0], Factored):
        return Factored(*(concat_embeddings([getattr(p, name) for p in parts]) for name in "ah"))
    return namespace(*parts).concat(parts)


def nearest_distances(rows: Embedding, norms: Array, centres: Embedding) -> Array:
    """Squared distance of rows with squared ``norms`` to their nearest center, ``(n,)``."""
    xp, factored = namespace(norms), isinstance(rows, Factored)
    if not len(norms):
        return xp.zeros_like(norms)
    centre_norms = squared_norms(centres)[:, None]
    doubled = Factored(-2.0 * centres.a, centres.h) if factored else -2.0 * centres
    on_host = isinstance(norms, np.ndarray) or str(device(norms)) == "cpu"
    chunk = CHUNK if on_host else DEVICE_CHUNK
    step = max(chunk // len(centre_norms), 64)
    parts = []
    for first in range(0, len(norms), step):
        last = first + step
        some = Factored(rows.a[first:last], rows.h[first:last]) if factored else rows[first:last]
        # One row per center, so that the minimum runs along contiguous memory.
        parts.append(xp.min(inner_products(doubled, some, centre_norms), axis=0))
    nearest = xp.concat(parts) if len(parts) > 1 else parts[0]
    nearest += norms
    return nearest.clip(min=0)


@dataclass(frozen=True)
class MovedReader:
    """Reads rows, subtracts ``shift`` if given and multiplies by ``scale``.

    `Factored` rows are never shifted, since products of shifted factors are not the shifted
    products.
    """

    read: Read
    shift: Floats | None = None
    scale: float = 1.0

    def __call__(self, rows: Rows) -> Embedding:
        """The moved rows."""
        unmoved = self.shift is None and self.scale == 1
        return self.read(rows) if unmoved else self.move(self.read(rows))

    def move(self, there: Embedding) -> Embedding:
        """Move rows that were read already."""
        if isinstance(there, Factored):
            return there if self.scale == 1 else Factored(there.a, self.move(there.h))
        if self.shift is not None:
            there = there - like(self.shift, there, dtype=there.dtype)
        if self.scale == 1:
            return there
        with np.errstate(over="ignore"):  # infinite numbers are rejected by their norm
            return there * self.scale

    def without_shift(self) -> "MovedReader":
        """The same reader without the shift, which rounds."""
        return self if self.shift is None else replace(self, shift=None)

    def move_back(self, moved: Floats) -> Floats:
        """The inverse of `move`."""
        return np.asarray(moved / self.scale + (0.0 if self.shift is None else self.shift))

    def unscale_squares(self, squares: Floats) -> Floats:
        """Squared distances of the original rows; infinite beyond float64."""
        with np.errstate(over="ignore"):
            return np.asarray(squares / self.scale / self.scale)


def move_near_origin(shards: Shards, read: Read, *, shifted: bool = True) -> MovedReader:
    """``read``, moved where that improves distances (unless ``shifted``, without a shift)."""
    if isinstance(read, MovedReader):
        return read
    parts = [part for part in shards.map(_sample_embedding, read) if len(part[0])]
    if not parts:
        return MovedReader(read)
    ids = np.concatenate([part[0] for part in parts])
    few = np.concatenate([part[1] for part in parts])[np.argsort(ids)[:SAMPLE]]
    (_, _, size, factored), *_ = parts
    exponent = _typical_exponent(few)
    few = np.ldexp(few, -exponent)
    with np.errstate(over="ignore", invalid="ignore"):  # non-finite rows are rejected later
        mean = few.mean(axis=0)
        spread = np.square(few - mean).sum(axis=1).mean()
        far = shifted and not factored and bool((mean @ mean) > FAR * spread)
    if not far:
        ordinary = abs(exponent) <= ORDINARY_EXPONENT
        return MovedReader(read, None, 1.0 if ordinary else scale_for_exponent(exponent, size))
    return MovedReader(
        read,
        np.ldexp(mean, exponent),
        scale_for_exponent(exponent + _typical_exponent(few - mean), size),
    )


def _typical_exponent(numbers: Floats) -> int:
    """Binary exponent of the median over rows of the largest number; 0 if all are zero."""
    largest = np.abs(numbers).max(axis=1)
    largest = largest[(largest > 0) & (largest < np.inf)]
    return math.frexp(float(np.median(largest)))[1] if len(largest) else 0


def _sample_embedding(shard: Shard, read: Read) -> tuple[Ids, Floats, int, bool]:
    """Ids and rows of a block's sample, bytes per number, and whether the rows are factored."""
    ids = shard.ids
    few = np.argpartition(ids, SAMPLE)[:SAMPLE] if len(ids) > SAMPLE else np.arange(len(ids))
    rows = read(take_rows(shard.rows, few))
    factored = isinstance(rows, Factored)
    there: Array = rows.h if isinstance(rows, Factored) else rows
    return ids[few], to_numpy(there).astype(np.float64), int(there.dtype.itemsize), factored
