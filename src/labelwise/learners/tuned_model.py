"""What the linear probe and the models of tables have in common: labels, folds, predictions, files.

Both have a column of logits per class, choose their settings by cross-validation on labelled items
and keep the out-of-fold predictions of it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array, Floats, HostArray, Ids, row_noise
from labelwise.errors import BadInput
from labelwise.kernels.calibration import calibrate_temperature, softmax
from labelwise.learner import check_names
from labelwise.learners.array_files import load_arrays, save_arrays
from labelwise.learners.estimator import EstimatorMethods
from labelwise.learners.weights import convert_numbers, drop_zero_weights

FOLDS = 5  # Number of folds
LEAST_FOLDED = 2  # Labels per class from which on there are folds

HOTTEST, COLDEST = 20.0, 0.5  # Limits of the temperature

_FOLD_STREAM = 61


class OutOfFold(NamedTuple):
    """Predictions of labelled items by models that were not trained on them."""

    logits: Floats  # ``(m, K)``, or predicted values ``(m, k)`` of a regression
    targets: HostArray  # ``(m,)`` columns of the logits, or values ``(m, k)``

    def to_arrays(self) -> dict[str, HostArray]:
        """The arrays to save, by name."""
        return {f"out_of_fold_{name}": own for name, own in self._asdict().items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, HostArray]) -> "OutOfFold | None":
        """Remove what `to_arrays` added from saved arrays."""
        logits, targets = (arrays.pop(f"out_of_fold_{name}", None) for name in cls._fields)
        return None if logits is None or targets is None else cls(logits, targets)


class TrainingRows(NamedTuple):
    """Rows ``(m, d)``, targets (``(m,)`` columns or ``(m, k)`` values), and weights ``(m,)``."""

    rows: Floats
    targets: HostArray
    weights: Floats


class TunedModel(EstimatorMethods, ABC):
    """A model of classes or values whose settings are chosen by cross-validation.

    Logits and probabilities have a column per class and are calibrated:
    ``softmax(logits) == probabilities``.

    Attributes:
        classes_: the classes of the columns, in order; None for a regression.
        out_of_fold: out-of-fold predictions of the labelled items; None if there were too few.
    """

    classes: int | Sequence[Any] | None
    classes_: HostArray | None = None
    out_of_fold: OutOfFold | None = None
    _seed = 0

    def _read_labelled(self, inputs: Array, targets: Array, weights: Array) -> TrainingRows:
        """The labelled items of weight above 0, checked; sets `classes_`."""
        rows = check_features(inputs)
        kept, own = drop_zero_weights(weights, len(rows))
        if self.regression:
            goal: HostArray = check_values(targets, len(rows))
        else:
            goal, self.classes_ = encode_classes(self.classes, targets, len(rows))
        return TrainingRows(rows[kept], goal[kept], own)

    @property
    @abstractmethod
    def _columns(self) -> int:
        """Number of features of the trained model."""

    @abstractmethod
    def _compute_logits(self, rows: HostArray) -> Floats:
        """Calibrated logits ``(n, K)``, or values ``(n, k)``."""

    @abstractmethod
    def _represent_members(self, rows: HostArray, names: Sequence[str]) -> dict[str, Array]:
        """The named representations by the members."""

    def _check_rows(self, inputs: Array) -> HostArray:
        return check_features(inputs, self._columns, dtype=None)

    def predict(self, inputs: Array) -> HostArray:
        """The classes ``(n,)``, or values ``(n,)`` or ``(n, k)``."""
        rows = self._compute_logits(self._check_rows(inputs))
        if self.regression:
            return rows[:, 0] if rows.shape[1] == 1 else rows
        assert self.classes_ is not None
        return np.asarray(self.classes_[rows.argmax(axis=1)])

    def offered(self) -> tuple[str, ...]:
        """Names of the representations that `represent` gives."""
        if self.regression:
            return ("features", "outputs", "member_votes")
        return ("features", "probabilities", "logits", "member_probabilities", "member_votes")

    def represent(self, inputs: Array, names: Sequence[str]) -> dict[str, Array]:
        """The named representations of ``(n, d)`` features, which are the inputs themselves."""
        check_names(names, self.offered(), type(self).__name__)
        rows = self._check_rows(inputs)
        found: dict[str, Array] = {"features": rows}
        if {"logits", "probabilities", "outputs"} & set(names):
            logits = self._compute_logits(rows)
            found |= {"logits": logits, "outputs": logits}
            if "probabilities" in names:
                found["probabilities"] = softmax(logits)
        if {"member_probabilities", "member_votes", "gradient_sketch"} & set(names):
            found |= self._represent_members(rows, names)
        return {name: found[name] for name in names}

    def _save_model(
        self, folder: str | Path, arrays: Mapping[str, HostArray], facts: Mapping[str, Any]
    ) -> None:
        """Write arrays and JSON values, and what every such model has."""
        held = {} if self.out_of_fold is None else self.out_of_fold.to_arrays()
        classes = None if self.classes_ is None else self.classes_.tolist()
        own = {"regression": self.regression, "classes": classes, "seed": self._seed}
        save_arrays(folder, type(self).__name__, {**arrays, **held}, {**own, **facts})

    def _load_model(self, folder: str | Path) -> tuple[dict[str, HostArray], dict[str, Any]]:
        """Read what `_save_model` wrote; the caller takes over its own arrays and values."""
        arrays, facts = load_arrays(folder, type(self).__name__)
        if facts["regression"] != self.regression:
            raise BadInput(f"{folder} holds a model for other labels; train again")
        self.out_of_fold = OutOfFold.from_arrays(arrays)
        return arrays, facts


def encode_classes(
    classes: int | Sequence[Any] | None, targets: Array, count: int
) -> tuple[Ids, HostArray]:
    """Column numbers ``(m,)`` of the targets, and the classes of the columns ``(K,)``."""
    given = np.asarray(targets)
    if given.shape != (count,) or not count:
        raise BadInput(f"give one class per item; got {count} items, targets {given.shape}")
    for place, label in enumerate(given.tolist()):
        if label is None or (isinstance(label, float) and math.isnan(label)):
            raise BadInput(f"item {place} has no label ({label}); leave it out")
    if classes is None:
        try:
            known = np.unique(given)
        except TypeError:
            kinds = sorted({type(label).__name__ for label in given.tolist()})
            raise BadInput(f"labels are of several types ({', '.join(kinds)}); use one") from None
    elif isinstance(classes, int | np.integer):
        largest = int(given.max()) if given.dtype.kind in "iu" else 0
        known = np.arange(max(int(classes), largest + 1))
    else:
        known = np.asarray(classes)
    order = np.argsort(known, kind="stable")
    places = np.searchsorted(known, given, sorter=order)
    columns = order[np.minimum(places, len(order) - 1)]
    wrong = known[columns] != given
    if wrong.any():
        label = given[wrong][0].item()
        raise BadInput(f"label {label!r} is not one of the {len(order)} classes given")
    return columns.astype(np.int64), known


def check_features(inputs: Array, width: int | None = None, dtype: Any = np.float64) -> HostArray:
    """``(n, d)`` finite features."""
    rows = convert_numbers(inputs, "features")
    if rows.ndim != 2:
        raise BadInput(f"features must be (items, columns); got shape {rows.shape}")
    if not rows.shape[1]:
        raise BadInput(f"features have no columns; got shape {rows.shape}")
    if width is not None and rows.shape[1] != width:
        raise BadInput(f"the model was trained on {width} features; got {rows.shape[1]}")
    rows = rows if dtype is None else rows.astype(dtype)
    if dtype is not None and not np.isfinite(rows).all():
        place = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        raise BadInput(f"features of item {place} hold NaN or infinity; leave it out or fill them")
    return rows


def check_values(targets: Array, count: int) -> Floats:
    """``(m, k)`` finite values."""
    values = convert_numbers(targets, "targets").astype(np.float64)
    if not values.ndim or len(values) != count or not count:
        raise BadInput(f"give one value per item; got {count} items, targets {values.shape}")
    values = values.reshape(count, -1)
    if not np.isfinite(values).all():
        raise BadInput("labels must be finite numbers")
    return values


def split_folds(targets: HostArray, seed: int) -> list[NDArray[np.bool_]]:
    """Masks ``(m,)`` of the folds; every class is dealt out evenly among them."""
    noise = row_noise(seed, np.arange(len(targets)), _FOLD_STREAM)
    order = np.lexsort((noise, targets))
    fold = np.empty(len(targets), dtype=np.int64)
    fold[order] = np.arange(len(targets)) % FOLDS
    return [fold == number for number in range(FOLDS) if (fold == number).any()]


def measure_loss(logits: Floats, targets: Ids, weights: Floats) -> float:
    """Mean negative log-likelihood."""
    chances = softmax(logits)[np.arange(len(targets)), targets]
    return float(-weights @ np.log(np.maximum(chances, 1e-300)) / weights.sum())


def choose_temperature(logits: Floats, targets: Ids) -> float:
    """The temperature that calibrates out-of-fold logits ``(m, K)``, within its limits."""
    return float(np.clip(calibrate_temperature(logits, targets), COLDEST, HOTTEST))
