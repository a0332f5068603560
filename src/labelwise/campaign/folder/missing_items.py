"""Items that are not there any more: they want no further label, and keep those that they have.

Nobody can label what nobody can see, so an item whose file or row is gone must not keep its batch
open. Without a label that stands it is skipped. With one, as where one of two people had labelled
it, that label is settled: it counts, and no other is waited for. Both are signed by `KEEPER`, and
both end when the item is back.
"""

from collections.abc import Iterable, Sequence

from labelwise.campaign.folder.items import Items
from labelwise.errors import BadInput, UnknownName
from labelwise.record.events import Event, Resolved, Skipped, Withdrawn
from labelwise.record.ledger import Ledger
from labelwise.record.votes import AnnotatorWork

KEEPER, GONE = "labelwise", "its file or row is gone"
"""Who closes items that are not there any more, and why."""

_PROBES = 50


def closed(ledger: Ledger, gone: Iterable[int], now: float) -> list[Event]:
    """What closes items that are gone; nothing for those that are done.

    Example:
        >>> from labelwise.record.events import Asked, Started, Told
        >>> from labelwise.record.ledger import replay
        >>> ledger = replay([
        ...     Started(0.0, {"overlap": 2}, 9),
        ...     Asked(1.0, 1, (4, 7)),
        ...     Told(2.0, 7, "owl", "ann"),
        ... ])
        >>> for event in closed(ledger, [4, 7], now=3.0):
        ...     ledger.apply(event)
        >>> list(ledger.waiting), ledger.labels, ledger.skipped[4].reason
        ([], {7: 'owl'}, 'its file or row is gone')
    """
    events: list[Event] = []
    for item in gone:
        if item in ledger.labels:
            if item in ledger.waiting:
                events.append(Resolved(now, item, ledger.labels[item], KEEPER))
        elif item not in ledger.skipped:
            events.append(Skipped(now, item, KEEPER, GONE))
    return events


def closed_ids(ledger: Ledger) -> list[int]:
    """The items that are closed because they are gone, those that were skipped first."""
    skipped = [
        item for item, skip in ledger.skipped.items() if (skip.by, skip.reason) == (KEEPER, GONE)
    ]
    # Who is really called so may have settled a disagreement; that has all its labels.
    settled = [
        item
        for item, word in ledger.resolutions.items()
        if word.by == KEEPER and len(ledger.votes.get(item, ())) < ledger.overlap
    ]
    return [*skipped, *settled]


def annotators(ledger: Ledger) -> dict[str, AnnotatorWork]:
    """What everyone did, without the one who only closes what is gone."""
    return {
        by: work for by, work in ledger.per_annotator.items() if by != KEEPER or work.labels > 0
    }


def refreshed(
    ledger: Ledger, gone: Sequence[int], now: float
) -> tuple[list[Event], tuple[tuple[int, ...], tuple[int, ...]]]:
    """What closes the items that are gone and reopens all others; which are gone, and back."""
    away = set(gone)
    back = [item for item in closed_ids(ledger) if item not in away]
    events = [*closed(ledger, gone, now), *(Withdrawn(now, item, KEEPER) for item in back)]
    return events, (tuple(gone), tuple(back))


def missing(items: Items, ids: Iterable[int]) -> list[int]:
    """Those whose picture is not there, which nobody could be shown.

    If none of some other pictures is there either, the folder is away and not the pictures, as
    with a disk that is not mounted: then none is said to be missing.
    """
    if items.kind != "images":
        return []
    found = [item for item in ids if not _is_there(items, item)]
    step = max(1, len(items) // _PROBES)
    if found and not any(_is_there(items, item) for item in range(0, len(items), step)):
        return []
    return found


def _is_there(items: Items, item: int) -> bool:
    try:
        return items.path(item).is_file()
    except UnknownName:
        return False
    except BadInput:  # it leads out of the folder, which is another matter
        return True
