"""Labels as people give them, and as a learner takes them: classes from 0, or values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput
from labelwise.record.events import Label

MOST_CLASSES = 10_000
"""Whole numbers stand for themselves up to here; a model has an output for each of them."""


@dataclass(frozen=True)
class Coding:
    """How labels become numbers and back.

    Attributes:
        regression: whether labels are values, which stand for themselves.
        names: the classes in order; None where whole numbers stand for themselves.

    Example:
        >>> coding = Coding.of(Settings(classes=("cat", "dog", "owl")), [])
        >>> coding.encode(["owl", "cat"])
        array([2, 0])
        >>> coding.decode(2)
        'owl'
    """

    regression: bool
    names: tuple[Label, ...] | None

    @classmethod
    def of(cls, settings: Settings, labels: Iterable[Label]) -> "Coding":
        """The coding of a campaign; without given classes, of the labels it has.

        Raises:
            BadInput: the classes are not given, and labels are partly names and partly numbers.
        """
        if settings.regression or settings.classes is not None:
            return cls(settings.regression, settings.classes)
        named = {label for label in labels if isinstance(label, str)}
        if not named:
            largest = max((int(label) for label in labels), default=0)
            if largest > MOST_CLASSES:
                raise BadInput(
                    f"label {largest} would be one of {largest + 1:,} classes; tell the campaign "
                    "its classes by labelwise change classes=..., or change(classes=...)"
                )
            return cls(False, None)
        numbers = [label for label in labels if not isinstance(label, str)]
        if numbers:
            raise BadInput(
                f"labels are names ({min(named)!r}) and numbers ({numbers[0]!r}); tell the "
                "campaign its classes by labelwise change classes=..., or change(classes=...)"
            )
        return cls(False, tuple(sorted(named)))

    def encode(self, labels: Sequence[Label]) -> NDArray[Any]:
        """``(m,)`` whole numbers from 0, or values."""
        if self.regression:
            return np.array(labels, dtype=np.float64)
        if self.names is None:
            return np.array(labels, dtype=np.int64)
        places = {name: place for place, name in enumerate(self.names)}
        for label in labels:
            if label not in places:
                raise BadInput(
                    f"label {label!r} is no class any more; withdraw such labels, or change "
                    "classes so that it is one"
                )
        return np.array([places[label] for label in labels], dtype=np.int64)

    def decode(self, number: Any) -> Label:
        """The label of a class number, or a value as it is."""
        if self.regression:
            return float(number)
        return int(number) if self.names is None else self.names[int(number)]
