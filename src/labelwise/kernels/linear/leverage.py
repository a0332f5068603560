r"""Leverage scores and orthonormal bases of rows that are read block by block.

The leverage of row :math:`a_i` of the ``(n, d)`` matrix :math:`A` is

.. math:: \tau_i = a_i^\top (A^\top A)^+ a_i = \lVert a_i T \rVert^2 ,

with :math:`T` such that the columns of :math:`A T` are orthonormal. Scores lie in [0, 1], sum to
the rank of :math:`A`, and are invariant under invertible changes of columns; therefore columns are
scaled to unit length before the rank is determined.

:math:`T` comes from the Gram matrix, summed over blocks in float64, if its eigenvalues show that
this is accurate. Squaring loses half of the digits, so otherwise a second pass computes a QR
factorization of one block after the other. All sums stay on the device of the rows.

Cost: two passes over the rows, ``O(n d^2)``, and ``O(d^2)`` memory in addition to a chunk of rows.

Reference: J. Demmel, L. Grigori, M. Hoemmen, J. Langou, "Communication-optimal parallel and
sequential QR and LU factorizations", SIAM Journal on Scientific Computing, 2012.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from labelwise.arrays import Array, Floats, bring, device, namespace, precision, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.linear.row_chunks import (
    CHUNK,
    iterate_row_chunks,
    multiply_chunks,
    squared_row_lengths,
)
from labelwise.kernels.placement import find_placement
from labelwise.pool.blocks import ArrayOrShards, Shard, Shards, as_shards
from labelwise.pool.rows import Rows, read_features

RowReader = Callable[[Rows], Array]
"""Makes the ``(n, d)`` array of a block from its representations."""

_GRAM_NOISE = 1e-13  # Eigenvalues of a Gram matrix with unit diagonal are rounding noise below this
_SMALLEST_SQUARE = 1e-250  # Smaller squares of float64 numbers have lost digits or underflowed


@dataclass(frozen=True)
class Whitening:
    """A change of columns that makes the columns of the rows orthonormal."""

    # ``(d, r)`` float64; the columns of ``A @ transform`` are orthonormal (shorter with a ridge)
    transform: Array
    # Ratio of the rounding error of a typical entry of ``A @ transform`` to that of an entry of
    # ``A``
    amplification: float

    @property
    def rank(self) -> int:
        """Number of linearly independent columns."""
        return int(self.transform.shape[1])

    @property
    def fits_float32(self) -> bool:
        """Whether the entries of the transform, and products with it, fit into float32."""
        if 0 in self.transform.shape:
            return True
        xp = namespace(self.transform)
        return bool(xp.max(xp.abs(self.transform)) < 1e30)

    @property
    def allows_float32(self) -> bool:
        """Whether float32 products have errors of at most 1e-6 in most rows and 1e-5 in any."""
        return self.amplification < 20 and self.fits_float32


def leverage_scores(
    A: ArrayOrShards, *, ridge: float = 0.0, rtol: float | None = None, double: bool = False
) -> Floats:
    r"""Leverage of every row, ``(n,)``, in the order of the blocks.

    Args:
        A: ``(n, d)`` array, or shards with ``features``. Zero rows (score 0), dependent columns
            and ``n < d`` are supported.
        ridge: :math:`\lambda \ge 0` in :math:`a_i^\top (A^\top A + \lambda I)^{-1} a_i`.
        rtol: singular values up to this fraction of the largest count as zero. The default
            depends on the precision of the rows: ``max(n, d)`` times 2.2e-16 for float64, 1e-6 for
            float32, 1e-3 for float16, 3e-3 for bfloat16. Give one of the latter for float32 rows
            that were computed in half precision.
        double: multiply in float64 even where float32 suffices, so that the scores of float32
            rows depend on the split into blocks by less than about 1e-9 (instead of 1e-6).

    Example:
        >>> import numpy as np
        >>> A = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
        >>> leverage_scores(A).round(6) + 0.0  # two copies share a direction, one row has its own
        array([0.5, 0.5, 1. , 0. ])
    """
    shards = as_shards(A, "A")
    if not len(shards):
        return np.empty(0)
    placement = find_placement(shards)
    basis = whiten(shards, read_features, rtol=rtol, ridge=ridge, placement=placement)
    return compute_leverage(shards, read_features, basis, double=double)


def compute_leverage(
    shards: Shards, read: RowReader, basis: Whitening, *, double: bool = False
) -> Floats:
    """``|a_i T|^2`` of every row, ``(n,)``, clipped to [0, 1].

    Float32 rows are multiplied in float32, unless ``double`` is set or `Whitening` forbids it.
    """
    double = double or not basis.allows_float32
    scores = np.concatenate(shards.map(compute_block_leverage, read, basis.transform, double))
    return np.clip(scores, 0.0, 1.0, out=scores)


def compute_block_leverage(shard: Shard, read: RowReader, transform: Array, double: bool) -> Floats:
    """``|a_i T|^2`` for the rows of one block, ``(n,)``."""
    out = np.empty(len(shard))
    for start, product in multiply_chunks(read(shard.rows), transform, double=double):
        out[start : start + len(product)] = squared_row_lengths(product)
    return out


@dataclass(frozen=True)
class MatrixSum:
    """A matrix summed over rows, with the coarsest precision among them."""

    matrix: Array
    precision: float

    def __add__(self, other: "MatrixSum") -> "MatrixSum":
        return MatrixSum(self.matrix + other.matrix, max(self.precision, other.precision))


@dataclass(frozen=True)
class QrFactor:
    """The factor ``R`` of a QR factorization of some rows; adding factors the rows of both."""

    matrix: Floats
    precision: float

    def __add__(self, other: "QrFactor") -> "QrFactor":
        factor = _factor_stacked_rows(self.matrix, other.matrix)
        return QrFactor(factor, max(self.precision, other.precision))


def _factor_stacked_rows(above: Floats, below: Floats) -> Floats:
    """The factor ``R`` of two matrices, one on top of the other."""
    factor = np.linalg.qr(np.concatenate([above, below]), mode="r")
    return np.asarray(factor)


def sum_gram(shard: Shard, read: RowReader, n: int, placement: Array) -> "MatrixSum | QrFactor":
    """The Gram matrix of a block; with fewer rows than columns ``R``, which is smaller."""
    rows = read(shard.rows)
    if n <= rows.shape[1]:
        return _factor_block_by_qr(shard, read)
    xp, d = namespace(rows), rows.shape[1]
    total = xp.zeros((d, d), dtype=xp.float64, device=device(rows))
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is detected by the caller
        for _, chunk in iterate_row_chunks(rows, double=True):
            total += xp.matrix_transpose(chunk) @ chunk
    return MatrixSum(bring(total, placement), precision(rows))


def _factor_block_by_qr(shard: Shard, read: RowReader) -> QrFactor:
    rows = read(shard.rows)
    d = rows.shape[1]
    factor = np.empty((0, d))
    size = max(4 * d, CHUNK // max(1, d))
    for start, part in iterate_row_chunks(rows, double=True, size=size):
        chunk = to_numpy(part)
        wrong = ~np.isfinite(chunk).all(axis=1)
        if wrong.any():
            item = shard.ids[start + int(wrong.argmax())]
            raise BadInput(f"the row of item {item} holds NaN or infinity; leave it out")
        factor = _factor_stacked_rows(factor, chunk)
    return QrFactor(factor, precision(rows))


def whiten(
    shards: Shards,
    read: RowReader,
    *,
    rtol: float | None = None,
    ridge: float = 0.0,
    principal: bool = False,
    placement: Array | None = None,
) -> Whitening:
    """Find ``T`` such that the columns of ``A T`` are orthonormal.

    ``principal`` requires the columns of ``T`` to be the principal directions of the rows (with
    columns of unit length), largest variance first. ``placement`` is an empty float64 array on the
    device for ``T``; the host if None.
    """
    if not (np.isfinite(ridge) and ridge >= 0):
        raise BadInput(f"ridge must be zero or a positive number; got {ridge}")
    if rtol is not None and not (isinstance(rtol, int | float) and 0 <= rtol < 1):
        raise BadInput(f"rtol must be in [0, 1); got {rtol}")
    n, placement = len(shards), np.empty(0) if placement is None else placement
    part: MatrixSum | QrFactor = shards.sum(sum_gram, read, n, placement)
    found: Whitening | None = None
    if isinstance(part, MatrixSum):
        if ridge == 0 and not principal:
            found = _whiten_by_cholesky(part, _choose_rank_tolerance(part, n, rtol))
        found = found or _whiten_by_eigenvalues(part, _choose_rank_tolerance(part, n, rtol), ridge)
    if found is None:
        part = part if isinstance(part, QrFactor) else shards.sum(_factor_block_by_qr, read)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            found = _whiten_by_svd(part, _choose_rank_tolerance(part, n, rtol), ridge)
        if not np.isfinite(found.transform).all():
            raise BadInput(
                "features are so small that their inverse is beyond what float64 can hold; "
                "multiply all features by a number that brings them near 1"
            )
    return replace(found, transform=bring(found.transform, placement))


def _choose_rank_tolerance(part: "MatrixSum | QrFactor", n: int, rtol: float | None) -> float:
    return rank_tolerance(part.precision, n, part.matrix.shape[1]) if rtol is None else rtol


def rank_tolerance(precision: float, n: int, d: int) -> float:
    """The default rank tolerance, from the precision of the features."""
    if precision < 1e-12:
        return max(n, d) * precision
    if precision < 1e-5:
        return 1e-6
    return 1e-3 if precision < 2e-3 else 3e-3  # bfloat16 leaves spurious directions at 1e-3


def _whiten_by_cholesky(part: MatrixSum, rtol: float) -> Whitening | None:
    r"""The whitening of clearly independent columns, or None if independence is not certain.

    With the Gram matrix of unit columns :math:`G = L L^\top` it is :math:`L^{-\top}`, in a tenth of
    the time of an eigendecomposition, and unique. All eigenvalues are at least
    :math:`1 / \lVert L^{-1} \rVert_F^2` and at most the largest row sum.
    """
    gram, d = part.matrix, part.matrix.shape[0]
    if not d:
        return None
    xp = namespace(gram)
    squares = xp.linalg.diagonal(gram)
    with np.errstate(over="ignore", invalid="ignore"):  # non-finite values fail the test below
        scale = xp.sqrt(xp.where(squares > 0, squares, xp.ones_like(squares)))
        gram = gram / scale[:, None] / scale
        try:
            inverse = invert_triangle(xp.linalg.cholesky(gram))
        except (np.linalg.LinAlgError, RuntimeError):  # NumPy's and torch's error
            return None
        sums = xp.max(xp.sum(xp.abs(gram), axis=1))
        facts = xp.stack([xp.sum(inverse * inverse), sums, xp.min(squares)])
    size, most, least = to_numpy(facts).tolist()  # one transfer from a GPU
    underflow = part.precision < 1e-12 and least < _SMALLEST_SQUARE
    if underflow or not max(_smallest_accurate_eigenvalue(part), rtol**2) * most * size < 1:
        return None
    growth = np.sqrt(size / d)  # the trace of the scaled matrix is d
    return Whitening(xp.matrix_transpose(inverse) / scale[:, None], float(growth))


def invert_triangle(factor: Array) -> Array:
    """The inverse of a lower triangular matrix, which the array API does not offer."""
    if isinstance(factor, np.ndarray):
        # NumPy and SciPy use separate BLAS thread pools; alternating makes them compete for cores.
        return np.linalg.inv(factor)
    xp = namespace(factor)
    unit = xp.eye(factor.shape[0], dtype=factor.dtype, device=device(factor))
    return xp.linalg.solve_triangular(factor, unit, upper=False)


def _smallest_accurate_eigenvalue(part: MatrixSum) -> float:
    """The smallest accurate eigenvalue of a Gram matrix, as a fraction of the largest."""
    return 1e-4 if part.precision < 1e-12 else 1e-8


def _whiten_by_eigenvalues(part: MatrixSum, rtol: float, ridge: float) -> Whitening | None:
    """The whitening from the eigenvalues of a Gram matrix, or None if they are inaccurate."""
    gram, d = to_numpy(part.matrix), part.matrix.shape[0]
    fine = part.precision < 1e-12
    diagonal = np.diagonal(gram)
    if not np.isfinite(gram).all() or (fine and diagonal.min(initial=1.0) < _SMALLEST_SQUARE):
        return None
    scale = np.sqrt(diagonal) if ridge == 0 else np.ones(d)
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(gram / scale[:, None] / scale)
    values, vectors = np.clip(values[::-1], 0.0, None), vectors[:, ::-1]
    shifted = values + ridge
    accurate = shifted >= _smallest_accurate_eigenvalue(part) * shifted[:1]
    surely_zero = (values <= rtol**2 * values[:1]) & (rtol**2 > _GRAM_NOISE)
    if not (accurate | surely_zero).all():
        return None
    return _build_whitening(np.sqrt(values), vectors, scale, rtol, ridge)


def _whiten_by_svd(part: QrFactor, rtol: float, ridge: float) -> Whitening:
    factor, d = part.matrix, part.matrix.shape[1]
    scale = np.ones(d)
    if ridge == 0:
        # Divide by the largest entry first: squares of extreme entries would over- or underflow.
        largest = np.max(np.abs(factor), axis=0, initial=0.0)
        largest = np.where(largest > 0, largest, 1.0)
        scale = largest * np.linalg.norm(factor / largest, axis=0)
        scale = np.where(scale > 0, scale, 1.0)
    _, values, vectors = np.linalg.svd(factor / scale, full_matrices=False)
    return _build_whitening(values, vectors.T, scale, rtol, ridge)


def _build_whitening(
    values: Floats, vectors: Floats, scale: Floats, rtol: float, ridge: float
) -> Whitening:
    """The whitening from singular values and right singular vectors of the scaled rows."""
    kept = values > rtol * np.max(values, initial=0.0)
    length = np.sqrt(np.sum(values**2))
    values = values[kept]
    inverse = 1 / np.sqrt(values**2 + ridge)
    size = max(1.0, float(np.sum((values * inverse) ** 2)))
    growth = length * np.sqrt(np.sum(inverse**2)) / size
    return Whitening(vectors[:, kept] * inverse / scale[:, None], float(growth))
