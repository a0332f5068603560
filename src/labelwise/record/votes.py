"""Votes: labels, skips and resolutions of items, and the label that follows from them.

Each annotator has at most one vote or one skip per item, and can resolve its label for everyone
(`Resolved`). The label of an item is its resolution; otherwise the majority of its votes, or
their median in a regression. A tie has no label and is a disagreement. A skipped item has no label
and needs none; a later label by anyone ends the skip.
"""

import statistics
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

from labelwise.record.events import Label, Resolved, Skipped, Told, Withdrawn

RECENT = 1000
"""Number of recent labelling times that are kept."""

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
    if regression and not any(isinstance(label, str) for label in votes.values()):
        return statistics.median(votes.values())  # type: ignore[type-var]
    (label, most), *others = Counter(votes.values()).most_common(2)
    return None if others and others[0][1] == most else label


class ItemVotes:
    """Votes, skips and resolutions of all items: the part of a ledger without batches and leases.

    Attributes:
        labels: id to label, for every item that has one.
        votes: id to annotator to label; the inner mappings are shared, do not change them.
        resolutions: id to its resolution.
        skipped: id to its current skip.
        per_annotator: annotator to their work.
        seconds_spent: total labelling time.
        recent_seconds: times of the last labels, at most 1,000.
        vote_count: number of votes that count.

    Example:
        >>> votes = ItemVotes()
        >>> votes.tell(Told(at=1.0, id=8, label="cat", by="ann"))
        >>> votes.tell(Told(at=2.0, id=8, label="dog", by="bob"))
        >>> votes.labels, [one.id for one in votes.disagreements()], votes.last_action("bob")
        ({}, [8], LastAction(id=8, kind='told'))
        >>> votes.resolve(Resolved(at=3.0, id=8, label="cat", by="eve"))
        >>> votes.labels
        {8: 'cat'}
    """

    def __init__(self) -> None:
        self.labels: dict[int, Label] = {}
        self.votes: dict[int, Mapping[str, Label]] = {}
        self.resolutions: dict[int, Resolution] = {}
        self.skipped: dict[int, Skip] = {}
        self.per_annotator: dict[str, AnnotatorWork] = {}
        self.seconds_spent = 0.0
        self.recent_seconds: deque[float] = deque(maxlen=RECENT)
        self.vote_count = 0
        self._regression = False
        self._actions: dict[str, dict[int, None]] = {}  # annotator to ids, by last action
        self._tied: dict[int, None] = {}
        self._shared: dict[tuple[str, Label], Mapping[str, Label]] = {}

    def disagreements(self) -> list[Disagreement]:
        """The items whose votes tie, oldest tie first."""
        return [Disagreement(id, self.votes[id]) for id in self._tied]

    def last_action(self, by: str) -> LastAction | None:
        """The annotator's last action that still counts, which an undo takes back, or None."""
        ids = self._actions.get(by)
        if not ids:
            return None
        id = next(reversed(ids))
        if self._resolved_by(id, by):
            return LastAction(id, "resolved")
        return LastAction(id, "skipped" if self._skipped_by(id, by) else "told")

    def tell(self, event: Told) -> None:
        """Add a vote; it replaces the annotator's previous one and ends any skip."""
        id, by = event.id, event.by
        if id in self.skipped:
            self._remove_skip(id)
        new = by not in self.votes.get(id, NO_VOTES)
        self._add_vote(id, by, event.label)
        work = self._record_action(id, by, event.at)
        work.labels += new
        self.vote_count += new
        if event.seconds is not None:
            work.seconds += event.seconds
            self.seconds_spent += event.seconds
            self.recent_seconds.append(event.seconds)
        self._update_item(id)

    def skip(self, event: Skipped) -> None:
        """Skip an item; this removes the annotator's vote."""
        id, by = event.id, event.by
        self._remove_skip(id)
        self._remove_vote(id, by)
        self.skipped[id] = Skip(by, event.reason, event.at)
        self._record_action(id, by, event.at).skips += 1
        self._update_item(id)

    def resolve(self, event: Resolved) -> None:
        """Set the label of an item, overriding all votes."""
        id, by = event.id, event.by
        self._remove_skip(id)
        before = self.resolutions.get(id)
        self.resolutions[id] = Resolution(event.label, by)
        if before is not None and before.by != by:
            self._remove_action(id, before.by)
        self._record_action(id, by, event.at)
        self._update_item(id)

    def rename_label(self, old: Label, new: Label) -> None:
        """Replace a label everywhere; the order of everyone's actions stays."""
        for id, votes in list(self.votes.items()):
            if old in votes.values():
                self.votes[id] = {by: new if label == old else label for by, label in votes.items()}
                self._update_item(id)
        for id, made in list(self.resolutions.items()):
            if made.label == old:
                self.resolutions[id] = Resolution(new, made.by)
                self._update_item(id)

    def withdraw(self, event: Withdrawn) -> None:
        """Take back an annotator's last action on an item."""
        id, by = event.id, event.by
        work = self.per_annotator.setdefault(by, AnnotatorWork())
        work.at = max(work.at, event.at)
        if self._resolved_by(id, by):
            del self.resolutions[id]
        elif self._skipped_by(id, by):
            self._remove_skip(id)
        else:
            self._remove_vote(id, by)
        self._remove_action(id, by)
        self._update_item(id)

    def _resolved_by(self, id: int, by: str) -> bool:
        resolution = self.resolutions.get(id)
        return resolution is not None and resolution.by == by

    def _skipped_by(self, id: int, by: str) -> bool:
        skip = self.skipped.get(id)
        return skip is not None and skip.by == by

    def _update_item(self, id: int) -> None:
        """Update the label and the disagreement of an item."""
        votes, resolution = self.votes.get(id, NO_VOTES), self.resolutions.get(id)
        label: Label | None = None
        if id not in self.skipped and resolution is not None:
            label = resolution.label
        elif id not in self.skipped and len(votes) == 1:
            (label,) = votes.values()
        elif id not in self.skipped:
            label = majority_label(votes, self._regression)
        if label is None:
            self.labels.pop(id, None)
        else:
            self.labels[id] = label
        if votes and label is None and id not in self.skipped:
            self._tied.setdefault(id)
        else:
            self._tied.pop(id, None)

    def _record_action(self, id: int, by: str, at: float) -> AnnotatorWork:
        """Make an item the annotator's last one; return their work."""
        ids = self._actions.setdefault(by, {})
        ids.pop(id, None)
        ids[id] = None
        work = self.per_annotator.setdefault(by, AnnotatorWork())
        work.at = max(work.at, at)
        return work

    def _add_vote(self, id: int, by: str, label: Label) -> None:
        """Set a vote. Equal single votes share one dict, since a million dicts take 200 MB."""
        votes = self.votes.get(id)
        if votes is not None:
            self.votes[id] = {**votes, by: label}
        elif type(label) is float or len(self._shared) > 100_000:  # 1.0 and 1 are equal keys
            self.votes[id] = {by: label}
        else:
            self.votes[id] = self._shared.setdefault((by, label), {by: label})

    def _remove_vote(self, id: int, by: str) -> None:
        votes = self.votes.get(id, NO_VOTES)
        if by not in votes:
            return
        self.per_annotator[by].labels -= 1
        self.vote_count -= 1
        if len(votes) == 1:
            del self.votes[id]
        else:
            self.votes[id] = {who: label for who, label in votes.items() if who != by}

    def _remove_skip(self, id: int) -> None:
        skip = self.skipped.pop(id, None)
        if skip is not None:
            self.per_annotator[skip.by].skips -= 1
            self._remove_action(id, skip.by)

    def _remove_action(self, id: int, by: str) -> None:
        """Remove an item from the annotator's actions, unless another action on it counts."""
        if (
            by in self._actions
            and by not in self.votes.get(id, NO_VOTES)
            and not self._resolved_by(id, by)
            and not self._skipped_by(id, by)
        ):
            self._actions[by].pop(id, None)
