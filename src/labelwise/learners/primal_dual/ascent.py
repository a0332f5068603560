r"""Dual variables of a training under one constraint per item: raised as it goes, and steering it.

The training descends the Lagrangian

.. math::
    L(\theta, \lambda) = \frac{1}{m} \sum_i w_i
        \bigl[ \ell_i + \lambda_i (\ell'_i - \epsilon_i) \bigr]

in :math:`\theta`; here it is ascended in :math:`\lambda \ge 0`:

.. math:: \lambda_i \leftarrow \max(0, \; \lambda_i + \eta_d \, (\ell'_i - \epsilon_i)) .

The weight :math:`w_i` is in both terms of the Lagrangian and not in the ascent, so that an item of
weight 2 is the same item twice, each copy with the same :math:`\lambda_i`.

Constraints that cannot be met let :math:`\lambda` grow without end, and with it the steps of plain
gradient descent; dividing :math:`L` by the mean of :math:`w (1 + \lambda)` keeps them bounded and
moves no optimum.

Reference: J. Elenter, N. NaderiAlizadeh, A. Ribeiro, "A Lagrangian Duality Approach to Active
Learning", NeurIPS 2022, Algorithm 1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.arrays import Floats
from labelwise.errors import BadInput
from labelwise.learners.inputs import ItemSubset
from labelwise.learners.settings import Loss
from labelwise.learners.training import LabelledItems, TrainingWatcher, checked_losses


@dataclass(frozen=True)
class DualAscent:
    """How dual variables are raised; `PrimalDualLearner` says what each one means."""

    dual_lr: float = 0.05
    granularity: str = "minibatch"
    loss_for_dual: str = "pre"
    every: int = 1
    loss: Loss | None = None
    cap: float | None = None
    diminishing: bool = False
    restore: bool = True
    normalise: bool = True

    def __post_init__(self) -> None:
        if not self.dual_lr > 0:
            raise BadInput(f"dual_lr must be above 0; got {self.dual_lr}")
        if self.granularity not in ("minibatch", "full"):
            raise BadInput(f"granularity must be minibatch or full; got {self.granularity!r}")
        if self.loss_for_dual not in ("pre", "post"):
            raise BadInput(f"loss_for_dual must be pre or post; got {self.loss_for_dual!r}")
        if self.every < 1:
            raise BadInput(f"dual_every must be 1 or more; got {self.every}")
        if self.cap is not None and not self.cap > 0:
            raise BadInput(f"cap must be above 0, or None; got {self.cap}")


class DualWatcher(TrainingWatcher):
    """The dual variables of a training, which they steer.

    Args:
        epsilon: ``(m,)`` bounds, of all labelled items.
        ascent: how they are raised.
        split: whether some of the labelled items are held out.
        drawn: whether batches are drawn in proportion to the weights.
    """

    def __init__(self, epsilon: Floats, ascent: DualAscent, *, split: bool, drawn: bool) -> None:
        self._compute_bounds, self._ascent, self._split, self._draw_mask = (
            epsilon,
            ascent,
            split,
            drawn,
        )

    def begin(self, labelled: LabelledItems) -> None:
        """All dual variables are zero."""
        self.positions = np.arange(len(labelled))
        if self._split:
            assert isinstance(labelled.items, ItemSubset)
            self.positions = labelled.items.positions
        self._weights = labelled.weights.double()
        self._epsilon = torch.from_numpy(self._compute_bounds[self.positions]).to(self._weights)
        self.values = torch.zeros_like(self._epsilon)
        self._run_epoch, self._scale = 1, 1.0

    def factors(self, positions: Tensor) -> Tensor | None:
        """``1 + lambda``, or 1 where the constraints have a loss of their own; normalised."""
        own = self.values[positions] + 1
        return (own if self._ascent.loss is None else torch.ones_like(own)) / self._scale

    def extra(self, positions: Tensor, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """``lambda l'`` where the constraints have a loss of their own."""
        if self._ascent.loss is None:
            return None
        losses = checked_losses(self._ascent.loss, outputs, targets)
        self._before = losses.detach()
        return self.values[positions] * losses / self._scale

    def stepped(self, positions: Tensor, losses: Tensor, again: Callable[..., Tensor]) -> None:
        """Raise the dual variables of the batch."""
        if self._ascent.granularity == "full":
            return
        if self._ascent.loss_for_dual == "post":
            losses = again(self._ascent.loss)
        elif self._ascent.loss is not None:
            losses = self._before
        slack = losses.double() - self._epsilon[positions]
        if self._draw_mask:  # an item of weight 2 is drawn twice as often
            slack = slack / self._weights[positions]
        self._raise_duals(positions, slack)

    def epoch_done(
        self, module: nn.Module, epoch: int, epochs: int, losses: Callable[..., Tensor]
    ) -> None:
        """Raise all dual variables."""
        if self._ascent.granularity == "full" and epoch % self._ascent.every == 0:
            slack = losses(self._ascent.loss).double() - self._epsilon
            self._raise_duals(torch.arange(len(slack), device=slack.device), slack)
        self._run_epoch = epoch + 1

    def snapshot(self) -> Tensor:
        """The dual variables of this epoch."""
        return self.values.clone()

    def restore(self, snapshot: Tensor) -> None:
        """Back to those of the epoch whose parameters are kept."""
        if self._ascent.restore:
            self.values = snapshot

    def _raise_duals(self, positions: Tensor, slack: Tensor) -> None:
        step = self._ascent.dual_lr
        if self._ascent.diminishing:
            step /= self._run_epoch**0.5
        # index_add: a sampler may have drawn an item twice into the batch.
        self.values.index_add_(0, positions, step * slack)
        self.values.clamp_(min=0, max=self._ascent.cap)
        if self._ascent.normalise:
            self._scale = float((self._weights * (1 + self.values)).sum() / self._weights.sum())


class UnconstrainedWatcher(TrainingWatcher):
    """Looks at a training without constraints: its mean loss at the start and at the end."""

    def __init__(self, loss: Loss | None) -> None:
        self._loss = loss
        self.start: float | None = None
        self.end = 0.0

    def begin(self, labelled: LabelledItems) -> None:
        """Remember the weights."""
        self._weights = labelled.weights

    def extra(self, positions: Tensor, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Add nothing; where the constraints have a loss of their own, look at it."""
        if self._loss is not None and self.start is None:
            self.start = float(self._loss(outputs.detach(), targets).mean())
        return None

    def stepped(self, positions: Tensor, losses: Tensor, again: Callable[..., Tensor]) -> None:
        """The losses of the first batch are those at the start."""
        if self.start is None:
            self.start = float(losses.mean())

    def epoch_done(
        self, module: nn.Module, epoch: int, epochs: int, losses: Callable[..., Tensor]
    ) -> None:
        """The mean loss so far, in eval mode."""
        self.end = float((losses(self._loss) * self._weights).sum() / self._weights.sum())

    def snapshot(self) -> float:
        """The mean loss of this epoch."""
        return self.end

    def restore(self, snapshot: float) -> None:
        """Back to that of the epoch whose parameters are kept."""
        self.end = snapshot
