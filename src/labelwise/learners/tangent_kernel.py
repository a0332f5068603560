r"""The empirical neural tangent kernel of a torch module.

With :math:`f^k(x)` output ``k`` of the network and :math:`\theta` its trainable parameters,

.. math:: K^{kk}(x, x') = \nabla_\theta f^k(x) \cdot \nabla_\theta f^k(x') .

One scalar kernel comes from all outputs as their mean or sum over ``k``, or from one of them. It is
what alignment, the bound B and MMD of `labelwise.theory` take.

The module runs in evaluation mode (BatchNorm with its running statistics, no dropout), and neither
its parameters nor its mode are changed. Gradients of a chunk of items are held at a time, one
output after the other.

Cost: for ``n`` items in chunks of ``c``, ``(n / c)^2 / 2`` times the gradients of a chunk, and
``n^2 P`` multiplications for ``P`` parameters, per output; memory ``2 c P`` numbers.

Reference: A. Jacot, F. Gabriel, C. Hongler, "Neural Tangent Kernel: Convergence and Generalization
in Neural Networks", NeurIPS 2018.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from labelwise.errors import BadInput
from labelwise.learners.inputs import as_tensor
from labelwise.learners.weights import convert_numbers

CHUNK_NUMBERS = 1 << 26
"""About how many numbers the gradients of a chunk may have, if no chunk size is given."""

Weights = dict[str, Tensor]


def tangent_kernel(
    module: nn.Module,
    inputs: Any,
    others: Any = None,
    *,
    outputs: str | int = "mean",
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
) -> NDArray[Any]:
    """The tangent kernel of items with themselves or with other items.

    Args:
        module: gives ``(n, K)`` or ``(n,)`` outputs; its trainable parameters count, frozen ones
            do not.
        inputs: ``(n, ...)``, an array or tensor.
        others: ``(m, ...)``; the inputs themselves if None.
        outputs: ``"mean"`` or ``"sum"`` over the outputs of their kernels, or the number of one.
        dtype: compute in this precision, whatever that of the module; its own if None.
        chunk: items at a time; by default as many as fit a fixed memory.

    Returns:
        ``(n, m)`` on the host, symmetric where ``others`` is None.

    >>> import torch
    >>> head = torch.nn.Linear(2, 3)
    >>> tangent_kernel(head, torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
    array([[6., 3.],
           [3., 2.]], dtype=float32)
    """
    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    if not trained:
        raise BadInput("the module has no trainable parameter; unfreeze those that should count")
    left = _to_tensor(inputs, trained, dtype)
    right = left if others is None else _to_tensor(others, trained, dtype)
    numbers = sum(value.numel() for value in trained.values())
    size = max(1, CHUNK_NUMBERS // numbers) if chunk is None else chunk
    if size < 1:
        raise BadInput(f"chunk must be 1 or more; got {chunk}")
    with _evaluation_mode(module):
        chosen, factor = _reduce_outputs(module, left, outputs, dtype)
        total: Any = 0.0
        for output in chosen:
            total = total + _one_output(module, left, right, output, dtype, size)
    return np.asarray((total * factor).cpu())


def _one_output(
    module: nn.Module, left: Tensor, right: Tensor, output: int, dtype: Any, size: int
) -> Tensor:
    """The kernel of one output, block by block; a symmetric one from half of its blocks."""
    symmetric = left is right
    kernel: Tensor | None = None
    for top in range(0, len(left), size):
        rows = _output_gradients(module, left[top : top + size], output, dtype)
        for side in range(top if symmetric else 0, len(right), size):
            same = symmetric and side == top
            columns = (
                rows
                if same
                else _output_gradients(module, right[side : side + size], output, dtype)
            )
            block = _kernel_products(rows, columns)
            if kernel is None:
                kernel = block.new_empty(len(left), len(right))
            kernel[top : top + size, side : side + size] = block
            if symmetric:
                kernel[side : side + size, top : top + size] = block.T
    return left.new_empty(0) if kernel is None else kernel


def _kernel_products(rows: Weights, columns: Weights) -> Tensor:
    """Products of gradients, parameter by parameter."""
    total: Any = 0.0
    for name, part in rows.items():
        total = total + part @ columns[name].T
    found: Tensor = total
    return found


def _output_gradients(module: nn.Module, inputs: Tensor, output: int, dtype: Any) -> Weights:
    """The gradient of one output for every item, ``(c, numbers)`` by parameter."""
    trained, fixed = _cast_weights(module, dtype)

    def value(weights: Weights, item: Tensor) -> Tensor:
        found = functional_call(module, {**fixed, **weights}, (item[None],))
        chosen: Tensor = found.reshape(-1)[output]
        return chosen

    found = vmap(grad(value), in_dims=(None, 0))(trained, inputs)
    return {name: gradient.reshape(len(inputs), -1) for name, gradient in found.items()}


def _cast_weights(module: nn.Module, dtype: Any) -> tuple[Weights, Weights]:
    """Trainable parameters, and all that stays fixed, in the wanted precision."""

    def cast(tensor: Tensor) -> Tensor:
        value = tensor.detach()
        return value.to(dtype) if dtype is not None and value.is_floating_point() else value

    trained: Weights = {}
    fixed = {name: cast(value) for name, value in module.named_buffers()}
    for name, value in module.named_parameters():
        (trained if value.requires_grad else fixed)[name] = cast(value)
    return trained, fixed


def _reduce_outputs(
    module: nn.Module, inputs: Tensor, outputs: str | int, dtype: Any
) -> tuple[list[int], float]:
    """Which outputs to add up, and what to multiply the sum by."""
    if not len(inputs):
        raise BadInput("inputs are empty; give at least one item")
    trained, fixed = _cast_weights(module, dtype)
    with torch.no_grad():
        found = functional_call(module, {**fixed, **trained}, (inputs[:1],))
    if not isinstance(found, Tensor) or found.ndim not in (1, 2) or len(found) != 1:
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise BadInput(f"the module must give one row of outputs per item; got {got} for one item")
    count = found.numel()
    if isinstance(outputs, int) and not isinstance(outputs, bool):
        if not 0 <= outputs < count:
            raise BadInput(f"outputs must be from 0 to {count - 1}; got {outputs}")
        return [outputs], 1.0
    if outputs not in ("mean", "sum"):
        raise BadInput(f"outputs must be 'mean', 'sum' or a number; got {outputs!r}")
    return list(range(count)), 1 / count if outputs == "mean" else 1.0


def _to_tensor(values: Any, trained: Mapping[str, Tensor], dtype: Any) -> Tensor:
    """Inputs where the module is and, unless they are whole numbers, in its precision."""
    first = next(iter(trained.values()))
    if not isinstance(values, Tensor):
        values = as_tensor(convert_numbers(values, "inputs"))
    tensor: Tensor = values.detach().to(first.device)
    return tensor.to(dtype or first.dtype) if tensor.is_floating_point() else tensor


@contextmanager
def _evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Evaluation mode, part by part as it was afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
