"""How fast a pool streams that lies in a memory-mapped file of 5 GB, and in how much memory.

Run: python benchmarks/streaming.py --folder /tmp --out docs/results/streaming.jsonl

One JSON object per line. The steps are reading the file once, the bare matrix products (the Gram
matrix in float64 and one product with every row, two passes over the file), and labelwise doing
the same to some purpose: leverage scores, whose product is in float32, and the strategy lewis with
p = 2, whose product is in float64. Each step runs in a process of its own; memory is the peak above
what that process held before. The file is made first, so it is in the cache of the operating system
as far as that has room, for all steps alike.
"""

import argparse
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from one_run import Meter, circumstances, run_alone, write_line
from peers import gram, pieces
from selection_speed import available_cores, note, version
from workloads import Workload, blocks

COLUMNS, CLASSES, BUDGET = 128, 10, 1_000
CHUNK = 100_000


def main() -> None:
    """Make the file, measure all steps, remove the file."""
    arguments = read_arguments()
    facts = circumstances(arguments.threads)
    path = arguments.folder / f"streaming-{arguments.rows}-{arguments.seed}.npy"
    if not path.exists():
        note(f"making {path}")
        make_file(path, arguments.rows, arguments.seed)
    try:
        medians: dict[str, float] = {}
        for step, (_, floor) in STEPS.items():
            note(step)
            line = measure(step, path, arguments)
            if "median_seconds" in line:
                medians[step] = line["median_seconds"]
                if floor in medians:
                    line["times_products"] = round(medians[step] / medians[floor], 3)
            write_line(line | facts, arguments.out)
    finally:
        if not arguments.keep:
            path.unlink()


def read_arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="where the file is made; needs room for it")
    add("--rows", type=int, default=10_000_000, help="512 bytes each (default 10,000,000)")
    add("--keep", action="store_true", help="leave the file there, and use it the next time")
    add("--repeats", type=int, default=2)
    add("--limit", type=float, default=300, help="most seconds of one call (default 300)")
    add("--threads", type=int, default=available_cores(), help="default: all cores")
    add("--seed", type=int, default=0)
    add("--out", type=Path, help="append the lines to this file too")
    return parser.parse_args()


def make_file(path: Path, rows: int, seed: int) -> None:
    """Write the features of a pool, some rows at a time; nothing is left of it if that fails."""
    unfinished = path.with_suffix(".unfinished")
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, COLUMNS)}
    try:
        with unfinished.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            workload = Workload("stream", rows, COLUMNS, CLASSES, BUDGET)
            for features, _ in blocks(workload, seed, CHUNK):
                features.tofile(file)
            file.flush()
            os.fsync(file.fileno())  # else it is still being written while we measure
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)


def measure(step: str, path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The line of one step."""
    line = {
        "benchmark": "streaming",
        "step": step,
        "n": arguments.rows,
        "d": COLUMNS,
        "bytes": path.stat().st_size,
        "seed": arguments.seed,
        "implementation": "labelwise" if STEPS[step][1] else "bare",
        "version": version("labelwise"),
    }
    task = {
        "step": step,
        "path": str(path),
        "repeats": arguments.repeats,
        "limit": arguments.limit,
        "memory_gigabytes": 16 + path.stat().st_size / 2**30,  # a mapped file is address space
    }
    return line | run_alone("streaming", "perform", task, arguments.threads)


def perform(task: dict[str, Any]) -> dict[str, Any]:
    """Measure one step; this runs in a process of its own."""
    call = STEPS[task["step"]][0]
    meter = Meter(task["limit"])
    import labelwise.kernels.linear.leverage  # noqa: F401  (its memory is not that of the step)

    for _ in range(task["repeats"]):
        meter.measure(lambda: call(task["path"]))
    return {
        "seconds": [round(value, 6) for value in meter.seconds],
        "median_seconds": round(statistics.median(meter.seconds), 6),
        "peak_megabytes": round(meter.peak_bytes / 1e6, 1),
    }


def read(path: str) -> None:
    """Copy every byte once to a place that stays in the processor's cache."""
    for rows in pieces(mapped(path)):
        rows.copy()


def products_float32(path: str) -> None:
    """The Gram matrix in float64, then a product in float32."""
    products(path, np.float32)


def products_float64(path: str) -> None:
    """The Gram matrix in float64, then a product in float64."""
    products(path, np.float64)


def products(path: str, dtype: Any) -> None:
    """Two passes over the file, each with one matrix product."""
    gram(mapped(path))
    transform = np.eye(COLUMNS, dtype=dtype)
    for rows in pieces(mapped(path)):
        rows.astype(dtype, copy=False) @ transform


def mapped(path: str) -> Any:
    """The rows of the file, read when they are used."""
    return np.load(path, mmap_mode="r").view(np.ndarray)


def leverage(path: str) -> None:
    """Leverage scores over the blocks that `labelwise.select` reads a file by."""
    from labelwise.kernels.linear.leverage import leverage_scores
    from labelwise.pool.blocks import open_shards
    from labelwise.pool.representations import open_sources

    shards, _ = open_shards(open_sources({"features": path}))
    leverage_scores(shards)


def lewis(path: str) -> None:
    """The whole selection, from the file to picks with weights."""
    import labelwise

    labelwise.select("lewis", BUDGET, features=path, p=2.0)


STEPS: dict[str, tuple[Callable[[str], None], str]] = {
    "reading": (read, ""),
    "reading and products, float32": (products_float32, ""),
    "leverage": (leverage, "reading and products, float32"),
    "reading and products, float64": (products_float64, ""),
    "lewis, p = 2": (lewis, "reading and products, float64"),
}
"""What each step does, and the bare step that it is compared with."""


if __name__ == "__main__":
    main()
