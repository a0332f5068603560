"""One model per representation: each learner is trained on its own columns of the inputs."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from labelwise.errors import BadInput
from labelwise.learner import FitReport, Learner
from labelwise.learners.committee import Committee


class ColumnLearner:
    """A learner that sees some columns of ``(n, d)`` inputs.

    Attributes:
        learner: trained on those columns.
        columns: which they are.
    """

    def __init__(self, learner: Learner, columns: slice) -> None:
        """Wrap a learner."""
        self.learner, self.columns = learner, columns

    def fit(self, inputs: Any, targets: Any, weights: Any = None, *, seed: int) -> FitReport:
        """As the learner's, on its columns."""
        return self.learner.fit(inputs[:, self.columns], targets, weights, seed=seed)

    def represent(self, inputs: Any, names: Sequence[str]) -> dict[str, Any]:
        """As the learner's, on its columns."""
        return self.learner.represent(inputs[:, self.columns], names)


def make_column_committee(
    make_learner: Callable[[Any], Learner], inputs: Any, widths: Sequence[int]
) -> Committee:
    """Make a committee of one learner per representation.

    Args:
        make_learner: called with the ``(n, width)`` inputs of a representation.
        inputs: ``(n, d)``, the representations side by side.
        widths: numbers of columns of each; they sum to d.

    Example:
        >>> import numpy as np
        >>> from labelwise.learners.linear_probe import LinearProbe
        >>> inputs = np.random.default_rng(0).normal(size=(40, 5))
        >>> committee = make_column_committee(lambda rows: LinearProbe(), inputs, [2, 3])
        >>> report = committee.fit(inputs, np.arange(40) % 2, seed=0)
        >>> [rows.shape for rows in committee.represent(inputs, ["features"])["features"]]
        [(40, 2), (40, 3)]
    """
    if sum(widths) != inputs.shape[1]:
        raise BadInput(f"the inputs have {inputs.shape[1]} columns, not {sum(widths)}")
    parts = [slice(*ends) for ends in pairwise(accumulate(widths, initial=0))]
    return Committee([ColumnLearner(make_learner(inputs[:, part]), part) for part in parts])
