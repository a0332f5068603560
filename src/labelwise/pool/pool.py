"""Pool: items under stable ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelwise.arrays import Ids
from labelwise.errors import BadInput, UnknownName


def check_ids(ids: Any, count: int, what: str = "items") -> Ids:
    """The ids as int64; refuse a wrong number of them, fractions and repeats."""
    given = np.asarray(ids)
    if given.ndim != 1 or len(given) != count:
        raise BadInput(f"pool has {given.size} ids but {count} {what}; give one id per item")
    result = _whole(given)
    values, counts = np.unique(result, return_counts=True)
    if (counts > 1).any():
        raise BadInput(
            f"pool ids must be unique; id {values[counts > 1][0]} occurs {counts.max()} times"
        )
    return result


def _whole(given: Any) -> Ids:
    """Numbers as int64; refuse names, fractions, and numbers that it cannot hold."""
    try:
        with np.errstate(invalid="ignore"):
            result: Ids = given.astype(np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(
            f"pool ids must be whole numbers below 2**63; got {given[:1].tolist()[0]!r}: keep "
            "names in a column that is not called id, and find them by row number"
        ) from error
    wrong = (result != given) | ((given > 0) != (result > 0))  # what is too large comes round
    if np.any(wrong):
        raise BadInput(f"pool ids must be whole numbers below 2**63; got {given[wrong][0]}")
    return result


@dataclass(frozen=True)
class Pool:
    """Items (any sequence of inputs) under int64 ids that never change.

    Attributes:
        inputs: what a learner takes: an array, a list of paths, a dataset; one entry per item.
        ids: ``(n,)``; row numbers if not given.

    Example:
        >>> import numpy as np
        >>> pool = Pool(["a.png", "b.png", "c.png"], ids=np.array([10, 20, 30]))
        >>> pool.take([30, 10])
        ['c.png', 'a.png']
    """

    inputs: Sequence[Any]
    ids: Ids | None = None

    def __post_init__(self) -> None:
        count = len(self.inputs)
        ids = np.arange(count, dtype=np.int64) if self.ids is None else self.ids
        object.__setattr__(self, "ids", check_ids(ids, count, "inputs"))

    def __len__(self) -> int:
        return len(self.inputs)

    def positions(self, ids: Any) -> Any:
        """Where the given items stand in `inputs`; an unknown id is an error."""
        assert self.ids is not None
        where = {item: position for position, item in enumerate(self.ids.tolist())}
        try:
            return np.array([where[int(item)] for item in ids], dtype=np.intp)
        except KeyError as error:
            raise UnknownName(f"no item of the pool has id {error.args[0]}") from error

    def take(self, ids: Any) -> Any:
        """The inputs of the given items, in that order."""
        positions = self.positions(ids)
        if isinstance(self.inputs, np.ndarray):
            return self.inputs[positions]
        return [self.inputs[position] for position in positions]
