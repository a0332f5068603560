"""What a record goes through: killed writers, many writers at once, a server that dies."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from labelwise.errors import StorageFailed
from labelwise.record import open_storage
from labelwise.record.events import Told
from labelwise.record.storage import Storage
from tests.record import crash_writer
from tests.record.crash_writer import CAMPAIGN, group
from tests.record.storages import start_postgres

KILLS = {"sqlite": 20, "postgresql+psycopg": 10}


class Writers:
    """The processes of `crash_writer`, and what they have said."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.acknowledged: set[tuple[str, int]] = set()
        self.codes: dict[int, int] = {}

    def begin(self, job: str, argument: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{job} {argument}\n")
        self.process.stdin.flush()

    def hear(self) -> list[str]:
        """The next thing that one of them says."""
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        if not words:
            raise AssertionError("the writers ended by themselves")
        if words[0] == "ack":
            self.acknowledged.add((words[1], int(words[2])))
        if words[0] == "gone":
            self.codes[int(words[1])] = int(words[2])
        return words

    def hear_of(self, kind: str) -> list[str]:
        while (words := self.hear())[0] != kind:
            pass
        return words


@contextmanager
def writers(url: str) -> Iterator[Writers]:
    command = [sys.executable, crash_writer.__file__, url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            found = Writers(process)
            found.hear_of("ready")
            yield found
        finally:
            process.kill()


def all_together(url: str, jobs: list[tuple[str, int]]) -> None:
    """Run jobs at once, each in a process of its own, to their good end."""
    with writers(url) as running:
        for job, argument in jobs:
            running.begin(job, argument)
        while len(running.codes) < len(jobs):
            running.hear()
        assert list(running.codes.values()) == [0] * len(jobs)


def groups_in(storage: Storage) -> set[tuple[str, int]]:
    """The writes that the record holds, each of them whole and none of them twice."""
    found: set[tuple[str, int]] = set()
    events, position = storage.read(CAMPAIGN), 0
    while position < len(events):
        first = events[position]
        assert isinstance(first, Told)
        expected = group(first.by, int(first.at))
        assert events[position : position + len(expected)] == expected
        assert (first.by, int(first.at)) not in found
        found.add((first.by, int(first.at)))
        position += len(expected)
    return found


def test_killed_writers_lose_nothing_that_was_acknowledged(storage_url: str) -> None:
    """Killed at any moment: also while opening, making the tables and keeping a snapshot."""
    chance = random.Random(0)
    kills = KILLS[storage_url.split(":")[0]]
    with writers(storage_url) as running:
        for run in range(kills):
            running.begin("write", run)
            process = int(running.hear_of("pid")[1])
            for _ in range(run % 5):  # with none, it is killed while it opens the storage
                running.hear_of("ack")
            time.sleep(chance.uniform(0, 0.05))
            os.kill(process, signal.SIGKILL)
            running.hear_of("gone")
            assert running.codes[process] == -signal.SIGKILL
            if run % 10 == 9:
                with closing(open_storage(storage_url)) as storage:
                    assert running.acknowledged <= groups_in(storage)
        acknowledged = running.acknowledged
    with closing(open_storage(storage_url)) as storage:
        found = groups_in(storage)
        assert acknowledged <= found
        assert len(found - acknowledged) <= kills  # at most the write in hand, each time
        assert len(acknowledged) >= kills
        kept = storage.load_snapshot(CAMPAIGN)
        assert kept is None or len(kept[1]) == 20_000
    if storage_url.startswith("sqlite"):
        with closing(sqlite3.connect(storage_url.removeprefix("sqlite:///"))) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("job", ["number", "retry"])
def test_two_processes_never_take_the_same_number(storage_url: str, job: str) -> None:
    all_together(storage_url, [(job, 40), (job, 40)])
    with closing(open_storage(storage_url)) as storage:
        events = [event for event in storage.read(CAMPAIGN) if isinstance(event, Told)]
    assert [event.id for event in events] == list(range(80))
    assert sorted(Counter(event.by for event in events).values()) == [40, 40]


def test_eight_processes_append_at_once(storage_url: str) -> None:
    """They also find the storage empty and make its tables at the same time."""
    all_together(storage_url, [("append", 15)] * 8)
    with closing(open_storage(storage_url)) as storage:
        found = groups_in(storage)
        assert Counter(number for _, number in found) == dict.fromkeys(range(15), 8)
        order = [event.at for event in storage.read(CAMPAIGN) if isinstance(event, Told)]
    assert len(order) == 8 * sum(len(group("", number)) for number in range(15))


def test_a_forked_process_gets_connections_of_its_own(storage_url: str) -> None:
    script = f"""
import os
from labelwise.record.events import Told
from labelwise.record import open_storage
storage = open_storage({storage_url!r})
storage.append("birds", [Told(0.0, 0, 0)])
child = os.fork()
for number in range(20):
    storage.append("birds", [Told(float(number), number, 0, "child" if child == 0 else "parent")])
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert storage.append("birds", [Told(0.0, 0, 0)]) == 42
storage.close()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
    with closing(open_storage(storage_url)) as storage:
        events = [event for event in storage.read("birds") if isinstance(event, Told)]
    for by in ("child", "parent"):
        assert [event.id for event in events if event.by == by] == list(range(20))


@pytest.mark.slow
def test_a_server_that_dies_takes_nothing_acknowledged_with_it() -> None:
    """PostgreSQL stopped as by a power cut, and started again, under a storage in use."""
    acknowledged: list[int] = []
    failures: list[Exception] = []

    def label() -> None:
        while not failures:
            try:
                storage.append(CAMPAIGN, [Told(0.0, len(acknowledged), 0)])
                acknowledged.append(len(acknowledged))
            except Exception as error:
                failures.append(error)

    with start_postgres() as server, closing(open_storage(server.url())) as storage:
        thread = threading.Thread(target=label)
        thread.start()
        while len(acknowledged) < 50:
            time.sleep(0.01)
        server.crash()
        thread.join()
        assert isinstance(failures[0], StorageFailed)
        with pytest.raises(StorageFailed, match="cannot be reached"):
            storage.length(CAMPAIGN)
        server.start_again()
        found = [event.id for event in storage.read(CAMPAIGN) if isinstance(event, Told)]
        assert found[: len(acknowledged)] == acknowledged
        assert len(found) <= len(acknowledged) + 1
        assert storage.append(CAMPAIGN, [Told(0.0, 0, 0)]) == len(found) + 1
