"""Shared parts of image encoders: preprocessing, batches, weights and padding."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.encoders.entries import Encode, Weights

BATCH = 8
"""Batch size; larger batches do not fit the cache of a CPU."""

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the channels of ImageNet."""

BYTES: Mapping[str, Sequence[float]] = {
    "mean": (123.68 / 255, 116.779 / 255, 103.939 / 255),
    "deviation": (1 / 255, 1 / 255, 1 / 255),
}
"""Preprocessing of older networks: bytes minus the mean of ImageNet."""


def make_image_encoder(
    network: nn.Module,
    side: int,
    *,
    mean: Sequence[float] = MEAN,
    deviation: Sequence[float] = DEVIATION,
) -> Encode:
    """The function that encodes images by a network with outputs ``(b, width[, h, w])``.

    Args:
        network: trained.
        side: images are resized to this side, bilinearly.
        mean: subtracted from the channels of images in [0, 1].
        deviation: which they are divided by then.
    """
    to: Any = network.eval().to  # whose declared types do not know memory formats
    network = to(memory_format=torch.channels_last)  # a third faster on a CPU
    shift, scale = (torch.tensor(values).reshape(1, 3, 1, 1) for values in (mean, deviation))

    def encode(images: Arrays) -> Arrays:
        found = []
        with torch.inference_mode():
            for begin in range(0, len(images), BATCH):
                batch = torch.from_numpy(images[begin : begin + BATCH].astype(np.float32))
                larger = functional.interpolate(
                    batch, size=(side, side), mode="bilinear", align_corners=False, antialias=True
                )
                ready = ((larger - shift) / scale).contiguous(memory_format=torch.channels_last)
                given: Tensor = network(ready)
                found.append(given.mean(dim=(2, 3)) if given.ndim == 4 else given)
        return torch.cat(found).numpy().astype(np.float32)

    return encode


def fill_weights(network: nn.Module, weights: Weights) -> nn.Module:
    """Set the parameters of a network; missing or unknown names are an error."""
    tensors = {name: torch.from_numpy(np.array(values)) for name, values in weights.items()}
    network.load_state_dict(tensors)
    return network


def read_state(data: Any) -> dict[str, Arrays]:
    """The parameters of a PyTorch file as arrays, without running its code."""
    loaded: Mapping[str, Tensor] = torch.load(data, map_location="cpu", weights_only=True)
    return {name: value.numpy() for name, value in loaded.items()}


def convert_kernel(values: Arrays) -> Arrays:
    """Convert TensorFlow's ``(h, w, in, out)`` to PyTorch's ``(out, in, h, w)``."""
    return np.ascontiguousarray(values.transpose(3, 2, 0, 1))


class SamePadding(nn.Module):
    """TensorFlow's zero padding: a stride gives ``ceil(side / stride)``, the larger half last."""

    def __init__(self, size: int, stride: int) -> None:
        """For a kernel of ``size`` and this stride."""
        super().__init__()
        self.size, self.stride = size, stride

    def forward(self, images: Tensor) -> Tensor:
        """``(b, c, h, w)`` to the padded images."""
        high, wide = (self._count_missing(length) for length in images.shape[-2:])
        pads = (wide // 2, wide - wide // 2, high // 2, high - high // 2)
        return functional.pad(images, pads)

    def _count_missing(self, length: int) -> int:
        return max((-(-length // self.stride) - 1) * self.stride + self.size - length, 0)
