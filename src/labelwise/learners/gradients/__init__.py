r"""Norms and products of per-item gradients of the whole network, without storing gradients.

With :math:`\ell_i(\theta)` the loss of item :math:`i` and :math:`g_i = \nabla_\theta \ell_i` over
all trainable parameters, these functions compute for every item of a batch

.. math:: \lVert g_i \rVert^2 \qquad \text{and} \qquad \langle g_i, v \rangle

for a fixed vector :math:`v`, usually the gradient summed over the labelled items. The contribution
of a layer follows from its inputs and the gradients with respect to its outputs, which one backward
pass computes for all items (`labelwise.learners.gradients.tracing`). Parameters used outside known
layers go through `torch.func.vmap`, in chunks. Results are exact up to rounding.

The module runs in eval mode, since batch statistics and dropout leave the gradient of a single item
undefined. The output of an item must not depend on other items.

Inputs are a tensor, a mapping of keywords or a tuple. Every tensor among them has one row per item;
other values (None, flags, numbers) are passed to the module unchanged.

Cost: norms and products together take the time and memory of about one ordinary forward and
backward pass.

References: I. Goodfellow, "Efficient Per-Example Gradient Computations", arXiv 1510.01799, 2015;
H. Wang, W. Huang, Z. Wu, H. Tong, A. Margenot, J. He, "Deep Active Learning by Leveraging Training
Dynamics", NeurIPS 2022 (ranks items by these numbers).
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from labelwise.errors import BadInput
from labelwise.learners.gradients.layers import cast_layer_tensors, flatten_positions
from labelwise.learners.gradients.tally import GradientTally, get_tally_dtype, split_item_slices
from labelwise.learners.gradients.tracing import tally_batch
from labelwise.learners.inputs import Batch
from labelwise.learners.network import (
    call_module,
    call_plain,
    evaluation_mode,
    trainable_parameters,
)

Inputs = Tensor | Mapping[str, object] | tuple[object, ...]
"""``module(inputs)``, ``module(**inputs)`` or ``module(*inputs)``."""

ItemLoss = Callable[..., Tensor]
"""``loss(outputs, targets) -> (b,)``: the loss of every item, not reduced."""

Gradients = dict[str, Tensor]

_CHUNK_FLOATS = {"cpu": 2**24, "cuda": 2**27}
"""Maximum number of elements in the explicit gradients of a chunk, by device."""


def gradient_norms(module: nn.Module, inputs: Inputs, targets: Tensor, loss: ItemLoss) -> Tensor:
    """The squared norm of every item's loss gradient over all trainable parameters, ``(b,)``.

    The arguments are those of `gradient_norms_and_products`.

    >>> from torch.nn.functional import mse_loss
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[1.0, 1.0]]))
    >>> x, y = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[2.0], [3.0]])
    >>> loss = lambda outputs, targets: mse_loss(outputs, targets, reduction="none").sum(1)
    >>> gradient_norms(layer, x, y, loss)  # gradients 2 (3 - 2) (1, 2) and 0
    tensor([20.,  0.])
    """
    return gradient_norms_and_products(module, inputs, targets, None, loss)[0]


def gradient_norms_and_products(
    module: nn.Module,
    inputs: Inputs,
    targets: Tensor,
    vector: Mapping[str, Tensor] | None,
    loss: ItemLoss,
) -> tuple[Tensor, Tensor]:
    """Squared norms ``(b,)`` and products ``(b,)`` in one pass.

    Outputs have the items on their first axis; inputs are a tensor ``(b, ...)``, a mapping of
    keywords or a tuple. ``vector`` has one tensor per trainable parameter, by its name; products
    are 0 if it is None. ``loss(outputs, targets)`` is ``(b,)``.
    """
    _check_items_independent(module)
    _check_gradient_rows(inputs, targets)
    parameters = trainable_parameters(module)
    if not parameters:
        raise BadInput("the module has no trainable parameters; set requires_grad on some")
    if vector is not None:
        vector = _check_gradient_vector(vector, module, parameters)
    tally = GradientTally(len(targets), targets.device, vector)

    def compute_part(rows: slice, mark: Callable[[object], None]) -> Tensor:
        some = _map_input_tensors(inputs, lambda tensor: tensor[rows])
        return _compute_losses_by_item(module, some, targets[rows], loss, mark)

    if len(targets):
        with evaluation_mode(module), torch.enable_grad():
            left = tally_batch(
                module,
                lambda mark: compute_part(slice(None), mark),
                lambda mark: compute_part(slice(1), mark),
                tally,
            )
            if left:
                tally_items(module, inputs, targets, loss, left, tally)
    return tally.get_results(next(iter(parameters.values())).dtype)


def summed_gradient(
    module: nn.Module, batches: Iterable[tuple[Inputs, Tensor]], loss: ItemLoss
) -> Gradients:
    """The gradient of the loss summed over all items, in eval mode, by parameter name.

    Batches of inputs and targets are summed in float64; the sum is rounded once to the parameter's
    dtype.
    """
    _check_items_independent(module)
    parameters = trainable_parameters(module)
    sums = {
        name: torch.zeros_like(p, dtype=get_tally_dtype(p.device)) for name, p in parameters.items()
    }
    with evaluation_mode(module), torch.enable_grad():
        for inputs, targets in batches:
            _check_gradient_rows(inputs, targets)
            total = _compute_losses_by_item(module, inputs, targets, loss).sum()
            if not total.requires_grad:
                continue
            found = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
            for name, gradient in zip(parameters, found, strict=True):
                if gradient is not None:
                    sums[name] += gradient.to_dense() if gradient.is_sparse else gradient
    return {name: value.to(parameters[name].dtype) for name, value in sums.items()}


def tally_items(
    module: nn.Module,
    inputs: Inputs,
    targets: Tensor,
    loss: ItemLoss,
    names: list[str],
    tally: GradientTally,
) -> None:
    """Add the named parameters to the tally from explicit per-item gradients, in chunks.

    Cost: a forward and a backward pass that write ``items x parameters`` numbers.
    """
    parameters = {name: p for name, p in trainable_parameters(module).items() if name in names}
    floats = sum(p.numel() for p in parameters.values())
    allowed = _CHUNK_FLOATS.get(targets.device.type, _CHUNK_FLOATS["cuda"])
    for rows in split_item_slices(len(targets), allowed // max(floats, 1), targets.device):
        some = _map_input_tensors(inputs, lambda tensor: tensor[rows])  # noqa: B023
        try:
            gradients = _gradients_by_vmap(module, parameters, some, targets[rows], loss)
        except Exception:  # vmap failed; an error of the module recurs in the loop
            gradients = _gradients_by_loop(module, parameters, some, targets[rows], loss)
        for name, values in gradients.items():
            tally.add_gradients(rows, values, tally.get_vector(name))


def _gradients_by_vmap(
    module: nn.Module,
    parameters: Mapping[str, nn.Parameter],
    inputs: Inputs,
    targets: Tensor,
    loss: ItemLoss,
) -> Gradients:
    """``(m, ...)`` for every parameter; fails for modules that vmap does not support."""

    def one_loss(values: Gradients, leaves: list[Tensor], target: Tensor) -> Tensor:
        rest = iter(leaves)
        item = _map_input_tensors(inputs, lambda _: next(rest)[None])
        if isinstance(item, Mapping):
            outputs = functional_call(module, values, (), dict(item))
        else:
            outputs = functional_call(module, values, item)
        return loss(outputs, target[None])[0]

    values = {name: p.detach() for name, p in parameters.items()}
    leaves = list(_list_input_tensors(inputs).values())
    every_item = vmap(grad(one_loss), in_dims=(None, 0, 0), randomness="different")
    # Other parameters are constants; vmap supports only the plain (math) attention.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        gradients: Gradients = every_item(values, leaves, targets)
    return gradients


def _gradients_by_loop(
    module: nn.Module,
    parameters: Mapping[str, nn.Parameter],
    inputs: Inputs,
    targets: Tensor,
    loss: ItemLoss,
) -> Gradients:
    """The same with plain autograd, one item at a time."""
    found: dict[str, list[Tensor]] = {name: [] for name in parameters}
    for i in range(len(targets)):
        item = _map_input_tensors(inputs, lambda tensor: tensor[i : i + 1])  # noqa: B023
        value = _compute_losses_by_item(module, item, targets[i : i + 1], loss).sum()
        wanted = list(parameters.values())
        gradients = torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True)
        for several, gradient in zip(found.values(), gradients, strict=True):
            several.append(gradient.to_dense() if gradient.is_sparse else gradient)
    return {name: torch.stack(several) for name, several in found.items()}


def _compute_losses_by_item(
    module: nn.Module,
    inputs: Inputs,
    targets: Tensor,
    loss: ItemLoss,
    mark: Callable[[object], None] = lambda outputs: None,
) -> Tensor:
    """The loss of every item, ``(b,)``; ``mark`` is called with the outputs."""
    outputs = call_plain(module, inputs)
    b = len(targets)
    if isinstance(outputs, Tensor) and (outputs.ndim == 0 or len(outputs) != b):
        raise BadInput(
            f"{type(module).__name__} gave outputs of shape {tuple(outputs.shape)} for {b} items; "
            "the first axis of its outputs must be the items"
        )
    mark(outputs)
    losses = loss(outputs, targets)
    if losses.shape != (b,):
        raise BadInput(
            f"the loss has shape {tuple(losses.shape)} for {b} items; give one loss per item, "
            "for example with reduction='none'"
        )
    return losses


def _map_input_tensors(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """The same inputs with every tensor replaced by ``change(tensor)``."""
    if isinstance(inputs, Tensor):
        return change(inputs)
    if isinstance(inputs, Mapping):
        return {
            name: change(value) if isinstance(value, Tensor) else value
            for name, value in inputs.items()
        }
    return tuple(change(value) if isinstance(value, Tensor) else value for value in inputs)


def _list_input_tensors(inputs: Inputs) -> dict[str, Tensor]:
    """The tensors among the inputs, by a name for error messages."""
    if isinstance(inputs, Tensor):
        return {"inputs": inputs}
    if not isinstance(inputs, Mapping | tuple):
        kind = type(inputs).__name__
        raise BadInput(f"inputs is of type {kind}; give a tensor, a mapping or a tuple of them")
    items = inputs.items() if isinstance(inputs, Mapping) else enumerate(inputs)
    return {f"inputs[{key!r}]": value for key, value in items if isinstance(value, Tensor)}


def _check_gradient_rows(inputs: Inputs, targets: Tensor) -> None:
    """Reject inputs whose number of rows differs from that of the targets."""
    if targets.ndim == 0:
        raise BadInput("targets is a single number; give one row per item")
    found = _list_input_tensors(inputs)
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


def _check_items_independent(module: nn.Module) -> None:
    """Reject layers that mix items even in eval mode."""
    for name, layer in module.named_modules():
        place = f"{name or 'the module'} ({type(layer).__name__})"
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.running_mean is None:
            raise BadInput(
                f"{place} has no running statistics and so mixes the items of a batch; "
                "make it with track_running_stats=True"
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.scale_grad_by_freq:
            raise BadInput(
                f"{place} scales its gradient by how often an index occurs in the batch, which "
                "mixes items; make it with scale_grad_by_freq=False"
            )


def _check_gradient_vector(
    vector: Mapping[str, Tensor], module: nn.Module, parameters: Mapping[str, nn.Parameter]
) -> Gradients:
    """The part of the vector for trainable parameters, on their device."""
    known = dict(module.named_parameters())
    for name in vector:
        if name not in known:
            raise BadInput(f"vector has an entry {name!r} but the module has no such parameter")
    checked = {}
    for name, p in parameters.items():
        if name not in vector:
            raise BadInput(f"vector has no entry for the parameter {name!r}; give one for each")
        if vector[name].shape != p.shape:
            raise BadInput(
                f"vector[{name!r}] has shape {tuple(vector[name].shape)} "
                f"but the parameter has {tuple(p.shape)}"
            )
        checked[name] = vector[name].detach().to(device=p.device)
    return checked


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
    r"""Random projections of the gradients of every item over linear layers, ``(b, p)``.

    A linear layer or convolution with input :math:`a_t` and output gradient :math:`g_t` at position
    :math:`t` adds :math:`\sqrt{p} \sum_t (A [a_t; 1]) \circ (B g_t)`, with Gaussian matrices of
    variance :math:`1/p` that depend on its position in the network only. Inner products of sketches
    are, on average, those of the gradients.

    ``reduce`` maps outputs ``(b, K)`` to one number per item ``(b,)``, whose gradient is sketched
    in ``size`` numbers. ``projections`` are the matrices of earlier calls, to which new ones are
    added.

    Cost: a forward and a backward pass without weight gradients, and ``p (a + c)`` multiplications
    per item and position.

    Reference: D. Holzmueller, V. Zaverkin, J. Kaestner, I. Steinwart, "A Framework and Benchmark
    for Deep Batch Active Learning for Regression", JMLR 24, 2023, section 4.2.
    """
    layers = [layer for layer in module.modules() if type(layer) in LAYERS]
    trained = {number: layer for number, layer in enumerate(layers) if layer.weight.requires_grad}
    if not trained:
        raise BadInput("the module has no trainable linear layer or convolution to sketch")
    calls: list[tuple[int, Tensor, Tensor]] = []
    hooks = [
        layer.register_forward_hook(partial(_record_layer_call, calls, number))
        for number, layer in trained.items()
    ]
    try:
        with evaluation_mode(module), torch.enable_grad():
            values = reduce(call_module(module, batch))
    finally:
        for hook in hooks:
            hook.remove()
    # One backward pass gives the gradients of all outputs, without those of the weights.
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
        total += _project_layer_gradient(
            number, trained[number], given.detach(), delta, known, size
        )
    return total


def _record_layer_call(
    calls: list[tuple[int, Tensor, Tensor]],
    number: int,
    layer: nn.Module,
    given: tuple[Tensor, ...],
    output: Tensor,
) -> Tensor:
    """Keep input and output of a call; later layers get a copy, which they may overwrite."""
    calls.append((number, given[0], output))
    return output.clone()


def _project_layer_gradient(
    number: int, layer: Any, given: Tensor, delta: Tensor, known: Projections, size: int
) -> Tensor:
    """The contribution of one call of a layer, ``(b, p)``."""
    count, groups = len(given), getattr(layer, "groups", 1)
    inputs, outputs = flatten_positions(layer, *cast_layer_tensors(given, delta))
    width, height = inputs.shape[1], outputs.shape[1]
    if (number, width, height) not in known:
        generator = torch.Generator().manual_seed(number)
        left = torch.randn(size, width + 1, generator=generator) / size**0.5
        right = torch.randn(size, height, generator=generator) / size**0.5
        known[number, width, height] = left.to(given.device), right.to(given.device)
    left, right = known[number, width, height]
    inputs, outputs = inputs.float(), outputs.float()
    # Projections of input and output gradient at every position, multiplied and summed.
    projected = left[:, :width] @ inputs
    if layer.bias is not None:
        projected = projected + left[:, width:]
    found: Tensor = size**0.5 * (projected * (right @ outputs)).sum(dim=2)
    return found.view(count, groups, size).sum(dim=1)
