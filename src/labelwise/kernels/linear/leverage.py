r"""Leverage scores and orthonormal bases of rows that are only seen block by block.

The leverage of row :math:`a_i` of the ``(n, d)`` matrix :math:`A` is

.. math:: \tau_i = a_i^\top (A^\top A)^+ a_i = \lVert a_i T \rVert^2 ,

with :math:`T` such that the columns of :math:`A T` are orthonormal. Scores lie in [0, 1], add up to
the rank of :math:`A`, and do not change when :math:`A` is multiplied from the right by an
invertible matrix; therefore columns are scaled to unit length before the rank is judged.

:math:`T` comes from the Gram matrix, added up over blocks in float64, where its eigenvalues say
that the answer is good. Squaring loses half of the digits, so otherwise it comes from a second
pass, a QR factorization of one block after the other.

Sums and :math:`T` stay where the work is done (`labelwise.arrays.workplace`): on a GPU two small
answers are waited for, and the scores.

Cost: two passes over the rows, ``O(n d^2)``, and ``O(d^2)`` memory besides a piece of a block.

Reference: J. Demmel, L. Grigori, M. Hoemmen, J. Langou, "Communication-optimal parallel and
sequential QR and LU factorizations", SIAM Journal on Scientific Computing, 2012.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labelwise.arrays import (
    Array,
    Floats,
    bring,
    device,
    namespace,
    precision,
    to_numpy,
)
from labelwise.errors import BadInput
from labelwise.kernels.linear.row_parts import PIECE, lengths, pieces, products
from labelwise.kernels.placement import find_placement
from labelwise.pool.blocks import Shard, Shards, as_shards
from labelwise.pool.rows import Rows

Read = Callable[[Rows], Array]
"""Makes the ``(n, d)`` array of a block from its representations."""

_GRAM_NOISE = 1e-13
"""Eigenvalues of a Gram matrix with unit diagonal say nothing below this."""

_TINY = 1e-250
"""Squares of float64 numbers below this have lost digits, or are zero though the number is not."""


@dataclass(frozen=True)
class Whitening:
    """A change of columns that makes the rows' columns orthonormal.

    Attributes:
        transform: ``(d, r)`` float64; the columns of ``A @ transform`` are orthonormal (shorter
            where a ridge was given). On the host, or where it was wanted.
        amplification: how many times larger than a number's own rounding error the error of a
            typical number of ``A @ transform`` is.
    """

    transform: Array
    amplification: float

    @property
    def rank(self) -> int:
        """How many independent columns were found."""
        return int(self.transform.shape[1])

    @property
    def narrow(self) -> bool:
        """Whether the numbers of the transform, and products with it, fit into float32."""
        if 0 in self.transform.shape:
            return True
        xp = namespace(self.transform)
        return bool(xp.max(xp.abs(self.transform)) < 1e30)

    @property
    def single(self) -> bool:
        """Whether products in float32 leave errors of at most 1e-6 at most rows, 1e-5 at any."""
        return self.amplification < 20 and self.narrow


def read_features(rows: Rows, model: int | None = None) -> Array:
    """The ``(n, d)`` features of a block; those of one model where there are several."""
    features = rows["features"]
    if not isinstance(features, list | tuple):
        return features
    if model is None:
        raise BadInput(f"features holds {len(features)} models; give the array of one of them")
    return features[model]


def leverage_scores(
    A: Any, *, ridge: float = 0.0, rtol: float | None = None, double: bool = False
) -> Floats:
    r"""Leverage of every row, ``(n,)``, in the order of the blocks.

    Args:
        A: ``(n, d)`` array, or shards with ``features``. Zero rows (score 0), dependent columns
            and ``n < d`` are all fine.
        ridge: :math:`\lambda \ge 0` in :math:`a_i^\top (A^\top A + \lambda I)^{-1} a_i`.
        rtol: singular values up to this fraction of the largest count as zero. By default it
            follows the precision of the rows: ``max(n, d)`` times 2.2e-16 for float64, 1e-6 for
            float32, 1e-3 for float16, 3e-3 for bfloat16. Give one of the latter for float32 rows
            that were computed in half precision.
        double: multiply in float64 even where float32 would do, so that the scores of float32
            rows depend on the split into blocks by less than about 1e-9 (else 1e-6).

    Example:
        >>> import numpy as np
        >>> A = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
        >>> leverage_scores(A).round(6) + 0.0  # two copies share a direction, one row has its own
        array([0.5, 0.5, 1. , 0. ])
    """
    shards = as_shards(A, "A")
    if not len(shards):
        return np.empty(0)
    place = find_placement(shards)
    basis = whiten(shards, read_features, rtol=rtol, ridge=ridge, place=place)
    return project(shards, read_features, basis, double=double)


def project(shards: Shards, read: Read, basis: Whitening, *, double: bool = False) -> Floats:
    """``|a_i T|^2`` of every row, ``(n,)``, between 0 and 1.

    Float32 rows are multiplied in float32, unless ``double`` is set or the `Whitening` forbids it.
    """
    parts = shards.map(project_block, read, basis.transform, double or not basis.single)
    scores = np.concatenate(parts)
    return np.clip(scores, 0.0, 1.0, out=scores)


def project_block(shard: Shard, read: Read, transform: Array, double: bool) -> Floats:
    """``|a_i T|^2`` for the rows of one block, ``(n,)``."""
    out = np.empty(len(shard))
    for start, product in products(read(shard.rows), transform, double=double):
        out[start : start + len(product)] = lengths(product)
    return out


@dataclass(frozen=True)
class Sum:
    """A matrix added up over rows, with the coarsest precision among them."""

    matrix: Array
    precision: float

    def __add__(self, other: "Sum") -> "Sum":
        return Sum(self.matrix + other.matrix, max(self.precision, other.precision))


def _gram(shard: Shard, read: Read, n: int, place: Array) -> "Sum | _Triangle":
    """The Gram matrix of a block; if all ``n`` rows are fewer than columns, ``R`` is smaller."""
    rows = read(shard.rows)
    if n <= rows.shape[1]:
        return _triangle(shard, read)
    xp, d = namespace(rows), rows.shape[1]
    total = xp.zeros((d, d), dtype=xp.float64, device=device(rows))
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite sum is seen and done again
        for _, piece in pieces(rows, double=True):
            total += xp.matrix_transpose(piece) @ piece
    return Sum(bring(total, place), precision(rows))


@dataclass(frozen=True)
class _Triangle:
    """The factor ``R`` of a QR factorization of some rows; adding factors the rows of both."""

    matrix: Floats
    precision: float

    def __add__(self, other: "_Triangle") -> "_Triangle":
        factor = _stack(self.matrix, other.matrix)
        return _Triangle(factor, max(self.precision, other.precision))


def _stack(above: Floats, below: Floats) -> Floats:
    """The factor ``R`` of two matrices, one on top of the other."""
    factor: Any = np.linalg.qr(np.concatenate([above, below]), mode="r")
    return np.asarray(factor)


def _triangle(shard: Shard, read: Read) -> _Triangle:
    rows = read(shard.rows)
    d = rows.shape[1]
    factor = np.empty((0, d))
    size = max(4 * d, PIECE // max(1, d))
    for start, part in pieces(rows, double=True, size=size):
        piece = to_numpy(part)
        wrong = ~np.isfinite(piece).all(axis=1)
        if wrong.any():
            item = shard.ids[start + int(wrong.argmax())]
            raise BadInput(f"the row of item {item} holds NaN or infinity; leave it out")
        factor = _stack(factor, piece)
    return _Triangle(factor, precision(rows))


def whiten(
    shards: Shards,
    read: Read,
    *,
    rtol: float | None = None,
    ridge: float = 0.0,
    principal: bool = False,
    place: Array | None = None,
) -> Whitening:
    """Find ``T`` so that the columns of ``A T`` are orthonormal.

    Args:
        shards: the blocks.
        read: gives the ``(n, d)`` array of a block; a function of a module, or a partial of one.
        rtol: as in `leverage_scores`.
        ridge: as in `leverage_scores`.
        principal: whether the columns of ``T`` must be the principal directions, the one along
            which the rows (with columns of unit length) spread most first. Else they may be any.
        place: an empty float64 array where ``T`` is wanted (`labelwise.arrays.workplace`); on the
            host if None.
    """
    if not (np.isfinite(ridge) and ridge >= 0):
        raise BadInput(f"ridge must be zero or a positive number; got {ridge}")
    if rtol is not None and not 0 <= rtol < 1:
        raise BadInput(f"rtol must be in [0, 1); got {rtol}")
    n, place = len(shards), np.empty(0) if place is None else place
    part: Sum | _Triangle = shards.sum(_gram, read, n, place)
    found: Whitening | None = None
    if isinstance(part, Sum):
        if ridge == 0 and not principal:
            found = _from_cholesky(part, _tolerance(part, n, rtol))
        found = found or _from_gram(part, _tolerance(part, n, rtol), ridge)
    if found is None:
        part = part if isinstance(part, _Triangle) else shards.sum(_triangle, read)
        found = _from_triangle(part, _tolerance(part, n, rtol), ridge)
    return replace(found, transform=bring(found.transform, place))


def _tolerance(part: "Sum | _Triangle", n: int, rtol: float | None) -> float:
    return rank_tolerance(part.precision, n, part.matrix.shape[1]) if rtol is None else rtol


def rank_tolerance(precision: float, n: int, d: int) -> float:
    """The default rank tolerance: the precision of the features decides, not that of the sums."""
    if precision < 1e-12:
        return max(n, d) * precision
    if precision < 1e-5:
        return 1e-6
    return 1e-3 if precision < 2e-3 else 3e-3  # bfloat16 leaves spurious directions at 1e-3


def _from_cholesky(part: Sum, rtol: float) -> Whitening | None:
    r"""The whitening of columns that are surely independent, or None if that is not sure.

    With the Gram matrix of columns of unit length :math:`G = L L^\top` it is :math:`L^{-\top}`,
    which takes a tenth of the time of the eigenvectors and, unlike those, is the only one of its
    form. No eigenvalue is below :math:`1 / \lVert L^{-1} \rVert_F^2`, none is above the largest
    sum of a row. Made where the Gram matrix is.
    """
    gram, d = part.matrix, part.matrix.shape[0]
    if not d:
        return None
    xp: Any = namespace(gram)
    squares = xp.linalg.diagonal(gram)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite fails below
        scale = xp.sqrt(xp.where(squares > 0, squares, xp.ones_like(squares)))
        gram = gram / scale[:, None] / scale
        try:
            inverse = triangle_inverse(xp.linalg.cholesky(gram))
        except (np.linalg.LinAlgError, RuntimeError):  # the second is torch's
            return None
        sums = xp.max(xp.sum(xp.abs(gram), axis=1))
        facts = xp.stack([xp.sum(inverse * inverse), sums, xp.min(squares)])
    size, most, least = to_numpy(facts).tolist()  # one wait for all of them
    tiny = part.precision < 1e-12 and least < _TINY
    if tiny or not max(_floor(part), rtol**2) * most * size < 1:
        return None
    growth = np.sqrt(size / d)  # the diagonal of the scaled matrix adds up to d
    return Whitening(xp.matrix_transpose(inverse) / scale[:, None], float(growth))


def triangle_inverse(factor: Array) -> Array:
    """The inverse of a lower triangular matrix, for which the array API has no word."""
    if isinstance(factor, np.ndarray):
        # NumPy and SciPy bring a BLAS each; using both in turn, their threads fight for the cores.
        return np.linalg.inv(factor)
    xp: Any = namespace(factor)
    unit = xp.eye(factor.shape[0], dtype=factor.dtype, device=device(factor))
    return xp.linalg.solve_triangular(factor, unit, upper=False)


def _floor(part: Sum) -> float:
    """The smallest eigenvalue, as a fraction of the largest, that a Gram matrix tells well."""
    return 1e-4 if part.precision < 1e-12 else 1e-8


def _from_gram(part: Sum, rtol: float, ridge: float) -> Whitening | None:
    """The whitening that the eigenvalues of a Gram matrix give, or None if its rounding shows."""
    gram, d = to_numpy(part.matrix), part.matrix.shape[0]
    fine = part.precision < 1e-12
    if not np.isfinite(gram).all() or (fine and np.diagonal(gram).min(initial=1.0) < _TINY):
        return None
    scale = np.sqrt(np.diagonal(gram)) if ridge == 0 else np.ones(d)
    scale = np.where(scale > 0, scale, 1.0)
    gram = gram / scale[:, None] / scale
    values, vectors = np.linalg.eigh(gram)
    values, vectors = np.clip(values[::-1], 0.0, None), vectors[:, ::-1]
    shifted = values + ridge
    accurate = shifted >= _floor(part) * shifted[:1]
    surely_zero = (values <= rtol**2 * values[:1]) & (rtol**2 > _GRAM_NOISE)
    if not (accurate | surely_zero).all():
        return None
    return _assemble(np.sqrt(values), vectors, scale, rtol, ridge)


def _from_triangle(part: _Triangle, rtol: float, ridge: float) -> Whitening:
    factor, d = part.matrix, part.matrix.shape[1]
    scale = np.ones(d)
    if ridge == 0:
        largest = np.max(np.abs(factor), axis=0, initial=0.0)
        largest = np.where(largest > 0, largest, 1.0)
        scale = largest * np.linalg.norm(factor / largest, axis=0)
        scale = np.where(scale > 0, scale, 1.0)
    _, values, vectors = np.linalg.svd(factor / scale, full_matrices=False)
    return _assemble(values, vectors.T, scale, rtol, ridge)


def _assemble(
    values: Floats, vectors: Floats, scale: Floats, rtol: float, ridge: float
) -> Whitening:
    kept = values > rtol * np.max(values, initial=0.0)
    length = np.sqrt(np.sum(values**2))
    values = values[kept]
    inverse = 1 / np.sqrt(values**2 + ridge)
    size = max(1.0, float(np.sum((values * inverse) ** 2)))
    growth = length * np.sqrt(np.sum(inverse**2)) / size
    return Whitening(vectors[:, kept] * inverse / scale[:, None], float(growth))
