"""What one round of randomized BSS costs, by the way in which its row is drawn.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/bss_rounds.py > docs/results/bss_rounds.jsonl

One JSON object per line: CPU milliseconds (process time, one BLAS thread) per round. The four known
ways need the matrix ``E`` first (its own line, "inverses"); "labelwise" is a whole round, ``E``
included. Rows are Student-t(3) in float32; ``gamma`` is that of a budget of ten rows per column.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from labelwise.kernels.linear.bss import Barriers, Candidates, budget_gamma
from labelwise.kernels.linear.leverage import whiten
from labelwise.pool.blocks import LocalShards
from labelwise.pool.rows import read_features

N, SIZES, OUR_ROUNDS, SEED = 50_000, ((128, 40), (512, 12)), 400, 0


def main() -> None:
    """Measure every way at both sizes."""
    generator = np.random.default_rng(SEED)
    for d, rounds in SIZES:
        rows = generator.standard_t(3, size=(N, d)).astype(np.float32)
        gamma = budget_gamma(d, 10 * d)
        shards = LocalShards.of(features=rows)
        transform = whiten(shards, read_features).transform
        facts = {"n": N, "d": d, "budget": 10 * d, "gamma": gamma, "seed": SEED}
        whitened = (rows @ transform.astype(np.float32)) * np.float32(np.sqrt(N))
        for way, times in known_ways(whitened, gamma, rounds, generator).items():
            line = {"way": way, **facts, "rounds": rounds}
            report(line, float(np.median(times)))
        report({"way": "labelwise", **facts, "rounds": OUR_ROUNDS}, ours(shards, transform, gamma))


def report(line: dict[str, Any], seconds: float) -> None:
    """Print one line."""
    line |= {"milliseconds_per_round": 1000 * seconds, "numpy": np.__version__}
    print(json.dumps(line), flush=True)


def ours(shards: LocalShards, transform: Any, gamma: float) -> float:
    """Mean CPU seconds of a round of labelwise."""
    candidates = Candidates(shards, read_features, transform, SEED)
    barriers = Barriers(transform.shape[1], gamma)
    begin = time.process_time()
    for _ in range(OUR_ROUNDS):
        _, row, form = candidates.draw(barriers)
        barriers.add(row, gamma / form)
    return (time.process_time() - begin) / OUR_ROUNDS


def known_ways(rows: Any, gamma: float, rounds: int, generator: Any) -> dict[str, list[float]]:
    """CPU seconds of every round: the matrix ``E``, then a draw by each of the known ways."""
    d = rows.shape[1]
    ways = {
        "naive product": naive(rows, generator),
        "column of a factor": column(rows, generator),
        "two levels of Gram matrices": two_levels(rows, generator),
        "tree of Gram matrices": tree(rows, generator),
    }
    times: dict[str, list[float]] = {"inverses": [], **{way: [] for way in ways}}
    total, upper, lower = np.zeros((d, d)), 2 * d / gamma, -2 * d / gamma
    for _ in range(rounds):
        begin = time.process_time()
        energy = inverse(upper * np.eye(d) - total) + inverse(total - lower * np.eye(d))
        potential = np.trace(energy)
        times["inverses"].append(time.process_time() - begin)
        for way, draw in ways.items():
            begin = time.process_time()
            drawn = draw(energy)
            times[way].append(time.process_time() - begin)
        row = rows[drawn].astype(np.float64)
        total += gamma / (row @ energy @ row) * np.outer(row, row)
        upper += gamma / potential / (1 - gamma)
        lower += gamma / potential / (1 + gamma)
    return times


def inverse(matrix: Any) -> Any:
    """The inverse of a positive definite matrix."""
    factor, _ = dpotrf(matrix, lower=1)
    half, _ = dpotri(factor, lower=1)
    strict = np.tril(half, -1)
    return strict + strict.T + np.diag(np.diag(half))


def draw_from(masses: Any, generator: Any) -> int:
    """A position, in proportion to its mass."""
    sums = np.cumsum(masses, dtype=np.float64)
    return int(np.searchsorted(sums, generator.random() * sums[-1]))


def forms(rows: Any, energy: Any) -> Any:
    """``v' E v`` of every row."""
    return np.einsum("ij,ij->i", rows @ energy.astype(np.float32), rows)


def naive(rows: Any, generator: Any) -> Callable[[Any], int]:
    """All forms by one product, then one draw."""
    return lambda energy: draw_from(forms(rows, energy), generator)


def column(rows: Any, generator: Any) -> Callable[[Any], int]:
    """A column of a factor of ``E``, then a row by its product with it."""

    def draw(energy: Any) -> int:
        factor = np.linalg.cholesky(energy)
        chosen = draw_from((factor**2).sum(axis=0), generator)
        return draw_from((rows @ factor[:, chosen].astype(np.float32)) ** 2, generator)

    return draw


def grams(rows: Any) -> Any:
    """The Gram matrices of blocks of ``d`` rows, flat."""
    d = rows.shape[1]
    blocks = [rows[first : first + d] for first in range(0, len(rows), d)]
    return np.stack([(block.T @ block).ravel() for block in blocks])


def within(rows: Any, block: int, energy: Any, generator: Any) -> int:
    """A row of one block."""
    first = block * rows.shape[1]
    return first + draw_from(forms(rows[first : first + rows.shape[1]], energy), generator)


def two_levels(rows: Any, generator: Any) -> Callable[[Any], int]:
    """A block by its Gram matrix, then a row of it."""
    table = grams(rows)

    def draw(energy: Any) -> int:
        block = draw_from(table @ energy.astype(np.float32).ravel(), generator)
        return within(rows, block, energy, generator)

    return draw


def tree(rows: Any, generator: Any) -> Callable[[Any], int]:
    """A block by a binary tree of Gram matrices, then a row of it."""
    levels = list(halvings(grams(rows)))[::-1]

    def draw(energy: Any) -> int:
        flat, block = energy.astype(np.float32).ravel(), 0
        for level in levels:
            block = 2 * block + draw_from(level[2 * block : 2 * block + 2] @ flat, generator)
        return within(rows, block, energy, generator)

    return draw


def halvings(level: Any) -> Iterator[Any]:
    """Sums of pairs, and of pairs of pairs, until two are left."""
    while len(level) > 1:
        if len(level) % 2:
            level = np.concatenate([level, np.zeros_like(level[:1])])
        yield level
        level = level[0::2] + level[1::2]


if __name__ == "__main__":
    main()
