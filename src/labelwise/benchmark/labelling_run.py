"""Rounds of buying labels for a head on fixed features, on `labelwise.rounds.Round`.

The first batch is picked by the strategy itself if it needs only features, else at random. After
every batch the head is trained on all labels bought so far and measured on test items. The frozen
feature experiments, ``labelwise simulate`` and the oracle share this loop.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Floats, Ids
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.protocol import Entrant
from labelwise.learner import Label, Learner
from labelwise.pool.pool import Pool
from labelwise.rounds import LabelEncoding, Round, adapt_options
from labelwise.rounds.default_strategies import BASELINE
from labelwise.selection.result import Selection
from labelwise.strategies import get
from labelwise.strategy import PastBatch, Strategy

TRAINING, PICKING = 13, 17  # Random streams
ORACLE = "oracle"  # Name of the entrant that sees the test labels; not a strategy
ERROR_QUANTILE = 0.95  # Quantile of the absolute errors that measures the tail of a regression


class Predictor(Learner, Protocol):
    """A learner that predicts."""

    def predict(self, inputs: Arrays) -> Arrays:
        """``(n,)`` classes or values."""


@dataclass(frozen=True, eq=False)
class LabelledPool:
    """Items with all their labels, which a run buys bit by bit, and test items."""

    ids: Ids
    inputs: Arrays  # ``(n, d)`` float32
    targets: Arrays  # ``(n,)`` int64 classes or float64 values
    test_inputs: Arrays
    test_targets: Arrays
    classes: int | None  # number of classes; None for a regression

    @property
    def encoding(self) -> LabelEncoding:
        """The labels are class numbers or values already."""
        return LabelEncoding(regression=self.classes is None)

    def labels_of(self, ids: Ids) -> dict[int, Label]:
        """Labels by id."""
        found = self.targets[np.searchsorted(self.ids, ids)].tolist()
        return dict(zip(ids.tolist(), found, strict=True))

    def measure(self, learner: Predictor) -> dict[str, float]:
        """Measures of a trained learner on the test items; see `measure_head`."""
        predicted = np.asarray(learner.predict(self.test_inputs)).reshape(len(self.test_targets))
        return measure_head(predicted, self.test_targets, regression=self.classes is None)


class MeasuredBatch(NamedTuple):
    """A bought batch and the head trained with it."""

    labels: int  # labels bought so far
    measures: dict[str, float]
    picks: Ids
    weights: Floats | None  # of the picks, or None
    seconds: dict[str, float]  # of ``train``, ``represent`` and ``select``


class BatchChooser(Protocol):
    """Chooses the next batch of a run."""

    def __call__(
        self, round_: Round, labels: Mapping[int, Label], budget: int, *, seed: int
    ) -> Selection:
        """Pick ``budget`` items; the round holds no model before the first labels."""


def buy_label_batches(
    pool: LabelledPool,
    make_learner: Callable[[], Predictor],
    choose: BatchChooser,
    *,
    batch: int,
    rounds: int,
    seed: int,
    weighted: bool = False,
) -> Iterator[MeasuredBatch]:
    """Buy ``rounds`` batches, train (with weights of mean 1 per batch) and measure after each."""
    learner = make_learner()
    items = Pool(pool.inputs, pool.ids)  # an array is a sequence of rows
    round_ = Round(items, learner)
    labels: dict[int, Label] = {}
    shares = np.empty(0)
    for number in range(rounds):
        begin = perf_counter()
        picked = choose(round_, labels, batch, seed=mix_run_seed(seed, number, PICKING))
        selected = perf_counter()
        labels |= pool.labels_of(picked.ids)
        own = picked.training_weights() if weighted else np.ones(len(picked))
        shares = np.concatenate([shares, own])
        weights = None if (shares == 1).all() else shares
        round_.fit(
            labels, weights, seed=mix_run_seed(seed, number, TRAINING), encoding=pool.encoding
        )
        seconds = {"train": perf_counter() - selected, "select": selected - begin}
        yield MeasuredBatch(len(labels), pool.measure(learner), picked.ids, picked.weights, seconds)


class StrategyChooser:
    """Picks batches by one strategy, with options adapted to the history of the run."""

    def __init__(self, entrant: Entrant) -> None:
        """Start without earlier batches."""
        self._strategy = get(entrant.strategy).with_options(**entrant.options)
        self._options = dict(entrant.options)
        self._past: list[PastBatch] = []

    def __call__(
        self,
        round_: Round,
        labels: Mapping[int, Label],
        budget: int,
        *,
        seed: int,
        candidates: NDArray[np.bool_] | None = None,
    ) -> Selection:
        """The next batch; ``candidates`` ``(n,)`` restricts it to some items."""
        name, options = self._strategy.name, self._options
        if not round_.trained and not can_start_without_labels(self._strategy):
            name, options = BASELINE, {}
        elif round_.trained:
            history = round_.make_history(self._past, labels)
            options = adapt_options(self._strategy, self._options, history)
        picked = round_.select_batch(
            name, budget, candidates=candidates, labelled=list(labels), options=options, seed=seed
        )
        self._past.append(PastBatch(name, options, tuple(picked.ids.tolist()), picked.info))
        return picked


@dataclass(frozen=True, eq=False)
class OracleChooser:
    """Picks the batch with which the head is best on the test items, of many proposed batches.

    Every proposer proposes some batches, each from a random half of the pool. The gain over random
    shows what is possible with one batch of foresight.
    """

    pool: LabelledPool
    make_learner: Callable[[], Predictor]  # returns an untrained head
    proposers: Sequence[str]  # names of strategies
    proposals: int  # batches of each proposer
    metric: str
    higher_is_better: bool

    def __call__(
        self, round_: Round, labels: Mapping[int, Label], budget: int, *, seed: int
    ) -> Selection:
        """The best proposal."""
        learner = self.make_learner()
        trial = Round(round_.pool, learner)
        proposals = self.propose(round_, labels, budget, seed=seed)
        values = []
        for picked in proposals:
            known = {**labels, **self.pool.labels_of(picked.ids)}
            # The penalty of the last training, so that 100 heads are not cross-validated.
            tuning = round_.tuning if round_.trained else None
            trial.fit(known, seed=seed, encoding=self.pool.encoding, tuning=tuning)
            values.append(self.pool.measure(learner)[self.metric])
        best = np.argmax(values) if self.higher_is_better else np.argmin(values)
        return Selection(proposals[best].ids)

    def propose(
        self, round_: Round, labels: Mapping[int, Label], budget: int, *, seed: int
    ) -> list[Selection]:
        """The batches of all proposers."""
        rng = np.random.default_rng(seed)
        found = []
        for name in self.proposers:
            for _ in range(self.proposals):
                half = rng.random(len(self.pool.ids)) < 0.5
                own_seed = int(rng.integers(2**31))
                chooser = StrategyChooser(Entrant(name))
                found.append(chooser(round_, labels, budget, seed=own_seed, candidates=half))
        return found


def can_start_without_labels(strategy: Strategy) -> bool:
    """Whether a strategy can pick the first batch from features alone.

    >>> can_start_without_labels(get("k_center")), can_start_without_labels(get("margin"))
    (True, False)
    """
    return any(set(names) <= {"features"} for names in strategy.input_sets)


def measure_head(predicted: Arrays, targets: Arrays, *, regression: bool) -> dict[str, float]:
    """Accuracy and mean accuracy of the classes, or errors of a regression.

    >>> measure_head(np.array([0, 0, 1, 0]), np.array([0, 0, 1, 1]), regression=False)
    {'accuracy': 0.75, 'macro_accuracy': 0.75}
    """
    if regression:
        errors = np.abs(predicted - targets)
        return {
            "rmse": float(np.sqrt(np.square(errors).mean())),
            "mae": float(errors.mean()),
            "error_95": float(np.quantile(errors, ERROR_QUANTILE)),
            "error_max": float(errors.max()),
        }
    right = predicted == targets
    counts = np.bincount(targets)
    shares = np.bincount(targets, weights=right)[counts > 0] / counts[counts > 0]
    return {"accuracy": float(right.mean()), "macro_accuracy": float(shares.mean())}


def mix_run_seed(*numbers: int) -> int:
    """One seed from several numbers.

    >>> mix_run_seed(1, 0) != mix_run_seed(0, 1)
    True
    """
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
