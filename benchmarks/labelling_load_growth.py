"""How long the state, the next item and ``labelwise status`` take, by the length of the record.

The record is that of a campaign by 50 people: for every label a loan and the label, as the page
writes them; batches that grow with the labels, asked for before the last one is done; a training
for every batch. It is appended in blocks. Every length is measured just before the next snapshot is
due, where a fresh process has most to read.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from labelling_load_campaign import (
    CLASSES,
    LABELWISE,
    LEND_SECONDS,
    Server,
    cpu_seconds,
    resident_megabytes,
    start_campaign,
)
from labelling_load_people import Connection

from labelwise.campaign.project import Project
from labelwise.record import snapshots
from labelwise.record.events import Asked, Event, Lent, Told, Trained, Training
from labelwise.record.ledger import Ledger

PEOPLE, SMALLEST, LARGEST, GROWTH, TAIL = 50, 500, 5_000, 0.2, 0.2
BLOCK, MARGIN = 10_000, 1_000
"""Events appended at once; and how many the record may grow by before the next snapshot is due."""


def history(order: list[int], begin: float) -> Iterator[Event]:
    """The events of a campaign that goes through the items in an order."""
    at, number, first, asked = begin, 0, 0, SMALLEST
    yield _asked(1, tuple(order[:SMALLEST]), at)
    while first < len(order):
        number, last, size = number + 1, asked, asked - first
        for place in range(first, last):
            at += 0.05
            item, by = order[place], f"person {place % PEOPLE}"
            if place == last - int(TAIL * size) - 1:  # the next batch is asked for ahead
                asked = min(len(order), last + _size(last))
                yield Training(at, number, place)
                yield _trained(number, place, at)
                yield _asked(number + 1, tuple(order[last:asked]), at)
            yield Lent(at, (item,), by, at + LEND_SECONDS)
            yield Told(at, item, CLASSES[item % len(CLASSES)], by, 1.5)
        first = last


def _size(labels: int) -> int:
    """Of the next batch: it grows with the labels, up to a limit."""
    return min(LARGEST, max(SMALLEST, int(GROWTH * labels)))


def _asked(number: int, ids: tuple[int, ...], at: float) -> Asked:
    some = np.random.default_rng(number).random((2, len(ids))).round(6).tolist()
    pairs = zip(ids, some[0], strict=True)
    guesses = tuple((CLASSES[item % len(CLASSES)], share) for item, share in pairs)
    return Asked(at, number, ids, tuple(some[0]), tuple(some[1]), "badge", number, guesses=guesses)


def _trained(number: int, labels: int, at: float) -> Trained:
    accuracy = 1.0 - 0.5 * (labels + 1) ** -0.3
    metrics = {
        "accuracy": accuracy,
        "interval": [accuracy - 0.01, min(1.0, accuracy + 0.01)],
        "validation_labels": 1000,
        "agreement": 0.97,
        "kappa": 0.95,
    }
    return Trained(at, number, labels, 3.0, metrics)


def measure_growth(
    pool: Path, folder: Path, url: str | None, lengths: list[int], repeats: int, seed: int
) -> Iterator[dict[str, Any]]:
    """A line for every length of the record, the first of them an empty campaign's."""
    project = start_campaign(pool, folder / "growth", url, name="growth")
    storage, items = project.storage(), len(project.items)
    order = np.random.default_rng(seed).permutation(items).tolist()
    events = history(order, time.time() - 0.05 * max(lengths))
    ledger = snapshots.load_ledger(storage, project.name)
    yield {"events": 1, "labels": 0, **time_status(project.home, repeats)}
    for length in lengths:
        note(f"filling the record to {length:,} events")
        wanted = length - MARGIN if length >= snapshots.MIN_EVENTS else length
        due = max(snapshots.MIN_EVENTS, int(snapshots.MIN_SHARE * wanted)) - MARGIN
        fill(project, ledger, events, wanted - due)
        keeping = time_snapshot(project, ledger) if wanted > due else {}
        fill(project, ledger, events, wanted)
        line = {
            "events": ledger.length,
            "labels": ledger.vote_count,
            "trainings": len(ledger.trainings),
            "events_after_the_snapshot": ledger.length - ledger.snapshot_length,
        }
        line |= keeping | time_status(project.home, repeats)
        line |= time_server(project.home, repeats)
        yield line
        ledger.extend(storage.read(project.name, ledger.length))  # what was measured with
    project.close()


def fill(project: Project, ledger: Ledger, events: Iterator[Event], length: int) -> None:
    """Append events until the record is so long, but none of items that were measured with."""

    def fresh(event: Event) -> bool:
        ids = event.ids if isinstance(event, Lent) else [getattr(event, "id", None)]
        return not any(item in ledger.votes for item in ids)

    while ledger.length < length:
        block = list(islice(filter(fresh, events), min(BLOCK, length - ledger.length)))
        if not block:
            raise ValueError(f"{ledger.items:,} items do not fill {length:,} events; give more")
        project.storage().append(project.name, block)
        ledger.extend(block)


def time_snapshot(project: Project, ledger: Ledger) -> dict[str, Any]:
    """Save a snapshot, while a server would let everyone wait."""
    begin, cpu = time.perf_counter(), time.process_time()
    body = snapshots.encode_ledger(ledger)
    project.storage().save_snapshot(project.name, ledger.length, body)
    ledger.snapshot_length = ledger.length
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return {"snapshot_seconds": round(wall, 4), "snapshot_cpu_seconds": round(cpu, 4)}


def time_status(home: Path, repeats: int) -> dict[str, Any]:
    """Seconds of ``labelwise status`` in a process of its own, imports and all; wall and CPU."""
    command = [*LABELWISE, "status", "--campaign", str(home)]
    wall, cpu = [], []
    for _ in range(1 + max(5, repeats // 20)):
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, code, used = os.wait4(process.pid, 0)
        wall.append(round(time.perf_counter() - begin, 3))
        cpu.append(round(used.ru_utime + used.ru_stime, 3))
        process.returncode = os.waitstatus_to_exitcode(code)
        if process.returncode:
            raise RuntimeError("labelwise status failed; its error is above")
    return {"status_seconds": wall[1:], "status_cpu_seconds": cpu[1:]}  # the first fills caches


def time_server(home: Path, repeats: int) -> dict[str, Any]:
    """Milliseconds of calls to a running server, by one person after the other."""
    server = Server(home)
    try:
        found = asyncio.run(_calls(server, repeats))
        memory = resident_megabytes(server.pid)
    finally:
        server.stop()
    return {**found, "server_megabytes": memory}


async def _calls(server: Server, repeats: int) -> dict[str, Any]:
    """By turns: a label with the next items, the new state, somebody's first loan, its return."""
    page = Connection(server.port, "timer")
    await page.open()
    begin = time.perf_counter()
    session = await page.call("/api/session")  # reads the record
    found = {"first_call_seconds": round(time.perf_counter() - begin, 4)}
    page.csrf = session["csrf"]
    items = (await page.call("/api/lend", {"count": 10}))["items"]
    times: dict[str, list[float]] = {"label_and_next": [], "state": [], "lend": []}

    async def timed(name: str, path: str, body: Any = None) -> Any:
        begin = time.perf_counter()
        answer = await page.call(path, body)
        times[name].append(1000 * (time.perf_counter() - begin))
        return answer

    before = cpu_seconds(server.pid) or 0.0
    for number in range(repeats):
        labels = [{"id": items[0]["id"], "label": CLASSES[0], "seconds": 1.0}]
        answer = await timed("label_and_next", "/api/labels", {"labels": labels, "lend": 10})
        items = answer["items"]
        await timed("state", "/api/state")
        page.name = f"visitor%20{number}"
        await timed("lend", "/api/lend", {"count": 1})
        await page.call("/api/return", {})
        page.name = "timer"
    used = (cpu_seconds(server.pid) or 0.0) - before
    page.close()
    for name, each in times.items():
        found[f"{name}_ms"] = round(float(np.median(each)), 3)
        found[f"{name}_p99_ms"] = round(float(np.quantile(each, 0.99)), 3)
    return found | {"server_cpu_ms_per_call": round(1000 * used / (4 * repeats), 3)}


def note(text: str) -> None:
    """Say what is being done."""
    print(text, file=sys.stderr, flush=True)
