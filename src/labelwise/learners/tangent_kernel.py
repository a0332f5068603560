r"""The empirical neural tangent kernel of a torch module.

With :math:`f^k(x)` output ``k`` of the network and :math:`\theta` its trainable parameters,

.. math:: K^{kk}(x, x') = \nabla_\theta f^k(x) \cdot \nabla_\theta f^k(x') .

The result is the mean or sum of these kernels over ``k``, or one of them, as alignment, the bound B
and MMD of `labelwise.theory` need it. The module runs in evaluation mode (BatchNorm with its
running statistics, no dropout); its parameters and its mode are not changed.

Cost: for ``n`` items in chunks of ``c``, ``(n / c)^2 / 2`` times the gradients of a chunk, and
``n^2 P`` multiplications for ``P`` parameters, per output; memory ``2 c P`` numbers.

Reference: A. Jacot, F. Gabriel, C. Hongler, "Neural Tangent Kernel: Convergence and Generalization
in Neural Networks", NeurIPS 2018.
"""

import copy
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from labelwise.arrays import Array, HostArray
from labelwise.errors import BadInput
from labelwise.learners.inputs import as_tensor, prepare_batch
from labelwise.learners.network import trainable_parameters
from labelwise.learners.weights import convert_numbers

CHUNK_NUMBERS = 1 << 26
"""About how many numbers the gradients of a chunk may have, if no chunk size is given."""


def tangent_kernel(
    module: nn.Module,
    inputs: Array,
    others: Array | None = None,
    *,
    outputs: str | int = "mean",
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
) -> HostArray:
    """The tangent kernel of items with themselves or ``others``, ``(n, m)`` on the host.

    The module gives ``(n, K)`` or ``(n,)`` outputs; frozen parameters do not count. ``outputs`` is
    ``"mean"`` or ``"sum"`` over the kernels of all outputs, or the number of one. The kernel has
    the ``dtype`` of the module if None, and is computed ``chunk`` items at a time.

    >>> import torch
    >>> head = torch.nn.Linear(2, 3)
    >>> tangent_kernel(head, torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
    array([[6., 3.],
           [3., 2.]], dtype=float32)
    """
    network = copy.deepcopy(module).eval()
    parameters = trainable_parameters(network)
    if not parameters:
        raise BadInput("the module has no trainable parameter; unfreeze those that should count")
    first = next(iter(parameters.values()))
    network.to(dtype or first.dtype)
    weights = {name: value.detach() for name, value in parameters.items()}
    left = prepare_batch(_convert_kernel_inputs(inputs), first.device, first.dtype)
    right = left
    if others is not None:
        right = prepare_batch(_convert_kernel_inputs(others), first.device, first.dtype)
    if not len(left):
        raise BadInput("inputs are empty; give at least one item")
    numbers = sum(value.numel() for value in weights.values())
    size = max(1, CHUNK_NUMBERS // numbers) if chunk is None else chunk
    if size < 1:
        raise BadInput(f"chunk must be 1 or more; got {chunk}")

    def compute_gradients(items: Tensor, output: int) -> Tensor:
        """``(c, P)``: the gradient of one output for every item."""

        def compute_output(weights: dict[str, Tensor], item: Tensor) -> Tensor:
            outputs: Tensor = functional_call(network, weights, (item[None],))
            return outputs.reshape(-1)[output]

        found = vmap(grad(compute_output), in_dims=(None, 0))(weights, items)
        return torch.cat([gradient.flatten(1) for gradient in found.values()], dim=1)

    with torch.no_grad():
        chosen = _choose_kernel_outputs(outputs, _count_kernel_outputs(network(left[:1])))
    parts = [
        _fill_tangent_kernel(left, right, size, partial(compute_gradients, output=k))
        for k in chosen
    ]
    kernel = torch.stack(parts).sum(dim=0)
    return np.asarray(kernel.cpu()) / (len(chosen) if outputs == "mean" else 1)


def _fill_tangent_kernel(
    left: Tensor, right: Tensor, size: int, gradients: Callable[[Tensor], Tensor]
) -> Tensor:
    """Products of gradients, block by block; a symmetric kernel from half of its blocks."""
    symmetric = left is right
    kernel = left.new_empty(0)
    for top in range(0, len(left), size):
        rows = gradients(left[top : top + size])
        if not top:
            kernel = rows.new_empty(len(left), len(right))
        for side in range(top if symmetric else 0, len(right), size):
            same = symmetric and side == top
            columns = rows if same else gradients(right[side : side + size])
            block = rows @ columns.T
            if same:
                block = (block + block.T) / 2  # exactly symmetric for every BLAS
            kernel[top : top + size, side : side + size] = block
            if symmetric:
                kernel[side : side + size, top : top + size] = block.T
    return kernel


def _count_kernel_outputs(found: object) -> int:
    if not isinstance(found, Tensor) or found.ndim not in (1, 2) or len(found) != 1:
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise BadInput(f"the module must give one row of outputs per item; got {got} for one item")
    return found.numel()


def _choose_kernel_outputs(outputs: str | int, count: int) -> list[int]:
    if isinstance(outputs, int) and not isinstance(outputs, bool):
        if not 0 <= outputs < count:
            raise BadInput(f"outputs must be from 0 to {count - 1}; got {outputs}")
        return [outputs]
    if outputs not in ("mean", "sum"):
        raise BadInput(f"outputs must be 'mean', 'sum' or a number; got {outputs!r}")
    return list(range(count))


def _convert_kernel_inputs(values: Array) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    return as_tensor(convert_numbers(values, "inputs"))
