"""The named representations of a pool: open them as sources, check that they fit, check their rows.

Rows must be real and finite, and probabilities where their name says so. A message names the
representation, the item and what to do.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from labelwise.arrays import (
    Array,
    HostArray,
    Ids,
    device,
    is_array,
    namespace,
    row_sums,
    squared_norms,
    to_numpy,
    working,
)
from labelwise.errors import BadInput
from labelwise.learner import REPRESENTATIONS
from labelwise.pool.conversion import SparseSource, is_sparse_matrix
from labelwise.pool.sources.file_patterns import find_row_files
from labelwise.pool.sources.parquet import ID, ParquetSource
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
ListIds = Callable[[], Ids]
"""Lists the ids of some rows; called only for an error message."""


def open_source(value: Given, name: str) -> Source:
    """Open an array or a file as a source of rows.

    Args:
        value: a NumPy array, a torch tensor, or the path of a .npy or .parquet file, of a folder of
            files of one of these kinds, or a pattern for their names such as ``"pool-*.npy"``; or
            a URL that fsspec can open.
        name: of the representation, for error messages.
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
    """The device of the tensors, if there are arrays or files to bring there; None otherwise.

    Tensors on two devices are rejected: neither is the one to compute on.
    """
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
    if isinstance(rows, np.ndarray) and rows.dtype.kind not in "fiubc":
        raise BadInput(f"{name} must hold numbers; got values of type {rows.dtype}")
    if xp.isdtype(rows.dtype, "complex floating"):
        raise BadInput(
            f"{name} must hold real numbers; got {rows.dtype}: give real and imaginary parts as "
            "columns, or absolute values"
        )
    return working(rows)


def check_rows(name: str, rows: Array, list_ids: ListIds) -> None:
    """Reject NaN, infinity and invalid probabilities, of one model or several."""
    if isinstance(rows, list):
        for number, some in enumerate(rows):
            check_rows(f"{name}[{number}]", some, list_ids)
        return
    xp = namespace(rows)
    if not xp.isdtype(rows.dtype, "real floating"):
        return  # integers are always finite
    if name.split("[")[0] in ("probabilities", "member_probabilities"):
        _check_probabilities(name, rows, list_ids)
        return
    with np.errstate(over="ignore", invalid="ignore"):
        # One fast pass over the squared norms; only a total that is not finite needs a second one.
        flat = xp.reshape(rows, (rows.shape[0], math.prod(rows.shape[1:])))
        total = xp.sum(squared_norms(flat))
    if not bool(xp.isfinite(total)):
        _check_finite(name, rows, list_ids)


def _check_finite(name: str, rows: Array, list_ids: ListIds) -> None:
    xp, axes = namespace(rows), tuple(range(1, rows.ndim))
    wrong = to_numpy(xp.any(~xp.isfinite(rows), axis=axes) if axes else ~xp.isfinite(rows))
    if wrong.any():
        raise BadInput(
            f"{name} of item {list_ids()[wrong][0]} is NaN or infinite ({int(wrong.sum())} such "
            f"items in its block); fix them or leave them out"
        )


def _check_probabilities(name: str, rows: Array, list_ids: ListIds) -> None:
    """Check sums and signs; rows that pass have no NaN and no infinity."""
    xp, count = namespace(rows), rows.shape[0]
    if not count:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        sums = to_numpy(row_sums(rows)).reshape(count, -1)
        right = (np.abs(sums - 1) <= SUM_TOLERANCE).all(axis=1)
        if right.all() and not float(xp.min(rows)) < -1e-6:
            return
    _check_finite(name, rows, list_ids)
    low = to_numpy(xp.min(rows, axis=-1)).reshape(count, -1).min(axis=1)
    position = int(np.flatnonzero(~right | (low < -1e-6))[0])
    raise BadInput(
        f"{name} of item {list_ids()[position]} are not probabilities "
        f"(sum {sums[position].flat[0]:.4g}, smallest {low[position]:.4g}); "
        "give each row as numbers from 0 that add up to 1"
    )
