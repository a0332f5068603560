"""Several models as one learner, for selections that must serve all of them.

============================================  =====================================================
representation                                rows of a committee
============================================  =====================================================
features, probabilities, logits, outputs, ..  a list of arrays, one per model (lewis, entropy, ...)
member_probabilities                          one array ``(n, M, K)``: the models, or their members
member_votes                                  ``(n, M)``, one vote per model; a list of ``(n, T)``,
                                              one per model, if any model has members (disagreement)
============================================  =====================================================

`make_column_committee` makes one model per representation, each of which sees its own columns.

Reference: S. Huang, Y. Li, Y. Sun, Y. Tang, "One-shot Active Learning Based on Lewis Weight
Sampling for Multiple Deep Models", ICLR 2024, for one selection for several models.
"""

import re
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise, product
from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import Array, namespace, to_numpy
from labelwise.errors import BadInput, UnknownName
from labelwise.learner import REPRESENTATIONS, FitReport, Learner, check_names, check_seed

INSTEAD = {"member_probabilities": ("probabilities",), "member_votes": ("probabilities", "outputs")}
"""Representations that replace these for a model without members, in order of preference."""


class Committee:
    """Train different learners on the same items, and represent items by all of them.

    Example:
        >>> import numpy as np
        >>> from sklearn.linear_model import LogisticRegression
        >>> from torch import nn
        >>> import labelwise
        >>> from labelwise.learners.sklearn_learner import SklearnLearner
        >>> from labelwise.learners.torch_learner import TorchLearner
        >>> inputs = np.random.default_rng(0).normal(size=(60, 4))
        >>> targets = (inputs[:, 0] > 0).astype(int)
        >>> make = lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> models = [TorchLearner(make, epochs=10), SklearnLearner(LogisticRegression)]
        >>> committee = Committee(models, names=["network", "linear"])
        >>> report = committee.fit(inputs[:20], targets[:20], seed=0)
        >>> features = committee.represent(inputs, ["features"])["features"]
        >>> [array.shape for array in features]
        [(60, 8), (60, 4)]
        >>> len(labelwise.select("lewis", 10, features=features, seed=0).ids)
        10
    """

    def __init__(self, learners: Sequence[Learner], *, names: Sequence[str] | None = None) -> None:
        """Combine learners.

        Args:
            learners: two or more, of any kind, all for the same task.
            names: their names in errors and folders; ``model_0``, ``model_1``, ... if None.
        """
        models = list(learners)
        if len(models) < 2:
            raise BadInput(f"a committee has two learners or more; got {len(models)}")
        if len({id(model) for model in models}) < len(models):
            raise BadInput("the same learner is given twice; make one object per model")
        called = [f"model_{j}" for j in range(len(models))] if names is None else list(names)
        if len(called) != len(models) or len(set(called)) < len(called):
            raise BadInput(f"give {len(models)} different names, one per learner; got {called}")
        for name in called:
            if not isinstance(name, str) or not re.fullmatch(r"[\w-]+", name):
                raise BadInput(f"a name is made of letters, digits, _ and -; got {name!r}")
        self.learners: dict[str, Learner] = dict(zip(called, models, strict=True))
        self.reports: dict[str, FitReport] = {}

    def fit(
        self, inputs: Array, targets: Array, weights: Array | None = None, *, seed: int = 0
    ) -> FitReport:
        """Train every learner with its own seed; the arguments are those of `TorchLearner.fit`.

        Reports the mean loss, the most steps, whether all converged, and the total seconds;
        `reports` holds the report of every learner.
        """
        self.reports, seed = {}, check_seed(seed)
        for number, (name, learner) in enumerate(self.learners.items()):
            own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
            self.reports[name] = learner.fit(inputs, targets, weights, seed=own)
        reports = list(self.reports.values())
        return FitReport(
            loss=float(np.mean([report.loss for report in reports])),
            steps=max(report.steps for report in reports),
            converged=all(report.converged for report in reports),
            seconds=sum(report.seconds for report in reports),
            training_labels=max(report.training_labels for report in reports),
            validation_labels=max(report.validation_labels for report in reports),
        )

    def represent(self, inputs: Array, names: Sequence[str]) -> dict[str, Array]:
        """The named representations by all models, in one pass of each over the inputs."""
        check_names(names, list(REPRESENTATIONS), "a committee")
        given: dict[str, list[_ModelRows]] = {name: [] for name in names}
        for called, learner in self.learners.items():
            sources, rows = _represent_committee_member(called, learner, inputs, names)
            for name, source in zip(names, sources, strict=True):
                found = rows[source]
                arrays = found if isinstance(found, list) else [found]
                given[name] += [_ModelRows(called, source, array) for array in arrays]
        return {name: _combine_committee_rows(name, parts) for name, parts in given.items()}


class _ModelRows(NamedTuple):
    """Rows of one model and the representation that they are."""

    model: str
    source: str
    array: Array


def _represent_committee_member(
    model: str, learner: Learner, inputs: Array, names: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, Array]]:
    """A model's rows, and which of them serves for each name.

    A learner raises `UnknownName` before it starts if it cannot give a representation; then the
    next alternative is tried.
    """
    error = None
    for sources in product(*((name, *INSTEAD.get(name, ())) for name in names)):
        wanted = list(dict.fromkeys(sources))
        try:
            return sources, learner.represent(inputs, wanted)
        except UnknownName as refused:
            error = refused
    wanted_text = " and ".join(names)
    raise UnknownName(f"{model} cannot give {wanted_text} to a committee: {error}") from error


def _combine_committee_rows(name: str, parts: list[_ModelRows]) -> Array | list[Array]:
    """The committee's rows of one representation."""
    _check_committee_rows(parts)
    if name not in INSTEAD:
        return [part.array for part in parts]
    if name == "member_probabilities":
        arrays = [part.array[:, None] if part.array.ndim == 2 else part.array for part in parts]
    else:
        arrays = [_stack_committee_votes(part) for part in parts]
        if any(part.source == name for part in parts):
            return arrays
        if len({array.dtype.kind for array in arrays}) > 1:
            raise BadInput("some learners vote for classes and some for values; take one task")
    if len({(type(array), str(getattr(array, "device", ""))) for array in arrays}) > 1:
        arrays = [to_numpy(array) for array in arrays]
    return namespace(*arrays).concat(arrays, axis=1)


def _stack_committee_votes(rows: _ModelRows) -> Array:
    """``(n, T)`` votes of a model with members, ``(n, 1)`` of one without."""
    if rows.source == "member_votes":
        return rows.array
    values = to_numpy(rows.array)
    if rows.source == "probabilities":
        return values.argmax(axis=1)[:, None]
    if values.shape[1] != 1:
        raise BadInput(
            f"{rows.model} gives {values.shape[1]} outputs, and a vote is one value; ask for "
            "outputs"
        )
    return values


def _check_committee_rows(parts: list[_ModelRows]) -> None:
    """Reject models with different numbers of rows or classes."""
    counts = {part.model: len(part.array) for part in parts}
    if len(set(counts.values())) > 1:
        raise BadInput(f"the learners give different numbers of rows: {counts}")
    kinds = ("probabilities", "logits", "member_probabilities")
    classes = {part.model: part.array.shape[-1] for part in parts if part.source in kinds}
    if len(set(classes.values())) > 1:
        raise BadInput(
            f"the learners disagree on the number of classes: {classes}; train all on items of "
            "every class (scikit-learn models know those they were shown)"
        )


class ColumnLearner:
    """A learner that sees some columns of ``(n, d)`` inputs."""

    def __init__(self, learner: Learner, columns: slice) -> None:
        """Wrap a learner."""
        self.learner, self.columns = learner, columns

    def fit(self, inputs: Any, targets: Any, weights: Any = None, *, seed: int = 0) -> FitReport:
        """As the learner's, on its columns."""
        return self.learner.fit(inputs[:, self.columns], targets, weights, seed=seed)

    def represent(self, inputs: Any, names: Sequence[str]) -> dict[str, Array]:
        """As the learner's, on its columns."""
        return self.learner.represent(inputs[:, self.columns], names)


def make_column_committee(
    make_learner: Callable[[Any], Learner], inputs: Any, widths: Sequence[int]
) -> Committee:
    """Make a committee of one learner per representation.

    ``inputs`` ``(n, d)`` has the representations side by side, with ``widths`` columns each;
    ``make_learner`` is called with the ``(n, width)`` inputs of each.
    """
    if sum(widths) != inputs.shape[1]:
        raise BadInput(f"the inputs have {inputs.shape[1]} columns, not {sum(widths)}")
    parts = [slice(*ends) for ends in pairwise(accumulate(widths, initial=0))]
    return Committee([ColumnLearner(make_learner(inputs[:, part]), part) for part in parts])
