"""MobileNet v1, trained on ImageNet: convolutions within channels, then across them.

Normalisations are folded into the convolutions in the package's file. The features are 1024
channels averaged over the image.

Reference: A. Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
Applications", 2017.
"""

import struct
from collections.abc import Iterator

import numpy as np
from torch import nn

from labelwise.benchmark.datasets.entries import Arrays, Files
from labelwise.benchmark.encoders.entries import Encode, Weights
from labelwise.benchmark.encoders.image_networks import (
    SamePadding,
    fill_weights,
    make_image_encoder,
)
from labelwise.errors import BadInput

STAGES = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
"""Channels after a pair of convolutions, and the stride of its first."""

HALVES = (0.5, 0.5, 0.5)


def make_mobilenet() -> nn.Sequential:
    """The network without its last layer; layer ``3 k + 1`` is convolution ``k``."""
    layers = _convolution(3, 32, 3, 2, 1)
    before = 32
    for after, stride in STAGES:
        layers += _convolution(before, before, 3, stride, before)
        layers += _convolution(before, after, 1, 1, 1)
        before = after
    return nn.Sequential(*layers)


def _convolution(before: int, after: int, size: int, stride: int, groups: int) -> list[nn.Module]:
    layer = nn.Conv2d(before, after, size, stride, groups=groups)
    return [SamePadding(size, stride), layer, nn.ReLU6()]


def read_weights(files: Files) -> dict[str, Arrays]:
    """The parameters from a TensorFlow Lite file."""
    (data,) = files.values()
    held = read_tflite_arrays(data)
    layers = [("Conv2d_0", "")]
    for number in range(1, len(STAGES) + 1):
        layers += [(f"Conv2d_{number}_depthwise", "depthwise_")]
        layers += [(f"Conv2d_{number}_pointwise", "")]
    found: dict[str, Arrays] = {}
    for number, (name, kind) in enumerate(layers):
        values = held[f"MobilenetV1/{name}/{kind}weights"]
        # (out, h, w, in); within channels (1, h, w, out)
        order = (3, 0, 1, 2) if kind else (0, 3, 1, 2)
        found[f"{3 * number + 1}.weight"] = np.ascontiguousarray(values.transpose(order))
        bias = f"MobilenetV1/MobilenetV1/{name}/{kind or 'convolution_'}bias"
        found[f"{3 * number + 1}.bias"] = held[bias]
    return found


def build_encoder(side: int, weights: Weights, corpus: Arrays) -> Encode:
    """The function that encodes images, resized to ``side``."""
    network = fill_weights(make_mobilenet(), weights)
    return make_image_encoder(network, side, mean=HALVES, deviation=HALVES)


# A TensorFlow Lite file is a flat buffer: a table begins with the offset of a list of its fields,
# and a field that holds a text, a list or a table holds the offset of its content.

MODEL_GRAPHS, MODEL_BUFFERS = 2, 4
TENSOR_SHAPE, TENSOR_TYPE, TENSOR_BUFFER, TENSOR_NAME = 0, 1, 2, 3
FLOAT32 = 0


class FlatTable:
    """A table at a place of a flat buffer."""

    def __init__(self, data: bytes, place: int) -> None:
        """``place`` is where the table begins."""
        self._data, self._place = data, place

    def _find_field(self, number: int) -> int | None:
        """Where a field lies; None if it is left at its default."""
        listed = self._place - _read_int32(self._data, self._place)
        where = 4 + 2 * number
        if where >= _read_uint16(self._data, listed):
            return None
        offset = _read_uint16(self._data, listed + where)
        return self._place + offset if offset else None

    def read_number(self, field: int) -> int:
        """An unsigned 32-bit number."""
        place = self._find_field(field)
        return 0 if place is None else _read_uint32(self._data, place)

    def read_byte(self, field: int) -> int:
        """An 8-bit number."""
        place = self._find_field(field)
        return 0 if place is None else self._data[place]

    def read_bytes(self, field: int, size: int = 1) -> bytes:
        """A list of numbers of ``size`` bytes, or a text, as its bytes."""
        place = self._find_field(field)
        if place is None:
            return b""
        begin = place + _read_uint32(self._data, place)
        return self._data[begin + 4 : begin + 4 + size * _read_uint32(self._data, begin)]

    def iterate_tables(self, field: int) -> Iterator["FlatTable"]:
        """A list of tables."""
        place = self._find_field(field)
        if place is None:
            return
        begin = place + _read_uint32(self._data, place)
        for entry in range(_read_uint32(self._data, begin)):
            at = begin + 4 + 4 * entry
            yield FlatTable(self._data, at + _read_uint32(self._data, at))


def read_tflite_arrays(data: bytes) -> dict[str, Arrays]:
    """All float32 arrays that the file holds, by the names of the tensors."""
    if data[4:8] != b"TFL3":
        raise BadInput("this is not a TensorFlow Lite file; download it again")
    model = FlatTable(data, _read_uint32(data, 0))
    buffers = list(model.iterate_tables(MODEL_BUFFERS))
    found: dict[str, Arrays] = {}
    for graph in model.iterate_tables(MODEL_GRAPHS):
        for tensor in graph.iterate_tables(0):
            held = buffers[tensor.read_number(TENSOR_BUFFER)].read_bytes(0)
            if held and tensor.read_byte(TENSOR_TYPE) == FLOAT32:
                shape = np.frombuffer(tensor.read_bytes(TENSOR_SHAPE, 4), "<i4")
                name = tensor.read_bytes(TENSOR_NAME).decode()
                found[name] = np.frombuffer(held, "<f4").reshape(shape)
    return found


def _read_uint32(data: bytes, place: int) -> int:
    return int(struct.unpack_from("<I", data, place)[0])


def _read_int32(data: bytes, place: int) -> int:
    return int(struct.unpack_from("<i", data, place)[0])


def _read_uint16(data: bytes, place: int) -> int:
    return int(struct.unpack_from("<H", data, place)[0])
