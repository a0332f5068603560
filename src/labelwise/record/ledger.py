"""The ledger: the state of a campaign, updated event by event.

The ledger is not stored: it is replayed from the record. `Ledger.extend` takes time in proportion
to the ids of the events, and every query in proportion to its answer, not to the record's length.

Each annotator has at most one vote or one skip per item, and can resolve its label for everyone.
The label of an item is its resolution; otherwise the majority of its votes, or their median in a
regression. A tie has no label and is a disagreement. A skipped item has no label and needs none; a
later label by anyone ends the skip.
"""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, KeysView, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from labelwise.files import JsonObject
from labelwise.record.events import (
    KINDS,
    Added,
    Asked,
    Changed,
    Event,
    Label,
    Lent,
    Noted,
    Released,
    Renamed,
    Resolved,
    Returned,
    Skipped,
    Started,
    Told,
    Trained,
    Training,
    TrainingFailed,
    Withdrawn,
)
from labelwise.record.label_queue import LabelQueue
from labelwise.record.votes import (
    NO_VOTES,
    RECENT,
    AnnotatorWork,
    Disagreement,
    LastAction,
    Resolution,
    Skip,
    majority_label,
)

T = TypeVar("T")


@dataclass(slots=True)
class Batch:
    """A batch of items that need labels."""

    number: int  # 1, 2, ...
    asked: Asked  # the event
    # number of its items, including those for evaluation, without those that were released or
    # asked for again by a later batch
    size: int
    open: int  # number of its items that still need labels
    first: int  # position of its first item in the queue


class Pick(NamedTuple):
    """An item of a batch: the event of the batch, and its rank from 0."""

    asked: Asked
    rank: int

    def entry(self, values: tuple[T, ...] | None) -> T | None:
        """Its entry in a column of the event; None for items that are only for evaluation."""
        return None if values is None or self.rank >= len(values) else values[self.rank]


class Ledger:
    """The state of a campaign after the events applied so far. Only `extend` changes it.

    Example:
        >>> ledger = replay([
        ...     Started(at=0.0, settings={"overlap": 1}, items=100),
        ...     Asked(at=1.0, batch=1, ids=(8, 4, 6), weights=(20.0, 50.0, 30.0)),
        ...     Told(at=2.0, id=8, label="cat", by="ann", seconds=1.5),
        ...     Skipped(at=3.0, id=4, by="ann", reason="blurred"),
        ... ])
        >>> ledger.labels, list(ledger.waiting), ledger.skipped[4].reason, ledger.weight_of(4)
        ({8: 'cat'}, [6], 'blurred', 50.0)
        >>> ledger.available("bob", 5, now=4.0), ledger.last_action("ann")
        ([6], LastAction(id=4, kind='skipped'))
    """

    def __init__(self) -> None:
        self.labels: dict[int, Label] = {}  # id to label, for every item that has one
        # id to annotator to label; the inner mappings are shared, do not change them
        self.votes: dict[int, Mapping[str, Label]] = {}
        self.resolutions: dict[int, Resolution] = {}  # id to its resolution
        self.skipped: dict[int, Skip] = {}  # id to its current skip
        self.per_annotator: dict[str, AnnotatorWork] = {}  # annotator to their work
        self.seconds_spent = 0.0  # total labelling time
        # times of the last labels, at most 1,000
        self.recent_seconds: deque[float] = deque(maxlen=RECENT)
        self.vote_count = 0  # number of votes that count
        self.length = 0  # number of events applied
        self.settings: JsonObject = {}  # current settings
        self.overlap = 1  # number of annotators who label each item
        self.items = 0  # number of items in the pool
        self.batches: list[Batch] = []  # all batches, oldest first
        # ids that still need labels, oldest batch first, in the order of picking
        self.waiting = LabelQueue()
        # ids that were released and not asked for again; labels of them are accepted
        self.released: dict[int, None] = {}
        self.validation: set[int] = set()  # ids that are used only for evaluation
        # id to annotator to the end of the lease; may contain expired leases
        self.leases: dict[int, dict[str, float]] = {}
        self.notes: dict[int, dict[str, str]] = {}  # id to annotator to their note
        self.trainings: list[Trained] = []  # successful trainings, by number
        self.training: Training | None = None  # the training that runs now, or None
        self.failure: TrainingFailed | None = None  # the failure of the last training, or None
        self.latest = 0.0  # the latest time of an event
        self.snapshot_length = 0  # number of events that the last saved snapshot covers
        self._open: dict[int, Batch] = {}  # by index in self.batches
        self._firsts: list[int] = []  # first position of every batch
        self._lent_to: dict[str, dict[int, None]] = {}
        self._regression = False
        self._actions: dict[str, dict[int, None]] = {}  # annotator to ids, by last action
        self._tied: dict[int, None] = {}
        self._shared: dict[tuple[str, Label], Mapping[str, Label]] = {}

    # Queries

    @property
    def asked_ids(self) -> KeysView[int]:
        """The ids of all batches; a view with the speed of a set."""
        return self.waiting.positions.keys()

    @property
    def open_batches(self) -> list[Batch]:
        """The batches that still need labels, oldest first."""
        return [self._open[index] for index in sorted(self._open)]

    def pick_of(self, id: int) -> Pick | None:
        """The last batch that contains an item, and its rank in it; None if it is in none."""
        position = self.waiting.positions.get(id)
        if position is None:
            return None
        batch = self.batches[self._find_batch_index(id)]
        return Pick(batch.asked, position - batch.first)

    def batch_of(self, id: int) -> int | None:
        """The number of the last batch that contains an item, or None."""
        pick = self.pick_of(id)
        return None if pick is None else pick.asked.batch

    def weight_of(self, id: int) -> float | None:
        """The number of pool items that a pick represents, or None if it has no weight."""
        pick = self.pick_of(id)
        return None if pick is None else pick.entry(pick.asked.weights)

    def list_free(self, now: float) -> list[int]:
        """The waiting items that nobody works on: without a label or a lease."""
        return [
            id
            for id in self.waiting
            if id not in self.votes
            and not any(until > now for until in self.leases.get(id, {}).values())
        ]

    def available(self, by: str, count: int, now: float) -> list[int]:
        """The next items for an annotator to label, at most ``count``.

        Items leased to this annotator come first. An item is leased to at most as many
        annotators as it still needs labels from, and never to one who labelled it.
        """
        found = [
            id
            for id in self._lent_to.get(by, ())
            if self.leases[id][by] > now
            and id in self.waiting
            and by not in self.votes.get(id, NO_VOTES)
        ][: max(count, 0)]
        waiting: Iterable[int] = self.waiting
        if self.overlap > 1:  # start from the first item that the annotator did not label
            waiting = self.waiting.iterate_for(by, lambda id: by in self.votes.get(id, NO_VOTES))
        for id in waiting if len(found) < count else ():
            votes, leases = self.votes.get(id, NO_VOTES), self.leases.get(id, {})
            if by in votes or leases.get(by, now) > now:
                continue
            taken = sum(until > now and who not in votes for who, until in leases.items())
            if len(votes) + taken < self.overlap:
                found.append(id)
                if len(found) >= count:
                    break
        return found

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

    # Changes

    def extend(self, events: Iterable[Event]) -> None:
        """Apply events."""
        for event in events:
            _APPLY[type(event)](self, event)
            self.length += 1
            self.latest = max(self.latest, event.at)

    def _apply_started(self, event: Started) -> None:
        self.items = event.items
        self._change_settings(dict(event.settings))

    def _apply_changed(self, event: Changed) -> None:
        self._change_settings({**self.settings, **event.settings})

    def _change_settings(self, settings: JsonObject) -> None:
        before = (self.overlap, self._regression)
        self.use_settings(settings)
        if (self.overlap, self._regression) != before:
            for id in {**self.waiting.positions, **self.votes}:
                self._update_item(id)

    def use_settings(self, settings: JsonObject) -> None:
        """Store the settings; the ledger itself uses two of them."""
        self.settings = settings
        self.overlap = int(settings.get("overlap", 1))
        self._regression = bool(settings.get("regression", False))

    def _apply_added(self, event: Added) -> None:
        self.items += event.items

    def _apply_asked(self, event: Asked) -> None:
        ids = self.add_batch(event)
        for id in ids:
            if id in self.votes or id in self.skipped or id in self.resolutions:
                self._update_item(id)

    def add_batch(self, event: Asked) -> list[int]:
        """Append a batch, all of whose items wait; return its ids."""
        ids = list(dict.fromkeys(event.ids + event.validation))
        for id in ids:
            self.released.pop(id, None)
            if id in self.waiting.positions:
                self._leave_batch(id)
        first = self.waiting.append_items(ids)
        batch = Batch(event.batch, event, len(ids), len(ids), first)
        if ids:
            self._open[len(self.batches)] = batch
        self._firsts.append(first)
        self.batches.append(batch)
        self.validation.update(event.validation)
        return ids

    def _apply_released(self, event: Released) -> None:
        for id in event.ids:
            if id in self.waiting.positions:
                self._leave_batch(id)
                self.waiting.forget(id)
                self.released[id] = None

    def _leave_batch(self, id: int) -> None:
        """Let an asked item belong to no batch; it waits no longer."""
        self._stop_waiting(id)
        self.batches[self._find_batch_index(id)].size -= 1

    def _apply_lent(self, event: Lent) -> None:
        for id in list(self._lent_to.get(event.by, ())):
            if self.leases[id][event.by] <= event.at:
                self._end_lease(id, event.by)
        for id in event.ids:
            for by, until in list(self.leases.get(id, {}).items()):
                if until <= event.at:
                    self._end_lease(id, by)
            self.add_lease(id, event.by, event.until)

    def add_lease(self, id: int, by: str, until: float) -> None:
        """Lease an item to an annotator until a time."""
        self.leases.setdefault(id, {})[by] = until
        self._lent_to.setdefault(by, {})[id] = None

    def _apply_returned(self, event: Returned) -> None:
        for id in event.ids:
            self._end_lease(id, event.by)

    def _apply_told(self, event: Told) -> None:
        """Add a vote; it replaces the annotator's previous one and ends any skip."""
        id, by = event.id, event.by
        self._end_lease(id, by)
        if id in self.skipped:
            self._remove_skip(id)
        new = by not in self.votes.get(id, NO_VOTES)
        self.add_vote(id, by, event.label)
        work = self._record_action(id, by, event.at)
        work.labels += new
        self.vote_count += new
        if event.seconds is not None:
            work.seconds += event.seconds
            self.seconds_spent += event.seconds
            self.recent_seconds.append(event.seconds)
        self._update_item(id)

    def _apply_skipped(self, event: Skipped) -> None:
        """Skip an item; this removes the annotator's vote."""
        id, by = event.id, event.by
        self._end_lease(id, by)
        self._remove_skip(id)
        self._remove_vote(id, by)
        self.skipped[id] = Skip(by, event.reason, event.at)
        self._record_action(id, by, event.at).skips += 1
        self._update_item(id)

    def _apply_resolved(self, event: Resolved) -> None:
        """Set the label of an item, overriding all votes."""
        id, by = event.id, event.by
        self._end_lease(id, by)
        self._remove_skip(id)
        before = self.resolutions.get(id)
        self.resolutions[id] = Resolution(event.label, by)
        if before is not None and before.by != by:
            self._remove_action(id, before.by)
        self._record_action(id, by, event.at)
        self._update_item(id)

    def _apply_withdrawn(self, event: Withdrawn) -> None:
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

    def _apply_renamed(self, event: Renamed) -> None:
        """Replace a label everywhere; the order of everyone's actions stays."""
        old, new = event.old, event.new
        for id, votes in list(self.votes.items()):
            if old in votes.values():
                self.votes[id] = {by: new if label == old else label for by, label in votes.items()}
                self._update_item(id)
        for id, made in list(self.resolutions.items()):
            if made.label == old:
                self.resolutions[id] = Resolution(new, made.by)
                self._update_item(id)

    def _apply_noted(self, event: Noted) -> None:
        notes = self.notes.setdefault(event.id, {})
        notes.pop(event.by, None)
        if event.text:
            notes[event.by] = event.text
        elif not notes:
            del self.notes[event.id]

    def _apply_training(self, event: Training) -> None:
        self.training = event

    def _apply_trained(self, event: Trained) -> None:
        insort(self.trainings, event, key=lambda trained: trained.number)
        self._end_training(event.number)
        if self.failure is not None and self.failure.number <= event.number:
            self.failure = None

    def _apply_training_failed(self, event: TrainingFailed) -> None:
        self._end_training(event.number)
        succeeded = self.trainings[-1].number if self.trainings else -1
        failed = self.failure.number if self.failure is not None else -1
        if event.number > succeeded and event.number >= failed:
            self.failure = event

    def _end_training(self, number: int) -> None:
        """End the running training, unless it is newer: two processes may train at once."""
        if self.training is not None and self.training.number <= number:
            self.training = None

    def _find_batch_index(self, id: int) -> int:
        return bisect_right(self._firsts, self.waiting.positions[id]) - 1

    def _update_item(self, id: int) -> None:
        """Update the label of an item, its disagreement, and whether it waits."""
        votes, resolution = self.votes.get(id, NO_VOTES), self.resolutions.get(id)
        skipped = id in self.skipped
        label: Label | None = None
        if not skipped and resolution is not None:
            label = resolution.label
        elif not skipped and len(votes) == 1:
            (label,) = votes.values()
        elif not skipped:
            label = majority_label(votes, self._regression)
        if label is None:
            self.labels.pop(id, None)
        else:
            self.labels[id] = label
        if votes and label is None and not skipped:
            self._tied.setdefault(id)
        else:
            self._tied.pop(id, None)
        if resolution is not None or skipped or len(votes) >= self.overlap:
            self._stop_waiting(id)
        elif id in self.waiting.positions and self.waiting.add(id):
            index = self._find_batch_index(id)
            self.batches[index].open += 1
            self._open[index] = self.batches[index]

    def _resolved_by(self, id: int, by: str) -> bool:
        resolution = self.resolutions.get(id)
        return resolution is not None and resolution.by == by

    def _skipped_by(self, id: int, by: str) -> bool:
        skip = self.skipped.get(id)
        return skip is not None and skip.by == by

    def _record_action(self, id: int, by: str, at: float) -> AnnotatorWork:
        """Make an item the annotator's last one; return their work."""
        ids = self._actions.setdefault(by, {})
        ids.pop(id, None)
        ids[id] = None
        work = self.per_annotator.setdefault(by, AnnotatorWork())
        work.at = max(work.at, at)
        return work

    def add_vote(self, id: int, by: str, label: Label) -> None:
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
        self.waiting.reopen_for(by, id)
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

    def set_waiting(self, ids: Iterable[int]) -> None:
        """Let exactly these of the asked items wait."""
        self.waiting.clear_waiting()
        for id in ids:
            self.waiting.add(id)
        ends = [*self._firsts[1:], len(self.waiting.flags)]
        for batch, end in zip(self.batches, ends, strict=False):
            batch.open = self.waiting.flags.count(1, batch.first, end)
        self._open = {index: batch for index, batch in enumerate(self.batches) if batch.open}

    def _stop_waiting(self, id: int) -> None:
        position = self.waiting.discard(id)
        if position is not None:
            index = bisect_right(self._firsts, position) - 1
            self.batches[index].open -= 1
            if not self.batches[index].open:
                del self._open[index]

    def _end_lease(self, id: int, by: str) -> None:
        leases = self.leases.get(id)
        if leases is None or by not in leases:
            return
        del leases[by]
        if not leases:
            del self.leases[id]
        del self._lent_to[by][id]
        if not self._lent_to[by]:
            del self._lent_to[by]


def replay(events: Iterable[Event]) -> Ledger:
    """The ledger after these events.

    Example:
        >>> replay([Told(at=0.0, id=3, label=1), Withdrawn(at=1.0, id=3)]).labels
        {}
    """
    ledger = Ledger()
    ledger.extend(events)
    return ledger


_APPLY: dict[type, Callable[[Ledger, Any], None]] = {
    kind: getattr(Ledger, f"_apply_{name}") for name, kind in KINDS.items()
}
