"""What a row of Parquet files is, told from their schemas, and its numbers as an array.

A row is one list column, of lists within lists for more than two axes, or all number columns side
by side. A column called ``id`` holds the items' ids, and the index of a pandas table is no number
of an item. All files must say the same, and no number may be missing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.errors import BadInput

ID = "id"
"""The column of the items' ids."""
REMEDY = "give one list column, or only number columns"


class Kind(NamedTuple):
    """What a column holds.

    Attributes:
        dtype: of its numbers; None if they are none.
        lengths: of its lists, the outer ones first; None where they may differ. Empty for none.
    """

    dtype: np.dtype[Any] | None
    lengths: tuple[int | None, ...] = ()


def kind(column_type: Any) -> Kind:
    """What a column of an Arrow type holds."""
    from pyarrow import types

    lengths: list[int | None] = []
    while _is_list(column_type):
        fixed = types.is_fixed_size_list(column_type)
        lengths.append(column_type.list_size if fixed else None)
        column_type = column_type.value_type
    numbers = (types.is_integer, types.is_floating, types.is_boolean)
    if not any(test(column_type) for test in numbers):
        return Kind(None, tuple(lengths))
    return Kind(np.dtype(column_type.to_pandas_dtype()), tuple(lengths))


def _is_list(column_type: Any) -> bool:
    from pyarrow import types

    tests = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(test(column_type) for test in tests)


def own_columns(schema: Any, where: str) -> list[str]:
    """The columns of the items: all but a pandas index, unless that is their id.

    Args:
        schema: of Arrow.
        where: what the file is called in errors.
    """
    told = schema.pandas_metadata or {}
    index = {name for name in told.get("index_columns", ()) if isinstance(name, str)}
    names = [name for name in schema.names if name == ID or name not in index]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"{where} has {names.count(name)} columns called {name!r}; rename them")
    return names


def check_alike(schemas: Sequence[Any], names: Sequence[str], filled: Sequence[bool]) -> int:
    """Refuse files of other columns or types than the first that has rows, whose number it gives.

    Args:
        schemas: of all files.
        names: what the files are called in errors.
        filled: whether a file has rows; of one that has none, the types do not count.
    """
    columns = [own_columns(*pair) for pair in zip(schemas, names, strict=True)]
    first = list(filled).index(True) if any(filled) else 0
    for number, (schema, name) in enumerate(zip(schemas, names, strict=True)):
        if columns[number] != columns[first]:
            raise BadInput(
                f"{name} has the columns {', '.join(columns[number])} but {names[first]} has "
                f"{', '.join(columns[first])}; give files with the same columns"
            )
        for column in columns[first] if filled[number] else []:
            own, other = schema.field(column).type, schemas[first].field(column).type
            if not _fit(kind(own), kind(other)):
                raise BadInput(
                    f"column {column!r} of {name} is of type {own} but that of {names[first]} of "
                    f"type {other}; save them alike"
                )
    return first


def _fit(one: Kind, other: Kind) -> bool:
    """Whether two columns may be one; lists of any length are looked at row by row."""
    if one.dtype != other.dtype or len(one.lengths) != len(other.lengths):
        return False
    pairs = zip(one.lengths, other.lengths, strict=True)
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


@dataclass(frozen=True)
class RowForm:
    """What every row is.

    Attributes:
        columns: that make a row.
        dtype: of its numbers.
        shape: of one row, without the axis of the items.
        lists: whether the only column holds lists.
    """

    columns: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    lists: bool

    @property
    def bytes(self) -> int:
        """How much memory a row takes."""
        return int(self.dtype.itemsize) * int(np.prod(self.shape, dtype=np.int64))

    def numbers(self, batch: Any, first: int, where: str) -> list[NDArray[Any]]:
        """The numbers of some rows, ``(rows, *shape)`` from lists, else ``(rows,)`` per column.

        Args:
            batch: of Arrow.
            first: number of its first row in all files, for errors.
            where: what the files are called in errors.
        """
        columns = [batch.column(name) for name in self.columns]
        if self.lists:
            columns = [self._unnested(columns[0], first, where)]
        inner = math.prod(self.shape) if self.lists else 1
        for name, column in zip(self.columns, columns, strict=True):
            if column.null_count:
                raise _missing("number", first + _first_null(column) // inner, name, where)
        found = [_as_numpy(column) for column in columns]
        return [found[0].reshape(batch.num_rows, *self.shape)] if self.lists else found

    def _unnested(self, lists: Any, first: int, where: str) -> Any:
        """The numbers in lists within lists; all must be there and as long as the others."""
        inner = 1  # so many lists of this depth make a row
        for length in self.shape:
            if lists.null_count:
                row = first + _first_null(lists) // inner
                raise _missing("list", row, self.columns[0], where)
            lengths, lists = opened_lists(lists)
            wrong = np.flatnonzero(lengths != length)
            if len(wrong):
                raise BadInput(
                    f"row {first + int(wrong[0]) // inner} of {where} has a list of "
                    f"{lengths[wrong[0]]} in column {self.columns[0]!r} but others have {length}; "
                    "give lists of one length"
                )
            inner *= length
        return lists

    def put(self, out: NDArray[Any], numbers: Sequence[NDArray[Any]], which: Any) -> None:
        """Write some of the rows that `numbers` gave to ``out``, ``(rows, *shape)``."""
        if self.lists:
            out[...] = numbers[0][which]
            return
        table = out.reshape(len(out), len(self.columns))
        for number, column in enumerate(numbers):
            table[:, number] = column[which]


def opened_lists(lists: Any) -> tuple[NDArray[Any], Any]:
    """How long lists are, and what is in all of them, one after the other."""
    from pyarrow import types

    if types.is_fixed_size_list(lists.type):
        size = lists.type.list_size
        return np.full(len(lists), size), lists.values.slice(lists.offset * size, len(lists) * size)
    offsets = _as_numpy(lists.offsets)
    return np.diff(offsets), lists.values.slice(offsets[0], offsets[-1] - offsets[0])


def _as_numpy(column: Any) -> NDArray[Any]:
    """The numbers of a column, of which none is missing.

    Arrow's own way imports pandas, which takes 40 MB; for bits there is no other.
    """
    if str(column.type) == "bool":
        found: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return found
    return np.from_dlpack(column)


def _first_null(column: Any) -> int:
    return int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])


def _missing(what: str, row: int, column: str, where: str) -> BadInput:
    return BadInput(
        f"row {row} of {where} has no {what} in column {column!r}; fill it in, or leave the row out"
    )


def row_form(
    schema: Any, where: str, lengths: Callable[[str], Sequence[int]], *, flat: bool
) -> RowForm:
    """What every row of files of one schema is.

    Args:
        schema: of Arrow.
        where: what the files are called in errors.
        lengths: finds out the lengths of a column's lists, from its first rows.
        flat: whether a row of one number column is a number, not a vector of one.
    """
    columns = [name for name in own_columns(schema, where) if name != ID]
    if not columns:
        raise BadInput(f"{where} has no column but id; {REMEDY}")
    types = {name: schema.field(name).type for name in columns}
    kinds = {name: kind(column_type) for name, column_type in types.items()}
    lists = [name for name in columns if _is_list(types[name])]
    if lists and len(columns) > 1:
        other = next(name for name in columns if name != lists[0])
        raise BadInput(f"{where} has column {other!r} beside the lists of {lists[0]!r}; {REMEDY}")
    dtypes = []
    for name, (dtype, _) in kinds.items():
        if dtype is None:
            remedy = "leave it out" if len(columns) > 1 else REMEDY
            raise BadInput(f"column {name!r} of {where} is not numeric ({types[name]}); {remedy}")
        dtypes.append(dtype)
    shape: Sequence[int] = () if flat and len(columns) == 1 else (len(columns),)
    if lists:
        fixed = kinds[lists[0]].lengths
        shape = lengths(lists[0]) if None in fixed else [size or 0 for size in fixed]
    return RowForm(tuple(columns), np.result_type(*dtypes), tuple(shape), bool(lists))


def list_lengths(lists: Any, depth: int) -> tuple[int, ...]:
    """How long lists are at every depth, by the first that are not empty; 0 where none is.

    Args:
        lists: of Arrow.
        depth: how many lists are within each other.
    """
    found = []
    for _ in range(depth):
        own, lists = opened_lists(lists)
        found.append(int(own[np.flatnonzero(own)[:1]].sum()))
    return tuple(found)
