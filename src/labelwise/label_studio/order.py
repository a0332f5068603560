r"""The order in which Label Studio's "Uncertainty sampling" is to serve tasks, coded as scores.

That queue serves the task with the lowest score first, among those that have a prediction of the
project's model version; it knows nothing else of a selection. So the :math:`r`-th of :math:`n`
picks gets the score :math:`r / 2n`, from 0 to below a half. Tasks that were not picked, if they
are predicted at all, come after them, the least sure first: :math:`(1 + c) / 2` for a confidence
:math:`c`.

A version is written once and never changed. Another one is needed only when a task is to be served
that the last one does not have, or in another order; labels that come in do not change the order
of the rest.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from labelwise.errors import BadInput

ORDER = ".order.json"
PREFIX = "labelwise-"


@dataclass(frozen=True)
class Order:
    """An order of tasks under a model version.

    Attributes:
        number: 1, 2, ...: the version's.
        tasks: In the order in which they are to be served.
        guesses: Whether the model's guesses are written with it.
        done: Whether all of it is known to be written.

    Example:
        >>> order = Order(3, (17, 12, 40))
        >>> order.version, order.score(17), order.score(40), order.score(5)
        ('labelwise-3', 0.0, 0.3333333333333333, 1.0)
    """

    number: int = 0
    tasks: tuple[int, ...] = ()
    guesses: bool = False
    done: bool = True

    @property
    def version(self) -> str:
        """The model version; empty before there is an order."""
        return f"{PREFIX}{self.number}" if self.number else ""

    def score(self, task: int, confidence: float | None = None) -> float:
        """The score of a task: its place, or where it is not in the order, after all that are."""
        place = self._places.get(task)
        if place is not None:
            return place / (2 * len(self.tasks))
        return 1.0 if confidence is None else (1 + min(max(confidence, 0.0), 1.0)) / 2

    @cached_property
    def _places(self) -> dict[int, int]:
        return {task: place for place, task in enumerate(self.tasks)}

    def serves(self, wanted: Sequence[int]) -> bool:
        """Whether this order already serves these tasks, in this order.

        >>> Order(1, (5, 6, 7)).serves([5, 7]), Order(1, (5, 6, 7)).serves([7, 5])
        (True, False)
        """
        rest = iter(self.tasks)
        return all(task in rest for task in wanted)

    def write(self, folder: Path) -> None:
        """Keep it in a folder, whole or not at all."""
        write_json(folder / ORDER, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> "Order":
        """The one that is kept in a folder; an empty one if there is none yet."""
        path = folder / ORDER
        if not path.exists():
            return cls()
        held = read_json(path)
        try:
            return cls(**{**held, "tasks": tuple(held["tasks"])})
        except (KeyError, TypeError) as error:
            raise BadInput(f"{path} holds no order of tasks ({error}); delete it") from None


def newest(versions: Iterable[str]) -> int:
    """The number of the newest of our versions among all of a project's.

    >>> newest(["labelwise-2", "labelwise-10", "bert", "labelwise-x"])
    10
    """
    found = (re.fullmatch(rf"{PREFIX}(\d{{1,9}})", version) for version in versions)
    return max((int(match[1]) for match in found if match), default=0)


def write_json(path: Path, value: Any) -> None:
    """Write a file, whole or not at all."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path} is damaged ({error})") from None
    if not isinstance(held, dict):
        raise BadInput(f"{path} is damaged: it holds no object")
    return held
