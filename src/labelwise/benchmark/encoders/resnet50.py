"""ResNet-50, trained on ImageNet: bottlenecks of three convolutions with a way around each.

The first form, where a stage's stride is in the first of the three. Normalisations are folded into
the convolutions before them. The features are 2048 channels averaged over the image.

Reference: K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR
2016.
"""

import json
import re
from itertools import accumulate
from math import prod

import numpy as np
from torch import Tensor, nn

from labelwise.benchmark.datasets.entries import Arrays, Files
from labelwise.benchmark.encoders.entries import Encode, Weights
from labelwise.benchmark.encoders.image_networks import (
    BYTES,
    convert_kernel,
    fill_weights,
    make_image_encoder,
)

STAGES = ((2, "abc", 64), (3, "abcd", 128), (4, "abcdef", 256), (5, "abc", 512))
"""Number of a stage, names of its blocks, channels inside them; four times as many come out."""

EPSILON = 1e-3
"""In the normalisations."""


class ResNetBottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions, plus the input; then ReLU."""

    def __init__(self, before: int, inside: int, stride: int, changes: bool) -> None:
        """``changes`` says that the input goes through a convolution too."""
        super().__init__()
        self.branch2a = nn.Conv2d(before, inside, 1, stride)
        self.branch2b = nn.Conv2d(inside, inside, 3, padding=1)
        self.branch2c = nn.Conv2d(inside, 4 * inside, 1)
        self.branch1 = nn.Conv2d(before, 4 * inside, 1, stride) if changes else nn.Identity()

    def forward(self, inputs: Tensor) -> Tensor:
        """``(b, before, h, w)`` to ``(b, 4 inside, h / stride, w / stride)``."""
        body = self.branch2b(self.branch2a(inputs).relu()).relu()
        outputs: Tensor = (self.branch2c(body) + self.branch1(inputs)).relu()
        return outputs


class ResNet50(nn.Module):
    """The network without its last layer."""

    def __init__(self) -> None:
        """With random parameters."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.ModuleDict()
        before = 64
        for stage, names, inside in STAGES:
            for name in names:
                stride = 2 if name == "a" and stage > 2 else 1
                self.blocks[f"{stage}{name}"] = ResNetBottleneck(
                    before, inside, stride, name == "a"
                )
                before = 4 * inside

    def forward(self, images: Tensor) -> Tensor:
        """``(b, 3, h, w)`` to ``(b, 2048, h / 32, w / 32)``."""
        found: Tensor = self.pool(self.conv1(images).relu())
        for block in self.blocks.values():
            found = block(found)
        return found


def read_weights(files: Files) -> dict[str, Arrays]:
    """The parameters from a model of TensorFlow.js: a list of arrays, and their bytes in parts."""
    return fold_normalisations(read_tfjs_arrays(files))


def fold_normalisations(held: dict[str, Arrays]) -> dict[str, Arrays]:
    """Convolutions with the normalisations after them as one, by the names they have here."""
    names = {"conv1": ("conv1", "bn_conv1")}
    for name in held:
        if match := re.fullmatch(r"res(\d\w)_(branch\w+)/kernel", name):
            own, part = match.groups()
            names[f"blocks.{own}.{part}"] = (f"res{own}_{part}", f"bn{own}_{part}")
    found: dict[str, Arrays] = {}
    for own, (layer, norm) in names.items():
        scale = held[f"{norm}/gamma"] / np.sqrt(held[f"{norm}/moving_variance"] + EPSILON)
        found[f"{own}.weight"] = convert_kernel(held[f"{layer}/kernel"] * scale)
        shifted = held[f"{layer}/bias"] - held[f"{norm}/moving_mean"]
        found[f"{own}.bias"] = held[f"{norm}/beta"] + shifted * scale
    # It was trained on blue, green, red; here red comes first.
    found["conv1.weight"] = np.ascontiguousarray(found["conv1.weight"][:, ::-1])
    return {name: values.astype(np.float32) for name, values in found.items()}


def read_tfjs_arrays(files: Files) -> dict[str, Arrays]:
    """The float32 arrays of a TensorFlow.js model by name."""
    (listed,) = (json.loads(data) for name, data in files.items() if name.endswith("model.json"))
    (group,) = listed["weightsManifest"]
    by_name = {name.rpartition("/")[2]: data for name, data in files.items()}
    values = np.frombuffer(b"".join(by_name[path] for path in group["paths"]), dtype="<f4")
    ends = list(accumulate(prod(entry["shape"]) for entry in group["weights"]))
    return {
        entry["name"]: values[end - prod(entry["shape"]) : end].reshape(entry["shape"])
        for entry, end in zip(group["weights"], ends, strict=True)
    }


def build_encoder(side: int, weights: Weights, corpus: Arrays) -> Encode:
    """The function that encodes images, resized to ``side``."""
    return make_image_encoder(fill_weights(ResNet50(), weights), side, **BYTES)
