"""Round: represent the pool, adapt options, select a batch, fit the learner, measure the model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array, Floats, Ids, is_array, namespace, to_numpy
from labelwise.errors import BadInput, UnknownName
from labelwise.kernels.calibration import softmax
from labelwise.learner import FitReport, Label, Learner
from labelwise.pool.blocks import Progress
from labelwise.pool.ids import Keys
from labelwise.pool.pool import Inputs, Pool, take_items
from labelwise.pool.rows import ArrayDict, Rows, take_rows
from labelwise.rounds.default_strategies import BASELINE
from labelwise.rounds.label_encoding import LabelEncoding
from labelwise.rounds.measures import measure_predictions
from labelwise.selection.request import select
from labelwise.selection.result import Selection
from labelwise.strategies import get
from labelwise.strategy import History, Options, PastBatch, Strategy


class Predictions(NamedTuple):
    """Labels of ``n`` items and the probability of each; None if the learner gives none."""

    labels: list[Label]
    confidence: list[float] | None


class Holdout(NamedTuple):
    """Items outside of the pool with their labels, for calibration."""

    inputs: Inputs
    labels: Sequence[Label]


class Round:
    """A pool and a learner: everything that happens between two batches.

    Attributes:
        learner: anything that satisfies `labelwise.Learner`.
        encoding: of the labels that the model was trained on.
        columns: class numbers that the model was trained on, in order; empty for a regression.

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from labelwise.learners.sklearn_learner import SklearnLearner
    >>> images, digits = load_digits(return_X_y=True)
    >>> round = Round(Pool(images), SklearnLearner(lambda: LogisticRegression(max_iter=1000)))
    >>> first = round.select_batch("random", 40, seed=1)  # no model is needed
    >>> labels = {int(item): int(digits[item]) for item in first.ids}
    >>> report = round.fit(labels, seed=1)
    >>> history = round.make_history(labels=labels)
    >>> options = adapt_options("margin", {}, history)
    >>> len(round.select_batch("margin", 20, labelled=first.ids, options=options, seed=2))
    20
    >>> round.measure(labels)["accuracy"]
    1.0
    """

    def __init__(self, pool: Pool, learner: Learner) -> None:
        """Start without a model; `fit` trains one, `hold_model` takes over a trained learner."""
        self.pool, self.learner = pool, learner
        self.trained = False
        self.encoding = LabelEncoding()
        self.columns: list[int] = []

    # The model.

    def fit(
        self,
        labels: Mapping[int, Label],
        weights: Floats | None = None,
        *,
        seed: int,
        encoding: LabelEncoding | None = None,
        tuning: Mapping[str, Any] | None = None,
    ) -> FitReport:
        """Train on labelled items; after a failed training there is no model.

        ``weights`` has one entry per label in that order (`scale_weights`); the learner takes
        ``tuning`` over instead of cross-validating again.
        """
        self.trained = False
        encoding = encoding or LabelEncoding.from_labels(labels.values())
        targets = encoding.encode(list(labels.values()))
        inputs, own = self.pool.take(list(labels)), {} if tuning is None else {"tuning": tuning}
        report = self.learner.fit(inputs, targets, weights, seed=seed, **own)
        self.hold_model(encoding, [] if encoding.regression else np.unique(targets).tolist())
        return report

    def hold_model(self, encoding: LabelEncoding, columns: Sequence[int] = ()) -> None:
        """Declare that the learner holds a model, trained elsewhere or read from a checkpoint."""
        self.trained, self.encoding, self.columns = True, encoding, list(columns)

    @property
    def tuning(self) -> dict[str, Any] | None:
        """The learner's result of cross-validation; None if it does not cross-validate."""
        found = getattr(self.learner, "tuning", None)
        return None if found is None else dict(vars(found))

    def predict(self, ids: Keys) -> Predictions | None:
        """Predicted labels of some items; None if the learner cannot predict."""
        inputs = self.pool.take(ids)
        name = "outputs" if self.encoding.regression else "probabilities"
        if self.offers([name]):
            rows = to_numpy(merge_models(name, self.learner.represent(inputs, [name])[name]))
            return self._decode_predictions(np.asarray(rows))
        if not hasattr(self.learner, "predict"):
            return None
        given = np.asarray(to_numpy(self.learner.predict(inputs))).reshape(len(ids), -1)[:, 0]
        return Predictions([self.encoding.decode(number) for number in given], None)

    def _decode_predictions(self, rows: NDArray[Any]) -> Predictions:
        if self.encoding.regression:
            return Predictions([float(value) for value in rows[:, 0]], None)
        # Some learners have a column for every class, others only for those they have seen.
        columns = self.columns if rows.shape[1] == len(self.columns) else range(rows.shape[1])
        if self.encoding.names is not None:  # a network may have more outputs than classes
            rows = rows[:, : len(self.encoding.names)]
        labels = [self.encoding.decode(columns[column]) for column in rows.argmax(axis=1)]
        return Predictions(labels, [float(value) for value in rows.max(axis=1)])

    def measure(self, labels: Mapping[int, Label]) -> dict[str, Any]:
        """``accuracy`` or ``mse`` with its ``interval`` on labelled items of the pool.

        Empty if there are no labels or the learner cannot predict.
        """
        predicted = self.predict(list(labels)) if labels else None
        if predicted is None:
            return {}
        known = list(labels.values())
        return measure_predictions(predicted.labels, known, regression=self.encoding.regression)

    # The next batch.

    def offers(self, names: Sequence[str]) -> bool:
        """Whether the trained learner gives these representations."""
        offered = getattr(self.learner, "offered", None)
        if offered is not None:
            return set(names) <= set(offered())
        try:
            self._represent_one_item(names)
        except UnknownName:
            return False
        return True

    def _represent_one_item(self, names: Sequence[str]) -> ArrayDict:
        assert self.pool.ids is not None
        return self.learner.represent(self.pool.take(self.pool.ids[:1]), list(names))

    def choose_representations(
        self, strategy: str | Strategy, *, prefer_members: bool = False
    ) -> tuple[str, ...]:
        """The first set of representations that the strategy reads and the learner gives."""
        strategy = get(strategy) if isinstance(strategy, str) else strategy
        sets = strategy.input_sets
        if () in sets:
            return ()
        if prefer_members:
            sets = tuple(
                sorted(sets, key=lambda names: not any(map(_is_member_representation, names)))
            )
        for names in sets:
            if self.offers(names) and (
                not _strategy_compares_models(strategy, names) or self._gives_several_models(names)
            ):
                return names
        wanted = ", or ".join(
            " and ".join(names) + " of several models" * _strategy_compares_models(strategy, names)
            for names in sets
        )
        kind = type(getattr(self.learner, "made", self.learner)).__name__
        raise BadInput(f"{strategy.name} needs {wanted}, which {kind} does not give")

    def _gives_several_models(self, names: Sequence[str]) -> bool:
        """Whether the learner consists of several models that each give these representations."""
        one = self._represent_one_item(names)
        return all(isinstance(rows, list | tuple) and len(rows) > 1 for rows in one.values())

    def represent(self, strategy: str | Strategy, *, prefer_members: bool = False) -> ArrayDict:
        """The representations of the whole pool that a strategy reads, by name.

        Without a model, inputs that are arrays of numbers serve as features. Representations of
        several models are merged for a strategy that reads one model. ``prefer_members`` as in
        `choose_representations`.
        """
        strategy = get(strategy) if isinstance(strategy, str) else strategy
        sets = strategy.input_sets
        if () in sets:
            return {}
        if self.trained:
            names = self.choose_representations(strategy, prefer_members=prefer_members)
            rows = self.learner.represent(self.pool.inputs, list(names))
            if strategy.several:
                return dict(rows)
            return {name: merge_models(name, value) for name, value in rows.items()}
        inputs: Inputs = self.pool.inputs
        if ("features",) in sets and is_array(inputs) and inputs.ndim > 1:
            return {"features": inputs.reshape(len(inputs), -1)}
        missing = "inputs that are arrays of numbers" if ("features",) in sets else "a model"
        raise BadInput(
            f"{strategy.name} needs {missing}, and nothing is trained yet; ask with "
            f"{BASELINE!r}, or train first"
        )

    def make_history(
        self,
        batches: Sequence[PastBatch] = (),
        labels: Mapping[int, Label] | None = None,
        holdout: Mapping[int, Label] | Holdout | None = None,
    ) -> History:
        """The argument of `adapt_options`; predictions are computed only if a strategy reads them.

        ``batches`` are the earlier ones, oldest first; ``holdout`` has labels by id, or items of
        their own.
        """
        known = dict(labels or {})

        def evaluate_labelled() -> list[bool] | None:
            predicted = self.predict(list(known)) if known else None
            if predicted is None:
                return None
            return [
                mine == label for mine, label in zip(predicted.labels, known.values(), strict=True)
            ]

        return History(
            trained=self.trained,
            batches=tuple(batches),
            labelled=tuple(known),
            evaluate_labelled=evaluate_labelled,
            evaluate_holdout=lambda: self._evaluate_holdout(holdout),
            evaluate_out_of_fold=self._evaluate_out_of_fold,
        )

    def _evaluate_out_of_fold(self) -> tuple[Floats, Ids] | None:
        """Logits ``(m, K)`` and target columns ``(m,)`` of a learner that cross-validates."""
        found = getattr(self.learner, "out_of_fold", None) if self.trained else None
        if found is None or self.encoding.regression:
            return None
        return np.asarray(found.logits), np.asarray(found.targets)

    def _evaluate_holdout(
        self, holdout: Mapping[int, Label] | Holdout | None
    ) -> tuple[Floats, Ids] | None:
        """Logits ``(h, K)`` and targets ``(h,)`` of the held-out items of known classes."""
        if not holdout or not self.trained or not self.offers(["logits"]):
            return None
        by_label = {
            self.encoding.decode(number): place for place, number in enumerate(self.columns)
        }
        if isinstance(holdout, Holdout):
            kept = [place for place, label in enumerate(holdout.labels) if label in by_label]
            inputs = take_items(holdout.inputs, np.array(kept, dtype=np.intp))
            labels = [holdout.labels[place] for place in kept]
        else:
            known = {item: label for item, label in holdout.items() if label in by_label}
            inputs, labels = self.pool.take(list(known)), list(known.values())
        if not labels:
            return None
        rows = merge_models("logits", self.learner.represent(inputs, ["logits"])["logits"])
        logits = np.asarray(to_numpy(rows), dtype=np.float64)
        if logits.shape[1] == len(by_label):
            return logits, np.array([by_label[label] for label in labels], dtype=np.int64)
        return logits, self.encoding.encode(labels)  # the learner has a column for every class

    def select_batch(
        self,
        strategy: str | Strategy,
        budget: int,
        *,
        candidates: NDArray[np.bool_] | None = None,
        labelled: Keys = (),
        options: Options | None = None,
        rows: Rows | None = None,
        seed: int,
        progress: Progress | None = None,
    ) -> Selection:
        """Select the next batch; the same call as `labelwise.select` on the round's pool.

        ``candidates`` ``(n,)`` tells which items may be picked; `adapt_options` completes the
        options; ``rows`` is what `represent` gave, computed here if None.
        """
        if budget == 0:
            return Selection(np.empty(0, dtype=np.int64))
        strategy = get(strategy) if isinstance(strategy, str) else strategy
        strategy = strategy.with_options(**(options or {}))
        rows = self.represent(strategy) if rows is None else rows
        ids, context = self.pool.ids, np.asarray(labelled, dtype=np.int64)
        assert ids is not None
        if candidates is not None and not candidates.all():
            kept = candidates.copy()
            kept[self.pool.find_positions(context)] = True
            positions = np.flatnonzero(kept)
            ids, rows = ids[positions], take_rows(rows, positions) if rows else rows
        return select(
            strategy, budget, **rows, ids=ids, labelled=context, seed=seed, progress=progress
        )


def adapt_options(strategy: str | Strategy, options: Options, history: History) -> dict[str, Any]:
    """The given options, and those that the strategy sets from the history of a model."""
    strategy = get(strategy) if isinstance(strategy, str) else strategy
    if not history.trained:
        return dict(options)
    return {**strategy.adapt(replace(history, options=options)), **options}


def scale_weights(picks: Mapping[int, float]) -> dict[int, float]:
    """Training weights of one batch: scaled to mean 1; empty if all are zero.

    Batches are drawn from pools of different sizes, so their weights are scaled one by one.

    >>> scale_weights({7: 30.0, 2: 10.0})
    {7: 1.5, 2: 0.5}
    """
    if not any(picks.values()):
        return {}
    scaled = Selection(np.array(list(picks)), np.array(list(picks.values()))).training_weights()
    return dict(zip(picks, scaled.tolist(), strict=True))


def merge_models(name: str, parts: Array) -> Array:
    """One array from the representations of several models.

    Features are concatenated, each model's scaled to mean square 1; logits become the logarithm
    of the mean probabilities; everything else is averaged.
    """
    if not isinstance(parts, list | tuple):
        return parts
    xp = namespace(*parts)
    if name == "features":
        scaled = [part / xp.sqrt(xp.mean(part * part) + 1e-12) for part in parts]
        return xp.concat(scaled, axis=1)
    stacked = xp.stack(list(parts))
    if name == "logits":
        return xp.log(xp.mean(softmax(stacked), axis=0) + 1e-12)
    return xp.mean(stacked, axis=0)


def _strategy_compares_models(strategy: Strategy, names: Sequence[str]) -> bool:
    """Whether a strategy that compares members can read these only from several models."""
    return all(map(_is_member_representation, strategy.needs)) and not all(
        map(_is_member_representation, names)
    )


def _is_member_representation(name: str) -> bool:
    return name.startswith("member_")


class DeferredLearner:
    """A learner made at its first use, so that a campaign opens without importing it."""

    def __init__(self, make: Callable[[], Learner]) -> None:
        """Keep the function that makes the learner."""
        self._make = make

    @cached_property
    def made(self) -> Learner:
        """The learner itself."""
        return self._make()

    def fit(
        self, inputs: Array, targets: Array, weights: Array | None = None, *, seed: int, **own: Any
    ) -> FitReport:
        """Make and train the learner; further arguments are its own."""
        return self.made.fit(inputs, targets, weights, seed=seed, **own)

    def represent(self, inputs: Array, names: Sequence[str]) -> ArrayDict:
        """The learner's representations."""
        return self.made.represent(inputs, names)

    def __getattr__(self, name: str) -> Any:
        """Everything else that the learner has, such as ``save`` or ``predict``."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.made, name)
