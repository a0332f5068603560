r"""Contribution of a convolution to the per-item gradient norms and products.

A convolution is a linear layer on the patches under its kernel; `.linear` describes the methods.
To save copies, patches are unfolded along all kernel axes except the first, and every offset along
the first axis is a view (a third of the copies for a 3 x 3 kernel). The shifted Gram form copies no
patches. On a GPU the number of kernel launches dominates, so whole patches are unfolded at once.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from labelwise.learners.gradients.linear import LinearShape, gram_norms
from labelwise.learners.gradients.tally import GradientTally, inner_products, split_items

Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d

_WHOLE = {"cuda"}
"""Devices on which one large copy is faster than several small ones."""
_CONVOLVE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def conv_gradients(layer: Conv, x: Tensor, delta: Tensor) -> dict[str, Tensor]:
    """Per-item gradients, ``(b, c, C / groups, ...)`` and ``(b, c)``."""
    flat = _split_groups(layer, delta.flatten(2))
    slabs = _split_slabs(layer, _pad_input(layer, x), delta.shape[2])
    shape = (len(x), layer.out_channels, layer.in_channels // layer.groups, -1)
    weight = torch.stack([torch.bmm(flat, slab.mT).view(shape) for slab in slabs], 3)
    return {"weight": weight.view(len(x), *layer.weight.shape), "bias": delta.flatten(2).sum(2)}


def tally_conv(
    layer: Conv, x: Tensor, delta: Tensor, names: dict[str, str], tally: GradientTally
) -> None:
    """Add a convolution; ``x`` is ``(b, C, ...)``, ``delta`` is ``(b, c, ...)``."""
    if "bias" in names:
        biases = delta.flatten(2).sum(2)
        tally.add_gradients(slice(0, len(x)), biases, tally.get_vector(names["bias"]))
    if "weight" not in names:
        return
    vector, shape = tally.get_vector(names["weight"]), _kernel_shape(layer, x, delta)
    whole = _lays_out_whole(x)
    way = shape.way(vector is not None, whole) if tally.wants_norms else "none"
    if way == "outer":
        (_tally_whole if whole else _tally_outer)(layer, x, delta, vector, tally)
        return
    if way != "none":
        _tally_gram(layer, x, delta, shape, way, tally)
    if vector is not None:
        again = _convolve(layer, x, vector.to(x.dtype))
        tally.add_products(slice(0, len(x)), inner_products(again, delta))


def _tally_outer(
    layer: Conv, x: Tensor, delta: Tensor, vector: Tensor | None, tally: GradientTally
) -> None:
    """Form the gradients of some items, for one offset along the first axis at a time."""
    parts = [None] * layer.kernel_size[0] if vector is None else vector.movedim(2, 0).contiguous()
    places = math.prod(
        n + extra for n, extra in zip(x.shape[2:], _extra_padding(layer), strict=True)
    )
    offsets = math.prod(layer.kernel_size[1:])
    floats = (1 + offsets) * layer.in_channels * places
    floats += layer.weight.numel() // layer.kernel_size[0]
    for rows in split_items(floats, x, delta):
        some = _split_groups(layer, delta[rows].flatten(2))
        slabs = _split_slabs(layer, _pad_input(layer, x[rows]), delta.shape[2])
        for slab, part in zip(slabs, parts, strict=True):
            outer = torch.bmm(some, slab.mT)
            tally.add_gradients(rows, outer.view(-1, layer.out_channels, outer.shape[2]), part)


def _tally_whole(
    layer: Conv, x: Tensor, delta: Tensor, vector: Tensor | None, tally: GradientTally
) -> None:
    """Form the gradients of some items at once."""
    shape = _kernel_shape(layer, x, delta)
    patches = layer.groups * shape.positions * shape.channels * shape.offsets
    floats = patches + layer.in_channels * shape.places + layer.weight.numel()
    for rows in split_items(floats, x, delta):
        some = _split_groups(layer, delta[rows].flatten(2))
        outer = torch.bmm(some, _unfold_patches(layer, _pad_input(layer, x[rows])).mT)
        tally.add_gradients(rows, outer.view(len(x[rows]), -1), vector)


def _tally_gram(
    layer: Conv, x: Tensor, delta: Tensor, shape: LinearShape, way: str, tally: GradientTally
) -> None:
    """Add the norms by one of the Gram forms."""
    positions = shape.positions
    if way == "gram":
        floats = positions * (2 * shape.channels * shape.offsets + 3 * positions)
    else:
        floats = shape.places * (shape.channels + shape.places) + 3 * positions**2
    for rows in split_items(layer.groups * floats, x, delta):
        padded, some = _pad_input(layer, x[rows]), _split_groups(layer, delta[rows].flatten(2))
        if way == "gram":
            if _lays_out_whole(x):
                patches = _unfold_patches(layer, padded)
            else:
                patches = torch.cat(list(_split_slabs(layer, padded, delta.shape[2])), 1)
            norms = gram_norms(patches, some)
        else:
            norms = _shifted_norms(layer, padded, some, delta.shape[2:])
        tally.add_norms(rows, norms.view(len(padded), -1).sum(1))


def _shifted_norms(layer: Conv, padded: Tensor, delta: Tensor, size: torch.Size) -> Tensor:
    """The squared norms, from the Gram matrix of the places of the padded input.

    Args:
        layer: the convolution.
        padded: ``(m, C, ...)``, its padded input.
        delta: ``(m groups, c / groups, T)``.
        size: size of the output, which has ``T`` positions.
    """
    x = _split_groups(layer, padded.flatten(2))
    places = padded.shape[2:]
    grams = torch.bmm(x.mT, x).view(-1, *places, *places)
    patches = torch.zeros((len(x), *size, *size), dtype=x.dtype, device=x.device)
    for offsets in itertools.product(*(range(k) for k in layer.kernel_size)):
        window = tuple(
            slice(o * d, o * d + s * (length - 1) + 1, s)
            for o, d, s, length in zip(offsets, layer.dilation, layer.stride, size, strict=True)
        )
        patches += grams[(slice(None), *window, *window)]
    return inner_products(patches.flatten(1), torch.bmm(delta.mT, delta).flatten(1))


def _lays_out_whole(x: Tensor) -> bool:
    return x.device.type in _WHOLE


def _unfold_patches(layer: Conv, padded: Tensor) -> Tensor:
    """Patches of all positions, ``(m groups, C / groups * offsets, T)``, in one copy."""
    n = padded.ndim - 2
    windows = padded
    settings = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    for axis, (k, s, d) in enumerate(settings):
        windows = windows.unfold(2 + axis, (k - 1) * d + 1, s)
        windows = windows[..., ::d] if d > 1 else windows
    order = (0, 1, *range(2 + n, 2 + 2 * n), *range(2, 2 + n))
    positions = math.prod(windows.shape[2 : 2 + n])
    return windows.permute(order).reshape(len(padded) * layer.groups, -1, positions)


def _split_slabs(layer: Conv, padded: Tensor, length: int) -> Iterator[Tensor]:
    """Patches of all positions at each offset along the kernel's first axis.

    Args:
        layer: the convolution.
        padded: ``(m, C, ...)``, its padded input.
        length: length of the output along its first axis.

    Yields:
        ``(m groups, C / groups * offsets along the other axes, T)``, one per offset.
    """
    n = padded.ndim - 2
    windows = padded.contiguous()
    settings = list(zip(layer.kernel_size, layer.stride, layer.dilation, strict=True))
    for axis, (k, s, d) in enumerate(settings[1:]):
        windows = windows.unfold(3 + axis, (k - 1) * d + 1, s)[..., ::d]
    order = (0, 1, *range(2 + n, 1 + 2 * n), *range(2, 2 + n))
    m, _, places, *size = windows.shape[: 2 + n]
    laid = windows.permute(order).reshape(m * layer.groups, -1, places, math.prod(size))
    k, s, d = settings[0]
    for o in range(k):
        yield laid[:, :, o * d : o * d + s * (length - 1) + 1 : s].flatten(2)


def _kernel_shape(layer: Conv, x: Tensor, delta: Tensor) -> LinearShape:
    """The sizes of one group."""
    return LinearShape(
        positions=math.prod(delta.shape[2:]),
        places=math.prod(
            n + extra for n, extra in zip(x.shape[2:], _extra_padding(layer), strict=True)
        ),
        channels=layer.in_channels // layer.groups,
        outputs=layer.out_channels // layer.groups,
        offsets=math.prod(layer.kernel_size),
    )


def _split_groups(layer: Conv, flat: Tensor) -> Tensor:
    """``(m, C, T)`` as ``(m groups, C / groups, T)``."""
    return flat.reshape(len(flat) * layer.groups, -1, flat.shape[2])


def _extra_padding(layer: Conv) -> list[int]:
    """Total padding of each axis, both sides together."""
    if layer.padding == "valid":
        return [0] * len(layer.kernel_size)
    if layer.padding == "same":
        return [d * (k - 1) for k, d in zip(layer.kernel_size, layer.dilation, strict=True)]
    return [2 * int(p) for p in layer.padding]


def _pad_input(layer: Conv, x: Tensor) -> Tensor:
    """The padded input; odd padding is larger at the end."""
    extra = _extra_padding(layer)
    if not any(extra):
        return x
    sides = [side for both in reversed(extra) for side in (both // 2, both - both // 2)]
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return functional.pad(x, sides, mode)


def _convolve(layer: Conv, x: Tensor, weight: Tensor) -> Tensor:
    """Output of the layer with this weight and without bias."""
    padding: Any = layer.padding
    if layer.padding_mode != "zeros":
        x, padding = _pad_input(layer, x), 0
    convolve: Any = _CONVOLVE[x.ndim - 2]
    again: Tensor = convolve(x, weight, None, layer.stride, padding, layer.dilation, layer.groups)
    return again
