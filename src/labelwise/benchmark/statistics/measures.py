r"""Measures of learning curves: how high they are, and how many labels they need.

*Area*: the trapezoid of the metric over the labels, divided by the range of labels (sparse paper,
whose text leaves it undefined). *Labels needed*: where the mean curve first reaches a target, by
straight lines between rounds; inf if it never does. *Label saving* (ally paper):
:math:`1 - n_{method} / n_{baseline}` at 97 % of the best final mean.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labelwise.errors import BadInput


def area(labels: ArrayLike, curves: ArrayLike) -> Any:
    """The mean height of curves: trapezoid over the labels, divided by their range.

    Args:
        labels: ``(r,)``, rising.
        curves: ``(..., r)``.

    Returns:
        ``(...)``, in the unit of the curves; with one measurement, that measurement.

    Example:
        >>> float(area([10, 20, 40], [0.0, 60.0, 60.0]))
        50.0
    """
    at, heights = np.asarray(labels, dtype=np.float64), np.asarray(curves, dtype=np.float64)
    if at.ndim != 1 or heights.shape[-1] != len(at):
        raise BadInput(
            f"labels have shape {at.shape} but curves {heights.shape}; give (r,), (.., r)"
        )
    if not len(at) or (np.diff(at) <= 0).any():
        raise BadInput("labels must rise from round to round, and there must be a round")
    if len(at) == 1:
        return heights[..., 0]
    return np.trapezoid(heights, at, axis=-1) / (at[-1] - at[0])


def labels_needed(
    labels: ArrayLike, curves: ArrayLike, targets: ArrayLike, *, higher_is_better: bool = True
) -> Any:
    """Where curves first reach their targets, between two rounds by a straight line.

    Args:
        labels: ``(r,)``, rising.
        curves: ``(..., r)``.
        targets: ``(...)``, or one for all.
        higher_is_better: whether reaching means at least, or at most.

    Returns:
        ``(...)``; inf where a curve never gets there.

    Example:
        >>> float(labels_needed([10, 20, 30], [0.5, 0.7, 0.8], 0.6))
        15.0
    """
    sign = 1 if higher_is_better else -1
    at, heights = np.asarray(labels, dtype=np.float64), sign * np.asarray(curves)
    wanted = np.broadcast_to(sign * np.asarray(targets, dtype=np.float64), heights.shape[:-1])
    # A target that is itself a mean of these curves counts as reached whatever the rounding.
    reached = heights >= (wanted - 1e-12 * np.abs(wanted))[..., None]
    after = reached.argmax(axis=-1)
    before = np.maximum(after - 1, 0)
    low = np.take_along_axis(heights, before[..., None], axis=-1)[..., 0]
    high = np.take_along_axis(heights, after[..., None], axis=-1)[..., 0]
    rise = np.where(after > before, high - low, 1.0)
    share = np.clip(np.where(after > 0, (wanted - low) / rise, 0.0), 0.0, 1.0)
    needed = at[before] + share * (at[after] - at[before])
    return np.where(reached.any(axis=-1), needed, np.inf)


def saving_target(finals: ArrayLike, *, share: float = 0.97, higher_is_better: bool = True) -> Any:
    """What the ally paper asks every method to reach: a share of the best final mean.

    Args:
        finals: ``(k, ...)``, the mean of each method in the last round; nan where there is none.
        share: of the best; an error, where lower is better, may be ``1 / share`` times the best.
        higher_is_better: which is the best.

    Returns:
        ``(...)``; nan where the best is not positive, so that a share of it means nothing.

    Example:
        >>> float(saving_target([0.8, 0.9], share=0.9))
        0.81
    """
    values = np.asarray(finals, dtype=np.float64)
    best = np.nanmax(values, axis=0) if higher_is_better else np.nanmin(values, axis=0)
    return np.where(best > 0, best * share if higher_is_better else best / share, np.nan)


def label_saving(needed: ArrayLike, baseline: ArrayLike) -> Any:
    """The share of the baseline's labels that a method does without: ``1 - needed / baseline``.

    Returns:
        1 where only the baseline never gets there, -inf where only the method does not, nan where
        neither does.

    Example:
        >>> float(label_saving(150, 200))
        0.25
    """
    ours, theirs = np.asarray(needed, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return 1 - ours / theirs
