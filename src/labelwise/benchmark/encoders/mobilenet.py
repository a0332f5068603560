"""MobileNet v1, trained on ImageNet: convolutions within channels, then across them.

Normalisations are folded into the convolutions in the package's file. The features are 1024
channels averaged over the image.

Reference: A. Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
Applications", 2017.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from labelwise.benchmark.datasets.entries import Files
from labelwise.benchmark.encoders import tflite
from labelwise.benchmark.encoders.entries import Encode, Weights
from labelwise.benchmark.encoders.pictures import Same, encoder_of, filled

STAGES = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
"""Channels after a pair of convolutions, and the stride of its first."""

HALVES = (0.5, 0.5, 0.5)


def mobilenet() -> nn.Sequential:
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
    return [Same(size, stride), layer, nn.ReLU6()]


def read(files: Files) -> dict[str, NDArray[Any]]:
    """The parameters from a TensorFlow Lite file."""
    (data,) = files.values()
    held = tflite.arrays(data)
    layers = [("Conv2d_0", "")]
    for number in range(1, len(STAGES) + 1):
        layers += [(f"Conv2d_{number}_depthwise", "depthwise_")]
        layers += [(f"Conv2d_{number}_pointwise", "")]
    found: dict[str, NDArray[Any]] = {}
    for number, (name, kind) in enumerate(layers):
        values = held[f"MobilenetV1/{name}/{kind}weights"]
        # (out, h, w, in); within channels (1, h, w, out)
        order = (3, 0, 1, 2) if kind else (0, 3, 1, 2)
        found[f"{3 * number + 1}.weight"] = np.ascontiguousarray(values.transpose(order))
        bias = f"MobilenetV1/MobilenetV1/{name}/{kind or 'convolution_'}bias"
        found[f"{3 * number + 1}.bias"] = held[bias]
    return found


def build(side: int, weights: Weights, corpus: NDArray[Any]) -> Encode:
    """What encodes images of any side, resized to ``side``."""
    network = filled(mobilenet(), weights)
    return encoder_of(network, side, mean=HALVES, deviation=HALVES)
