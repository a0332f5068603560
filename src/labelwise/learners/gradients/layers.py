r"""Rules by layer type: what one call adds to the per-item gradient norms and products.

A rule needs the input of the call and the gradient :math:`\delta` with respect to its output.

*Linear layers and convolutions* apply a weight at every position. With :math:`x_t \in R^a` the
input at position :math:`t` (for a convolution the patch under the kernel) and
:math:`\delta_t \in R^c`, the gradient of one item is :math:`G = \sum_t \delta_t x_t^\top`. Its norm
comes from the cheaper of two methods:

* outer: form :math:`G` for a few items at a time, which also gives the product with a vector
  :math:`V`; ``T a c`` multiplications per item;
* Gram: :math:`|G|^2 = \sum_{t,s} (x_t \cdot x_s)(\delta_t \cdot \delta_s)`, for few positions;
  ``T^2 (a + c)``. The product :math:`\sum_t \delta_t \cdot V x_t` is a second call of the layer.

*Normalisation* (batch in eval mode, layer, group, instance, root mean square), with
:math:`\hat x` the normalised input: :math:`\sum_t \delta_t \hat x_t` and :math:`\sum_t \delta_t`.

*Embedding*: row :math:`r` gets the :math:`\delta_t` of all positions with that index, hence
:math:`|G|^2 = \sum_{t,s} [i_t = i_s]\, \delta_t \cdot \delta_s`.

Rules apply to these exact types only, since a subclass may compute something else.

References: I. Goodfellow, "Efficient Per-Example Gradient Computations", arXiv 1510.01799, 2015;
X. Li, F. Tramèr, P. Liang, T. Hashimoto, "Large Language Models Can Be Strong Differentially
Private Learners", ICLR 2022 (positions); Z. Bu, J. Mao, S. Xu, "Scalable and Efficient Training of
Large Convolutional Neural Networks with Differential Privacy", NeurIPS 2022 (choice per layer).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from labelwise.learners.gradients.tally import (
    GradientTally,
    item_inner_products,
    item_squared_norms,
    split_tally_items,
)

Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d
Norm = nn.modules.batchnorm._NormBase | nn.GroupNorm | nn.LayerNorm | nn.RMSNorm

_MEMORY_PASS = 32  # Multiplications of a matrix product that take as long as one memory access


class LayerRule(NamedTuple):
    """Rule of one layer type."""

    # ``(layer, x, delta) -> {"weight": (m, ...), "bias": (m, ...)}``
    gradients: Callable[..., dict[str, Tensor]]
    axes: tuple[int, ...] | None = None  # allowed numbers of input axes; None for any
    # ``(layer, x, delta, names, tally)`` adds a call without forming all gradients; None forms them
    tally: Callable[..., None] | None = None


def list_item_axes(layer: nn.Module, axes: int) -> range:
    """Candidate item axes of an input with this many axes; empty if no rule applies."""
    allowed = RULES[type(layer)].axes
    if allowed is not None and axes not in allowed:
        return range(0)
    if type(layer) in ITEMS_FIRST:
        return range(1)
    if isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        return range(axes - len(layer.normalized_shape))
    return range(axes - 1 if isinstance(layer, nn.Linear) else axes)


def tally_call(
    layer: nn.Module, x: Tensor, delta: Tensor, names: dict[str, str], tally: GradientTally
) -> None:
    """Add one call of a layer to the tally.

    ``x`` ``(b, ...)`` is its input, ``delta`` the gradient with respect to its output, and
    ``names`` the full names of the parameters to tally, by their names in the layer.
    """
    x, delta = cast_layer_tensors(x, delta)
    rule = RULES[type(layer)]
    if rule.tally is not None:
        rule.tally(layer, x, delta, names, tally)
        return
    for rows in split_tally_items(2 * x[0].numel(), x, delta):
        gradients = rule.gradients(layer, x[rows], delta[rows])
        for local, name in names.items():
            tally.add_gradients(rows, gradients[local], tally.get_vector(name))


def cast_layer_tensors(x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """Input and output gradient in one dtype, at least float32; indices are unchanged."""
    if not x.is_floating_point():
        return x, delta.to(torch.promote_types(delta.dtype, torch.float32))
    both = torch.promote_types(torch.promote_types(x.dtype, delta.dtype), torch.float32)
    return x.to(both), delta.to(both)


def choose_norm_method(positions: int, inputs: int, outputs: int, products: bool) -> str:
    """The cheaper method for the norm, and for the product if ``products``.

    >>> choose_norm_method(1024, 576, 64, True), choose_norm_method(16, 4608, 512, True)
    ('outer', 'gram')
    """
    weights = inputs * outputs
    outer = positions * weights + _MEMORY_PASS * weights
    gram = positions**2 * (inputs + outputs + _MEMORY_PASS)
    gram += positions * weights if products else 0
    return "outer" if outer <= gram else "gram"


def _matrix_gradients(layer: nn.Linear | Conv, x: Tensor, delta: Tensor) -> dict[str, Tensor]:
    """Per-item gradients ``(b, *weight.shape)`` and ``(b, c)``."""
    inputs, outputs = flatten_positions(layer, x, delta)
    weight = torch.bmm(outputs, inputs.mT).view(len(x), *layer.weight.shape)
    return {"weight": weight, "bias": outputs.sum(2).view(len(x), -1)}


def _tally_matrix(
    layer: nn.Linear | Conv, x: Tensor, delta: Tensor, names: dict[str, str], tally: GradientTally
) -> None:
    """Add a linear layer or a convolution."""
    groups = 1 if isinstance(layer, nn.Linear) else layer.groups
    c, a = layer.weight.shape[0] // groups, layer.weight[0].numel()
    t = delta[0].numel() // (c * groups)
    everything = slice(0, len(x))
    if "bias" in names:
        channels = -1 if isinstance(layer, nn.Linear) else 1
        biases = delta.movedim(channels, 1).reshape(len(x), c * groups, t).sum(2)
        tally.add_gradients(everything, biases, tally.get_vector(names["bias"]))
    if "weight" not in names:
        return
    vector = tally.get_vector(names["weight"])
    copied = 0 if isinstance(layer, nn.Linear) else groups * t * a + x[0].numel()
    if choose_norm_method(t, a, c, vector is not None) == "outer":
        for rows in split_tally_items(copied + layer.weight.numel(), x, delta):
            inputs, outputs = flatten_positions(layer, x[rows], delta[rows])
            outer = torch.bmm(outputs, inputs.mT)
            tally.add_gradients(rows, outer.view(-1, c * groups, a), vector)
        return
    for rows in split_tally_items(2 * copied + 3 * groups * t * t, x, delta):
        norms = _gram_norms(*flatten_positions(layer, x[rows], delta[rows]))
        tally.add_norms(rows, norms.view(-1, groups).sum(1))
    if vector is not None:
        again = _apply_layer_weight(layer, x, vector.to(x.dtype))
        tally.add_products(everything, item_inner_products(again, delta))


def _gram_norms(x: Tensor, delta: Tensor) -> Tensor:
    """``(m, a, T), (m, c, T) -> (m,)``: the squared norm of the sum of outer products."""
    if x.shape[2] == 1:
        return item_squared_norms(x.mT) * item_squared_norms(delta.mT)
    return item_inner_products(torch.bmm(x.mT, x), torch.bmm(delta.mT, delta))


def flatten_positions(layer: nn.Linear | Conv, x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs ``(m groups, a, T)`` and output gradients ``(m groups, c, T)``; patches are copied."""
    if isinstance(layer, nn.Linear):
        inputs, outputs = (rows.reshape(len(rows), -1, rows.shape[-1]).mT for rows in (x, delta))
        return inputs, outputs
    windows, n = _pad_convolution_input(layer, x), x.ndim - 2
    settings = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    for axis, (k, s, d) in enumerate(settings):
        windows = windows.unfold(2 + axis, (k - 1) * d + 1, s)[..., ::d]
    t = math.prod(delta.shape[2:])
    order = (0, 1, *range(2 + n, 2 + 2 * n), *range(2, 2 + n))
    patches = windows.permute(order).reshape(len(x) * layer.groups, -1, t)
    return patches, delta.reshape(len(x) * layer.groups, -1, t)


def _apply_layer_weight(layer: nn.Linear | Conv, x: Tensor, weight: Tensor) -> Tensor:
    """Output of the layer with this weight and without bias."""
    if isinstance(layer, nn.Linear):
        return functional.linear(x, weight)
    output: Tensor = layer._conv_forward(x, weight, None)
    return output


def _pad_convolution_input(layer: Conv, x: Tensor) -> Tensor:
    """The padded input; odd padding is larger at the end."""
    if layer.padding == "valid":
        return x
    if layer.padding == "same":
        extra = [d * (k - 1) for k, d in zip(layer.kernel_size, layer.dilation, strict=True)]
    else:
        extra = [2 * int(p) for p in layer.padding]
    if not any(extra):
        return x
    sides = [side for both in reversed(extra) for side in (both // 2, both - both // 2)]
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return functional.pad(x, sides, mode)


def _normalize_layer_input(layer: Norm, x: Tensor) -> Tensor:
    """Output of the layer without its scale and shift."""
    if isinstance(layer, nn.LayerNorm):
        return functional.layer_norm(x, layer.normalized_shape, eps=layer.eps)
    if isinstance(layer, nn.RMSNorm):
        return functional.rms_norm(x, layer.normalized_shape, eps=layer.eps)
    if isinstance(layer, nn.GroupNorm):
        return functional.group_norm(x, layer.num_groups, eps=layer.eps)
    mean, variance = layer.running_mean, layer.running_var
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return functional.batch_norm(x, mean, variance, eps=layer.eps)
    own = mean is None
    return functional.instance_norm(x, mean, variance, use_input_stats=own, eps=layer.eps)


def _norm_gradients(layer: Norm, x: Tensor, delta: Tensor) -> dict[str, Tensor]:
    """Scale and shift of a normalisation: ``(m, C)`` each, or ``(m, *normalized_shape)``."""
    products = delta * _normalize_layer_input(layer, x)
    if isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        shape = (len(x), -1, *layer.normalized_shape)
        return {"weight": products.reshape(shape).sum(1), "bias": delta.reshape(shape).sum(1)}
    shape = (*x.shape[:2], -1)
    return {"weight": products.reshape(shape).sum(2), "bias": delta.reshape(shape).sum(2)}


def _embedding_parts(layer: nn.Embedding, x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """Indices ``(m, T)`` and their gradients ``(m, T, d)``, zero at the padding index."""
    indices = x.reshape(len(x), -1)
    delta = delta.reshape(*indices.shape, layer.embedding_dim)
    if layer.padding_idx is not None:
        delta = delta.masked_fill((indices == layer.padding_idx)[..., None], 0)
    return indices, delta


def _embedding_gradients(layer: nn.Embedding, x: Tensor, delta: Tensor) -> dict[str, Tensor]:
    indices, delta = _embedding_parts(layer, x, delta)
    found = delta.new_zeros((len(x), layer.num_embeddings, layer.embedding_dim))
    found.scatter_add_(1, indices[..., None].expand_as(delta), delta)
    return {"weight": found}


def _tally_embedding(
    layer: nn.Embedding, x: Tensor, delta: Tensor, names: dict[str, str], tally: GradientTally
) -> None:
    indices, delta = _embedding_parts(layer, x, delta)
    t = indices.shape[1]
    for rows in split_tally_items(3 * t * t, x, delta):
        same = indices[rows, :, None] == indices[rows, None, :]
        tally.add_norms(rows, item_inner_products(torch.bmm(delta[rows], delta[rows].mT), same))
    if tally.vector is not None:
        vector = tally.vector[names["weight"]].to(delta.dtype)
        tally.add_products(
            slice(0, len(x)), item_inner_products(functional.embedding(indices, vector), delta)
        )


RULES: dict[type[nn.Module], LayerRule] = {
    nn.Linear: LayerRule(_matrix_gradients, tally=_tally_matrix),
    nn.Conv1d: LayerRule(_matrix_gradients, (3,), _tally_matrix),
    nn.Conv2d: LayerRule(_matrix_gradients, (4,), _tally_matrix),
    nn.Conv3d: LayerRule(_matrix_gradients, (5,), _tally_matrix),
    nn.BatchNorm1d: LayerRule(_norm_gradients, (2, 3)),
    nn.BatchNorm2d: LayerRule(_norm_gradients, (4,)),
    nn.BatchNorm3d: LayerRule(_norm_gradients, (5,)),
    nn.SyncBatchNorm: LayerRule(_norm_gradients),
    nn.InstanceNorm1d: LayerRule(_norm_gradients, (3,)),
    nn.InstanceNorm2d: LayerRule(_norm_gradients, (4,)),
    nn.InstanceNorm3d: LayerRule(_norm_gradients, (5,)),
    nn.GroupNorm: LayerRule(_norm_gradients),
    nn.LayerNorm: LayerRule(_norm_gradients),
    nn.RMSNorm: LayerRule(_norm_gradients),
    nn.Embedding: LayerRule(_embedding_gradients, tally=_tally_embedding),
}
"""Rules of all supported layer types."""

ITEMS_FIRST = frozenset(
    layer for layer in RULES if layer not in (nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Embedding)
)
"""Types whose first axis is the items by definition; others take any axes before their features."""
