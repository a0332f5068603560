"""What people say of items, and the label that follows from it.

Each person has at most one standing word on an item, a label or a skip, and may besides settle its
label for all (`Resolved`). The item's label is the settled one; otherwise the one that most of its
labels agree on, or their median in a regression; a tie has none and is a disagreement. While
somebody's skip stands, an item has no label and wants none; a later label ends the skip, whosever
it was.
"""

from collections import deque
from collections.abc import Mapping

from labelwise.record.entries import Disagreement, Last, Resolution, Skip, Work, agreed
from labelwise.record.events import Label, Resolved, Skipped, Told, Withdrawn

RECENT = 1000
"""How many of the last times taken per label are kept."""

NO_VOTES: Mapping[str, Label] = {}


class Opinions:
    """What was said of every item; the part of a ledger that knows nothing of batches and loans.

    Attributes:
        labels: by id, the label of every item that has one.
        votes: by id, who said what; the inner mappings are shared and must not be changed.
        resolutions: by id, what was settled.
        skipped: by id, the standing skip.
        per_annotator: by person, what they did.
        seconds_spent: all seconds ever told.
        recent_seconds: the times taken for the last labels, at most 1,000 of them.
        told: how many labels stand, counting each person's.

    Example:
        >>> opinions = Opinions()
        >>> opinions.tell(Told(at=1.0, id=8, label="cat", by="ann"))
        >>> opinions.tell(Told(at=2.0, id=8, label="dog", by="bob"))
        >>> opinions.labels, [one.id for one in opinions.disagreements()], opinions.last("bob")
        ({}, [8], Last(id=8, kind='told'))
        >>> opinions.resolve(Resolved(at=3.0, id=8, label="cat", by="eve"))
        >>> opinions.labels
        {8: 'cat'}
    """

    def __init__(self) -> None:
        self.labels: dict[int, Label] = {}
        self.votes: dict[int, Mapping[str, Label]] = {}
        self.resolutions: dict[int, Resolution] = {}
        self.skipped: dict[int, Skip] = {}
        self.per_annotator: dict[str, Work] = {}
        self.seconds_spent = 0.0
        self.recent_seconds: deque[float] = deque(maxlen=RECENT)
        self.told = 0
        self._regression = False
        self._said: dict[str, dict[int, None]] = {}  # by person, ids in order of their last word
        self._undecided: dict[int, None] = {}
        self._shared: dict[tuple[str, Label], Mapping[str, Label]] = {}

    def disagreements(self) -> list[Disagreement]:
        """The items whose labels tie, in the order in which that came about."""
        return [Disagreement(id, self.votes[id]) for id in self._undecided]

    def last(self, by: str) -> Last | None:
        """The last standing word of a person, which an undo would take back, or None."""
        said = self._said.get(by)
        if not said:
            return None
        id = next(reversed(said))
        resolution, skip = self.resolutions.get(id), self.skipped.get(id)
        if resolution is not None and resolution.by == by:
            return Last(id, "resolved")
        return Last(id, "skipped" if skip is not None and skip.by == by else "told")

    def tell(self, event: Told) -> None:
        """Take in a label, which replaces this person's last and ends any skip."""
        id, by = event.id, event.by
        work = self._work(by, event.at)
        if event.seconds is not None:
            work.seconds += event.seconds
            self.seconds_spent += event.seconds
            self.recent_seconds.append(event.seconds)
        self._unskip(id)
        votes = self.votes.get(id)
        if votes is None:
            self.votes[id] = self._one_vote(by, event.label)
        else:
            self.votes[id] = {**votes, by: event.label}
        if votes is None or by not in votes:
            work.labels += 1
            self.told += 1
        self._say(id, by)
        self._settle(id)

    def skip(self, event: Skipped) -> None:
        """Take in that an item should not be labelled; a label of this person's goes."""
        id, by = event.id, event.by
        work = self._work(by, event.at)
        self._unskip(id)
        self._drop_vote(id, by)
        self.skipped[id] = Skip(by, event.reason, event.at)
        work.skips += 1
        self._say(id, by)
        self._settle(id)

    def resolve(self, event: Resolved) -> None:
        """Take in a label that counts whatever was voted."""
        id, by = event.id, event.by
        self._work(by, event.at)
        self._unskip(id)
        before = self.resolutions.get(id)
        self.resolutions[id] = Resolution(event.label, by)
        if before is not None and before.by != by:
            self._unsay(id, before.by)
        self._say(id, by)
        self._settle(id)

    def withdraw(self, event: Withdrawn) -> None:
        """Take back a person's last word on an item."""
        id, by = event.id, event.by
        self._work(by, event.at)
        resolution, skip = self.resolutions.get(id), self.skipped.get(id)
        if resolution is not None and resolution.by == by:
            del self.resolutions[id]
        elif skip is not None and skip.by == by:
            self._unskip(id)
        else:
            self._drop_vote(id, by)
        self._unsay(id, by)
        self._settle(id)

    def _settle(self, id: int) -> None:
        """Bring an item's label and its disagreement up to date."""
        votes, resolution = self.votes.get(id, NO_VOTES), self.resolutions.get(id)
        label: Label | None = None
        if id not in self.skipped:
            label = resolution.label if resolution else agreed(votes, self._regression)
        if label is None:
            self.labels.pop(id, None)
        else:
            self.labels[id] = label
        if votes and label is None and id not in self.skipped:
            self._undecided.setdefault(id)
        else:
            self._undecided.pop(id, None)

    def _work(self, by: str, at: float) -> Work:
        work = self.per_annotator.setdefault(by, Work())
        work.at = max(work.at, at)
        return work

    def _one_vote(self, by: str, label: Label) -> Mapping[str, Label]:
        """``{by: label}``, the same object for the same vote: a million dicts take 200 MB."""
        if type(label) is float or len(self._shared) > 100_000:
            return {by: label}
        return self._shared.setdefault((by, label), {by: label})

    def _drop_vote(self, id: int, by: str) -> None:
        votes = self.votes.get(id, NO_VOTES)
        if by not in votes:
            return
        self.per_annotator[by].labels -= 1
        self.told -= 1
        if len(votes) == 1:
            del self.votes[id]
        else:
            self.votes[id] = {who: label for who, label in votes.items() if who != by}

    def _unskip(self, id: int) -> None:
        skip = self.skipped.pop(id, None)
        if skip is not None:
            self.per_annotator[skip.by].skips -= 1
            self._unsay(id, skip.by)

    def _say(self, id: int, by: str) -> None:
        said = self._said.setdefault(by, {})
        said.pop(id, None)
        said[id] = None

    def _unsay(self, id: int, by: str) -> None:
        """Forget a person's word on an item, unless another one of theirs stands."""
        resolution, skip = self.resolutions.get(id), self.skipped.get(id)
        stands = (
            by in self.votes.get(id, NO_VOTES)
            or (resolution is not None and resolution.by == by)
            or (skip is not None and skip.by == by)
        )
        said = self._said.get(by)
        if said is not None and not stands:
            said.pop(id, None)
