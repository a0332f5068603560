"""Seconds of max_herding, uherding, lcmd and typiclust, next to the product that coverage needs.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/coverage_speed.py > docs/results/coverage_speed.jsonl

One JSON object per line: CPU seconds (process time, one BLAS thread) and wall seconds of the whole
call, of the one product of candidates and targets (for coverage), their ratio in CPU seconds, and
the load of the machine. With bmdal_reg installed, `lcmd` is compared with it on a small pool,
where the picks are the same. Rows are 200 clusters of different sizes in float32, then no clusters.
``--large`` adds a million items.

``--device cuda`` measures `max_herding` from tensors on a GPU instead, in wall seconds of three
calls after one that is thrown away, and compares the picks with those of arrays on the host
(docs/results/coverage_speed_cuda.jsonl).
"""

import argparse
import json
import os
import sys
import time
from typing import Any

import numpy as np

import labelwise
from labelwise.kernels.distance.coverage import count_targets

CASES = (
    ("max_herding", 50_000, 512, 1000, 0),
    ("uherding", 50_000, 512, 1000, 0),
    ("max_herding", 14_000, 1280, 10, 200),
    ("lcmd", 50_000, 512, 1000, 0),
    ("typiclust", 14_000, 1280, 10, 200),
)
LARGE = ("max_herding", 1_000_000, 256, 100, 0)
ON_DEVICE = ((47_000, 512, 3000, 0), (47_000, 512, 3000, 200), (11_000, 384, 500, 200))
"""Items, features, picks and clusters."""


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="where rows are tensors, for example cuda")
    parser.add_argument("--large", action="store_true", help="a million items, too")
    arguments = parser.parse_args()
    if arguments.device:
        for case in ON_DEVICE:
            measure_on_device(arguments.device, *case)
        return
    for case in (*CASES, *([LARGE] if arguments.large else [])):
        for clusters in (200, 0):
            print(json.dumps(measure(*case, clusters)), flush=True)
    compare_lcmd()


def make_rows(n: int, d: int, clusters: int) -> Any:
    """Rows around centers, at random distances; without centers a normal distribution."""
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((n, d), dtype=np.float32)
    if clusters:
        centers = 0.7 * generator.normal(size=(clusters, d)).astype(np.float32)
        factors = generator.gamma(3, 0.4, size=(n, 1)).astype(np.float32)
        rows += centers[generator.integers(clusters, size=n)] * factors
    return rows


def measure(
    strategy: str, n: int, d: int, budget: int, labelled: int, clusters: int
) -> dict[str, Any]:
    """One call, and the product."""
    rows = make_rows(n, d, clusters)
    given: dict[str, Any] = {"features": rows, "labelled": list(range(labelled))}
    if strategy == "uherding":
        given["probabilities"] = np.random.default_rng(1).dirichlet(np.full(10, 0.3), size=n)
    load = os.getloadavg()[0]
    wall, cpu = time.perf_counter(), time.process_time()
    selection = labelwise.select(strategy, budget, **given)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    line = {"strategy": strategy, "n": n, "d": d, "budget": budget, "labelled": labelled}
    line |= {"clusters": clusters, "cpu_seconds": cpu, "wall_seconds": wall, "load": load}
    if "products" in selection.info:
        targets = count_targets(n - labelled, d, budget)
        product = multiply(rows, targets)
        line |= {"product_seconds": product, "ratio": cpu / product, "targets": targets}
        line |= {key: selection.info[key] for key in ("passes", "products", "covered")}
    return {
        key: round(value, 3) if isinstance(value, float) else value for key, value in line.items()
    }


def measure_on_device(place: str, n: int, d: int, budget: int, clusters: int) -> None:
    """Calls from tensors; the times are printed before the host, which takes longer, is asked."""
    import torch

    rows = make_rows(n, d, clusters)
    there = torch.as_tensor(rows, device=place)
    seconds = []
    for _ in range(4):
        begin = time.perf_counter()
        found = labelwise.select("max_herding", budget, features=there)
        seconds.append(round(time.perf_counter() - begin, 4))
    on_gpu = there.device.type == "cuda"
    line = {"strategy": "max_herding", "n": n, "d": d, "budget": budget, "clusters": clusters}
    line |= {"device": torch.cuda.get_device_name() if on_gpu else place}
    line |= {"torch": torch.__version__, "targets": found.info["targets"]}
    line |= {"first_seconds": seconds[0], "seconds": seconds[1:]}
    if on_gpu:
        line |= {"peak_gigabytes": round(torch.cuda.max_memory_allocated() / 1e9, 2)}
    print(json.dumps(line), flush=True)
    begin = time.perf_counter()
    expected = labelwise.select("max_herding", budget, features=rows)
    line |= {"host_seconds": round(time.perf_counter() - begin, 3)}
    line |= {"same_picks": int((found.ids == expected.ids).sum())}
    print(json.dumps(line), flush=True)


def multiply(rows: Any, targets: int) -> float:
    """CPU seconds of the product of all rows with some, in chunks that are dropped."""
    some = np.ascontiguousarray(rows[:targets].T)
    begin = time.process_time()
    for first in range(0, len(rows), 1024):
        rows[first : first + 1024] @ some
    return time.process_time() - begin


def compare_lcmd() -> None:
    """The picks and the time of bmdal_reg on a small pool."""
    np.Inf = np.inf  # bmdal_reg 3.0.2 was written for NumPy 1
    try:
        import torch
        from bmdal_reg.bmdal.feature_data import TensorFeatureData
        from bmdal_reg.bmdal.feature_maps import IdentityFeatureMap
        from bmdal_reg.bmdal.features import Features
        from bmdal_reg.bmdal.selection import LargestClusterMaxDistSelectionMethod
    except ImportError as error:
        print(f"without bmdal_reg: {error}", file=sys.stderr)
        return
    n, d, budget = 10_000, 128, 500
    rows = make_rows(n, d, 200)
    labelled = np.arange(0, n, 500)
    pool = np.setdiff1d(np.arange(n), labelled)

    def features(ids: Any) -> Any:
        return Features(IdentityFeatureMap(d), TensorFeatureData(torch.tensor(rows[ids])))

    begin = time.process_time()
    method = LargestClusterMaxDistSelectionMethod(features(pool), features(labelled), verbosity=0)
    theirs = pool[method.select(budget).numpy()]
    middle = time.process_time()
    ours = labelwise.select("lcmd", budget, features=rows, labelled=labelled).ids
    line = {"strategy": "lcmd", "n": n, "d": d, "budget": budget, "labelled": len(labelled)}
    line |= {"cpu_seconds": round(time.process_time() - middle, 3)}
    line |= {"bmdal_reg_cpu_seconds": round(middle - begin, 3)}
    print(json.dumps(line | {"same_picks": bool((ours == theirs).all())}), flush=True)


if __name__ == "__main__":
    main()
