"""Leases of pages: which page of an annotator holds which items.

The record stores leases per annotator. Two tabs of an annotator share them, and a pending request
of a closed page may lease further items. So the server remembers the items of each page and the
closed pages. This is in memory only: after a restart, a page returns the items that it reports,
and all other leases expire.
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from labelwise.campaign import operations
from labelwise.campaign.folder.missing_items import close_missing_items
from labelwise.campaign.settings import Settings
from labelwise.record.events import Event, Lent
from labelwise.record.ledger import Ledger

SMALL_LEASE = 8
"""Number of items that a page can lease even if they are more than half of the waiting ones."""
MOST_PAGES = 10_000
"""Number of open and of closed pages that are remembered; the oldest are forgotten first."""


class Visitor(NamedTuple):
    """An annotator and the random word of their page; a program sends no word."""

    name: str
    page: str = ""


class PageLeases:
    """Leases items to pages. Every method is called inside a commit, under the record's lock.

    >>> leases, first, second = PageLeases(), Visitor("ann", "tab-1"), Visitor("ann", "tab-2")
    >>> leases.hold_items(first, [3, 4, 5], until=600.0)
    >>> leases.hold_items(second, [5], until=600.0)
    >>> leases.close_page(first, [3], now=10.0)  # the second page still shows 5
    [3, 4]
    """

    def __init__(self, most: int = MOST_PAGES) -> None:
        """Remember a limited number of pages."""
        self._most = most
        self._held: OrderedDict[Visitor, dict[int, float]] = OrderedDict()
        self._closed: OrderedDict[Visitor, None] = OrderedDict()

    def hold_items(self, by: Visitor, ids: Iterable[int], *, until: float) -> None:
        """Remember that a page holds items."""
        self._held.setdefault(by, {}).update(dict.fromkeys(ids, until))
        self._held.move_to_end(by)
        if len(self._held) > self._most:
            self._held.popitem(last=False)

    def close_page(self, by: Visitor, ids: Iterable[int], *, now: float) -> list[int]:
        """Remember that a page is closed, so that it leases nothing any more.

        Returns:
            The items that it holds and no other page of this person does, by id.
        """
        held = {*ids, *self._held.pop(by, {})}
        self._closed[by] = None
        if len(self._closed) > self._most:
            self._closed.popitem(last=False)
        for other, theirs in self._held.items():
            if other.name == by.name:
                held -= {item for item, until in theirs.items() if until > now}
        return sorted(held)

    def lease_items(
        self,
        ledger: Ledger,
        settings: Settings,
        by: Visitor,
        count: int,
        *,
        now: float,
        answered: Collection[int] = (),
    ) -> tuple[list[Event], list[int]]:
        """Lease items to a page, without those that it answers in the same step.

        A page gets at most half of the waiting items, so that a large grid leaves some to others.
        """
        half = math.ceil((len(ledger.waiting) - len(answered)) / 2)
        wanted = 0 if by in self._closed else min(count, max(half, SMALL_LEASE))
        events, ids = operations.lease_items(
            ledger, settings, by=by.name, count=wanted, now=now, without=answered
        )
        for item in answered:
            self._held.get(by, {}).pop(item, None)
        if ids:
            self.hold_items(by, ids, until=now + settings.lend_seconds)
        return events, ids

    def replace_missing(
        self,
        ledger: Ledger,
        settings: Settings,
        by: Visitor,
        gone: Collection[int],
        count: int,
        now: float,
    ) -> tuple[list[Event], list[int]]:
        """Close items that cannot be shown any more, and lease others instead."""
        back = operations.make_return_events(ledger, gone, by=by.name, now=now)
        leases, ids = self.lease_items(ledger, settings, by, count, now=now, answered=gone)
        return [*back, *close_missing_items(ledger, gone, now), *leases], ids

    def undo_action(
        self, ledger: Ledger, settings: Settings, by: Visitor, now: float
    ) -> tuple[list[Event], int | None]:
        """Withdraw the last action of a person and lease its item again to an open page."""
        events, item = operations.undo_last_action(ledger, settings, by=by.name, now=now)
        if by in self._closed:
            events = [event for event in events if not isinstance(event, Lent)]
        for event in events:
            if isinstance(event, Lent):
                self.hold_items(by, event.ids, until=event.until)
        return events, item

    def return_items(
        self, ledger: Ledger, by: Visitor, ids: Collection[int] | None, now: float
    ) -> Sequence[Event]:
        """Return some leased items of a person, or all of them."""
        events = operations.make_return_events(ledger, ids, by=by.name, now=now)
        for item in (item for event in events for item in event.ids):
            self._held.get(by, {}).pop(item, None)
        return events

    def leave_page(
        self,
        ledger: Ledger,
        by: Visitor,
        ids: Collection[int],
        answered: Collection[int],
        now: float,
    ) -> Sequence[Event]:
        """Return what only a closed page holds, except for items that it has just answered.

        Such an answer may arrive later; until then nobody else should get the item.
        """
        alone = self.close_page(by, ids, now=now)
        back = [item for item in alone if item not in answered]
        return operations.make_return_events(ledger, back, by=by.name, now=now)
