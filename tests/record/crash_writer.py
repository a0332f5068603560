"""A process that writes to a storage until it is killed, or does a job together with others.

Run as ``python crash_writer.py URL``. It reads one job per line and forks a process for each, so
that a test can have fifty of them without importing everything fifty times. A process says its id
first, and what it acknowledges only after the storage did. Its parent says ``gone ID CODE``.

    write RUN      append, transact and keep snapshots, for ever
    number COUNT   take the next COUNT numbers, each by one transact
    retry COUNT    take the next COUNT numbers, each by an append with expected=, over and over
    append COUNT   append COUNT times
"""

import os
import select
import signal
import sys
import traceback
from itertools import count

import psycopg  # noqa: F401  here and not fifty times after the fork

import labelwise.record.sql_storage  # noqa: F401  likewise
from labelwise.errors import Conflict
from labelwise.record import open_storage
from labelwise.record.events import Event, Told
from labelwise.record.storage import Storage

CAMPAIGN = "birds"


def say(words: str) -> None:
    os.write(1, f"{words}\n".encode())  # one write of a short line is never torn


def group(run: str, number: int) -> list[Event]:
    """The events of one write: they say how many they should be."""
    size = 1 + number % 3
    return [Told(float(number), place, size, run) for place in range(size)]


def write(storage: Storage, run: str) -> None:
    for number in count():
        events = group(run, number)
        if number % 2:
            storage.append(CAMPAIGN, events)
        else:
            storage.transact(CAMPAIGN, storage.length(CAMPAIGN), lambda _, new=events: new)  # type: ignore[misc]
        say(f"ack {run} {number}")
        if number % 7 == 6:
            storage.save_snapshot(CAMPAIGN, storage.length(CAMPAIGN), os.urandom(20_000))


def take_numbers(storage: Storage, times: int) -> None:
    known: list[Event] = []
    for _ in range(times):

        def decide(new: list[Event]) -> list[Event]:
            known.extend(new)
            return [Told(0.0, len(known), 0, str(os.getpid()))]

        storage.transact(CAMPAIGN, len(known), decide)


def retry_numbers(storage: Storage, times: int) -> None:
    for _ in range(times):
        while True:
            length = storage.length(CAMPAIGN)
            try:
                event = Told(0.0, length, 0, str(os.getpid()))
                storage.append(CAMPAIGN, [event], expected=length)
                break
            except Conflict:
                continue


def append(storage: Storage, times: int) -> None:
    for number in range(times):
        storage.append(CAMPAIGN, group(str(os.getpid()), number))


def work(url: str, job: str, argument: str) -> None:
    say(f"pid {os.getpid()}")
    storage = open_storage(url)
    if job == "write":
        write(storage, argument)
    jobs = {"number": take_numbers, "retry": retry_numbers, "append": append}
    jobs[job](storage, int(argument))
    storage.close()


def main(url: str) -> None:
    """Begin what every line asks for, and say who is gone, whichever comes first."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)  # a handler alone may run when a read has begun that it cannot end
    signal.signal(signal.SIGCHLD, lambda *_: None)
    say("ready")
    rest = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _say_who_is_gone()
        if 0 in ready:
            given = os.read(0, 4096)
            if not given:
                return
            *lines, rest = (rest + given).split(b"\n")
            for line in lines:
                begin(url, line.decode())


def begin(url: str, line: str) -> None:
    """Do in a process of its own what a line asks for."""
    if os.fork() == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        code = 1
        try:
            work(url, *line.split())
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)


def _say_who_is_gone() -> None:
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not process:
            return
        say(f"gone {process} {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main(sys.argv[1])
