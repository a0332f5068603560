"""Running an experiment: all strategies and seeds, into a results file, continued where it stopped.

On a CPU, runs are spread over processes (`labelwise.benchmark.jobs`), and every line is written by
the one process that the others report to. On a GPU, all runs go side by side in one process, round
after round, and small networks are trained as one batched model (`labelwise.benchmark.batched`).

Given the same command again, a run goes on after its last line and gives the same lines as without
the interruption, on the same machine. A run that fails is left where it is, with a warning, and the
others go on; if all fail, that is an error.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from labelwise.benchmark.devices import Device, find_device
from labelwise.benchmark.jobs import Failure, Job, Known, spread
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult, RunKey, append_result, read_results
from labelwise.benchmark.rounds import Run, Stage, play
from labelwise.benchmark.scenes import check_data
from labelwise.benchmark.selecting import options_of
from labelwise.benchmark.studies import STUDIES
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.pool.blocks import Progress
from labelwise.strategies import get


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
) -> list[RoundResult]:
    """Run an experiment, or what is left of it.

    Args:
        protocol: at the scale and on the data set that are wanted.
        path: the results file; lines are appended, and runs that it holds are continued.
        strategies: names; None for those of the protocol.
        seeds: how many, from 0, or which.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``; on a cluster ``"cuda"`` takes one GPU for each
            process, and ``"auto"`` none.
        workers: processes side by side on a CPU; with a cluster, None is one per CPU of it.
        on: the Ray cluster that the processes belong to, as in `labelwise.select`; this machine's
            own if None.
        progress: called as ``progress("rounds", done, total)`` after every line.

    Returns:
        All lines of these runs, those that were there before too.

    Example:
        >>> import tempfile
        >>> from labelwise.benchmark.protocol import changed
        >>> from labelwise.benchmark.protocols import get
        >>> tiny = get("sparse-table2-mnist").at("small").on("digits")
        >>> tiny = changed(tiny, rounds=1, learner={**tiny.learner, "epochs": 2})
        >>> path = Path(tempfile.mkdtemp()) / "results.jsonl"
        >>> lines = run_experiment(tiny, path, strategies=["random", "margin"], seeds=2)
        >>> len(lines)
        8
        >>> run_experiment(tiny, path, strategies=["random", "margin"], seeds=2) == lines
        True
    """
    entrants = protocol.entered(strategies)
    chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    _check(protocol, entrants, chosen)
    _check_workers(workers, on)
    jobs = [Job(protocol, entrant, seed) for seed in chosen for entrant in entrants]
    known = known_lines(protocol, path, jobs)
    each = STUDIES[protocol.study].rounds(protocol) if protocol.study else protocol.rounds + 1
    open_jobs = [job for job in jobs if len(known[job.key]) < each]
    source = _lines(open_jobs, known, device, workers, on)
    _say(write_lines(source, path, known, each * len(jobs), progress), len(open_jobs))
    return [line for job in jobs for line in known[job.key]]


def write_lines(
    source: Iterator[RoundResult | Failure],
    path: str | Path,
    known: Mapping[RunKey, list[RoundResult]],
    total: int,
    progress: Progress | None,
) -> list[Failure]:
    """Append every line to the results file as it comes; the runs that could not go on.

    Args:
        source: lines as they come, and runs that failed.
        path: the results file.
        known: the lines it holds by run, to which the new ones are added.
        total: how many lines there will be, with those.
        progress: called as ``progress("rounds", done, total)``.
    """
    done = sum(len(lines) for lines in known.values())
    tell = progress or (lambda stage, done, total: None)
    tell("rounds", done, total)
    failures = []
    for line in source:
        if isinstance(line, Failure):
            failures.append(line)
            continue
        append_result(path, line)
        known[line.key].append(line)
        done += 1
        tell("rounds", done, total)
    return failures


def _lines(
    jobs: Sequence[Job], known: Known, device: str, workers: int | None, on: str | None
) -> Iterator[RoundResult | Failure]:
    """The lines of all runs as they come."""
    if on is not None:
        return spread(jobs, known, "cuda" if device == "cuda" else "cpu", workers, on)
    where = find_device(device)
    if jobs and where.type == "cuda" and jobs[0].protocol.study is None:
        return _side_by_side(jobs, known, where)
    return spread(jobs, known, str(where), workers)


def _say(failures: Sequence[Failure], count: int) -> None:
    """Warn of runs that failed; if all of ``count`` did, that is an error."""
    if failures and len(failures) == count:
        raise failures[0].error
    for job, error in failures:
        warnings.warn(
            f"{job.entrant.label}, seed {job.seed}, stopped: {error}",
            LabelwiseWarning,
            stacklevel=3,
        )


def known_lines(
    protocol: Protocol, path: str | Path, jobs: Sequence[Job]
) -> dict[RunKey, list[RoundResult]]:
    """The lines of runs that a results file holds, round after round, checked."""
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
                    "remove that run's lines or take another file"
                )
            labels = protocol.start + number * protocol.batch
            strange = line.reduced != protocol.reduced or line.metric != protocol.metric
            if strange or (protocol.study is None and line.labels != labels):
                raise BadInput(
                    f"{path} holds {line.experiment} ({line.scale}) by another protocol; take "
                    "another results file"
                )
    return found


def _side_by_side(jobs: Sequence[Job], known: Known, device: Device) -> Iterator[RoundResult]:
    """All runs in this process, round after round."""
    seeds = len({job.seed for job in jobs})
    stage = Stage(jobs[0].protocol, device, keep=seeds)
    yield from play([Run(stage, job.entrant, job.seed) for job in jobs], known)


def _check(protocol: Protocol, entrants: Sequence[Entrant], seeds: Sequence[int]) -> None:
    """Refuse what could only fail later."""
    check_data(protocol)
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        given = ", ".join(map(str, seeds)) or "none"
        raise BadInput(f"seeds must be one or more different numbers from 0; got {given}")
    if not entrants:
        raise BadInput(f"{protocol.name} has no strategies to run; name some")
    for entrant in entrants:
        if protocol.study is None:
            get(entrant.strategy).with_options(**options_of(protocol, entrant))


def _check_workers(workers: int | None, on: str | None) -> None:
    if workers is None and on is None:
        raise BadInput("workers is None but on names no cluster; say how many processes")
    if workers is not None and workers < 1:
        raise BadInput(f"workers must be 1 or more; got {workers}")
