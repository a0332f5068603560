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

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from labelwise.arrays import Array, HostArray
from labelwise.errors import BadInput
from labelwise.learners.inputs import as_tensor
from labelwise.learners.network import evaluation_mode, trainable_parameters
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
    network = _FunctionalModule.read(module, dtype)
    left = network.cast(_convert_kernel_inputs(inputs))
    right = left if others is None else network.cast(_convert_kernel_inputs(others))
    if not len(left):
        raise BadInput("inputs are empty; give at least one item")
    numbers = sum(value.numel() for value in network.trained.values())
    size = max(1, CHUNK_NUMBERS // numbers) if chunk is None else chunk
    if size < 1:
        raise BadInput(f"chunk must be 1 or more; got {chunk}")
    with evaluation_mode(module):
        with torch.no_grad():
            count = _count_kernel_outputs(network.compute_outputs(network.trained, left[:1]))
        chosen = _choose_kernel_outputs(outputs, count)
        parts = [
            _fill_tangent_kernel(left, right, size, partial(network.compute_gradients, output=k))
            for k in chosen
        ]
        kernel = torch.stack(parts).sum(dim=0)
    return np.asarray(kernel.cpu()) / (len(chosen) if outputs == "mean" else 1)


class _FunctionalModule(NamedTuple):
    """A module as a function of its trained parameters, in one precision."""

    module: nn.Module
    trained: dict[str, Tensor]
    fixed: dict[str, Tensor]
    device: torch.device
    dtype: torch.dtype

    @classmethod
    def read(cls, module: nn.Module, dtype: torch.dtype | None) -> "_FunctionalModule":
        parameters = trainable_parameters(module)
        if not parameters:
            raise BadInput(
                "the module has no trainable parameter; unfreeze those that should count"
            )
        first = next(iter(parameters.values()))
        fixed = {
            name: value.detach().to(dtype)
            if dtype and value.is_floating_point()
            else value.detach()
            for name, value in [*module.named_parameters(), *module.named_buffers()]
            if name not in parameters
        }
        found = cls(module, {}, fixed, first.device, dtype or first.dtype)
        found.trained.update((name, found.cast(value)) for name, value in parameters.items())
        return found

    def cast(self, tensor: Tensor) -> Tensor:
        """Move to the device, and floating-point numbers to the precision."""
        value = tensor.detach().to(self.device)
        return value.to(self.dtype) if value.is_floating_point() else value

    def compute_outputs(self, weights: dict[str, Tensor], batch: Tensor) -> Tensor:
        found: Tensor = functional_call(self.module, {**self.fixed, **weights}, (batch,))
        return found

    def compute_gradients(self, items: Tensor, output: int) -> Tensor:
        """``(c, P)``: the gradient of one output for every item."""

        def value(weights: dict[str, Tensor], item: Tensor) -> Tensor:
            return self.compute_outputs(weights, item[None]).reshape(-1)[output]

        found = vmap(grad(value), in_dims=(None, 0))(self.trained, items)
        return torch.cat([gradient.flatten(1) for gradient in found.values()], dim=1)


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
    return values if isinstance(values, Tensor) else as_tensor(convert_numbers(values, "inputs"))
