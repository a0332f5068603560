"""How selections scale over the actors of a Ray cluster, and what 64 nodes would make of it.

Run: python benchmarks/ray_scaling.py --folder /tmp --out docs/results/ray_scaling.jsonl

One JSON object per line:

``measured``   one selection of 1,000 picks from ``n`` items in .npy files that every actor reads by
               itself. ``seconds`` is the whole call and ``here_seconds`` the same in one process
               without Ray, turn by turn with it; ``actor_seconds`` and ``driver_seconds`` are
               processor time, which a busy machine changes less; ``processor_share`` is how much
               of a core the process without Ray got; bytes are what is pickled for or by all
               actors together.
``latency``    one call that does nothing, by the number of actors.
``bandwidth``  bytes per second that actors of this machine hand over in large answers.
``fitted``     the cost model of a strategy, fitted to its measured lines but that of the largest
               pool on the most actors, which the model then has to predict.
``predicted``  what the model says for a measured line on an idle machine, and with the share of
               the cores that was left over; and how far off the latter is.
``model``      what it says for other clusters, with what it assumes.

The model: the picks, and so the number of calls, do not depend on the actors; calls grow as a power
of ``n``, at worst to one pick at a time. Processor time of the actors, processor time of the driver
and bytes are sums, with weights of at least 0, of the terms in `TERMS`. Then

    seconds = actors' / min(actors, cores) + driver's + calls (l + m actors) + bytes / bandwidth

with ``l`` and ``m`` from the latency lines. It assumes equal parts, no other load, and files that
every node reads as fast as here, where they are in memory; it knows no stragglers and no failures.
"""

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from one_run import circumstances, write_line
from scipy.optimize import nnls
from workloads import Workload, blocks

from labelwise.running.shards import BLOCK_BYTES

COLUMNS, CLASSES, BUDGET = 64, 10, 1_000
SIZES = (62_500, 250_000, 1_000_000)
ACTORS = (1, 2, 4)
STRATEGIES = ("lewis", "entropy", "badge", "k_center")
MANY = 8
"""The number of actors for which the overhead per pick is stated."""
TERMS = {
    "bytes": ("items", "calls", "calls x actors", "calls x blocks"),
    "actor_seconds": ("items", "calls", "calls x actors"),
    "driver_seconds": ("items", "calls", "calls x actors", "bytes"),
}
"""What each cost is made of. Answers come block by block, of 64 MiB, and messages go to actors."""
ITEM_BY_ITEM = ("lewis",)
"""Strategies that bring a number of every item to the driver; others do not pay for items there."""
TEN_GIGABITS = 1.25e9
CLUSTERS = ((100_000_000, 16), (1_000_000_000, 64), (1_000_000_000, 1024))
"""Items and actors that the model is asked for; 64 nodes with one actor, or with sixteen each."""


def main() -> None:
    """Measure, fit, check the fit, and extrapolate."""
    arguments = read_arguments()
    facts = circumstances(1)
    lines: list[dict[str, Any]] = []
    for line in everything(arguments):
        lines.append(line)
        write_line(line | (facts if line["kind"] == "measured" else {}), arguments.out)
    for line in conclusions(lines):
        write_line(line, arguments.out)


def read_arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="where the files are made: 300 MB")
    add("--sizes", type=int, nargs="+", default=SIZES)
    add("--actors", type=int, nargs="+", default=ACTORS)
    add("--repeats", type=int, default=2, help="the fastest counts (default 2)")
    add("--seed", type=int, default=0)
    add("--out", type=Path, help="append the lines to this file too")
    return parser.parse_args()


def everything(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All measured lines."""
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    import ray

    from labelwise.running.ray_shards import RayActors, connect

    connect("ray", max(MANY, *arguments.actors))
    files = {n: make_files(arguments.folder, n, arguments.seed) for n in arguments.sizes}
    for count in sorted({*arguments.actors, MANY}):
        with RayActors(count) as actors:
            yield {"kind": "latency", "actors": count, "seconds": latency(actors)}
            if count == max(arguments.actors):
                yield {"kind": "bandwidth", "actors": count, "bytes_per_second": speed(actors)}
            for n, name in itertools.product(files, STRATEGIES):
                here, there = [], []
                for _ in range(arguments.repeats):
                    here.append(select_here(name, files[n]))
                    there.append(select_there(name, files[n], n, actors))
                best = min(there, key=lambda run: run["seconds"])
                yield described(name, n, count, best, min(here), arguments)
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


def needed(name: str, files: dict[str, str]) -> dict[str, str]:
    """The files that a strategy reads."""
    import labelwise

    return {need: files[need] for need in labelwise.strategies()[name].needs}


def select_here(name: str, files: dict[str, str]) -> tuple[float, float]:
    """Seconds of one selection in this process, and its processor time."""
    import labelwise

    begin, used = time.perf_counter(), time.process_time()
    labelwise.select(name, BUDGET, **needed(name, files))
    return time.perf_counter() - begin, time.process_time() - used


def select_there(name: str, files: dict[str, str], n: int, actors: Any) -> dict[str, Any]:
    """One selection on the actors: seconds, and what it took."""
    import labelwise
    from labelwise.running import run
    from labelwise.running.ray_shards import RayShards

    begin, driver = time.perf_counter(), time.process_time()
    shards = RayShards(actors, needed(name, files), n)
    run.select(labelwise.strategies()[name], shards, BUDGET)
    seconds = time.perf_counter() - begin
    costs = shards.traffic.values()
    shards.close()
    return {
        "seconds": seconds,
        "driver_seconds": time.process_time() - driver,
        "actor_seconds": sum(cost.seconds for cost in costs),
        "calls": sum(cost.calls for cost in costs),
        "bytes_sent": sum(cost.sent for cost in costs),
        "bytes_received": sum(cost.received for cost in costs),
    }


def described(
    name: str,
    n: int,
    actors: int,
    run: dict[str, Any],
    here: tuple[float, float],
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """A measured line."""
    travelled = run["bytes_sent"] + run["bytes_received"]
    rounded = {
        key: round(value, 5) if isinstance(value, float) else value for key, value in run.items()
    }
    return {
        "kind": "measured",
        "strategy": name,
        "n": n,
        "d": COLUMNS,
        "budget": BUDGET,
        "actors": actors,
        **rounded,
        "here_seconds": round(here[0], 5),
        "processor_share": round(min(here[1] / here[0], 1), 3),
        "overhead_milliseconds_per_pick": round(1000 * (run["seconds"] - here[0]) / BUDGET, 4),
        "bytes": travelled,
        "bytes_per_pick": round(travelled / BUDGET),
        "bytes_per_call": round(travelled / run["calls"]),
        "bytes_of_the_pool": 4 * n * (COLUMNS + (CLASSES if name == "badge" else 0)),
        "seed": arguments.seed,
        "repeats": arguments.repeats,
    }


def nothing(shard: Any) -> None:
    """A call that costs what a call costs."""


def zeros(shard: Any, count: int) -> Any:
    """An answer of ``count`` bytes."""
    return np.zeros(count, dtype=np.uint8)


def latency(actors: Any) -> float:
    """The median seconds of a call."""
    from labelwise.running.ray_shards import RayShards

    shards = RayShards(actors, {"features": np.zeros((len(actors), 1))}, len(actors))
    return statistics.median(timed(lambda: shards.map(nothing)) for _ in range(100))


def speed(actors: Any, size: int = 16 << 20) -> float:
    """Bytes per second of large answers of all actors together."""
    from labelwise.running.ray_shards import RayShards

    shards = RayShards(actors, {"features": np.zeros((len(actors), 1))}, len(actors))
    best = min(timed(lambda: shards.map(zeros, size)) for _ in range(5))
    return size * len(actors) / best


def timed(call: Any) -> float:
    """Seconds of a call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def conclusions(lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The fitted model, how well it predicts, and what it says for larger clusters."""
    measured = [line for line in lines if line["kind"] == "measured"]
    calls = [(line["actors"], line["seconds"]) for line in lines if line["kind"] == "latency"]
    per_actor, once = np.polyfit(*zip(*calls, strict=True), 1)
    bandwidth = next(x["bytes_per_second"] for x in lines if x["kind"] == "bandwidth")
    last = max(line["n"] for line in measured), max(line["actors"] for line in measured)
    for name in STRATEGIES:
        own = [line for line in measured if line["strategy"] == name]
        known = [line for line in own if (line["n"], line["actors"]) != last]
        model = Model(name, known, max(float(once), 0.0), float(per_actor))
        yield {"kind": "fitted", "strategy": name, **model.shown()}
        for line in own:
            case = line["n"], line["actors"], os.cpu_count() or 1, bandwidth
            idle = model.costs(*case)["seconds"]
            busy = model.costs(*case, share=line["processor_share"])["seconds"]
            yield {
                "kind": "predicted",
                "strategy": name,
                "n": line["n"],
                "actors": line["actors"],
                "held_out": line not in known,
                "idle_seconds": round(idle, 4),
                "seconds": round(busy, 4),
                "measured_seconds": line["seconds"],
                "times_measured": round(busy / line["seconds"], 3),
            }
        for n, actors in CLUSTERS:
            costs = model.costs(n, actors, actors, TEN_GIGABITS)
            yield {
                "kind": "model",
                "strategy": name,
                "n": n,
                "actors": actors,
                **{key: float(f"{value:.4g}") for key, value in costs.items()},
                "bytes_per_pick": round(costs["bytes"] / BUDGET),
                "assumes": "a core for every actor, 10 Gbit/s at the driver, files as fast as here",
            }


class Model:
    """The cost model of one strategy, with the weights of its terms."""

    def __init__(
        self, name: str, lines: list[dict[str, Any]], once: float, per_actor: float
    ) -> None:
        """Fit all weights to measured lines."""
        self._once, self._per_actor = once, per_actor
        sizes = np.log([line["n"] for line in lines])
        self._power, self._level = np.polyfit(sizes, np.log([line["calls"] for line in lines]), 1)
        self._row_bytes = lines[0]["bytes_of_the_pool"] / lines[0]["n"]
        rows = [
            self.terms(line["n"], line["actors"], line["calls"]) | {"bytes": line["bytes"]}
            for line in lines
        ]
        self.weights: dict[str, dict[str, float]] = {}
        for quantity, names in TERMS.items():
            if quantity != "actor_seconds" and name not in ITEM_BY_ITEM:
                names = tuple(term for term in names if term != "items")
            values = np.array([line[quantity] for line in lines])
            # Errors count in proportion to what was measured, the small pools as much as the large.
            table = np.array([[row[term] for term in names] for row in rows]) / values[:, None]
            found, _ = nnls(table, np.ones(len(values)))
            self.weights[quantity] = dict(zip(names, found.tolist(), strict=True))

    def terms(self, n: int, actors: int, calls: float) -> dict[str, float]:
        """What the costs are made of."""
        blocks = actors * -(-n * self._row_bytes // (actors * BLOCK_BYTES))
        return {
            "items": n,
            "calls": calls,
            "calls x actors": calls * actors,
            "calls x blocks": calls * blocks,
        }

    def costs(
        self, n: int, actors: int, cores: int, bandwidth: float, share: float = 1.0
    ) -> dict[str, float]:
        """What a selection takes on a cluster that leaves it a share of every core."""
        calls = min(float(np.exp(self._level + self._power * np.log(n))), 2.0 * BUDGET)
        found, terms = {"calls": calls}, self.terms(n, actors, calls)
        for quantity, weights in self.weights.items():
            found[quantity] = sum(weight * terms[term] for term, weight in weights.items())
            terms[quantity] = found[quantity]
        work = found["actor_seconds"] / min(actors, cores) + found["driver_seconds"]
        waiting = calls * (self._once + self._per_actor * actors) + found["bytes"] / bandwidth
        return {"seconds": work / share + waiting} | found

    def shown(self) -> dict[str, Any]:
        """The weights as a line shows them."""
        weights = {
            quantity: {term: float(f"{weight:.4g}") for term, weight in found.items()}
            for quantity, found in self.weights.items()
        }
        return {
            "calls": f"{np.exp(self._level):.4g} n^{self._power:.3f}",
            "seconds_of_a_call": f"{self._once:.4g} + {self._per_actor:.4g} actors",
            **weights,
        }


if __name__ == "__main__":
    main()
