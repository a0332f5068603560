"""Actions of annotators: each function checks an action and returns the events to append.

No function changes the ledger. Actions that are already recorded give no event, so a call whose
response was lost can be repeated.
"""

import math
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput, UnknownName
from labelwise.record.events import (
    Event,
    Label,
    Lent,
    Resolved,
    Returned,
    Skipped,
    Told,
    Withdrawn,
)
from labelwise.record.ledger import Ledger

Seconds = Mapping[int, float] | float | None
"""Labelling times: by id, or one for all."""

ItemIds = int | np.integer | Iterable[int]
"""One item id or several."""

MAX_NAME = 200


def check_annotator(by: object) -> None:
    """Check an annotator's name; it is empty in a campaign of one."""
    if not isinstance(by, str) or len(by) > MAX_NAME or not by.isprintable():
        raise BadInput(f"an annotator's name is a text of up to {MAX_NAME} characters; got {by!r}")


def normalize_ids(ids: ItemIds) -> list[int]:
    """Convert ids to unique integers; a single id becomes a list."""
    given = [ids] if isinstance(ids, int | np.integer) else list(ids)
    for item in given:
        whole = isinstance(item, int | np.integer) and not isinstance(item, bool)
        if not whole or not -(2**63) <= item < 2**63:
            raise BadInput(f"an item id is a whole number; got {item!r}")
    return list(dict.fromkeys(int(item) for item in given))


def label_events(
    ledger: Ledger,
    settings: Settings,
    labels: Mapping[int, Label],
    *,
    by: str,
    seconds: Seconds,
    anything: bool,
    now: float,
    suggested: Mapping[int, Label] | None = None,
) -> list[Event]:
    """Events of new labels; labels that are already recorded are left out.

    ``suggested`` holds the predictions that were preselected, by id.
    """
    took, shown = _check_seconds(seconds, labels), suggested or {}
    clean = {item: settings.normalize_label(labels[item], item) for item in normalize_ids(labels)}
    if not anything:
        _check_asked(ledger, clean, ", or give anything=True to take labels of any item")
    return [
        Told(now, item, label, by, took.get(item), shown.get(item))
        for item, label in clean.items()
        if ledger.votes.get(item, {}).get(by) != label or item in ledger.skipped
    ]


def _check_asked(ledger: Ledger, ids: Iterable[int], remedy: str = "") -> None:
    for item in ids:
        if item not in ledger.asked_ids:
            raise UnknownName(f"item {item} was never asked for; check the id{remedy}")


def _check_seconds(given: Seconds, labels: Mapping[int, Label]) -> dict[int, float]:
    if given is None:
        return {}
    took = dict(given) if isinstance(given, Mapping) else dict.fromkeys(labels, given)
    for item, value in took.items():
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            raise BadInput(f"seconds of item {item} must be a number from 0; got {value!r}")
    return {int(item): float(value) for item, value in took.items()}


def withdrawal_events(ledger: Ledger, ids: Iterable[int], *, by: str, now: float) -> list[Event]:
    """Events that withdraw an annotator's labels and skips."""
    for item in ids:
        others = (ledger.skipped.get(item), ledger.resolutions.get(item))
        acted = any(other is not None and other.by == by for other in others)
        if not acted and by not in ledger.votes.get(item, {}):
            who = repr(by) if by else "the annotator without a name"
            raise BadInput(f"{who} has no label or skip of item {item} to withdraw")
    return [Withdrawn(now, item, by) for item in ids]


def skip_events(
    ledger: Ledger, ids: Iterable[int], *, reason: str, by: str, now: float
) -> list[Event]:
    """Events that skip items; the annotator's own labels are removed."""
    if not isinstance(reason, str):
        raise BadInput(f"a reason is a text; got {reason!r}")
    _check_asked(ledger, ids)
    current = {item: (skip.by, skip.reason) for item, skip in ledger.skipped.items() if item in ids}
    return [Skipped(now, item, by, reason) for item in ids if current.get(item) != (by, reason)]


def resolution_events(
    ledger: Ledger, settings: Settings, labels: Mapping[int, Label], *, by: str, now: float
) -> list[Event]:
    """Events that resolve disagreements."""
    clean = {item: settings.normalize_label(labels[item], item) for item in normalize_ids(labels)}
    for item in clean:
        if item not in ledger.votes:
            raise UnknownName(f"item {item} has no label yet; label it instead")
    return [Resolved(now, item, label, by) for item, label in clean.items()]


def lease_items(
    ledger: Ledger,
    settings: Settings,
    *,
    by: str,
    count: int,
    now: float,
    without: Collection[int] = (),
) -> tuple[list[Event], list[int]]:
    """Lease items to an annotator: the events and the ids.

    Items that the annotator already leases come first; leases are renewed in the second half of
    their time. ``without`` holds items that the same step labels.
    """
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise BadInput(f"count must be a whole number, 0 or more; got {count!r}")
    found = ledger.available(by, int(count) + len(without), now) if count else []
    ids = [item for item in found if item not in without][: int(count)]
    late = now + settings.lend_seconds / 2
    new = [item for item in ids if ledger.leases.get(item, {}).get(by, 0.0) < late]
    events: list[Event] = [Lent(now, tuple(new), by, now + settings.lend_seconds)] if new else []
    return events, ids


def return_events(
    ledger: Ledger, ids: Iterable[int] | None, *, by: str, now: float
) -> list[Returned]:
    """Events that return an annotator's leases; leases of others are ignored."""
    wanted = ledger.leases if ids is None else ids
    mine = [item for item in wanted if by in ledger.leases.get(item, {})]
    return [Returned(now, tuple(mine), by)] if mine else []


def _can_lease_after(ledger: Ledger, item: int, by: str, now: float) -> bool:
    """Whether an item can be leased to the annotator who withdraws an action on it."""
    skip = ledger.skipped.get(item)
    if item not in ledger.asked_ids or (skip is not None and skip.by != by):
        return False
    loans = ledger.leases.get(item, {})
    others = {who for who, until in loans.items() if until > now} | set(ledger.votes.get(item, {}))
    return len(others - {by}) < ledger.overlap


def undo_last_action(
    ledger: Ledger, settings: Settings, *, by: str, now: float
) -> tuple[list[Event], int | None]:
    """Withdraw the annotator's last action and lease the item again, unless others have it."""
    last = ledger.last_action(by)
    if last is None:
        return [], None
    events: list[Event] = [Withdrawn(now, last.id, by)]
    if last.kind != "resolved" and _can_lease_after(ledger, last.id, by, now):
        events.append(Lent(now, (last.id,), by, now + settings.lend_seconds))
    return events, last.id
