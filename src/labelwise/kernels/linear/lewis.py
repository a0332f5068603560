r"""Lewis weights of rows that are only seen block by block, for every p > 0.

The Lewis weights of the rows :math:`a_i` of :math:`A` are the one solution of

.. math:: w_i = \bigl( a_i^\top (A^\top W^{1-2/p} A)^+ a_i \bigr)^{p/2} .

They lie in [0, 1], add up to the rank of :math:`A`, are zero for zero rows only, and are the
leverage scores for p = 2. With :math:`y = \log w` and :math:`F(y)` the logarithm of the right-hand
side, the iteration is :math:`y \leftarrow (1-\theta) y + \theta F(y)`. Near the solution the
derivative of :math:`F` has its eigenvalues between 0 and :math:`1 - p/2`, so that
:math:`\theta = 4/(p+2)` shrinks the error fastest, by :math:`|p-2|/(p+2)` a round; the undamped
iteration (:math:`\theta = 1`) does not converge for :math:`p \ge 4`. Should the residual grow or
stall all the same, :math:`\theta` becomes :math:`\min(1, 2/p)`, which converges from anywhere.

The next Gram matrix is taken of rows that the last one has whitened. It is close to the identity
once the weights settle, and float32 products are then enough; they give way to float64 when they
no longer bring the residual down. On a GPU (`labelwise.arrays.workplace`) all of it stays there,
the logarithms beside their rows; the host waits for one number a round, the residual.

Cost: one pass per round, ``O(n d r)`` for rank ``r``, and one number per row beside the rows (two
for p > 2).

References: M. Cohen, R. Peng, "Lp row sampling by Lewis weights", STOC 2015; the damping is
derived here.
"""

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import (
    Array,
    Floats,
    bring,
    device,
    float64,
    like,
    namespace,
    squared_norms,
    to_numpy,
)
from labelwise.errors import BadInput, NotConverged
from labelwise.kernels.linear.leverage import (
    Read,
    Whitening,
    project_block,
    read_features,
    triangle_inverse,
    whiten,
)
from labelwise.kernels.linear.row_parts import lengths, products
from labelwise.kernels.placement import find_placement
from labelwise.pool.blocks import Shard, Shards, as_shards

WEIGHTS = "lewis_weights"
"""Where a block keeps its weights."""

_KEY = "lewis"

_LARGEST = np.log(1e6)


@dataclass(frozen=True, kw_only=True)
class LewisSettings:
    """How Lewis weights are computed.

    Attributes:
        p: the norm, any positive number.
        tol: the largest change of a ``log w`` at which the iteration has converged.
        max_iterations: how many rounds until it counts as failed.
        rtol: what counts as zero when the rank is judged, as in `leverage_scores`.
        double: multiply in float64 from the first round on, so that the weights of float32 rows
            depend on the split into blocks by less than about 1e-9 (else 1e-6).
        damping: the first theta; ``4 / (p + 2)`` if None.
    """

    p: float
    tol: float = 1e-6
    max_iterations: int = 500
    rtol: float | None = None
    double: bool = False
    damping: float | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.p, Real) and 0 < self.p < np.inf):
            raise BadInput(f"p must be a positive number; got {self.p!r}")
        if not (isinstance(self.tol, Real) and self.tol > 0):
            raise BadInput(f"tol must be a positive number; got {self.tol!r}")
        if self.max_iterations < 1:
            raise BadInput(f"max_iterations must be at least 1; got {self.max_iterations}")
        if self.damping is not None and not self.damping > 0:
            raise BadInput(f"damping must be positive; got {self.damping}")


@dataclass(frozen=True)
class LewisWeights:
    """Lewis weights and how they were reached.

    Attributes:
        weights: ``(n,)``, in the order of the blocks.
        iterations: passes after the rank was known; 0 where the answer needs none.
        residual: the largest ``|F(y) - y|`` of the last round.
        rank: of the rows, which is also what the weights add up to.
    """

    weights: Floats
    iterations: int
    residual: float
    rank: int


def lewis_weights(A: Any, p: float, tol: float = 1e-6, max_iterations: int = 500) -> Floats:
    """Lewis weight of every row, ``(n,)``, in the order of the blocks.

    Args:
        A: ``(n, d)`` array, or shards with ``features``. Zero rows (weight 0), dependent columns
            and ``n < d`` are all fine.
        p: the norm, any positive number.
        tol: the largest change of a ``log w`` at which the iteration has converged.
        max_iterations: how many rounds until it counts as failed, which is an error.

    Example:
        >>> import numpy as np
        >>> A = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
        >>> lewis_weights(A, 1).round(6)  # for p = 1 in proportion to the length, 1 to 3
        array([0.25, 0.75, 1.  ])
    """
    return iterate_lewis_weights(
        A, LewisSettings(p=p, tol=tol, max_iterations=max_iterations)
    ).weights


def iterate_lewis_weights(
    A: Any, settings: LewisSettings, read: Read = read_features
) -> LewisWeights:
    """Lewis weights with the number of rounds and the residual.

    Args:
        A: ``(n, d)`` array, or shards.
        settings: p, tolerances and precision.
        read: gives the ``(n, d)`` array of a block; by default its ``features``.
    """
    shards = as_shards(A, "A")
    if not len(shards):
        return LewisWeights(np.empty(0), 0, 0.0, 0)
    try:
        found = store_lewis_weights(shards, settings, read)
        weights = np.concatenate(shards.map(_weights))
    finally:
        shards.map(drop_lewis_weights)
    return replace(found, weights=weights)


def store_lewis_weights(
    shards: Shards, settings: LewisSettings, read: Read = read_features, place: Array | None = None
) -> LewisWeights:
    """Lewis weights that stay with the blocks, as ``shard.state[WEIGHTS]``, ``(n,)`` each.

    No array as long as the pool is made. The caller calls `drop_lewis_weights` in every block
    at the end; the weights of the answer are empty.

    Args:
        shards: the blocks, with one row or more.
        settings: p, tolerances and precision.
        read: gives the ``(n, d)`` array of a block; by default its ``features``.
        place: an empty float64 array where the work is done; `labelwise.arrays.workplace` if None.
    """
    n, none = len(shards), np.empty(0)
    place = find_placement(shards) if place is None else place
    basis = whiten(shards, read, rtol=settings.rtol, place=place)
    if basis.rank == n:  # no row depends on the others
        shards.map(_leave_ones)
        return LewisWeights(none, 0, 0.0, n)
    if settings.p == 2 or basis.rank == 0:
        double = settings.double or not basis.single
        shards.map(_leave_leverage, read, basis.transform, double)
        return LewisWeights(none, 0, 0.0, basis.rank)
    try:
        rounds, residual = _iterate(shards, read, settings, basis, place)
        total = sum(shards.map(_leave_powers))
    finally:
        shards.map(_forget_rounds)
    shards.map(_scale, basis.rank / total)  # for p < 2 the common factor converges slowest
    return LewisWeights(none, rounds, residual, basis.rank)


def _iterate(
    shards: Shards, read: Read, settings: LewisSettings, basis: Whitening, place: Array
) -> tuple[int, float]:
    """Run rounds until the residual is small enough; the weights stay with the blocks."""
    p, transform = settings.p, basis.transform
    level = float(np.log(basis.rank / len(shards)))
    theta = settings.damping or 4 / (p + 2)
    double = settings.double or not basis.narrow
    best, idle = np.inf, 0
    for number in range(1, settings.max_iterations + 1):
        step = _Step(p, theta, level, transform, double)
        moved: _Moved = shards.sum(_round, read, step, place)
        residual = float(moved.residual)
        if residual <= settings.tol:
            return number, residual
        if not np.isfinite(residual):
            break
        idle = 0 if residual < 0.99 * best else idle + 1
        if idle >= 4 or not residual <= 4 * best:
            theta = min(1.0, 2 / p)
        if idle >= 2 and not double:
            double, idle = True, 0
        best = min(best, residual)
        transform = transform @ _inverse_root(moved.gram)
    raise NotConverged(
        f"lewis weights for p={p:g} still change by {best:.1e} after {settings.max_iterations} "
        f"rounds; raise max_iterations, or tol (now {settings.tol:g})"
    )


def _inverse_root(gram: Array) -> Array:
    """``S`` with ``S^T G S = I``, ``(r, r)``; directions lost to rounding are held back."""
    xp: Any = namespace(gram)
    try:
        return xp.matrix_transpose(triangle_inverse(xp.linalg.cholesky(gram)))
    except (np.linalg.LinAlgError, RuntimeError):  # the second is torch's
        values, vectors = xp.linalg.eigh(gram)
        return vectors / xp.sqrt(xp.maximum(values, 1e-7 * values[-1]))


@dataclass(frozen=True)
class _Step:
    """What a block must know for one round.

    ``level`` is the first ``y``. Rows enter the Gram matrix with ``exp((1 - 2/p) (y - level))``;
    leaving out a common factor keeps that near 1.
    """

    p: float
    theta: float
    level: float
    transform: Array
    double: bool


@dataclass(frozen=True)
class _Moved:
    """What one round gives: the Gram matrix at the new ``y`` and the residual at the old one."""

    gram: Array
    residual: Array

    def __add__(self, other: "_Moved") -> "_Moved":
        larger = namespace(self.gram).maximum(self.residual, other.residual)
        return _Moved(self.gram + other.gram, larger)


def _round(shard: Shard, read: Read, step: _Step, place: Array) -> _Moved:
    """Move ``y`` to ``(1 - theta) y + theta F(y)`` and add up the Gram matrix there."""
    block, there = read(shard.rows), not isinstance(place, np.ndarray)
    empty = block[:0, 0] if there else place  # the (n,) numbers are beside it
    xp, kind = namespace(empty), {"dtype": namespace(empty).float64, "device": device(empty)}
    n, rank = len(shard), step.transform.shape[1]
    before = shard.state[_KEY][0] if _KEY in shard.state else xp.full((n,), step.level, **kind)
    after = xp.empty((n,), **kind)
    powers = xp.empty((n,), **kind) if step.p > 2 else after
    residual = xp.zeros((), **kind)
    gram = namespace(block).zeros(
        (rank, rank), dtype=namespace(block).float64, device=device(block)
    )
    for start, rows in products(block, step.transform, double=step.double):
        part = slice(start, start + rows.shape[0])
        squares = squared_norms(float64(rows)) if there else lengths(rows)
        moved = _moved(squares, before[part], step)
        after[part] = moved.y
        if step.p > 2:
            powers[part] = moved.power
        residual = xp.maximum(residual, moved.residual)
        rows *= like(moved.root, rows, dtype=rows.dtype)[:, None]
        gram += float64(namespace(rows).matrix_transpose(rows) @ rows)
    shard.state[_KEY] = (after, powers)
    return _Moved(bring(gram, place), bring(residual, place))


class _Rows(NamedTuple):
    """Of some rows: new ``y``, powers of ``w``, roots of what they count, the largest change."""

    y: Array
    power: Array | None
    root: Array
    residual: Array


def _moved(squares: Array, y: Array, step: _Step) -> _Rows:
    """What a round makes of rows of the given squared lengths; zero rows have ``y = -inf``.

    All of it as wholes: to pick out the rows that are not zero, a GPU would have to be waited for.
    """
    xp, power = namespace(squares), 1 - 2 / step.p
    some, none = squares != 0, xp.full_like(squares, -xp.inf)
    with np.errstate(divide="ignore", invalid="ignore"):  # of zero rows, left out below
        logs = xp.log(squares)
        goal = step.p / 2 * (logs - power * step.level)
        y = xp.where(xp.isfinite(y), y, goal)  # a row that was lost in float32 is back
        moved = xp.where(some, (1 - step.theta) * y + step.theta * goal, none)
        change = xp.where(some, xp.abs(goal - y), xp.zeros_like(y))
        powers = xp.where(some, power * y + 2 / step.p * goal, none) if step.p > 2 else None
        # c |z|^2 is w < 1 in the end; on the way it must not overflow
        exponent = xp.minimum(power * (moved - step.level), _LARGEST - logs)
        exponent = xp.minimum(exponent, xp.full_like(exponent, 170.0))
        root = xp.where(some, xp.exp(exponent / 2), xp.zeros_like(exponent))
    return _Rows(moved, powers, root, xp.max(change))


def _leave_powers(shard: Shard) -> float:
    """Leave the weights of a block after the last round, and return their sum.

    For p > 2 they are the leverage scores of the reweighted rows, which add up to the rank.
    """
    powers = to_numpy(shard.state.pop(_KEY)[1])
    shard.state[WEIGHTS] = np.exp(powers, out=powers)
    return float(powers.sum())


def _leave_leverage(shard: Shard, read: Read, transform: Array, double: bool) -> None:
    scores = project_block(shard, read, transform, double)
    shard.state[WEIGHTS] = np.clip(scores, 0.0, 1.0, out=scores)


def _leave_ones(shard: Shard) -> None:
    shard.state[WEIGHTS] = np.ones(len(shard))


def _scale(shard: Shard, factor: float) -> None:
    weights = shard.state[WEIGHTS] * factor
    shard.state[WEIGHTS] = np.minimum(weights, 1.0, out=weights)


def _weights(shard: Shard) -> Floats:
    weights: Floats = shard.state[WEIGHTS]
    return weights


def drop_lewis_weights(shard: Shard) -> None:
    """Remove what `store_lewis_weights` left in a block."""
    shard.state.pop(WEIGHTS, None)


def _forget_rounds(shard: Shard) -> None:
    shard.state.pop(_KEY, None)
