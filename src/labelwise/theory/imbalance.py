r"""How unevenly the classes are picked.

The class-imbalance ratio of labels :math:`y_1, \dots, y_b` is

.. math:: \max_c \#\{i : y_i = c\} \, / \, \min_c \#\{i : y_i = c\} ,

over all classes of the task: 1 where every class is picked equally often, infinite where one is
missing.

Reference: S. Huang, Y. Li, Y. Sun, Y. Tang, "One-shot Active Learning Based on Lewis Weight
Sampling for Multiple Deep Models", ICLR 2024, Appendix C.2.2.
"""

import math
from typing import Any

import numpy as np

from labelwise.arrays import Ids, to_numpy
from labelwise.errors import BadInput


def class_counts(labels: Any, classes: int | None = None) -> Ids:
    """How often each class occurs, ``(K,)``.

    Args:
        labels: ``(b,)`` whole numbers from 0.
        classes: how many classes the task has; by default as many as the largest label says.

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
    check_classes(classes)
    if classes is not None and values.max() >= classes:
        raise BadInput(f"label {values.max()} is out of range for {classes} classes")
    return np.bincount(values, minlength=classes or 0).astype(np.int64)


def check_classes(classes: int | None) -> None:
    """Refuse a number of classes that cannot be; None is unknown."""
    if classes is not None and classes < 1:
        raise BadInput(f"classes must be 1 or more; got {classes}")


def imbalance_ratio(labels: Any, classes: int | None = None) -> float:
    """The largest class count divided by the smallest; infinite where a class is missing.

    Args:
        labels: as in `class_counts`.
        classes: as in `class_counts`; give it where a class may be missing altogether.

    >>> imbalance_ratio([0, 0, 0, 1, 1])
    1.5
    >>> imbalance_ratio([0, 1], classes=3)
    inf
    """
    counts = class_counts(labels, classes)
    return float(counts.max() / counts.min()) if counts.min() else math.inf
