"""Missing items: their file or row is gone. They need no further label and keep their labels.

An item that cannot be shown must not keep its batch open. An item without a label is skipped. One
with a label, such as that of the first of two annotators, is resolved to it: the label counts and
no other is needed. Both actions are recorded by `SYSTEM_ANNOTATOR` and end when the item returns.
"""

from collections.abc import Iterable, Sequence

from labelwise.campaign.folder.items import CampaignItems
from labelwise.campaign.operations import SYSTEM_ANNOTATOR
from labelwise.errors import BadInput, UnknownName
from labelwise.record.events import Event, Resolved, Skipped, Withdrawn
from labelwise.record.ledger import Ledger
from labelwise.record.votes import AnnotatorWork

MISSING_REASON = "its file or row is gone"
"""Reason of the actions that close missing items; stored in records."""

_PROBES = 50


def close_missing_items(ledger: Ledger, missing: Iterable[int], now: float) -> list[Event]:
    """Events that close missing items; none for items that are done.

    Example:
        >>> from labelwise.record.events import Asked, Started, Told
        >>> from labelwise.record.ledger import replay
        >>> ledger = replay([
        ...     Started(0.0, {"overlap": 2}, 9),
        ...     Asked(1.0, 1, (4, 7)),
        ...     Told(2.0, 7, "owl", "ann"),
        ... ])
        >>> ledger.extend(close_missing_items(ledger, [4, 7], now=3.0))
        >>> list(ledger.waiting), ledger.labels, ledger.skipped[4].reason
        ([], {7: 'owl'}, 'its file or row is gone')
    """
    events: list[Event] = []
    for item in missing:
        if item in ledger.labels:
            if item in ledger.waiting:
                events.append(Resolved(now, item, ledger.labels[item], SYSTEM_ANNOTATOR))
        elif item not in ledger.skipped:
            events.append(Skipped(now, item, SYSTEM_ANNOTATOR, MISSING_REASON))
    return events


def list_closed_items(ledger: Ledger) -> list[int]:
    """The items that were closed because they are missing, skipped ones first."""
    mark = (SYSTEM_ANNOTATOR, MISSING_REASON)
    skipped = [item for item, skip in ledger.skipped.items() if (skip.by, skip.reason) == mark]
    # A person with this name may have resolved a disagreement; that item has all its votes.
    resolved = [
        item
        for item, resolution in ledger.resolutions.items()
        if resolution.by == SYSTEM_ANNOTATOR and len(ledger.votes.get(item, ())) < ledger.overlap
    ]
    return [*skipped, *resolved]


def list_annotators(ledger: Ledger) -> dict[str, AnnotatorWork]:
    """The work of every annotator, without the one that only closes missing items."""
    return {
        by: work
        for by, work in ledger.per_annotator.items()
        if by != SYSTEM_ANNOTATOR or work.labels > 0
    }


def update_missing_items(
    ledger: Ledger, missing: Sequence[int], now: float
) -> tuple[list[Event], tuple[int, ...]]:
    """Events that close missing items and reopen the others, and the ids of the reopened ones."""
    still = set(missing)
    returned = [item for item in list_closed_items(ledger) if item not in still]
    reopening = [Withdrawn(now, item, SYSTEM_ANNOTATOR) for item in returned]
    return [*close_missing_items(ledger, missing, now), *reopening], tuple(returned)


def find_missing_items(items: CampaignItems, ids: Iterable[int]) -> list[int]:
    """The items whose image file is missing.

    If all of some other files are missing as well, the whole folder is unavailable, as with a disk
    that is not mounted: then no item counts as missing.
    """
    if items.kind != "images":
        return []
    found = [item for item in ids if not _has_item_file(items, item)]
    step = max(1, len(items) // _PROBES)
    if found and not any(_has_item_file(items, item) for item in range(0, len(items), step)):
        return []
    return found


def _has_item_file(items: CampaignItems, item: int) -> bool:
    try:
        return items.path(item).is_file()
    except UnknownName:
        return False
    except BadInput:  # the path leads out of the folder, which is another problem
        return True
