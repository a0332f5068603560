"""The named representations of a pool: convert what users give, open it as sources, check rows.

NumPy arrays, torch tensors, SciPy sparse matrices, paths and URLs stay as they are; tables, lists
and arrays of other libraries become NumPy arrays. The first axis is always the item, and a list of
arrays has one per model. Rows must be real and finite, and probabilities where their name says so.
A message names the representation, the item and what to do.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import array_api_compat
import numpy as np

from labelwise.arrays import (
    Array,
    HostArray,
    Ids,
    Positions,
    device,
    is_array,
    namespace,
    precision,
    to_numpy,
    working,
)
from labelwise.errors import BadInput, UnknownName, first_line
from labelwise.learner import REPRESENTATIONS
from labelwise.pool.sources.file_patterns import find_row_files
from labelwise.pool.sources.parquet import ID, KeyedPath, ParquetSource
from labelwise.pool.sources.remote_files import is_remote, open_remote
from labelwise.pool.sources.source import (
    ArraySource,
    Given,
    JoinedSource,
    MappedSource,
    NpySource,
    Source,
    Sources,
    Values,
)

SUM_TOLERANCE = 4e-3
"""Largest deviation of a sum of probabilities from 1 by rounding, in bfloat16 up to 2**-8."""
SMALL_FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Names of the types that the package ml_dtypes adds to NumPy, which JAX uses."""
ListIds = Callable[[], Ids]  # Lists the ids of some rows; called only for an error message


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
            converted[name] = convert_representation(_name_id_column(value, id_column), name)
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


def convert_representation(value: Given, name: str) -> Given:
    """Convert one representation to an array, or a list of arrays with one per model.

    A list of numbers, of rows of numbers or of one-dimensional arrays is one array. For members, a
    list of arrays with one axis less than expected has one per member.

    >>> convert_representation([[1, 2], [3, 4], [5, 6]], "features").shape
    (3, 2)
    >>> convert_representation([np.zeros((5, 3)), np.ones((5, 3))], "member_probabilities").shape
    (5, 2, 3)
    """
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | memoryview):
        value = list(value)  # such as a column of a Hugging Face dataset
    if not isinstance(value, list | tuple):
        return _convert_foreign_array(value, name)
    expected = REPRESENTATIONS.get(name)
    axes = len(expected.axes) if expected else 2
    if value and isinstance(value[0], Mapping):
        raise BadInput(f"{name} is a list of {type(value[0]).__name__}s; give a table of them")
    if not value or any(isinstance(part, str | Path) or is_remote(part) for part in value):
        return value
    if all(isinstance(part, list | tuple) or np.isscalar(part) for part in value):
        array = _stack_numbers(value, name)
        return list(array) if array.ndim == axes + 1 else array
    parts = [_convert_foreign_array(part, name) for part in value]
    depths = {getattr(part, "ndim", None) for part in parts}
    if depths == {axes - 1} and axes > 1:
        return _join_models(parts, name, axis=1 if name.startswith("member_") else 0, new=True)
    if depths == {axes} and name == "member_probabilities":  # one array, also for several models
        return _join_models(parts, name, axis=1, new=False)
    return parts


def _join_models(parts: Sequence[Array], name: str, *, axis: int, new: bool) -> Array:
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


def _convert_foreign_array(value: Given, name: str) -> Given:
    """Convert columns and arrays of other libraries; others are returned as they are."""
    if isinstance(value, np.ndarray | str | Path) or is_remote(value) or is_sparse_matrix(value):
        return value
    if array_api_compat.is_torch_array(value):
        return _check_dense_tensor(value, name)
    if _is_table(value):
        return _split_table(value, name)[0]
    try:
        if hasattr(value, "__array__"):
            return _unpack_lists(np.asarray(value), name)
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


def _check_dense_tensor(tensor: Any, name: str) -> Array:
    if str(tensor.layout) != "torch.strided":
        raise BadInput(f"{name} is a sparse tensor; give {name}.to_dense()")
    if tensor.is_quantized:
        raise BadInput(f"{name} is a quantized tensor; give {name}.dequantize()")
    if tensor.is_meta:
        raise BadInput(f"{name} is a tensor on the meta device, without numbers; give a real one")
    return tensor


def _is_table(value: object) -> bool:
    """Whether a value is a table of pandas, polars or pyarrow."""
    if isinstance(value, np.ndarray) or not hasattr(value, "shape"):
        return False
    return hasattr(value, "columns") or hasattr(value, "column_names")


def _split_table(table: Any, name: str, id_column: str = ID) -> tuple[HostArray, HostArray | None]:
    """A table's numbers ``(n, d)``, or ``(n,)`` where one is due, and its column of ids."""
    labels = list(getattr(table, "column_names", None) or table.columns)
    arrays = {label: _read_table_column(table, label) for label in labels}
    ids = arrays.pop(id_column, None)
    if ids is None and id_column != ID:
        raise UnknownName(
            f"{name} has no column {id_column!r} with ids; it has {', '.join(map(str, labels))}"
        )
    lists = [label for label, column in arrays.items() if column.ndim > 1]
    if lists and len(arrays) > 1:
        other = next(label for label in arrays if label != lists[0])
        raise BadInput(
            f"{name}: column {other!r} is next to the lists of {lists[0]!r}; give one list column, "
            "or only number columns"
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
    flat = name in REPRESENTATIONS and len(REPRESENTATIONS[name].axes) == 1
    if lists or (len(columns) == 1 and flat):
        return columns[0], ids
    return np.stack(columns, axis=1), ids


def _read_table_column(table: Any, label: Any) -> HostArray:
    """A column of a table; one of lists, which must have equal lengths, has more axes."""
    column = table[label]
    if getattr(column, "ndim", 1) > 1:
        raise BadInput(f"the table has several columns called {label!r}; rename them")
    return _unpack_lists(np.asarray(column), f"column {label!r}")


def _unpack_lists(array: HostArray, name: str) -> HostArray:
    """Lists of equal length as further axes; other arrays as they are."""
    if array.dtype.kind == "O" and array.ndim == 1 and len(array):
        if isinstance(array[0], list | np.ndarray):
            return _stack_numbers(array.tolist(), name)
    return array


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


def open_source(value: Given, name: str) -> Source:
    """Open an array, a tensor, a file or a URL as a source of rows.

    A path names a .npy or .parquet file, a folder of files of one of these kinds, or a pattern such
    as ``"pool-*.npy"``.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise BadInput(
            f"{name} is a masked array; give {name}.filled(...), or leave out its masked items"
        )
    if isinstance(value, np.memmap):
        return MappedSource(value)
    if isinstance(value, np.ndarray) or is_array(value):
        return ArraySource(value)
    if is_sparse_matrix(value):
        return SparseSource(value)
    if is_remote(value):
        return open_remote(value, name)
    if isinstance(value, str | Path):
        paths = find_row_files(Path(value), name)
        if paths[0].suffix == ".parquet":
            return ParquetSource(Path(value), paths, name, getattr(value, "id_column", ID))
        parts = [NpySource(path, name) for path in paths]
        return parts[0] if len(parts) == 1 else JoinedSource(parts, paths, name)
    raise BadInput(
        f"{name} must be an array, a tensor, a table, or a path to .npy or .parquet; "
        f"got {type(value).__name__}"
    )


def open_sources(representations: Values) -> dict[str, Source | list[Source]]:
    """Open representations by name; all must have the same number of rows and their own axes."""
    sources: dict[str, Source | list[Source]] = {}
    for name, value in representations.items():
        if isinstance(value, list | tuple):
            if not value:
                raise BadInput(f"{name} is an empty list; give one array per model")
            sources[name] = [open_source(v, f"{name}[{j}]") for j, v in enumerate(value)]
        else:
            sources[name] = open_source(value, name)
    first, count = "", 0
    for name, source in flatten_sources(sources):
        expected, shape = REPRESENTATIONS[name.split("[")[0]], source.shape
        if len(shape) != len(expected.axes):
            raise BadInput(f"{name} must have shape {expected.shape}; got {shape}")
        if 0 in shape[1:]:
            raise BadInput(f"{name} has no columns; got shape {shape}")
        if not first:
            first, count = name, shape[0]
        if shape[0] != count:
            raise BadInput(f"{first} has {count} rows but {name} has {shape[0]}; give one per item")
    return sources


def flatten_sources(sources: Sources) -> Iterator[tuple[str, Source]]:
    """All sources with their names, one after the other."""
    for name, value in sources.items():
        if isinstance(value, list):
            yield from ((f"{name}[{j}]", source) for j, source in enumerate(value))
        else:
            yield name, value


def count_rows(sources: Sources) -> int:
    """The number of rows of opened sources, which is the same for all."""
    return next(source.shape[0] for _, source in flatten_sources(sources))


def find_tensor_device(sources: Sources) -> str | None:
    """The device of the tensors, if there is anything to bring there; two are rejected."""
    every = list(flatten_sources(sources))
    devices = {name: str(device(s.read(0, 0))) for name, s in every if not s.is_numpy}
    for name, other in devices.items():
        first, place = next(iter(devices.items()))
        if other != place:
            raise BadInput(
                f"{first} is on {place} but {name} on {other}; bring them to one device, or name "
                "it with device"
            )
    return next(iter(devices.values())) if 0 < len(devices) < len(every) else None


def read_stored_ids(sources: Sources) -> HostArray | None:
    """The column ``id`` of Parquet files, or None; it must be the same in all that have one."""
    found: tuple[str, HostArray] | None = None
    for name, source in flatten_sources(sources):
        ids = getattr(source, "ids", None)
        if ids is not None and found is not None and not np.array_equal(found[1], ids):
            row = int(np.argmax(found[1] != ids))
            raise BadInput(
                f"{found[0]} and {name} do not list the same items in the same order: the id in "
                f"row {row} is {found[1][row]} and {ids[row]}; sort both by id"
            )
        found = found or (None if ids is None else (name, ids))
    return None if found is None else found[1]


def convert_rows(name: str, rows: Array) -> Array:
    """Convert rows to float32 or float64 for computing; votes for classes stay integers."""
    xp = namespace(rows)
    if rows.dtype in (xp.float32, xp.float64):
        return rows
    if name.split("[")[0] == "member_votes" and xp.isdtype(rows.dtype, ("integral", "bool")):
        return xp.astype(rows, xp.int64)
    if isinstance(rows, np.ndarray) and rows.dtype.name in SMALL_FLOATS:
        return rows.astype(np.float32)
    if isinstance(rows, np.ndarray) and rows.dtype.kind not in "fiubc":
        raise BadInput(f"{name} must hold numbers; got values of type {rows.dtype}")
    if xp.isdtype(rows.dtype, "complex floating"):
        raise BadInput(
            f"{name} must hold real numbers; got {rows.dtype}: give real and imaginary parts as "
            "columns, or absolute values"
        )
    return working(rows)


def check_representation_rows(name: str, rows: Array, list_ids: ListIds) -> None:
    """Reject NaN, infinity and invalid probabilities, of one model or several."""
    if isinstance(rows, list):
        for number, some in enumerate(rows):
            check_representation_rows(f"{name}[{number}]", some, list_ids)
        return
    xp = namespace(rows)
    if not xp.isdtype(rows.dtype, "real floating"):
        return  # integers are always finite
    with np.errstate(over="ignore", invalid="ignore"):
        if name.split("[")[0] in ("probabilities", "member_probabilities"):
            on_host = isinstance(rows, np.ndarray)  # einsum takes a sixth of the time of np.sum
            sums = np.einsum("...k->...", rows) if on_host else to_numpy(xp.sum(rows, axis=-1))
            right = np.abs(sums - 1) <= SUM_TOLERANCE
            if not right.size or (right.all() and not float(xp.min(rows)) < -1e-6):
                return
            _check_finite_rows(name, rows, list_ids)
            _reject_probabilities(name, rows, sums, list_ids)
        elif not bool(xp.isfinite(xp.sum(rows))):  # also for a sum beyond what its type can hold
            _check_finite_rows(name, rows, list_ids)


def _check_finite_rows(name: str, rows: Array, list_ids: ListIds) -> None:
    xp, axes = namespace(rows), tuple(range(1, rows.ndim))
    wrong = to_numpy(xp.any(~xp.isfinite(rows), axis=axes) if axes else ~xp.isfinite(rows))
    if wrong.any():
        raise BadInput(
            f"{name} of item {list_ids()[wrong][0]} is NaN or infinite ({int(wrong.sum())} such "
            f"items in its block); fix them or leave them out"
        )


def _reject_probabilities(name: str, rows: Array, sums: HostArray, list_ids: ListIds) -> NoReturn:
    """Name the first item whose finite numbers are not probabilities."""
    count, sums = len(sums), sums.reshape(len(sums), -1)
    low = to_numpy(namespace(rows).min(rows, axis=-1)).reshape(count, -1).min(axis=1)
    wrong = (np.abs(sums - 1) > SUM_TOLERANCE).any(axis=1) | (low < -1e-6)
    position = int(np.flatnonzero(wrong)[0])
    raise BadInput(
        f"{name} of item {list_ids()[position]} are not probabilities "
        f"(sum {sums[position].flat[0]:.4g}, smallest {low[position]:.4g}); "
        "give each row as numbers from 0 that add up to 1"
    )
