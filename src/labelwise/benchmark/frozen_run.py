"""A run on frozen features: the items of a seed, the head, and one result line per batch.

Every seed draws one sub-pool, which all strategies and rounds share, so that deterministic
strategies give different runs as well. The first batch is picked by the strategy itself. A line has
the labels bought so far and, as ``picks``, the batch whose labels were the last to arrive.

===============  ==================================================================================
setting          meaning
===============  ==================================================================================
``share``        share of the items in the sub-pool of a seed; ``Protocol.pool`` limits their number
``test_share``   draw new test items for every seed, stratified by class or value
``tail``         ratio of the largest to the smallest class; classes are thinned to that
``oracle``       ``proposers`` and ``proposals`` of the entrant called ``oracle``; with its option
                 ``unseen`` it chooses on half of the test items and is measured on the other half
===============  ==================================================================================
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.labelling_run import (
    ORACLE,
    BatchChooser,
    LabelledPool,
    OracleChooser,
    Predictor,
    StrategyChooser,
    buy_label_batches,
)
from labelwise.benchmark.lines import make_result_line, reset_process_memory
from labelwise.benchmark.protocol import Entrant, Options, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.errors import BadInput, UnknownName
from labelwise.learner import FitReport
from labelwise.learners.linear_probe import LinearProbe, ProbeTuning
from labelwise.theory.coverage import imbalance_ratio

SPLIT = 11
"""Random stream of a split."""

MakeHead = Callable[[], Predictor]
MakeBatchChooser = Callable[[Protocol, Entrant, LabelledPool, MakeHead], BatchChooser]
"""Makes what chooses the batches of an entrant, for a pool and a function that makes heads."""

MOST_TEST = 5_000
"""Largest number of test items that are drawn for a seed."""


def make_batch_chooser(
    protocol: Protocol, entrant: Entrant, pool: LabelledPool, make_learner: MakeHead
) -> BatchChooser:
    """What chooses the batches of an entrant."""
    if entrant.strategy != ORACLE:
        return StrategyChooser(entrant)
    settings = protocol.settings["oracle"]
    return OracleChooser(
        pool,
        make_learner,
        settings["proposers"],
        settings["proposals"],
        protocol.metric,
        protocol.higher_is_better,
    )


def run_frozen_experiment(
    protocol: Protocol,
    entrant: Entrant,
    seed: int,
    items: LabelledPool,
    make_chooser: MakeBatchChooser = make_batch_chooser,
) -> Iterator[RoundResult]:
    """Buy batches of labels and measure the head after each.

    `draw_frozen_pool` draws the items of the seed from ``items``.
    """
    seen = pool = draw_frozen_pool(protocol, seed, items)
    if entrant.strategy == ORACLE and entrant.options.get("unseen"):
        seen, pool = halve_test_items(pool, seed)
    make_learner = partial(make_frozen_head, {**protocol.learner, **entrant.learner}, pool)
    reset_process_memory()
    bought = buy_label_batches(
        pool,
        make_learner,
        make_chooser(protocol, entrant, seen, make_learner),
        batch=protocol.batch,
        rounds=protocol.rounds + 1,
        seed=seed,
        weighted=(entrant.weights or protocol.weights) == "mean",
    )
    known: list[int] = []
    for number, step in enumerate(bought):
        known += step.picks.tolist()
        imbalance = None
        if pool.classes is not None:
            targets = np.array(list(pool.labels_of(np.array(known)).values()))
            imbalance = imbalance_ratio(targets, pool.classes)
        yield make_result_line(
            protocol,
            entrant,
            seed,
            round=number,
            labels=step.labels,
            values=(step.measures[protocol.metric],),
            measures=step.measures,
            seconds=step.seconds,
            imbalance=imbalance,
            picks=tuple(step.picks.tolist()),
            weights=None if step.weights is None else tuple(step.weights.tolist()),
        )


def make_frozen_head(options: Options, pool: LabelledPool) -> Predictor:
    """An untrained head for a pool; ``options`` has its ``head`` and options of that."""
    given = {name: value for name, value in options.items() if name != "head"}
    name = options["head"]
    if name not in HEADS:
        raise UnknownName(f"there is no head {name!r}; choose from {', '.join(HEADS)}")
    return HEADS[name](pool, **given)


def _make_linear_head(pool: LabelledPool, **options: Any) -> Predictor:
    unlabelled = None if options.get("self_training", False) is False else pool.inputs
    return LinearProbe(
        classes=pool.classes, regression=pool.classes is None, unlabelled=unlabelled, **options
    )


class DualProbe(LinearProbe):
    """A linear probe that also gives the ``duals`` that ``ally`` reads.

    They are those of a linear layer, trained on the same labels under a constraint per item.
    """

    def fit(
        self,
        inputs: Array,
        targets: Array,
        weights: Array = None,
        seed: int = 0,
        *,
        tuning: ProbeTuning | Mapping[str, Any] | None = None,
    ) -> FitReport:
        """Train the probe, then the layer on equally scaled features."""
        from labelwise.benchmark.networks import make_column_head
        from labelwise.learners.primal_dual import PrimalDualLearner

        report = super().fit(inputs, targets, weights, seed, tuning=tuning)
        make_layer = partial(make_column_head, 0, len(self.state.mean), len(self.state.offsets))
        self._layer = PrimalDualLearner(make_layer, lr=0.01)
        self._layer.fit(self._scale(inputs), targets, weights, seed=seed)
        return report

    def offered(self) -> tuple[str, ...]:
        """Names of the representations that `represent` gives."""
        return (*super().offered(), "duals")

    def represent(self, inputs: Array, names: Sequence[str]) -> dict[str, Any]:
        """The named representations of ``(n, d)`` features."""
        own = super().represent(inputs, [name for name in names if name != "duals"])
        if "duals" in names:
            own |= self._layer.represent(self._scale(inputs), ["duals"])
        return own

    def _scale(self, inputs: Array) -> Arrays:
        scaled: Arrays = (inputs - self.state.mean) / self.state.scale
        return scaled.astype(np.float32)


def _make_dual_head(pool: LabelledPool, **options: Any) -> Predictor:
    return DualProbe(classes=pool.classes, **options)


def _make_table_head(pool: LabelledPool, **options: Any) -> Predictor:
    from labelwise.learners.table_model import TableModel

    return TableModel(classes=pool.classes, regression=pool.classes is None, **options)


def _make_forest_head(pool: LabelledPool, *, members: bool = False, **options: Any) -> Predictor:
    """A random forest; with ``members``, its features are the predictions of its trees."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    from labelwise.learners.sklearn_learner import SklearnLearner

    forest = RandomForestRegressor if pool.classes is None else RandomForestClassifier
    return SklearnLearner(forest(**options), features=_predict_forest_members if members else None)


def _make_network_head(pool: LabelledPool, **options: Any) -> Predictor:
    """Two hidden layers; features are the last one."""
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    from labelwise.learners.sklearn_learner import SklearnLearner

    network = MLPRegressor if pool.classes is None else MLPClassifier
    return SklearnLearner(network(hidden_layer_sizes=(128, 128), max_iter=300, **options))


def _predict_forest_members(forest: Any, inputs: Arrays) -> Arrays:
    """Centred predictions of the trees, ``(n, trees)``, scaled so that distances are mean ones."""
    from labelwise.learners.table_model import center_members

    return center_members(np.stack([tree.predict(inputs) for tree in forest.estimators_], axis=1))


HEADS: Mapping[str, Callable[..., Predictor]] = {
    "linear": _make_linear_head,
    "duals": _make_dual_head,
    "table": _make_table_head,
    "forest": _make_forest_head,
    "network": _make_network_head,
}
"""Heads by name: functions of the pool and options."""


def draw_frozen_pool(protocol: Protocol, seed: int, items: LabelledPool) -> LabelledPool:
    """The items of a seed: test items, sub-pool, long tail, copies."""
    settings = protocol.settings
    rng = np.random.default_rng([seed, SPLIT])
    if "test_share" in settings:
        items = split_frozen_items(items, settings["test_share"], rng)
    ids, targets = items.ids, items.targets
    taken = rng.permutation(len(ids))[: round(settings.get("share", 1.0) * len(ids))]
    taken = taken[: protocol.pool]
    if "tail" in settings:
        taken = thin_class_sizes(targets, taken, settings["tail"], rng)
    rows = np.sort(taken)
    copies = protocol.copies
    bought = (protocol.rounds + 1) * protocol.batch
    if bought > copies * len(rows):
        raise BadInput(
            f"{protocol.name} buys {bought:,} labels from a pool of {copies * len(rows):,}; "
            "lower the budget"
        )
    last = int(ids[-1]) + 1
    return LabelledPool(
        (ids[rows] + last * np.arange(copies)[:, None]).ravel(),
        np.tile(items.inputs[rows], (copies, 1)),
        np.tile(targets[rows], copies),
        items.test_inputs,
        items.test_targets,
        items.classes,
    )


def halve_test_items(pool: LabelledPool, seed: int) -> tuple[LabelledPool, LabelledPool]:
    """The pool twice, each time with another half of the test items."""
    order = np.random.default_rng([seed, SPLIT, 1]).permutation(len(pool.test_targets))
    first, second = (
        replace(pool, test_inputs=pool.test_inputs[half], test_targets=pool.test_targets[half])
        for half in (order[::2], order[1::2])
    )
    return first, second


def split_frozen_items(items: LabelledPool, share: float, rng: np.random.Generator) -> LabelledPool:
    """Draw new test items from all items; ids are positions among all items."""
    inputs = np.concatenate([items.inputs, items.test_inputs])
    targets = np.concatenate([items.targets, items.test_targets])
    held = draw_stratified_items(targets, count_frozen_test_items(len(targets), share), rng)
    ids = np.setdiff1d(np.arange(len(targets)), held)
    return LabelledPool(ids, inputs[ids], targets[ids], inputs[held], targets[held], items.classes)


def count_frozen_test_items(count: int, share: float) -> int:
    """Number of test items: a share of all, at least 1 and at most `MOST_TEST`."""
    return max(1, min(MOST_TEST, int(share * count)))


def draw_stratified_items(
    targets: Arrays, count: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Draw items, ascending, with every class or range of values in proportion.

    Example:
        >>> classes = np.repeat([0, 1], [90, 10])
        >>> test = draw_stratified_items(classes, 20, np.random.default_rng(0))
        >>> np.bincount(classes[test]).tolist()
        [18, 2]
    """
    order = rng.permutation(len(targets))
    if targets.dtype.kind in "iu":  # in random order of classes, so that rounding favours none
        targets = rng.permutation(int(targets.max()) + 1)[targets]
    # Items by class or value, in random order within; every k-th one is drawn.
    by_stratum = order[np.argsort(targets[order], kind="stable")]
    places = (np.arange(count) + 0.5) * len(targets) / count
    return np.sort(by_stratum[places.astype(np.intp)])


def thin_class_sizes(
    targets: Arrays, taken: Arrays, ratio: float, rng: np.random.Generator
) -> Arrays:
    """The rows that a long tail of classes leaves of ``taken``.

    Class sizes decrease geometrically, in an order drawn per seed, until the smallest class has
    1 / ratio of the largest.
    """
    classes = rng.permutation(np.unique(targets[taken]))
    most = min(int((targets[taken] == label).sum()) for label in classes)
    shares = float(ratio) ** -np.linspace(0, 1, len(classes))
    kept = [
        taken[targets[taken] == label][: max(1, round(most * share))]
        for label, share in zip(classes, shares, strict=True)
    ]
    return np.concatenate(kept)
