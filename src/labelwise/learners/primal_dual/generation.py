r"""Generation of informative inputs by gradient ascent on the predicted dual variable.

From every start, with the features :math:`\phi` and the dual head :math:`h` frozen and in eval
mode,

.. math::
    x \leftarrow \mathrm{clip}\Bigl( x + \eta \, \lVert x_0 \rVert \,
        \frac{\nabla_x h(\phi(x))}{\lVert \nabla_x h(\phi(x)) \rVert} \Bigr) ,

so that all steps from a start :math:`x_0` have the same length before clipping. The predicted dual
rises at every sufficiently small step; near a maximum, steps of a fixed length oscillate.

Cost: a forward and a backward pass over the starts per step.

Reference: J. Elenter, N. NaderiAlizadeh, A. Ribeiro, "A Lagrangian Duality Approach to Active
Learning", NeurIPS 2022, Section 4.4 and Figure 1.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from labelwise.arrays import Array, HostArray
from labelwise.errors import BadInput
from labelwise.learners.inputs import as_items, prepare_batch
from labelwise.learners.network import evaluation_mode, get_dtype
from labelwise.learners.primal_dual.learner import PrimalDualLearner


@dataclass(frozen=True)
class GenerationPath:
    """The path from every start."""

    inputs: HostArray  # ``(steps + 1, n, ...)``, the starts first
    duals: HostArray  # ``(steps + 1, n)``, their predicted dual variables


def generate_items(
    learner: PrimalDualLearner,
    starts: Array,
    *,
    steps: int = 100,
    step_size: float = 0.05,
    box: tuple[float, float] | None = None,
) -> GenerationPath:
    """Change inputs so that their predicted dual variables rise.

    ``starts`` ``(n, ...)`` are usually items of low predicted duals. A step has length
    ``step_size`` relative to the start's norm (for a zero start, to the mean norm of all starts).
    ``box`` bounds the inputs, such as ``(0, 1)`` for images; the starts must lie within it.
    """
    if steps < 0:
        raise BadInput(f"steps must be 0 or more; got {steps}")
    if not step_size > 0:
        raise BadInput(f"step_size must be above 0; got {step_size}")
    x = _convert_generation_starts(learner, starts)
    if box is not None:
        _check_generation_box(x, box)
    norms = _broadcast_to_items(torch.linalg.vector_norm(x.flatten(1), dim=1), x)
    mean = norms.mean()
    lengths = step_size * torch.where(norms > 0, norms, mean if mean > 0 else 1.0)
    inputs, duals = [x], []
    with evaluation_mode(learner.module):
        for _ in range(steps):
            predicted, direction = _ascend_predicted_duals(learner, x)
            x = x + lengths * direction
            if box is not None:
                x = x.clamp(*box)
            duals.append(predicted)
            inputs.append(x)
        with torch.no_grad():
            duals.append(learner.predicted_duals(x))
    return GenerationPath(torch.stack(inputs).cpu().numpy(), torch.stack(duals).cpu().numpy())


def _ascend_predicted_duals(learner: PrimalDualLearner, x: Tensor) -> tuple[Tensor, Tensor]:
    """Predicted duals ``(n,)``, and their gradients of length 1, ``(n, ...)``; 0 where flat."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        predicted = learner.predicted_duals(leaf)
        (gradient,) = torch.autograd.grad(predicted.sum(), leaf)
    # Scale by the largest entry first: the square of a small gradient would underflow.
    largest = _broadcast_to_items(gradient.flatten(1).abs().amax(dim=1), x)
    gradient = gradient / torch.where(largest > 0, largest, 1.0)
    norms = _broadcast_to_items(torch.linalg.vector_norm(gradient.flatten(1), dim=1), x)
    return predicted.detach(), gradient / torch.where(norms > 0, norms, 1.0)


def _convert_generation_starts(learner: PrimalDualLearner, starts: Array) -> Tensor:
    module = learner.module
    items = as_items(starts)
    parameter = next(module.parameters())
    batch = prepare_batch(items.batch(np.arange(len(items))), parameter.device, get_dtype(module))
    if not isinstance(batch, Tensor) or not batch.is_floating_point() or batch.ndim < 2:
        kind = f"{batch.dtype} {tuple(batch.shape)}" if isinstance(batch, Tensor) else "several"
        raise BadInput(f"starts must be one array of real numbers, (n, ...); got {kind}")
    if not bool(torch.isfinite(batch).all()):
        raise BadInput("starts must be finite")
    return batch.clone()


def _check_generation_box(x: Tensor, box: tuple[float, float]) -> None:
    low, high = box
    if not low < high:
        raise BadInput(f"box must be (smallest, largest); got {box}")
    if bool(((x < low) | (x > high)).any()):
        raise BadInput(f"starts reach from {float(x.min())} to {float(x.max())}, out of box {box}")


def _broadcast_to_items(values: Tensor, x: Tensor) -> Tensor:
    """``(n,)`` numbers in a shape that multiplies ``x``."""
    return values.reshape(-1, *[1] * (x.ndim - 1))
