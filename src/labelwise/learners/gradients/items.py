"""Explicit per-item gradients in chunks, for parameters without a layer rule.

Uses `torch.func.vmap` over `torch.func.grad` if the module supports it, and a loop over items with
plain autograd otherwise (no batching rule, data-dependent control flow). Both call the module with
one item at a time.

Cost: a forward and a backward pass that write ``items x parameters`` numbers; memory for one chunk.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from labelwise.learners.gradients.inputs import (
    Inputs,
    Loss,
    item_losses,
    list_tensors,
    map_inputs,
    trainable_parameters,
)
from labelwise.learners.gradients.tally import GradientTally, even_slices

Gradients = dict[str, Tensor]

_ROOM = {"cpu": 2**24, "cuda": 2**27}
"""Maximum number of elements in the gradients of a chunk, by device."""


def tally_items(
    module: nn.Module,
    inputs: Inputs,
    targets: Tensor,
    loss: Loss,
    names: list[str],
    tally: GradientTally,
) -> None:
    """Add the named parameters to the tally from explicit per-item gradients.

    Args:
        module: in eval mode.
        inputs: of ``b`` items.
        targets: ``(b, ...)``.
        loss: gives ``(b,)``.
        names: of trainable parameters.
        tally: of ``b`` items.
    """
    parameters = {name: p for name, p in trainable_parameters(module).items() if name in names}
    floats = sum(p.numel() for p in parameters.values())
    room = _ROOM.get(targets.device.type, _ROOM["cuda"])
    for rows in even_slices(len(targets), room // max(floats, 1), targets.device):
        some = map_inputs(inputs, lambda tensor: tensor[rows])  # noqa: B023
        gradients = _item_gradients(module, parameters, some, targets[rows], loss)
        for name, values in gradients.items():
            tally.add_gradients(rows, values, tally.get_vector(name))


def _item_gradients(
    module: nn.Module,
    parameters: dict[str, nn.Parameter],
    inputs: Inputs,
    targets: Tensor,
    loss: Loss,
) -> Gradients:
    """``(m, ...)`` for every parameter."""
    try:
        return _gradients_by_vmap(module, parameters, inputs, targets, loss)
    except Exception:  # vmap failed; an error of the module recurs in the loop
        return _gradients_by_loop(module, parameters, inputs, targets, loss)


def _gradients_by_vmap(
    module: nn.Module,
    parameters: dict[str, nn.Parameter],
    inputs: Inputs,
    targets: Tensor,
    loss: Loss,
) -> Gradients:
    def one_loss(values: Gradients, leaves: list[Tensor], target: Tensor) -> Tensor:
        rest = iter(leaves)
        item = map_inputs(inputs, lambda _: next(rest)[None])
        if isinstance(item, Mapping):
            outputs = functional_call(module, values, (), dict(item))
        else:
            outputs = functional_call(module, values, item)
        return loss(outputs, target[None])[0]

    values = {name: p.detach() for name, p in parameters.items()}
    leaves = list(list_tensors(inputs).values())
    every_item = vmap(grad(one_loss), in_dims=(None, 0, 0), randomness="different")
    # Other parameters are constants; vmap supports only the plain (math) attention.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        gradients: Gradients = every_item(values, leaves, targets)
    return gradients


def _gradients_by_loop(
    module: nn.Module,
    parameters: dict[str, nn.Parameter],
    inputs: Inputs,
    targets: Tensor,
    loss: Loss,
) -> Gradients:
    found: dict[str, list[Tensor]] = {name: [] for name in parameters}
    for i in range(len(targets)):
        item = map_inputs(inputs, lambda tensor: tensor[i : i + 1])  # noqa: B023
        value = item_losses(module, item, targets[i : i + 1], loss).sum()
        wanted = list(parameters.values())
        gradients = torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True)
        for several, gradient in zip(found.values(), gradients, strict=True):
            several.append(gradient.to_dense() if gradient.is_sparse else gradient)
    return {name: torch.stack(several) for name, several in found.items()}
