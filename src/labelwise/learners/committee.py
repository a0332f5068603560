"""Several models as one learner, for selections that must serve all of them.

============================================  =====================================================
representation                                what a committee gives
============================================  =====================================================
features, probabilities, logits, outputs, ..  a list of arrays, one per model (lewis, entropy, ...)
member_probabilities                          one array ``(n, M, K)``: the models, or their members
member_votes                                  ``(n, M)``, one vote per model; a list of ``(n, T)``,
                                              one per model, if any model has members (disagreement)
============================================  =====================================================

Reference: S. Huang, Y. Li, Y. Sun, Y. Tang, "One-shot Active Learning Based on Lewis Weight
Sampling for Multiple Deep Models", ICLR 2024, for one selection for several models.
"""

import inspect
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import namespace, to_numpy
from labelwise.errors import BadInput, UnknownName
from labelwise.learner import REPRESENTATIONS, FitReport, Learner, check_names, check_seed

INSTEAD = {
    "member_probabilities": ("probabilities",),
    "member_votes": ("probabilities", "outputs"),
}
"""What a model without members is asked for, the first that it has."""


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
        """Put learners together.

        Args:
            learners: two or more, of any kind, all for the same task.
            names: what to call them in errors and folders; ``model_0``, ``model_1``, ... if None.
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

    def fit(self, inputs: Any, targets: Any, weights: Any = None, *, seed: int) -> FitReport:
        """Train every learner, each with a seed of its own that follows from ``seed``.

        Args:
            inputs: ``(m, ...)``, as every learner takes them.
            targets: ``(m,)`` classes, or ``(m,)`` or ``(m, k)`` values.
            weights: ``(m,)``, not negative.
            seed: decides all that is random.

        Returns:
            The mean loss, the most steps, whether all converged, the seconds of all together, and
            the most labels that any used. `reports` holds every learner's own.
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

    def represent(
        self, inputs: Any, names: Sequence[str], *, folder: str | Path | None = None
    ) -> dict[str, Any]:
        """The named representations by all models, in one pass of each over the inputs.

        Args:
            inputs: ``(n, ...)``, as every learner takes them.
            names: which representations.
            folder: where to put them as files, in a folder per model.

        Raises:
            UnknownName: a name is not a representation, or one of the learners cannot give it.
            BadInput: the learners disagree on the number of classes.
        """
        check_names(names, list(REPRESENTATIONS), "a committee")
        given: dict[str, list[_GivenRows]] = {name: [] for name in names}
        for called, learner in self.learners.items():
            place = None if folder is None else Path(folder) / called
            sources, rows = _represent_member(called, learner, inputs, names, place)
            for name, source in zip(names, sources, strict=True):
                found = rows[source]
                arrays = found if isinstance(found, list) else [found]
                given[name] += [_GivenRows(called, source, array) for array in arrays]
        return {name: _combine_rows(name, parts, folder) for name, parts in given.items()}


class _GivenRows(NamedTuple):
    """What one model gave, and under which name."""

    called: str
    source: str
    array: Any


def _represent_member(
    called: str, learner: Learner, inputs: Any, names: Sequence[str], folder: Path | None
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """A model's rows, and which of them serves for each name.

    A learner says by `UnknownName`, before it begins, that it cannot give something; then it is
    asked for the next best.
    """
    error = None
    for sources in product(*((name, *INSTEAD.get(name, ())) for name in names)):
        try:
            return sources, _rename_rows(learner, inputs, list(dict.fromkeys(sources)), folder)
        except UnknownName as refused:
            error = refused
    wanted = " and ".join(names)
    raise UnknownName(f"{called} cannot give {wanted} to a committee: {error}") from error


def _rename_rows(
    learner: Learner, inputs: Any, names: list[str], folder: Path | None
) -> dict[str, Any]:
    """A learner's rows, in memory or in files."""
    if folder is None:
        return learner.represent(inputs, names)
    if "folder" in inspect.signature(learner.represent).parameters:
        streaming: Any = learner
        found: dict[str, Any] = streaming.represent(inputs, names, folder=folder)
        return found
    rows = learner.represent(inputs, names)
    return {name: _store_array([np.asarray(to_numpy(rows[name]))], folder, name) for name in names}


def _combine_rows(name: str, parts: list[_GivenRows], folder: str | Path | None) -> Any:
    """What a committee gives under a name."""
    _check_members(parts)
    if name not in INSTEAD:
        return [part.array for part in parts]
    if name == "member_probabilities":
        columns = [a[:, None] if a.ndim == 2 else a for _, _, a in parts]
        return _join_arrays(columns, folder, name)
    votes = [_stack_votes(part) for part in parts]
    if any(part.source == name for part in parts):
        return votes
    if len({array.dtype.kind for array in votes}) > 1:
        raise BadInput("some learners vote for classes and some for values; take one task")
    return _join_arrays(votes, folder, name)


def _stack_votes(given: _GivenRows) -> Any:
    """``(n, T)`` votes of a model with members, ``(n, 1)`` of one without."""
    if given.source == "member_votes":
        return given.array
    values = np.asarray(to_numpy(given.array))
    if given.source == "probabilities":
        return values.argmax(axis=1)[:, None]
    if values.shape[1] != 1:
        raise BadInput(
            f"{given.called} gives {values.shape[1]} outputs, and a vote is one value; ask for "
            "outputs"
        )
    return values


def _check_members(parts: list[_GivenRows]) -> None:
    """Refuse models that do not speak of the same items or the same classes."""
    counts = {part.called: len(part.array) for part in parts}
    if len(set(counts.values())) > 1:
        raise BadInput(f"the learners give different numbers of rows: {counts}")
    kinds = ("probabilities", "logits", "member_probabilities")
    classes = {part.called: part.array.shape[-1] for part in parts if part.source in kinds}
    if len(set(classes.values())) > 1:
        raise BadInput(
            f"the learners disagree on the number of classes: {classes}; train all on items of "
            "every class (scikit-learn models know those they were shown)"
        )


def _join_arrays(arrays: list[Any], folder: str | Path | None, name: str) -> Any:
    """Arrays side by side along their second axis."""
    if folder is not None:
        return _store_array([np.asarray(to_numpy(array)) for array in arrays], Path(folder), name)
    if len({(type(array), str(getattr(array, "device", ""))) for array in arrays}) > 1:
        arrays = [np.asarray(to_numpy(array)) for array in arrays]
    return namespace(*arrays).concat(arrays, axis=1)


def _store_array(arrays: list[NDArray[Any]], folder: Path, name: str) -> NDArray[Any]:
    """Arrays side by side in ``folder/NAME.npy``, which has its name only when it is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{name}.npy.partial"
    dtype = np.result_type(*arrays)
    shape = arrays[0].shape
    if len(arrays) > 1:
        shape = (shape[0], sum(array.shape[1] for array in arrays), *shape[2:])
    file = np.lib.format.open_memmap(partial, mode="w+", dtype=dtype, shape=shape)
    if len(arrays) == 1:
        file[:] = arrays[0]
    else:
        np.concatenate(arrays, axis=1, out=file)
    file.flush()
    del file
    partial.replace(folder / f"{name}.npy")
    stored: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r")
    return stored
