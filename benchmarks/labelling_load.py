"""Fifty annotators at once: labels per second, latency, and that nothing is lost or lent twice.

Run: python benchmarks/labelling_load.py --folder /tmp --out docs/results/labelling_load.jsonl

Simulated annotators speak HTTP to ``labelwise label --no-training`` over loopback, on SQLite and on
a PostgreSQL server that is started here, with a pool of 1,000,000 items all of which were asked
for. They label as fast as the server answers, then at the pace of people, then until the server is
killed. Afterwards the record is read back. A second part grows a record to 1,000,000 events and
times the state, the next item and ``labelwise status`` on the way.

One JSON object per line; needs the extras ``web`` and ``postgres``, and pgserver. ``--quick`` takes
a minute.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from labelling_load_campaign import (
    CLASSES,
    Server,
    ask_for_all,
    cpu_seconds,
    make_pool,
    open_place,
    resident_megabytes,
    start_campaign,
    storage_url,
    syncs_per_second,
)
from labelling_load_check import check
from labelling_load_growth import measure_growth, note
from labelling_load_people import People
from one_run import circumstances, write_line

from labelwise.record import open_storage
from labelwise.record.events import Event, Lent, Told

PACES = {"full speed": 0.0, "people's pace": 1.5, "killed": 0.0}
"""Seconds for which an annotator looks at an item, by the way of measuring."""

QUICK = {
    "items": 20_000,
    "annotators": 8,
    "seconds": 5.0,
    "lengths": [1_000, 10_000],
    "repeats": 50,
}


def main() -> None:
    """Measure what was asked for."""
    arguments = read_arguments()
    facts = circumstances(1) | {"annotators": arguments.annotators, "seed": arguments.seed}
    with tempfile.TemporaryDirectory(prefix="labelling-", dir=arguments.folder) as name:
        folder = Path(name)
        os.chmod(folder, 0o755)
        pool = folder / "pool.npy"
        make_pool(pool, arguments.items, arguments.seed)
        for kind in arguments.storages:
            place = folder / kind
            place.mkdir()
            with open_place(kind, place) as (url, server):
                for line in lines(kind, pool, place, url, server, arguments):
                    line |= {"load_average": round(os.getloadavg()[0], 2)}
                    write_line(facts | line, arguments.out)


def lines(
    kind: str, pool: Path, folder: Path, url: str | None, database: int | None, arguments: Any
) -> Any:
    """All lines of one storage."""
    about = {"benchmark": "labelling_load", "storage": kind, "items": arguments.items}
    for way, pace in PACES.items() if "load" in arguments.parts else ():
        note(f"{kind}: {arguments.annotators} annotators, {way}")
        yield about | measure_load(way, pace, pool, folder, url, database, arguments)
    if "growth" in arguments.parts:
        lengths, repeats = arguments.lengths, arguments.repeats
        for line in measure_growth(pool, folder, url, lengths, repeats, arguments.seed):
            yield about | {"part": "growth"} | line


def read_arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="on the disk to measure; needs 2 GB")
    add("--out", type=Path, help="append the lines to this file too")
    add("--storages", nargs="+", default=["sqlite", "postgres"], choices=["sqlite", "postgres"])
    add("--parts", nargs="+", default=["load", "growth"], choices=["load", "growth"])
    add("--items", type=int, default=1_000_000)
    add("--annotators", type=int, default=50)
    add("--ahead", type=int, default=10, help="items each has on loan (default 10, as the page)")
    add("--seconds", type=float, default=60.0, help="of each way of measuring (default 60)")
    add("--processes", type=int, default=2, help="of annotators (default 2)")
    add("--lengths", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    add("--repeats", type=int, default=200, help="of each call at each length (default 200)")
    add("--seed", type=int, default=0)
    add("--quick", action="store_true", help="small numbers, to try it out")
    arguments = parser.parse_args()
    if arguments.quick:
        vars(arguments).update(QUICK)
    return arguments


def measure_load(
    way: str,
    pace: float,
    pool: Path,
    folder: Path,
    url: str | None,
    database: int | None,
    arguments: Any,
) -> dict[str, Any]:
    """One campaign, labelled in one way, and what its record says afterwards."""
    name = way.replace(" ", "-").replace("'", "")
    project = start_campaign(pool, folder / name, url, name=name)
    ask_for_all(project, arguments.seed)
    project.close()
    syncs = [syncs_per_second(folder, 1.0)]
    server = Server(project.home)
    people = None
    try:
        people = People(
            server.port,
            arguments.annotators,
            arguments.processes,
            folder,
            ahead=arguments.ahead,
            pace=pace,
            seconds=arguments.seconds,
            seed=arguments.seed,
        )
        begin, before = time.time(), [cpu_seconds(pid) for pid in (server.pid, database)]
        people.begin()
        if way == "killed":
            time.sleep(arguments.seconds / 4)
            server.kill()
        found = people.wait()
        after = [cpu_seconds(pid) for pid in (server.pid, database)]
        memory = resident_megabytes(server.pid)
    finally:
        server.stop()
        if people is not None:
            people.stop()
    syncs.append(syncs_per_second(folder, 1.0))
    storage = open_storage(storage_url(project))
    events = storage.read(project.name)
    storage.close()
    seconds = float(found["seconds"].max())
    used = [
        None if b is None or a is None else round((a - b) / seconds, 3)
        for a, b in zip(after, before, strict=True)
    ]
    return {
        "part": "load",
        "way": way,
        "pace_seconds": pace,
        "ahead": arguments.ahead,
        **speed(found, seconds),
        **commits(events, begin, seconds, float(np.mean(syncs))),
        "server_cores": used[0],
        "database_cores": used[1],
        "annotators_cores": round(float(found["cpu"].sum()) / seconds, 3),
        "server_megabytes": memory,
        "errors": [str(error) for error in found["errors"]][:5],
        "events": len(events),
        **check(events, found["given"].tolist(), found["unsure"].tolist(), CLASSES),
    }


def speed(found: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Labels per second, and how long a label with the next items takes."""
    times = found["milliseconds"]
    quantiles = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    found_times = {f"{n}_ms": round(float(np.quantile(times, q)), 2) for n, q in quantiles.items()}
    return {
        "seconds": round(seconds, 2),
        "labels_per_second": round(len(times) / seconds, 1),
    } | found_times


def commits(events: list[Event], begin: float, seconds: float, syncs: float) -> dict[str, Any]:
    """How many labels a commit holds, and how near commits come to what the disk can sync.

    All events of one commit have the same time, which is how commits are told apart.
    """
    measured = [event for event in events if isinstance(event, Told | Lent) and event.at >= begin]
    count = len({event.at for event in measured})
    labels = sum(isinstance(event, Told) for event in measured)
    return {
        "commits_per_second": round(count / seconds, 1),
        "labels_per_commit": round(labels / max(count, 1), 2),
        "disk_syncs_per_second": round(syncs, 1),
        "commits_per_disk_sync": round(count / seconds / syncs, 3),
    }


if __name__ == "__main__":
    main()
