r"""Rules by layer type: contribution of one call to the per-item gradient norms and products.

A rule computes the per-item gradients of the layer's parameters from the input of the call and the
gradient :math:`\delta` with respect to its output:

* linear layers: `.linear`; convolutions: `.conv`;
* normalisation (batch in eval mode, layer, group, instance, root mean square): with
  :math:`\hat x` the normalised input, :math:`\sum_t \delta_t \hat x_t` and :math:`\sum_t \delta_t`;
* embedding: row :math:`r` gets the :math:`\delta_t` of all positions with that index, hence
  :math:`|G|^2 = \sum_{t,s} [i_t = i_s]\, \delta_t \cdot \delta_s`.

Rules apply to these exact types only, since a subclass may compute something else.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from labelwise.learners.gradients.conv import conv_gradients, tally_conv
from labelwise.learners.gradients.linear import linear_gradients, tally_linear
from labelwise.learners.gradients.tally import GradientTally, inner_products, split_items


class LayerRule(NamedTuple):
    """Rule of one layer type.

    Attributes:
        feature_axes: minimum number of trailing input axes that belong to one item.
        axes: allowed numbers of input axes; None for any.
        gradients: ``(layer, x, delta) -> {"weight": (m, ...), "bias": (m, ...)}``.
        tally: adds a call to a tally without forming all gradients; None forms them.
    """

    feature_axes: Callable[[Any], int]
    axes: tuple[int, ...] | None
    gradients: Callable[[Any, Tensor, Tensor], dict[str, Tensor]]
    tally: Callable[[Any, Tensor, Tensor, dict[str, str], GradientTally], None] | None = None


def position_axes(layer: nn.Module, axes: int) -> range:
    """Candidate item axes of an input with this many axes; empty if no rule applies."""
    rule = RULES[type(layer)]
    if rule.axes is not None and axes not in rule.axes:
        return range(0)
    return range(1 if type(layer) in ITEMS_FIRST else axes - rule.feature_axes(layer))


def tally_call(
    layer: nn.Module, x: Tensor, delta: Tensor, names: dict[str, str], tally: GradientTally
) -> None:
    """Add one call of a layer to the tally.

    Args:
        layer: a layer of a type in `RULES`.
        x: ``(b, ...)``, its input.
        delta: ``(b, ...)``, the gradient with respect to its output.
        names: full names of the parameters to tally, by their names in the layer.
        tally: receives the contributions.
    """
    x, delta = cast_inputs(x, delta)
    rule = RULES[type(layer)]
    if rule.tally is not None:
        rule.tally(layer, x, delta, names, tally)
        return
    for rows in split_items(2 * x[0].numel(), x, delta):
        gradients = rule.gradients(layer, x[rows], delta[rows])
        for local, name in names.items():
            tally.add_gradients(rows, gradients[local], tally.get_vector(name))


def cast_inputs(x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """Input and output gradient in one dtype, at least float32; indices are unchanged."""
    if not x.is_floating_point():
        return x, delta.to(torch.promote_types(delta.dtype, torch.float32))
    both = torch.promote_types(torch.promote_types(x.dtype, delta.dtype), torch.float32)
    return x.to(both), delta.to(both)


def _normalize_input(layer: Any, x: Tensor) -> Tensor:
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


def _norm_gradients(layer: Any, x: Tensor, delta: Tensor) -> dict[str, Tensor]:
    """Scale and shift of a normalisation: ``(m, C)`` each, or ``(m, *normalized_shape)``."""
    products = delta * _normalize_input(layer, x)
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
    items = torch.arange(len(x), device=x.device)[:, None]
    flat = delta.new_zeros((len(x) * layer.num_embeddings, layer.embedding_dim))
    rows = (items * layer.num_embeddings + indices).flatten()
    flat.index_add_(0, rows, delta.flatten(0, 1))
    return {"weight": flat.view(len(x), layer.num_embeddings, layer.embedding_dim)}


def _tally_embedding(
    layer: nn.Embedding, x: Tensor, delta: Tensor, names: dict[str, str], tally: GradientTally
) -> None:
    indices, delta = _embedding_parts(layer, x, delta)
    t = indices.shape[1]
    if tally.wants_norms:
        for rows in split_items(3 * t * t, x, delta):
            same = indices[rows, :, None] == indices[rows, None, :]
            tally.add_norms(rows, inner_products(torch.bmm(delta[rows], delta[rows].mT), same))
    if tally.vector is not None:
        vector = tally.vector[names["weight"]].to(delta.dtype)
        tally.add_products(
            slice(0, len(x)), inner_products(functional.embedding(indices, vector), delta)
        )


def _no_axis(layer: nn.Module) -> int:
    return 0


def _one_axis(layer: nn.Module) -> int:
    return 1


def _normalised_axes(layer: Any) -> int:
    return len(layer.normalized_shape)


RULES: dict[type[nn.Module], LayerRule] = {
    nn.Linear: LayerRule(_one_axis, None, linear_gradients, tally_linear),
    nn.Conv1d: LayerRule(_one_axis, (3,), conv_gradients, tally_conv),
    nn.Conv2d: LayerRule(_one_axis, (4,), conv_gradients, tally_conv),
    nn.Conv3d: LayerRule(_one_axis, (5,), conv_gradients, tally_conv),
    nn.BatchNorm1d: LayerRule(_one_axis, (2, 3), _norm_gradients),
    nn.BatchNorm2d: LayerRule(_one_axis, (4,), _norm_gradients),
    nn.BatchNorm3d: LayerRule(_one_axis, (5,), _norm_gradients),
    nn.SyncBatchNorm: LayerRule(_one_axis, None, _norm_gradients),
    nn.InstanceNorm1d: LayerRule(_one_axis, (3,), _norm_gradients),
    nn.InstanceNorm2d: LayerRule(_one_axis, (4,), _norm_gradients),
    nn.InstanceNorm3d: LayerRule(_one_axis, (5,), _norm_gradients),
    nn.GroupNorm: LayerRule(_one_axis, None, _norm_gradients),
    nn.LayerNorm: LayerRule(_normalised_axes, None, _norm_gradients),
    nn.RMSNorm: LayerRule(_normalised_axes, None, _norm_gradients),
    nn.Embedding: LayerRule(_no_axis, None, _embedding_gradients, _tally_embedding),
}
"""Rules of all supported layer types."""

ITEMS_FIRST = frozenset(
    layer for layer in RULES if layer not in (nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Embedding)
)
"""Types whose first axis is the items by definition; others take any axes before their features."""
