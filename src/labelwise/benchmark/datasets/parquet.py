"""Data sets as Parquet files, the form in which hubs for data keep them.

A picture is a struct with its PNG or JPEG file as ``bytes``, or such a file itself.
"""

from typing import Any

import numpy as np

from labelwise.benchmark.datasets.entries import Arrays, Files, Parts, as_texts
from labelwise.benchmark.datasets.images import matching, pictures
from labelwise.errors import BadInput, MissingDependency

_INPUTS = ("image", "img", "text")
_LABELS = ("fine_label", "label", "labels")


def parquet(files: Files, *, side: int | None = None, mode: str = "RGB") -> Parts:
    """The rows of all files called ``train...``, and of all called ``test...``, in their order.

    Args:
        files: among which those are.
        side: of the pictures; None for texts.
        mode: ``RGB`` or ``L`` (grey).
    """
    train = _read(matching(files, "train*.parquet"), side, mode)
    return Parts(*train, *_read(matching(files, "test*.parquet"), side, mode))


def _read(found: list[tuple[str, bytes]], side: int | None, mode: str) -> tuple[Arrays, Arrays]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingDependency(
            "reading .parquet needs pyarrow; run pip install 'labelwise[parquet]'"
        ) from error
    values: list[Any] = []
    labels: list[int] = []
    for name, data in found:
        try:
            table = pq.read_table(pa.BufferReader(data))
        except pa.ArrowException as error:
            raise BadInput(f"{name} is no Parquet file ({error})") from error
        values += table.column(_column(table, _INPUTS, name)).to_pylist()
        labels += table.column(_column(table, _LABELS, name)).to_pylist()
    classes = np.array(labels, dtype=np.int64)
    if side is None:
        return as_texts([str(value) for value in values]), classes
    contents = [value["bytes"] if isinstance(value, dict) else value for value in values]
    named = ((f"picture {number}", data) for number, data in enumerate(contents))
    return pictures(named, side, mode), classes


def _column(table: Any, wanted: tuple[str, ...], name: str) -> str:
    for column in wanted:
        if column in table.column_names:
            return column
    raise BadInput(f"{name} has no column {' or '.join(wanted)}; it has {table.column_names}")
