"""One run of the scale benchmark, in a process of its own: a selection and its floor.

The floor is what a pass over the files cannot do without: read every row and multiply it once by a
matrix of the shape, and in the precision, that the strategy multiplies by. It is timed in the same
process as the selection, right after it, by pieces of rows that stay in cache. The square floor is
the same with as many columns as there are features: one yardstick for all strategies on a pool.

Memory is counted twice. ``peak_megabytes`` is the kernel's own peak of everything resident
(``VmHWM``), pages of the mapped files included; ``peak_anonymous_megabytes`` is what the process
itself has allocated (``RssAnon``), looked at every 10 milliseconds. Both are above what the process
held with everything imported. Pages of a mapped file are the operating system's to take back.

Passes are the rows that were asked of a file divided by the rows it has; the files of a pool are
asked for together as a rule, and the largest number counts. Rows fetched one by one count too. For
strategies that measure rows against picks, the matrix of the floor has as many columns as picks
were measured per row and pass, which is counted as well.
"""

import gc
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

PIECE = 2**20
"""How many numbers are multiplied at a time."""
WARM_UP = 300
"""How many picks are made first, from a few items, so that imports and threads are ready."""
REPEATED = 10**7
"""The floor of a pool of at most so many items is timed twice."""


@dataclass(frozen=True)
class Case:
    """A strategy with options, and the matrix that one pass of it multiplies by.

    Attributes:
        strategy: its name.
        budget: how many picks.
        reads: the files that it reads.
        options: given to `labelwise.select`.
        columns: of the matrix; 0 stands for as many as there are features, -1 for the picks that
            a row was measured against per pass.
        precision: of the product.
    """

    strategy: str
    budget: int
    reads: tuple[str, ...] = ("features",)
    options: dict[str, Any] = field(default_factory=dict)
    columns: int = 0
    precision: str = "float64"


BOTH = ("features", "probabilities")
CASES = {
    "entropy": Case("entropy", 1_000, ("probabilities",)),
    "lewis p=2": Case("lewis", 1_000, options={"p": 2.0}),
    "lewis p=1": Case("lewis", 1_000, options={"p": 1.0}),
    "bss": Case("bss", 2_000),
    "badge": Case("badge", 1_000, BOTH, precision="float32", columns=-1),
    "k_center": Case("k_center", 1_000, precision="float32", columns=-1),
    "sparse_iht": Case(
        "sparse_iht", 1_000, BOTH, {"temperature": 2.0, "iterations": 20}, columns=10
    ),
}
"""What is run; ``temperature`` is given because at 1 all expected gradients are zero."""


def perform(task: dict[str, Any]) -> dict[str, Any]:
    """Time the selection and its floor; this runs in a process of its own."""
    import labelwise

    case, folder = CASES[task["case"]], Path(task["folder"])
    paths = {name: folder / f"{name}.npy" for name in case.reads}
    small = {name: np.load(path, mmap_mode="r")[:2_000] for name, path in paths.items()}
    labelwise.select(case.strategy, WARM_UP, **small, **case.options)
    del small
    reads = Reads().watch()
    gc.collect()
    signal.setitimer(signal.ITIMER_REAL, task["limit"])
    with Watch() as watch:
        begin = clocks()
        picks = labelwise.select(
            case.strategy, case.budget, **paths, **case.options, seed=task["seed"]
        )
        seconds, processor_seconds = clocks() - begin
    signal.setitimer(signal.ITIMER_REAL, 0)
    asked = {name: reads.rows[str(path)] for name, path in paths.items()}
    rows = np.load(paths[case.reads[0]], mmap_mode="r").shape[0]
    passes = max(asked.values()) / rows
    columns = case.columns
    if columns < 0:
        columns = max(round(reads.pairs / rows / passes), 1)
    times = 2 if rows <= REPEATED else 1
    floors = [floor(list(paths.values()), columns, case.precision) for _ in range(times)]
    best, processor_best = np.min(floors, axis=0)
    square = floors if not columns else [floor(list(paths.values()), 0, case.precision)]
    square_best, _ = np.min(square, axis=0)
    return {
        "seconds": round(seconds, 3),
        "processor_seconds": round(processor_seconds, 3),
        "passes": round(passes, 3),
        "rows_fetched_singly": reads.singly,
        "floor_seconds": [round(value, 3) for value, _ in floors],
        "floor_processor_seconds": [round(value, 3) for _, value in floors],
        "floor_columns": columns or "d",
        "floor_precision": case.precision,
        "square_floor_seconds": round(square_best, 3),
        "times_square_floor": round(seconds / (passes * square_best), 3),
        "times_floor": round(seconds / (passes * best), 3),
        "times_floor_processor": round(processor_seconds / (passes * processor_best), 3),
        "peak_megabytes": round(watch.peak_resident / 1e6, 1),
        "peak_anonymous_megabytes": round(watch.peak_anonymous / 1e6, 1),
        "options": case.options,
        "budget": case.budget,
        "picks": len(picks.ids),
        "iterations": picks.info.get("iterations"),
    }


class Reads:
    """Counts the rows that the files of a pool are asked for, on any thread.

    While one function visits one block, a range that it asks for twice is read once: it is a view
    of a mapped file, and its pages are at hand.
    """

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.singly = self.pairs = 0
        self._depth = 0
        self._seen: set[tuple[str, int, int]] = set()
        self._lock, self._here = threading.Lock(), threading.local()

    def watch(self) -> "Reads":
        """Count from now on, in this process."""
        from labelwise.kernels.distance import farthest
        from labelwise.kernels.distance import kmeans_plus_plus as seeding
        from labelwise.pool.blocks import LocalShards
        from labelwise.pool.sources.source import NpySource

        read, take = NpySource.read, NpySource.take
        NpySource.read = lambda source, *ends: self._reading(source, read, *ends)
        NpySource.take = lambda source, positions: self._taking(source, take, positions)
        measure = farthest.nearest_distances
        for module in (farthest, seeding):
            module.nearest_distances = lambda *given: self._measuring(measure, *given)
        for name in ("map", "sum"):
            setattr(LocalShards, name, self._visiting(getattr(LocalShards, name)))
        return self

    def _reading(self, source: Any, read: Any, first: int, last: int) -> Any:
        key = (str(source._path), first, last)
        with self._lock:
            if key not in self._seen and not getattr(self._here, "taking", False):
                self.rows[key[0]] += min(last, source.shape[0]) - first
                if self._depth:
                    self._seen.add(key)
        return read(source, first, last)

    def _taking(self, source: Any, take: Any, positions: Any) -> Any:
        self._here.taking = True  # it maps a range that it does not read
        try:
            taken = take(source, positions)
        finally:
            self._here.taking = False
        with self._lock:
            self.rows[str(source._path)] += len(positions)
            self.singly += len(positions)
        return taken

    def _measuring(self, measure: Any, rows: Any, norms: Any, centres: Any) -> Any:
        with self._lock:
            self.pairs += len(rows) * len(centres)
        return measure(rows, norms, centres)

    def _visiting(self, method: Any) -> Any:
        def visit_all(shards: Any, function: Any, *arguments: Any) -> Any:
            def visit(shard: Any, *arguments: Any) -> Any:
                if not self._depth:
                    self._seen.clear()
                self._depth += 1
                try:
                    return function(shard, *arguments)
                finally:
                    self._depth -= 1

            return method(shards, visit, *arguments)

        return visit_all


def clocks() -> Any:
    """Seconds of the wall clock and of the processor."""
    return np.array([time.perf_counter(), time.process_time()])


def floor(paths: list[Path], columns: int, precision: str) -> Any:
    """Seconds to read all files once, and to multiply the rows of the first one."""
    begin = clocks()
    for number, path in enumerate(paths):
        whole = np.load(path, mmap_mode="r")
        n, d = whole.shape
        matrix = np.full((d, columns or d), 0.5, dtype=precision)
        step = max(PIECE // d, 1)
        block = max((64 << 20) // (4 * d) // step, 1) * step
        for start in range(0, n, block):
            # mapped block by block, so that pages do not stay
            rows = np.memmap(
                path, whole.dtype, "r", whole.offset + start * d * 4, (min(block, n - start), d)
            )
            for first in range(0, len(rows), step):
                piece = rows[first : first + step].astype(precision, copy=bool(number))
                if not number:
                    piece @ matrix
    return clocks() - begin


class Watch:
    """The most memory that was resident meanwhile, above what was before."""

    def __enter__(self) -> "Watch":
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
        self._before = self._look()
        self.peak_anonymous = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.peak_resident = self._look()["VmHWM"] - self._before["VmRSS"]

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            now = self._look()["RssAnon"] - self._before["RssAnon"]
            self.peak_anonymous = max(self.peak_anonymous, now)

    @staticmethod
    def _look() -> dict[str, int]:
        lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
        wanted = ("VmHWM:", "VmRSS:", "RssAnon:")
        return {words[0][:-1]: int(words[1]) * 1024 for words in lines if words[0] in wanted}
