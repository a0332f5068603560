"""Pool: items under stable ids, with their inputs and representations."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Ids, is_array, take
from labelwise.errors import BadInput, UnknownName
from labelwise.learner import REPRESENTATIONS
from labelwise.pool.ids import IdIndex, check_ids, encode_keys
from labelwise.pool.representations import count_rows, open_sources, read_stored_ids
from labelwise.pool.sources import Sources


class Pool:
    """Items under ids that never change, with their inputs, their representations, or both.

    Attributes:
        inputs: what a learner takes: an array, a list of paths, a dataset; one entry per item. None
            if the pool has representations only.
        representations: by name; arrays, paths or lists of them, as `labelwise.select` takes them.

    Example:
        >>> pool = Pool(["a.png", "b.png", "c.png"], ids=[10, 20, 30])
        >>> pool.take([30, 10])
        ['c.png', 'a.png']
    """

    def __init__(
        self, inputs: Sequence[Any] | None = None, ids: Any = None, **representations: Any
    ) -> None:
        """Hold the items.

        Args:
            inputs: one entry per item, or None.
            ids: one unique key per item: integers, texts, UUIDs, dates or times. Row numbers (or
                the column ``id`` of a Parquet file) if None.
            **representations: ``features``, ``probabilities`` and so on, one row per item.
        """
        self.inputs: Any = inputs
        self.representations = {k: v for k, v in representations.items() if v is not None}
        self._given_ids = ids
        for name in self.representations:
            if name not in REPRESENTATIONS:
                known = ", ".join(REPRESENTATIONS)
                raise UnknownName(f"no representation is called {name!r}; choose from {known}")
        if inputs is not None:
            self.item_ids  # noqa: B018  a wrong number of ids is reported at once

    def __len__(self) -> int:
        if self.inputs is not None:
            return len(self.inputs)
        if self.representations:
            return count_rows(self.open_sources())
        if self._given_ids is None:
            raise BadInput("the pool is empty: give inputs, representations or ids")
        return len(self._given_ids)

    def open_sources(self, names: Sequence[str] | None = None) -> Sources:
        """Open the named representations (all if None) without reading rows."""
        chosen = self.representations if names is None else names
        return open_sources({name: self.representations[name] for name in chosen})

    @cached_property
    def item_ids(self) -> tuple[Ids, list[Any] | None]:
        """The int64 ids, and the original keys unless they are integers."""
        count = len(self)
        what = "items" if self.inputs is None else "inputs"
        found = self._given_ids
        if found is None and self.inputs is None and self.representations:
            found = read_stored_ids(self.open_sources())
        if found is None:
            return np.arange(count, dtype=np.int64), None
        return check_ids(found, count, what)

    @property
    def ids(self) -> Ids:
        """``(n,)`` int64; a hash of the key where keys are not integers."""
        return self.item_ids[0]

    @property
    def keys(self) -> list[Any]:
        """The keys of the items as they were given: their ids if these are integers."""
        ids, keys = self.item_ids
        return ids.tolist() if keys is None else keys

    @cached_property
    def index(self) -> IdIndex:
        """Positions of items by id."""
        return IdIndex(self.ids)

    def find_positions(self, keys: Any) -> NDArray[np.intp]:
        """The positions of the given items; an unknown key is an error."""
        return self.index.find_positions(encode_keys(keys)[0])

    def take(self, keys: Any) -> Any:
        """The inputs of the given items, in that order, in the form the pool has them."""
        if self.inputs is None:
            raise BadInput("the pool has no inputs; give them to Pool")
        positions = self.find_positions(keys)
        if is_array(self.inputs):
            return take(self.inputs, positions)
        if hasattr(self.inputs, "iloc"):
            return self.inputs.iloc[positions]
        return [self.inputs[position] for position in positions.tolist()]
