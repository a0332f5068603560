"""A campaign's learner: which training it holds, what it predicts, and how it comes back.

The learner is one object that is trained again and again. After a restart, the model of the last
training is read from its checkpoint, or trained again from the record with the seed it had.
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import is_array, namespace, take, to_numpy
from labelwise.campaign.coding import Coding
from labelwise.campaign.training import TrainingSet
from labelwise.errors import BadInput, LabelwiseWarning, UnknownName
from labelwise.learner import FitReport, Learner
from labelwise.pool.pool import Pool
from labelwise.record.events import Label


class Predictions(NamedTuple):
    """Labels of ``n`` items, and how sure of each the model is (None where it does not tell)."""

    labels: list[Label]
    confidence: list[float] | None


class Places:
    """Where the items of a pool stand, by id, and their inputs."""

    def __init__(self, pool: Pool) -> None:
        """Sort the ids once; a dict of a million of them would take a second and 100 MB."""
        assert pool.ids is not None
        self.pool, self.ids = pool, pool.ids
        self._order = np.argsort(self.ids, kind="stable")
        self._sorted = self.ids[self._order]

    def of(self, ids: Any) -> NDArray[np.intp]:
        """The positions of some items; an unknown id is an error."""
        wanted = np.asarray(ids, dtype=np.int64).reshape(-1)
        known = self.known(wanted)
        if not known.all():
            raise UnknownName(f"no item of the pool has id {wanted[~known][0]}; check the ids")
        return self._order[np.searchsorted(self._sorted, wanted)]

    def known(self, ids: Any) -> NDArray[np.bool_]:
        """Which of some ids are in the pool."""
        wanted = np.asarray(ids, dtype=np.int64).reshape(-1)
        if not len(self._sorted):
            return np.zeros(len(wanted), dtype=bool)
        found = np.searchsorted(self._sorted, wanted).clip(max=len(self._sorted) - 1)
        return np.asarray(self._sorted[found] == wanted)

    def inputs(self, ids: Any) -> Any:
        """The inputs of some items, in that order, in the form the pool has them."""
        inputs, positions = self.pool.inputs, self.of(ids)
        if is_array(inputs):
            return take(inputs, positions)
        if hasattr(inputs, "iloc"):
            return inputs.iloc[positions]
        return [inputs[position] for position in positions]


class Model:
    """A learner that knows which training it holds.

    Attributes:
        learner: the user's.
        number: of the training whose model the learner holds, or None.
        coding: how that model's classes are numbered.
        columns: the numbers of the classes it was trained on, in order; none for a regression.
    """

    def __init__(self, learner: Learner, places: Places) -> None:
        """Nothing is trained yet, as far as the campaign knows."""
        self.learner, self.places = learner, places
        self.number: int | None = None
        self.coding = Coding(False, None)
        self.columns: list[int] = []

    def fit(self, number: int, data: TrainingSet, coding: Coding, seed: int) -> FitReport:
        """Train; a failed training leaves no model behind."""
        self.number = None
        ids, labels = list(data.labels), list(data.labels.values())
        targets = coding.encode(labels)
        inputs = self.places.inputs(ids)
        report = self.learner.fit(inputs, targets, data.weights, seed=seed)
        self._hold(number, coding, [] if coding.regression else np.unique(targets).tolist())
        return report

    def load(self, number: int, folder: Path, coding: Coding, columns: list[int]) -> bool:
        """Take the model from a checkpoint, if there is one that the learner can read."""
        if not folder.is_dir() or not hasattr(self.learner, "load"):
            return False
        try:
            self.learner.load(folder)
        except (BadInput, OSError) as error:
            warnings.warn(
                f"the checkpoint {folder} cannot be read ({error}); training again instead",
                LabelwiseWarning,
                stacklevel=2,
            )
            return False
        self._hold(number, coding, list(columns))
        return True

    def save(self, folder: Path) -> bool:
        """Write a checkpoint, if the learner can; a full disk is no reason to lose the training."""
        if not hasattr(self.learner, "save") or not hasattr(self.learner, "load"):
            return False
        try:
            self.learner.save(folder)
        except OSError as error:
            warnings.warn(
                f"the model could not be saved to {folder} ({error}); after a restart it will be "
                "trained again",
                LabelwiseWarning,
                stacklevel=2,
            )
            return False
        return True

    def _hold(self, number: int, coding: Coding, columns: list[int]) -> None:
        self.number, self.coding, self.columns = number, coding, columns

    def offers(self, names: Sequence[str]) -> bool:
        """Whether the trained learner gives these representations."""
        offered = getattr(self.learner, "offered", None)
        if offered is not None:
            return set(names) <= set(offered())
        try:
            self.learner.represent(self.places.inputs(self.places.ids[:1]), list(names))
        except UnknownName:
            return False
        return True

    def represent(self, names: Sequence[str]) -> dict[str, Any]:
        """Representations of the whole pool."""
        return dict(self.learner.represent(self.places.pool.inputs, list(names)))

    def predict(self, ids: Any) -> Predictions | None:
        """Labels of some items; None where the learner has no way to tell."""
        inputs = self.places.inputs(ids)
        name = "outputs" if self.coding.regression else "probabilities"
        if self.offers([name]):
            rows = _one(self.learner.represent(inputs, [name])[name])
            return self._from_rows(rows)
        if not hasattr(self.learner, "predict"):
            return None
        given = np.asarray(to_numpy(self.learner.predict(inputs))).reshape(len(ids), -1)[:, 0]
        return Predictions([self.coding.decode(number) for number in given], None)

    def _from_rows(self, rows: NDArray[Any]) -> Predictions:
        if self.coding.regression:
            return Predictions([float(value) for value in rows[:, 0]], None)
        # Some learners have a column for every class, others only for those they have seen.
        columns = self.columns if rows.shape[1] == len(self.columns) else range(rows.shape[1])
        if self.coding.names is not None:  # a network may have outputs that no class has yet
            rows = rows[:, : len(self.coding.names)]
        best = rows.argmax(axis=1)
        labels = [self.coding.decode(columns[place]) for place in best]
        return Predictions(labels, [float(value) for value in rows.max(axis=1)])


def _one(rows: Any) -> NDArray[Any]:
    """One array of what several models may give: their mean."""
    if isinstance(rows, list | tuple):
        rows = namespace(*rows).mean(namespace(*rows).stack(list(rows)), axis=0)
    return np.asarray(to_numpy(rows))


def plain(value: Any) -> Any:
    """The value as the record can hold it; what is no finite number becomes None."""
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, np.generic):
        return plain(value.item())
    if is_array(value):
        return plain(to_numpy(value).tolist())
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
