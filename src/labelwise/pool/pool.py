"""Pool: items under stable ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Ids, is_array, take
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

    @cached_property
    def index(self) -> "IdIndex":
        """Positions of items by id."""
        assert self.ids is not None
        return IdIndex(self.ids)

    def find_positions(self, ids: Any) -> NDArray[np.intp]:
        """The positions of the given items; an unknown id is an error."""
        return self.index.find_positions(ids)

    def take(self, ids: Any) -> Any:
        """The inputs of the given items, in that order, in the form the pool has them."""
        inputs: Any = self.inputs
        positions = self.find_positions(ids)
        if is_array(inputs):
            return take(inputs, positions)
        if hasattr(inputs, "iloc"):
            return inputs.iloc[positions]
        return [inputs[position] for position in positions.tolist()]


class IdIndex:
    """Positions of items by id: a binary search in the sorted ids."""

    def __init__(self, ids: Ids) -> None:
        """Sort the ids once."""
        self._order = np.argsort(ids, kind="stable")
        self._sorted = ids[self._order]

    def contains(self, ids: Any) -> NDArray[np.bool_]:
        """Which of some ids belong to an item."""
        wanted = np.asarray(ids, dtype=np.int64).reshape(-1)
        if not len(self._sorted):
            return np.zeros(len(wanted), dtype=bool)
        found = np.searchsorted(self._sorted, wanted).clip(max=len(self._sorted) - 1)
        return np.asarray(self._sorted[found] == wanted)

    def find_positions(self, ids: Any) -> NDArray[np.intp]:
        """The positions of some items, in that order; an unknown id is an error."""
        wanted = np.asarray(ids, dtype=np.int64).reshape(-1)
        known = self.contains(wanted)
        if not known.all():
            raise UnknownName(f"no item of the pool has id {wanted[~known][0]}; check the ids")
        return self._order[np.searchsorted(self._sorted, wanted)]
