r"""Kronecker rows :math:`g_i = a_i \otimes h_i`, kept as factors.

The gradient of the loss of item :math:`i` with respect to a last linear layer is the outer product
of the residual :math:`a_i = p_i - e_y` (K numbers) and the layer's input :math:`h_i` (d numbers).
Norms, products and distances of such rows need only their factors:

.. math::
    \lVert g_i \rVert^2 = |a_i|^2 |h_i|^2 , \qquad g_i \cdot g_j = (a_i \cdot a_j)(h_i \cdot h_j) .

Plain arrays ``(n, d)`` go through the same functions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelwise import arrays
from labelwise.arrays import Array, namespace, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.linear.leverage import read_features
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.pool.rows import Rows

FEW_ROWS = 16
"""With fewer rows the transposed product is faster."""
DISTANCE_ROUNDING = 32
"""Rounding error of a squared distance from norms and a product, in roundings of the norms."""


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

    def __post_init__(self) -> None:
        if self.a.ndim != 2 or self.h.ndim != 2 or self.a.shape[0] != self.h.shape[0]:
            raise BadInput(
                f"factors must be (n, K) and (n, d) with the same n; got {tuple(self.a.shape)} "
                f"and {tuple(self.h.shape)}"
            )

    def __len__(self) -> int:
        return int(self.a.shape[0])

    def dense(self) -> Array:
        """All rows multiplied out, ``(n, K d)``; for tests and small pools only."""
        return namespace(self.a).reshape(self.a[:, :, None] * self.h[:, None, :], (len(self), -1))


Embedding = Any
"""An array ``(n, d)`` or a `Factored`."""


def read_factors(rows: Rows) -> Factored:
    """The rows ``a_i x h_i`` of two representations ``a`` and ``h``."""
    return Factored(rows["a"], rows["h"])


def split_embedding(rows: Embedding) -> tuple[dict[str, Any], Callable[[Rows], Embedding]]:
    """Representations of a block, and the function that rebuilds the embedding from them."""
    if isinstance(rows, Factored):
        return {"a": rows.a, "h": rows.h}, read_factors
    return {"features": rows}, read_features


def make_single_block(
    rows: Embedding, k: int, centres: Embedding | None
) -> tuple[LocalShards, Callable[[Rows], Embedding], Embedding | None]:
    """A user's rows as one block, the function that reads them, and the centers.

    Row numbers are the ids; more than ``n`` picks ``k`` are an error.
    """
    rows, centres = prepare_inputs(rows, centres)
    if not 0 <= k <= len(rows):
        raise BadInput(f"k must be from 0 to {len(rows)}, the number of rows; got {k}")
    names, embed = split_embedding(rows)
    return LocalShards([Shard(np.arange(len(rows), dtype=np.int64), names)]), embed, centres


def prepare_inputs(
    rows: Embedding, centres: Embedding | None
) -> tuple[Embedding, Embedding | None]:
    """A user's rows and centers, converted to one library and to float32 or float64."""
    held, join = _split_arrays(rows, "rows")
    if centres is None or not len(centres):
        return join(*map(arrays.working, held)), None
    others, _ = _split_arrays(centres, "centers")
    widths, found = ([int(array.shape[1]) for array in some] for some in (held, others))
    if widths != found:
        raise BadInput(f"centers must have the columns of the rows, {widths}; got {found}")
    pairs = [_match_arrays(*map(arrays.working, pair)) for pair in zip(held, others, strict=True)]
    held, others = zip(*pairs, strict=True)
    return join(*held), join(*others)


def _split_arrays(rows: Embedding, name: str) -> tuple[Any, Callable[..., Embedding]]:
    """The arrays of an embedding, and the function that rebuilds it."""
    if isinstance(rows, Factored):
        return (rows.a, rows.h), Factored
    if not arrays.is_array(rows) or rows.ndim != 2:
        shape = f"shape {tuple(rows.shape)}" if hasattr(rows, "shape") else type(rows).__name__
        raise BadInput(f"{name} must be an array with two axes or Factored; got {shape}")
    return (rows,), lambda array: array


def _match_arrays(rows: Array, others: Array) -> tuple[Array, Array]:
    """Both arrays in the library and on the device of the first, in the finer precision."""
    xp = namespace(rows)
    near = arrays.like(to_numpy(others) if isinstance(rows, np.ndarray) else others, rows)
    kind = xp.result_type(rows.dtype, near.dtype)
    return xp.astype(rows, kind, copy=False), xp.astype(near, kind, copy=False)


def count_numbers(rows: Embedding) -> int:
    """Number of stored numbers."""
    held = (rows.a, rows.h) if isinstance(rows, Factored) else (rows,)
    return sum(math.prod(array.shape) for array in held)


def squared_norms(rows: Embedding) -> Array:
    """Squared norm of every row, ``(n,)``."""
    if isinstance(rows, Factored):
        return arrays.squared_norms(rows.a) * arrays.squared_norms(rows.h)
    return arrays.squared_norms(rows)


def inner_products(rows: Embedding, points: Embedding, plus: Array | None = None) -> Array:
    """Inner product of every row with every point, ``(n, m)``, plus an optional ``(n, 1)``."""
    if isinstance(rows, Factored):
        result = _row_products(rows.h, points.h)
        return arrays.times_row_products(result, rows.a, points.a, plus)
    result = _row_products(rows, points)
    if plus is not None:
        result += plus
    return result


def _row_products(rows: Array, points: Array) -> Array:
    """`arrays.row_products`, transposed for a few rows and many points, which BLAS does faster."""
    if isinstance(rows, np.ndarray) and len(rows) < FEW_ROWS <= len(points):
        return np.ascontiguousarray(arrays.row_products(points, rows).T)
    return arrays.row_products(rows, points)


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


def take_embedding(rows: Embedding, positions: Any) -> Embedding:
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
