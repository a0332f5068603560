"""What selections cost on the actors of a Ray cluster in this machine: raw lines.

Run: python benchmarks/ray_scaling.py --folder /tmp --out docs/results/ray_scaling.jsonl
Then: python benchmarks/ray_table.py makes docs/results/ray_scaling.md of them. On a machine that
does other work, run it more than once: of several lines of one case the least costs count.

One JSON object per line:

``call``       a call that does nothing, by the number of actors: ``seconds`` and the processor
               time that it takes the driver and all actors together, the least of many batches.
``measured``   a selection of 1,000 picks from ``n`` items in .npy files, of which every actor
               reads its part by itself, in ``blocks`` blocks altogether. ``seconds`` is the whole
               call, the fastest of ``repeats``, and ``here_seconds`` the same in one process
               without Ray, turn by turn with it. ``driver_seconds`` and ``actor_seconds`` (all
               actors together, with what Ray does in them) are processor time, the least of the
               repeats, which other work on the machine changes little;
               ``here_processor_seconds`` likewise. ``bytes_sent`` and ``bytes_received`` are
               pickled for and by all actors together.
``travel``     calls and bytes of one strategy on a small pool and on one four times as large.
"""

import argparse
import itertools
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# One thread for every process, with Ray and without; libraries look when they are loaded.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import numpy as np
from one_run import circumstances, write_line
from workloads import Workload, blocks

from labelwise.pool.blocks import BLOCK_BYTES

COLUMNS, CLASSES, BUDGET = 64, 10, 1_000
SIZES = (62_500, 250_000, 1_000_000)
ACTORS = (1, 2, 4, 8)
STRATEGIES = ("random", "entropy", "lewis", "badge", "k_center")
SMALL_BLOCKS = 4, 8 << 20
"""With so many actors the largest pool is measured in blocks of so many bytes, too."""
SMALL_POOL, FEW_PICKS, MEMBERS = 4_000, 50, 5
"""What the bytes of every strategy are counted on; the second pool is four times as large."""


def main() -> None:
    """Measure what was asked for."""
    arguments = read_arguments()
    for line in everything(arguments):
        write_line(line | {"load": round(os.getloadavg()[0], 2)}, arguments.out)


def read_arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="where the files are made: 400 MB")
    add("--sizes", type=int, nargs="+", default=SIZES)
    add("--actors", type=int, nargs="+", default=ACTORS)
    add("--repeats", type=int, default=5)
    add("--seed", type=int, default=0)
    add("--out", type=Path, help="append the lines to this file too")
    return parser.parse_args()


def everything(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All lines."""
    import ray

    from labelwise.pool.ray.shards import RayActors, connect

    connect("ray", max(arguments.actors))
    facts = circumstances(1) | {"ray": ray.__version__}
    files = {n: make_files(arguments.folder, n, arguments.seed) for n in arguments.sizes}
    for count in arguments.actors:
        with RayActors(count) as actors:
            yield empty_call(actors)
            for n, name in itertools.product(files, STRATEGIES):
                yield measured(name, files[n], n, actors, arguments) | facts
            if count == SMALL_BLOCKS[0]:
                n = max(files)
                for name in STRATEGIES:
                    size = SMALL_BLOCKS[1]
                    yield measured(name, files[n], n, actors, arguments, size) | facts
                yield from travels(actors)
    ray.shutdown()


def make_files(folder: Path, n: int, seed: int) -> dict[str, str]:
    """The features and probabilities of a pool, one file each."""
    paths = {name: folder / f"ray-{name}-{n}.npy" for name in ("features", "probabilities")}
    features = np.lib.format.open_memmap(paths["features"], "w+", "f4", (n, COLUMNS))
    chances = np.lib.format.open_memmap(paths["probabilities"], "w+", "f4", (n, CLASSES))
    first = 0
    for rows, some in blocks(Workload("ray", n, COLUMNS, CLASSES, BUDGET), seed, 62_500):
        features[first : first + len(rows)], chances[first : first + len(rows)] = rows, some
        first += len(rows)
    return {name: str(path) for name, path in paths.items()}


def measured(
    name: str,
    files: dict[str, str],
    n: int,
    actors: Any,
    arguments: argparse.Namespace,
    block_bytes: int = BLOCK_BYTES,
) -> dict[str, Any]:
    """A line: some selections on the actors and as many without them, turn by turn."""
    import labelwise

    needs = labelwise.strategies()[name].needs or ("features",)
    given = {need: files[need] for need in needs}
    here, there = [], []
    for _ in range(arguments.repeats):
        here.append(select_here(name, given))
        there.append(select_there(name, given, n, actors, block_bytes))
    row_bytes = 4 * sum(COLUMNS if need == "features" else CLASSES for need in needs)
    wall, processor = (min(run[k] for run in here) for k in (0, 1))
    best = {key: min(run[key] for run in there) for key in there[0]}
    return {
        "kind": "measured",
        "strategy": name,
        "n": n,
        "row_bytes": row_bytes,
        "budget": BUDGET,
        "actors": len(actors),
        "blocks": count_blocks(n, row_bytes, len(actors), block_bytes),
        **{key: round(value, 6) for key, value in best.items()},
        "here_seconds": round(wall, 6),
        "here_processor_seconds": round(processor, 6),
        "repeats": arguments.repeats,
        "seed": arguments.seed,
    }


def count_blocks(n: int, row_bytes: int, actors: int, block_bytes: int = BLOCK_BYTES) -> int:
    """How many blocks the rows are in: every actor cuts its own part."""
    rows = -(-n // actors)
    return actors * -(-rows // max(block_bytes // row_bytes, 256))


def select_here(name: str, given: dict[str, str]) -> tuple[float, float]:
    """Seconds of one selection in this process, and its processor time."""
    import labelwise

    begin, used = time.perf_counter(), time.process_time()
    labelwise.select(name, BUDGET, **given)
    return time.perf_counter() - begin, time.process_time() - used


def select_there(
    name: str, given: dict[str, str], n: int, actors: Any, block_bytes: int
) -> dict[str, Any]:
    """One selection on the actors: seconds, and what it took."""
    import labelwise
    from labelwise.pool.ray.shards import RayShards
    from labelwise.selection import run

    before = processor_seconds(actors)
    begin, driver = time.perf_counter(), time.process_time()
    shards = RayShards(actors, given, n, block_bytes=block_bytes)
    if name == "random":
        shards.map(look)  # as `labelwise.select` does, so that a broken pool is refused
    run.select(labelwise.strategies()[name], shards, BUDGET)
    seconds, driver = time.perf_counter() - begin, time.process_time() - driver
    costs = shards.traffic.values()
    shards.close()
    return {
        "seconds": seconds,
        "driver_seconds": driver,
        "actor_seconds": processor_seconds(actors) - before,
        "calls": sum(cost.calls for cost in costs),
        "bytes_sent": sum(cost.sent for cost in costs),
        "bytes_received": sum(cost.received for cost in costs),
    }


def look(shard: Any) -> None:
    """Read a block."""
    for name in shard.rows:
        shard.rows[name]


def processor_seconds(actors: Any) -> float:
    """Processor time of all actors since they were started."""
    from labelwise.pool.parts import unpack_from_worker

    ask = actors.dumps((time.process_time, ()))
    sent = [actors.send(number, "run", ask) for number in range(len(actors))]
    return sum(unpack_from_worker(answer) for answer in actors.collect(sent))


def nothing(shard: Any) -> None:
    """A call that costs what a call costs."""


def empty_call(actors: Any, batches: int = 20, times: int = 20) -> dict[str, Any]:
    """The line of a call that does nothing."""
    from labelwise.pool.ray.shards import RayShards

    shards = RayShards(actors, {"features": np.zeros((len(actors), 1))}, len(actors))
    shards.map(nothing)
    walls, drivers, used = [], [], []
    for _ in range(batches):
        before, begin, driver = processor_seconds(actors), time.perf_counter(), time.process_time()
        for _ in range(times):
            shards.map(nothing)
        walls.append(time.perf_counter() - begin)
        drivers.append(time.process_time() - driver)
        used.append(processor_seconds(actors) - before)
    costs = shards.traffic["nothing"]
    return {
        "kind": "call",
        "actors": len(actors),
        "seconds": round(min(walls) / times, 6),
        "median_seconds": round(float(np.median(walls)) / times, 6),
        "driver_seconds": round(min(drivers) / times, 6),
        "actor_seconds": round(min(used) / times, 6),
        "bytes": round((costs.sent + costs.received) / costs.calls),
    }


def travels(actors: Any) -> Iterator[dict[str, Any]]:
    """What every strategy sends and receives."""
    import labelwise
    from labelwise.pool.ray.shards import RayShards
    from labelwise.selection import run

    for name, strategy in labelwise.strategies().items():
        for n in (SMALL_POOL, 4 * SMALL_POOL):
            shards = RayShards(actors, small_pool(strategy.needs or ("features",), n), n)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run.select(strategy, shards, FEW_PICKS)
            costs = shards.traffic.values()
            shards.close()
            yield {
                "kind": "travel",
                "strategy": name,
                "n": n,
                "budget": FEW_PICKS,
                "actors": len(actors),
                "calls": sum(cost.calls for cost in costs),
                "bytes_sent": sum(cost.sent for cost in costs),
                "bytes_received": sum(cost.received for cost in costs),
            }


def small_pool(needs: tuple[str, ...], n: int) -> dict[str, Any]:
    """Any representations, with few columns."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(n, 16)).astype(np.float32)
    members = generator.dirichlet(np.ones(5), size=(n, MEMBERS)).astype(np.float32)
    pool = {
        "features": features,
        "probabilities": members[:, 0],
        "logits": np.log(members[:, 0] + 1e-6),
        "member_probabilities": members,
        "member_votes": members.argmax(axis=2),
        "outputs": features[:, :2],
        "gradient_norms": np.abs(features[:, 0]),
        "gradient_products": features[:, 1],
        "duals": np.abs(features[:, 2]),
    }
    return {name: pool[name] for name in needs}


if __name__ == "__main__":
    main()
