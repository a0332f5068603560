"""How many labels a strategy needs, from mean curves over seeds, with bootstrap intervals.

A target depends on the runs too (the best final mean, or a baseline's), so it is found anew for
every resample, from the same seeds. Where runs are missing, only seeds count that have a whole run
of every strategy compared.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Floats
from labelwise.benchmark.report.experiment import Experiment
from labelwise.benchmark.statistics import (
    Estimate,
    bootstrap,
    label_saving,
    labels_needed,
    saving_target,
)

SHARE = 0.97
"""Of the best final mean: the ally paper's target."""

Seeds = NDArray[np.bool_]


def share_target(experiment: Experiment) -> float:
    """What the share of the best final mean is; nan where that means nothing."""
    seeds = np.ones(len(experiment.seeds), dtype=bool)
    shares = np.full((1, len(seeds)), 1 / len(seeds))
    return float(_share_targets(experiment, seeds, shares)[0])


def labels_for_share(experiment: Experiment, name: str) -> Estimate | None:
    """Labels to reach the share of the best final mean; None without a whole run or a target."""
    seeds = experiment.whole(name)
    if not seeds.any() or not np.isfinite(share_target(experiment)):
        return None
    return _bootstrap(
        lambda shares: _needed(
            experiment, name, seeds, shares, _share_targets(experiment, seeds, shares)
        ),
        seeds,
    )


def labels_for_final(experiment: Experiment, name: str, baseline: str) -> Estimate | None:
    """Labels to reach what a baseline reaches with all its labels; None without a shared seed."""
    seeds = _shared(experiment, name, baseline)
    if not seeds.any():
        return None
    finals = experiment.finals(baseline)[seeds]
    return _bootstrap(
        lambda shares: _needed(experiment, name, seeds, shares, shares @ finals), seeds
    )


def saving(experiment: Experiment, name: str, baselines: Sequence[str]) -> Estimate | None:
    """Label saving against the best of the other baselines; None if there is nothing to pair."""
    others = [other for other in baselines if other != name and experiment.whole(other).any()]
    seeds = _shared(experiment, name, *others)
    if not others or not seeds.any() or not np.isfinite(share_target(experiment)):
        return None

    def saved(shares: Floats) -> Floats:
        targets = _share_targets(experiment, seeds, shares)
        ours = _needed(experiment, name, seeds, shares, targets)
        theirs = [_needed(experiment, other, seeds, shares, targets) for other in others]
        found: Floats = label_saving(ours, np.min(theirs, axis=0))
        return found

    return _bootstrap(saved, seeds)


def _shared(experiment: Experiment, *names: str) -> Seeds:
    return np.asarray(np.all([experiment.whole(name) for name in names], axis=0))


def _bootstrap(statistic: Callable[[Floats], Floats], seeds: Seeds) -> Estimate:
    return bootstrap(statistic, int(seeds.sum()))


def _needed(
    experiment: Experiment, name: str, seeds: Seeds, shares: Floats, targets: Floats
) -> Floats:
    """Labels at which the mean curve under every row of shares reaches its target: ``(m,)``."""
    curves = experiment.curves(name)[seeds]
    measured = np.isfinite(curves).all(axis=0)
    found: Floats = labels_needed(
        experiment.labels[measured],
        shares @ curves[:, measured],
        targets,
        higher_is_better=experiment.higher_is_better,
    )
    return found


def _share_targets(experiment: Experiment, seeds: Seeds, shares: Floats) -> Floats:
    """The target under every row of shares, ``(m,)``, from the runs that are whole."""
    finals = np.stack([experiment.finals(name)[seeds] for name in experiment.strategies])
    there = np.isfinite(finals)
    weights = shares @ there.T
    sums = shares @ np.where(there, finals, 0.0).T
    means = np.full(sums.shape, np.nan)
    np.divide(sums, weights, out=means, where=weights > 0)
    known = ~np.isnan(means).all(axis=1)
    targets = np.full(len(shares), np.nan)
    targets[known] = saving_target(
        means[known].T, share=SHARE, higher_is_better=experiment.higher_is_better
    )
    return targets
