"""What users give as rows, converted to arrays: tables, columns, lists and arrays of any library.

NumPy arrays, torch tensors, SciPy sparse matrices, paths and URLs stay as they are. The first axis
is always the item, and a list of arrays has one per model.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import array_api_compat
import numpy as np

from labelwise.arrays import Array, HostArray, Positions, namespace, precision
from labelwise.errors import BadInput, UnknownName, first_line
from labelwise.learner import REPRESENTATIONS
from labelwise.pool.sources.parquet import ID, KeyedPath
from labelwise.pool.sources.remote_files import is_remote
from labelwise.pool.sources.source import Given, Values


def convert_representations(
    values: Values, id_column: str = ID
) -> tuple[dict[str, Given], HostArray | None]:
    """Convert every representation, and return the column of ids of the tables among them."""
    converted, ids = {}, None
    for name, value in values.items():
        if _is_table(value):
            columns, column_ids = _split_table(value, name, id_column)
            converted[name] = columns
            if column_ids is not None and ids is not None and not np.array_equal(ids, column_ids):
                raise BadInput(
                    f"{name} and another table do not list the same ids in the same order; sort "
                    f"both by {id_column}"
                )
            ids = column_ids if ids is None else ids
        else:
            converted[name] = convert_rows_given(_name_id_column(value, id_column), name)
    return converted, ids


def _name_id_column(value: Given, id_column: str) -> Given:
    """Paths with the column that holds the ids; tables of several models without it."""
    if id_column == ID:
        return value
    if isinstance(value, str | Path):
        return KeyedPath(str(value), id_column)
    if not isinstance(value, list | tuple):
        return value
    return [
        _split_table(part, "a table", id_column)[0]
        if _is_table(part)
        else _name_id_column(part, id_column)
        if isinstance(part, str | Path)
        else part
        for part in value
    ]


def convert_rows_given(value: Given, name: str) -> Given:
    """Convert one representation to an array, or a list of arrays with one per model.

    A list of numbers, of rows of numbers or of one-dimensional arrays is one array. For members, a
    list of arrays with one axis less than expected has one per member.

    Example:
        >>> convert_rows_given([[1, 2], [3, 4], [5, 6]], "features").shape
        (3, 2)
        >>> convert_rows_given([np.zeros((5, 3)), np.ones((5, 3))], "member_probabilities").shape
        (5, 2, 3)
    """
    if not isinstance(value, list | tuple):
        return _convert_array(value, name)
    expected = REPRESENTATIONS.get(name)
    axes = len(expected.axes) if expected else 2
    if not value or any(isinstance(part, str | Path) or is_remote(part) for part in value):
        return value
    if all(isinstance(part, list | tuple) or np.isscalar(part) for part in value):
        array = _stack_numbers(value, name)
        return list(array) if array.ndim == axes + 1 else array
    parts = [_convert_array(_split_ids(part, name), name) for part in value]
    depths = {getattr(part, "ndim", None) for part in parts}
    if depths == {axes - 1} and axes > 1:
        return _join(parts, name, axis=1 if name.startswith("member_") else 0, new=True)
    if depths == {axes} and name == "member_probabilities":  # one array, also for several models
        return _join(parts, name, axis=1, new=False)
    return parts


def _join(parts: Sequence[Array], name: str, *, axis: int, new: bool) -> Array:
    """Stack arrays along a new axis, or concatenate them along an existing one."""
    try:
        xp = namespace(*parts)
        return (xp.stack if new else xp.concat)(list(parts), axis=axis)
    except (ValueError, TypeError, RuntimeError) as error:
        shapes = ", ".join(str(tuple(part.shape)) for part in parts[:3])
        raise BadInput(
            f"{name} is a list of arrays that do not fit together (shapes {shapes}, ...); give "
            "arrays of one library and shape"
        ) from error


def _stack_numbers(rows: Sequence[Any], name: str) -> HostArray:
    try:
        return np.asarray(rows)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadInput(
            f"{name} is a list of rows that do not form an array ({first_line(error)}); give rows "
            "of equal length"
        ) from error


def _convert_array(value: Given, name: str) -> Given:
    """Convert columns and arrays of other libraries; others are returned as they are."""
    if isinstance(value, np.ndarray | str | Path) or is_remote(value) or is_sparse_matrix(value):
        return value
    if array_api_compat.is_torch_array(value):
        return _check_tensor(value, name)
    if _is_table(value):
        return _split_table(value, name)[0]
    try:
        if hasattr(value, "__array__"):
            return np.asarray(value)
        if hasattr(value, "__dlpack__"):
            on_host = value.__dlpack_device__()[0] == 1
            if on_host:
                return np.from_dlpack(value)
            from labelwise.pool.sources.device_blocks import import_dlpack

            return import_dlpack(value)
    except (ValueError, TypeError, RuntimeError, BufferError, ImportError) as error:
        raise BadInput(
            f"{name}: {type(value).__name__} cannot be converted to an array "
            f"({first_line(error)}); give a NumPy array or a torch tensor"
        ) from error
    return value


def _check_tensor(tensor: Any, name: str) -> Array:
    if str(tensor.layout) != "torch.strided":
        raise BadInput(f"{name} is a sparse tensor; give {name}.to_dense()")
    if tensor.is_quantized:
        raise BadInput(f"{name} is a quantized tensor; give {name}.dequantize()")
    if tensor.is_meta:
        raise BadInput(f"{name} is a tensor on the meta device, without numbers; give a real one")
    return tensor


def _is_table(value: object) -> bool:
    """Whether a value is a table of pandas, polars or pyarrow."""
    named = hasattr(value, "columns") or hasattr(value, "column_names")
    return named and hasattr(value, "shape") and not isinstance(value, np.ndarray)


def _split_ids(value: Given, name: str) -> Given:
    return _split_table(value, name)[0] if _is_table(value) else value


def _split_table(table: Any, name: str, id_column: str = ID) -> tuple[HostArray, HostArray | None]:
    """The numbers of a table's columns ``(n, d)``, and its column of ids if it has one.

    A representation with one number per item takes the only column, ``(n,)``.
    """
    labels = list(getattr(table, "column_names", None) or table.columns)
    arrays = {label: np.asarray(_read_column(table, label)) for label in labels}
    ids = arrays.pop(id_column, None)
    if ids is None and id_column != ID:
        raise UnknownName(
            f"{name} has no column {id_column!r} with ids; it has {', '.join(map(str, labels))}"
        )
    for label, column in arrays.items():
        texts = column.dtype.kind == "O" and any(isinstance(v, str | bytes) for v in column)
        try:
            if texts or column.dtype.kind not in "fiubO":
                raise TypeError
            arrays[label] = column if column.dtype.kind != "O" else column.astype(np.float64)
        except (TypeError, ValueError):
            raise BadInput(
                f"{name}: column {label!r} holds values that are not numbers; leave it out"
            ) from None
    if not arrays:
        raise BadInput(f"{name} is a table without columns of numbers; give at least one")
    columns = list(arrays.values())
    if len(columns) == 1 and name in REPRESENTATIONS and len(REPRESENTATIONS[name].axes) == 1:
        return columns[0], ids
    return np.stack(columns, axis=1), ids


def _read_column(table: Any, label: Any) -> Any:
    column = table[label]
    if getattr(column, "ndim", 1) > 1:
        raise BadInput(f"the table has several columns called {label!r}; rename them")
    return column


def is_sparse_matrix(value: object) -> bool:
    """Whether a value is a SciPy sparse matrix or array, without importing SciPy's module."""
    return hasattr(value, "toarray") and hasattr(value, "nnz") and hasattr(value, "tocsr")


class SparseSource:
    """A SciPy sparse matrix; the rows of one block at a time are dense."""

    in_memory, is_numpy, held_bytes = False, True, 0

    def __init__(self, matrix: Any) -> None:
        """Read from ``matrix``, ``(n, d)``."""
        self._matrix = matrix.tocsr()
        self.shape: tuple[int, ...] = tuple(matrix.shape)
        self.bytes_per_row = int(matrix.dtype.itemsize) * math.prod(self.shape[1:])
        self.precision = precision(np.empty(0, dtype=matrix.dtype))

    def read(self, first: int, last: int) -> Array:
        """Rows ``first`` to ``last - 1``, dense."""
        return self._matrix[first:last].toarray()

    def take(self, positions: Positions) -> Array:
        """The rows at the given positions, dense."""
        return self._matrix[positions].toarray()
