"""Seconds of max_herding, uherding, lcmd and typiclust, next to the product that coverage needs.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/coverage_speed.py > docs/results/coverage_speed.jsonl

One JSON object per line: CPU seconds (process time, one BLAS thread) and wall seconds of the whole
call, of the one product of candidates and targets (for coverage), their ratio in CPU seconds, and
the load of the machine. Rows are 200 clusters of different sizes in float32, then no clusters.
``--large`` measures a million items instead. Peers that are installed (bmdal_reg, apricot,
submodlib, scikit-activeml) do the same on a small pool: `lcmd` and facility location must pick the
same items; TypiClust begins with other clusters, and ProbCover has ties.

``--device cuda`` measures `max_herding` from tensors on a GPU instead, in wall seconds of three
calls after one that is thrown away, and compares the picks with those of arrays on the host
(docs/results/coverage_speed_cuda.jsonl).
"""

import argparse
import json
import os
import sys
import time
from importlib.metadata import version
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
RADIUS = 0.8  # up to which unit rows resemble each other


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="where rows are tensors, for example cuda")
    parser.add_argument("--large", action="store_true", help="a million items instead")
    arguments = parser.parse_args()
    if arguments.device:
        for case in ON_DEVICE:
            measure_on_device(arguments.device, *case)
        return
    for case in [LARGE] if arguments.large else CASES:
        for clusters in (200, 0):
            print(json.dumps(measure(*case, clusters)), flush=True)
    compare_peers()


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


def compare_peers() -> None:
    """Picks and CPU seconds of other packages on a small pool, as far as they are installed."""
    np.Inf = np.inf  # bmdal_reg 3.0.2 was written for NumPy 1
    n, d, budget = 5000, 128, 200
    rows = make_rows(n, d, 200)
    labelled = np.arange(0, n, 500)
    pool = np.setdiff1d(np.arange(n), labelled)
    unit = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    unknown = np.full(n, np.nan)

    def pick_bmdal() -> Any:
        import torch
        from bmdal_reg.bmdal.feature_data import TensorFeatureData
        from bmdal_reg.bmdal.feature_maps import IdentityFeatureMap
        from bmdal_reg.bmdal.features import Features
        from bmdal_reg.bmdal.selection import LargestClusterMaxDistSelectionMethod

        def features(ids: Any) -> Any:
            return Features(IdentityFeatureMap(d), TensorFeatureData(torch.tensor(rows[ids])))

        method = LargestClusterMaxDistSelectionMethod(
            features(pool), features(labelled), verbosity=0
        )
        return pool[method.select(budget).numpy()]

    def pick_apricot() -> Any:
        from apricot import FacilityLocationSelection

        similar = np.clip(unit @ unit.T, 0, 1)
        chosen = FacilityLocationSelection(budget, metric="precomputed", optimizer="lazy")
        return np.asarray(chosen.fit(similar).ranking)

    def pick_submodlib() -> Any:
        from submodlib import FacilityLocationFunction

        similar = np.clip(unit @ unit.T, 0, 1)
        function = FacilityLocationFunction(n=n, mode="dense", sijs=similar, separate_rep=False)
        picks = function.maximize(budget, optimizer="LazyGreedy", show_progress=False)
        return np.array([item for item, _ in picks])

    def pick_typiclust() -> Any:
        from skactiveml.pool import TypiClust

        return TypiClust(random_state=0).query(unit, unknown, batch_size=budget)

    def pick_prob_cover() -> Any:
        from skactiveml.pool import ProbCover

        chosen = ProbCover(random_state=0, n_classes=10, deltas=[RADIUS])
        return chosen.query(unit, unknown, batch_size=budget)

    top_hat = {"features": unit, "kernel": "tophat", "radius": RADIUS}
    for package, pick, strategy, given in (
        ("bmdal_reg", pick_bmdal, "lcmd", {"features": rows, "labelled": labelled}),
        ("apricot-select", pick_apricot, "max_herding", {"features": rows}),
        ("submodlib-py", pick_submodlib, "max_herding", {"features": rows}),
        ("scikit-activeml", pick_typiclust, "typiclust", {"features": rows}),
        ("scikit-activeml", pick_prob_cover, "max_herding", top_hat),
    ):
        try:
            pick()  # imports and compiles
        except ImportError as error:
            print(f"without {package}: {error}", file=sys.stderr)
            continue
        begin = time.process_time()
        theirs = pick()
        middle = time.process_time()
        ours = labelwise.select(strategy, budget, **given).ids
        line = {"strategy": strategy, "n": n, "d": d, "budget": budget, "peer": pick.__name__[5:]}
        line |= {"package": f"{package} {version(package)}"}
        line |= {"cpu_seconds": round(time.process_time() - middle, 3)}
        line |= {"peer_cpu_seconds": round(middle - begin, 3)}
        print(json.dumps(line | {"same_picks": int((ours == theirs).sum())}), flush=True)


if __name__ == "__main__":
    main()
