r"""Class coverage of a selection, and agreement of models on the important items.

The class-imbalance ratio of labels :math:`y_1, \dots, y_b` is
:math:`\max_c \#\{i : y_i = c\} / \min_c \#\{i : y_i = c\}` over all classes of the task: 1 if every
class is picked equally often, infinite if one is missing.

With :math:`I_j^t` the t % of items with the largest Lewis weights of model :math:`j`, and
:math:`I^t` the t % with the largest :math:`\max_j w_i(U^j)`, the coverage of :math:`k` models is

.. math:: \kappa(t) = \frac1k \sum_{j=1}^k \frac{|I_j^t \cap I^t|}{|I^t|} .

It is 1 for models that rank the items alike, and approaches :math:`1/k` for models whose important
items are disjoint.

Reference: S. Huang, Y. Li, Y. Sun, Y. Tang, "One-shot Active Learning Based on Lewis Weight
Sampling for Multiple Deep Models", ICLR 2024, Appendix C.2 and Figure 4.
"""

import math
from collections.abc import Sequence

import numpy as np

from labelwise.arrays import Array, Floats, Ids, comparable, largest, to_numpy
from labelwise.errors import BadInput


def model_coverage(
    weights: Sequence[Array] | Floats, percent: float, *, ids: Ids | None = None
) -> float:
    """The mean share of the models' own most important items among the shared ones.

    ``weights`` are ``(k, n)`` Lewis weights (or leverage scores) of every item in every model;
    ``percent`` of the items count as important. ``ids`` ``(n,)`` break ties; row numbers if None.

    >>> model_coverage([[1.0, 0.1, 0.9, 0.2], [0.9, 0.1, 1.0, 0.2]], 50)
    1.0
    >>> model_coverage([[1.0, 0.1, 0.0, 0.0], [0.0, 0.0, 1.0, 0.1]], 50)
    0.5
    """
    scores = np.asarray(weights, dtype=np.float64)
    if scores.ndim != 2 or not scores.size or not np.isfinite(scores).all():
        raise BadInput(f"weights must be finite, models by items; got shape {scores.shape}")
    if not 0 < percent <= 100:
        raise BadInput(f"percent must be above 0 and at most 100; got {percent}")
    n = scores.shape[1]
    count = max(1, round(percent / 100 * n))
    names = np.arange(n, dtype=np.int64) if ids is None else np.asarray(ids, dtype=np.int64)
    shared = largest(comparable(scores.max(axis=0)), count, names)
    chosen = np.zeros(n, dtype=bool)
    chosen[shared] = True
    own = [chosen[largest(comparable(row), count, names)].sum() for row in scores]
    return float(np.mean(own) / count)


def class_counts(labels: Array, classes: int | None = None) -> Ids:
    """Number of items of each class, ``(K,)``, from labels ``(b,)`` that are whole numbers from 0.

    ``classes`` is by default the largest label plus 1.

    >>> class_counts([0, 2, 2]).tolist()
    [1, 0, 2]
    """
    values = np.asarray(to_numpy(labels) if hasattr(labels, "shape") else labels)
    if values.ndim != 1 or not len(values):
        raise BadInput(f"labels must be a list of at least one class; got shape {values.shape}")
    if values.dtype.kind == "f" and np.isfinite(values).all() and (values == values // 1).all():
        values = values.astype(np.int64)
    if values.dtype.kind not in "iu":
        raise BadInput(f"labels must be whole numbers, one class per item; got {values.dtype}")
    if values.min() < 0:
        raise BadInput(f"labels must be 0 or more; got {values.min()}")
    check_class_count(classes)
    if classes is not None and values.max() >= classes:
        raise BadInput(f"label {values.max()} is out of range for {classes} classes")
    return np.bincount(values, minlength=classes or 0).astype(np.int64)


def check_class_count(classes: int | None) -> None:
    """Reject a number of classes below 1; None means unknown."""
    if classes is not None and classes < 1:
        raise BadInput(f"classes must be 1 or more; got {classes}")


def imbalance_ratio(labels: Array, classes: int | None = None) -> float:
    """The largest class count divided by the smallest; infinite if a class is missing.

    The arguments are those of `class_counts`; give ``classes`` if one may be missing.

    >>> imbalance_ratio([0, 0, 0, 1, 1])
    1.5
    >>> imbalance_ratio([0, 1], classes=3)
    inf
    """
    counts = class_counts(labels, classes)
    return float(counts.max() / counts.min()) if counts.min() else math.inf
