"""Open the named representations of a pool as sources of rows, and check that they fit together."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.arrays import device, is_array
from labelwise.errors import BadInput
from labelwise.learner import REPRESENTATIONS
from labelwise.pool.file_patterns import find_row_files
from labelwise.pool.parquet import ParquetSource
from labelwise.pool.remote_files import is_remote, open_remote
from labelwise.pool.sources import (
    ArraySource,
    JoinedSource,
    MappedSource,
    NpySource,
    Source,
    Sources,
)
from labelwise.pool.validation import check_numeric


def open_source(value: Any, name: str) -> Source:
    """Open an array or a file as a source of rows.

    Args:
        value: a NumPy array, a torch tensor, or the path of a .npy or .parquet file, of a folder of
            files of one of these kinds, or a pattern for their names such as ``"pool-*.npy"``; or
            a URL that fsspec can open.
        name: of the representation, for error messages.
    """
    if is_array(value) and not isinstance(value, np.ma.MaskedArray):
        return MappedSource(value) if isinstance(value, np.memmap) else ArraySource(value)
    if is_remote(value):
        return open_remote(value, name)
    if isinstance(value, str | Path):
        paths = find_row_files(Path(value), name)
        if paths[0].suffix == ".parquet":
            return ParquetSource(Path(value), paths, name)
        parts = [NpySource(path, name) for path in paths]
        return parts[0] if len(parts) == 1 else JoinedSource(parts, paths, name)
    if isinstance(value, np.ma.MaskedArray):
        raise BadInput(
            f"{name} is a masked array; give {name}.filled(...), or leave out its masked items"
        )
    raise BadInput(
        f"{name} must be an array, a torch tensor or a path to .npy or .parquet; "
        f"got {type(value).__name__}"
    )


def open_sources(representations: Mapping[str, Any]) -> dict[str, Source | list[Source]]:
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
        _check_form(name, source)
        if not first:
            first, count = name, source.shape[0]
        if source.shape[0] != count:
            raise BadInput(
                f"{first} has {count} rows but {name} has {source.shape[0]}; give one per item"
            )
    return sources


def _check_form(name: str, source: Source) -> None:
    """Reject a source whose shape or type does not fit the representation."""
    expected = REPRESENTATIONS[name.split("[")[0]]
    if len(source.shape) != len(expected.axes):
        raise BadInput(f"{name} must have shape {expected.shape}; got {source.shape}")
    if 0 in source.shape[1:]:
        raise BadInput(f"{name} has no columns; got shape {source.shape}")
    if source.shape[0]:
        check_numeric(name, source.read(0, 0))


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


def read_stored_ids(sources: Sources) -> Any:
    """The column ``id`` of Parquet files, or None; it must be the same in all that have one."""
    found: tuple[str, Any] | None = None
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
