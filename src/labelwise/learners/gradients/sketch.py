r"""Random projections of per-item gradients over all linear layers and convolutions.

A layer with input :math:`a_t` and output gradient :math:`g_t` at position :math:`t` adds

.. math:: \phi_l(x) = \sqrt{p} \sum_t (A_l [a_t; 1]) \circ (B_l g_t)

to the sketch :math:`\phi = \sum_l \phi_l`, with Gaussian matrices of variance :math:`1/p`. Inner
products of sketches are, on average, those of the gradients. The matrices depend only on the
position of the layer in the network, so labelled items and pool have the same ones.

Cost: a forward and a backward pass without weight gradients, and ``p (a + c)`` multiplications per
item and position.

Reference: D. Holzmueller, V. Zaverkin, J. Kaestner, I. Steinwart, "A Framework and Benchmark for
Deep Batch Active Learning for Regression", JMLR 24, 2023, section 4.2.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from labelwise.errors import BadInput
from labelwise.learners.gradients.layers import cast_inputs, flatten_positions
from labelwise.learners.inputs import Batch
from labelwise.learners.network import call_module, evaluation_mode

SKETCH_SIZE = 512  # Numbers per item, ``p``
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Layer types that count; subclasses may compute something else."""

Projections = dict[tuple[int, int, int], tuple[Tensor, Tensor]]
"""The matrices ``(p, a + 1)`` and ``(p, c)`` by number and shape of a layer."""


def sketch_gradients(
    module: nn.Module,
    batch: Batch,
    reduce: Callable[[Tensor], Tensor],
    projections: Projections | None = None,
    size: int = SKETCH_SIZE,
) -> Tensor:
    """Sketches of the gradients of every item, ``(b, p)``.

    ``reduce`` maps outputs ``(b, K)`` to one number per item ``(b,)``, whose gradient is sketched
    in ``size`` numbers. ``projections`` are the matrices of earlier calls, to which new ones are
    added.
    """
    layers = [layer for layer in module.modules() if type(layer) in LAYERS]
    trained = {number: layer for number, layer in enumerate(layers) if layer.weight.requires_grad}
    if not trained:
        raise BadInput("the module has no trainable linear layer or convolution to sketch")
    calls: list[tuple[int, Tensor, Tensor]] = []
    hooks = [
        layer.register_forward_hook(partial(_record_call, calls, number))
        for number, layer in trained.items()
    ]
    try:
        with evaluation_mode(module), torch.enable_grad():
            values = reduce(call_module(module, batch))
    finally:
        for hook in hooks:
            hook.remove()
    outputs = [output for _, _, output in calls]
    deltas = torch.autograd.grad(values.sum(), outputs, allow_unused=True)
    total = torch.zeros(len(values), size, dtype=torch.float32, device=values.device)
    known = {} if projections is None else projections
    for (number, given, _), delta in zip(calls, deltas, strict=True):
        if delta is None:
            continue
        if len(given) != len(values):
            kind = type(trained[number]).__name__
            raise BadInput(f"the first axis of a {kind} of the module is not the items")
        total += _project_call(number, trained[number], given.detach(), delta, known, size)
    return total


def _record_call(
    calls: list[tuple[int, Tensor, Tensor]],
    number: int,
    layer: nn.Module,
    given: tuple[Tensor, ...],
    output: Tensor,
) -> Tensor:
    """Keep input and output of a call; later layers get a copy, which they may overwrite."""
    calls.append((number, given[0], output))
    return output.clone()


def _project_call(
    number: int, layer: Any, given: Tensor, delta: Tensor, known: Projections, size: int
) -> Tensor:
    """The contribution of one call of a layer, ``(b, p)``."""
    count, groups = len(given), getattr(layer, "groups", 1)
    inputs, outputs = flatten_positions(layer, *cast_inputs(given, delta))
    width, height = inputs.shape[1], outputs.shape[1]
    if (number, width, height) not in known:
        generator = torch.Generator().manual_seed(number)
        left = torch.randn(size, width + 1, generator=generator) / size**0.5
        right = torch.randn(size, height, generator=generator) / size**0.5
        known[number, width, height] = left.to(given.device), right.to(given.device)
    left, right = known[number, width, height]
    inputs, outputs = inputs.float(), outputs.float()
    projected = left[:, :width] @ inputs
    if layer.bias is not None:
        projected = projected + left[:, width:]
    found: Tensor = size**0.5 * (projected * (right @ outputs)).sum(dim=2)
    return found.view(count, groups, size).sum(dim=1)
