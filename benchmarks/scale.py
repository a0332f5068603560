"""How long selections from pools of up to 100 million items take, and how much memory.

Run: python benchmarks/scale.py --folder /tmp/scale --out docs/results/scale.jsonl

The pools are float32 .npy files, read as `labelwise.select` reads files: block by block. One JSON
object per line, from a process of its own: seconds, peak memory, passes over the files, and the
time of the floor (read the files and multiply once by a matrix of the strategy's shape) in the same
process. ``times_floor`` is seconds / (passes x floor). Where other programs run beside it, trust
``times_floor_processor``, the same by processor seconds, as long as the files are in the cache.

100 million items of 64 features need 30 GB of disk. benchmarks/scale_run.py says what is counted;
benchmarks/scale_table.py makes docs/results/scale.md and the plot.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from one_run import circumstances, run_alone, write_line
from scale_pools import CLASSES, make_pool, remove_pool
from scale_run import CASES
from selection_speed import note, version

WIDE, NARROW = 128, 64
PLAN = [
    *((n, WIDE, tuple(CASES)) for n in (100_000, 1_000_000, 10_000_000)),
    *(
        (n, NARROW, ("entropy", "lewis p=2", "badge"))
        for n in (100_000, 1_000_000, 10_000_000, 100_000_000)
    ),
]
"""Items, features and what is run; all of the wide pools, then of the narrow ones."""


def main() -> None:
    """Make one pool after the other, run everything on it, and remove it."""
    arguments = read_arguments()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for n, d, cases in planned(arguments):
        note(f"{n:,} x {d}: the pool")
        folder = make_pool(arguments.folder, n, d, arguments.seed)
        for case in cases:
            note(f"{n:,} x {d}: {case}")
            line = measure(n, d, case, folder, arguments)
            write_line(line | circumstances(arguments.threads), arguments.out)
        if not arguments.keep:
            remove_pool(arguments.folder, n, d, arguments.seed)


def read_arguments() -> argparse.Namespace:
    """What was asked for; by default everything in the plan."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    place = Path(tempfile.gettempdir()) / "labelwise-scale"
    add("--folder", type=Path, default=place, help=f"where the pools are made (default {place})")
    add("--sizes", nargs="+", type=int, help="only pools of so many items")
    add("--widths", nargs="+", type=int, help="only pools of so many features")
    add("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    add("--keep", action="store_true", help="leave the pools there, and use them the next time")
    add("--limit", type=float, default=3600, help="most seconds of one run (default 3600)")
    add("--threads", type=int, default=os.cpu_count(), help="default: all cores")
    add("--seed", type=int, default=0)
    add("--out", type=Path, help="append the lines to this file too")
    return parser.parse_args()


def planned(arguments: argparse.Namespace) -> Iterator[tuple[int, int, list[str]]]:
    """The pools that are wanted, each with what is run on it."""
    for n, d, cases in PLAN:
        if arguments.sizes and n not in arguments.sizes:
            continue
        if arguments.widths and d not in arguments.widths:
            continue
        wanted = [case for case in cases if case in arguments.cases]
        if wanted:
            yield n, d, wanted


def measure(
    n: int, d: int, case: str, folder: Path, arguments: argparse.Namespace
) -> dict[str, Any]:
    """The line of one run."""
    line = {
        "benchmark": "scale",
        "case": case,
        "n": n,
        "d": d,
        "classes": CLASSES,
        "seed": arguments.seed,
        "version": version("labelwise"),
        "gigabytes": round(sum(f.stat().st_size for f in files(case, folder)) / 1e9, 3),
    }
    task = {
        "case": case,
        "folder": str(folder),
        "seed": arguments.seed,
        "limit": arguments.limit,
        "memory_gigabytes": 64,  # of addresses: a mapped file takes some too
    }
    return line | run_alone("scale_run", "perform", task, arguments.threads)


def files(case: str, folder: Path) -> list[Path]:
    """The files that a case reads."""
    return [folder / f"{name}.npy" for name in CASES[case].reads]


if __name__ == "__main__":
    main()
