"""EfficientNet-Lite 0, 1 and 2: convolutions that are cheap on phones, trained on ImageNet.

Inverted bottlenecks: a 1 x 1 convolution makes a block six times wider, a convolution within every
channel follows, and another 1 x 1 makes it narrow again. The features are the 1280 channels before
the last layer, averaged over the image. Versions 1 and 2 have more blocks; 2 is wider too.

Reference: M. Tan, Q. Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural
Networks", ICML 2019; the Lite form is by R. Liu, 2020.
"""

import io
from math import ceil

from torch import Tensor, nn

from labelwise.benchmark.datasets.entries import Arrays, Files
from labelwise.benchmark.encoders.entries import Encode, Weights
from labelwise.benchmark.encoders.image_networks import (
    SamePadding,
    fill_weights,
    make_image_encoder,
    read_state,
)

STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""Blocks, side of the kernel, stride of the first block, expansion, channels; at width 1."""

SIZES = {0: (1.0, 1.0, 224), 1: (1.0, 1.1, 240), 2: (1.1, 1.2, 260)}
"""By version: how much wider, how much deeper, and the side of an image it was trained at."""

LAST = 1280

MEAN, DEVIATION = 127 / 255, 128 / 255
"""By which images were scaled in training; the mean and deviation of ImageNet, which other networks
take, cost five per cent of accuracy."""


class LiteBottleneck(nn.Module):
    """Expand, convolve within channels, project; plus the input where the shape is the same."""

    def __init__(self, before: int, after: int, size: int, stride: int, expansion: int) -> None:
        """``before`` and ``after`` are channels; ``expansion`` 1 leaves the first step out."""
        super().__init__()
        wide = before * expansion
        if expansion > 1:
            self._expand_conv = nn.Conv2d(before, wide, 1, bias=False)
            self._bn0 = nn.BatchNorm2d(wide, eps=1e-3)
        self._pad = SamePadding(size, stride)
        self._depthwise_conv = nn.Conv2d(wide, wide, size, stride, groups=wide, bias=False)
        self._bn1 = nn.BatchNorm2d(wide, eps=1e-3)
        self._project_conv = nn.Conv2d(wide, after, 1, bias=False)
        self._bn2 = nn.BatchNorm2d(after, eps=1e-3)
        self._act = nn.ReLU6()
        self._expands, self._adds = expansion > 1, stride == 1 and before == after

    def forward(self, inputs: Tensor) -> Tensor:
        """``(b, before, h, w)`` to ``(b, after, h / stride, w / stride)``."""
        wide = self._act(self._bn0(self._expand_conv(inputs))) if self._expands else inputs
        wide = self._act(self._bn1(self._depthwise_conv(self._pad(wide))))
        outputs: Tensor = self._bn2(self._project_conv(wide))
        return outputs + inputs if self._adds else outputs


class EfficientNetLite(nn.Module):
    """The network without its last layer; its parameters are named as in the packages."""

    def __init__(self, version: int) -> None:
        """``version`` is 0, 1 or 2."""
        super().__init__()
        width, depth, _ = SIZES[version]
        self._pad = SamePadding(3, 2)
        self._conv_stem = nn.Conv2d(3, 32, 3, 2, bias=False)
        self._bn0 = nn.BatchNorm2d(32, eps=1e-3)
        blocks: list[nn.Module] = []
        before = 32
        for number, (count, size, stride, expansion, channels) in enumerate(STAGES):
            after = round_channels(channels * width)
            ends = number in (0, len(STAGES) - 1)  # the first and the last stage are never deeper
            for repeat in range(count if ends else ceil(count * depth)):
                step = stride if repeat == 0 else 1
                blocks.append(LiteBottleneck(before, after, size, step, expansion))
                before = after
        self._blocks = nn.Sequential(*blocks)
        self._conv_head = nn.Conv2d(before, LAST, 1, bias=False)
        self._bn1 = nn.BatchNorm2d(LAST, eps=1e-3)
        self._act = nn.ReLU6()

    def forward(self, images: Tensor) -> Tensor:
        """``(b, 3, h, w)`` to ``(b, 1280, h / 32, w / 32)``."""
        stem = self._act(self._bn0(self._conv_stem(self._pad(images))))
        outputs: Tensor = self._act(self._bn1(self._conv_head(self._blocks(stem))))
        return outputs


def round_channels(channels: float) -> int:
    """The nearest multiple of 8 that is not more than a tenth smaller.

    >>> round_channels(16 * 1.1), round_channels(40 * 1.1)
    (16, 48)
    """
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


def read_weights(files: Files) -> dict[str, Arrays]:
    """The parameters from a PyTorch file, without the last layer and the counters."""
    (data,) = files.values()
    return {
        name: values
        for name, values in read_state(io.BytesIO(data)).items()
        if not name.startswith("_fc") and not name.endswith("num_batches_tracked")
    }


def build_encoder(version: int, side: int, weights: Weights, corpus: Arrays) -> Encode:
    """The function that encodes images, resized to ``side``."""
    network = fill_weights(EfficientNetLite(version), weights)
    return make_image_encoder(network, side, mean=(MEAN,) * 3, deviation=(DEVIATION,) * 3)
