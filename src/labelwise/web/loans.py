"""What the server lends to pages and takes back from them.

The record knows to whom an item is lent, but not to which of a person's pages: two tabs under one
name share their loans. And a page that is closed may have a call on its way that borrows further
items, of which it never hears. So the server keeps in mind which page holds what, and which pages
are left. It is only kept in memory: after a restart, a page gives back what it says it holds, and
anything else comes back when its loan lapses.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from labelwise.campaign import operations
from labelwise.campaign.desk import Desk
from labelwise.campaign.folder.missing_items import close_items
from labelwise.record.events import Event, Lent
from labelwise.record.group_commit import Operation
from labelwise.record.ledger import Ledger
from labelwise.web.views import Place, place_of

MOST = 10_000
"""So many pages are kept in mind, and so many that were left; the oldest are forgotten first."""


class Visitor(NamedTuple):
    """Who calls, and from which page: a random word, or none, as for a program."""

    name: str
    page: str = ""


class Pages:
    """Which page holds what, and which pages are left. Called under the record's lock.

    >>> pages, first, second = Pages(), Visitor("ann", "tab-1"), Visitor("ann", "tab-2")
    >>> pages.lent(first, [3, 4, 5], until=600.0)
    >>> pages.lent(second, [5], until=600.0)
    >>> pages.leave(first, [3], now=10.0)  # 5 is still looked at
    [3, 4]
    >>> pages.is_left(first), pages.is_left(second)
    (True, False)
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._held: OrderedDict[Visitor, dict[int, float]] = OrderedDict()
        self._left: OrderedDict[Visitor, None] = OrderedDict()

    def lent(self, by: Visitor, ids: Iterable[int], *, until: float) -> None:
        """Note what a page was lent."""
        self._held.setdefault(by, {}).update(dict.fromkeys(ids, until))
        self._held.move_to_end(by)
        if len(self._held) > self._most:
            self._held.popitem(last=False)

    def given_up(self, by: Visitor, ids: Iterable[int]) -> None:
        """Note that a page holds items no longer: it answered them, or gave them back."""
        held = self._held.get(by, {})
        for item in ids:
            held.pop(item, None)

    def leave(self, by: Visitor, ids: Iterable[int], *, now: float) -> list[int]:
        """Note that a page is left: it borrows nothing any more.

        Args:
            by: The page.
            ids: What it says it holds.
            now: Seconds, as ``until`` above.

        Returns:
            What it holds and no other page of this person does, by id.
        """
        held = {*ids, *self._held.pop(by, {})}
        self._left[by] = None
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        for other, theirs in self._held.items():
            if other.name == by.name:
                held -= {item for item, until in theirs.items() if until > now}
        return sorted(held)

    def is_left(self, by: Visitor) -> bool:
        """Whether a page said that it was left."""
        return by in self._left


class Loans:
    """What pages borrow and give back, as operations for the desk to commit."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._pages = desk, Pages()

    def lend(
        self, by: Visitor, count: int, *, answered: Collection[int] = ()
    ) -> Operation[list[Place]]:
        """Lend a page items, none of those that the same step answers; nothing if it is left."""

        def decide(ledger: Ledger, now: float) -> tuple[Sequence[Event], list[Place]]:
            settings = self._desk.settings_of(ledger)
            wanted = 0 if self._pages.is_left(by) else count
            without = dict.fromkeys(answered)
            events, ids = operations.lease_items(
                ledger, settings, by=by.name, count=wanted, now=now, without=without
            )
            self._pages.given_up(by, answered)
            if ids:
                self._pages.lent(by, ids, until=now + settings.lend_seconds)
            return events, [place_of(ledger, item) for item in ids]

        return decide

    def close(self, by: Visitor, gone: Collection[int], count: int) -> Operation[list[Place]]:
        """Close items that cannot be shown any more, and lend others in their place.

        Args:
            by: The page that got them.
            gone: What cannot be shown.
            count: How many items to lend in all.
        """
        lend = self.lend(by, count, answered=gone)

        def decide(ledger: Ledger, now: float) -> tuple[Sequence[Event], list[Place]]:
            back = operations.return_events(ledger, gone, by=by.name, now=now)
            loans, places = lend(ledger, now)
            return [*back, *close_items(ledger, gone, now), *loans], places

        return decide

    def undo(self, by: Visitor) -> Operation[Place | None]:
        """Take back someone's last word, and lend the item to the page again unless it is left."""

        def decide(ledger: Ledger, now: float) -> tuple[Sequence[Event], Place | None]:
            settings = self._desk.settings_of(ledger)
            events, item = operations.undo_last_action(ledger, settings, by=by.name, now=now)
            if self._pages.is_left(by):
                events = [event for event in events if not isinstance(event, Lent)]
            for event in events:
                if isinstance(event, Lent):
                    self._pages.lent(by, event.ids, until=event.until)
            return events, None if item is None else place_of(ledger, item)

        return decide

    def give_back(self, by: Visitor, ids: Collection[int] | None) -> Operation[int]:
        """Take back some of what was lent to someone, or all; the length of the record then."""

        def decide(ledger: Ledger, now: float) -> tuple[Sequence[Event], int]:
            events = operations.return_events(ledger, ids, by=by.name, now=now)
            self._pages.given_up(by, [item for event in events for item in event.ids])
            return events, ledger.length + len(events)

        return decide

    def leave(self, by: Visitor, ids: Collection[int], answered: Collection[int]) -> Operation[int]:
        """Take back what a page that is left holds alone, but not what it has just answered.

        An answer may arrive later than this; until then nobody else should get its item.
        """

        def decide(ledger: Ledger, now: float) -> tuple[Sequence[Event], int]:
            alone = self._pages.leave(by, ids, now=now)
            back = [item for item in alone if item not in answered]
            events = operations.return_events(ledger, back, by=by.name, now=now)
            return events, ledger.length + len(events)

        return decide
