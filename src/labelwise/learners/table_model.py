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
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from threadpoolctl import threadpool_limits

from labelwise.arrays import Array, Floats, HostArray
from labelwise.errors import BadInput, UnknownName
from labelwise.kernels.calibration import calibrate_temperature, softmax
from labelwise.learner import FitReport, check_names, check_seed
from labelwise.learners.array_files import load_arrays, save_arrays
from labelwise.learners.estimator import EstimatorMethods
from labelwise.learners.linear_probe import (
    COLDEST,
    HOTTEST,
    LEAST_FOLDED,
    LinearProbe,
    OutOfFold,
    ProbeTuning,
    check_features,
    check_values,
    encode_classes,
    measure_loss,
    split_folds,
)
from labelwise.learners.weights import keep_weighted

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


class TableModel(EstimatorMethods):
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
        self.classes_: HostArray | None = None
        self.tuning = TableTuning()
        self.losses: dict[str, float] = {}
        self.out_of_fold: OutOfFold | None = None
        self._data: dict[str, HostArray] = {}
        self._seed = 0
        self._main: Any = None
        self._members: Any = None

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
        rows = check_features(inputs)
        kept, own = keep_weighted(weights, len(rows))
        if self.regression:
            values = check_values(targets, len(rows))
            if values.shape[1] != 1:
                raise BadInput(f"a table model takes one value per item; got {values.shape}")
            goal: HostArray = values[:, 0]
        else:
            goal, self.classes_ = encode_classes(self.classes, targets, len(rows))
        self._data = {"inputs": rows[kept], "targets": goal[kept], "weights": own}
        if isinstance(tuning, Mapping):
            tuning = TableTuning(**tuning)
        with threadpool_limits(1):  # small data: threads would mostly wait for each other
            if tuning is None:
                tuning = self._choose_model()
                if tuning.model == "linear":
                    tuning = self._keep_penalty(tuning)
            self.tuning = tuning
            self._main = self._fit_one(tuning.model, slice(None))
            self._members = self._main
            if tuning.model == "boosting":
                self._members = self._fit_one("forest", slice(None))
        seconds = time.perf_counter() - begin
        loss = self.losses.get(tuning.model, float("nan"))
        return FitReport(loss, 1, True, seconds, training_labels=len(rows))

    # Models.

    def _fit_one(self, name: str, part: Any) -> Any:
        rows, targets, weights = (self._data[key][part] for key in ("inputs", "targets", "weights"))
        if name == "linear":
            return self._fit_linear(rows, targets, weights)
        if self.regression:
            model = (
                RandomForestRegressor(TREES, min_samples_leaf=2, max_features=0.5)
                if name == "forest"
                else HistGradientBoostingRegressor(
                    max_iter=STEPS, min_samples_leaf=5, early_stopping=False
                )
            )
        else:
            model = (
                RandomForestClassifier(TREES)
                if name == "forest"
                else HistGradientBoostingClassifier(
                    max_iter=STEPS, min_samples_leaf=5, early_stopping=False
                )
            )
        model.set_params(random_state=self._seed)
        if not self.regression and len(np.unique(targets)) < 2 and name == "boosting":
            return self._fit_one("forest", part)
        return model.fit(rows, targets, sample_weight=weights)

    def _fit_linear(self, rows: Floats, targets: HostArray, weights: Floats) -> "_ScaledProbe":
        classes = None if self.classes_ is None else len(self.classes_)
        probe = LinearProbe(classes=classes, regression=self.regression)
        penalty, model = self.tuning.penalty, _ScaledProbe.measure(rows, probe)
        tuning = None if penalty is None else ProbeTuning(penalty)
        probe.fit(model.scale(rows), targets, weights, self._seed, tuning=tuning)
        return model

    def _keep_penalty(self, tuning: TableTuning) -> TableTuning:
        """The tuning with the penalty and the temperature that the linear model chose."""
        chosen = self._fit_one("linear", slice(None)).probe.tuning
        heat = tuning.temperature * chosen.temperature
        return replace(tuning, temperature=heat, penalty=chosen.penalty)

    def _predict_one(self, model: Any, rows: Floats) -> Floats:
        """Logits ``(n, K)`` before calibration, or values ``(n, 1)``."""
        if isinstance(model, _ScaledProbe):
            name = "outputs" if self.regression else "logits"
            return np.asarray(model.represent(rows, [name])[name])
        if self.regression:
            return np.asarray(model.predict(rows)).reshape(-1, 1)
        return np.log(self._spread_classes(model.predict_proba(rows), model.classes_))

    def _spread_classes(self, chances: Floats, seen: HostArray) -> Floats:
        """Probabilities of all classes, none of them 0."""
        assert self.classes_ is not None
        total, share = len(self.classes_), 1 / (len(self._data["targets"]) + 1)
        spread = np.full((*chances.shape[:-1], total), share / total)
        spread[..., seen.astype(np.int64)] += (1 - share) * chances
        return spread

    def _choose_model(self) -> TableTuning:
        """Compare the models that have enough labels, out of fold."""
        targets, weights = self._data["targets"], self._data["weights"]
        count, classes = len(targets), 1 if self.classes_ is None else len(self.classes_)
        self.losses, self.out_of_fold, self.tuning = {}, None, TableTuning()
        fixed = self.model or "linear"
        enough = count >= 10 if self.regression else count >= LEAST_FOLDED * classes
        if not enough or len(np.unique(targets)) < 2:
            return TableTuning(fixed)
        names = [self.model] if self.model else [n for n in MODELS if self._is_compared(n)]
        parts = split_folds(targets if not self.regression else np.zeros(count), self._seed)
        # Out-of-fold predictions of every model on the same folds.
        found: dict[str, tuple[Floats, float]] = {}
        for name in names:
            rows = np.empty((count, classes))
            for part in parts:
                model = self._fit_one(name, ~part)
                rows[part] = self._predict_one(model, self._data["inputs"][part])
            if self.regression:
                found[name] = rows, 1.0
                self.losses[name] = float(np.average((rows[:, 0] - targets) ** 2, weights=weights))
            else:
                heat = float(np.clip(calibrate_temperature(rows, targets), COLDEST, HOTTEST))
                found[name] = rows / heat, heat
                self.losses[name] = measure_loss(rows / heat, targets, weights)
        # The smallest loss decides; its predictions show the error to expect.
        best = min(self.losses, key=self.losses.__getitem__)
        rows, heat = found[best]
        goal = targets[:, None] if self.regression else targets
        self.out_of_fold = OutOfFold(rows, goal)
        return TableTuning(best, heat, count)

    def _is_compared(self, name: str) -> bool:
        per_class, values = LEAST_COMPARED[name]
        count = len(self._data["targets"])
        if self.regression:
            return count >= values
        assert self.classes_ is not None
        return count >= per_class * len(self.classes_)

    # Predictions.

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the model is trained."""
        return self._main is not None

    def predict(self, inputs: Array) -> HostArray:
        """The classes or values, ``(n,)``."""
        rows = self._compute_rows(inputs)
        if self.regression:
            return rows[:, 0]
        assert self.classes_ is not None
        return np.asarray(self.classes_[rows.argmax(axis=1)])

    def offered(self) -> tuple[str, ...]:
        """Names of the representations that `represent` gives."""
        if self.regression:
            return ("features", "outputs", "member_votes", "gradient_sketch")
        several = ("member_probabilities", "member_votes", "gradient_sketch")
        return ("features", "probabilities", "logits", *several)

    def represent(self, inputs: Array, names: Sequence[str]) -> dict[str, Any]:
        """The named representations of ``(n, d)`` rows; features are the rows themselves."""
        check_names(names, self.offered(), "TableModel")
        found: dict[str, Any] = {"features": inputs}
        if {"logits", "probabilities", "outputs"} & set(names):
            rows = self._compute_rows(inputs)
            found |= {"logits": rows, "outputs": rows}
            if "probabilities" in names:
                found["probabilities"] = softmax(rows)
        if {"member_probabilities", "member_votes", "gradient_sketch"} & set(names):
            found |= self._represent_members(inputs)
            found["gradient_sketch"] = center_members(
                found["member_votes" if self.regression else "member_probabilities"]
            )
        return {name: found[name] for name in names}

    def _compute_rows(self, inputs: Array) -> Floats:
        """Calibrated logits ``(n, K)``, or values ``(n, 1)``."""
        if self._main is None:
            raise BadInput("the model is not trained yet; call fit first")
        rows = check_features(inputs, self._data["inputs"].shape[1])
        with threadpool_limits(1):
            return self._predict_one(self._main, rows) / self.tuning.temperature

    def _represent_members(self, inputs: Array) -> dict[str, Any]:
        model, rows = self._members, check_features(inputs, self._data["inputs"].shape[1])
        if isinstance(model, _ScaledProbe):
            names = ["member_votes"] + ["member_probabilities"] * (not self.regression)
            return model.represent(rows, names)
        if self.regression:
            votes = np.stack([tree.predict(rows) for tree in model.estimators_], axis=1)
            return {"member_votes": votes}
        chances = np.stack([tree.predict_proba(rows) for tree in model.estimators_], axis=1)
        chances = self._spread_classes(chances, model.classes_)
        return {"member_probabilities": chances, "member_votes": chances.argmax(axis=2)}

    # Files.

    def save(self, folder: str | Path) -> None:
        """Write the labelled rows and the settings, from which `load` trains again."""
        if self._main is None:
            raise BadInput("the model is not trained yet; call fit first")
        arrays = dict(self._data)
        if self.out_of_fold is not None:
            arrays |= self.out_of_fold.to_arrays()
        facts = {
            "regression": self.regression,
            "classes": None if self.classes_ is None else self.classes_.tolist(),
            "seed": self._seed,
            "tuning": asdict(self.tuning),
            "losses": self.losses,
        }
        save_arrays(folder, "TableModel", arrays, facts)

    def load(self, folder: str | Path) -> None:
        """Train the model that `save` wrote again."""
        arrays, facts = load_arrays(folder, "TableModel")
        if facts["regression"] != self.regression:
            raise BadInput(f"{folder} holds a model for other labels; train again")
        classes = facts["classes"]
        targets, before = arrays["targets"], self.classes
        if classes is not None:
            self.classes = classes
            targets = np.array(classes)[targets]
        self.fit(
            arrays["inputs"], targets, arrays["weights"], facts["seed"], tuning=facts["tuning"]
        )
        self.classes, self.losses = before, facts["losses"]
        self.out_of_fold = OutOfFold.from_arrays(arrays)


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

    def represent(self, rows: Floats, names: Sequence[str]) -> dict[str, Any]:
        return self.probe.represent(self.scale(rows), names)
