r"""Training with weights: one loop for all torch learners.

A weight of 2 counts like the same item twice. Either every item's loss is multiplied by its weight,
scaled to mean 1 so that the learning rate keeps its meaning,

.. math:: \min_\theta \; \frac{1}{m} \sum_i w_i \, \ell(f_\theta(x_i), y_i) ,

or batches are drawn with probability proportional to the weight and the loss is plain. Both have
the same mean gradient; doing both would count every weight twice.

A `TrainingWatcher` sees the loss of every item and may change it. Dual variables and snapshots of
late epochs use it, so there is only one loop.

Reference for the sampler: "Sample Complexity of Deep Active Learning", submitted to ICLR 2022,
Theorem 4.2.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labelwise.errors import BadInput, NotConverged
from labelwise.learners.inputs import (
    Batch,
    Items,
    find_nonfinite_item,
    prepare_batch,
    split_into_batches,
)
from labelwise.learners.network import call_module, evaluation_mode, get_dtype
from labelwise.learners.settings import (
    Loss,
    Schedule,
    TrainingSettings,
    make_optimizer,
    make_schedule,
)
from labelwise.pool.blocks import Progress


class PenalizedLayer(ABC):
    """A layer with its own penalty, such as a prior; counted once, not per item."""

    @abstractmethod
    def penalty(self) -> Tensor:
        """Penalty added to the sum of the item losses."""


@dataclass(frozen=True)
class LabelledItems:
    """Items with their labels: ``targets`` ``(m, ...)``, ``weights`` ``(m,)`` of mean 1."""

    items: Items
    targets: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.targets)


class TrainingWatcher:
    """Observes a training and may change losses; the default methods do nothing."""

    def begin(self, labelled: LabelledItems) -> None:
        """Called before the first step; positions refer to these items."""

    def factors(self, positions: Tensor) -> Tensor | None:
        """``(b,)`` factors of the losses of the items at ``positions``, or None for 1."""
        return None

    def extra(self, positions: Tensor, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """``(b,)`` terms added to the item losses before weighting, or None."""
        return None

    def stepped(self, positions: Tensor, losses: Tensor, again: Callable[..., Tensor]) -> None:
        """Called after every step, in train mode.

        ``positions`` and ``losses`` ``(b,)``: the items of the batch and their plain losses before
        the step. ``again`` computes losses after the step, in eval mode; given another loss, that.
        """

    def epoch_done(
        self, module: nn.Module, epoch: int, epochs: int, losses: Callable[..., Tensor]
    ) -> None:
        """Called after every epoch; ``losses()`` are those of all items ``(m,)``, in eval mode."""

    def snapshot(self) -> object:
        """State to restore together with the parameters of the best epoch."""
        return None

    def restore(self, snapshot: object) -> None:
        """Restore a snapshot."""


@dataclass(frozen=True)
class TrainingOutcome:
    """Result of a training: mean loss of the last epoch, epochs, and whether it stopped early."""

    loss: float
    epochs: int
    converged: bool


def train(
    module: nn.Module,
    labelled: LabelledItems,
    settings: TrainingSettings,
    *,
    seed: int,
    device: torch.device,
    validation: LabelledItems | None = None,
    watchers: Sequence[TrainingWatcher] = (),
    progress: Progress | None = None,
) -> TrainingOutcome:
    """Train a module in place; with validation items the best epoch is kept."""
    check_accuracy_use(settings, labelled.targets)
    rng = np.random.default_rng([seed, 1])
    optimizer = make_optimizer(module, settings)
    steps = settings.epochs * -(-len(labelled) // settings.batch_size)
    step = _StepLoop(module, labelled, settings, optimizer, device, watchers)
    step.schedule = make_schedule(optimizer, settings, steps)
    rule, best = StoppingRule(settings), _KeptEpoch(module, watchers)
    for watcher in watchers:
        watcher.begin(labelled)
    for epoch in range(1, settings.epochs + 1):
        measured = step.epoch(draw_batches(labelled.weights, settings, rng))
        check_finite(measured.loss, f"the loss in epoch {epoch}", labelled, settings)
        for watcher in watchers:
            watcher.epoch_done(module, epoch, settings.epochs, step.all_losses)
        if progress is not None:
            progress("training", epoch, settings.epochs)
        held = None
        if validation is not None:
            held = _measure_validation_items(module, validation, settings, device)
            check_finite(held.loss, f"the validation loss in epoch {epoch}", validation, settings)
        improved, done = rule.update(epoch, measured, held)
        if improved and held is not None:
            best.keep()
        if done:
            break
    best.restore()
    module.eval()
    return TrainingOutcome(measured.loss, epoch, done)


class EpochMeasure(NamedTuple):
    """Mean loss and accuracy over some items; the accuracy is 0 unless stopping depends on it."""

    loss: float
    accuracy: float = 0.0


class StoppingRule:
    """Decides after every epoch whether it is the best so far and whether training ends.

    Nothing is best and nothing ends before ``min_epochs``. Training ends when ``patience`` epochs
    pass without an improvement of the monitored quantity, when the accuracy reaches
    ``stop_accuracy``, or when the training loss reaches ``stop_loss``.
    """

    def __init__(self, settings: TrainingSettings) -> None:
        self._settings = settings
        self._best, self._best_epoch = -math.inf, 0

    def update(
        self, epoch: int, training: EpochMeasure, validation: EpochMeasure | None
    ) -> tuple[bool, bool]:
        """Whether the epoch is the best so far, and whether training ends with it."""
        settings = self._settings
        if epoch < settings.min_epochs:
            return False, False
        of_training = settings.monitor.startswith("training")
        monitored = training if of_training else validation
        improved = done = False
        if monitored is not None:
            by_accuracy = settings.monitor.endswith("accuracy")
            score = monitored.accuracy if by_accuracy else -monitored.loss
            improved = score > self._best
            if improved:
                self._best, self._best_epoch = score, epoch
            waited = epoch - self._best_epoch
            done = settings.patience is not None and waited >= settings.patience
        if settings.stop_accuracy is not None:
            held = settings.monitor == "validation_accuracy" and validation is not None
            reached = validation if held else training
            done = done or (reached is not None and reached.accuracy >= settings.stop_accuracy)
        if settings.stop_loss is not None:
            done = done or training.loss <= settings.stop_loss
        return improved, done


def check_accuracy_use(settings: TrainingSettings, targets: Tensor) -> None:
    """Reject stopping by accuracy in a regression."""
    if settings.needs_accuracy and targets.is_floating_point():
        name = "monitor" if settings.stop_accuracy is None else "stop_accuracy"
        raise BadInput(f"{name} is for classes, and the targets are values; leave it out")


def mark_correct_items(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 for every item whose largest output is its class, else 0; ``(b,)``."""
    return (outputs.argmax(dim=1) == targets).float()


def compute_losses(
    module: nn.Module,
    labelled: LabelledItems,
    loss: Loss,
    device: torch.device,
    batch_size: int = 512,
) -> Tensor:
    """The loss of every item, ``(m,)``, in eval mode, without gradients."""
    dtype = get_dtype(module)
    parts = []
    with evaluation_mode(module), torch.no_grad():
        for positions in split_into_batches(np.arange(len(labelled)), batch_size):
            batch = prepare_batch(labelled.items.batch(positions), device, dtype)
            targets = labelled.targets[torch.from_numpy(positions).to(labelled.targets.device)]
            parts.append(loss(call_module(module, batch), targets.to(device)))
    return torch.cat(parts)


class _StepLoop:
    """Runs the optimizer steps of an epoch."""

    schedule: Schedule | None = None

    def __init__(
        self,
        module: nn.Module,
        labelled: LabelledItems,
        settings: TrainingSettings,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        watchers: Sequence[TrainingWatcher],
    ) -> None:
        self._module, self._labelled, self._settings = module, labelled, settings
        self._optimizer, self._device, self._watchers = optimizer, device, watchers
        self._dtype = get_dtype(module)
        self._penalised = [layer for layer in module.modules() if isinstance(layer, PenalizedLayer)]
        uneven = settings.weighting == "loss" and bool((labelled.weights != 1).any())
        self._weights = labelled.weights if uneven else None

    def epoch(self, batches: Sequence[NDArray[np.int64]]) -> EpochMeasure:
        """Make a step on each batch; return the mean weighted loss and the accuracy."""
        self._module.train()
        self._total = torch.zeros((), device=self._device)
        self._right = torch.zeros((), device=self._device)
        for positions in batches:
            self._make_training_step(positions)
            if self.schedule is not None:
                self.schedule.step()
        count = len(self._labelled)
        return EpochMeasure(float(self._total) / count, float(self._right) / count)

    def _make_training_step(self, positions: NDArray[np.int64]) -> None:
        places = torch.from_numpy(positions).to(self._device)
        batch = prepare_batch(self._labelled.items.batch(positions), self._device, self._dtype)
        if self._settings.augment is not None:
            batch = self._settings.augment(batch)
        targets = self._labelled.targets[places]
        with autocast_context(self._device, self._settings.amp):
            outputs = call_module(self._module, batch)
            losses = apply_batch_loss(self._settings.loss, outputs, targets)
            steered = self._apply_watchers(losses, outputs, targets, places)
        self._optimizer.zero_grad(set_to_none=True)
        objective = self._compute_training_objective(self._apply_item_weights(steered, places))
        objective.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._total += self._apply_item_weights(losses.detach(), places).sum()
        if self._settings.needs_accuracy:
            self._right += mark_correct_items(outputs, targets).sum()
        for watcher in self._watchers:
            watcher.stepped(
                places, losses.detach(), partial(self._recompute_losses, batch, targets)
            )

    def all_losses(self, loss: Loss | None = None) -> Tensor:
        """The losses of all items, in eval mode."""
        return compute_losses(
            self._module, self._labelled, loss or self._settings.loss, self._device
        )

    def _apply_watchers(
        self, losses: Tensor, outputs: Tensor, targets: Tensor, places: Tensor
    ) -> Tensor:
        """Apply the factors and extra terms of all watchers."""
        for watcher in self._watchers:
            factors, extra = watcher.factors(places), watcher.extra(places, outputs, targets)
            losses = losses if factors is None else losses * factors
            losses = losses if extra is None else losses + extra
        return losses

    def _apply_item_weights(self, losses: Tensor, places: Tensor) -> Tensor:
        return losses if self._weights is None else losses * self._weights[places]

    def _compute_training_objective(self, weighted: Tensor) -> Tensor:
        objective = weighted.mean()
        for layer in self._penalised:
            objective = objective + layer.penalty() / len(self._labelled)
        return objective

    def _recompute_losses(self, batch: Batch, targets: Tensor, loss: Loss | None = None) -> Tensor:
        with evaluation_mode(self._module), torch.no_grad():
            return (loss or self._settings.loss)(call_module(self._module, batch), targets)


class _KeptEpoch:
    """The states of the module and of the watchers at the best epoch."""

    def __init__(self, module: nn.Module, watchers: Sequence[TrainingWatcher]) -> None:
        self._module, self._watchers = module, watchers
        self._state: dict[str, Tensor] | None = None
        self._snapshots: list[object] = []

    def keep(self) -> None:
        state = self._module.state_dict()
        self._state = {name: value.detach().clone() for name, value in state.items()}
        self._snapshots = [watcher.snapshot() for watcher in self._watchers]

    def restore(self) -> None:
        """Restore the kept states; the module stays as it is if none were kept."""
        if self._state is None:
            return
        self._module.load_state_dict(self._state)
        for watcher, snapshot in zip(self._watchers, self._snapshots, strict=True):
            watcher.restore(snapshot)


def apply_batch_loss(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Check that the loss has one value per item; a reduced loss cannot be weighted."""
    losses = loss(outputs, targets)
    if losses.shape != outputs.shape[:1]:
        raise BadInput(
            f"the loss must give one number per item, ({len(outputs)},); got "
            f"{tuple(losses.shape)}: do not reduce it"
        )
    return losses


def autocast_context(device: torch.device, on: bool) -> AbstractContextManager[object]:
    """Mixed precision (bfloat16) on a GPU if enabled."""
    if not is_mixed_precision(device, on):
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def is_mixed_precision(device: torch.device, on: bool) -> bool:
    """Whether `autocast` changes anything."""
    return on and device.type == "cuda"


def check_finite(
    loss: float, which: str, labelled: LabelledItems, settings: TrainingSettings
) -> None:
    """Reject a loss that is not finite and name its cause."""
    if math.isfinite(loss):
        return
    position = find_nonfinite_item(labelled.items)
    if position is not None:
        raise BadInput(
            f"{which} is {loss}: the inputs of item {position} are not finite; repair or leave it "
            "out"
        )
    raise NotConverged(
        f"{which} is {loss}; lower lr (it is {settings.lr}) or look for extreme inputs and targets"
    )


def draw_batches(
    weights: Tensor, settings: TrainingSettings, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """The batches of an epoch."""
    count = len(weights)
    if settings.weighting == "sampler":
        shares = weights.cpu().numpy().astype(np.float64)
        order = rng.choice(count, size=count, p=shares / shares.sum())
    else:
        order = rng.permutation(count)
    return split_into_batches(order, settings.batch_size)


def _measure_validation_items(
    module: nn.Module, labelled: LabelledItems, settings: TrainingSettings, device: torch.device
) -> EpochMeasure:
    losses = [settings.loss, mark_correct_items] if settings.needs_accuracy else [settings.loss]
    weights = labelled.weights.to(device)
    means = [(compute_losses(module, labelled, one, device) * weights).mean() for one in losses]
    return EpochMeasure(*(float(mean) for mean in means))
