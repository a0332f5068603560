"""Runs that are to be made, in this process or spread over several.

Processes have one thread each, and are those of this machine or of a Ray cluster. They report line
by line to the one process that writes.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from joblib.externals import loky

from labelwise.benchmark.devices import find_device, one_thread
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult, RunKey
from labelwise.benchmark.rounds import Run, Stage, key_of, play
from labelwise.benchmark.studies import STUDIES
from labelwise.errors import LabelwiseError
from labelwise.pool.ray.processes import ray_processes

Known = Mapping[RunKey, Sequence[RoundResult]]

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What tells libraries to compute on one thread, before they are loaded."""


@dataclass(frozen=True, eq=False)
class Job:
    """A run that is to be made."""

    protocol: Protocol
    entrant: Entrant
    seed: int

    @property
    def key(self) -> RunKey:
        """What its lines in a results file have in common."""
        return key_of(self.protocol, self.entrant, self.seed)

    def lines(self, stage: Stage, known: Sequence[RoundResult]) -> Iterator[RoundResult]:
        """The lines that are not there yet."""
        if self.protocol.study is not None:
            study = STUDIES[self.protocol.study].lines
            for line in study(self.protocol, self.entrant, self.seed, stage.device):
                if line.round >= len(known):
                    yield line
            return
        yield from play([Run(stage, self.entrant, self.seed)], {self.key: known})


class Failure(NamedTuple):
    """A run that could not go on."""

    job: Job
    error: LabelwiseError


def spread(
    jobs: Sequence[Job], known: Known, device: str, workers: int | None, on: str | None = None
) -> Iterator[RoundResult | Failure]:
    """Runs one after the other in each of several processes; lines as they come."""
    count = None if workers is None else min(workers, len(jobs))
    if on is None and count == 1:
        for job in jobs:
            yield from _alone(job, known, device)
        return
    if not jobs:
        return
    waiting = deque(jobs)
    running: dict[Future[RoundResult | LabelwiseError | None], tuple[Job, Any]] = {}

    def send(job: Job, process: Any) -> None:
        running[process.submit(_told, job, known[job.key], device)] = job, process

    with _processes(count, device, on) as processes:
        for process in processes[: len(jobs)]:
            send(waiting.popleft(), process)
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job, process = running.pop(future)
                line = future.result()
                if isinstance(line, RoundResult):
                    yield line  # it is among the known lines when we go on
                    send(job, process)
                    continue
                if line is not None:
                    yield Failure(job, line)
                if waiting:
                    send(waiting.popleft(), process)


@contextmanager
def _processes(count: int | None, device: str, on: str | None) -> Iterator[list[Any]]:
    """Processes that take functions by ``submit``: this machine's, or those of a cluster."""
    if on is not None:
        with ray_processes(on, count, gpus=int(device == "cuda")) as processes:
            yield list(processes)
        return
    environment = dict.fromkeys(THREADS, "1")
    pools = [loky.ProcessPoolExecutor(1, timeout=None, env=environment) for _ in range(count or 1)]
    try:
        yield pools
    finally:
        for pool in pools:
            pool.shutdown(wait=True, kill_workers=True)


def _told(
    job: Job, lines: Sequence[RoundResult], device: str
) -> RoundResult | LabelwiseError | None:
    """What `_step` returns or raises, in a process beside others."""
    one_thread()
    try:
        return _step(job, lines, device)
    except LabelwiseError as error:
        return error


def _alone(job: Job, known: Known, device: str) -> Iterator[RoundResult | Failure]:
    """A run in this process."""
    try:
        while (line := _step(job, known[job.key], device)) is not None:
            yield line
    except LabelwiseError as error:
        yield Failure(job, error)


_current: dict[str, Any] = {}
"""The run that this process is at: its key, how many lines it has, the rest of its lines, and the
stage, which the next run of the same seed finds as it is."""


def _step(job: Job, lines: Sequence[RoundResult], device: str) -> RoundResult | None:
    """The next line of a run, or None if it has all; goes on with the run that was begun here."""
    place = job.protocol, job.key, len(lines)
    if _current.get("place") != place:
        _current["rest"] = None  # the old run's memory goes before the new one's comes
        stage = _current.get("stage")
        if stage is None or stage.protocol != job.protocol or str(stage.device) != device:
            stage = _current["stage"] = Stage(job.protocol, find_device(device))
        _current["rest"] = job.lines(stage, lines)
    _current["place"] = None  # after an error there is nothing to go on with
    line: RoundResult | None = next(_current["rest"], None)
    _current["place"] = None if line is None else (job.protocol, job.key, len(lines) + 1)
    return line
