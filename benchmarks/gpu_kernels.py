"""How close the kernels come to what a GPU can do, and how long whole selections take there.

Run: python benchmarks/gpu_kernels.py > docs/results/gpu_kernels.jsonl
     python benchmarks/gpu_table.py docs/results/gpu_kernels.jsonl > docs/results/gpu_kernels.md

One JSON object per line. "ceiling" lines are what the card did in this very run: a large copy
(bytes read plus bytes written), square matrix products in float32 (no TF32) and float64, a copy
from pinned host memory, one from host memory to pinned. "kernel" lines give the bytes that a kernel
must move at least (every input once, every output once), its floating-point operations, the floor
(the longer of both times at the ceilings), the time measured (a median, of five calls in a row),
and the gap, which is time over floor. "call" lines are medians of whole calls of `labelwise.select`
from tensors on the card, after one that is thrown away. "picks" lines say whether picks are those
of NumPy arrays on the CPU. "stream" lines read a pool of the host through pinned buffers.
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch

import labelwise
from labelwise.kernels.distance.embedding import Factored
from labelwise.kernels.distance.farthest import nearest_distances
from labelwise.kernels.distance.farthest import squared_norms as norms_of
from labelwise.kernels.linear import leverage, lewis
from labelwise.kernels.linear.bss import Barriers
from labelwise.kernels.loop.scan import Scan
from labelwise.kernels.sparse import greedy_ahead, iht
from labelwise.kernels.sparse.greedy import GainRule
from labelwise.kernels.sparse.label_gradients import LabelLaw
from labelwise.kernels.sparse.problem import ObjectiveTerms, pose_sparse_problem
from labelwise.pool.blocks import LocalShards, Shard, open_shards
from labelwise.pool.representations import open_sources
from labelwise.pool.sources.device_blocks import COPIERS, move_to_device

warnings.simplefilter("ignore")
N, D, K, BATCH, CENTRES, REPEATS, CALLS, SEED = (47_000, 512, 10, 3_000, 256, 7, 5, 0)
SPARSE = {"temperature": 1.5}
GREEDY, THRESHOLD = {"alpha": 1e-2, "beta": 0.1}, {"alpha": 1e-8, "beta": 1e-6}

Line = dict[str, Any]


class Bench:
    """A device, its ceilings, and a made-up pool on it."""

    def __init__(self, device: str, n: int, batch: int) -> None:
        """Make features like those behind a ReLU, and logits, from a seed."""
        self.device, self.n, self.batch = torch.device(device), n, batch
        generator = np.random.default_rng(SEED)
        features = np.maximum(generator.normal(size=(n, D)), 0).astype(np.float32)
        logits = (2 * generator.normal(size=(n, K))).astype(np.float32)
        self.features = torch.as_tensor(features, device=self.device)
        self.logits = torch.as_tensor(logits, device=self.device)
        self.probabilities = torch.softmax(self.logits, 1)
        self.rates: dict[str, float] = {}

    def wait(self) -> None:
        """Let all that was launched come to its end."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds(self, work: Callable[[], Any], repeats: int = REPEATS) -> float:
        """The median time of some work, after one go that is thrown away."""
        times = []
        for _ in range(repeats + 1):
            self.wait()
            begin = time.perf_counter()
            work()
            self.wait()
            times.append(time.perf_counter() - begin)
        return statistics.median(times[1:])

    def kernel(self, name: str, work: Any, *, moved: float, flops: float, kind: str) -> Line:
        """A line about one kernel; ``kind`` is the precision of its products."""
        took = self.seconds(lambda: [work() for _ in range(CALLS)]) / CALLS
        floors = moved / self.rates["copy"], flops / self.rates[kind]
        return {
            "line": "kernel",
            "name": name,
            "bytes": moved,
            "flops": flops,
            "products": kind,
            "floor_ms": 1e3 * max(floors),
            "bound_by": "bytes" if floors[0] > floors[1] else "products",
            "ms": 1e3 * took,
            "gap": took / max(floors),
        }


def ceilings(bench: Bench) -> Iterator[Line]:
    """What the card does at best."""
    on_gpu = bench.device.type == "cuda"
    numbers, side = (1 << 29, 8192) if on_gpu else (1 << 24, 1024)
    source = torch.rand(numbers, device=bench.device)
    target = torch.empty_like(source)
    took = bench.seconds(lambda: target.copy_(source))
    bench.rates["copy"] = 8 * numbers / took
    yield {"line": "ceiling", "name": "copy", "bytes_per_second": bench.rates["copy"]}
    for name, kind in (("float32", torch.float32), ("float64", torch.float64)):
        left, right = (torch.rand((side, side), device=bench.device, dtype=kind) for _ in range(2))
        took = bench.seconds(lambda a=left, b=right: a @ b)  # type: ignore[misc]
        bench.rates[name] = 2 * side**3 / took
        yield {"line": "ceiling", "name": name, "flops_per_second": bench.rates[name]}
    pinned = torch.empty(numbers // 4, pin_memory=on_gpu).fill_(1.0)
    here = torch.empty_like(source[: numbers // 4])
    took = bench.seconds(lambda: here.copy_(pinned, non_blocking=True))
    bench.rates["pinned"] = numbers / took
    yield {"line": "ceiling", "name": "pinned", "bytes_per_second": bench.rates["pinned"]}
    bench.rates["fill"] = _fill(bench, pinned)
    yield {"line": "ceiling", "name": "fill", "bytes_per_second": bench.rates["fill"]}


def _fill(bench: Bench, pinned: torch.Tensor) -> float:
    """Bytes per second from host memory to pinned host memory, by the threads that stream."""
    size = len(pinned) // 4
    source, room = np.ones(len(pinned), dtype=np.float32), pinned.numpy()[:size]
    cuts = [size * part // COPIERS for part in range(COPIERS + 1)]
    numbers = iter(range(1 << 30))

    def fill() -> None:
        first = size * (next(numbers) % 4)  # not what is in cache
        jobs = [
            copiers.submit(np.copyto, room[a:b], source[first + a : first + b])
            for a, b in pairwise(cuts)
        ]
        for job in jobs:
            job.result()

    with ThreadPoolExecutor(COPIERS) as copiers:
        return 4 * size / bench.seconds(fill)


def kernels(bench: Bench) -> Iterator[Line]:
    """Every kernel against its floor."""
    n, rows = bench.n, bench.features
    shard = Shard(np.arange(n), {"features": rows, "logits": bench.logits})
    a = bench.probabilities.clone()
    vectors = Factored(a, rows)
    whole, small = 4.0 * n * D, 4.0 * n * K
    for name, embedding, width in (
        ("k-means++ block", vectors, D + K),
        ("farthest-first block", rows, D),
    ):
        norms = norms_of(embedding)
        factored = isinstance(embedding, Factored)
        centres = Factored(a[:CENTRES], rows[:CENTRES]) if factored else rows[:CENTRES]

        def measure(e: Any = embedding, m: Any = norms, c: Any = centres) -> Any:
            return nearest_distances(e, m, c)

        moved = 4.0 * (n + CENTRES) * width + 8.0 * n
        flops = 2.0 * n * CENTRES * width
        yield bench.kernel(name, measure, moved=moved, flops=flops, kind="float32")
    place = bench.features[:0, 0].double()
    yield bench.kernel(
        "Gram matrix, float64",
        lambda: leverage.sum_gram(shard, leverage.read_features, n, place),
        moved=whole + 8.0 * D * D,
        flops=2.0 * n * D * D,
        kind="float64",
    )
    basis = leverage.whiten(LocalShards([shard]), leverage.read_features, placement=place)
    for kind in ("float32", "float64"):
        level, double = float(np.log(D / n)), kind == "float64"
        step = lewis.LewisStep(1.0, 4 / 3, level, basis.transform, double)
        yield bench.kernel(
            f"Lewis pass, {kind}",
            lambda s=step: lewis.update_lewis_logarithms(shard, leverage.read_features, s, place),  # type: ignore[misc]
            moved=whole + 24.0 * n + 8.0 * D * D,
            flops=4.0 * n * D * D,
            kind=kind,
        )
    yield from sparse_kernels(bench, shard, whole + small)
    matrix = np.eye(D + 1) + 1e-3 * np.ones((D + 1, D + 1))
    yield bench.kernel(
        "bss: eigenvectors of the barrier matrix",
        lambda: Barriers(D + 1, 0.3, bench.features[:0, 0].double())._decompose(matrix),
        moved=16.0 * (D + 1) ** 2,
        flops=4 / 3 * (D + 1) ** 3,
        kind="float64",
    )


def sparse_kernels(bench: Bench, shard: Shard, moved: float) -> Iterator[Line]:
    """The products of thresholding, and a block of greedy picks."""
    n, batch = bench.n, bench.batch
    shards = LocalShards([shard])
    terms = ObjectiveTerms(alpha=1e-8, beta=1e-6)
    problem = pose_sparse_problem(
        shards, batch, LabelLaw(temperature=1.5), terms, {"last_layer": (0.0, 0.0)}
    )
    iteration = Iteration(bench, shards, problem)
    yield bench.kernel(
        "IHT: 10 gradients with their images, float64",
        iteration.gradients(),
        moved=10 * (moved + 24.0 * n),
        flops=10 * 4.0 * n * K * D,
        kind="float64",
    )
    block = greedy_ahead.MAX_BLOCK
    matrices = torch.rand((block, K, D), device=bench.device, dtype=torch.float64)
    vectors = Factored(bench.probabilities, bench.features)
    yield bench.kernel(
        f"greedy: {block} picks judged",
        lambda: greedy_ahead.multiply_residuals(vectors, matrices),
        moved=moved + 4.0 * block * (n + K * D),
        flops=2.0 * n * K * (D + 1) * block,
        kind="float32",
    )
    yield bench.kernel(
        "IHT: 10 iterations",
        iteration.iterations(),
        moved=10 * (moved + 24.0 * n + 4.0 * batch * (D + K)),
        flops=10 * 4.0 * K * D * (n + 2 * batch),
        kind="float64",
    )
    yield greedy_steps(bench)


class Iteration:
    """Iterative hard thresholding, recorded as a CUDA graph on a GPU."""

    def __init__(self, bench: Bench, shards: LocalShards, problem: Any) -> None:
        """Prepare the pool."""
        self.shards, self.problem, self.place = shards, problem, bench.features[:0, 0].double()
        self.target = torch.as_tensor(problem.target, device=bench.device)
        shards.map(iht._prepare_thresholding_block, problem)

    def gradients(self) -> Callable[[], Any]:
        """Ten gradients with their images: two products with all rows each."""
        state, scan = iht._make_empty_iterates(self.problem, self.place), Scan(self._found, 10)
        return lambda: scan((self.target,), state)

    def _found(self, constants: Any, state: Any) -> Any:
        (shard,) = self.shards._shards
        between = iht.MomentumPoint(
            iht.SparsePoint(*state[:3]), iht.SparsePoint(*state[3:6]), state[6]
        )
        residual = between.image - constants[0]
        given = (shard, self.problem, between, residual, self.place)
        return state, (iht.find_iht_gradient(*given)[1],)

    def iterations(self) -> Callable[[], Any]:
        """Ten whole iterations."""
        step = partial(iht._iterate_iht, self.shards, self.problem, 1, "corrected", self.place)
        scan, state = Scan(step, 1), iht._make_empty_iterates(self.problem, self.place)
        constants = (self.target, self.target.sum())
        return lambda: scan(constants, state, rounds=iht.REPLAYED)


def greedy_steps(bench: Bench) -> Line:
    """The recorded steps of a greedy pursuit, halfway through the batch."""
    known, size = bench.batch // 2, bench.batch // 2 + greedy_ahead.WIDTH
    kind = {"device": bench.device, "dtype": torch.float64}
    rows = torch.rand((size, 64), **kind)  # type: ignore[call-overload]
    matrix = rows @ rows.T / bench.batch**2 + 0.1 * torch.eye(size, **kind)  # type: ignore[call-overload]
    diagonal = torch.diagonal(matrix).clone()
    zero, places = torch.zeros_like(diagonal), torch.arange(size, device=bench.device)
    picked = places < known
    constants = (matrix, diagonal - 0.1, -1 / diagonal, places, zero - torch.inf)
    state = (
        picked.double(),
        zero,
        picked.double(),
        torch.where(picked, zero - torch.inf, diagonal),
    )
    step = partial(greedy_ahead.pick_and_reweight, GainRule(), 0.1, 1)
    scan = Scan(step, greedy_ahead.RECORDED_STEPS)
    rounds = 16
    steps = rounds * greedy_ahead.RECORDED_STEPS
    return bench.kernel(
        f"greedy: {steps} steps after {known} picks",
        lambda: scan(constants, state, rounds=rounds),
        moved=steps * 3 * 8.0 * size**2,
        flops=steps * 6.0 * size**2,
        kind="float64",
    )


def calls(bench: Bench, only: list[str]) -> Iterator[Line]:
    """Whole selections from tensors on the card."""
    features, sparse = {"features": bench.features}, {"logits": bench.logits, **SPARSE}
    given: dict[str, Line] = {
        "badge": {**features, "probabilities": bench.probabilities},
        "k_center": features,
        "lewis": features,
        "sparse_iht": {**features, **sparse, **THRESHOLD},
        "sparse_greedy": {**features, **sparse, **GREEDY},
        "bss": features,
    }
    for name, options in given.items():
        if only and name not in only:
            continue
        took = bench.seconds(
            lambda s=name, o=options: labelwise.select(s, bench.batch, seed=0, **o),  # type: ignore[misc]
            repeats=5,
        )
        yield {"line": "call", "name": name, "ms": 1e3 * took, "options": _options(options)}
    if not only or "leverage" in only:
        took = bench.seconds(lambda: leverage.leverage_scores(bench.features, double=True))
        yield {"line": "call", "name": "leverage_scores, float64", "ms": 1e3 * took, "options": {}}


def _options(given: Line) -> Line:
    return {name: value for name, value in given.items() if not isinstance(value, torch.Tensor)}


def picks(bench: Bench) -> Iterator[Line]:
    """Whether the picks are those of the CPU, on a smaller pool."""
    n, batch = min(bench.n, 6_000), min(bench.batch, 400)
    features, logits = bench.features[:n, :64].contiguous(), bench.logits[:n]
    sparse = {"features": features, "logits": logits, **SPARSE}
    for name, given in (
        ("badge", {"features": features, "probabilities": bench.probabilities[:n]}),
        ("k_center", {"features": features}),
        ("lewis", {"features": features}),
        ("sparse_iht", {**sparse, **THRESHOLD}),
        ("sparse_greedy", {**sparse, **GREEDY}),
        ("sparse_greedy, exact", {**sparse, "gain": "exact", "alpha": 1e-6, "beta": 1e-4}),
        ("bss", {"features": features}),
        ("herding", {"features": features}),
    ):
        host = {k: v.cpu().numpy() if torch.is_tensor(v) else v for k, v in given.items()}
        strategy = name.partition(",")[0]
        here = labelwise.select(strategy, batch, seed=0, **given).ids
        there = labelwise.select(strategy, batch, seed=0, **host).ids
        streamed = labelwise.select(strategy, batch, seed=0, device=str(bench.device), **host).ids
        line = {"line": "picks", "name": name, "items": n, "picks": batch}
        line |= {"same": int((here == there).sum()), "streamed": int((streamed == there).sum())}
        yield line


def stream(bench: Bench, gigabytes: float) -> Iterator[Line]:
    """One Gram pass over a pool of the host, streamed."""
    tile = bench.features.cpu().numpy()
    copies = max(int(gigabytes * 2**30 / tile.nbytes), 1)
    pool = np.tile(tile, (copies, 1))
    for block in (64, 128, 256):
        sources = move_to_device(open_sources({"features": pool}), str(bench.device))
        shards, _ = open_shards(sources, block_bytes=block << 20)
        shards.map(_touch)  # the first pass checks the rows and makes the buffers
        for name, work in (("read", _touch), ("Gram matrix, float64", _gram)):
            took = bench.seconds(lambda w=work, s=shards: s.map(w), repeats=2)  # type: ignore[misc]
            yield {
                "line": "stream",
                "name": name,
                "bytes": pool.nbytes,
                "block_bytes": block << 20,
                "ms": 1e3 * took,
                "bytes_per_second": pool.nbytes / took,
                "of_pinned_copy": pool.nbytes / took / bench.rates["pinned"],
                "of_fill": pool.nbytes / took / bench.rates["fill"],
            }


def _touch(shard: Shard) -> int:
    return len(shard.rows["features"])


def _gram(shard: Shard) -> Any:
    rows = shard.rows["features"].double()
    return rows.T @ rows


def main() -> None:
    """Print all lines."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--items", type=int, default=N)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--parts", default="ceilings,kernels,calls,picks,stream")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    bench = Bench(given.device, given.items, given.batch)
    on_gpu = bench.device.type == "cuda"
    facts = {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "torch": torch.__version__,
        "n": bench.n,
        "d": D,
        "classes": K,
        "batch": bench.batch,
        "seed": SEED,
    }
    parts: dict[str, Callable[[], Iterator[Line]]] = {
        "ceilings": lambda: ceilings(bench),
        "kernels": lambda: kernels(bench),
        "calls": lambda: calls(bench, given.only.split(",") if given.only else []),
        "picks": lambda: picks(bench),
        "stream": lambda: stream(bench, given.gigabytes),
    }
    for name in given.parts.split(","):
        for line in parts[name]():
            print(json.dumps({**line, **facts}), flush=True)


if __name__ == "__main__":
    main()
