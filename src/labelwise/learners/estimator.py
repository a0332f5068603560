"""scikit-learn's conventions for learners, without importing scikit-learn."""

import inspect
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from labelwise.arrays import Array, HostArray, to_numpy
from labelwise.errors import BadInput


class EstimatorMethods:
    """What pipelines, cross-validation and searches of scikit-learn call.

    `get_params` and `set_params` are for constructors whose arguments become attributes.
    """

    regression: bool

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor."""
        names = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, name) for name in names if name != "self"}

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor."""
        known = self.get_params()
        for name in params:
            if name not in known:
                kind = type(self).__name__
                raise BadInput(f"{kind} has no setting {name!r}; choose from {list(known)}")
        self._change_params(params)
        return self

    def _change_params(self, params: dict[str, Any]) -> None:
        for name, value in params.items():
            setattr(self, name, value)

    def __sklearn_tags__(self) -> Any:
        """The kind of model."""
        from sklearn.utils import ClassifierTags, RegressorTags, Tags, TargetTags

        kind = "regressor" if self.regression else "classifier"
        roles = {
            "classifier_tags": None if self.regression else ClassifierTags(),
            "regressor_tags": RegressorTags() if self.regression else None,
        }
        return Tags(estimator_type=kind, target_tags=TargetTags(required=True), **roles)

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the model is trained."""
        raise NotImplementedError

    def represent(self, inputs: Array, names: Sequence[str]) -> dict[str, Array]:
        """The named representations."""
        raise NotImplementedError

    def predict(self, inputs: Array) -> HostArray:
        """The classes or values, ``(n,)`` or ``(n, k)``."""
        raise NotImplementedError

    def predict_proba(self, inputs: Array) -> HostArray:
        """Class probabilities, ``(n, K)``."""
        return to_numpy(self.represent(inputs, ["probabilities"])["probabilities"])

    def score(self, inputs: Array, targets: Array) -> float:
        """Accuracy, or R2 for a regression."""
        predicted = self.predict(inputs)
        if not self.regression:
            return float(np.mean(predicted == np.asarray(targets)))
        values = np.asarray(targets, dtype=np.float64).reshape(predicted.shape)
        spread = float(np.sum((values - values.mean(axis=0)) ** 2))
        return 1 - float(np.sum((values - predicted) ** 2)) / spread if spread else 0.0
