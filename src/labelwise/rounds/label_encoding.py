"""Label encoding: labels as people give them, and the numbers that a learner is trained on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.errors import BadInput
from labelwise.learner import Label

MOST_CLASSES = 10_000
"""Largest whole number that may be a class without a list of classes; a model has one output
for every number up to it."""

_REMEDY = "set the classes with labelwise change classes=..., or change(classes=...)"


@dataclass(frozen=True)
class LabelEncoding:
    """Maps labels to class numbers or values, and back.

    >>> encoding = LabelEncoding.from_labels(["dog", "owl", "cat"])
    >>> encoding.encode(["owl", "cat"])
    array([2, 0])
    >>> encoding.decode(2)
    'owl'
    """

    regression: bool = False  # whether labels are values; values are used as they are
    # The classes in order; None if whole numbers are the class numbers themselves
    names: tuple[Label, ...] | None = None

    @classmethod
    def from_labels(
        cls,
        labels: Iterable[Label],
        *,
        classes: Sequence[Label] | None = None,
        regression: bool = False,
    ) -> "LabelEncoding":
        """The encoding for given classes, or else for the classes that occur in ``labels``."""
        if regression or classes is not None:
            return cls(regression, None if classes is None else tuple(classes))
        given = list(labels)
        named = {label for label in given if isinstance(label, str)}
        numbers = [label for label in given if not isinstance(label, str)]
        if named and numbers:
            raise BadInput(
                f"some labels are names ({min(named)!r}) and some are numbers ({numbers[0]!r}); "
                f"{_REMEDY}"
            )
        if named:
            return cls(False, tuple(sorted(named)))
        largest = max((int(label) for label in numbers), default=0)
        if largest > MOST_CLASSES:
            raise BadInput(
                f"label {largest} would need a model with {largest + 1:,} classes; {_REMEDY}"
            )
        return cls()

    def encode(self, labels: Sequence[Label]) -> NDArray[Any]:
        """``(m,)`` class numbers from 0, or values."""
        if self.regression:
            return np.array(labels, dtype=np.float64)
        if self.names is None:
            return np.array(labels, dtype=np.int64)
        numbers = {name: number for number, name in enumerate(self.names)}
        for label in labels:
            if label not in numbers:
                raise BadInput(
                    f"label {label!r} is not one of the classes any more; withdraw such labels, "
                    "or add it to the classes"
                )
        return np.array([numbers[label] for label in labels], dtype=np.int64)

    def decode(self, number: Any) -> Label:
        """The label of a class number, or a value as a float."""
        if self.regression:
            return float(number)
        return int(number) if self.names is None else self.names[int(number)]
