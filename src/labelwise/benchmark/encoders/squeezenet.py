"""SqueezeNet 1.1, trained on ImageNet: as good as AlexNet with a fiftieth of its parameters.

A fire module squeezes to few channels by a 1 x 1 convolution, and expands by 1 x 1 and 3 x 3
convolutions in parallel. The features are the 512 channels of the last one, averaged over the
image.

Reference: F. Iandola, S. Han, M. Moskewicz, K. Ashraf, W. Dally, K. Keutzer, "SqueezeNet:
AlexNet-level accuracy with 50x fewer parameters and <0.5MB model size", 2016.
"""

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.benchmark.datasets.entries import Arrays, Files
from labelwise.benchmark.datasets.pickles import unpickle_arrays
from labelwise.benchmark.encoders.entries import Encode, Weights
from labelwise.benchmark.encoders.image_networks import (
    BYTES,
    convert_kernel,
    fill_weights,
    make_image_encoder,
)

FIRES = (16, 16, 0, 32, 32, 0, 48, 48, 64, 64)
"""Channels after the squeeze, from the module called fire2; four times as many come out of each of
its two convolutions. 0 is a pooling."""


class FireModule(nn.Module):
    """Squeeze, then two parallel convolutions."""

    def __init__(self, before: int, few: int) -> None:
        """``before`` channels come in, ``few`` are left in between, ``8 few`` come out."""
        super().__init__()
        self.squeeze1x1 = nn.Conv2d(before, few, 1)
        self.expand1x1 = nn.Conv2d(few, 4 * few, 1)
        self.expand3x3 = nn.Conv2d(few, 4 * few, 3, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """``(b, before, h, w)`` to ``(b, 8 few, h, w)``."""
        few = self.squeeze1x1(inputs).relu()
        return torch.cat([self.expand1x1(few), self.expand3x3(few)], dim=1).relu()


def make_squeezenet() -> nn.Sequential:
    """The network without its last convolution."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2)]
    before = 64
    for few in FIRES:
        layers.append(FireModule(before, few) if few else nn.MaxPool2d(3, 2))
        before = 8 * few or before
    return nn.Sequential(*layers)


def read_weights(files: Files) -> dict[str, Arrays]:
    """The parameters from a pickle of arrays, which is read without running what it names."""
    ((path, data),) = files.items()
    held = {
        name.decode() if isinstance(name, bytes) else name: values
        for name, values in unpickle_arrays(path, data).items()
    }
    names = {"0": "conv1"}
    fires = [n for n, layer in enumerate(make_squeezenet()) if isinstance(layer, FireModule)]
    for number, place in enumerate(fires, start=2):
        for part in ("squeeze1x1", "expand1x1", "expand3x3"):
            names[f"{place}.{part}"] = f"fire{number}/{part}"
    found: dict[str, Arrays] = {}
    for own, other in names.items():
        found[f"{own}.weight"], found[f"{own}.bias"] = (
            convert_kernel(held[other][0]),
            held[other][1],
        )
    # It was trained on blue, green, red; here red comes first.
    found["0.weight"] = np.ascontiguousarray(found["0.weight"][:, ::-1])
    return found


def build_encoder(side: int, weights: Weights, corpus: Arrays) -> Encode:
    """The function that encodes images, resized to ``side``."""
    return make_image_encoder(fill_weights(make_squeezenet(), weights), side, **BYTES)
