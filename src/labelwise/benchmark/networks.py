"""The architectures of the papers, by name, for images of any side and any number of classes.

============================  ====================================================================
name                          architecture
============================  ====================================================================
lenet5                        two 5 x 5 convolutions, three linear layers; no normalisation
vgg11, vgg16                  3 x 3 convolutions with batch normalisation, one linear layer
resnet18, resnet18_narrow     residual blocks for small images, 64 or 16 channels at the start
bayesian_resnet18             the same with a ReLU layer of 256 before the head, for a variational
bayesian_resnet18_32          head; or of 32
cnn                           the network of PyTorch's tutorial, which is LeNet-5 on 32 x 32
cnn_512                       two 5 x 5 convolutions and 512 features, as many as VGG-16 has
cnn_avgpool                   convolutions of 32, 64 and 128 channels, averaged over the image
mlp                           two hidden layers of 256
small_*                       a family of small networks of different kinds, for several models
variant_C_L_K                 C channels, L convolutions with K x K kernels, for many models
============================  ====================================================================

Every network ends in a linear layer; its features are the inputs of that layer. A stage that would
shrink an image below one pixel keeps its size, so that the networks also take 8 x 8 digits.

References: Y. LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998.
K. Simonyan, A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition",
ICLR 2015. K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR
2016. R. Pinsler et al., "Bayesian Batch Active Learning as Sparse Subset Approximation", NeurIPS
2019, for the layer before a Bayesian head.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn

from labelwise.errors import BadInput, UnknownName

Shape = tuple[int, ...]
Builder = Callable[[Shape, int], nn.Module]  # ``builder(shape of one item, outputs) -> module``


def make_network(name: str, shape: Sequence[int], outputs: int) -> nn.Module:
    """A new network from `NETWORKS` with random parameters.

    ``shape`` is that of one item: ``(channels, side, side)``, or ``(d,)`` for the perceptrons.

    >>> network = make_network("lenet5", (1, 28, 28), 10)
    >>> network(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 10])
    """
    if name not in NETWORKS:
        raise UnknownName(f"there is no network {name!r}; choose from {', '.join(NETWORKS)}")
    if outputs < 1:
        raise BadInput(f"outputs must be 1 or more; got {outputs}")
    if len(shape) != 3 and not name.startswith(PERCEPTRONS):
        raise BadInput(f"{name} takes images (channels, height, width); got shape {tuple(shape)}")
    return NETWORKS[name](tuple(shape), outputs)


class ResidualBlock(nn.Module):
    """ReLU of the sum of a body and a shortcut."""

    def __init__(self, body: nn.Module, short: nn.Module | None = None) -> None:
        """``short`` adapts the input where the body changes its shape; None is the identity."""
        super().__init__()
        self.body = body
        self.short = nn.Identity() if short is None else short
        self.last = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        """``(b, ...)`` to the shape of the body."""
        outputs: Tensor = self.last(self.body(inputs) + self.short(inputs))
        return outputs


class ParallelBranches(nn.Module):
    """Parallel modules whose outputs are concatenated along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        """The outputs must agree in all but the channels."""
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, inputs: Tensor) -> Tensor:
        """``(b, c, h, w)`` to ``(b, sum of the branches' channels, h', w')``."""
        return torch.cat([branch(inputs) for branch in self.branches], dim=1)


def lenet5(shape: Shape, outputs: int) -> nn.Module:
    """60 thousand parameters on 28 x 28; an image under 16 is padded before both convolutions."""
    channels, side = shape[0], _smallest_image_side(shape)
    pad = 2 if side < 32 else 0
    again = 2 if side < 16 else 0
    body = [*_conv_relu(channels, 6, 5, pad), nn.MaxPool2d(2)]
    body += [*_conv_relu(6, 16, 5, again), nn.MaxPool2d(2)]
    return _add_linear_layers(body, shape, (120, 84), outputs)


def wide_cnn(shape: Shape, outputs: int) -> nn.Module:
    """Two 5 x 5 convolutions and 512 features, as many as VGG-16 has."""
    body = [*_conv_relu(shape[0], 16, 5, 2), nn.MaxPool2d(2)]
    body += [*_conv_relu(16, 32, 5, 2), nn.MaxPool2d(2)]
    return _add_linear_layers(body, shape, (512,), outputs)


def average_cnn(shape: Shape, outputs: int) -> nn.Module:
    """Three 3 x 3 convolutions, averaged over the image, and a linear layer."""
    body: list[nn.Module] = []
    for before, after in pairwise((shape[0], 32, 64, 128)):
        body += _conv_relu(before, after, 3, 1)
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, outputs))


def perceptron(
    widths: Sequence[int], act: Callable[[], nn.Module], shape: Shape, outputs: int
) -> nn.Module:
    """Linear layers of these widths with an activation after each."""
    return _add_linear_layers([], shape, widths, outputs, act)


VGG = {
    "vgg11": ((64,), (128,), (256, 256), (512, 512), (512, 512)),
    "vgg16": ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3),
}
"""Channels of the convolutions between two poolings."""


def vgg(name: str, shape: Shape, outputs: int) -> nn.Module:
    """Stages of 3 x 3 convolutions; each stage halves the image while it is larger than a pixel."""
    body: list[nn.Module] = []
    before, side = shape[0], _smallest_image_side(shape)
    for stage in VGG[name]:
        for after in stage:
            body += _conv_norm_relu(before, after, 3, 1)
            before = after
        if side > 1:
            body.append(nn.MaxPool2d(2))
            side //= 2
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, outputs))


def resnet18(width: int, last: int | None, shape: Shape, outputs: int) -> nn.Module:
    """Four stages of two blocks; the first convolution is 3 x 3, without pooling.

    ``width`` are the channels of the first stage, 64 in the paper; ``last`` is the width of a
    linear layer with a ReLU before the head, or None.
    """
    body = _conv_norm_relu(shape[0], width, 3, 1)
    before = width
    for stage in range(4):
        after = width * 2**stage
        body += [
            _residual_block(before, after, 1 if stage == 0 else 2),
            _residual_block(after, after, 1),
        ]
        before = after
    body += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    if last is not None:
        body += [nn.Linear(before, last), nn.ReLU()]
        before = last
    return nn.Sequential(*body, nn.Linear(before, outputs))


def _residual_block(before: int, after: int, stride: int) -> nn.Module:
    """Two convolutions; the shortcut is the identity where the shape does not change."""
    inner = _conv_norm_relu(before, after, 3, 1, stride)
    body = nn.Sequential(*inner, *_conv_norm_relu(after, after, 3, 1)[:-1])
    if stride == 1 and before == after:
        return ResidualBlock(body)
    return ResidualBlock(body, nn.Sequential(*_conv_norm_relu(before, after, 1, 0, stride)[:-1]))


def small_convolution(
    channels: int, kernel: int, width: int, act: Callable[[], nn.Module], shape: Shape, outputs: int
) -> nn.Module:
    """One convolution, a pooling, and a hidden layer."""
    first = nn.Conv2d(shape[0], channels, kernel, padding=kernel // 2)
    return _add_linear_layers([first, act(), nn.MaxPool2d(2)], shape, (width,), outputs, act)


def small_deep(shape: Shape, outputs: int) -> nn.Module:
    """Three convolutions with strides instead of pooling."""
    body: list[nn.Module] = []
    for before, after in pairwise((shape[0], 12, 24, 32)):
        body += [nn.Conv2d(before, after, 3, 2, 1), nn.ReLU()]
    return _add_linear_layers(body, shape, (48,), outputs)


def small_vgg(shape: Shape, outputs: int) -> nn.Module:
    """Two pairs of convolutions with batch normalisation."""
    body = [
        *_conv_norm_relu(shape[0], 12, 3, 1),
        *_conv_norm_relu(12, 12, 3, 1),
        nn.MaxPool2d(2),
    ]
    body += [
        *_conv_norm_relu(12, 24, 3, 1),
        *_conv_norm_relu(24, 24, 3, 1),
        nn.MaxPool2d(2),
    ]
    return _add_linear_layers(body, shape, (64,), outputs)


def small_residual(channels: int, blocks: int, shape: Shape, outputs: int) -> nn.Module:
    """Residual blocks without normalisation, averaged over quarters of the image."""
    body = [nn.Conv2d(shape[0], channels, 3, 2, 1), nn.ReLU()]
    for _ in range(blocks):
        inner = _conv_relu(channels, channels, 3, 1)
        body.append(
            ResidualBlock(nn.Sequential(*inner, nn.Conv2d(channels, channels, 3, padding=1)))
        )
    body.append(nn.AdaptiveAvgPool2d(2))
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(4 * channels, outputs))


def small_separable(shape: Shape, outputs: int) -> nn.Module:
    """Depthwise separable convolutions."""
    body: list[nn.Module] = [nn.Conv2d(shape[0], 16, 3, 2, 1), nn.ReLU()]
    for before, after in pairwise((16, 32, 64)):
        body += [nn.Conv2d(before, before, 3, padding=1, groups=before), nn.ReLU()]
        body += [nn.Conv2d(before, after, 1), nn.ReLU()]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, outputs))


def small_dilated(shape: Shape, outputs: int) -> nn.Module:
    """Dilated convolutions."""
    body: list[nn.Module] = []
    for before, after, apart in ((shape[0], 12, 1), (12, 12, 2), (12, 16, 4)):
        body += [nn.Conv2d(before, after, 3, padding=apart, dilation=apart), nn.ReLU()]
    body.append(nn.AdaptiveAvgPool2d(3))
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(9 * 16, outputs))


def small_branches(shape: Shape, outputs: int) -> nn.Module:
    """Parallel convolutions of three sizes."""
    branches = [nn.Conv2d(shape[0], 8, kernel, padding=kernel // 2) for kernel in (1, 3, 5)]
    body = [
        ParallelBranches(*branches),
        nn.ReLU(),
        nn.MaxPool2d(2),
        *_conv_relu(24, 16, 3, 1),
    ]
    return _add_linear_layers([*body, nn.AdaptiveAvgPool2d(3)], shape, (64,), outputs)


def small_patches(shape: Shape, outputs: int) -> nn.Module:
    """Embedded patches, mixed within and between channels."""
    patch = max(1, _smallest_image_side(shape) // 7)
    body = [nn.Conv2d(shape[0], 32, patch, patch), nn.GELU()]
    place = nn.Conv2d(32, 32, 5, padding=2, groups=32)
    body += [ResidualBlock(nn.Sequential(place, nn.GELU())), nn.Conv2d(32, 48, 1), nn.GELU()]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(192, outputs))


MOST_CHANNELS, MOST_LAYERS, LARGEST_KERNEL = 16, 5, 5
"""Sizes of the network that contains all variants."""


class MaskedConvolution(nn.Conv2d):
    """A convolution of fewer channels and a smaller kernel, stored in a larger one.

    The surplus weights are zero, in the forward pass and in every gradient. The others start as
    those of the smaller layer would. So layers of different sizes have parameters of one shape.
    """

    mask: Tensor
    shown: Tensor

    def __init__(self, before: int, used: int, channels: int, kernel: int, stride: int = 1) -> None:
        """Use ``used`` of ``before`` input channels, and ``channels`` output channels."""
        pad = LARGEST_KERNEL // 2
        super().__init__(before, MOST_CHANNELS, LARGEST_KERNEL, stride, pad)
        mask = torch.zeros_like(self.weight)
        edge = (LARGEST_KERNEL - kernel) // 2
        mask[:channels, :used, edge : edge + kernel, edge : edge + kernel] = 1
        self.register_buffer("mask", mask)
        self.register_buffer("shown", mask.flatten(1).amax(dim=1))
        with torch.no_grad():  # both are uniform within 1 / sqrt(inputs of an output)
            scale = (before * LARGEST_KERNEL**2 / (used * kernel**2)) ** 0.5
            self.weight.mul_(scale * mask)
            self.offset.mul_(scale * self.shown)

    def forward(self, inputs: Tensor) -> Tensor:
        """``(b, before, h, w)`` to ``(b, MOST_CHANNELS, h', w')``."""
        weight, bias = self.weight * self.mask, self.offset * self.shown
        return nn.functional.conv2d(inputs, weight, bias, self.stride, self.padding)

    @property
    def offset(self) -> Tensor:
        """The bias ``(MOST_CHANNELS,)``."""
        assert self.bias is not None
        return self.bias


class GatedLayer(nn.Module):
    """A layer and a ReLU, or the identity where the gate is 0."""

    gate: Tensor

    def __init__(self, layer: nn.Module, gate: float) -> None:
        """``gate`` is 0 or 1."""
        super().__init__()
        self.layer = layer
        self.register_buffer("gate", torch.tensor(gate))

    def forward(self, inputs: Tensor) -> Tensor:
        """``(b, c, h, w)`` to the same shape."""
        outputs: Tensor = self.gate * torch.relu(self.layer(inputs)) + (1 - self.gate) * inputs
        return outputs


def variant_cnn(channels: int, layers: int, kernel: int, shape: Shape, outputs: int) -> nn.Module:
    """A few convolutions and a linear layer; all variants have parameters of one shape."""
    first = MaskedConvolution(shape[0], shape[0], channels, kernel, stride=2)
    body: list[nn.Module] = [first, nn.ReLU(), nn.MaxPool2d(2)]
    for number in range(2, MOST_LAYERS + 1):
        layer = MaskedConvolution(MOST_CHANNELS, channels, channels, kernel)
        body.append(GatedLayer(layer, float(number <= layers)))
    head = nn.Linear(4 * MOST_CHANNELS, outputs)
    with torch.no_grad():
        head.weight.mul_((MOST_CHANNELS / channels) ** 0.5)
        head.bias.mul_((MOST_CHANNELS / channels) ** 0.5)
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(2), nn.Flatten(), head)


def make_linear_network(width: int, outputs: int) -> nn.Module:
    """A linear layer on given features."""
    return nn.Sequential(nn.Linear(width, outputs))


class ColumnSlice(nn.Module):
    """Selects columns of the inputs."""

    def __init__(self, begin: int, end: int) -> None:
        """From ``begin`` up to but not including ``end``."""
        super().__init__()
        self.begin, self.end = begin, end

    def forward(self, inputs: Tensor) -> Tensor:
        """``(b, d)`` to ``(b, end - begin)``."""
        return inputs[:, self.begin : self.end]


class RaisedReLU(nn.Module):
    """ReLU whose smallest output is ``lowest`` instead of 0, for values in other units."""

    lowest: Tensor

    def __init__(self, lowest: Sequence[float]) -> None:
        """One smallest output per column."""
        super().__init__()
        self.register_buffer("lowest", torch.tensor(lowest, dtype=torch.float32))

    def forward(self, inputs: Tensor) -> Tensor:
        """``(b, K)`` to ``(b, K)``."""
        return torch.relu(inputs - self.lowest) + self.lowest


def make_relu_head(width: int, lowest: Sequence[float]) -> nn.Module:
    """A linear layer on features whose outputs cannot fall below the smallest values."""
    return nn.Sequential(nn.Linear(width, len(lowest)), RaisedReLU(lowest))


def make_column_head(begin: int, end: int, outputs: int) -> nn.Module:
    """A linear layer on some columns of the inputs.

    >>> make_column_head(2, 5, 4)[1]
    Linear(in_features=3, out_features=4, bias=True)
    """
    return nn.Sequential(ColumnSlice(begin, end), nn.Linear(end - begin, outputs))


def crop_and_flip_images(images: Tensor) -> Tensor:
    """Shift every image by up to an eighth of its side, padded with zeros; flip half of them.

    >>> crop_and_flip_images(torch.ones(5, 1, 8, 8)).shape
    torch.Size([5, 1, 8, 8])
    """
    count, side = len(images), images.shape[-1]
    room = max(1, side // 8)
    flips = torch.rand(count, device=images.device) < 0.5
    images = torch.where(flips[:, None, None, None], images.flip(-1), images)
    padded = nn.functional.pad(images, (room,) * 4)
    steps = torch.arange(side, device=images.device)
    down, right = torch.randint(2 * room + 1, (2, count, 1), device=images.device)
    items = torch.arange(count, device=images.device)[:, None, None]
    rows = padded[items, :, (down + steps)[:, :, None], (right + steps)[:, None, :]]
    return rows.permute(0, 3, 1, 2)


AUGMENTATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"crop_and_flip": crop_and_flip_images}
"""Augmentations of training images by name."""


def _smallest_image_side(shape: Shape) -> int:
    return min(shape[1], shape[2])


def _conv_relu(before: int, after: int, kernel: int, padding: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, kernel, padding=padding), nn.ReLU()]


def _conv_norm_relu(
    before: int, after: int, kernel: int, padding: int, stride: int = 1
) -> list[nn.Module]:
    """Convolution, batch normalisation, ReLU."""
    layer = nn.Conv2d(before, after, kernel, stride, padding, bias=False)
    return [layer, nn.BatchNorm2d(after), nn.ReLU()]


def _add_linear_layers(
    body: Sequence[nn.Module],
    shape: Shape,
    widths: Sequence[int],
    outputs: int,
    act: Callable[[], nn.Module] = nn.ReLU,
) -> nn.Module:
    """A body, hidden layers, and the head; the width of the body is measured."""
    layers: list[nn.Module] = [*body, nn.Flatten()]
    before = prod(shape)
    if body:
        with torch.no_grad():
            before = nn.Sequential(*layers).eval()(torch.zeros(1, *shape)).shape[1]
        for layer in layers:
            layer.train()
    for after in widths:
        layers += [nn.Linear(before, after), act()]
        before = after
    return nn.Sequential(*layers, nn.Linear(before, outputs))


FAMILY: Mapping[str, Builder] = {
    "small_perceptron_64": partial(perceptron, (64,), nn.ReLU),
    "small_perceptron_256": partial(perceptron, (256,), nn.ReLU),
    "small_perceptron_96_48": partial(perceptron, (96, 48), nn.ReLU),
    "small_perceptron_tanh": partial(perceptron, (128, 64), nn.Tanh),
    "small_convolution_3": partial(small_convolution, 8, 3, 48, nn.ReLU),
    "small_convolution_5": partial(small_convolution, 6, 5, 64, nn.ReLU),
    "small_convolution_7": partial(small_convolution, 12, 7, 32, nn.ELU),
    "small_deep": small_deep,
    "small_vgg": small_vgg,
    "small_residual": partial(small_residual, 16, 1),
    "small_residual_deep": partial(small_residual, 12, 3),
    "small_separable": small_separable,
    "small_dilated": small_dilated,
    "small_branches": small_branches,
    "small_patches": small_patches,
}
"""Different networks that train in seconds, for selections for several models."""

VARIANTS: Mapping[str, Builder] = {
    f"variant_{channels}_{layers}_{kernel}": partial(variant_cnn, channels, layers, kernel)
    for channels in (4, 6, 8, 12, 16)
    for layers in range(1, MOST_LAYERS + 1)
    for kernel in (3, 5)
}
"""50 small networks of different width, depth and kernel size, which train as one model."""

NETWORKS: Mapping[str, Builder] = {
    "lenet5": lenet5,
    "vgg11": partial(vgg, "vgg11"),
    "vgg16": partial(vgg, "vgg16"),
    "resnet18": partial(resnet18, 64, None),
    "resnet18_narrow": partial(resnet18, 16, None),
    "bayesian_resnet18": partial(resnet18, 64, 256),
    "bayesian_resnet18_32": partial(resnet18, 64, 32),
    "bayesian_resnet18_narrow": partial(resnet18, 16, 32),
    "cnn_512": wide_cnn,
    "cnn": lenet5,  # the same without padding on 32 x 32
    "cnn_avgpool": average_cnn,
    "mlp": partial(perceptron, (256, 256), nn.ReLU),
    **FAMILY,
    **VARIANTS,
}
"""All networks by name."""

PERCEPTRONS = ("mlp", "small_perceptron")  # Prefixes of the names of networks that take any shape
