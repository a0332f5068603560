"""The arrays of a TensorFlow Lite file, read without TensorFlow.

The file is a flat buffer: a table begins with the way back to a list of where each of its fields
lies, and a field that holds a text, a list or a table holds the way on to it. Only what leads to
the float arrays is followed: the model's graphs with their tensors (shape, type, buffer, name), and
its buffers.
"""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.errors import BadInput

MODEL_GRAPHS, MODEL_BUFFERS = 2, 4
TENSOR_SHAPE, TENSOR_TYPE, TENSOR_BUFFER, TENSOR_NAME = 0, 1, 2, 3
FLOAT32 = 0


class Table:
    """A table at a place of a flat buffer."""

    def __init__(self, data: bytes, place: int) -> None:
        """``place`` is where the table begins."""
        self._data, self._place = data, place

    def _field(self, number: int) -> int | None:
        """Where a field lies; None if it is left at its default."""
        listed = self._place - _signed(self._data, self._place)
        where = 4 + 2 * number
        if where >= _short(self._data, listed):
            return None
        offset = _short(self._data, listed + where)
        return self._place + offset if offset else None

    def number(self, field: int) -> int:
        """An unsigned 32-bit number."""
        place = self._field(field)
        return 0 if place is None else _number(self._data, place)

    def byte(self, field: int) -> int:
        """An 8-bit number."""
        place = self._field(field)
        return 0 if place is None else self._data[place]

    def raw(self, field: int, size: int = 1) -> bytes:
        """A list of numbers of ``size`` bytes, or a text, as its bytes."""
        place = self._field(field)
        if place is None:
            return b""
        begin = place + _number(self._data, place)
        return self._data[begin + 4 : begin + 4 + size * _number(self._data, begin)]

    def tables(self, field: int) -> Iterator["Table"]:
        """A list of tables."""
        place = self._field(field)
        if place is None:
            return
        begin = place + _number(self._data, place)
        for entry in range(_number(self._data, begin)):
            at = begin + 4 + 4 * entry
            yield Table(self._data, at + _number(self._data, at))


def arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """All float32 arrays that the file holds, by the names of the tensors."""
    if data[4:8] != b"TFL3":
        raise BadInput("this is no TensorFlow Lite file; download it again")
    model = Table(data, _number(data, 0))
    buffers = list(model.tables(MODEL_BUFFERS))
    found: dict[str, NDArray[Any]] = {}
    for graph in model.tables(MODEL_GRAPHS):
        for tensor in graph.tables(0):
            held = buffers[tensor.number(TENSOR_BUFFER)].raw(0)
            if held and tensor.byte(TENSOR_TYPE) == FLOAT32:
                shape = np.frombuffer(tensor.raw(TENSOR_SHAPE, 4), "<i4")
                name = tensor.raw(TENSOR_NAME).decode()
                found[name] = np.frombuffer(held, "<f4").reshape(shape)
    return found


def _number(data: bytes, place: int) -> int:
    return int(struct.unpack_from("<I", data, place)[0])


def _signed(data: bytes, place: int) -> int:
    return int(struct.unpack_from("<i", data, place)[0])


def _short(data: bytes, place: int) -> int:
    return int(struct.unpack_from("<H", data, place)[0])
