"""What a ledger holds: batches, skips, resolutions, disagreements, people's work."""

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from labelwise.record.events import Asked, Label


@dataclass(slots=True)
class Batch:
    """A batch that was asked for.

    Attributes:
        number: 1, 2, ...
        asked: the event.
        size: how many items it asks for, those for measuring included.
        open: how many of them still want labels.
        first: the place of its first item in the line of all asked items.
    """

    number: int
    asked: Asked
    size: int
    open: int
    first: int


@dataclass(frozen=True, slots=True)
class Skip:
    """Who said that an item should not be labelled, why and when."""

    by: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Resolution:
    """The label that somebody settled, and who it was."""

    label: Label
    by: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An item whose labels differ, and who said what."""

    id: int
    votes: Mapping[str, Label]


@dataclass(frozen=True, slots=True)
class Last:
    """The last standing word of a person: ``kind`` is told, skipped or resolved."""

    id: int
    kind: str


@dataclass(slots=True)
class Work:
    """What one person did: standing labels and skips, all seconds ever told, last seen when."""

    labels: int = 0
    skips: int = 0
    seconds: float = 0.0
    at: float = 0.0


def agreed(votes: Mapping[str, Label], regression: bool = False) -> Label | None:
    """The label that most agree on, or the median of a regression's; None if there is a tie.

    Example:
        >>> agreed({"ann": "cat", "bob": "dog", "cem": "cat"})
        'cat'
        >>> agreed({"ann": "cat", "bob": "dog"}), agreed({"ann": 1.0, "bob": 2.0}, regression=True)
        (None, 1.5)
    """
    if len(votes) <= 1:
        return next(iter(votes.values()), None)
    if regression and not any(isinstance(label, str) for label in votes.values()):
        return statistics.median(votes.values())  # type: ignore[type-var]
    (label, most), *others = Counter(votes.values()).most_common(2)
    return None if others and others[0][1] == most else label
