"""Learning curves compared: how many labels each strategy needs for what random reaches.

Runs are paired: every strategy has one run per seed, and a seed fixes the split of the data, the
first labels and the start of the training. The bootstrap therefore draws seeds, and takes the
runs of all strategies under a drawn seed together (`labelwise.benchmark.statistics`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Floats
from labelwise.benchmark.statistics import Estimate, bootstrap, labels_needed, mean_estimate
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
    labels: NDArray[Any], accuracies: Mapping[str, Floats], baseline: str
) -> list[Comparison]:
    """Compare all strategies with the baseline.

    Args:
        labels: ``(r,)``, how many labels there were at each measurement.
        accuracies: per strategy ``(s, r)``, one row per seed, in the same order of seeds.
        baseline: the strategy whose last accuracy the others are to reach.
    """
    seeds = len(accuracies[baseline])
    if any(curves.shape != (seeds, len(labels)) for curves in accuracies.values()):
        raise BadInput("every strategy needs one curve per seed, as long as labels")
    reached = accuracies[baseline][:, -1]

    def needed(curves: Floats, shares: Floats) -> Floats:
        found: Floats = labels_needed(labels, shares @ curves, shares @ reached)
        return found

    return [
        Comparison(
            name,
            bootstrap(partial(needed, curves), seeds),
            mean_estimate(curves[:, -1]),
            mean_estimate(curves[:, -1] - reached),
        )
        for name, curves in accuracies.items()
    ]


def band(curves: Floats) -> tuple[Floats, Floats]:
    """Ends of the 95 % bootstrap interval of the mean curve: ``(s, r)`` to two ``(r,)``."""
    found = [mean_estimate(column) for column in curves.T]
    return np.array([entry.low for entry in found]), np.array([entry.high for entry in found])
