r"""Distortion of the :math:`\ell_p` norms of linear predictions by the weighted picks.

For the rows :math:`a_i` of the pool's features and a direction :math:`x`, the ratio

.. math:: \rho(x) = \frac{\sum_{\text{picks}} w_i |a_i \cdot x|^p}
    {\sum_{\text{pool}} |a_i \cdot x|^p}

is 1 if every item is picked with weight 1. Its minimum and maximum over all directions are the
distortion of the embedding. For p = 2 they are the extreme eigenvalues of `weighted_spectrum`. For
other p the problem is not convex: gradient steps on :math:`\log \rho` in whitened coordinates
improve many directions at once. The search starts from the extreme eigenvectors, the items with the
largest leverage or weight, and random directions. The result is a lower bound on the true
distortion.

Cost: as `weighted_spectrum` for p = 2; otherwise one pass per round, ``O(n d s)`` for ``s``
directions.

Reference: S. Huang, Y. Li, Y. Sun, Y. Tang, "One-shot Active Learning Based on Lewis Weight
Sampling for Multiple Deep Models", ICLR 2024, Lemma 3.4.
"""

from dataclasses import dataclass

import numpy as np

from labelwise.arrays import Floats, largest, like, namespace, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.linear.leverage import RowReader, Whitening, project_rows
from labelwise.kernels.linear.row_chunks import iterate_chunks
from labelwise.pool.blocks import Shard, Shards
from labelwise.selection.result import Selection
from labelwise.theory.pool import (
    Features,
    WeightedPicks,
    as_pool,
    check_picks,
    read_model,
    read_picked_rows,
)
from labelwise.theory.spectrum import Spectrum, weighted_spectrum


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
class _Problem:
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
        pool, slope = self.shards.sum(_powers, self.read, columns, self.p)
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

    Args:
        picks: unweighted picks get weight ``n / b`` each.
        features: ``(n, d)`` of the whole pool, a list of such arrays (one per model), or shards.
        p: the norm, 1 or more.
        model: index of the model whose features are used.
        bias: whether the linear model has a constant column.
        rtol: relative rank tolerance, as in `labelwise.kernels`.
        starts: number of search directions, for the smallest and for the largest ratio each.
        rounds: number of search steps, one pass over the pool each.
        seed: determines the random directions.

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
    shards = as_pool(features)
    spectrum = weighted_spectrum(picks, shards, model=model, bias=bias, rtol=rtol)
    if p == 2 or spectrum.rank == 0:
        return Distortion(spectrum.lower, spectrum.upper, float(p), True)
    read = read_model(model, bias)
    chosen = check_picks(picks, len(shards))
    rows = read_picked_rows(shards, chosen.ids, read)
    problem = _Problem(shards, read, spectrum.transform, rows, chosen.weights, float(p))
    first = _starts(problem, spectrum, chosen, starts, seed)
    logs = _search(problem, first, starts, rounds)
    return Distortion(float(np.exp(logs.min())), float(np.exp(logs.max())), float(p), False)


def _starts(
    problem: _Problem, spectrum: Spectrum, chosen: WeightedPicks, count: int, seed: int
) -> Floats:
    """Unit start directions ``(r, s)``, chosen for a likely large distortion."""
    shards, rank = problem.shards, spectrum.rank
    basis = Whitening(spectrum.transform, 1.0)
    leverage = project_rows(shards, problem.read, basis, double=True)
    top = shards.ids[largest(leverage, min(count, len(shards)), shards.ids)]
    heavy = chosen.ids[largest(chosen.weights, min(count, len(chosen.ids)), chosen.ids)]
    items = np.concatenate([top, heavy])
    own = (read_picked_rows(shards, items, problem.read) @ spectrum.transform).T
    random = np.random.default_rng([seed % 2**64, 0xE3]).standard_normal((rank, count))
    half = max(1, count // 2)
    outer = np.concatenate([spectrum.vectors[:, :half], spectrum.vectors[:, -half:]], axis=1)
    return _unit(np.concatenate([outer, own, random], axis=1))


def _search(problem: _Problem, first: Floats, count: int, rounds: int) -> Floats:
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
        moved = _unit(at + step * _unit(slope))
        found, slopes = problem.ratios(moved)
        better = sign * found > best
        best = np.where(better, sign * found, best)
        at, slope = np.where(better, moved, at), np.where(better, sign * slopes, slope)
        step = np.where(better, np.minimum(1.5 * step, 1.0), 0.4 * step)
    return np.asarray(sign * best)


def _unit(columns: Floats) -> Floats:
    lengths = np.linalg.norm(columns, axis=0)
    return np.asarray(columns / np.where(lengths > 0, lengths, 1.0))


def _shrunk(sizes: Floats, p: float) -> Floats:
    """``|z|^(p - 1)``, and 0 for ``z = 0`` even if p is 1."""
    return np.where(sizes > 0, sizes ** (p - 1), 0.0)


def _powers(shard: Shard, read: RowReader, columns: Floats, p: float) -> tuple[Floats, Floats]:
    """Block sums ``sum |a x|^p``, ``(s,)``, and ``sum |a x|^(p-1) sign(a x) a``, ``(d, s)``."""
    total, slope = np.zeros(columns.shape[1]), np.zeros(columns.shape)
    for _, chunk in iterate_chunks(read(shard.rows), double=True):
        xp = namespace(chunk)
        products = chunk @ like(columns, chunk, dtype=chunk.dtype)
        sizes = xp.abs(products)
        total += to_numpy(xp.sum(sizes**p, axis=0))
        inner = xp.sign(products) * sizes ** (p - 1)
        slope += to_numpy(xp.matrix_transpose(chunk) @ inner)
    return total, slope
