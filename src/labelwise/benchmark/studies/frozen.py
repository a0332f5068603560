"""Study of frozen features: labels bought for a head on the features of one encoder.

Every seed draws one sub-pool, which all strategies and rounds share, so that deterministic
strategies give different runs as well. The first batch is picked by the strategy itself. A line has
the labels bought so far and, as ``picks``, the batch whose labels were the last to arrive.

=============  ====================================================================================
setting        meaning
=============  ====================================================================================
``encoder``    encoder of the items; empty for a table, whose columns are standardized
``counts``     encoded items of the training and test set
``share``      share of the items in the sub-pool of a seed
``tail``       ratio of the largest to the smallest class; classes are thinned to that
``resplit``    draw new test items for every seed
``oracle``     ``proposers`` and ``proposals`` of the entrant called ``oracle``
=============  ====================================================================================
"""

import datetime
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from labelwise.benchmark.benchmark_run import make_result
from labelwise.benchmark.datasets import load
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.devices import Device, reset_peak_memory
from labelwise.benchmark.encoders import get as get_encoder
from labelwise.benchmark.encoders import read_features
from labelwise.benchmark.labelling_run import (
    ORACLE,
    BatchChooser,
    LabelledPool,
    OracleChooser,
    Predictor,
    StrategyChooser,
    buy_labels,
)
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.splits import SPLIT, load_standardized
from labelwise.errors import BadInput, UnknownName
from labelwise.learners.linear_probe import LinearProbe
from labelwise.learners.sklearn_learner import SklearnLearner
from labelwise.theory.coverage import imbalance_ratio


def study_frozen(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[RoundResult]:
    """Buy batches of labels and measure the head after each."""
    pool = draw_pool(protocol, seed)
    make_learner = partial(make_head, protocol.learner, pool)
    reset_peak_memory(device)
    bought = buy_labels(
        pool,
        make_learner,
        make_chooser(protocol, entrant, pool, make_learner),
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
        yield make_result(
            protocol,
            entrant,
            seed,
            device,
            round=number,
            labels=step.labels,
            values=(step.measures[protocol.metric],),
            measures=step.measures,
            seconds={name: round(value, 4) for name, value in step.seconds.items()},
            imbalance=imbalance,
            picks=tuple(step.picks.tolist()),
            weights=None if step.weights is None else tuple(step.weights.tolist()),
            started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )


def make_chooser(
    protocol: Protocol, entrant: Entrant, pool: LabelledPool, make_learner: Callable[[], Predictor]
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


def make_head(options: Mapping[str, Any], pool: LabelledPool) -> Predictor:
    """An untrained head for a pool; ``options`` has its ``head`` and options of that."""
    given = {name: value for name, value in options.items() if name != "head"}
    name = options["head"]
    if name not in HEADS:
        raise UnknownName(f"there is no head {name!r}; choose from {', '.join(HEADS)}")
    return HEADS[name](pool, **given)


def _make_linear(pool: LabelledPool, **options: Any) -> Predictor:
    regression = pool.classes is None
    unlabelled = pool.inputs if options.get("self_training") else None
    return LinearProbe(
        classes=pool.classes, regression=regression, unlabelled=unlabelled, **options
    )


def _make_forest(pool: LabelledPool, **options: Any) -> Predictor:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    forest = RandomForestRegressor if pool.classes is None else RandomForestClassifier
    return SklearnLearner(forest(**options))


HEADS: Mapping[str, Callable[..., Predictor]] = {"linear": _make_linear, "forest": _make_forest}
"""Heads by name: functions of the pool and options."""


def draw_pool(protocol: Protocol, seed: int) -> LabelledPool:
    """The items of a seed: test items, sub-pool, long tail, copies."""
    settings = protocol.settings
    every = load_features(protocol.dataset, settings["encoder"], tuple(settings["counts"]) or None)
    rng = np.random.default_rng([seed, SPLIT])
    ids, inputs, targets = every.ids, every.inputs, every.targets
    test_inputs, test_targets = every.test_inputs, every.test_targets
    if settings.get("resplit"):
        inputs = np.concatenate([inputs, test_inputs])
        targets = np.concatenate([targets, test_targets])
        order = rng.permutation(len(inputs))
        held, ids = np.sort(order[: len(test_inputs)]), np.sort(order[len(test_inputs) :])
        test_inputs, test_targets = inputs[held], targets[held]
        inputs, targets = inputs[ids], targets[ids]
    taken = rng.permutation(len(ids))[: round(settings.get("share", 1.0) * len(ids))]
    if "tail" in settings:
        taken = thin_classes(targets, taken, settings["tail"], rng)
    rows = np.sort(taken)
    copies = protocol.copies
    bought = (protocol.rounds + 1) * protocol.batch
    if bought > copies * len(rows):
        raise BadInput(f"{protocol.name} buys {bought} labels from a pool of {copies * len(rows)}")
    last = int(ids[-1]) + 1
    return LabelledPool(
        (ids[rows] + last * np.arange(copies)[:, None]).ravel(),
        np.tile(inputs[rows], (copies, 1)),
        np.tile(targets[rows], copies),
        test_inputs,
        test_targets,
        every.classes,
    )


def thin_classes(targets: Arrays, taken: Arrays, ratio: float, rng: np.random.Generator) -> Arrays:
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


@lru_cache(maxsize=1)
def load_features(dataset: str, encoder: str, counts: tuple[int, int] | None) -> LabelledPool:
    """All encoded items of a data set, or the standardized columns of a table."""
    if not encoder:
        data = load_standardized(dataset)
        found = np.arange(data.n), data.inputs, data.test_inputs
        targets, test_targets = data.targets, data.test_targets
    else:
        data = load(dataset)
        encoded = read_features(get_encoder(encoder), dataset, counts=counts)
        found = encoded.rows, encoded.features, encoded.test_features
        targets, test_targets = data.targets[encoded.rows], data.test_targets[encoded.test_rows]
    ids, inputs, test_inputs = found
    kind = np.float64 if data.classes is None else np.int64
    return LabelledPool(
        ids,
        np.asarray(inputs, np.float32).reshape(len(inputs), -1),
        targets.astype(kind).reshape(len(inputs)),
        np.asarray(test_inputs, np.float32).reshape(len(test_inputs), -1),
        test_targets.astype(kind).reshape(len(test_inputs)),
        data.classes,
    )
