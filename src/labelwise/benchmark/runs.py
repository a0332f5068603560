"""Run an experiment: all strategies and seeds, into a results file that can be continued.

On a CPU, runs are distributed over processes with one thread each, on this machine or on a Ray
cluster; they report line by line to the one process that writes the results file. On a GPU, all
runs advance together in one process, round by round, and small networks are trained as one batched
model (`labelwise.benchmark.batched`).

The same command continues each run after its last line and gives the same lines as without the
interruption, on the same machine. A run that fails is left with a warning, and the others continue;
if all fail, that is an error.
"""

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import joblib
from joblib.externals import loky

from labelwise.benchmark.benchmark_run import BenchmarkRun, play_benchmark_runs
from labelwise.benchmark.devices import find_benchmark_device, use_one_torch_thread
from labelwise.benchmark.lines import make_run_key
from labelwise.benchmark.processes import WorkerProcess, keep_last_result
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult, RunKey, append_result, read_results
from labelwise.benchmark.splits import SplitCache, check_protocol_data
from labelwise.benchmark.studies import STUDIES
from labelwise.errors import BadInput, LabelwiseError, LabelwiseWarning
from labelwise.pool.blocks import Progress
from labelwise.strategies import get

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
        return make_run_key(self.protocol, self.entrant, self.seed)

    def iterate_new_rounds(
        self, splits: SplitCache, known: Sequence[RoundResult]
    ) -> Iterator[RoundResult]:
        """The lines that are not recorded yet."""
        if self.protocol.study is None:
            yield from play_benchmark_runs(
                [BenchmarkRun(splits, self.entrant, self.seed)], {self.key: known}
            )
            return
        study = STUDIES[self.protocol.study].lines
        for line in study(self.protocol, self.entrant, self.seed, splits.device):
            if line.round >= len(known):
                yield line


class JobFailure(NamedTuple):
    """A run that failed."""

    job: BenchmarkJob
    error: LabelwiseError


def play_benchmark_jobs(
    jobs: Sequence[BenchmarkJob],
    known: KnownLines,
    device: str,
    workers: int | None,
    on: str | None = None,
) -> Iterator[RoundResult | JobFailure]:
    """The new lines of all runs as they come, together on a GPU, otherwise in processes."""
    if not jobs:
        return
    if on is None:
        where = find_benchmark_device(device)
        if where.type == "cuda" and jobs[0].protocol.study is None:
            splits = SplitCache(jobs[0].protocol, where, keep=len({job.seed for job in jobs}))
            yield from play_benchmark_runs(
                [BenchmarkRun(splits, j.entrant, j.seed) for j in jobs], known
            )
            return
        device, workers = str(where), workers or joblib.cpu_count()
    else:
        device = "cuda" if device == "cuda" else "cpu"
    count = workers and min(workers, len(jobs))
    if on is None and count == 1:
        for job in jobs:
            while isinstance(line := _play_next_round(job, known[job.key], device), RoundResult):
                yield line
            if line is not None:
                yield JobFailure(job, line)
    else:
        with _open_run_processes(count, device, on) as processes:
            yield from _distribute_benchmark_jobs(jobs, known, device, processes)


def _distribute_benchmark_jobs(
    jobs: Sequence[BenchmarkJob], known: KnownLines, device: str, processes: Sequence[WorkerProcess]
) -> Iterator[RoundResult | JobFailure]:
    """Play runs one after the other in each of several processes."""
    waiting = deque(jobs)
    running: dict[
        Future[RoundResult | LabelwiseError | None], tuple[BenchmarkJob, WorkerProcess]
    ] = {}

    def send_job(job: BenchmarkJob, process: WorkerProcess) -> None:
        running[process.submit(_play_round_in_process, job, known[job.key], device)] = job, process

    for process in processes[: len(jobs)]:
        send_job(waiting.popleft(), process)
    while running:
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            job, process = running.pop(future)
            line = future.result()
            if isinstance(line, RoundResult):
                yield line  # the caller adds it to the known lines before we continue
                send_job(job, process)
                continue
            if line is not None:
                yield JobFailure(job, line)
            if waiting:
                send_job(waiting.popleft(), process)


@contextmanager
def _open_run_processes(
    count: int | None, device: str, on: str | None
) -> Iterator[Sequence[WorkerProcess]]:
    if on is not None:
        from labelwise.pool.ray.shards import ray_processes

        with ray_processes(on, count, gpus=int(device == "cuda")) as processes:
            yield processes
        return
    environment = dict.fromkeys(THREAD_VARIABLES, "1")
    pools = [loky.ProcessPoolExecutor(1, timeout=None, env=environment) for _ in range(count or 1)]
    try:
        yield pools
    finally:
        for pool in pools:
            pool.shutdown(wait=True, kill_workers=True)


def _play_round_in_process(
    job: BenchmarkJob, lines: Sequence[RoundResult], device: str
) -> RoundResult | LabelwiseError | None:
    use_one_torch_thread()
    return _play_next_round(job, lines, device)


_current: list[tuple[tuple[Protocol, RunKey, int], Iterator[RoundResult]]] = []
"""The run of this process, if any: its position and its remaining lines."""


def _play_next_round(
    job: BenchmarkJob, lines: Sequence[RoundResult], device: str
) -> RoundResult | LabelwiseError | None:
    """The next line of a run, its error, or None if it is complete; continues the current run."""
    position = job.protocol, job.key, len(lines)
    try:
        if _current and _current[0][0] == position:
            rest = _current[0][1]
        else:
            _current.clear()  # free the memory of the previous run first
            rest = job.iterate_new_rounds(_keep_splits(job.protocol, device), lines)
        _current.clear()  # an error leaves nothing to continue
        line = next(rest, None)
    except LabelwiseError as error:
        return error
    if line is not None:
        _current.append(((job.protocol, job.key, len(lines) + 1), rest))
    return line


@keep_last_result
def _keep_splits(protocol: Protocol, device: str) -> SplitCache:
    """The splits of an experiment, which runs of the same seed share."""
    return SplitCache(protocol, find_benchmark_device(device))


def run_experiment(
    protocol: Protocol,
    path: str | Path,
    *,
    strategies: Sequence[str] | None = None,
    seeds: int | Sequence[int] = 5,
    device: str = "auto",
    workers: int | None = 1,
    on: str | None = None,
    progress: Progress | None = None,
    on_round: Callable[[RoundResult], None] | None = None,
) -> list[RoundResult]:
    """Run an experiment, or the rest of it.

    Args:
        protocol: at the wanted scale and on the wanted data set.
        path: the results file; lines are appended, and its runs are continued.
        strategies: names; None for those of the protocol.
        seeds: a number, from 0, or the seeds.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``; on a cluster ``"cuda"`` uses one GPU per
            process, and ``"auto"`` none.
        workers: parallel processes on a CPU; None is one per core.
        on: the Ray cluster of the processes, as in `labelwise.select`; None for this machine.
        progress: called as ``progress("rounds", done, total)`` after every line.
        on_round: called with every new line.

    Returns:
        All lines of these runs, including those of earlier calls.
    """
    entrants = protocol.choose_entrants(strategies)
    chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    _check_experiment_request(protocol, entrants, chosen, workers)
    jobs = [BenchmarkJob(protocol, entrant, seed) for seed in chosen for entrant in entrants]
    known = read_known_rounds(protocol, path, jobs)
    study = STUDIES[protocol.study] if protocol.study else None
    rounds = study.count_rounds(protocol) if study else protocol.rounds + 1
    open_jobs = [job for job in jobs if len(known[job.key]) < rounds]
    done, failures = sum(map(len, known.values())), []
    report = progress or (lambda stage, done, total: None)
    report("rounds", done, rounds * len(jobs))
    for line in play_benchmark_jobs(open_jobs, known, device, workers, on):
        if isinstance(line, JobFailure):
            failures.append(line)
            continue
        append_result(path, line)
        known[line.key].append(line)
        done += 1
        if on_round is not None:
            on_round(line)
        report("rounds", done, rounds * len(jobs))
    if failures and len(failures) == len(open_jobs):
        raise failures[0].error
    for job, error in failures:
        warnings.warn(
            f"{job.entrant.label}, seed {job.seed}, stopped: {error}",
            LabelwiseWarning,
            stacklevel=2,
        )
    return [line for job in jobs for line in known[job.key]]


def read_known_rounds(
    protocol: Protocol, path: str | Path, jobs: Sequence[BenchmarkJob]
) -> dict[RunKey, list[RoundResult]]:
    """The recorded lines of runs by round, checked against the protocol."""
    found: dict[RunKey, list[RoundResult]] = {job.key: [] for job in jobs}
    if not Path(path).is_file():
        return found
    for line in read_results(path):
        if line.key in found:
            found[line.key].append(line)
    for lines in found.values():
        lines.sort(key=lambda line: line.round)
        for number, line in enumerate(lines):
            if line.round != number:
                raise BadInput(
                    f"round {number} of {line.strategy}, seed {line.seed}, is missing in {path}; "
                    "remove the lines of that run or choose another file"
                )
            labels = protocol.start + number * protocol.batch
            differs = line.reduced != protocol.reduced or line.metric != protocol.metric
            if differs or (protocol.study is None and line.labels != labels):
                raise BadInput(
                    f"{path} holds {line.experiment} ({line.scale}) by another protocol; choose "
                    "another results file"
                )
    return found


def _check_experiment_request(
    protocol: Protocol,
    entrants: Sequence[Entrant],
    seeds: Sequence[int],
    workers: int | None,
) -> None:
    """Reject requests that would fail later."""
    check_protocol_data(protocol)
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        given = ", ".join(map(str, seeds)) or "none"
        raise BadInput(f"seeds must be one or more different numbers from 0; got {given}")
    if not entrants:
        raise BadInput(f"{protocol.name} has no strategies to run; name some")
    for entrant in entrants:
        if protocol.study is None:
            get(entrant.strategy).with_options(**entrant.options)
    if workers is not None and workers < 1:
        raise BadInput(f"workers must be 1 or more; got {workers}")
