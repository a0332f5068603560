r"""Models of tables: linear, random forest or gradient boosting, the best by cross-validation.

=========  =========================================================  ============================
name       model                                                      compared from
=========  =========================================================  ============================
linear     `LinearProbe` on columns of mean 0 and deviation 1         always
forest     100 randomized trees                                       3 labels a class, or 10
boosting   100 steps of histogram gradient boosting                   10 labels a class, or 100
=========  =========================================================  ============================

Out-of-fold predictions decide: the negative log-likelihood of classes, each model calibrated by a
temperature, or the squared error of values. They also give the error that can be expected, next to
that of predicting the mean.

Members are the trees of a forest, which is also trained where boosting is chosen, and the members
of the linear model.

A saved model holds the labelled rows, from which it is trained again when it is loaded: tree
ensembles have no safe file format of their own.

Cost: below a second for some hundred labels; cross-validation takes five times as long for every
model that is compared, and can be left out by giving ``tuning``.

References: L. Breiman, "Random Forests", Machine Learning 2001. J. Friedman, "Greedy Function
Approximation: A Gradient Boosting Machine", Annals of Statistics 2001.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from threadpoolctl import threadpool_limits

from labelwise.arrays import Array, Floats, HostArray
from labelwise.errors import BadInput, UnknownName
from labelwise.learner import FitReport, check_seed
from labelwise.learners.linear_probe import LinearProbe, ProbeTuning
from labelwise.learners.tuned_model import (
    LEAST_FOLDED,
    OutOfFold,
    TrainingRows,
    TunedModel,
    check_features,
    choose_temperature,
    measure_loss,
    split_folds,
)

MODELS = ("linear", "forest", "boosting")

TREES, STEPS = 100, 100

LEAST_COMPARED = {"linear": (0, 0), "forest": (3, 10), "boosting": (10, 100)}
"""Fewest labels per class, and fewest values of a regression, from which a model is compared."""


@dataclass(frozen=True)
class TableTuning:
    """The result of cross-validation; a later training can reuse it."""

    model: str = "linear"  # one of `MODELS`
    temperature: float = 1.0  # that the logits are divided by
    labels: int = 0  # number of labels that it was chosen with; 0 if there were too few
    penalty: float | None = None  # of the linear model, per feature


def center_members(values: HostArray) -> Floats:
    """The members' predictions minus their mean, over the root of their number, ``(n, m K)``.

    Inner products are the covariances of predictions over the members; for models without
    gradients they take the place of those of gradient sketches.

    >>> center_members(np.array([[1.0, 3.0, 1.0, 3.0]]))
    array([[-0.5,  0.5, -0.5,  0.5]])
    """
    centred = values - values.mean(axis=1, keepdims=True)
    return np.asarray(centred.reshape(len(values), -1) / np.sqrt(values.shape[1]))


class TableModel(TunedModel):
    """A linear model, a forest or boosted trees on the columns of a table; without torch.

    Attributes:
        classes_: the classes of the columns, in order; None for a regression.
        tuning: the chosen model.
        losses: out-of-fold loss of every model that was compared.
        out_of_fold: out-of-fold predictions of the labelled items; None if there were too few.

    >>> from sklearn.datasets import load_wine
    >>> rows, kinds = load_wine(return_X_y=True)
    >>> model = TableModel()
    >>> report = model.fit(rows[::3], kinds[::3], seed=0)
    >>> bool(model.score(rows, kinds) > 0.9), sorted(model.losses)
    (True, ['boosting', 'forest', 'linear'])
    """

    def __init__(
        self,
        *,
        classes: int | Sequence[Any] | None = None,
        regression: bool = False,
        model: str | None = None,
    ) -> None:
        """Remember the settings; ``model`` is one of `MODELS`, cross-validated if None."""
        if model is not None and model not in MODELS:
            raise UnknownName(f"no table model is called {model!r}; choose from {MODELS}")
        self.classes, self.regression, self.model = classes, regression, model
        self.tuning = TableTuning()
        self.losses: dict[str, float] = {}
        self._labelled: TrainingRows | None = None
        self._main: BaseEstimator | _ScaledProbe | None = None
        self._members: BaseEstimator | _ScaledProbe | None = None

    def fit(
        self,
        inputs: Array,
        targets: Array,
        weights: Array = None,
        seed: int = 0,
        *,
        tuning: TableTuning | Mapping[str, Any] | None = None,
    ) -> FitReport:
        """Train on labelled rows; the arguments are those of `LinearProbe.fit`."""
        begin = time.perf_counter()
        self._seed = check_seed(seed, below=2**32)
        labelled = self._read_labelled(inputs, targets, weights)
        if self.regression:
            if labelled.targets.shape[1] != 1:
                raise BadInput(
                    f"a table model takes one value per item; got {labelled.targets.shape}"
                )
            labelled = labelled._replace(targets=labelled.targets[:, 0])
        self._labelled = labelled
        if isinstance(tuning, Mapping):
            tuning = TableTuning(**tuning)
        with threadpool_limits(1):  # small data: threads would mostly wait for each other
            if tuning is None:
                tuning = self._choose_model(labelled)
                if tuning.model == "linear":
                    tuning = self._take_linear_penalty(tuning, labelled)
            self.tuning = tuning
            self._main = self._fit_table_model(tuning.model, labelled)
            self._members = self._main
            if tuning.model == "boosting":
                self._members = self._fit_table_model("forest", labelled)
        seconds = time.perf_counter() - begin
        loss = self.losses.get(tuning.model, float("nan"))
        return FitReport(loss, 1, True, seconds, training_labels=len(targets))

    # Models.

    def _fit_table_model(self, name: str, labelled: TrainingRows) -> "BaseEstimator | _ScaledProbe":
        """A trained model of `MODELS`; a forest in place of boosting if there is a single class."""
        rows, targets, weights = labelled
        if name == "linear":
            return self._fit_linear(labelled)
        if name == "boosting" and (self.regression or len(np.unique(targets)) > 1):
            make = (
                HistGradientBoostingRegressor if self.regression else HistGradientBoostingClassifier
            )
            model = make(max_iter=STEPS, min_samples_leaf=5, early_stopping=False)
        elif self.regression:
            model = RandomForestRegressor(TREES, min_samples_leaf=2, max_features=0.5)
        else:
            model = RandomForestClassifier(TREES)
        return model.set_params(random_state=self._seed).fit(rows, targets, sample_weight=weights)

    def _fit_linear(self, labelled: TrainingRows) -> "_ScaledProbe":
        rows, targets, weights = labelled
        classes = None if self.classes_ is None else len(self.classes_)
        probe = LinearProbe(classes=classes, regression=self.regression)
        penalty, model = self.tuning.penalty, _ScaledProbe.measure(rows, probe)
        tuning = None if penalty is None else ProbeTuning(penalty)
        probe.fit(model.scale(rows), targets, weights, self._seed, tuning=tuning)
        return model

    def _take_linear_penalty(self, tuning: TableTuning, labelled: TrainingRows) -> TableTuning:
        """The tuning with the penalty and the temperature that the linear model chose."""
        chosen = self._fit_linear(labelled).probe.tuning
        heat = tuning.temperature * chosen.temperature
        return replace(tuning, temperature=heat, penalty=chosen.penalty)

    def _predict_table_rows(self, model: "BaseEstimator | _ScaledProbe", rows: Floats) -> Floats:
        """Logits ``(n, K)`` before calibration, or values ``(n, 1)``."""
        if isinstance(model, _ScaledProbe):
            name = "outputs" if self.regression else "logits"
            return np.asarray(model.represent(rows, [name])[name])
        if self.regression:
            return np.asarray(model.predict(rows)).reshape(-1, 1)
        return np.log(self._spread_over_classes(model.predict_proba(rows), model.classes_))

    def _spread_over_classes(self, chances: Floats, seen: HostArray) -> Floats:
        """Probabilities of all classes, none of them 0."""
        assert self.classes_ is not None
        total, share = len(self.classes_), 1 / (len(self._get_labelled().targets) + 1)
        spread = np.full((*chances.shape[:-1], total), share / total)
        spread[..., seen.astype(np.int64)] += (1 - share) * chances
        return spread

    def _choose_model(self, labelled: TrainingRows) -> TableTuning:
        """Compare the models that have enough labels, out of fold."""
        _, targets, weights = labelled
        count, classes = len(targets), 1 if self.classes_ is None else len(self.classes_)
        self.losses, self.out_of_fold, self.tuning = {}, None, TableTuning()
        fixed = self.model or "linear"
        enough = count >= 10 if self.regression else count >= LEAST_FOLDED * classes
        if not enough or len(np.unique(targets)) < 2:
            return TableTuning(fixed)
        names = [self.model] if self.model else [n for n in MODELS if self._is_compared(n, count)]
        parts = split_folds(targets if not self.regression else np.zeros(count), self._seed)
        # Out-of-fold predictions of every model on the same folds.
        found: dict[str, tuple[Floats, float]] = {}
        for name in names:
            rows = np.empty((count, classes))
            for part in parts:
                model = self._fit_table_model(name, TrainingRows(*(own[~part] for own in labelled)))
                rows[part] = self._predict_table_rows(model, labelled.rows[part])
            if self.regression:
                found[name] = rows, 1.0
                self.losses[name] = float(np.average((rows[:, 0] - targets) ** 2, weights=weights))
            else:
                heat = choose_temperature(rows, targets)
                found[name] = rows / heat, heat
                self.losses[name] = measure_loss(rows / heat, targets, weights)
        # The smallest loss decides; its predictions show the error to expect.
        best = min(self.losses, key=self.losses.__getitem__)
        rows, heat = found[best]
        goal = targets[:, None] if self.regression else targets
        self.out_of_fold = OutOfFold(rows, goal)
        return TableTuning(best, heat, count)

    def _is_compared(self, name: str, count: int) -> bool:
        """Whether a model is compared when there are ``count`` labels."""
        per_class, values = LEAST_COMPARED[name]
        return count >= (values if self.classes_ is None else per_class * len(self.classes_))

    # Predictions.

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the model is trained."""
        return self._main is not None

    def offered(self) -> tuple[str, ...]:
        """Names of the representations that `represent` gives."""
        return (*super().offered(), "gradient_sketch")

    @property
    def _columns(self) -> int:
        return int(self._get_labelled().rows.shape[1])

    def _get_labelled(self) -> TrainingRows:
        if self._labelled is None:
            raise BadInput("the model is not trained yet; call fit first")
        return self._labelled

    def _compute_logits(self, rows: HostArray) -> Floats:
        with threadpool_limits(1):
            own = self._predict_table_rows(self._main, check_features(rows))
        return own / self.tuning.temperature

    def _represent_members(self, rows: HostArray, names: Sequence[str]) -> dict[str, Array]:
        model, rows = self._members, check_features(rows)
        assert model is not None
        if isinstance(model, _ScaledProbe):
            kinds = ["member_votes"] + ["member_probabilities"] * (not self.regression)
            found = model.represent(rows, kinds)
        elif self.regression:
            votes = [tree.predict(rows) for tree in model.estimators_]
            found = {"member_votes": np.stack(votes, axis=1)}
        else:
            several = np.stack([tree.predict_proba(rows) for tree in model.estimators_], axis=1)
            chances = self._spread_over_classes(several, model.classes_)
            found = {"member_probabilities": chances, "member_votes": chances.argmax(axis=2)}
        name = "member_votes" if self.regression else "member_probabilities"
        return {**found, "gradient_sketch": center_members(found[name])}

    # Files.

    def save(self, folder: str | Path) -> None:
        """Write the labelled rows and the settings, from which `load` trains again."""
        rows, targets, weights = self._get_labelled()
        arrays = {"inputs": rows, "targets": targets, "weights": weights}
        facts = {"tuning": asdict(self.tuning), "losses": self.losses}
        self._save_model(folder, arrays, facts)

    def load(self, folder: str | Path) -> None:
        """Train the model that `save` wrote again."""
        arrays, facts = self._load_model(folder)
        held = self.out_of_fold
        classes = facts["classes"]
        targets, before = arrays["targets"], self.classes
        if classes is not None:
            self.classes = classes
            targets = np.array(classes)[targets]
        self.fit(
            arrays["inputs"], targets, arrays["weights"], facts["seed"], tuning=facts["tuning"]
        )
        self.classes, self.losses = before, facts["losses"]
        self.out_of_fold = held


@dataclass(frozen=True)
class _ScaledProbe:
    """A linear probe on columns of mean 0 and deviation 1."""

    mean: Floats
    spread: Floats
    probe: LinearProbe

    @classmethod
    def measure(cls, rows: Floats, probe: LinearProbe) -> "_ScaledProbe":
        spread = rows.std(axis=0)
        return cls(rows.mean(axis=0), np.where(spread > 0, spread, 1.0), probe)

    def scale(self, rows: Floats) -> Floats:
        return (rows - self.mean) / self.spread

    def represent(self, rows: Floats, names: Sequence[str]) -> dict[str, Array]:
        return self.probe.represent(self.scale(rows), names)
