"""Validation of labels and weights before a training."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelwise.arrays import Array, HostArray
from labelwise.errors import BadInput
from labelwise.learners.inputs import as_tensor
from labelwise.learners.settings import Loss
from labelwise.learners.weights import convert_numbers, scale_to_mean_one


def convert_targets(targets: Array, count: int, loss: str | Loss) -> tuple[Tensor, bool]:
    """Targets as ``(m,)`` int64 classes and True, or ``(m, k)`` values (with "mse") and False."""
    if not isinstance(targets, Tensor):
        targets = _convert_targets(targets)
    if targets.ndim == 0 or len(targets) != count:
        raise BadInput(f"there are {count} items but targets of shape {tuple(targets.shape)}")
    if count == 0:
        raise BadInput("no labelled items; give at least one")
    whole = not targets.is_floating_point()
    if loss == "cross_entropy" and (not whole or targets.ndim != 1):
        raise BadInput(
            f"cross_entropy needs one class per item as a whole number; got {targets.dtype} of "
            f"shape {tuple(targets.shape)}"
        )
    if whole and targets.ndim == 1 and loss != "mse":
        return targets.to(torch.int64), True
    values = targets.to(torch.float64) if whole else targets
    if not bool(torch.isfinite(values).all()):
        raise BadInput(
            f"targets must be finite; item {_find_first_label(~torch.isfinite(values))} is not"
        )
    return values.reshape(count, -1), False


def _convert_targets(targets: Array) -> Tensor:
    try:
        array = convert_numbers(targets, "targets")
    except BadInput as error:
        hint = "" if np.ma.is_masked(targets) else ": number the classes from 0"
        raise BadInput(f"{error}{hint}") from None
    if array.dtype.itemsize > 8:
        raise BadInput(f"targets must be numbers of 64 bits at most; got {array.dtype}")
    return as_tensor(array)


def check_targets(targets: Tensor, classes: bool, outputs: int) -> None:
    """Reject labels without an output of the module, and labels of a single class."""
    check_label_range(targets, classes, outputs)
    if classes and bool((targets == targets[0]).all()):
        raise BadInput(
            f"all {len(targets)} labels are class {int(targets[0])}; a classifier needs two "
            "classes or more"
        )


def check_label_range(targets: Tensor, classes: bool, outputs: int) -> None:
    """Reject labels without an output of the module."""
    if not classes:
        if targets.shape[1] != outputs:
            raise BadInput(f"targets have {targets.shape[1]} values but the module gives {outputs}")
        return
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= outputs:
        wrong = low if low < 0 else high
        place = _find_first_label(targets == wrong)
        raise BadInput(
            f"label {wrong} of item {place} is out of range; the module has {outputs} classes, "
            f"0 to {outputs - 1}"
        )


def convert_weights(weights: Array, count: int) -> Tensor:
    """``(m,)`` weights of mean 1; ones for None."""
    if weights is None:
        return torch.ones(count)
    return torch.from_numpy(scale_to_mean_one(weights, count))


def split_holdout(
    targets: Tensor, classes: bool, share: float, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of training and holdout, by class; one item of every class stays in training."""
    count = len(targets)
    order = rng.permutation(count)
    wanted = max(round(share * count), 1)
    if not classes:
        kept, held = order[wanted:], order[:wanted]
    else:
        kept, held = _split_holdout_by_class(targets.cpu().numpy()[order], order, wanted)
    if not len(kept) or not len(held):
        raise BadInput(
            f"{count} labelled items are too few to hold out a share of {share}; give more labels "
            "or validation=0"
        )
    return np.sort(kept), np.sort(held)


def _split_holdout_by_class(
    labels: HostArray, order: NDArray[np.int64], wanted: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Hold out every class's share, rounded so that the total is ``wanted``."""
    names, sizes = np.unique(labels, return_counts=True)
    shares = wanted * sizes / len(labels)
    taken = np.minimum(np.floor(shares).astype(np.int64), sizes - 1)  # one stays in training
    while taken.sum() < min(wanted, (sizes - 1).sum()):
        taken[np.argmax(np.where(taken < sizes - 1, shares - taken, -np.inf))] += 1
    held = np.zeros(len(labels), dtype=bool)
    for name, count in zip(names, taken, strict=True):
        held[np.flatnonzero(labels == name)[:count]] = True
    return order[~held], order[held]


def _find_first_label(wrong: Tensor) -> int:
    """Position of the first marked item."""
    return int(wrong.reshape(len(wrong), -1).any(dim=1).nonzero()[0, 0])
