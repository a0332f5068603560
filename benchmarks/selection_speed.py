"""How long a selection takes and how much memory, for labelwise and for its peers.

Run: python benchmarks/selection_speed.py --out docs/results/selection_speed.jsonl

One JSON object per line, for one strategy of one implementation on one pool. Time is that of the
whole call, from NumPy arrays to picks, after a small call that is thrown away; the median of the
repeats. Memory is the peak above what the process held with the pool loaded. Each line comes from
a process of its own, and everything needed to repeat it is in it. benchmarks/README.md says more.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from one_run import Meter, circumstances, run_alone, write_line
from peers import IMPLEMENTATIONS, Answer, Job, residuals
from workloads import WORKLOADS, Workload, save

ENOUGH_SECONDS = 10.0
"""A call is not repeated once its repeats have taken this long."""
WARM_UP_ITEMS, WARM_UP_PICKS = 600, 10
LOOKED_AT = 10_000
"""Over how many items of the pool the distance to the picks is averaged."""

EVERYWHERE = ("W1", "W2", "W3", "W4", "W5")
TWICE = ("W1", "W2")
PLAN: dict[str, dict[str, tuple[str, ...]]] = {
    "badge": {
        "labelwise": EVERYWHERE,
        "bmdal_reg": ("W1", "W2", "W3"),
        "scikit-activeml": ("W1",),
        "distil": ("W1",),
    },
    "k_center": {
        "labelwise": ("W1", "W2", "W4", "W5"),
        "bmdal_reg": TWICE,
        "scikit-activeml": TWICE,
        "lightly-mundig": TWICE,
    },
    "batchbald": {"labelwise": ("B1", "B2"), "batchbald_redux": ("B1",)},
}
"""The pools of each implementation, as far as its time allows; W1 and W2 for all not named."""

Run = tuple[Workload, str, str]
"""A pool, a strategy and an implementation."""


def main() -> None:
    """Measure everything that was asked for, one pool after the other."""
    arguments = read_arguments()
    facts = circumstances(arguments.threads)
    runs = list(planned(arguments))
    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        for name in dict.fromkeys(workload.name for workload, _, _ in runs):
            folder = Path(place) / name
            folder.mkdir()
            note(f"{name}: making the pool")
            save(WORKLOADS[name], folder, arguments.seed)
            ours: dict[str, Any] = {}
            for workload, strategy, implementation in runs:
                if workload.name != name:
                    continue
                note(f"{name}: {strategy} by {implementation}")
                run = (workload, strategy, implementation)
                line, ids = measure(run, folder, arguments)
                if ids is not None:
                    ours.setdefault(strategy, ids if implementation == "labelwise" else None)
                    line |= judge(run, folder, ids, ours[strategy])
                write_line(line | facts, arguments.out)
            for file in folder.iterdir():
                file.unlink()


def read_arguments() -> argparse.Namespace:
    """What was asked for; by default everything in the plan."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(dict.fromkeys(name for some in IMPLEMENTATIONS.values() for name in some))
    add = parser.add_argument
    add("--workloads", nargs="+", choices=list(WORKLOADS), help="instead of those of the plan")
    add("--strategies", nargs="+", choices=list(IMPLEMENTATIONS), default=list(IMPLEMENTATIONS))
    add("--implementations", nargs="+", choices=names, default=names)
    add("--repeats", type=int, default=5, help="most repeats of a fast call (default 5)")
    add("--limit", type=float, default=120, help="most seconds of one call (default 120)")
    add("--memory", type=float, default=20, help="most gigabytes of one process (default 20)")
    add(
        "--threads",
        type=int,
        default=available_cores(),
        help="threads per process (default: all cores)",
    )
    add("--seed", type=int, default=0)
    add("--folder", type=Path, help="where the pools are kept meanwhile (default: temporary)")
    add("--out", type=Path, help="append the lines to this file too")
    return parser.parse_args()


def planned(arguments: argparse.Namespace) -> Iterator[Run]:
    """The runs, labelwise before its peers."""
    for strategy in arguments.strategies:
        for implementation in IMPLEMENTATIONS[strategy]:
            if implementation not in arguments.implementations:
                continue
            usual = PLAN.get(strategy, {}).get(implementation, TWICE)
            for name in arguments.workloads or usual:
                workload = WORKLOADS[name]
                if bool(workload.members) == (strategy == "batchbald"):
                    yield workload, strategy, implementation


def measure(run: Run, folder: Path, arguments: argparse.Namespace) -> tuple[dict[str, Any], Any]:
    """The line of one run, and its picks where there are any."""
    workload, strategy, implementation = run
    chosen = IMPLEMENTATIONS[strategy][implementation]
    line = {
        "benchmark": "selection_speed",
        "workload": workload.name,
        "n": workload.n,
        "d": workload.d,
        "classes": workload.classes,
        "members": workload.members,
        "budget": workload.budget,
        "seed": arguments.seed,
        "strategy": strategy,
        "options": chosen.options,
        "implementation": implementation,
        "version": version(chosen.package),
    }
    task = {
        "strategy": strategy,
        "implementation": implementation,
        "folder": str(folder),
        "budget": workload.budget,
        "seed": arguments.seed,
        "repeats": arguments.repeats,
        "limit": arguments.limit,
        "memory_gigabytes": arguments.memory,
    }
    found = run_alone("selection_speed", "perform", task, arguments.threads)
    ids = found.pop("ids", None)
    return line | found, ids


def version(package: str) -> str | None:
    """The installed version, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def perform(task: dict[str, Any]) -> dict[str, Any]:
    """Measure one implementation; this runs in a process of its own."""
    chosen = IMPLEMENTATIONS[task["strategy"]][task["implementation"]]
    job = load(Path(task["folder"]), task["budget"], task["seed"])
    small = head(job)
    meter, floor = Meter(task["limit"]), Meter(task["limit"])
    meter.warm_up(lambda: chosen.call(small))
    while len(meter.seconds) < task["repeats"] and sum(meter.seconds) < ENOUGH_SECONDS:
        answer = meter.measure(lambda: chosen.call(job))
        if chosen.floor is not None:
            bare = chosen.floor
            floor.measure(lambda: bare(job, answer))  # noqa: B023
    return summary(answer, meter) | compared(meter, floor)


def load(folder: Path, budget: int, seed: int) -> Job:
    """The pool in memory."""
    files = (folder / f"{name}.npy" for name in ("features", "probabilities", "members"))
    features, probabilities, members = (np.load(f) if f.exists() else None for f in files)
    return Job(features, probabilities, members, budget, seed)


def head(job: Job) -> Job:
    """A job like it, but small."""
    arrays = (job.features, job.probabilities, job.members)
    small = [None if rows is None else rows[:WARM_UP_ITEMS] for rows in arrays]
    return Job(*small, min(WARM_UP_PICKS, job.budget), job.seed)


def summary(answer: Answer, meter: Meter) -> dict[str, Any]:
    """Seconds, megabytes and picks."""
    ids = np.asarray(answer.ids)
    facts = {
        "seconds": [round(value, 6) for value in meter.seconds],
        "median_seconds": round(statistics.median(meter.seconds), 6),
        "peak_megabytes": round(meter.peak_bytes / 1e6, 1),
        "distinct_picks": len(np.unique(ids)),
        "ids": ids.tolist(),
    }
    if rounds := answer.facts.get("rounds"):
        facts["seconds_per_round"] = round(facts["median_seconds"] / rounds, 7)
    return facts | answer.facts


def compared(meter: Meter, floor: Meter) -> dict[str, Any]:
    """How the time compares with that of the bare matrix products, if those were measured."""
    if not floor.seconds:
        return {}
    bare = statistics.median(floor.seconds)
    return {
        "product_seconds": [round(value, 6) for value in floor.seconds],
        "times_products": round(statistics.median(meter.seconds) / bare, 3),
    }


def judge(run: Run, folder: Path, ids: list[int], ours: list[int] | None) -> dict[str, Any]:
    """Whether the job was done: how far items are from the picks, and what labelwise picked."""
    _, strategy, implementation = run
    facts: dict[str, Any] = {}
    if strategy in ("badge", "k_center"):
        facts["mean_squared_distance"] = mean_squared_distance(strategy, folder, ids)
    if strategy in ("k_center", "batchbald") and implementation != "labelwise" and ours:
        differ = [mine != theirs for mine, theirs in zip(ours, ids, strict=False)]
        facts["first_picks_as_labelwise"] = differ.index(True) if True in differ else len(differ)
        facts["picks_as_labelwise"] = len(set(ours) & set(ids))
    return facts


def mean_squared_distance(strategy: str, folder: Path, ids: list[int]) -> float:
    """Of some items of the pool to the nearest pick, in the space the strategy works in."""
    features = np.load(folder / "features.npy", mmap_mode="r")
    looked_at = np.linspace(0, len(features) - 1, min(LOOKED_AT, len(features))).astype(int)
    factors = [(features[looked_at], features[ids])]
    if strategy == "badge":
        left = residuals(np.load(folder / "probabilities.npy"))
        factors.append((left[looked_at], left[ids]))
    products = np.prod([rows @ picks.T for rows, picks in factors], axis=0)
    norms, lengths = (
        np.prod([np.vecdot(pair[side], pair[side]) for pair in factors], axis=0) for side in (0, 1)
    )
    nearest = norms + np.min(lengths - 2 * products, axis=1)
    return round(float(np.mean(np.maximum(nearest, 0), dtype=np.float64)), 5)


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def note(text: str) -> None:
    """Say on stderr what is being done."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
