"""What active learning would have saved on a user's own data: hide the labels, and replay.

Every seed holds out test items (stratified), draws the first labels at random, and then every
strategy buys batch after batch, by the same loop as the papers' experiments
(`labelwise.benchmark.rounds`). The runs of a seed are paired. What inputs are turned into is fitted
on the pool of the seed without its labels, and never on test items:

=======  ==========================================================  ===========================
inputs   become                                                      network
=======  ==========================================================  ===========================
images   mean 0 and deviation 1 per channel                          4 convolutions, normalised
texts    TF-IDF, its first 100 singular directions, one scale        a perceptron
numbers  mean 0 and deviation 1 per column                           a perceptron
=======  ==========================================================  ===========================

Values of a regression are scaled to deviation 1, so a mean squared error of 1 is that of guessing
the mean. Cost: one training per strategy, seed and round, on the labels bought so far.
"""

import hashlib
import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labelwise.benchmark.devices import find_device
from labelwise.benchmark.jobs import Failure, spread
from labelwise.benchmark.networks import NETWORKS
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult, RunKey
from labelwise.benchmark.rounds import Run, play
from labelwise.benchmark.runs import known_lines, write_lines
from labelwise.errors import BadInput, LabelwiseWarning, UnknownName
from labelwise.pool.blocks import Progress
from labelwise.simulate.own_data import OwnData, own_data
from labelwise.simulate.own_scenes import OwnJob, OwnStage, held, keep, marked
from labelwise.simulate.savings import BASELINE, LabelSaving, compute_savings
from labelwise.strategies import get

STRATEGIES = {
    True: ("random", "margin", "badge", "k_center", "typiclust", "lewis"),
    False: ("random", "k_center", "design", "bait", "typiclust", "lewis"),
}
"""What is compared unless others are asked for: of classes, of a regression."""

MODELS = {"images": "small_vgg", "texts": "small_perceptron_256", "numbers": "small_perceptron_256"}
"""The networks by the kind of the inputs."""

TRAINING: Mapping[str, Any] = {"optimizer": "adam", "lr": 2e-3, "batch_size": 32, "epochs": 60}

ROUNDS, MOST_POOL, MOST_TEST = 10, 20_000, 5_000


@dataclass(frozen=True)
class Simulation:
    """What came out.

    Attributes:
        data: the items.
        plan: how they were replayed.
        rounds: one line per strategy, seed and round.
        savings: one entry per strategy that was compared with random, the best first.
    """

    data: OwnData
    plan: Protocol
    rounds: list[RoundResult]
    savings: tuple[LabelSaving, ...]


def simulate(
    inputs: Any,
    targets: Any,
    *,
    strategies: Sequence[str] | None = None,
    seeds: int = 5,
    regression: bool | None = None,
    name: str = "data",
    results: str | Path | None = None,
    device: str = "auto",
    workers: int = 1,
    progress: Progress | None = None,
    **plan: Any,
) -> Simulation:
    """Replay labelling with the known labels hidden, and say what each strategy would have saved.

    Args:
        inputs: ``(n, d)`` numbers, pictures ``(n, channels, height, width)``, or n texts.
        targets: ``(n,)`` labels: any values as classes, or amounts.
        strategies: names; random is always among them. None for `STRATEGIES`.
        seeds: runs of each strategy.
        regression: whether labels are amounts; None decides by the labels.
        name: of the data, for reports.
        results: a results file, which is continued; None keeps nothing.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        workers: processes side by side on a CPU.
        progress: called as ``progress("rounds", done, total)``.
        **plan: those of `make_plan`: ``start``, ``batch``, ``rounds``, ``budget``, ...

    Example:
        >>> from sklearn.datasets import load_iris
        >>> features, kinds = load_iris(return_X_y=True)
        >>> found = simulate(features, kinds, strategies=["margin"], seeds=2, rounds=2, epochs=5)
        >>> found.plan.start, found.plan.batch, len(found.rounds)
        (5, 5, 12)
        >>> [saving.strategy for saving in found.savings]
        ['margin']
    """
    data = own_data(inputs, targets, name=name, regression=regression)
    protocol = make_plan(data, strategies=strategies, **plan)
    rounds = run_plan(
        data,
        protocol,
        results,
        seeds=seeds,
        device=device,
        workers=workers,
        progress=progress,
    )
    return Simulation(data, protocol, rounds, compute_savings(rounds))


def make_plan(
    data: OwnData,
    *,
    strategies: Sequence[str] | None = None,
    start: int | None = None,
    batch: int | None = None,
    rounds: int | None = None,
    budget: int | None = None,
    test_share: float = 0.2,
    pool: int = MOST_POOL,
    network: str | None = None,
    epochs: int = 60,
    weights: str = "none",
) -> Protocol:
    """How data is replayed; what is not given follows from its size.

    Without numbers, a batch is the larger of 2 labels per class and 1 % of the pool, from 5 to 200
    and at most a 22nd of the pool; the first labels are as many, and there are 10 rounds.

    Args:
        data: the items.
        strategies: names; random is put first if it is not there.
        start: labels at the start.
        batch: labels bought at a time.
        rounds: how often they are bought.
        budget: all labels; with ``batch`` it decides the rounds, otherwise the batch.
        test_share: of the items, held out for measuring; 5,000 items at most.
        pool: items that take part at most.
        network: from `labelwise.benchmark.networks.NETWORKS`.
        epochs: of every training.
        weights: how training uses a strategy's weights: ``"none"``, ``"mean"`` or ``"sum"``.

    Example:
        >>> import numpy as np
        >>> data = own_data(np.random.default_rng(0).normal(size=(1000, 3)), [0, 1] * 500)
        >>> plan = make_plan(data, budget=100)
        >>> plan.start, plan.batch, plan.rounds, plan.test, plan.pool
        (8, 9, 10, 200, 800)
    """
    if not 0 < test_share < 1:
        raise BadInput(f"test_share must be above 0 and below 1; got {test_share:g}")
    if network is not None and network not in NETWORKS:
        raise UnknownName(f"no network is called {network!r}; choose from {', '.join(NETWORKS)}")
    tested = max(1, min(MOST_TEST, int(test_share * len(data))))
    left = min(pool, len(data) - tested)
    first, each, times = _numbers(data, left, start, batch, rounds, budget)
    bought = first + each * times
    if bought > left:
        raise BadInput(
            f"the plan buys {bought:,} labels but only {left:,} items are left beside {tested:,} "
            "test items; lower the budget"
        )
    amounts = data.classes is None
    names = [get(name).name for name in strategies or STRATEGIES[not amounts]]
    made = Protocol(
        name="simulate",
        paper="",
        about=f"what labels could have been saved on {data.name}",
        dataset=data.name,
        networks=(network or MODELS[data.kind],),
        learner={**TRAINING, "epochs": epochs},
        start=first,
        batch=each,
        rounds=times,
        entrants=tuple(map(Entrant, dict.fromkeys((BASELINE, *names)))),
        metric="mse" if amounts else "accuracy",
        weights=weights,
        pool=left,
        test=tested,
        scale="own data",
    )
    return replace(made, settings={"data": _digest(data, made)})


def run_plan(
    data: OwnData,
    plan: Protocol,
    results: str | Path | None = None,
    *,
    seeds: int = 5,
    device: str = "auto",
    workers: int = 1,
    progress: Progress | None = None,
) -> list[RoundResult]:
    """Replay, or what is left of it; the arguments are those of `simulate`.

    Returns:
        All lines of these runs, those that the results file had before too.

    Example:
        >>> import numpy as np
        >>> data = own_data(np.random.default_rng(0).normal(size=(90, 3)), [0, 1, 2] * 30)
        >>> plan = make_plan(data, strategies=["margin"], rounds=1, epochs=2)
        >>> [line.labels for line in run_plan(data, plan, seeds=1)]
        [3, 6, 3, 6]
    """
    if seeds < 1 or workers < 1:
        raise BadInput(f"seeds and workers must be 1 or more; got {seeds} and {workers}")
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        path = home / "results.jsonl" if results is None else Path(results)
        jobs = [
            OwnJob(plan, entrant, seed, home) for seed in range(seeds) for entrant in plan.entrants
        ]
        known = known_lines(plan, path, jobs)
        _check_known(path, plan, known)
        keep(data, home, written=workers > 1)
        try:
            failures = _play_all(jobs, known, path, device, workers, progress)
        finally:
            held.clear()
    for label, error in {each.job.entrant.label: each.error for each in failures}.items():
        count = sum(each.job.entrant.label == label for each in failures)
        warnings.warn(
            f"{label} stopped in {count} of {seeds} seeds: {error}",
            LabelwiseWarning,
            stacklevel=2,
        )
    return [line for job in jobs for line in known[job.key]]


def _play_all(
    jobs: Sequence[OwnJob],
    known: dict[RunKey, list[RoundResult]],
    path: Path,
    device: str,
    workers: int,
    progress: Progress | None,
) -> list[Failure]:
    """Write every line that is not there yet; the runs that could not go on."""
    plan = jobs[0].protocol
    each = plan.rounds + 1
    waiting = [job for job in jobs if len(known[job.key]) < each]
    where = find_device(device)
    source: Iterator[RoundResult | Failure]
    if where.type == "cuda":
        source = _side_by_side(waiting, known, where)
    else:
        source = spread(waiting, known, str(where), min(workers, max(1, len(waiting))))
    failures = write_lines(source, path, known, each * len(jobs), progress)
    if failures and len(failures) == len(waiting):
        raise failures[0].error
    return failures


def _side_by_side(
    jobs: Sequence[OwnJob], known: Mapping[RunKey, Sequence[RoundResult]], device: Any
) -> Iterator[RoundResult]:
    if not jobs:
        return
    seeds = len({job.seed for job in jobs})
    stage = OwnStage(jobs[0].protocol, device, seeds, home=jobs[0].home)
    for line in play([Run(stage, job.entrant, job.seed) for job in jobs], known):
        yield marked(line, jobs[0].protocol)


def _check_known(path: Path, plan: Protocol, known: Mapping[RunKey, list[RoundResult]]) -> None:
    """Refuse to continue a file that was made from other data, settings or numbers of rounds."""
    for lines in known.values():
        del lines[plan.rounds + 1 :]  # of a longer simulation, what this one has too
        for line in lines:
            if line.versions.get("data") != plan.settings["data"]:
                what = "with other data or settings"
            elif line.round < plan.rounds and not line.picks:
                what = f"that ended after {line.round} rounds"
            else:
                continue
            raise BadInput(
                f"{path} holds a simulation of {plan.dataset} {what}; take another results file, "
                "or remove this one"
            )


def _digest(data: OwnData, plan: Protocol) -> str:
    """A fingerprint of all that decides the numbers but for start, batch and rounds."""
    parts = hashlib.sha256()
    texts = data.kind == "texts"
    parts.update(json.dumps(data.inputs.tolist()).encode() if texts else data.inputs.tobytes())
    parts.update(data.targets.tobytes())
    settings: list[Any] = [data.inputs.shape, data.classes, plan.networks, plan.learner]
    settings += [plan.weights, plan.pool, plan.test]
    parts.update(json.dumps(settings).encode())
    return parts.hexdigest()[:12]


def _numbers(
    data: OwnData,
    left: int,
    start: int | None,
    batch: int | None,
    rounds: int | None,
    budget: int | None,
) -> tuple[int, int, int]:
    """First labels, batch and rounds, from those that are given."""
    for name, value in (("start", start), ("batch", batch), ("rounds", rounds), ("budget", budget)):
        if value is not None and value < 1:
            raise BadInput(f"{name} must be 1 or more; got {value}")
    usual = max(2 * len(data.classes or ()), left // 100)
    usual = max(1, min(max(5, min(200, usual)), left // 22))
    first = start or batch or usual
    if budget is None:
        return first, batch or usual, rounds or ROUNDS
    if batch is not None and rounds is not None:
        raise BadInput("give two of batch, rounds and budget; the third follows from them")
    spare = budget - first
    if spare < 1:
        raise BadInput(f"a budget of {budget} leaves nothing to buy after {first} first labels")
    if batch is None:
        batch = max(1, spare // (rounds or ROUNDS))
    if batch > spare:
        raise BadInput(f"a budget of {budget} has no room for a batch of {batch} after {first}")
    return first, batch, rounds or spare // batch
