"""Records that cannot be written, with flipped bits, or with a clock that is set back."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from labelwise.errors import StorageFailed
from labelwise.record import open_storage
from labelwise.record.events import NO_EVENT, Told, decode_event, encode_event
from labelwise.record.group_commit import SharedRecord
from labelwise.record.ledger import Ledger, replay

EVENTS = [Told(float(item), item, "owl", "ann") for item in range(5)]

READ = """
import os, sys
import sqlalchemy, labelwise.record.sql_storage
from labelwise.record import open_storage
from labelwise.errors import StorageFailed
if os.geteuid() == 0:
    os.setuid(65534)
storage = open_storage(sys.argv[1], create=False)
print(len(storage.read("birds")))
try:
    storage.append("birds", storage.read("birds")[:1])
except StorageFailed as error:
    print(error)
"""


def write_record(folder: Path) -> str:
    url = f"sqlite:///{folder}/labels.db"
    storage = open_storage(url)
    storage.append("birds", EVENTS)
    storage.close()
    return url


def test_a_record_in_a_folder_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    url = write_record(tmp_path)
    for part in [tmp_path, *tmp_path.parents]:
        if part.stat().st_mode & 0o055 != 0o055:
            part.chmod(part.stat().st_mode | 0o055)
    (tmp_path / "labels.db").chmod(0o444)
    tmp_path.chmod(0o555)
    ended = subprocess.run([sys.executable, "-c", READ, url], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    count, refusal = ended.stdout.splitlines()
    assert count == "5" and "it is read-only" in refusal
    assert [file.name for file in tmp_path.iterdir()] == ["labels.db"]


@pytest.mark.parametrize("place", range(0, 70, 3))
@pytest.mark.parametrize("bit", [0, 4, 7])
def test_a_flipped_bit_is_an_error_that_names_the_event(
    tmp_path: Path, place: int, bit: int
) -> None:
    url = write_record(tmp_path)
    body = bytearray(encode_event(EVENTS[2]).encode())
    body[place % len(body)] ^= 1 << bit
    update = "UPDATE labelwise_events SET body = CAST(? AS TEXT) WHERE number = 2"
    with closing(sqlite3.connect(tmp_path / "labels.db")) as database, database:
        database.execute(update, (bytes(body),))
    storage = open_storage(url)
    try:
        found = storage.read("birds")
    except StorageFailed as error:
        assert "event 2 of 'birds' cannot be read" in str(error) and "\n" not in str(error)
    else:  # another letter or digit: a valid event with another content
        assert len(found) == 5 and found[:2] == EVENTS[:2]
    with closing(sqlite3.connect(tmp_path / "labels.db")) as database, database:
        database.execute(update, (NO_EVENT.encode(),))
    assert replay(storage.read("birds")).labels == dict.fromkeys([0, 1, 3, 4], "owl")
    storage.close()


def test_the_event_that_replaces_a_damaged_one_has_no_effect() -> None:
    ledger = Ledger()
    ledger.extend([decode_event(NO_EVENT)])
    assert ledger.length == 1 and not ledger.per_annotator and not ledger.leases


def test_time_does_not_go_back_with_the_clock() -> None:
    now = [1e6]
    record = SharedRecord("birds", open_storage("memory://"), lambda: now[0])
    record.commit(lambda ledger, at: ([Told(at, 1, "owl")], None))
    now[0] -= 86_400.0
    assert record.commit(lambda ledger, at: ([], at)) == 1e6
    now[0] += 60.0
    assert record.commit(lambda ledger, at: ([], at)) == 1e6 + 60
