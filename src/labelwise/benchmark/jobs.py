"""Benchmark runs as jobs, in this process or distributed over several.

Processes have one thread each and belong to this machine or to a Ray cluster. They report line by
line to the one process that writes the results file.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from joblib.externals import loky

from labelwise.benchmark.benchmark_run import BenchmarkRun, play_runs
from labelwise.benchmark.devices import Device, find_device, use_one_thread
from labelwise.benchmark.lines import make_key
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult, RunKey
from labelwise.benchmark.splits import SplitCache
from labelwise.benchmark.studies import STUDIES
from labelwise.errors import LabelwiseError

KnownLines = Mapping[RunKey, Sequence[RoundResult]]

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that set the number of threads before libraries are loaded."""


@dataclass(frozen=True, eq=False)
class BenchmarkJob:
    """A run to be played."""

    protocol: Protocol
    entrant: Entrant
    seed: int

    @property
    def key(self) -> RunKey:
        """Identifies the run in a results file."""
        return make_key(self.protocol, self.entrant, self.seed)

    def make_splits(self, device: Device, keep: int = 1) -> SplitCache:
        """The data of the experiment."""
        return SplitCache(self.protocol, device, keep)

    def iterate_lines(
        self, splits: SplitCache, known: Sequence[RoundResult]
    ) -> Iterator[RoundResult]:
        """The lines that are not recorded yet."""
        if self.protocol.study is None:
            yield from play_jobs([self], splits, {self.key: known})
            return
        study = STUDIES[self.protocol.study].lines
        for line in study(self.protocol, self.entrant, self.seed, splits.device):
            if line.round >= len(known):
                yield line


def play_jobs(
    jobs: Sequence[BenchmarkJob], splits: SplitCache, known: KnownLines
) -> Iterator[RoundResult]:
    """Play runs together in this process, round by round."""
    return play_runs([BenchmarkRun(splits, job.entrant, job.seed) for job in jobs], known)


class JobFailure(NamedTuple):
    """A run that failed."""

    job: BenchmarkJob
    error: LabelwiseError


def distribute_jobs(
    jobs: Sequence[BenchmarkJob],
    known: KnownLines,
    device: str,
    workers: int | None,
    on: str | None = None,
) -> Iterator[RoundResult | JobFailure]:
    """Play runs one after the other in each of several processes; yields lines as they come."""
    count = None if workers is None else min(workers, len(jobs))
    if on is None and count == 1:
        for job in jobs:
            yield from _play_here(job, known, device)
        return
    if not jobs:
        return
    waiting = deque(jobs)
    running: dict[Future[RoundResult | LabelwiseError | None], tuple[BenchmarkJob, Any]] = {}

    def send(job: BenchmarkJob, process: Any) -> None:
        running[process.submit(_play_remotely, job, known[job.key], device)] = job, process

    with _open_processes(count, device, on) as processes:
        for process in processes[: len(jobs)]:
            send(waiting.popleft(), process)
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job, process = running.pop(future)
                line = future.result()
                if isinstance(line, RoundResult):
                    yield line  # the caller adds it to the known lines before we continue
                    send(job, process)
                    continue
                if line is not None:
                    yield JobFailure(job, line)
                if waiting:
                    send(waiting.popleft(), process)


@contextmanager
def _open_processes(count: int | None, device: str, on: str | None) -> Iterator[list[Any]]:
    """Processes with a ``submit`` method, on this machine or on a cluster."""
    if on is not None:
        from labelwise.pool.ray.shards import ray_processes

        with ray_processes(on, count, gpus=int(device == "cuda")) as processes:
            yield list(processes)
        return
    environment = dict.fromkeys(THREAD_VARIABLES, "1")
    pools = [loky.ProcessPoolExecutor(1, timeout=None, env=environment) for _ in range(count or 1)]
    try:
        yield pools
    finally:
        for pool in pools:
            pool.shutdown(wait=True, kill_workers=True)


def _play_remotely(
    job: BenchmarkJob, lines: Sequence[RoundResult], device: str
) -> RoundResult | LabelwiseError | None:
    """The result or error of `_play_next` in a worker process."""
    use_one_thread()
    try:
        return _play_next(job, lines, device)
    except LabelwiseError as error:
        return error


def _play_here(
    job: BenchmarkJob, known: KnownLines, device: str
) -> Iterator[RoundResult | JobFailure]:
    """A run in this process."""
    try:
        while (line := _play_next(job, known[job.key], device)) is not None:
            yield line
    except LabelwiseError as error:
        yield JobFailure(job, error)


_current: dict[str, Any] = {}
"""The run of this process: its position, the iterator of its remaining lines, and the splits, which
the next run of the same seed reuses."""


def _play_next(job: BenchmarkJob, lines: Sequence[RoundResult], device: str) -> RoundResult | None:
    """The next line of a run, or None if it is complete; continues the run of this process."""
    position = job.protocol, job.key, len(lines)
    if _current.get("position") != position:
        _current["rest"] = None  # free the memory of the previous run first
        splits = _current.get("splits")
        if splits is None or splits.protocol != job.protocol or str(splits.device) != device:
            splits = _current["splits"] = job.make_splits(find_device(device))
        _current["rest"] = job.iterate_lines(splits, lines)
    _current["position"] = None  # an error leaves nothing to continue
    line: RoundResult | None = next(_current["rest"], None)
    _current["position"] = None if line is None else (job.protocol, job.key, len(lines) + 1)
    return line
