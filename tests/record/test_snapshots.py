"""Snapshots: the same ledger as by replaying, in less time."""

import json
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.errors import StorageFailed
from labelwise.record import snapshots
from labelwise.record.events import Asked, Event, Lent, Started, Told, decode_event, encode_event
from labelwise.record.ledger import LabelQueue, Ledger, replay
from labelwise.record.snapshots import (
    decode_ledger,
    encode_ledger,
    load_ledger,
    save_snapshot_if_due,
)
from labelwise.record.storage import MemoryStorage, Storage
from tests.record.sequences import patient, sequences

RECORDS = Path(__file__).parent / "records"


def everything(ledger: Ledger) -> str:
    """The whole content of a ledger, with types, and in order where the order matters."""
    parts = dict(vars(ledger))
    del parts["snapshot_length"], parts["_shared"]  # they only save time
    parts["_open"], parts["validation"] = sorted(ledger._open), sorted(ledger.validation)
    parts["leases"] = sorted((id, sorted(leases.items())) for id, leases in ledger.leases.items())
    queue = parts.pop("waiting")
    parts["queue"] = (queue.order, queue.positions, bytes(queue.flags), len(queue), list(queue))
    assert all(type(part) is not LabelQueue for part in parts.values())
    return repr(sorted(parts.items()))


def restore(ledger: Ledger) -> Ledger:
    return decode_ledger(encode_ledger(ledger))


def labelled(count: int, batch: int = 1000) -> list[Event]:
    """A record of ``count`` labels by 50 annotators."""
    events: list[Event] = [Started(0.0, {"classes": ["a", "b", "c"]}, count)]
    for begin in range(0, count, batch):
        ids = tuple(range(begin, min(begin + batch, count)))
        weights = tuple(1 + (id * 0.6180339887) % 1 for id in ids)
        events.append(Asked(1.0, begin // batch + 1, ids, weights, weights, "badge"))
        events.extend(Told(2.0, id, "abc"[id % 3], f"person {id % 50}", 1.5) for id in ids)
    return events


@patient
@given(sequences(), st.data())
def test_a_snapshot_and_the_later_events_equal_the_whole_record(
    events: list[Event], data: st.DataObject
) -> None:
    whole, ledger = replay(events), Ledger()
    for event in events:
        if data.draw(st.booleans()):
            ledger = restore(ledger)
        ledger.extend([event])
    assert everything(ledger) == everything(whole)
    assert everything(restore(whole)) == everything(whole)


def test_equal_single_votes_share_one_object() -> None:
    ledger = replay(labelled(300, 100))
    again = restore(ledger)
    assert everything(again) == everything(ledger)
    assert len({id(votes) for votes in again.votes.values()}) == 150
    again.extend([Told(3.0, 0, "b", "new")])
    assert again.votes[0] == {"person 0": "a", "new": "b"}
    assert again.votes[150] == {"person 0": "a"}


def test_loading_reads_only_the_events_after_the_snapshot(storage: Storage) -> None:
    events = labelled(50)
    storage.append("birds", events[:30])
    snapshot = encode_ledger(load_ledger(storage, "birds"))
    storage.append("birds", events[30:])
    storage.save_snapshot("birds", 30, snapshot)
    starts: list[int] = []
    read = storage.read
    storage.read = lambda name, start=0: starts.append(start) or read(name, start)  # type: ignore[method-assign,func-returns-value]
    assert everything(load_ledger(storage, "birds")) == everything(replay(events))
    assert starts == [30]


def test_is_saved_after_many_events(storage: Storage) -> None:
    events = labelled(100)
    storage.append("birds", events)
    ledger = load_ledger(storage, "birds")
    assert storage.load_snapshot("birds") is None
    assert not save_snapshot_if_due(storage, "birds", ledger, min_events=1000)
    assert save_snapshot_if_due(storage, "birds", ledger, min_events=100)
    saved = storage.load_snapshot("birds")
    assert saved is not None
    assert saved[0] == len(events)
    assert not save_snapshot_if_due(storage, "birds", ledger, min_events=100)
    assert load_ledger(storage, "birds").snapshot_length == len(events)


def test_loading_a_long_record_saves_one() -> None:
    storage = MemoryStorage()
    storage.append("birds", labelled(snapshots.MIN_EVENTS + 1, batch=10_000))
    ledger = load_ledger(storage, "birds")
    saved = storage.load_snapshot("birds")
    assert saved is not None
    assert saved[0] == ledger.length == ledger.snapshot_length
    assert everything(load_ledger(storage, "birds")) == everything(ledger)


def test_a_storage_that_cannot_be_written_can_be_read() -> None:
    class FullStorage(MemoryStorage):
        def save_snapshot(self, campaign: str, number: int, body: bytes) -> None:
            raise StorageFailed("the disk is full")

    storage = FullStorage()
    storage.append("birds", labelled(100))
    ledger = load_ledger(storage, "birds")
    assert not save_snapshot_if_due(storage, "birds", ledger, min_events=10)
    assert not save_snapshot_if_due(storage, "birds", ledger, min_events=10)


@pytest.mark.parametrize("damage", ["cut", "swapped", "empty", "missing", "list", "newer", "text"])
def test_a_damaged_or_foreign_one_is_ignored(damage: str) -> None:
    body = encode_ledger(replay(labelled(99)))
    content: Any = json.loads(zlib.decompress(body))
    votes = [content["votes"][0], content["votes"][1][:-1], content["votes"][2]]
    foreign: dict[str, Any] = {
        "missing": {**content, "votes": votes},
        "list": [],
        "newer": {**content, "format": snapshots.FORMAT + 1, "length": 7},
    }
    broken = {
        "cut": body[:-5],
        "swapped": body[:200] + bytes(20) + body[220:],
        "empty": b"",
        "text": b"labelwise snapshot\n" + bytes(8),
        **{name: zlib.compress(json.dumps(value).encode()) for name, value in foreign.items()},
    }[damage]
    storage = MemoryStorage()
    storage.append("birds", labelled(99))
    storage.save_snapshot("birds", 50, broken)
    assert everything(load_ledger(storage, "birds")) == everything(replay(labelled(99)))


def test_a_record_with_a_binary_snapshot_of_version_0_1_0_opens(storage: Storage) -> None:
    events = [decode_event(line) for line in (RECORDS / "format1.jsonl").read_text().splitlines()]
    storage.append("birds", events)
    storage.save_snapshot("birds", 20, (RECORDS / "snapshot1.bin").read_bytes())
    ledger = load_ledger(storage, "birds")
    assert everything(ledger) == everything(replay(events))
    assert save_snapshot_if_due(storage, "birds", ledger, min_events=1)
    assert load_ledger(storage, "birds").snapshot_length == len(events)


def test_leases_and_labels_of_all_types_survive() -> None:
    ledger = replay(
        [
            Asked(1.0, 1, (5, -3, 2**62), guesses=((1, 0.5), (1.0, 0.25), ("1", 1.0))),
            Lent(2.0, (5, -3), "ann", 9.0),
            Told(3.0, 2**62, 1.0, "ann"),
            Told(4.0, 2**62, 1, "bob"),
            Told(5.0, 7, "1", "näïve \ud800"),
        ]
    )
    again = restore(ledger)
    assert everything(again) == everything(ledger)
    assert repr(again.votes[2**62]) == "{'ann': 1.0, 'bob': 1}"
    assert again.available("bob", 9, now=5.0) == ledger.available("bob", 9, now=5.0) == []


def test_loads_in_less_time_than_the_record_replays() -> None:
    storage = MemoryStorage()
    storage._records["birds"] = [encode_event(event) for event in labelled(30_000)]
    begin = time.process_time()
    ledger = replay(storage.read("birds"))
    replaying = time.process_time() - begin
    body = encode_ledger(ledger)
    times = []
    for _ in range(3):
        begin = time.process_time()
        decode_ledger(body)
        times.append(time.process_time() - begin)
    assert min(times) < replaying / 2


@pytest.mark.slow
def test_a_million_labels_load_in_a_few_seconds() -> None:
    ledger = replay(labelled(1_000_000))
    body = encode_ledger(ledger)
    assert len(body) < 60_000_000
    begin = time.process_time()
    again = decode_ledger(body)
    assert time.process_time() - begin < 10.0  # 3 s on an idle machine
    assert again.labels == ledger.labels
    assert again.batches == ledger.batches
