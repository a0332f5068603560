"""Votes of annotators on an item, and the label that follows from them."""

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from labelwise.record.events import Label

RECENT = 1000  # Number of recent labelling times that are kept

NO_VOTES: Mapping[str, Label] = {}


@dataclass(frozen=True, slots=True)
class Skip:
    """The annotator who skipped an item, the reason and the time."""

    by: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Resolution:
    """The final label of an item and the annotator who decided it."""

    label: Label
    by: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An item whose votes tie, with the vote of each annotator."""

    id: int
    votes: Mapping[str, Label]


@dataclass(frozen=True, slots=True)
class LastAction:
    """An annotator's last action that still counts: ``kind`` is told, skipped or resolved."""

    id: int
    kind: str


@dataclass(slots=True)
class AnnotatorWork:
    """One annotator's current labels and skips, total seconds, and time of the last action."""

    labels: int = 0
    skips: int = 0
    seconds: float = 0.0
    at: float = 0.0


def majority_label(votes: Mapping[str, Label], regression: bool = False) -> Label | None:
    """The label with the most votes, or the median in a regression; None if there is a tie.

    Example:
        >>> majority_label({"ann": "cat", "bob": "dog", "cem": "cat"})
        'cat'
        >>> majority_label({"ann": "cat", "bob": "dog"})
        >>> majority_label({"ann": 1.0, "bob": 2.0}, regression=True)
        1.5
    """
    if len(votes) <= 1:
        return next(iter(votes.values()), None)
    numbers = [label for label in votes.values() if not isinstance(label, str)]
    if regression and len(numbers) == len(votes):
        return statistics.median(numbers)
    (label, most), *others = Counter(votes.values()).most_common(2)
    return None if others and others[0][1] == most else label
