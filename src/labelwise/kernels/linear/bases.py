r"""Columns of a linear model, made from the features of one block at a time.

=================  =============================================================================
features           the features themselves
`PolynomialBasis`  all monomials of degree 1 to p in the standardized features
`FourierBasis`     :math:`\sqrt{2/m} \cos(\omega_j \cdot x + b_j)`, for a Gaussian kernel
=================  =============================================================================

`ModelColumns` joins the features of several models, applies a basis and adds a constant column;
kernels take it as ``read``. Columns have the precision of the features, since that determines
the rank. `SubdividedShards` splits blocks, so that the columns of one block fit in memory.

Reference: A. Rahimi, B. Recht, "Random Features for Large-Scale Kernel Machines", NeurIPS 2007.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import TypeVar

import numpy as np

from labelwise.arrays import Array, Floats, Ids, float64, like, namespace, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.checks import check_integer
from labelwise.pool.blocks import LocalShards, Shard, Shards
from labelwise.pool.rows import Rows, cut_rows
from labelwise.threads import split_range

MOST_COLUMNS = 4096  # Maximum number of columns: whitening needs their square in memory
CHUNK = 4096  # Maximum rows of a block whose columns are made at a time
T = TypeVar("T")


def join_model_features(rows: Rows) -> Array:
    """The ``(n, d)`` features of a block, those of several models side by side."""
    features = rows["features"]
    if not isinstance(features, list | tuple):
        return features
    return namespace(*features).concat(list(features), axis=1)


@dataclass(frozen=True)
class PolynomialBasis:
    """All monomials of degree 1 to ``degree`` in ``(x - shift) * factor``."""

    degree: int
    shift: Floats
    factor: Floats

    def __call__(self, features: Array) -> Array:
        """The monomials of ``(n, d)`` features, ``(n, C(d + degree, degree) - 1)``."""
        rows = float64(features)
        xp = namespace(rows)
        rows = (rows - like(self.shift, rows)) * like(self.factor, rows)
        # groups[j]: the monomials of one degree whose first variable is j
        groups = [rows[:, j : j + 1] for j in range(rows.shape[1])]
        columns = [rows]
        for _ in range(self.degree - 1):
            groups = [
                rows[:, j : j + 1] * xp.concat(groups[j:], axis=1) for j in range(len(groups))
            ]
            columns += groups
        return _match_feature_precision(xp.concat(columns, axis=1), features)


@dataclass(frozen=True)
class FourierBasis:
    """Random cosines; ``frequencies`` is ``(d, m)`` and ``phases`` ``(m,)``."""

    frequencies: Floats
    phases: Floats

    def __call__(self, features: Array) -> Array:
        """The cosines of ``(n, d)`` features, ``(n, m)``."""
        rows = float64(features)
        angles = rows @ like(self.frequencies, rows) + like(self.phases, rows)
        cosines = namespace(rows).cos(angles) * float(np.sqrt(2 / len(self.phases)))
        return _match_feature_precision(cosines, features)


@dataclass(frozen=True)
class ModelColumns:
    """Reads the features of a block, applies ``basis`` if given, and adds a constant column."""

    basis: PolynomialBasis | FourierBasis | None = None
    bias: bool = False

    def __call__(self, rows: Rows) -> Array:
        """The ``(n, p)`` columns of a block."""
        features = join_model_features(rows)
        columns = features if self.basis is None else self.basis(features)
        if not self.bias:
            return columns
        xp = namespace(columns)
        return xp.concat([columns, xp.ones_like(columns[:, :1])], axis=1)


class SubdividedShards:
    """The same rows in blocks of at most `CHUNK` rows; a `labelwise.pool.blocks.Shards`."""

    def __init__(self, shards: Shards) -> None:
        """Split every block in place; no rows move."""
        self._shards = shards
        self.rows = shards.rows
        self.progress = shards.progress

    @property
    def ids(self) -> Ids:
        """``(n,)`` ids of all rows, block after block."""
        return self._shards.ids

    def __len__(self) -> int:
        return len(self._shards)

    def map(self, function: Callable[..., T], *arguments: object) -> list[T]:
        """``function(shard, *arguments)`` for every small block."""
        parts = self._shards.map(lambda shard: _subdivide_block(shard).map(function, *arguments))
        return [result for part in parts for result in part]

    def sum(self, function: Callable[..., T], *arguments: object) -> T:
        """The sum of the results of `map`, first within each block."""
        return self._shards.sum(lambda shard: _subdivide_block(shard).sum(function, *arguments))


def _subdivide_block(shard: Shard) -> LocalShards:
    ids = shard.ids  # computed once: row numbers are not stored
    parts = split_range(len(shard), CHUNK)
    pieces = zip(parts, cut_rows(shard.rows, parts), strict=True)
    return LocalShards(Shard(ids[part], rows) for part, rows in pieces)


def _match_feature_precision(columns: Array, features: Array) -> Array:
    """Columns in the precision of the features; float64 for integers."""
    xp = namespace(features)
    if not xp.isdtype(features.dtype, "real floating"):
        return columns
    return xp.astype(columns, features.dtype, copy=False)


def check_polynomial_basis(degree: int, width: int) -> None:
    """Reject a degree below 1, or one that gives too many monomials of ``width`` features."""
    check_integer("degree", degree, 1)
    columns = comb(width + degree, degree) - 1
    if columns > MOST_COLUMNS:
        raise BadInput(
            f"monomials of {width} features up to degree {degree} are {columns} columns, more "
            f"than {MOST_COLUMNS}; lower the degree or use basis='fourier'"
        )


def check_fourier_basis(count: int, length_scale: float | None) -> None:
    """Reject a number of frequencies or a length scale out of range."""
    check_integer("frequencies", count, 1)
    if count > MOST_COLUMNS:
        raise BadInput(f"frequencies must be at most {MOST_COLUMNS}; got {count}")
    if length_scale is not None and not (np.isfinite(length_scale) and length_scale > 0):
        raise BadInput(f"length_scale must be a positive number; got {length_scale}")


def make_polynomial_basis(shards: Shards, degree: int, *, centred: bool) -> PolynomialBasis:
    """The monomials of the pool's features, standardized so that powers keep their digits.

    Two passes measure mean and standard deviation of every column. ``centred`` subtracts the mean;
    with a constant column the span stays the same.
    """
    check_integer("degree", degree, 1)
    mean, spread, noise = _measure_feature_moments(shards)
    check_polynomial_basis(degree, len(mean))
    size = np.hypot(mean, spread)
    if not centred:
        mean, spread = np.zeros_like(mean), size
    # A constant column minus its mean is rounding noise, which must not become a direction.
    steady = spread <= noise * size
    factor = np.where(steady, 0.0, 1 / np.where(steady, 1.0, spread))
    return PolynomialBasis(degree, mean, factor)


def make_fourier_basis(
    shards: Shards, count: int, *, length_scale: float | None = None, seed: int = 0
) -> FourierBasis:
    """Random features of the kernel ``exp(-|x - y|^2 / (2 length_scale^2))``.

    By default ``length_scale`` is the square root of the features' total variance, a typical
    distance of two items divided by the square root of 2.
    """
    check_fourier_basis(count, length_scale)
    mean, spread, _ = _measure_feature_moments(shards)
    length = length_scale or float(np.linalg.norm(spread)) or 1.0
    generator = np.random.default_rng([seed % 2**64, 0xF0])
    frequencies = generator.standard_normal((len(mean), count)) / length
    phases = generator.uniform(0, 2 * np.pi, count)
    return FourierBasis(frequencies, phases - mean @ frequencies)


def _measure_feature_moments(shards: Shards) -> tuple[Floats, Floats, float]:
    """Mean and standard deviation of every feature, and the noise relative to its size."""
    total, noise = shards.sum(_sum_features), max(shards.map(_measure_relative_noise))
    mean = total / len(shards)
    return mean, np.sqrt(shards.sum(_sum_squared_deviations, mean) / len(shards)), noise


def _sum_features(shard: Shard) -> Floats:
    features = float64(join_model_features(shard.rows))
    return to_numpy(namespace(features).sum(features, axis=0))


def _sum_squared_deviations(shard: Shard, mean: Floats) -> Floats:
    features = float64(join_model_features(shard.rows))
    return to_numpy(namespace(features).sum((features - like(mean, features)) ** 2, axis=0))


def _measure_relative_noise(shard: Shard) -> float:
    """Relative difference of equal numbers by a few roundings."""
    features = join_model_features(shard.rows)
    xp = namespace(features)
    if not xp.isdtype(features.dtype, "real floating"):
        return 1e-13
    return max(1e-13, 8 * float(xp.finfo(features.dtype).eps))
