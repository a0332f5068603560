"""Which rows of a pool are in which part, and which items they are."""

from functools import cached_property

import numpy as np

from labelwise.arrays import Ids
from labelwise.pool.ids import IdIndex, RowNumbers


class Division:
    """Which rows of a pool are in which part, and which items they are.

    Row numbers that serve as ids are never listed, so that a pool of any size costs nothing here;
    ids of one's own are.

    Example:
        >>> import numpy as np
        >>> division = Division(10, 3, labelled=np.array([4]))
        >>> division.cuts
        array([ 0,  3,  6, 10])
        >>> division.owners(np.array([9, 0]))
        array([2, 0])
        >>> division.candidates
        array([0, 1, 2, 3, 5, 6, 7, 8, 9])
    """

    def __init__(
        self,
        count: int,
        parts: int,
        *,
        ids: Ids | None = None,
        labelled: Ids | None = None,
        edges: Ids | None = None,
    ) -> None:
        """Cut ``count`` rows into ``parts`` of equal size, but for one row.

        Args:
            count: how many rows there are.
            parts: how many parts to make, 1 or more.
            ids: ``(count,)`` the items' ids; row numbers if None.
            labelled: ids of the items that are labelled already.
            edges: in increasing order, the only rows before which may be cut; 0 and ``count`` are
                the first and the last. The parts are then of about equal size, and may be fewer.
        """
        self.count, self.ids = count, ids
        self.cuts = np.arange(parts + 1) * count // parts
        if edges is not None:
            self.cuts = np.unique(edges[np.searchsorted(edges, self.cuts)])
        self.labelled = np.empty(0, dtype=np.int64) if labelled is None else labelled
        self._index = IdIndex(RowNumbers(0, count) if ids is None else ids)
        self._labelled_rows = np.sort(self.rows_of(self.labelled))

    def __len__(self) -> int:
        return self.count - len(self.labelled)

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return len(self.cuts) - 1

    @cached_property
    def sizes(self) -> Ids:
        """How many candidates each part has."""
        taken = np.bincount(self._labelled_owners, minlength=self.parts)
        return np.asarray(np.diff(self.cuts) - taken, dtype=np.int64)

    def rows_of(self, ids: Ids) -> Ids:
        """The row numbers of items; an unknown id is an error."""
        return self._index.find_positions(ids).astype(np.int64)

    def owners(self, ids: Ids) -> Ids:
        """The part that each item is in."""
        rows = self.rows_of(ids)
        return np.asarray(np.searchsorted(self.cuts, rows, side="right") - 1, dtype=np.int64)

    @cached_property
    def _labelled_owners(self) -> Ids:
        return self.owners(self.labelled)

    def labelled_in(self, part: int) -> Ids:
        """The labelled items of a part, in the order in which they are given."""
        return np.asarray(self.labelled[self._labelled_owners == part])

    def positions(self, ids: Ids) -> Ids:
        """Where items stand among the candidates."""
        return self._candidates.find_positions(ids).astype(np.int64)

    @cached_property
    def _candidates(self) -> IdIndex:
        if self.ids is None:
            return IdIndex(RowNumbers(0, self.count, self._labelled_rows))
        return IdIndex(np.delete(self.ids, self._labelled_rows))

    @property
    def candidates(self) -> Ids:
        """``(n,)`` ids of all items that are not labelled, in the order of the rows."""
        ids = self._candidates.ids
        return ids.to_array() if isinstance(ids, RowNumbers) else ids
