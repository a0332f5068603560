"""What a model must do for labelwise: be trained with weights, and give representations of items.

A *representation* is a named array with one row per item, computed by a learner and read by
strategies. The list of representations is closed: strategies and learners meet in it, and in
nothing else.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from labelwise.arrays import Array
from labelwise.errors import BadInput, UnknownName

Label = int | float | str
"""A label as people give it: a class name, a class number, or a value."""


@dataclass(frozen=True)
class Representation:
    """A kind of array that learners give and strategies read.

    Attributes:
        name: the keyword under which it is given to `labelwise.select`.
        axes: one letter per axis; the first is always ``n``, the items.
        description: what the numbers mean.
    """

    name: str
    axes: tuple[str, ...]
    description: str

    @property
    def shape(self) -> str:
        """The axes as they are written in text: ``(n, d)``, or ``(n,)`` for a single one."""
        return f"({', '.join(self.axes)}{',' if len(self.axes) == 1 else ''})"


_ALL = (
    Representation("features", ("n", "d"), "one vector per item, usually the last hidden layer"),
    Representation("probabilities", ("n", "K"), "class probabilities; every row sums to 1"),
    Representation("logits", ("n", "K"), "class scores before the softmax"),
    Representation(
        "member_probabilities",
        ("n", "m", "K"),
        "class probabilities under m posterior draws, dropout masks, ensemble members or models",
    ),
    Representation("member_votes", ("n", "m"), "what each of m members predicts: a class or value"),
    Representation("outputs", ("n", "k"), "predicted values of a regression"),
    Representation(
        "gradient_norms",
        ("n",),
        "squared norm of the gradient of the item's loss over the whole network",
    ),
    Representation(
        "gradient_products",
        ("n",),
        "inner product of that gradient with the sum of the labelled items' gradients",
    ),
    Representation(
        "gradient_sketch",
        ("n", "d"),
        "random projection of the gradient of the item's prediction over the whole network",
    ),
    Representation("duals", ("n",), "predicted dual variables of the loss constraints"),
)

REPRESENTATIONS: Mapping[str, Representation] = MappingProxyType({r.name: r for r in _ALL})
"""All representations by name; there are no others."""


def check_names(names: Sequence[str], offered: Sequence[str], who: str) -> None:
    """Reject names that are not representations or that ``who`` does not offer."""
    if isinstance(names, str):
        raise BadInput(f"give a list of representations, such as [{names!r}]; got {names!r}")
    for name in names:
        if name not in REPRESENTATIONS:
            known = ", ".join(REPRESENTATIONS)
            raise UnknownName(f"no representation is called {name!r}; choose from {known}")
        if name not in offered:
            raise UnknownName(f"{who} cannot give {name}; it gives {', '.join(offered)}")


def check_seed(seed: Any, below: int = 2**63) -> int:
    """The seed as an int; reject anything but a whole number from 0 to ``below``.

    >>> check_seed(3)
    3
    """
    try:
        number = operator.index(seed)
    except TypeError:
        raise BadInput(f"seed must be a whole number; got {seed!r}") from None
    if not 0 <= number < below:
        limit = "0 or more" if number < 0 else f"below {below}"
        raise BadInput(f"seed must be {limit}; got {number}")
    return number


@dataclass(frozen=True)
class FitReport:
    """What came of a training.

    Attributes:
        loss: the training loss at the end; NaN where the model does not tell.
        steps: how many passes or iterations were made; 0 where the model does not tell.
        converged: whether training converged before its limit of steps.
        seconds: how long it took.
        training_labels: how many labels it was trained on; 0 where the model does not tell.
        validation_labels: how many more it was stopped by. They were bought too.
    """

    loss: float
    steps: int
    converged: bool
    seconds: float
    training_labels: int = 0
    validation_labels: int = 0


class Learner(Protocol):
    """A model that can be trained and computes representations."""

    def fit(
        self, inputs: Array, targets: Array, weights: Array | None = None, *, seed: int
    ) -> FitReport:
        """Train from the start; an item of weight 2 counts like the same item twice.

        ``inputs`` are ``(m, ...)``, ``targets`` ``(m,)`` classes, or ``(m,)`` or ``(m, k)`` values;
        of the weights ``(m,)`` only the ratios matter. ``seed`` decides all that is random in the
        training.
        """

    def represent(self, inputs: Array, names: Sequence[str]) -> dict[str, Array]:
        """The named representations of ``(n, ...)`` inputs, in one pass over them."""
