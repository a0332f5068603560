"""Play many runs on frozen features in parallel processes, in the order of a list, until a time.

Usage: ``python benchmarks/frozen_jobs.py JOBS OUT.jsonl.gz --processes 16 --seconds 500``. A line
of ``JOBS`` is an experiment, its strategies (``all``, or labels or names separated by ``;``) and
seeds (``0-9``). Lines of unfinished runs are left out.
"""

import argparse
import gzip
import multiprocessing
import os
import queue
import time
import traceback
from pathlib import Path

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def read_jobs(path):
    """Experiment, entrant and seed of every run."""
    from labelwise.benchmark.protocol import Entrant
    from labelwise.benchmark.protocols import get_experiment

    for line in Path(path).read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, rest = line.split(maxsplit=1)
        wanted, seeds = rest.rsplit(maxsplit=1)
        protocol = get_experiment(name)
        first, _, last = seeds.partition("-")
        entrants = protocol.entrants
        if wanted != "all":
            entrants = []
            for part in wanted.split(";"):
                same = [e for e in protocol.entrants if e.label == part]
                same = same or [e for e in protocol.entrants if e.strategy == part]
                entrants += same or [Entrant(part)]
        for seed in range(int(first), int(last or first) + 1):
            for entrant in entrants:
                yield protocol, entrant, seed


def work(jobs, lines):
    """Play runs from one queue and put the lines of each into another."""
    from frozen_peers import PEERS, play_peer
    from frozen_variants import VARIANTS, play_variant
    from threadpoolctl import threadpool_limits

    from labelwise.benchmark.results import format_result_line
    from labelwise.benchmark.studies.frozen import study_frozen

    threadpool_limits(1)
    while True:
        try:
            protocol, entrant, seed = jobs.get(timeout=5)
        except queue.Empty:
            return
        begin = time.perf_counter()
        found, note = [], "done"
        try:
            if entrant.strategy in PEERS:
                played = play_peer(protocol, entrant, seed)
            elif entrant.strategy in VARIANTS:
                played = play_variant(protocol, entrant, seed)
            else:
                played = study_frozen(protocol, entrant, seed, None)
            found = [format_result_line(line) for line in played]
        except Exception:
            note = traceback.format_exc()
        seconds = time.perf_counter() - begin
        lines.put((protocol.name, entrant.label, seed, seconds, note, found))


def main():
    """Play the runs of a list and write their lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs")
    parser.add_argument("out")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=500)
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    context = multiprocessing.get_context("spawn")
    jobs, lines = context.Queue(), context.Queue()
    todo = list(read_jobs(given.jobs))
    for job in todo:
        jobs.put(job)
    processes = [context.Process(target=work, args=(jobs, lines)) for _ in range(given.processes)]
    for process in processes:
        process.start()
    ended, seconds = 0, {}
    with gzip.open(given.out, "at") as out, Path(f"{given.out}.log").open("a") as log:
        while time.monotonic() < end and ended < len(todo) and any(p.is_alive() for p in processes):
            try:
                name, label, seed, took, note, found = lines.get(timeout=1)
            except queue.Empty:
                continue
            ended += 1
            out.writelines(f"{line}\n" for line in found)
            seconds.setdefault((name, label), []).append(took)
            if note != "done":
                log.write(f"{name} {label} {seed}: {note}\n")
            out.flush()
        log.write(f"{ended} of {len(todo)} runs\n")
        for (name, label), found in seconds.items():
            log.write(f"{name} {label}: {len(found)} runs, {sum(found) / len(found):.1f} s\n")
    for process in processes:
        process.kill()
    jobs.cancel_join_thread()  # jobs that nobody took would keep this process from ending


if __name__ == "__main__":
    main()
