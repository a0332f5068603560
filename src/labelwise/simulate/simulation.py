"""Simulate active learning on a user's own labelled data: hide the labels and replay.

Every seed holds out test items (stratified) and draws the first labels at random; then every
strategy buys batch after batch in a benchmark run. The runs of a seed are paired. The conversion of
inputs is fitted on the pool of the seed without its labels, never on test items:

=======  ==========================================================  ===========================
inputs   conversion                                                  network
=======  ==========================================================  ===========================
images   mean 0 and deviation 1 per channel                          4 convolutions, normalised
texts    TF-IDF, its first 100 singular directions, one scale        a perceptron
numbers  mean 0 and deviation 1 per column                           a perceptron
=======  ==========================================================  ===========================

Values of a regression are scaled to deviation 1, so a mean squared error of 1 is that of predicting
the mean. Cost: one training per strategy, seed and round, on the labels bought so far.
"""

import hashlib
import json
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labelwise.benchmark.jobs import forget_runs
from labelwise.benchmark.networks import NETWORKS
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult, RunKey
from labelwise.benchmark.runs import iterate_lines, read_known_lines, write_lines
from labelwise.errors import BadInput, LabelwiseWarning, UnknownName
from labelwise.pool.blocks import Progress
from labelwise.rounds.default_strategies import BASELINE
from labelwise.simulate.own_data import OwnData, check_own_data
from labelwise.simulate.own_splits import OwnDataJob, load_data, mark_data, store_data
from labelwise.simulate.savings import LabelSaving, compute_savings
from labelwise.strategies import get

STRATEGIES = {
    True: ("random", "margin", "badge", "k_center", "typiclust", "lewis"),
    False: ("random", "k_center", "design", "bait", "typiclust", "lewis"),
}
"""Default strategies: for classes, for a regression."""

MODELS = {"images": "small_vgg", "texts": "small_perceptron_256", "numbers": "small_perceptron_256"}
"""Default networks by the kind of the inputs."""

TRAINING: Mapping[str, Any] = {"optimizer": "adam", "lr": 2e-3, "batch_size": 32, "epochs": 60}

ROUNDS, MOST_POOL, MOST_TEST = 10, 20_000, 5_000


@dataclass(frozen=True)
class Simulation:
    """The results of a simulation.

    Attributes:
        data: the items.
        plan: the protocol of the replay.
        rounds: one result per strategy, seed and round.
        savings: one entry per strategy compared with random, the best first.
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
    """Replay labelling with hidden labels, and compute the labels each strategy would have saved.

    Args:
        inputs: ``(n, d)`` numbers, images ``(n, channels, height, width)``, or n texts.
        targets: ``(n,)`` labels: any values as classes, or amounts.
        strategies: names; random is always included. None for `STRATEGIES`.
        seeds: runs of each strategy.
        regression: whether labels are amounts; None decides by the labels.
        name: of the data, for reports.
        results: a results file, which is continued; None stores nothing.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        workers: parallel processes on a CPU.
        progress: called as ``progress("rounds", done, total)``.
        **plan: options of `make_plan`: ``start``, ``batch``, ``rounds``, ``budget``, ...

    Example:
        >>> from sklearn.datasets import load_iris
        >>> features, kinds = load_iris(return_X_y=True)
        >>> found = simulate(features, kinds, strategies=["margin"], seeds=2, rounds=2, epochs=5)
        >>> found.plan.start, found.plan.batch, len(found.rounds)
        (5, 5, 12)
        >>> [saving.strategy for saving in found.savings]
        ['margin']
    """
    data = check_own_data(inputs, targets, name=name, regression=regression)
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
    """The protocol of a simulation; omitted numbers follow from the size of the data.

    By default a batch is the larger of 2 labels per class and 1 % of the pool, from 5 to 200
    and at most a 22nd of the pool; the number of first labels is the same, and there are 10 rounds.

    Args:
        data: the items.
        strategies: names; random is added first if it is missing.
        start: labels at the start.
        batch: labels bought at a time.
        rounds: number of batches.
        budget: number of all labels; with ``batch`` it sets the rounds, otherwise the batch.
        test_share: share of the items to hold out for measuring; at most 5,000 items.
        pool: largest number of items in the pool.
        network: from `labelwise.benchmark.networks.NETWORKS`.
        epochs: number of epochs of every training.
        weights: how training uses a strategy's weights: ``"none"``, ``"mean"`` or ``"sum"``.

    Example:
        >>> import numpy as np
        >>> data = check_own_data(np.random.default_rng(0).normal(size=(1000, 3)), [0, 1] * 500)
        >>> plan = make_plan(data, budget=100)
        >>> plan.start, plan.batch, plan.rounds, plan.test, plan.pool
        (8, 9, 10, 200, 800)
    """
    if not 0 < test_share < 1:
        raise BadInput(f"test_share must be above 0 and below 1; got {test_share:g}")
    if network is not None and network not in NETWORKS:
        raise UnknownName(f"there is no network {network!r}; choose from {', '.join(NETWORKS)}")
    tested = max(1, min(MOST_TEST, int(test_share * len(data))))
    left = min(pool, len(data) - tested)
    first, each, times = _choose_numbers(data, left, start, batch, rounds, budget)
    bought = first + each * times
    if bought > left:
        raise BadInput(
            f"the plan buys {bought:,} labels but only {left:,} items are left after {tested:,} "
            "test items; lower the budget"
        )
    amounts = data.classes is None
    names = [get(name).name for name in strategies or STRATEGIES[not amounts]]
    made = Protocol(
        name="simulate",
        paper="",
        about=f"labels that could have been saved on {data.name}",
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
    return replace(made, settings={"data": _digest_plan(data, made)})


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
    """Run a simulation, or the rest of it; the arguments are those of `simulate`.

    Returns:
        All lines of these runs, including those that the results file had before.

    Example:
        >>> import numpy as np
        >>> data = check_own_data(np.random.default_rng(0).normal(size=(90, 3)), [0, 1, 2] * 30)
        >>> plan = make_plan(data, strategies=["margin"], rounds=1, epochs=2)
        >>> [line.labels for line in run_plan(data, plan, seeds=1)]
        [3, 6, 3, 6]
    """
    if seeds < 1 or workers < 1:
        raise BadInput(f"seeds and workers must be 1 or more; got {seeds} and {workers}")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        path = home / "results.jsonl" if results is None else Path(results)
        jobs = [
            OwnDataJob(plan, entrant, seed, home)
            for seed in range(seeds)
            for entrant in plan.entrants
        ]
        known = read_known_lines(plan, path, jobs)
        _check_known(path, plan, known)
        store_data(data, home)
        waiting = [job for job in jobs if len(known[job.key]) <= plan.rounds]
        total = (plan.rounds + 1) * len(jobs)
        try:
            lines = iterate_lines(waiting, known, device, min(workers, max(1, len(waiting))))
            marked = (mark_data(line, plan) for line in lines)
            failures = write_lines(marked, path, known, total, progress)
        finally:
            load_data.cache_clear()
            forget_runs()
    if failures and len(failures) == len(waiting):
        raise failures[0].error
    for label, error in {each.job.entrant.label: each.error for each in failures}.items():
        count = sum(each.job.entrant.label == label for each in failures)
        warnings.warn(
            f"{label} stopped in {count} of {seeds} seeds: {error}",
            LabelwiseWarning,
            stacklevel=2,
        )
    return [line for job in jobs for line in known[job.key]]


def _check_known(path: Path, plan: Protocol, known: Mapping[RunKey, list[RoundResult]]) -> None:
    """Refuse to continue a file of other data, settings or numbers of rounds."""
    for lines in known.values():
        del lines[plan.rounds + 1 :]  # a longer simulation holds more rounds
        for line in lines:
            if line.versions.get("data") != plan.settings["data"]:
                difference = "with other data or settings"
            elif line.round < plan.rounds and not line.picks:
                difference = f"that ended after {line.round} rounds"
            else:
                continue
            raise BadInput(
                f"{path} holds a simulation of {plan.dataset} {difference}; choose another results "
                "file, or remove this one"
            )


def _digest_plan(data: OwnData, plan: Protocol) -> str:
    """A fingerprint of everything that affects the numbers except start, batch and rounds."""
    parts = hashlib.sha256()
    texts = data.kind == "texts"
    parts.update(json.dumps(data.inputs.tolist()).encode() if texts else data.inputs.tobytes())
    parts.update(data.targets.tobytes())
    settings: list[Any] = [data.inputs.shape, data.classes, plan.networks, plan.learner]
    settings += [plan.weights, plan.pool, plan.test]
    parts.update(json.dumps(settings).encode())
    return parts.hexdigest()[:12]


def _choose_numbers(
    data: OwnData,
    left: int,
    start: int | None,
    batch: int | None,
    rounds: int | None,
    budget: int | None,
) -> tuple[int, int, int]:
    """First labels, batch and rounds, from the given ones."""
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
