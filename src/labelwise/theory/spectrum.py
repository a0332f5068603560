r"""Spectrum and distortion of the weighted picks relative to the pool.

With :math:`T` such that the columns of :math:`V = A T` are orthonormal over the pool, the matrix
:math:`S = \sum_{i \in \text{picks}} w_i \, v_i v_i^\top` is the identity if every item is picked
with weight 1. Its extreme eigenvalues bound the ratio of the picks' energy to the pool's:

.. math:: \lambda_{\min} \le \frac{\sum_{\text{picks}} w_i (a_i \cdot x)^2}
    {\sum_{\text{pool}} (a_i \cdot x)^2} \le \lambda_{\max} .

If all eigenvalues lie in [3/4, 5/4], a weighted least-squares fit on the picks is close to the fit
on the pool. Under a distribution :math:`D` of the items, sums over the pool become
:math:`n \sum_i D_i`.

The *distortion* is the range of the same ratio with :math:`|a_i \cdot x|^p`. For p = 2 it is given
by the extreme eigenvalues. For other p gradient steps on the logarithm of the ratio improve many
directions at once, from the extreme eigenvectors, the items with the largest leverage or weight,
and random directions. The result is a lower bound on the true distortion.

A basis :math:`v_1, \dots, v_r` is :math:`\rho`-nearly orthonormal under :math:`D` if
:math:`E_D[v_i^2] = 1` and :math:`|E_D[v_i v_j]| \le \rho`. By Gershgorin's theorem its Gram matrix
has eigenvalues in :math:`1 \pm (r - 1) \rho`.

Cost: one or two passes over the pool, ``O(n d^2)``; for the distortion with p other than 2 one pass
per round, ``O(n d s)`` for ``s`` directions.

References: X. Chen, E. Price, "Active Regression via Linear-Sample Sparsification", COLT 2019;
"Sample Complexity of Deep Active Learning", submitted to ICLR 2022, Definitions 5.1 and 5.5;
S. Huang, Y. Li, Y. Sun, Y. Tang, "One-shot Active Learning Based on Lewis Weight Sampling for
Multiple Deep Models", ICLR 2024, Lemma 3.4.
"""

from dataclasses import dataclass

import numpy as np

from labelwise.arrays import Array, Floats, largest, like, namespace, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.linear.bss import scale_distribution
from labelwise.kernels.linear.leverage import RowReader, Whitening, compute_leverage, whiten
from labelwise.kernels.linear.row_chunks import iterate_row_chunks
from labelwise.pool.blocks import LocalShards, Shard, Shards
from labelwise.pool.rows import read_features
from labelwise.selection.result import Selection
from labelwise.theory.pool import (
    Features,
    WeightedPicks,
    as_feature_shards,
    check_weighted_picks,
    make_model_reader,
    read_picked_rows,
    sum_pool_moments,
)

BAND = (0.75, 1.25)  # Range of the eigenvalues that the theory requires
_UNSEEN = 1e-10  # Directions with a smaller eigenvalue count as not covered by the picks


@dataclass(frozen=True)
class Spectrum:
    """Eigendecomposition of the weighted picks relative to the pool.

    Attributes:
        values: ``(r,)`` eigenvalues, smallest first; all 1 for the whole pool.
        vectors: ``(r, r)``, eigenvectors as columns, in whitened coordinates.
        transform: ``(d, r)``, maps features to whitened coordinates.
    """

    values: Floats
    vectors: Floats
    transform: Floats

    @property
    def rank(self) -> int:
        """Rank of the pool's features."""
        return len(self.values)

    @property
    def lower(self) -> float:
        """The smallest eigenvalue; 1 if the rank is 0."""
        return float(self.values[0]) if self.rank else 1.0

    @property
    def upper(self) -> float:
        """The largest eigenvalue; 1 if the rank is 0."""
        return float(self.values[-1]) if self.rank else 1.0

    @property
    def inside(self) -> bool:
        """Whether all eigenvalues are in [3/4, 5/4]."""
        return BAND[0] <= self.lower and self.upper <= BAND[1]

    @property
    def unseen(self) -> int:
        """Number of directions that no pick covers."""
        return int(np.count_nonzero(self.values < _UNSEEN))


def weighted_spectrum(
    picks: Selection,
    features: Features,
    *,
    model: int = 0,
    bias: bool = False,
    rtol: float | None = None,
    distribution: Array | None = None,
) -> Spectrum:
    """Compute the spectrum of the weighted picks relative to the pool.

    Args:
        picks: unweighted picks get weight ``n / b`` each.
        features: ``(n, d)`` of the whole pool, a list of such arrays (one per model), or shards.
        model: index of the model whose features are used.
        bias: whether the linear model has a constant column.
        rtol: relative rank tolerance, as in `labelwise.kernels`.
        distribution: ``(n,)``, probabilities of the items in the order of the pool; uniform if
            None. For features in memory.

    >>> import numpy as np
    >>> from labelwise import Selection
    >>> pool = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> found = weighted_spectrum(Selection(np.array([0, 2]), np.array([2.0, 1.5])), pool)
    >>> [round(float(value), 6) for value in found.values], found.inside
    ([0.75, 1.0], True)
    """
    shards = as_feature_shards(features)
    read = make_model_reader(model, bias)
    ids, weights, _ = check_weighted_picks(picks, len(shards))
    if distribution is None:
        transform = whiten(shards, read, rtol=rtol).transform
    else:
        transform = whiten(
            _scale_rows(shards, read, distribution), read_features, rtol=rtol
        ).transform
    rows = read_picked_rows(shards, ids, read) @ transform
    values, vectors = np.linalg.eigh((rows * weights[:, None]).T @ rows)
    return Spectrum(np.clip(values, 0.0, None), vectors, transform)


def _scale_rows(shards: Shards, read: RowReader, distribution: Array) -> LocalShards:
    """All rows multiplied by ``sqrt(n D_i)``, so that plain sums are sums under ``D``."""
    masses = scale_distribution(distribution, len(shards))
    rows = read_picked_rows(shards, shards.ids, read)
    return LocalShards.of(features=rows * np.sqrt(masses)[:, None])


@dataclass(frozen=True)
class NearOrthonormality:
    """Deviation of a basis from orthonormality under the distribution of a pool.

    Attributes:
        rho: largest absolute inner product of two basis functions of norm 1.
        dimension: number of basis functions, ``r``.
        lower, upper: smallest and largest eigenvalue of their Gram matrix; both 1 if orthonormal.
    """

    rho: float
    dimension: int
    lower: float
    upper: float

    @property
    def gershgorin(self) -> tuple[float, float]:
        """The bounds ``1 - (r - 1) rho`` and ``1 + (r - 1) rho`` on the eigenvalues."""
        reach = max(self.dimension - 1, 0) * self.rho
        return 1 - reach, 1 + reach


def near_orthonormality(
    features: Features,
    *,
    sample: Array | None = None,
    model: int = 0,
    bias: bool = False,
    rtol: float | None = None,
    distribution: Array | None = None,
) -> NearOrthonormality:
    """``rho`` of a basis that was made orthonormal on a sample of the pool.

    ``sample`` has ids of the items that the basis is computed from, for example the labelled ones;
    the whole pool if None, for which ``rho`` is 0 up to rounding. The other arguments are those of
    `weighted_spectrum`.

    >>> import numpy as np
    >>> pool = np.random.default_rng(0).normal(size=(4000, 3))
    >>> found = near_orthonormality(pool, sample=np.arange(100))
    >>> found.dimension, bool(near_orthonormality(pool).rho < 1e-10 < found.rho < 0.5)
    (3, True)
    """
    shards = as_feature_shards(features)
    read: RowReader = make_model_reader(model, bias)
    if distribution is None:
        pool = shards
    else:
        pool, read = (
            _scale_rows(shards, make_model_reader(model, bias), distribution),
            read_features,
        )
    if sample is None:
        basis = whiten(pool, read, rtol=rtol).transform
    else:
        rows = read_picked_rows(pool, np.asarray(to_numpy(sample), dtype=np.int64), read)
        basis = whiten(LocalShards.of(features=rows), read_features, rtol=rtol).transform
    # The Gram matrix of the basis over the pool, with a unit diagonal.
    gram = basis.T @ sum_pool_moments(pool, read).gram @ basis
    norms = np.sqrt(np.diag(gram))
    gram = gram / np.where(norms > 0, norms, 1.0)[:, None] / np.where(norms > 0, norms, 1.0)
    values = np.linalg.eigvalsh(gram) if len(gram) else np.ones(1)
    between = np.abs(gram - np.diag(np.diag(gram)))
    return NearOrthonormality(
        float(between.max(initial=0.0)), len(gram), float(values[0]), float(values[-1])
    )


@dataclass(frozen=True)
class Distortion:
    """The range of the ratio of weighted norms.

    Attributes:
        lower: the smallest ratio found; 1 for the whole pool.
        upper: the largest ratio found.
        p: the norm.
        exact: whether ``lower`` and ``upper`` are the true extremes.
    """

    lower: float
    upper: float
    p: float
    exact: bool


@dataclass(frozen=True)
class DistortionProblem:
    """Inputs of the ratio ``rho``; ``rows`` ``(b, d)`` are the features of the picks."""

    shards: Shards
    read: RowReader
    transform: Floats
    rows: Floats
    weights: Floats
    p: float

    def ratios(self, directions: Floats) -> tuple[Floats, Floats]:
        """``log rho`` of directions ``(r, s)``, ``(s,)``, and its gradient, ``(r, s)``."""
        columns = self.transform @ directions
        pool, slope = self.shards.sum(_sum_powers, self.read, columns, self.p)
        products = self.rows @ columns
        sizes = np.abs(products)
        seen = self.weights @ sizes**self.p
        inner = self.weights[:, None] * np.sign(products) * _shrunk(sizes, self.p)
        with np.errstate(divide="ignore", invalid="ignore"):
            gradient = (self.rows.T @ inner) / seen - slope / pool
            logs = np.log(seen) - np.log(pool)
        return logs, self.transform.T @ np.where(np.isfinite(gradient), gradient, 0.0)


def embedding_distortion(
    picks: Selection,
    features: Features,
    *,
    p: float = 2.0,
    model: int = 0,
    bias: bool = False,
    rtol: float | None = None,
    starts: int = 24,
    rounds: int = 40,
    seed: int = 0,
) -> Distortion:
    """Compute the smallest and the largest ratio of weighted norms over all directions.

    ``p`` is 1 or more. The search has ``starts`` directions for the smallest and for the largest
    ratio each, and ``rounds`` steps, one pass over the pool each. The other arguments are those of
    `weighted_spectrum`.

    >>> import numpy as np
    >>> from labelwise import Selection
    >>> pool = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> found = embedding_distortion(Selection(np.array([0, 2]), np.array([2.0, 3.0])), pool, p=1)
    >>> round(found.lower, 6), round(found.upper, 6), found.exact
    (1.0, 3.0, False)
    """
    if not (np.isfinite(p) and p >= 1):
        raise BadInput(f"p must be 1 or more; got {p}")
    if starts < 1 or rounds < 1:
        raise BadInput(f"starts and rounds must be 1 or more; got {starts} and {rounds}")
    shards = as_feature_shards(features)
    spectrum = weighted_spectrum(picks, shards, model=model, bias=bias, rtol=rtol)
    if p == 2 or spectrum.rank == 0:
        return Distortion(spectrum.lower, spectrum.upper, float(p), True)
    read = make_model_reader(model, bias)
    chosen = check_weighted_picks(picks, len(shards))
    rows = read_picked_rows(shards, chosen.ids, read)
    problem = DistortionProblem(shards, read, spectrum.transform, rows, chosen.weights, float(p))
    first = _choose_start_directions(problem, spectrum, chosen, starts, seed)
    logs = _search_ratios(problem, first, starts, rounds)
    return Distortion(float(np.exp(logs.min())), float(np.exp(logs.max())), float(p), False)


def _choose_start_directions(
    problem: DistortionProblem, spectrum: Spectrum, chosen: WeightedPicks, count: int, seed: int
) -> Floats:
    """Unit start directions ``(r, s)``, chosen for a likely large distortion."""
    shards, rank = problem.shards, spectrum.rank
    basis = Whitening(spectrum.transform, 1.0)
    leverage = compute_leverage(shards, problem.read, basis, double=True)
    top = shards.ids[largest(leverage, min(count, len(shards)), shards.ids)]
    heavy = chosen.ids[largest(chosen.weights, min(count, len(chosen.ids)), chosen.ids)]
    items = np.concatenate([top, heavy])
    own = (read_picked_rows(shards, items, problem.read) @ spectrum.transform).T
    random = np.random.default_rng([seed % 2**64, 0xE3]).standard_normal((rank, count))
    half = max(1, count // 2)
    outer = np.concatenate([spectrum.vectors[:, :half], spectrum.vectors[:, -half:]], axis=1)
    return _normalize_directions(np.concatenate([outer, own, random], axis=1))


def _search_ratios(problem: DistortionProblem, first: Floats, count: int, rounds: int) -> Floats:
    """Minimize and maximize ``log rho`` by gradient steps from the best start directions."""
    logs, slopes = problem.ratios(first)
    every = np.arange(first.shape[1])
    kept = min(count, len(every))
    low, high = largest(-logs, kept, every), largest(logs, kept, every)
    chosen = np.concatenate([low, high])
    sign = np.repeat([-1.0, 1.0], kept)
    best, slope, at = sign * logs[chosen], sign * slopes[:, chosen], first[:, chosen]
    step = np.full(2 * kept, 0.5)
    for _ in range(rounds):
        if not np.isfinite(best).all():  # rho = 0: no pick covers this direction
            break
        moved = _normalize_directions(at + step * _normalize_directions(slope))
        found, slopes = problem.ratios(moved)
        better = sign * found > best
        best = np.where(better, sign * found, best)
        at, slope = np.where(better, moved, at), np.where(better, sign * slopes, slope)
        step = np.where(better, np.minimum(1.5 * step, 1.0), 0.4 * step)
    return np.asarray(sign * best)


def _normalize_directions(columns: Floats) -> Floats:
    lengths = np.linalg.norm(columns, axis=0)
    return np.asarray(columns / np.where(lengths > 0, lengths, 1.0))


def _shrunk(sizes: Floats, p: float) -> Floats:
    """``|z|^(p - 1)``, and 0 for ``z = 0`` even if p is 1."""
    return np.where(sizes > 0, sizes ** (p - 1), 0.0)


def _sum_powers(shard: Shard, read: RowReader, columns: Floats, p: float) -> tuple[Floats, Floats]:
    """Block sums ``sum |a x|^p``, ``(s,)``, and ``sum |a x|^(p-1) sign(a x) a``, ``(d, s)``."""
    total, slope = np.zeros(columns.shape[1]), np.zeros(columns.shape)
    for _, chunk in iterate_row_chunks(read(shard.rows), double=True):
        xp = namespace(chunk)
        products = chunk @ like(columns, chunk, dtype=chunk.dtype)
        sizes = xp.abs(products)
        total += to_numpy(xp.sum(sizes**p, axis=0))
        inner = xp.sign(products) * sizes ** (p - 1)
        slope += to_numpy(xp.matrix_transpose(chunk) @ inner)
    return total, slope
