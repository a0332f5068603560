"""Inputs of a module: a tensor, a mapping of keywords or a tuple; one row per item.

Every tensor among the inputs must have one row per item; other values (None, flags, numbers) are
passed to the module unchanged.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from labelwise.errors import BadInput

Inputs = Tensor | Mapping[str, Any] | tuple[Any, ...]
"""``module(inputs)``, ``module(**inputs)`` or ``module(*inputs)``."""

Loss = Callable[[Any, Tensor], Tensor]
"""``loss(outputs, targets) -> (b,)``: the loss of every item, not reduced."""


def call_module(module: Callable[..., Any], inputs: Inputs) -> Any:
    """Call the module with its inputs."""
    if isinstance(inputs, Tensor):
        return module(inputs)
    if isinstance(inputs, Mapping):
        return module(**inputs)
    return module(*inputs)


def map_inputs(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """The same inputs with every tensor replaced by ``change(tensor)``."""

    def one(value: Any) -> Any:
        return change(value) if isinstance(value, Tensor) else value

    if isinstance(inputs, Tensor):
        return change(inputs)
    if isinstance(inputs, Mapping):
        return {name: one(value) for name, value in inputs.items()}
    return tuple(one(value) for value in inputs)


def list_tensors(inputs: Inputs) -> dict[str, Tensor]:
    """The tensors among the inputs, by a name for error messages."""
    if isinstance(inputs, Tensor):
        return {"inputs": inputs}
    if isinstance(inputs, Mapping):
        items: Any = inputs.items()
    elif isinstance(inputs, tuple):
        items = enumerate(inputs)
    else:
        kind = type(inputs).__name__
        raise BadInput(f"inputs is of type {kind}; give a tensor, a mapping or a tuple of them")
    return {f"inputs[{key!r}]": value for key, value in items if isinstance(value, Tensor)}


def check_rows(inputs: Inputs, targets: Tensor) -> None:
    """Reject inputs whose number of rows differs from that of the targets."""
    if targets.ndim == 0:
        raise BadInput("targets is a single number; give one row per item")
    found = list_tensors(inputs)
    if not found:
        raise BadInput(
            "inputs holds no tensor; give at least one, with the items on its first axis"
        )
    for name, tensor in found.items():
        if tensor.ndim == 0 or len(tensor) != len(targets):
            raise BadInput(
                f"{name} has shape {tuple(tensor.shape)} but there are {len(targets)} targets; "
                "the first axis of every tensor must be the items"
            )


def check_module(module: nn.Module) -> None:
    """Reject layers that mix items even in eval mode."""
    for name, layer in module.named_modules():
        called_ = f"{name or 'the module'} ({type(layer).__name__})"
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.running_mean is None:
            raise BadInput(
                f"{called_} has no running statistics and so mixes the items of a batch; "
                "make it with track_running_stats=True"
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.scale_grad_by_freq:
            raise BadInput(
                f"{called_} scales its gradient by how often an index occurs in the batch, which "
                "mixes items; make it with scale_grad_by_freq=False"
            )


def item_losses(module: nn.Module, inputs: Inputs, targets: Tensor, loss: Loss) -> Tensor:
    """The loss of every item, ``(b,)``, after checking the shapes of outputs and losses."""
    outputs = call_module(module, inputs)
    b = len(targets)
    if isinstance(outputs, Tensor) and (outputs.ndim == 0 or len(outputs) != b):
        raise BadInput(
            f"{type(module).__name__} gave outputs of shape {tuple(outputs.shape)} for {b} items; "
            "the first axis of its outputs must be the items"
        )
    losses = loss(outputs, targets)
    if losses.shape != (b,):
        raise BadInput(
            f"the loss has shape {tuple(losses.shape)} for {b} items; give one loss per item, "
            "for example with reduction='none'"
        )
    return losses


def trainable_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that require gradients, by name; a shared one under its first name."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Enable eval mode and gradients; restore the mode of every layer at the end."""
    modes = [(layer, layer.training) for layer in module.modules()]
    try:
        module.eval()
        with torch.enable_grad():
            yield
    finally:
        for layer, mode in modes:
            layer.training = mode
