"""TensorFlow Lite files against ones that are written here byte by byte."""

import struct

import numpy as np
import pytest

from labelwise.benchmark.encoders.mobilenet import read_tflite_arrays
from labelwise.errors import BadInput


class Writer:
    """A flat buffer written front to back: what is pointed at always comes later."""

    def __init__(self):
        self.data = bytearray(b"\0\0\0\0TFL3")

    def table(self, fields, way=0):
        """A table of 32-bit values by number, which ``way`` leads to; where its values lie."""
        count = max(fields) + 1
        listed = len(self.data)
        self.data += struct.pack("<HH", 4 + 2 * count, 4 + 4 * len(fields)) + bytes(2 * count)
        self.data += bytes(-len(self.data) % 4)
        place = len(self.data)
        struct.pack_into("<I", self.data, way, place - way)
        self.data += struct.pack("<i", place - listed)
        ways = {}
        for number, value in fields.items():
            struct.pack_into("<H", self.data, listed + 4 + 2 * number, len(self.data) - place)
            ways[number] = len(self.data)
            self.data += struct.pack("<I", value or 0)
        return ways

    def point(self, way):
        struct.pack_into("<I", self.data, way, len(self.data) - way)

    def vector(self, way, count, content):
        self.point(way)
        self.data += struct.pack("<I", count) + content
        self.data += bytes(-len(self.data) % 4)

    def tables(self, way, count):
        """A list of tables that are yet to be written: places of the ways to them."""
        self.point(way)
        self.data += struct.pack("<I", count) + bytes(4 * count)
        return [len(self.data) - 4 * (count - number) for number in range(count)]


def written(named):
    """A file with float arrays by name, and an integer array that is to be left out."""
    out = Writer()
    ways = out.table({2: None, 4: None})  # graphs, buffers
    (graph_way,) = out.tables(ways[2], 1)
    graph = out.table({0: None}, graph_way)
    entries = [*named.items(), ("numbers", np.arange(3, dtype=np.int32))]
    for number, way in enumerate(out.tables(graph[0], len(entries))):
        name, values = entries[number]
        kind = 0 if values.dtype == np.float32 else 2
        tensor = out.table({0: None, 1: kind, 2: number, 3: None}, way)
        shape = np.array(values.shape, dtype="<i4")
        out.vector(tensor[0], len(shape), shape.tobytes())
        out.vector(tensor[3], len(name), name.encode())
    for number, way in enumerate(out.tables(ways[4], len(entries))):
        buffer = out.table({0: None}, way)
        content = entries[number][1].tobytes()
        out.vector(buffer[0], len(content), content)
    return bytes(out.data)


def test_float_arrays_come_back_by_name():
    rng = np.random.default_rng(0)
    named = {
        "net/weights": rng.normal(size=(4, 1, 3, 2)).astype(np.float32),
        "net/bias": rng.normal(size=5).astype(np.float32),
    }
    found = read_tflite_arrays(written(named))
    assert set(found) == set(named)
    for name, values in named.items():
        np.testing.assert_array_equal(found[name], values)


def test_another_file_is_refused():
    with pytest.raises(BadInput, match="not a TensorFlow Lite file"):
        read_tflite_arrays(b"GIF89a" + bytes(20))
