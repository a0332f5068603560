"""A scikit-learn estimator as a learner: trained with weights, asked for representations."""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import issparse
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import has_fit_parameter

from labelwise.arrays import Array, HostArray
from labelwise.errors import BadInput, LabelwiseError, first_line
from labelwise.learner import FitReport, check_names, check_seed
from labelwise.learners.weights import convert_rows, scale_to_mean_one

EstimatorSource: TypeAlias = BaseEstimator | Callable[[], BaseEstimator]
"""An estimator, or a class or function that makes one."""

_ACTIVATIONS: dict[str, Callable[[HostArray], HostArray]] = {
    "identity": lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "tanh": np.tanh,
    "logistic": expit,
}


class SklearnLearner:
    """Train a fresh estimator at every `fit`, and read representations off it.

    ============================  ======================================================
    last step of the estimator    what `represent` gives
    ============================  ======================================================
    ``MLPClassifier``             features (last hidden layer), probabilities, logits
    ``MLPRegressor``              features (last hidden layer), outputs
    another classifier            features, probabilities (where it has predict_proba)
    another regressor             features, outputs
    ============================  ======================================================

    Without hidden layers to read, the features are what reaches the last step of a pipeline: the
    inputs themselves for a bare estimator. The columns of probabilities and logits are the classes
    among the targets of the last `fit`, in sorted order.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.linear_model import LogisticRegression
        >>> images, digits = load_digits(return_X_y=True)
        >>> learner = SklearnLearner(LogisticRegression(max_iter=1000))
        >>> report = learner.fit(images[:100], digits[:100], seed=0)
        >>> learner.represent(images, ["probabilities"])["probabilities"].shape
        (1797, 10)
    """

    def __init__(
        self,
        estimator: EstimatorSource,
        *,
        features: Callable[[BaseEstimator, Array], Array] | None = None,
    ) -> None:
        """Remember how to make the model.

        Args:
            estimator: an estimator or Pipeline, of which every `fit` trains a copy; a class of
                estimators; or a function without arguments that gives one, not yet trained.
            features: ``features(estimator, inputs) -> (n, d)`` of the trained estimator, where
                the features above are not the ones wanted.
        """
        self._given, self._features = estimator, features
        self._make_estimator = _make_estimator_factory(estimator)
        self._estimator: BaseEstimator | None = None

    # scikit-learn's conventions.

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor, and if ``deep`` those of the estimator."""
        own = {"estimator": self._given, "features": self._features}
        if deep and isinstance(self._given, BaseEstimator):
            own |= {f"estimator__{name}": value for name, value in self._given.get_params().items()}
        return own

    def set_params(self, **params: Any) -> "SklearnLearner":
        """Change arguments of the constructor, or of the estimator as ``estimator__NAME``.

        The learner needs a new `fit`.
        """
        known, own = self.get_params(), self.get_params(deep=False)
        for name in params:
            if name not in known:
                raise BadInput(f"SklearnLearner has no setting {name!r}; choose from {list(known)}")
        own |= {name: params[name] for name in own if name in params}
        inner = {name[11:]: value for name, value in params.items() if name not in own}
        if inner:
            own["estimator"] = clone(own["estimator"]).set_params(**inner)
        SklearnLearner.__init__(self, **own)
        return self

    def __sklearn_tags__(self) -> Tags:
        """Those of the estimator, for scikit-learn's pipelines, cross-validation and searches."""
        return get_tags(self._make_estimator())

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the estimator is trained; pipelines ask."""
        return self._estimator is not None

    @property
    def classes_(self) -> HostArray:
        """The classes among the targets of the last `fit`, sorted; classifiers only."""
        return np.asarray(self.estimator.classes_)

    def score(self, inputs: Array, targets: Array) -> float:
        """The trained estimator's own score: accuracy, or R2 for a regression."""
        return float(self.estimator.score(inputs, targets))

    @property
    def estimator(self) -> BaseEstimator:
        """The trained estimator."""
        if self._estimator is None:
            raise BadInput("the learner is not trained yet; call fit first")
        return self._estimator

    def fit(
        self, inputs: Array, targets: Array, weights: Array | None = None, *, seed: int = 0
    ) -> FitReport:
        """Train from the start; an item of weight 2 counts like the same item twice.

        The arguments are those of `TorchLearner.fit`. Weights are scaled to mean 1 first, so that
        only their ratios matter, for a model with a penalty on its parameters too. ``seed`` is
        given to every ``random_state`` of the estimator; it is below 2**32.
        """
        estimator = self._make_estimator()
        seed = check_seed(seed, below=2**32)
        if len(targets) != _count_rows(inputs) or not len(targets):
            raise BadInput(
                f"give one target per item; got {_count_rows(inputs)} items, {len(targets)} targets"
            )
        if is_classifier(_get_last_estimator(estimator)):
            _check_estimator_classes(np.asarray(targets))
        states = [name for name in estimator.get_params() if name.endswith("random_state")]
        estimator.set_params(**dict.fromkeys(states, seed))
        extra = (
            {}
            if weights is None
            else _make_sample_weight_argument(estimator, weights, len(targets))
        )
        begin = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            with _name_estimator_error(estimator):
                estimator.fit(inputs, targets, **extra)
        unfinished = _reissue_sklearn_warnings(caught)
        seconds = time.perf_counter() - begin
        self._estimator = estimator
        last = _get_last_estimator(estimator)
        steps = getattr(last, "n_iter_", None)  # one number, or one per pair of classes or fold
        loss = getattr(last, "loss_", np.nan)
        most = 0 if steps is None else int(np.max(steps))
        held = _count_estimator_validation(last, len(targets))
        return FitReport(
            float(loss), most, not unfinished, seconds, len(targets) - held, validation_labels=held
        )

    def predict(self, inputs: Array) -> Array:
        """The trained estimator's predictions, ``(n,)`` or ``(n, k)``."""
        with _name_estimator_error(self.estimator):
            return self.estimator.predict(inputs)

    def predict_proba(self, inputs: Array) -> Array:
        """The trained classifier's probabilities, ``(n, K)``."""
        with _name_estimator_error(self.estimator):
            return self.estimator.predict_proba(inputs)

    def represent(self, inputs: Array, names: Sequence[str]) -> dict[str, Array]:
        """The named representations of the inputs, in one pass over them."""
        last = _get_last_estimator(self.estimator)
        check_names(
            names, _list_estimator_representations(last), f"a learner around {type(last).__name__}"
        )
        with _name_estimator_error(self.estimator):
            given = (
                self.estimator[:-1].transform(inputs)
                if _is_sklearn_pipeline(self.estimator)
                else inputs
            )
            if isinstance(last, MLPClassifier | MLPRegressor):
                found = _represent_by_perceptron(last, given, names)
            else:
                found = _represent_by_estimator(last, given, names)
        if "features" in names and self._features is not None:
            found["features"] = self._features(self.estimator, inputs)
        return {name: found[name] for name in names}


def _make_estimator_factory(estimator: EstimatorSource) -> Callable[[], BaseEstimator]:
    """A function that makes a new estimator; the given one is not changed."""
    if isinstance(estimator, BaseEstimator):
        return partial(clone, estimator)
    if not callable(estimator):
        raise BadInput(
            "the estimator must be one of scikit-learn's, its class, or a function that gives one; "
            f"got {type(estimator).__name__}"
        )
    make: Callable[[], BaseEstimator] = estimator
    return make


def _count_rows(inputs: Array) -> int:
    shape = getattr(inputs, "shape", None)
    return shape[0] if shape else len(inputs)


@contextmanager
def _name_estimator_error(estimator: Any) -> Iterator[None]:
    """Say in one line why an estimator refused its inputs."""
    try:
        yield
    except LabelwiseError:
        raise
    except ValueError as error:
        name = type(_get_last_estimator(estimator)).__name__
        raise BadInput(f"{name} refused the data: {first_line(error)}") from error


def _check_estimator_classes(targets: HostArray) -> None:
    """Refuse what is not one class per item, and labels of a single class."""
    if targets.ndim != 1:
        raise BadInput(f"give one class per item; got targets of shape {targets.shape}")
    if len(targets) and (targets == targets[0]).all():
        raise BadInput(
            f"all {len(targets)} labels are class {targets[0]}; a classifier needs two classes or "
            "more"
        )


def _get_last_estimator(estimator: BaseEstimator) -> BaseEstimator:
    return estimator[-1] if isinstance(estimator, Pipeline) else estimator


def _is_sklearn_pipeline(estimator: BaseEstimator) -> bool:
    return isinstance(estimator, Pipeline) and len(estimator) > 1


def _count_estimator_validation(last: BaseEstimator, count: int) -> int:
    """The number of labels that the estimator set aside to decide when to stop."""
    share = getattr(last, "validation_fraction", None)
    stops = getattr(last, "early_stopping", False) is True
    if not stops or share is None or getattr(last, "solver", "") == "lbfgs":
        return 0
    return math.ceil(share * count) if isinstance(share, float) else int(share)


def _list_estimator_representations(last: BaseEstimator) -> list[str]:
    """The representations that an estimator offers."""
    if not is_classifier(last):
        return ["features", "outputs"]
    if isinstance(last, MLPClassifier):
        return ["features", "probabilities", "logits"]
    return ["features", "probabilities"] if hasattr(last, "predict_proba") else ["features"]


def _make_sample_weight_argument(
    estimator: BaseEstimator, weights: Array, count: int
) -> dict[str, HostArray]:
    """The keyword argument of ``fit`` that carries the weights."""
    last = _get_last_estimator(estimator)
    if not has_fit_parameter(last, "sample_weight"):
        name = type(last).__name__
        raise BadInput(f"{name} cannot be trained with weights; give none or take another model")
    prefix = f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""
    return {f"{prefix}sample_weight": scale_to_mean_one(weights, count)}


def _reissue_sklearn_warnings(caught: Sequence[warnings.WarningMessage]) -> bool:
    """Whether training stopped at its limit; all other warnings go on to the caller."""
    unfinished = False
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            unfinished = True
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return unfinished


def _represent_by_perceptron(
    network: MLPClassifier | MLPRegressor, inputs: Array, names: Sequence[str]
) -> dict[str, Array]:
    """Representations of a multilayer perceptron from one forward pass."""
    activate = _ACTIVATIONS[network.activation]
    hidden = inputs if issparse(inputs) else np.asarray(inputs)
    for matrix, offset in zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True):
        hidden = activate(hidden @ matrix + offset)
    found = {"features": hidden}
    if "features" in names and len(names) == 1:
        return found
    final = hidden @ network.coefs_[-1] + network.intercepts_[-1]
    if isinstance(network, MLPRegressor):
        return found | {"outputs": np.exp(final) if network.out_activation_ == "exp" else final}
    if network.out_activation_ == "logistic":  # two classes share one output
        final = np.hstack([np.zeros_like(final), final])
    return found | {"logits": final, "probabilities": softmax(final, axis=1)}


def _represent_by_estimator(
    last: BaseEstimator, inputs: Array, names: Sequence[str]
) -> dict[str, Array]:
    found: dict[str, Array] = {"features": convert_rows(inputs)}
    if "probabilities" in names:
        found["probabilities"] = last.predict_proba(inputs)
    if "outputs" in names:
        values = np.asarray(last.predict(inputs))
        found["outputs"] = values.reshape(len(values), -1)
    return found
