"""Learning curves compared: how many labels each strategy needs for what random reaches.

Runs are paired: every strategy has one run per seed, and a seed fixes the split of the data, the
first labels and the start of the training. The bootstrap therefore draws seeds, and takes the
runs of all strategies under a drawn seed together.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Floats
from labelwise.benchmark.statistics import Estimate, labels_needed
from labelwise.errors import BadInput


@dataclass(frozen=True)
class Comparison:
    """One strategy against the baseline.

    Attributes:
        strategy: its name.
        needed: labels at which its mean curve first reaches the baseline's last accuracy.
        final: mean accuracy with all labels.
        gain: how much higher that is than the baseline's.
    """

    strategy: str
    needed: Estimate
    final: Estimate
    gain: Estimate


def compare(
    labels: NDArray[Any],
    accuracies: Mapping[str, Floats],
    baseline: str,
    *,
    draws: int = 2000,
    seed: int = 0,
) -> list[Comparison]:
    """Compare all strategies with the baseline.

    Args:
        labels: ``(r,)``, how many labels there were at each measurement.
        accuracies: per strategy ``(s, r)``, one row per seed, in the same order of seeds.
        baseline: the strategy whose last accuracy the others are to reach.
        draws: bootstrap draws.
        seed: decides the bootstrap.
    """
    seeds = len(accuracies[baseline])
    if any(curves.shape != (seeds, len(labels)) for curves in accuracies.values()):
        raise BadInput("every strategy needs one curve per seed, as long as labels")
    drawn = np.random.default_rng(seed).integers(seeds, size=(draws, seeds))
    shares = np.stack([np.bincount(row, minlength=seeds) for row in drawn]) / seeds
    whole = np.full((1, seeds), 1 / seeds)
    mixes = np.concatenate([whole, shares])  # the first row is the estimate itself
    means = {name: mixes @ curves for name, curves in accuracies.items()}
    targets = means[baseline][:, -1]
    result = []
    for name, curves in means.items():
        needed = labels_needed(labels, curves, targets)
        last = curves[:, -1]
        result.append(
            Comparison(name, _estimate(needed), _estimate(last), _estimate(last - targets))
        )
    return result


def band(curves: Floats, *, draws: int = 2000, seed: int = 0) -> tuple[Floats, Floats]:
    """Ends of the 95 % bootstrap interval of the mean curve: ``(s, r)`` to two ``(r,)``."""
    drawn = np.random.default_rng(seed).integers(len(curves), size=(draws, len(curves)))
    low, high = np.quantile(curves[drawn].mean(axis=1), [0.025, 0.975], axis=0)
    return low, high


def _estimate(values: Any) -> Estimate:
    """The first value, with the interval of the rest, whose ends are among them (inf may be)."""
    low, high = np.quantile(values[1:], [0.025, 0.975], method="inverted_cdf")
    return Estimate(float(values[0]), float(low), float(high))
