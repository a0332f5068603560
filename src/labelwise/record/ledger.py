"""The ledger: where a campaign stands, kept up to date event by event.

Nothing here is stored: the record of events is all there is, and the ledger is worked out from it.
`Ledger.apply` costs as much as the event has ids, and every query as much as its answer is long,
however long the record is.

What people say of items, and the labels that follow, is in `labelwise.record.votes`.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, KeysView
from typing import Any

from labelwise.record.entries import (
    Batch,
    Disagreement,
    Last,
    Resolution,
    Skip,
    Work,
    agreed,
)
from labelwise.record.events import (
    Added,
    Asked,
    Changed,
    Event,
    Lent,
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
from labelwise.record.storage import Storage
from labelwise.record.votes import NO_VOTES, RECENT, Opinions
from labelwise.record.waiting import Waiting

__all__ = [
    "RECENT",
    "Batch",
    "Disagreement",
    "Last",
    "Ledger",
    "Resolution",
    "Skip",
    "Work",
    "agreed",
    "load_ledger",
    "replay",
]


class Ledger(Opinions):
    """Where a campaign stands after the events applied so far. Read it; only `apply` writes.

    Attributes, beside those of `Opinions`:
        length: how many events were applied.
        settings: as started and changed.
        overlap: how many people should label each item.
        items: how many items the pool has.
        batches: all batches, oldest first.
        waiting: the ids that still want labels, oldest batch first, in the order of picking.
        validation: the ids that are only for measuring.
        loans: by id and person, until when it is lent; may hold loans that have lapsed.
        trainings: every training that ended well, by number: the last began last.
        training: the last one that began, while it runs, or None.
        failure: how the last training failed, or None if it did not.
        kept: how many events the newest snapshot known of sums up.

    Example:
        >>> ledger = replay([
        ...     Started(at=0.0, settings={"overlap": 1}, items=100),
        ...     Asked(at=1.0, batch=1, ids=(8, 4, 6), weights=(20.0, 50.0, 30.0)),
        ...     Told(at=2.0, id=8, label="cat", by="ann", seconds=1.5),
        ...     Skipped(at=3.0, id=4, by="ann", reason="blurred"),
        ... ])
        >>> ledger.labels, list(ledger.waiting), ledger.skipped[4].reason, ledger.weight_of(4)
        ({8: 'cat'}, [6], 'blurred', 50.0)
        >>> ledger.available("bob", 5, now=4.0), ledger.last("ann")
        ([6], Last(id=4, kind='skipped'))
    """

    def __init__(self) -> None:
        super().__init__()
        self.length = 0
        self.settings: dict[str, Any] = {}
        self.overlap = 1
        self.items = 0
        self.batches: list[Batch] = []
        self.waiting = Waiting()
        self.validation: set[int] = set()
        self.loans: dict[int, dict[str, float]] = {}
        self.trainings: list[Trained] = []
        self.training: Training | None = None
        self.failure: TrainingFailed | None = None
        self.kept = 0
        self._open: dict[int, Batch] = {}  # by number in self.batches
        self._firsts: list[int] = []  # the first place of every batch
        self._lent_to: dict[str, dict[int, None]] = {}

    # What can be asked.

    @property
    def asked_ids(self) -> KeysView[int]:
        """The ids of all batches; a view, as quick as a set."""
        return self.waiting.places.keys()

    @property
    def open_batches(self) -> list[Batch]:
        """The batches that still want labels, oldest first."""
        return [self._open[index] for index in sorted(self._open)]

    def batch_of(self, id: int) -> int | None:
        """The number of the last batch that asked for an item, or None."""
        place = self.waiting.places.get(id)
        return None if place is None else self._batch_at(place).number

    def weight_of(self, id: int) -> float | None:
        """How many pool items a pick stands for, or None if it has no weight."""
        place = self.waiting.places.get(id)
        if place is None:
            return None
        batch = self._batch_at(place)
        weights, rank = batch.asked.weights, place - batch.first
        return None if weights is None or rank >= len(weights) else weights[rank]

    def rank_of(self, id: int) -> int | None:
        """The place of an item in the order of its batch, from 0, or None if never asked."""
        place = self.waiting.places.get(id)
        return None if place is None else place - self._batch_at(place).first

    def available(self, by: str, count: int, now: float) -> list[int]:
        """The next items for a person to label, at most ``count``.

        What is lent to this person comes first. An item is lent to no more people than it still
        wants labels from, and to nobody who labelled it.
        """
        found = [
            id
            for id in self._lent_to.get(by, ())
            if self.loans[id][by] > now
            and id in self.waiting
            and by not in self.votes.get(id, NO_VOTES)
        ][: max(count, 0)]
        wanted = self.overlap
        for id in self._waiting_for(by) if len(found) < count else ():
            votes, loans = self.votes.get(id, NO_VOTES), self.loans.get(id)
            if by in votes:
                continue
            taken = len(votes)
            if loans is not None:
                if loans.get(by, now) > now:
                    continue
                for who, until in loans.items():
                    taken += until > now and who not in votes
            if taken < wanted:
                found.append(id)
                if len(found) >= count:
                    break
        return found

    def _waiting_for(self, by: str) -> Iterable[int]:
        """What waits, from the first item on that this person did not label."""
        if self.overlap == 1:  # what is labelled does not wait
            return self.waiting
        return self.waiting.of(by, lambda id: by in self.votes.get(id, NO_VOTES))

    # What changes it.

    def apply(self, event: Event) -> None:
        """Take one more event into account."""
        _APPLY[type(event)](self, event)
        self.length += 1

    def extend(self, events: Iterable[Event]) -> None:
        """Take several more events into account."""
        for event in events:
            self.apply(event)

    def _started(self, event: Started) -> None:
        self.items = event.items
        self._set(dict(event.settings))

    def _changed(self, event: Changed) -> None:
        self._set({**self.settings, **event.settings})

    def _set(self, settings: dict[str, Any]) -> None:
        before = (self.overlap, self._regression)
        self.use_settings(settings)
        if (self.overlap, self._regression) != before:
            for id in {**self.waiting.places, **self.votes}:
                self._settle(id)

    def use_settings(self, settings: dict[str, Any]) -> None:
        """Take over settings, of which the ledger itself needs two."""
        self.settings = settings
        self.overlap = int(settings.get("overlap", 1))
        self._regression = bool(settings.get("regression", False))

    def _added(self, event: Added) -> None:
        self.items += event.items

    def _asked(self, event: Asked) -> None:
        ids = list(dict.fromkeys(event.ids + event.validation))
        for id in self.waiting.places.keys() & ids:
            self._stop_waiting(id)
        first = self.waiting.extend(ids)
        self.waiting.add_from(first)
        batch = Batch(event.batch, event, len(ids), len(ids), first)
        if ids:
            self._open[len(self.batches)] = batch
        self._firsts.append(first)
        self.batches.append(batch)
        self.validation.update(event.validation)
        for id in ids:
            if id in self.votes or id in self.skipped or id in self.resolutions:
                self._settle(id)  # of the others nothing is known: they wait

    def _lent(self, event: Lent) -> None:
        mine = self._lent_to.setdefault(event.by, {})
        for id in [id for id in mine if self.loans[id][event.by] <= event.at]:
            self._end_loan(id, event.by)
        mine = self._lent_to.setdefault(event.by, {})
        for id in event.ids:
            lapsed = [who for who, until in self.loans.get(id, {}).items() if until <= event.at]
            for who in lapsed:
                self._end_loan(id, who)
            self.loans.setdefault(id, {})[event.by] = event.until
            mine[id] = None
        if not mine:
            self._lent_to.pop(event.by, None)

    def _returned(self, event: Returned) -> None:
        for id in event.ids:
            self._end_loan(id, event.by)

    def _told(self, event: Told) -> None:
        self._end_loan(event.id, event.by)
        self.tell(event)

    def _skipped(self, event: Skipped) -> None:
        self._end_loan(event.id, event.by)
        self._look_again(event.id, event.by)
        self.skip(event)

    def _resolved(self, event: Resolved) -> None:
        self._end_loan(event.id, event.by)
        self.resolve(event)

    def _withdrawn(self, event: Withdrawn) -> None:
        self._look_again(event.id, event.by)
        self.withdraw(event)

    def _look_again(self, id: int, by: str) -> None:
        """An item may be for a person again whose label of it goes."""
        if by in self.votes.get(id, NO_VOTES):
            self.waiting.give_back(by, id)

    def _training(self, event: Training) -> None:
        self.training = event

    def _trained(self, event: Trained) -> None:
        insort(self.trainings, event, key=_number)
        self._end_training(event.number)
        if self.failure is not None and self.failure.number <= event.number:
            self.failure = None

    def _training_failed(self, event: TrainingFailed) -> None:
        self._end_training(event.number)
        good = self.trainings[-1].number if self.trainings else -1
        bad = self.failure.number if self.failure is not None else -1
        if event.number > good and event.number >= bad:
            self.failure = event

    def _end_training(self, number: int) -> None:
        """Two processes may train at once: the end of the older is not that of the newer."""
        if self.training is not None and self.training.number <= number:
            self.training = None

    # How the parts hang together.

    def _batch_at(self, place: int) -> Batch:
        return self.batches[bisect_right(self._firsts, place) - 1]

    def _settle(self, id: int) -> None:
        """Bring an item's label, its disagreement and its waiting up to date."""
        super()._settle(id)
        votes, settled = self.votes.get(id, NO_VOTES), id in self.resolutions
        wants = not settled and len(votes) < self.overlap and id not in self.skipped
        if not wants:
            self._stop_waiting(id)
        elif id in self.waiting.places and self.waiting.add(id):
            index = bisect_right(self._firsts, self.waiting.places[id]) - 1
            self.batches[index].open += 1
            self._open[index] = self.batches[index]

    def _stop_waiting(self, id: int) -> None:
        if self.waiting.discard(id):
            index = bisect_right(self._firsts, self.waiting.places[id]) - 1
            self.batches[index].open -= 1
            if not self.batches[index].open:
                del self._open[index]

    def _end_loan(self, id: int, by: str) -> None:
        loans = self.loans.get(id)
        if loans is None or by not in loans:
            return
        del loans[by]
        if not loans:
            del self.loans[id]
        del self._lent_to[by][id]
        if not self._lent_to[by]:
            del self._lent_to[by]


def _number(trained: Trained) -> int:
    return trained.number


def replay(events: Iterable[Event]) -> Ledger:
    """The ledger after these events.

    Example:
        >>> replay([Told(at=0.0, id=3, label=1), Withdrawn(at=1.0, id=3)]).labels
        {}
    """
    ledger = Ledger()
    ledger.extend(events)
    return ledger


def load_ledger(storage: Storage, campaign: str) -> Ledger:
    """The ledger of a campaign's whole record: from the newest snapshot, and the events since.

    If those are many, a new snapshot is kept, so that the next one to load has less to read.

    Example:
        >>> from labelwise.record.storage import open_storage
        >>> storage = open_storage("memory://")
        >>> storage.append("birds", [Told(at=0.0, id=3, label="owl")])
        1
        >>> load_ledger(storage, "birds").labels
        {3: 'owl'}
    """
    from labelwise.record import snapshots

    with snapshots.without_collecting():
        ledger = snapshots.newest(storage, campaign)
        ledger.extend(storage.read(campaign, ledger.length))
        snapshots.keep_if_due(storage, campaign, ledger)
    return ledger


_APPLY: dict[type, Callable[[Ledger, Any], None]] = {
    Started: Ledger._started,
    Changed: Ledger._changed,
    Added: Ledger._added,
    Asked: Ledger._asked,
    Lent: Ledger._lent,
    Returned: Ledger._returned,
    Told: Ledger._told,
    Withdrawn: Ledger._withdrawn,
    Skipped: Ledger._skipped,
    Resolved: Ledger._resolved,
    Training: Ledger._training,
    Trained: Ledger._trained,
    TrainingFailed: Ledger._training_failed,
}
