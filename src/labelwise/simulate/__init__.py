"""Simulate active learning on a user's own labelled data: hide the labels and replay.

Items are encoded once, by the same encoders as in a campaign, and labels are bought for the same
heads: a linear probe on the features of images and texts, a table model on columns. Every seed
holds out test items (stratified); then every strategy buys batch after batch, the first one too.
The runs of a seed are paired.

Values of a regression are scaled to deviation 1, so an error of 1 is that of predicting the mean.
"""

import hashlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.frozen_run import (
    MakeBatchChooser,
    count_frozen_test_items,
    make_batch_chooser,
    run_frozen_experiment,
)
from labelwise.benchmark.labelling_run import LabelledPool
from labelwise.benchmark.lines import make_run_key
from labelwise.benchmark.processes import call_in_processes
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult, RunKey, append_result, read_results
from labelwise.encoders import encode
from labelwise.errors import BadInput, LabelwiseError, LabelwiseWarning
from labelwise.files import JsonObject
from labelwise.pool.blocks import Progress
from labelwise.rounds.default_strategies import BASELINE, COMPARED, DEFAULT
from labelwise.simulate.own_data import OwnData, check_own_data
from labelwise.simulate.savings import LabelSaving, compute_savings
from labelwise.strategies import get

PROBE: JsonObject = {"head": "linear", "self_training": None}
HEADS: dict[str, JsonObject] = {"images": PROBE, "texts": PROBE, "numbers": {"head": "table"}}
"""Heads by the kind of the inputs, as in a campaign."""

ROUNDS, MOST_POOL = 10, 20_000


@dataclass(frozen=True)
class Simulation:
    """The results of a simulation."""

    data: OwnData
    plan: Protocol
    rounds: list[RoundResult]  # one result per strategy, seed and batch
    savings: tuple[LabelSaving, ...]  # one entry per strategy compared with random, the best first


def simulate(
    inputs: Any,
    targets: Any,
    *,
    strategies: Sequence[str] | None = None,
    seeds: int = 5,
    regression: bool | None = None,
    name: str = "data",
    encoder: str = "auto",
    results: str | Path | None = None,
    workers: int = 1,
    progress: Progress | None = None,
    **plan: Any,
) -> Simulation:
    """Replay labelling with hidden labels, and compute the labels each strategy would have saved.

    Args:
        inputs: ``(n, d)`` numbers, images ``(n, channels, height, width)``, or n texts.
        targets: ``(n,)`` labels: any values as classes, or amounts.
        strategies: names; random is always included. None for the defaults.
        seeds: runs of each strategy.
        regression: whether labels are amounts; None decides by the labels.
        name: of the data, for reports.
        encoder: of images and texts, as in `labelwise.encode`.
        results: a results file, which is continued; None stores nothing.
        workers: parallel processes.
        progress: called as ``progress(stage, done, total)``.
        **plan: options of `make_simulation_plan`: ``batch``, ``rounds``, ``budget``, ...

    >>> from sklearn.datasets import load_iris
    >>> features, kinds = load_iris(return_X_y=True)
    >>> found = simulate(features, kinds, strategies=["margin"], seeds=2, rounds=2)
    >>> found.plan.batch, len(found.rounds)
    (5, 8)
    >>> [saving.strategy for saving in found.savings]
    ['margin']
    """
    data = check_own_data(inputs, targets, name=name, regression=regression)
    protocol = make_simulation_plan(data, strategies=strategies, encoder=encoder, **plan)
    rounds = run_simulation_plan(
        data, protocol, results, seeds=seeds, workers=workers, progress=progress
    )
    return Simulation(data, protocol, rounds, compute_savings(rounds))


def make_simulation_plan(
    data: OwnData,
    *,
    strategies: Sequence[str] | None = None,
    batch: int | None = None,
    rounds: int | None = None,
    budget: int | None = None,
    test_share: float = 0.2,
    pool: int = MOST_POOL,
    encoder: str = "auto",
    weights: str = "none",
) -> Protocol:
    """The protocol of a simulation; omitted numbers follow from the size of the data.

    By default a batch is the larger of 2 labels per class and 1 % of the pool, from 5 to 200
    and at most a 22nd of the pool, and there are 10 batches.

    Args:
        data: the items.
        strategies: names; random is added first if it is missing.
        batch: labels bought at a time.
        rounds: number of batches.
        budget: number of all labels; with ``batch`` it sets the rounds, otherwise the batch.
        test_share: share of the items to hold out for measuring; at most 5,000 items.
        pool: largest number of items in the pool.
        encoder: of images and texts.
        weights: how training uses a strategy's weights: ``"none"`` or ``"mean"``.

    >>> data = check_own_data(np.random.default_rng(0).normal(size=(1000, 3)), [0, 1] * 500)
    >>> plan = make_simulation_plan(data, budget=100)
    >>> plan.batch, plan.rounds + 1, plan.test, plan.pool
    (10, 10, 200, 800)
    """
    if not 0 < test_share < 1:
        raise BadInput(f"test_share must be above 0 and below 1; got {test_share:g}")
    if weights == "sum":
        raise BadInput("weights must be none or mean; got 'sum'")
    tested = count_frozen_test_items(len(data), test_share)
    left = min(pool, len(data) - tested)
    each, times = _choose_batch_and_rounds(data, left, batch, rounds, budget)
    if each * times > left:
        raise BadInput(
            f"the plan buys {each * times:,} labels but only {left:,} items are left after "
            f"{tested:,} test items; lower the budget"
        )
    amounts = data.classes is None
    usual = (DEFAULT[amounts], *COMPARED[amounts])
    names = [get(name).name for name in strategies or usual]
    used = "" if data.kind == "numbers" else encoder
    settings = [data.digest, used, weights, left, test_share, each, HEADS[data.kind]]
    digest = hashlib.sha256(repr(settings).encode()).hexdigest()[:8]
    return Protocol(
        name="simulate",
        paper="",
        about=f"labels that could have been saved on {data.name}",
        dataset=data.name,
        networks=(),
        learner=HEADS[data.kind],
        start=each,
        batch=each,
        rounds=times - 1,
        entrants=tuple(map(Entrant, dict.fromkeys((BASELINE, *names)))),
        metric="rmse" if amounts else "accuracy",
        weights=weights,
        pool=left,
        test=tested,
        study="simulate",
        settings={"encoder": used, "test_share": test_share},
        scale=f"own data {digest}",
    )


def encode_own_data(data: OwnData, encoder: str, progress: Progress | None = None) -> LabelledPool:
    """All items with their features; columns and values are scaled to mean 0 and deviation 1."""
    inputs = data.inputs
    if data.kind == "numbers":
        inputs = _standardize_columns(inputs)
    else:
        images = inputs[:, 0] if inputs.ndim == 4 and inputs.shape[1] == 1 else inputs
        inputs = encode(images if inputs.ndim > 1 else images.tolist(), encoder, progress=progress)
    targets = data.targets
    if data.classes is None:
        targets = _standardize_columns(targets.astype(np.float64))
    rows, labels = inputs.astype(np.float32), targets.reshape(len(targets))
    classes = None if data.classes is None else len(data.classes)
    return LabelledPool(np.arange(len(rows)), rows, labels, rows[:0], labels[:0], classes)


def _standardize_columns(columns: Arrays) -> Arrays:
    spread = columns.std(axis=0)
    scaled: Arrays = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return scaled


def run_simulation_plan(
    data: OwnData | LabelledPool,
    plan: Protocol,
    results: str | Path | None = None,
    *,
    seeds: int = 5,
    workers: int | None = 1,
    progress: Progress | None = None,
    on_round: Callable[[RoundResult], None] | None = None,
    make_chooser: MakeBatchChooser = make_batch_chooser,
) -> list[RoundResult]:
    """Run a simulation, or the rest of it; returns all lines of its runs.

    Runs that are complete in the results file are not repeated. Runs of other data or settings are
    kept in it and left out here.

    Args:
        data: the items; a pool has been encoded already.
        plan: see `make_simulation_plan`.
        results: as in `simulate`, like ``seeds`` and ``progress``.
        seeds: runs of each strategy.
        workers: parallel processes; None is one per core.
        progress: called as ``progress(stage, done, total)``.
        on_round: called with every new line, when its run is complete.
        make_chooser: makes what chooses the batches of an entrant.
    """
    if seeds < 1 or (workers is not None and workers < 1):
        raise BadInput(f"seeds and workers must be 1 or more; got {seeds} and {workers}")
    runs = [(entrant, seed) for seed in range(seeds) for entrant in plan.entrants]
    keys = [make_run_key(plan, entrant, seed) for entrant, seed in runs]
    known = _read_complete_runs(plan, results)
    waiting = [run for run, key in zip(runs, keys, strict=True) if key not in known]
    if waiting:
        if isinstance(data, OwnData):
            data = encode_own_data(data, plan.settings["encoder"], progress)
        tasks = [(plan, data, make_chooser, *run) for run in waiting]
        for lines in _iterate_simulated_runs(tasks, workers, progress):
            known[lines[0].key] = lines
            if results is not None:
                append_result(results, *lines)
            if on_round is not None:
                for line in lines:
                    on_round(line)
    return [line for key in keys for line in known.get(key, ())]


def _iterate_simulated_runs(
    tasks: Sequence[tuple[Protocol, LabelledPool, MakeBatchChooser, Entrant, int]],
    workers: int | None,
    progress: Progress | None,
) -> Iterator[list[RoundResult]]:
    """The lines of each run; a strategy's failures and its first warning are reported once."""
    report = progress or (lambda stage, done, total: None)
    report("runs", 0, len(tasks))
    failures: list[tuple[str, LabelwiseError]] = []
    notes: dict[str, str] = {}
    outcomes = call_in_processes(_play_simulated_run, tasks, workers)
    for done, (entrant, found, warned) in enumerate(outcomes, start=1):
        if warned:
            notes.setdefault(entrant.label, f"{entrant.label}: {warned[0]}")
        if isinstance(found, LabelwiseError):
            failures.append((entrant.label, found))
        else:
            yield found
        report("runs", done, len(tasks))
    if failures and len(failures) == len(tasks):
        raise failures[0][1]
    first = dict(reversed(failures))
    for label, count in Counter(label for label, _ in failures).items():
        notes[label] = f"{label} stopped in {count} runs: {first[label]}"
    for note in notes.values():
        warnings.warn(note, LabelwiseWarning, 3)


def _play_simulated_run(
    plan: Protocol, items: LabelledPool, make_chooser: MakeBatchChooser, entrant: Entrant, seed: int
) -> tuple[Entrant, list[RoundResult] | LabelwiseError, list[str]]:
    """A run's entrant, its lines or what stopped it, and the warnings of its strategy."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LabelwiseWarning)
        try:
            found: list[RoundResult] | LabelwiseError = list(
                run_frozen_experiment(plan, entrant, seed, items, make_chooser)
            )
        except LabelwiseError as error:
            found = error
    warned = [str(one.message) for one in caught if issubclass(one.category, LabelwiseWarning)]
    return entrant, found, warned


def _read_complete_runs(
    plan: Protocol, results: str | Path | None
) -> dict[RunKey, list[RoundResult]]:
    """Runs of a results file that have all batches of the plan, without further ones."""
    found: dict[RunKey, list[RoundResult]] = {}
    if results is not None and Path(results).is_file():
        for line in read_results(results):
            if line.round <= plan.rounds:
                found.setdefault(line.key, []).append(line)
    return {key: lines for key, lines in found.items() if len(lines) == plan.rounds + 1}


def _choose_batch_and_rounds(
    data: OwnData, left: int, batch: int | None, rounds: int | None, budget: int | None
) -> tuple[int, int]:
    """Batch and number of batches, from the given ones."""
    for name, value in (("batch", batch), ("rounds", rounds), ("budget", budget)):
        if value is not None and value < 1:
            raise BadInput(f"{name} must be 1 or more; got {value}")
    usual = max(2 * len(data.classes or ()), left // 100)
    usual = max(1, min(max(5, min(200, usual)), left // 22))
    if budget is None:
        return batch or usual, rounds or ROUNDS
    if batch is not None and rounds is not None:
        raise BadInput("give two of batch, rounds and budget; the third follows from them")
    if batch is None:
        batch = max(1, budget // (rounds or ROUNDS))
    if batch > budget:
        raise BadInput(f"a budget of {budget} has no room for a batch of {batch}")
    return batch, rounds or budget // batch
