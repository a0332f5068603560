"""Write features to a .npy file, or with the ids of their items to a .parquet file."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from labelwise.encoders.encoder import Features
from labelwise.errors import BadInput
from labelwise.files import write_atomically
from labelwise.pool.sources.parquet import import_pyarrow

FORMATS = (".npy", ".parquet")

_ROWS_AT_ONCE = 8192


def check_feature_file(path: Path) -> None:
    """Reject a file that cannot be written, before hours of encoding."""
    if path.suffix not in FORMATS:
        raise BadInput(f"cannot write {path.name!r}; end the name in {' or '.join(FORMATS)}")
    if not path.absolute().parent.is_dir():
        raise BadInput(f"there is no folder {path.parent} to write {path.name} to; create it")
    if path.suffix == ".parquet":
        import_pyarrow("writing .parquet")


def write_feature_file(
    path: Path, ids: Sequence[str | int], width: int, read: Callable[[slice], Features]
) -> None:
    """Write a file atomically, some rows at a time.

    Args:
        path: ends in .npy, for rows alone, or in .parquet, for the columns ``id`` and ``features``.
        ids: of the n items.
        width: number of features d.
        read: returns some of the ``(n, d)`` rows.
    """
    check_feature_file(path)
    parts = [slice(first, first + _ROWS_AT_ONCE) for first in range(0, len(ids), _ROWS_AT_ONCE)]
    with write_atomically(path, durable=True) as file:
        if path.suffix == ".npy":
            with file.open("wb") as out:
                header = {"descr": "<f4", "fortran_order": False, "shape": (len(ids), width)}
                np.lib.format.write_array_header_1_0(out, header)
                for part in parts:
                    out.write(np.ascontiguousarray(read(part), dtype="<f4").data)
            return
        arrow, parquet = import_pyarrow("writing .parquet")
        kind = arrow.string() if isinstance(ids[0], str) else arrow.int64()
        rows = arrow.list_(arrow.float32(), width)
        schema = arrow.schema([("id", kind), ("features", rows)])
        with parquet.ParquetWriter(file, schema) as out:
            for part in parts:
                flat = arrow.array(read(part).reshape(-1), arrow.float32())
                columns = [
                    arrow.array(ids[part], kind),
                    arrow.FixedSizeListArray.from_arrays(flat, width),
                ]
                out.write_table(arrow.table(columns, schema=schema))
