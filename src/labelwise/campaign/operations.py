"""Actions of annotators: each function checks an action and returns the events to append.

No function changes the ledger. Actions that are already recorded give no event, so a call whose
response was lost can be repeated.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput, UnknownName
from labelwise.pool.ids import Key, encode_keys
from labelwise.record.events import (
    Changed,
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

Seconds = Mapping[Key, float] | float | None  # Labelling times: by id, or one for all

ItemIds = Any  # One item id or several, of any type that a pool takes

MAX_NAME = 200
SYSTEM_ANNOTATOR = "labelwise"
"""Name of the actions that labelwise takes on its own; stored in records."""


def check_annotator(by: object, ledger: Ledger | None = None) -> None:
    """Check an annotator's name, which is empty in a campaign of one, and that they may label."""
    if not isinstance(by, str) or len(by) > MAX_NAME or not by.isprintable():
        raise BadInput(f"an annotator's name is a text of up to {MAX_NAME} characters; got {by!r}")
    if by == SYSTEM_ANNOTATOR:
        raise BadInput(f"the name {by!r} is that of the program; give another name")
    if ledger is not None and by in ledger.settings.get("removed", ()):
        raise BadInput(f"{by!r} was removed from this campaign; its owner can let them in again")


def normalize_item_ids(ids: ItemIds) -> dict[int, Key]:
    """Ids as the record holds them, each with the id as it was given; repeats are left out.

    Whole numbers stay as they are; see `labelwise.pool.ids` for others.
    """
    single = isinstance(ids, str | bytes) or not isinstance(ids, Iterable)
    given = [ids] if single else list(ids)
    for item in given:
        if isinstance(item, bool | np.bool_):
            raise BadInput(f"an item id is a whole number, a text, a UUID or a date; got {item}")
    if all(type(item) is int and -(2**63) <= item < 2**63 for item in given):
        return dict(zip(given, given, strict=True))
    return dict(zip(encode_keys(given, "item ids")[0].tolist(), given, strict=True))


def make_label_events(
    ledger: Ledger,
    settings: Settings,
    labels: Mapping[Any, Label],
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
    check_annotator(by, ledger)
    took: Mapping[Any, float] = {}
    if seconds is not None and seconds != {}:
        took = _check_label_seconds(seconds, labels)
    shown, keys = suggested or {}, normalize_item_ids(labels)
    clean = {item: settings.normalize_label(labels[key], key) for item, key in keys.items()}
    if not (anything or ledger.waiting.positions.keys() >= keys.keys()):
        _check_items_asked(ledger, keys, ", or give anything=True to take labels of any item")
    return [
        Told(now, item, label, by, took.get(keys[item]), shown.get(item))
        for item, label in clean.items()
        if ledger.votes.get(item, {}).get(by) != label or item in ledger.skipped
    ]


def _check_items_asked(ledger: Ledger, keys: Mapping[int, Key], remedy: str = "") -> None:
    for item, key in keys.items():
        if item not in ledger.asked_ids and item not in ledger.released:
            raise UnknownName(
                f"item {_format_item_key(key)} was never asked for; check the id{remedy}"
            )


def _format_item_key(key: Key) -> str:
    return repr(key) if isinstance(key, str) else str(key)


def _check_label_seconds(
    given: Mapping[Key, float] | float, labels: Mapping[Any, Label]
) -> dict[Any, float]:
    took = dict(given) if isinstance(given, Mapping) else dict.fromkeys(labels, given)
    for item, value in took.items():
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            raise BadInput(f"seconds of item {item} must be a number from 0; got {value!r}")
    return {item: float(value) for item, value in took.items()}


def make_withdrawal_events(ledger: Ledger, ids: ItemIds, *, by: str, now: float) -> list[Event]:
    """Events that withdraw an annotator's labels and skips."""
    check_annotator(by, ledger)
    keys = normalize_item_ids(ids)
    for item, key in keys.items():
        others = (ledger.skipped.get(item), ledger.resolutions.get(item))
        acted = any(other is not None and other.by == by for other in others)
        if not acted and by not in ledger.votes.get(item, {}):
            who = repr(by) if by else "the annotator without a name"
            raise BadInput(
                f"{who} has no label or skip of item {_format_item_key(key)} to withdraw"
            )
    return [Withdrawn(now, item, by) for item in keys]


def make_skip_events(
    ledger: Ledger, ids: ItemIds, *, reason: str, by: str, now: float
) -> list[Event]:
    """Events that skip items; the annotator's own labels are removed."""
    check_annotator(by, ledger)
    if not isinstance(reason, str):
        raise BadInput(f"a reason is a text; got {reason!r}")
    keys = normalize_item_ids(ids)
    _check_items_asked(ledger, keys)
    known = {item: ledger.skipped[item] for item in keys if item in ledger.skipped}
    same = {item for item, skip in known.items() if (skip.by, skip.reason) == (by, reason)}
    return [Skipped(now, item, by, reason) for item in keys if item not in same]


def make_resolution_events(
    ledger: Ledger, settings: Settings, labels: Mapping[Any, Label], *, by: str, now: float
) -> list[Event]:
    """Events that resolve disagreements."""
    check_annotator(by, ledger)
    keys = normalize_item_ids(labels)
    clean = {item: settings.normalize_label(labels[key], key) for item, key in keys.items()}
    for item, key in keys.items():
        if item not in ledger.votes:
            raise UnknownName(f"item {_format_item_key(key)} has no label yet; label it instead")
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
    check_annotator(by, ledger)
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise BadInput(f"count must be a whole number, 0 or more; got {count!r}")
    found = ledger.available(by, int(count) + len(without), now) if count else []
    ids = [item for item in found if item not in without][: int(count)]
    late = now + settings.lend_seconds / 2
    new = [item for item in ids if ledger.leases.get(item, {}).get(by, 0.0) < late]
    events: list[Event] = [Lent(now, tuple(new), by, now + settings.lend_seconds)] if new else []
    return events, ids


def make_return_events(
    ledger: Ledger, ids: ItemIds | None, *, by: str, now: float
) -> list[Returned]:
    """Events that return an annotator's leases; leases of others are ignored."""
    wanted: Iterable[int] = ledger.leases if ids is None else normalize_item_ids(ids)
    mine = [item for item in wanted if by in ledger.leases.get(item, {})]
    return [Returned(now, tuple(mine), by)] if mine else []


def _can_lease_after_undo(ledger: Ledger, item: int, by: str, now: float) -> bool:
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
    check_annotator(by, ledger)
    last = ledger.last_action(by)
    if last is None:
        return [], None
    events: list[Event] = [Withdrawn(now, last.id, by)]
    if last.kind != "resolved" and _can_lease_after_undo(ledger, last.id, by, now):
        events.append(Lent(now, (last.id,), by, now + settings.lend_seconds))
    return events, last.id


def make_removal_events(ledger: Ledger, name: str, *, by: str, now: float) -> list[Event]:
    """Events that remove an annotator: leases are returned, and labels stay."""
    if name not in ledger.per_annotator and not any(name in one for one in ledger.leases.values()):
        known = ", ".join(sorted(ledger.per_annotator)) or "nobody yet"
        raise UnknownName(f"nobody called {name!r} has labelled here; choose from {known}")
    removed = [str(one) for one in ledger.settings.get("removed", ())]
    if name in removed:
        return []
    returned = make_return_events(ledger, None, by=name, now=now)
    return [*returned, Changed(now, {"removed": [*removed, name]}, by)]


def make_admission_events(ledger: Ledger, name: str, *, by: str, now: float) -> list[Event]:
    """Events that let a removed annotator label again."""
    removed = [str(one) for one in ledger.settings.get("removed", ())]
    if name not in removed:
        raise BadInput(f"{name!r} is not removed from this campaign")
    return [Changed(now, {"removed": [one for one in removed if one != name]}, by)]
