"""AlexNet and VGG-16 up to their last convolution, trained on ImageNet.

Convolutions with ReLU and max pooling. The features are the channels of the fifth
stage (256 and 512) averaged over the image; the linear layers that follow are not in the package,
which holds these networks for a measure of how alike two images look.

References: A. Krizhevsky, I. Sutskever, G. Hinton, "ImageNet Classification with Deep
Convolutional Neural Networks", NeurIPS 2012. K. Simonyan, A. Zisserman, "Very Deep Convolutional
Networks for Large-Scale Image Recognition", ICLR 2015. R. Zhang, P. Isola, A. Efros, E. Shechtman,
O. Wang, "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric", CVPR 2018.
"""

from torch import nn

from labelwise.benchmark.datasets.entries import Arrays, Files
from labelwise.benchmark.datasets.pickles import unpickle_arrays
from labelwise.benchmark.encoders.entries import Encode, Weights
from labelwise.benchmark.encoders.image_networks import (
    convert_kernel,
    fill_weights,
    make_image_encoder,
)

VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512)
"""Channels of the 3 x 3 convolutions; 0 is a pooling."""


def alexnet() -> nn.Sequential:
    """The network; its convolutions are number 0, 3, 6, 8 and 10."""
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(64, 192, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(192, 384, 3, 1, 1), nn.ReLU()),
        *(nn.Conv2d(384, 256, 3, 1, 1), nn.ReLU()),
        *(nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU()),
    )


def vgg16() -> nn.Sequential:
    """The network."""
    layers: list[nn.Module] = []
    before = 3
    for channels in VGG16:
        if channels:
            layers += [nn.Conv2d(before, channels, 3, 1, 1), nn.ReLU()]
            before = channels
        else:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


NETWORKS = {"alexnet": (alexnet, "AlexNet_0"), "vgg16": (vgg16, "VGG16_0")}
"""The networks, and what the package calls them."""


def read_weights(name: str, files: Files) -> dict[str, Arrays]:
    """The parameters from a pickle of arrays, which is read without running what it names."""
    make, called = NETWORKS[name]
    ((path, data),) = files.items()
    held = unpickle_arrays(path, data)[called]
    places = [n for n, layer in enumerate(make()) if isinstance(layer, nn.Conv2d)]
    found: dict[str, Arrays] = {}
    for number, place in enumerate(places):
        found[f"{place}.weight"] = convert_kernel(held[f"Conv_{number}"]["kernel"])
        found[f"{place}.bias"] = held[f"Conv_{number}"]["bias"]
    return found


def build_encoder(name: str, side: int, weights: Weights, corpus: Arrays) -> Encode:
    """The function that encodes images, resized to ``side``."""
    return make_image_encoder(fill_weights(NETWORKS[name][0](), weights), side)
