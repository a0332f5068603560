"""Snapshots: the ledger as compressed JSON, so that opening a long record replays only its end.

A snapshot only saves time. One that cannot be read, or that another version wrote, is ignored and
the record is replayed; so it has its own format number and no upgrades. Its values are columns:
one list of ids, one of labels, and so on. A ledger of 1,000,000 events loads in about 2 seconds
(docs/decisions/json-snapshots.md).
"""

import json
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from typing import Any

from labelwise.errors import StorageFailed
from labelwise.files import JsonObject
from labelwise.record.events import Asked, Trained, event_from_json, event_to_json
from labelwise.record.ledger import Ledger
from labelwise.record.storage import Storage
from labelwise.record.votes import AnnotatorWork, Resolution, Skip
from labelwise.threads import pause_garbage_collection

FORMAT = 3  # Format number; 1 was a binary format, 2 had no released items

MIN_EVENTS, MIN_SHARE = 10_000, 0.05
"""A snapshot is due after this many new events, and this share of the record.

Saving snapshots then takes time in proportion to the events written, and opening a record replays
at most 5 % of it.
"""


def load_ledger(storage: Storage, campaign: str) -> Ledger:
    """Load the ledger of a campaign from its snapshot and the events since; save one if due.

    Example:
        >>> from labelwise.record.events import Told
        >>> from labelwise.record import open_storage
        >>> storage = open_storage("memory://")
        >>> storage.append("birds", [Told(at=0.0, id=3, label="owl")])
        1
        >>> load_ledger(storage, "birds").labels
        {3: 'owl'}
    """
    with pause_garbage_collection():
        ledger = _load_snapshot(storage, campaign) or Ledger()
        ledger.extend(storage.read(campaign, ledger.length))
        save_snapshot_if_due(storage, campaign, ledger)
    return ledger


def save_snapshot_if_due(
    storage: Storage, campaign: str, ledger: Ledger, min_events: int = MIN_EVENTS
) -> bool:
    """Save a snapshot if many events are new since the last one; return whether it was saved.

    A storage that cannot be written right now is ignored, since nothing is lost.
    """
    if ledger.length - ledger.snapshot_length < max(min_events, MIN_SHARE * ledger.length):
        return False
    try:
        storage.save_snapshot(campaign, ledger.length, encode_ledger(ledger))
        return True
    except StorageFailed:
        return False
    finally:
        ledger.snapshot_length = ledger.length  # after a failure, wait until the next one is due


def _load_snapshot(storage: Storage, campaign: str) -> Ledger | None:
    found = storage.load_snapshot(campaign)
    if found is None:
        return None
    try:
        return decode_ledger(found[1])
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error, StorageFailed):
        return None  # another format, or damaged


def encode_ledger(ledger: Ledger) -> bytes:
    """Encode a ledger that is up to date with its record."""
    votes = [(id, by, label) for id, given in ledger.votes.items() for by, label in given.items()]
    content = {
        "format": FORMAT,
        "length": ledger.length,
        "settings": ledger.settings,
        "items": ledger.items,
        "vote_count": ledger.vote_count,
        "seconds_spent": ledger.seconds_spent,
        "latest": ledger.latest,
        "recent_seconds": list(ledger.recent_seconds),
        "trainings": [event_to_json(event) for event in ledger.trainings],
        "training": ledger.training and event_to_json(ledger.training),
        "failure": ledger.failure and event_to_json(ledger.failure),
        "batches": [event_to_json(batch.asked) for batch in ledger.batches],
        "released": list(ledger.released),
        "sizes": [batch.size for batch in ledger.batches],
        "waiting": list(ledger.waiting),
        "leases": [
            (id, by, ledger.leases[id][by]) for by, ids in ledger._lent_to.items() for id in ids
        ],
        "annotators": [(by, *astuple(work)) for by, work in ledger.per_annotator.items()],
        "actions": [(by, list(ids)) for by, ids in ledger._actions.items()],
        "skipped": [(id, *astuple(skip)) for id, skip in ledger.skipped.items()],
        "resolutions": [(id, *astuple(made)) for id, made in ledger.resolutions.items()],
        "notes": [
            (id, by, text) for id, by_id in ledger.notes.items() for by, text in by_id.items()
        ],
        "tied": list(ledger._tied),
        "labels": _split_snapshot_columns(ledger.labels.items(), 2),
        "votes": _split_snapshot_columns(votes, 3),
    }
    return zlib.compress(json.dumps(content, separators=(",", ":"), allow_nan=False).encode(), 1)


def decode_ledger(body: bytes) -> Ledger:
    """Decode a ledger written by `encode_ledger`.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, zlib.error, StorageFailed: if the bytes
            have another format or are damaged.
    """
    content: JsonObject = json.loads(zlib.decompress(body))
    if content["format"] != FORMAT:
        raise ValueError(f"the snapshot has format {content['format']}, not {FORMAT}")
    ledger = Ledger()
    ledger.use_settings(content["settings"])
    for name in ("length", "items", "vote_count", "seconds_spent", "latest"):
        setattr(ledger, name, content[name])
    ledger.snapshot_length = ledger.length
    ledger.recent_seconds.extend(content["recent_seconds"])
    trainings = map(event_from_json, content["trainings"])
    ledger.trainings = [event for event in trainings if isinstance(event, Trained)]
    for name in ("training", "failure"):
        setattr(ledger, name, content[name] and event_from_json(content[name]))
    for event in map(event_from_json, content["batches"]):
        if isinstance(event, Asked):
            ledger.add_batch(event)
    ledger.released = dict.fromkeys(content["released"])
    for id in ledger.released:
        ledger.waiting.forget(id)
    for batch, size in zip(ledger.batches, content["sizes"], strict=True):
        batch.size = size
    ledger.set_waiting(content["waiting"])
    for id, by, until in content["leases"]:
        ledger.add_lease(id, by, until)
    ledger.per_annotator = {by: AnnotatorWork(*rest) for by, *rest in content["annotators"]}
    ledger._actions = {by: dict.fromkeys(ids) for by, ids in content["actions"]}
    ledger.skipped = {id: Skip(*rest) for id, *rest in content["skipped"]}
    ledger.resolutions = {id: Resolution(*rest) for id, *rest in content["resolutions"]}
    for id, by, text in content["notes"]:
        ledger.notes.setdefault(id, {})[by] = text
    ledger._tied = dict.fromkeys(content["tied"])
    ids, labels = content["labels"]
    ledger.labels = dict(zip(ids, _share_snapshot_texts(labels), strict=True))
    ids, annotators, labels = content["votes"]
    for id, by, label in zip(
        ids, _share_snapshot_texts(annotators), _share_snapshot_texts(labels), strict=True
    ):
        ledger.add_vote(id, by, label)
    return ledger


def _split_snapshot_columns(rows: Iterable[tuple[Any, ...]], count: int) -> list[tuple[Any, ...]]:
    return list(zip(*rows, strict=True)) or [()] * count


def _share_snapshot_texts(values: Iterable[Any]) -> Iterator[Any]:
    """Use one object for equal texts: JSON makes one for each."""
    return (sys.intern(value) if type(value) is str else value for value in values)
