"""What people do, as events: each function reads a ledger, checks, and answers what to append.

None of them changes anything. What is on record already is not recorded again, so that a call
whose answer was lost can be repeated.
"""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput, Conflict, UnknownName
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
"""How long labels took: by id, or each of them."""

LONGEST_NAME = 200


def check_expected(ledger: Ledger, expected: int | None) -> None:
    """Refuse if the record is not as long as the caller saw it."""
    if expected is not None and ledger.length != expected:
        raise Conflict(
            f"the record has {ledger.length} events, not {expected}: someone wrote to it in the "
            "meantime; read the ledger again and retry"
        )


def check_person(by: Any) -> str:
    """A person's name; empty for a campaign of one."""
    if not isinstance(by, str) or len(by) > LONGEST_NAME or not by.isprintable():
        raise BadInput(f"a person's name is a text of up to {LONGEST_NAME} letters; got {by!r}")
    return by


def whole_ids(ids: Any) -> list[int]:
    """Item ids as plain numbers, without repeats; one id alone is a list of one."""
    given = [ids] if isinstance(ids, int | np.integer) else list(ids)
    for item in given:
        whole = isinstance(item, int | np.integer) and not isinstance(item, bool)
        if not whole or not -(2**63) <= item < 2**63:
            raise BadInput(f"an item id is a whole number; got {item!r}")
    return list(dict.fromkeys(int(item) for item in given))


def told(
    ledger: Ledger,
    settings: Settings,
    labels: Mapping[int, Label],
    *,
    by: str,
    seconds: Seconds,
    anything: bool,
    now: float,
) -> list[Event]:
    """Labels that someone gave; those that stand already are left out."""
    took = _seconds(seconds, labels)
    clean = {item: settings.label(labels[item], item) for item in whole_ids(labels)}
    if not anything:
        _check_asked(ledger, clean, ", or give anything=True to take labels of any item")
    return [
        Told(now, item, label, by, took.get(item))
        for item, label in clean.items()
        if not _stands(ledger, item, by, label)
    ]


def _stands(ledger: Ledger, item: int, by: str, label: Label) -> bool:
    votes = ledger.votes.get(item, {})
    return by in votes and votes[by] == label and item not in ledger.skipped


def _check_asked(ledger: Ledger, ids: Iterable[int], remedy: str = "") -> None:
    for item in ids:
        if item not in ledger.asked_ids:
            raise UnknownName(f"item {item} was never asked for; check the id{remedy}")


def _seconds(given: Seconds, labels: Mapping[int, Label]) -> dict[int, float]:
    if given is None:
        return {}
    took = dict(given) if isinstance(given, Mapping) else dict.fromkeys(labels, given)
    for item, value in took.items():
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            raise BadInput(f"seconds of item {item} must be a number from 0; got {value!r}")
    return {int(item): float(value) for item, value in took.items()}


def withdrawn(ledger: Ledger, ids: Iterable[int], *, by: str, now: float) -> list[Event]:
    """Labels and skips that someone takes back."""
    for item in ids:
        if not _did(ledger, item, by):
            raise BadInput(f"{_named(by)} said nothing of item {item} that could be withdrawn")
    return [Withdrawn(now, item, by) for item in ids]


def _did(ledger: Ledger, item: int, by: str) -> bool:
    others = (ledger.skipped.get(item), ledger.resolutions.get(item))
    return by in ledger.votes.get(item, {}) or any(word and word.by == by for word in others)


def _named(by: str) -> str:
    return repr(by) if by else "the person without a name"


def skipped(ledger: Ledger, ids: Iterable[int], *, reason: str, by: str, now: float) -> list[Event]:
    """Items that someone cannot label; a label of their own goes."""
    if not isinstance(reason, str):
        raise BadInput(f"a reason is a text; got {reason!r}")
    _check_asked(ledger, ids)
    return [Skipped(now, item, by, reason) for item in ids if not _skips(ledger, item, by, reason)]


def _skips(ledger: Ledger, item: int, by: str, reason: str) -> bool:
    skip = ledger.skipped.get(item)
    return skip is not None and (skip.by, skip.reason) == (by, reason)


def resolved(
    ledger: Ledger, settings: Settings, labels: Mapping[int, Label], *, by: str, now: float
) -> list[Event]:
    """Labels that settle what people disagree about."""
    clean = {item: settings.label(labels[item], item) for item in whole_ids(labels)}
    for item in clean:
        if item not in ledger.votes:
            raise UnknownName(f"nobody labelled item {item} yet; tell its label instead")
    return [Resolved(now, item, label, by) for item, label in clean.items()]


def lent(
    ledger: Ledger,
    settings: Settings,
    *,
    by: str,
    count: int,
    now: float,
    without: Mapping[int, Any] = MappingProxyType({}),
) -> tuple[list[Event], list[int]]:
    """Items for someone to label, and the loans to record.

    What the person has on loan already comes first, and is renewed in the second half of its time.
    ``without`` holds items that the same step labels.
    """
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise BadInput(f"count must be a whole number, 0 or more; got {count!r}")
    found = ledger.available(by, int(count) + len(without), now) if count else []
    ids = [item for item in found if item not in without][: int(count)]
    late = now + settings.lend_seconds / 2
    new = [item for item in ids if ledger.loans.get(item, {}).get(by, 0.0) < late]
    events: list[Event] = [Lent(now, tuple(new), by, now + settings.lend_seconds)] if new else []
    return events, ids


def returned(ledger: Ledger, ids: Iterable[int] | None, *, by: str, now: float) -> list[Returned]:
    """Loans that someone gives back; what is not theirs is left alone."""
    wanted = ledger.loans if ids is None else ids
    mine = [item for item in wanted if by in ledger.loans.get(item, {})]
    return [Returned(now, tuple(mine), by)] if mine else []


def _free_after(ledger: Ledger, item: int, by: str, now: float) -> bool:
    """Whether an item can be lent to someone who takes back their word on it."""
    skip = ledger.skipped.get(item)
    if item not in ledger.asked_ids or (skip is not None and skip.by != by):
        return False
    loans = ledger.loans.get(item, {})
    others = {who for who, until in loans.items() if until > now} | set(ledger.votes.get(item, {}))
    return len(others - {by}) < ledger.overlap


def undone(
    ledger: Ledger, settings: Settings, *, by: str, now: float
) -> tuple[list[Event], int | None]:
    """Take back what someone did last, and lend them that item again, unless others have it."""
    last = ledger.last_action(by)
    if last is None:
        return [], None
    events: list[Event] = [Withdrawn(now, last.id, by)]
    if last.kind != "resolved" and _free_after(ledger, last.id, by, now):
        events.append(Lent(now, (last.id,), by, now + settings.lend_seconds))
    return events, last.id
