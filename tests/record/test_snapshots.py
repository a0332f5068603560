"""Snapshots: the same ledger as by replaying, sooner."""

import doctest
import json
import time
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.errors import LabelwiseWarning, StorageFailed
from labelwise.record import snapshots
from labelwise.record.events import Asked, Event, Lent, Started, Told, encode
from labelwise.record.ledger import Ledger, load_ledger, replay
from labelwise.record.memory_storage import MemoryStorage
from labelwise.record.snapshots import from_bytes, keep, keep_if_due, newest, to_bytes
from labelwise.record.storage import Storage
from labelwise.record.waiting import Waiting
from tests.record.sequences import patient, sequences


def everything(ledger: Ledger) -> str:
    """All that a ledger holds, with types and in order where that matters."""
    parts = dict(vars(ledger))
    del parts["kept"], parts["_shared"]  # they only save time
    parts["_open"], parts["validation"] = sorted(ledger._open), sorted(ledger.validation)
    line = parts.pop("waiting")
    parts["line"] = (line.order, line.places, bytes(line.flags), len(line), list(line))
    assert all(type(part) is not Waiting for part in parts.values())
    return repr(sorted(parts.items()))


def restored(ledger: Ledger) -> Ledger:
    again = from_bytes(to_bytes(ledger))
    assert again is not None
    return again


def labelled(count: int, batch: int = 1000) -> list[Event]:
    """A record of so many labels by 50 people."""
    events: list[Event] = [Started(0.0, {"classes": ["a", "b", "c"]}, count)]
    for begin in range(0, count, batch):
        ids = tuple(range(begin, min(begin + batch, count)))
        weights = tuple(1 + (id * 0.6180339887) % 1 for id in ids)
        events.append(Asked(1.0, begin // batch + 1, ids, weights, weights, "badge"))
        events.extend(Told(2.0, id, "abc"[id % 3], f"person {id % 50}", 1.5) for id in ids)
    return events


@patient
@given(sequences(), st.data())
def test_a_snapshot_and_the_rest_are_as_good_as_the_whole_record(
    events: list[Event], data: st.DataObject
) -> None:
    whole, ledger = replay(events), Ledger()
    for event in events:
        if data.draw(st.booleans()):
            ledger = restored(ledger)
        ledger.apply(event)
    assert everything(ledger) == everything(whole)
    assert everything(restored(whole)) == everything(whole)


def test_votes_on_their_own_come_back_as_they_were() -> None:
    """An item with one vote each is read in a quicker way than others."""
    ledger = replay(labelled(300, 100))
    again = restored(ledger)
    assert everything(again) == everything(ledger)
    assert len({id(votes) for votes in again.votes.values()}) == 150
    again.apply(Told(3.0, 0, "b", "new"))
    assert again.votes[0] == {"person 0": "a", "new": "b"}
    assert again.votes[150] == {"person 0": "a"}


def test_loading_reads_only_what_came_after_the_snapshot(storage: Storage) -> None:
    events = labelled(50)
    storage.append("birds", events[:30])
    keep(storage, "birds", load_ledger(storage, "birds"))
    storage.append("birds", events[30:])
    assert newest(storage, "birds").length == 30
    assert everything(load_ledger(storage, "birds")) == everything(replay(events))


def test_is_kept_when_many_events_have_come(storage: Storage) -> None:
    events = labelled(100)
    storage.append("birds", events)
    ledger = load_ledger(storage, "birds")
    assert storage.snapshot("birds") is None
    assert not keep_if_due(storage, "birds", ledger, every=1000)
    assert keep_if_due(storage, "birds", ledger, every=100)
    kept = storage.snapshot("birds")
    assert kept is not None
    assert kept[0] == len(events)
    assert not keep_if_due(storage, "birds", ledger, every=100)
    assert load_ledger(storage, "birds").kept == len(events)


def test_loading_keeps_one_by_itself() -> None:
    storage = MemoryStorage()
    storage.append("birds", labelled(snapshots.EVERY + 1, batch=10_000))
    ledger = load_ledger(storage, "birds")
    kept = storage.snapshot("birds")
    assert kept is not None
    assert kept[0] == ledger.length == ledger.kept
    assert everything(load_ledger(storage, "birds")) == everything(ledger)


def test_a_storage_that_cannot_be_written_to_does_not_stop_the_reading() -> None:
    class Full(MemoryStorage):
        def keep_snapshot(self, campaign: str, number: int, body: bytes) -> None:
            raise StorageFailed("the disk is full")

    storage = Full()
    storage.append("birds", labelled(100))
    ledger = load_ledger(storage, "birds")
    assert not keep_if_due(storage, "birds", ledger, every=10)
    assert not keep_if_due(storage, "birds", ledger, every=10)


def test_one_of_another_version_is_passed_over() -> None:
    body = to_bytes(replay(labelled(9)))
    header, columns = snapshots._unpack(body)
    other = snapshots._pack({**header, "version": snapshots.VERSION + 1}, columns)
    storage = MemoryStorage()
    storage.append("birds", labelled(9))
    storage.keep_snapshot("birds", 5, other)
    assert from_bytes(other) is None
    assert everything(load_ledger(storage, "birds")) == everything(replay(labelled(9)))


@pytest.mark.parametrize("damage", ["cut", "swapped", "empty", "column", "header"])
def test_a_damaged_one_is_reported_and_passed_over(damage: str) -> None:
    body = to_bytes(replay(labelled(99)))
    broken: Any = {
        "cut": body[:-5],
        "swapped": body[:200] + bytes(20) + body[220:],
        "empty": b"",
        "column": snapshots._pack(*_without(body, "order")),
        "header": b"labelwise snapshot\n" + bytes(8) + zlib.compress(json.dumps([]).encode()),
    }[damage]
    storage = MemoryStorage()
    storage.append("birds", labelled(99))
    storage.keep_snapshot("birds", 50, broken)
    with pytest.warns(LabelwiseWarning, match=r"snapshot of 'birds' at event 50 is damaged"):
        ledger = load_ledger(storage, "birds")
    assert everything(ledger) == everything(replay(labelled(99)))


def _without(body: bytes, name: str) -> tuple[Any, Any]:
    header, columns = snapshots._unpack(body)
    return header, {key: column for key, column in columns.items() if key != name}


def test_loans_and_labels_of_all_kinds_survive() -> None:
    ledger = replay(
        [
            Asked(1.0, 1, (5, -3, 2**62), guesses=((1, 0.5), (1.0, 0.25), ("1", 1.0))),
            Lent(2.0, (5, -3), "ann", 9.0),
            Told(3.0, 2**62, 1.0, "ann"),
            Told(4.0, 2**62, 1, "bob"),
            Told(5.0, 7, "1", "näïve \ud800"),
        ]
    )
    again = restored(ledger)
    assert everything(again) == everything(ledger)
    assert repr(again.votes[2**62]) == "{'ann': 1.0, 'bob': 1}"
    assert again.available("bob", 9, now=5.0) == ledger.available("bob", 9, now=5.0) == []


def test_loads_far_sooner_than_the_record_replays() -> None:
    events = labelled(30_000)
    lines = [encode(event) for event in events]
    storage = MemoryStorage()
    storage._records["birds"] = lines
    begin = time.process_time()
    ledger = replay(storage.read("birds"))
    replaying = time.process_time() - begin
    body = to_bytes(ledger)
    times = []
    for _ in range(3):
        begin = time.process_time()
        from_bytes(body)
        times.append(time.process_time() - begin)
    assert min(times) < replaying / 5


@pytest.mark.slow
def test_a_million_labels_load_in_a_few_seconds() -> None:
    ledger = replay(labelled(1_000_000))
    body = to_bytes(ledger)
    assert len(body) < 40_000_000
    begin = time.process_time()
    again = from_bytes(body)
    assert time.process_time() - begin < 3.0  # 1 s on a machine with nothing else to do
    assert again is not None
    assert again.labels == ledger.labels
    assert again.batches == ledger.batches


def test_examples_run() -> None:
    result = doctest.testmod(snapshots)
    assert result.attempted > 0
    assert result.failed == 0
