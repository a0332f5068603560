"""Pool: items under stable ids, with their inputs and representations."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Ids, is_array, take
from labelwise.errors import BadInput, UnknownName
from labelwise.learner import REPRESENTATIONS
from labelwise.pool.ids import IdIndex, Key, Keys, RowNumbers, check_pool_ids, encode_keys
from labelwise.pool.representations import (
    convert_representations,
    count_rows,
    flatten_sources,
    open_sources,
    read_stored_ids,
)
from labelwise.pool.sources.parquet import ID
from labelwise.pool.sources.source import Given, Sources

Inputs = Any  # What a learner takes, one entry per item: an array, a list of paths, a dataset


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

        >>> import labelwise
        >>> features = np.arange(5.0)[:, None]  # 0 1 2 3 4 on a line
        >>> pool = Pool(features=features, ids=["ant", "bee", "cat", "dog", "elk"])
        >>> labelwise.select("k_center", 2, pool=pool, labelled=["ant"]).keys
        ['elk', 'cat']
    """

    def __init__(
        self,
        inputs: Inputs | None = None,
        ids: Keys = None,
        *,
        id_column: str = ID,
        **representations: Given,
    ) -> None:
        """Hold the items.

        Args:
            inputs: one entry per item, or None.
            ids: one unique key per item: numbers, texts, UUIDs, dates or times. Row numbers (or the
                column ``id`` of a table or Parquet file) if None.
            id_column: the column of tables and Parquet files that holds the keys.
            **representations: ``features``, ``probabilities`` and so on, one row per item.
        """
        self.inputs: Inputs = inputs
        self.id_column = id_column
        self._checked_ids: tuple[Ids, list[Key] | None] | None = None
        given = {k: v for k, v in representations.items() if v is not None}
        for name in given:
            if name not in REPRESENTATIONS:
                known = ", ".join(REPRESENTATIONS)
                raise UnknownName(f"no representation is called {name!r}; choose from {known}")
        plain = all(isinstance(value, np.ndarray) for value in given.values())
        self.representations, table_ids = (
            (given, None) if plain else convert_representations(given, id_column)
        )
        self._given_ids = table_ids if ids is None else ids
        if inputs is not None:
            self._resolved  # noqa: B018  wrong ids are reported at once

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
        if not chosen:
            return {}
        sources = open_sources({name: self.representations[name] for name in chosen})
        if self.inputs is not None and count_rows(sources) != len(self.inputs):
            raise BadInput(
                f"pool has {len(self.inputs)} inputs but {next(iter(chosen))} has "
                f"{count_rows(sources)} rows; give one row per item"
            )
        return sources

    @property
    def has_ids(self) -> bool:
        """Whether the items are known without representations."""
        return self.inputs is not None or self._given_ids is not None

    def resolve_ids(self, sources: Sources) -> tuple[Ids | RowNumbers, list[Key] | None]:
        """The int64 ids, and the original keys unless they are integers.

        Opened sources may store ids.
        """
        every, stored = [source for _, source in flatten_sources(sources)], None
        if not all(source.in_memory for source in every):
            stored = read_stored_ids(sources)  # files in different orders are rejected in any case
        given, count = self._given_ids, every[0].shape[0] if every else len(self)
        if isinstance(given, range) and given.step == 1 and len(given) == count:
            return RowNumbers(given.start, given.stop), None
        if given is None and stored is None and self.id_column != ID:
            raise BadInput(
                f"there is no table or Parquet file with the ids in a column {self.id_column!r}"
            )
        if given is None:
            return (RowNumbers(0, count), None) if stored is None else check_pool_ids(stored, count)
        if self._checked_ids is None or len(self._checked_ids[0]) != count:
            self._checked_ids = check_pool_ids(
                given, count, "items" if self.inputs is None else "inputs"
            )
        return self._checked_ids

    @cached_property
    def _resolved(self) -> tuple[Ids, list[Key] | None]:
        ids, keys = self.resolve_ids({} if self.inputs is not None else self.open_sources())
        return ids.to_array() if isinstance(ids, RowNumbers) else ids, keys

    @property
    def ids(self) -> Ids:
        """``(n,)`` int64; a hash of the key where keys are not integers."""
        return self._resolved[0]

    @property
    def keys(self) -> list[Key]:
        """The keys of the items as they were given: their ids if these are integers."""
        ids, keys = self._resolved
        return ids.tolist() if keys is None else keys

    @property
    def has_keys(self) -> bool:
        """Whether some ids are not whole numbers, so that `ids` holds their hashes."""
        return self._resolved[1] is not None

    @cached_property
    def index(self) -> IdIndex:
        """Positions of items by id."""
        return IdIndex(self.ids)

    def find_positions(self, keys: Keys) -> NDArray[np.intp]:
        """The positions of the given items; an unknown key is an error."""
        ids, listed = encode_keys(keys)
        positions = self.index.find_positions(ids, missing=-1)
        if (positions < 0).any():
            place = int(np.argmin(positions))
            shown = ids[place] if listed is None else repr(listed[place])
            raise UnknownName(f"no item of the pool has id {shown}; check the ids")
        return positions

    def take(self, keys: Keys) -> Inputs:
        """The inputs of the given items, in that order, in the form the pool has them."""
        if self.inputs is None:
            raise BadInput("the pool has no inputs; give them to Pool")
        return take_items(self.inputs, self.find_positions(keys))


def take_items(inputs: Inputs, positions: NDArray[np.intp]) -> Inputs:
    """The items at some positions, in the form that the inputs have: array, table or list."""
    if is_array(inputs):
        return take(inputs, positions)
    if hasattr(inputs, "iloc"):  # pandas
        return inputs.iloc[positions]
    if hasattr(inputs, "columns"):  # pyarrow and polars
        return inputs.take(positions) if hasattr(inputs, "take") else inputs[positions]
    return [inputs[position] for position in positions.tolist()]
