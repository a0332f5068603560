"""Read a record back: whether all acknowledged labels are in it, and no item was lent twice.

This goes through the events with a few dictionaries of its own; the ledger, which decided what to
lend, is not asked.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from labelwise.record.events import Event, Lent, Returned, Told


class Walk:
    """The loans and labels of a record, event by event."""

    def __init__(self, overlap: int = 1) -> None:
        self.overlap = overlap
        self.loans: dict[int, dict[str, float]] = {}
        self.labels: dict[int, dict[str, Any]] = {}
        self.items_lent = self.lent_twice = self.not_lent = self.most_at_once = 0

    def take(self, events: Iterable[Event]) -> None:
        """Go through events."""
        for event in events:
            if isinstance(event, Lent):
                for item in event.ids:
                    self._lent(item, event)
            elif isinstance(event, Told):
                until = self.loans.get(event.id, {}).pop(event.by, 0.0)
                self.not_lent += until < event.at
                self.labels.setdefault(event.id, {})[event.by] = event.label
            elif isinstance(event, Returned):
                for item in event.ids:
                    self.loans.get(item, {}).pop(event.by, None)

    def _lent(self, item: int, event: Lent) -> None:
        """An item is lent to no more people than it still wants labels from."""
        loans, labels = self.loans.setdefault(item, {}), self.labels.get(item, {})
        live = {by for by, until in loans.items() if until > event.at and by != event.by}
        self.lent_twice += len(live | set(labels)) >= self.overlap
        self.items_lent += event.by not in loans
        loans[event.by] = event.until
        self.most_at_once = max(self.most_at_once, len(live) + 1)


def check(
    events: Sequence[Event],
    given: Iterable[Sequence[int]],
    unsure: Iterable[Sequence[int]],
    classes: Sequence[Any],
) -> dict[str, Any]:
    """What a record says of labels that were acknowledged.

    Args:
        events: the whole record.
        given: item, class and annotator of each acknowledged label.
        unsure: the same of those that were sent and not answered.
        classes: their names.
    """
    walk = Walk()
    walk.take(events)
    told = Counter((e.id, e.by, e.label) for e in events if isinstance(e, Told))
    wanted, maybe = _counted(given, classes), _counted(unsure, classes)
    return {
        "acknowledged": wanted.total(),
        "lost": (wanted - told).total(),
        "not_acknowledged": (told - wanted).total(),
        "never_sent": (told - wanted - maybe).total(),
        "items_lent": walk.items_lent,
        "lent_twice": walk.lent_twice,
        "most_loans_of_an_item_at_once": walk.most_at_once,
        "labelled_twice": sum(len(labels) > 1 for labels in walk.labels.values()),
        "labelled_without_a_loan": walk.not_lent,
    }


def _counted(given: Iterable[Sequence[int]], classes: Sequence[Any]) -> Counter[Any]:
    return Counter((int(item), f"person {by}", classes[kind]) for item, kind, by in given)
