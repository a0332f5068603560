r"""Lewis weights of rows that are read block by block, for every p > 0.

The Lewis weights of the rows :math:`a_i` of :math:`A` are the unique solution of

.. math:: w_i = \bigl( a_i^\top (A^\top W^{1-2/p} A)^+ a_i \bigr)^{p/2} .

They lie in [0, 1], sum to the rank of :math:`A`, are zero for zero rows only, and equal the
leverage scores for p = 2. With :math:`y = \log w` and :math:`F(y)` the logarithm of the right-hand
side, the iteration is :math:`y \leftarrow (1-\theta) y + \theta F(y)`. Near the solution the
derivative of :math:`F` has eigenvalues between 0 and :math:`1 - p/2`, so :math:`\theta = 4/(p+2)`
shrinks the error fastest, by :math:`|p-2|/(p+2)` per round; the undamped iteration
(:math:`\theta = 1`) diverges for :math:`p \ge 4`. If the residual grows or stalls, :math:`\theta`
becomes :math:`\min(1, 2/p)`, which converges from any start.

The next Gram matrix is that of rows whitened by the last one. It is close to the identity once the
weights settle, so float32 products suffice; they change to float64 when the residual no longer
falls. On a GPU everything stays there; the host waits for one number per round, the residual.

Cost: one pass per round, ``O(n d r)`` for rank ``r``; one number per row of memory (two for p > 2).

References: M. Cohen, R. Peng, "Lp row sampling by Lewis weights", STOC 2015; the damping is
derived here.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

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
from labelwise.kernels.checks import check_integer, check_positive, is_number
from labelwise.kernels.linear.leverage import (
    RowReader,
    Whitening,
    compute_block_leverage,
    invert_triangle,
    whiten,
)
from labelwise.kernels.linear.row_chunks import multiply_chunks, squared_row_lengths
from labelwise.kernels.placement import find_placement
from labelwise.pool.blocks import ArrayOrShards, Shard, Shards, as_shards, drop_state
from labelwise.pool.rows import read_features

WEIGHTS = "lewis_weights"  # Key of a block's state for its weights
_LOGARITHMS = "lewis_logarithms"
_MAX_LOG_SHARE = np.log(1e6)


@dataclass(frozen=True, kw_only=True)
class LewisSettings:
    """Settings of the iteration."""

    p: float
    tol: float = 1e-6  # largest change of a ``log w`` at which the iteration has converged
    max_iterations: int = 500
    rtol: float | None = None  # relative rank tolerance, as in `leverage_scores`
    # Multiply in float64 from the first round on, so that the weights of float32 rows depend on the
    # split into blocks by less than about 1e-9 (instead of 1e-6)
    double: bool = False
    damping: float | None = None  # the first theta; ``4 / (p + 2)`` if None

    def __post_init__(self) -> None:
        check_positive("p", self.p)
        check_positive("tol", self.tol)
        check_integer("max_iterations", self.max_iterations, 1)
        if self.damping is not None:
            check_positive("damping", self.damping)
        if self.rtol is not None and not is_number(self.rtol):
            raise BadInput(f"rtol must be a number; got {self.rtol!r}")


@dataclass(frozen=True)
class LewisWeights:
    """Lewis weights with diagnostics."""

    weights: Floats  # ``(n,)``, in the order of the blocks
    iterations: int  # passes after the rank was known; 0 if none was needed
    residual: float  # largest ``|F(y) - y|`` of the last round
    rank: int  # of the rows, which is the sum of the weights


def lewis_weights(
    A: ArrayOrShards, p: float, tol: float = 1e-6, max_iterations: int = 500
) -> Floats:
    """Lewis weight of every row, ``(n,)``, in the order of the blocks.

    Args:
        A: ``(n, d)`` array, or shards with ``features``. Zero rows (weight 0), dependent columns
            and ``n < d`` are supported.
        p: the norm, any positive number.
        tol: largest change of a ``log w`` at which the iteration has converged.
        max_iterations: number of rounds after which `labelwise.errors.NotConverged` is raised.

    Example:
        >>> import numpy as np
        >>> A = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
        >>> lewis_weights(A, 1).round(6)  # for p = 1 in proportion to the length, 1 to 3
        array([0.25, 0.75, 1.  ])
    """
    settings = LewisSettings(p=p, tol=tol, max_iterations=max_iterations)
    return iterate_lewis_weights(A, settings).weights


def iterate_lewis_weights(
    A: ArrayOrShards, settings: LewisSettings, read: RowReader = read_features
) -> LewisWeights:
    """Lewis weights with the number of rounds and the residual."""
    shards = as_shards(A, "A")
    if not len(shards):
        return LewisWeights(np.empty(0), 0, 0.0, 0)
    try:
        found = store_lewis_weights(shards, settings, read)
        weights = np.concatenate(shards.map(lambda shard: shard.state[WEIGHTS]))
    finally:
        shards.map(drop_state, WEIGHTS)
    return replace(found, weights=weights)


def store_lewis_weights(
    shards: Shards,
    settings: LewisSettings,
    read: RowReader = read_features,
    placement: Array | None = None,
) -> LewisWeights:
    """Compute Lewis weights and store them as ``shard.state[WEIGHTS]``, ``(n,)`` in each block.

    No array as long as the pool is made or sent; the returned ``weights`` are empty. The caller
    drops this state in the end. ``placement`` is an empty float64 array on the device to compute
    on; by default that of the rows.
    """
    n, none = len(shards), np.empty(0)
    placement = find_placement(shards) if placement is None else placement
    basis = whiten(shards, read, rtol=settings.rtol, placement=placement)
    if basis.rank == n:  # all rows are linearly independent
        shards.map(lambda shard: shard.state.update({WEIGHTS: np.ones(len(shard))}))
        return LewisWeights(none, 0, 0.0, n)
    if settings.p == 2 or basis.rank == 0:
        double = settings.double or not basis.allows_float32
        shards.map(_store_leverage_weights, read, basis.transform, double)
        return LewisWeights(none, 0, 0.0, basis.rank)
    try:
        rounds, residual = _run_lewis_rounds(shards, read, settings, basis, placement)
        total = sum(shards.map(_store_lewis_powers))
    finally:
        shards.map(drop_state, _LOGARITHMS)
    shards.map(_scale_lewis_weights, basis.rank / total)  # for p < 2 the scale converges slowest
    return LewisWeights(none, rounds, residual, basis.rank)


def _run_lewis_rounds(
    shards: Shards, read: RowReader, settings: LewisSettings, basis: Whitening, placement: Array
) -> tuple[int, float]:
    """Run rounds until the residual is small enough; the logarithms stay with the blocks."""
    p, transform = settings.p, basis.transform
    level = float(np.log(basis.rank / len(shards)))
    theta = settings.damping or 4 / (p + 2)
    double = settings.double or not basis.fits_float32
    best, idle = np.inf, 0
    for number in range(1, settings.max_iterations + 1):
        step = LewisStep(p, theta, level, transform, double)
        result: LewisRound = shards.sum(update_lewis_logarithms, read, step, placement)
        residual = float(result.residual)
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
        transform = transform @ _invert_gram_root(result.gram)
    raise NotConverged(
        f"lewis weights for p={p:g} still change by {best:.1e} after {settings.max_iterations} "
        f"rounds; raise max_iterations, or tol (now {settings.tol:g})"
    )


def _invert_gram_root(gram: Array) -> Array:
    """``S`` with ``S^T G S = I``, ``(r, r)``; directions lost to rounding are bounded."""
    xp = namespace(gram)
    try:
        return xp.matrix_transpose(invert_triangle(xp.linalg.cholesky(gram)))
    except (np.linalg.LinAlgError, RuntimeError):  # NumPy's and torch's error
        values, vectors = xp.linalg.eigh(gram)
        return vectors / xp.sqrt(xp.maximum(values, 1e-7 * values[-1]))


@dataclass(frozen=True)
class LewisStep:
    """Parameters of one round.

    ``level`` is the first ``y``. Rows enter the Gram matrix with ``exp((1 - 2/p) (y - level))``;
    dropping the common factor keeps that near 1.
    """

    p: float
    theta: float
    level: float
    transform: Array
    double: bool


@dataclass(frozen=True)
class LewisRound:
    """Result of one round: the Gram matrix at the new ``y`` and the residual at the old one."""

    gram: Array
    residual: Array

    def __add__(self, other: "LewisRound") -> "LewisRound":
        larger = namespace(self.gram).maximum(self.residual, other.residual)
        return LewisRound(self.gram + other.gram, larger)


def update_lewis_logarithms(
    shard: Shard, read: RowReader, step: LewisStep, placement: Array
) -> LewisRound:
    """Move ``y`` to ``(1 - theta) y + theta F(y)`` and sum the Gram matrix there."""
    block, on_device = read(shard.rows), not isinstance(placement, np.ndarray)
    empty = block[:0, 0] if on_device else placement  # (n,) arrays live on the device of the work
    xp, kind = namespace(empty), {"dtype": namespace(empty).float64, "device": device(empty)}
    n, rank = len(shard), step.transform.shape[1]
    stored = shard.state.get(_LOGARITHMS)
    before = xp.full((n,), step.level, **kind) if stored is None else stored[0]
    after = xp.empty((n,), **kind)
    powers = xp.empty((n,), **kind) if step.p > 2 else after
    residual = xp.zeros((), **kind)
    rows_xp = namespace(block)
    gram = rows_xp.zeros((rank, rank), dtype=rows_xp.float64, device=device(block))
    for start, rows in multiply_chunks(block, step.transform, double=step.double):
        part = slice(start, start + rows.shape[0])
        squares = squared_norms(float64(rows)) if on_device else squared_row_lengths(rows)
        moved = _step_lewis_rows(squares, before[part], step)
        after[part] = moved.y
        if step.p > 2:
            powers[part] = moved.power
        residual = xp.maximum(residual, moved.residual)
        rows *= like(moved.root, rows, dtype=rows.dtype)[:, None]
        gram += float64(rows_xp.matrix_transpose(rows) @ rows)
    shard.state[_LOGARITHMS] = (after, powers)
    return LewisRound(bring(gram, placement), bring(residual, placement))


class MovedRows(NamedTuple):
    """New ``y`` of some rows, logarithms of their weights for p > 2, factors, largest change."""

    y: Array
    power: Array | None
    root: Array
    residual: Array


def _step_lewis_rows(squares: Array, y: Array, step: LewisStep) -> MovedRows:
    """One round for rows of the given squared lengths; zero rows have ``y = -inf``.

    Zero rows are masked, not removed: selecting rows would make a GPU wait for the host.
    """
    xp, power = namespace(squares), 1 - 2 / step.p
    some, none = squares != 0, xp.full_like(squares, -xp.inf)
    with np.errstate(divide="ignore", invalid="ignore"):  # of zero rows, masked below
        logs = xp.log(squares)
        goal = step.p / 2 * (logs - power * step.level)
        y = xp.where(xp.isfinite(y), y, goal)  # restores a row that had underflowed in float32
        moved = xp.where(some, (1 - step.theta) * y + step.theta * goal, none)
        change = xp.where(some, xp.abs(goal - y), xp.zeros_like(y))
        powers = xp.where(some, power * y + 2 / step.p * goal, none) if step.p > 2 else None
        # c |z|^2 converges to w < 1; before that it must not overflow.
        exponent = xp.minimum(power * (moved - step.level), _MAX_LOG_SHARE - logs)
        exponent = xp.minimum(exponent, xp.full_like(exponent, 170.0))
        root = xp.where(some, xp.exp(exponent / 2), xp.zeros_like(exponent))
    return MovedRows(moved, powers, root, xp.max(change))


def _store_lewis_powers(shard: Shard) -> float:
    """Store the weights of a block after the last round, and return their sum.

    For p > 2 they are the leverage scores of the reweighted rows, which sum to the rank.
    """
    powers = to_numpy(shard.state.pop(_LOGARITHMS)[1])
    shard.state[WEIGHTS] = np.exp(powers, out=powers)
    return float(powers.sum())


def _store_leverage_weights(shard: Shard, read: RowReader, transform: Array, double: bool) -> None:
    scores = compute_block_leverage(shard, read, transform, double)
    shard.state[WEIGHTS] = np.clip(scores, 0.0, 1.0, out=scores)


def _scale_lewis_weights(shard: Shard, factor: float) -> None:
    weights = shard.state[WEIGHTS] * factor
    shard.state[WEIGHTS] = np.minimum(weights, 1.0, out=weights)
