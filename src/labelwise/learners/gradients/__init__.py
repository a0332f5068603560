r"""Norms and products of per-item gradients of the whole network, without storing gradients.

With :math:`\ell_i(\theta)` the loss of item :math:`i` and :math:`g_i = \nabla_\theta \ell_i` over
all trainable parameters, these functions compute for every item of a batch

.. math:: \lVert g_i \rVert^2 \qquad \text{and} \qquad \langle g_i, v \rangle

for a fixed vector :math:`v`, usually the gradient summed over the labelled items. The contribution
of a layer follows from its inputs and the gradients with respect to its outputs (`.layers`), which
one backward pass computes for all items. Parameters used outside known layers go through
`torch.func.vmap`, in chunks. Results are exact up to rounding.

The module runs in eval mode, since batch statistics and dropout leave the gradient of a single item
undefined. The output of an item must not depend on other items.

Cost: norms and products together take the time and memory of about one ordinary forward and
backward pass.

References: I. Goodfellow, "Efficient Per-Example Gradient Computations", arXiv 1510.01799, 2015;
H. Wang, W. Huang, Z. Wu, H. Tong, A. Margenot, J. He, "Deep Active Learning by Leveraging Training
Dynamics", NeurIPS 2022 (ranks items by these numbers).
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from labelwise.errors import BadInput
from labelwise.learners.gradients.inputs import (
    Inputs,
    Loss,
    check_module,
    check_rows,
    evaluation_mode,
    item_losses,
    trainable_parameters,
)
from labelwise.learners.gradients.items import tally_items
from labelwise.learners.gradients.norms import tally_batch
from labelwise.learners.gradients.tally import GradientTally

__all__ = [
    "Inputs",
    "Loss",
    "gradient_norms",
    "gradient_norms_and_products",
    "gradient_products",
    "summed_gradient",
]


def gradient_norms(module: nn.Module, inputs: Inputs, targets: Tensor, loss: Loss) -> Tensor:
    """The squared norm of every item's loss gradient over all trainable parameters.

    Args:
        module: any module whose outputs have the items on their first axis.
        inputs: inputs of the module: a tensor ``(b, ...)``, a mapping of keywords or a tuple.
        targets: ``(b, ...)``.
        loss: ``loss(outputs, targets) -> (b,)``, one loss per item.

    Returns:
        ``(b,)``, never negative.

    >>> from torch.nn.functional import mse_loss
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[1.0, 1.0]]))
    >>> x, y = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[2.0], [3.0]])
    >>> loss = lambda outputs, targets: mse_loss(outputs, targets, reduction="none").sum(1)
    >>> gradient_norms(layer, x, y, loss)  # gradients 2 (3 - 2) (1, 2) and 0
    tensor([20.,  0.])
    """
    return _compute_sums(module, inputs, targets, None, loss, norms=True)[0]


def gradient_products(
    module: nn.Module,
    inputs: Inputs,
    targets: Tensor,
    vector: Mapping[str, Tensor],
    loss: Loss,
) -> Tensor:
    """The inner product of every item's loss gradient with a fixed vector.

    Args:
        module: any module whose outputs have the items on their first axis.
        inputs: inputs of the module: a tensor ``(b, ...)``, a mapping of keywords or a tuple.
        targets: ``(b, ...)``.
        vector: one tensor per trainable parameter, by its name in ``module.named_parameters()``.
        loss: ``loss(outputs, targets) -> (b,)``, one loss per item.

    Returns:
        ``(b,)``.

    >>> from torch.nn.functional import mse_loss
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[1.0, 1.0]]))
    >>> x, y = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[2.0], [3.0]])
    >>> loss = lambda outputs, targets: mse_loss(outputs, targets, reduction="none").sum(1)
    >>> gradient_products(layer, x, y, {"weight": torch.tensor([[1.0, 10.0]])}, loss)
    tensor([42.,  0.])
    """
    return _compute_sums(module, inputs, targets, vector, loss, norms=False)[1]


def gradient_norms_and_products(
    module: nn.Module,
    inputs: Inputs,
    targets: Tensor,
    vector: Mapping[str, Tensor],
    loss: Loss,
) -> tuple[Tensor, Tensor]:
    """Squared norms ``(b,)`` and products ``(b,)`` in one pass.

    >>> from torch.nn.functional import cross_entropy
    >>> module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> x, y = torch.randn(5, 4), torch.randint(3, (5,))
    >>> loss = lambda outputs, targets: cross_entropy(outputs, targets, reduction="none")
    >>> vector = summed_gradient(module, [(x, y)], loss)
    >>> norms, products = gradient_norms_and_products(module, x, y, vector, loss)
    >>> norms.shape, products.shape
    (torch.Size([5]), torch.Size([5]))
    """
    return _compute_sums(module, inputs, targets, vector, loss, norms=True)


def summed_gradient(
    module: nn.Module, batches: Iterable[tuple[Inputs, Tensor]], loss: Loss
) -> dict[str, Tensor]:
    """The gradient of the loss summed over all items, in eval mode.

    Batches are summed in float64; the sum is rounded once to the parameter's dtype.

    Args:
        module: any module whose outputs have the items on their first axis.
        batches: pairs of inputs and targets.
        loss: ``loss(outputs, targets) -> (b,)``, one loss per item.

    Returns:
        One tensor per trainable parameter, by name.

    >>> from torch.nn.functional import mse_loss
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[1.0, 1.0]]))
    >>> x, y = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[2.0], [2.0]])
    >>> loss = lambda outputs, targets: mse_loss(outputs, targets, reduction="none").sum(1)
    >>> summed_gradient(layer, [(x, y)], loss)  # 2 (3 - 2) (1, 2) + 2 (3 - 2) (3, 0)
    {'weight': tensor([[8., 4.]])}
    """
    check_module(module)
    parameters = trainable_parameters(module)
    sums = {name: torch.zeros_like(p, dtype=_sum_dtype(p)) for name, p in parameters.items()}
    with evaluation_mode(module):
        for inputs, targets in batches:
            check_rows(inputs, targets)
            total = item_losses(module, inputs, targets, loss).sum()
            if not total.requires_grad:
                continue
            found = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
            for name, gradient in zip(parameters, found, strict=True):
                if gradient is not None:
                    sums[name] += gradient.to_dense() if gradient.is_sparse else gradient
    return {name: value.to(parameters[name].dtype) for name, value in sums.items()}


def _sum_dtype(parameter: Tensor) -> torch.dtype:
    """float64 if the device supports it."""
    return torch.float32 if parameter.device.type == "mps" else torch.float64


def _compute_sums(
    module: nn.Module,
    inputs: Inputs,
    targets: Tensor,
    vector: Mapping[str, Tensor] | None,
    loss: Loss,
    *,
    norms: bool,
) -> tuple[Tensor, Tensor]:
    """Norms and products of a batch; zero if not requested."""
    check_module(module)
    check_rows(inputs, targets)
    parameters = trainable_parameters(module)
    if not parameters:
        raise BadInput("the module has no trainable parameters; set requires_grad on some")
    if vector is not None:
        vector = _check_vector(vector, module, parameters)
    dtype = next(iter(parameters.values())).dtype
    tally = GradientTally(len(targets), targets.device, vector, norms)
    if len(targets):
        with evaluation_mode(module):
            left = tally_batch(module, inputs, targets, loss, tally)
            if left:
                tally_items(module, inputs, targets, loss, left, tally)
    return tally.get_results(dtype)


def _check_vector(
    vector: Mapping[str, Tensor], module: nn.Module, parameters: Mapping[str, nn.Parameter]
) -> dict[str, Tensor]:
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
