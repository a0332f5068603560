"""Training settings: losses, optimizers and learning rate schedules."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelwise.errors import BadInput, UnknownName
from labelwise.learners.inputs import Batch

Loss = Callable[[Tensor, Tensor], Tensor]
"""``loss(outputs (b, K), targets (b, ...)) -> (b,)``, one number per item."""

Parameters = Sequence[nn.Parameter]


class Schedule(Protocol):
    """A learning rate schedule, such as a `torch.optim.lr_scheduler.LRScheduler`."""

    def step(self) -> None:
        """Called after every batch."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """``(b, K)`` logits and ``(b,)`` classes to ``(b,)`` losses."""
    return F.cross_entropy(outputs, targets, reduction="none")


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """``(b, k)`` values and ``(b, k)`` targets to ``(b,)``: the mean over the ``k`` outputs."""
    return (outputs - targets).square().mean(dim=1)


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "mse": squared_error}
WEIGHTINGS = ("loss", "sampler")
SCHEDULES = ("cosine", "linear")
MONITORS = ("validation_loss", "validation_accuracy", "training_loss", "training_accuracy")


def _make_sgd(parameters: Parameters, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr, weight_decay=weight_decay, momentum=0.9)


def _make_adam(
    kind: type[torch.optim.Adam], parameters: Parameters, lr: float, weight_decay: float
) -> torch.optim.Optimizer:
    # The fused step, which saves overhead, supports only floating-point parameters.
    fused = all(parameter.is_floating_point() for parameter in parameters)
    return kind(parameters, lr=lr, weight_decay=weight_decay, fused=fused)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": partial(_make_adam, torch.optim.Adam),
    "adamw": partial(_make_adam, torch.optim.AdamW),
    "sgd": _make_sgd,
}


@dataclass(frozen=True)
class TrainingSettings:
    """Training settings; see `labelwise.TorchLearner` for their meaning."""

    loss: Loss
    optimizer: str | Callable[..., torch.optim.Optimizer] = "adam"
    lr: float = 1e-3
    weight_decay: float = 0.0
    schedule: str | Callable[..., Schedule] | None = None
    epochs: int = 100
    batch_size: int = 64
    patience: int | None = None
    min_epochs: int = 1
    monitor: str = "validation_loss"
    stop_accuracy: float | None = None
    stop_loss: float | None = None
    augment: Callable[[Batch], Batch] | None = None
    amp: bool = False
    weighting: str = "loss"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "patience", "min_epochs"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Integral):
                raise BadInput(f"{name} must be a whole number; got {value!r}")
            if value is not None and value < 1:
                raise BadInput(f"{name} must be 1 or more; got {value}")
        if self.min_epochs > self.epochs:
            raise BadInput(f"min_epochs is {self.min_epochs} but there are {self.epochs} epochs")
        if self.monitor not in MONITORS:
            known = ", ".join(MONITORS)
            raise UnknownName(f"no monitor is called {self.monitor!r}; choose from {known}")
        if not 0 < self.lr < math.inf:
            raise BadInput(f"lr must be above 0 and finite; got {self.lr}")
        if not 0 <= self.weight_decay < math.inf:
            raise BadInput(f"weight_decay must be 0 or more and finite; got {self.weight_decay}")
        if self.stop_accuracy is not None and not 0 < self.stop_accuracy <= 1:
            raise BadInput(f"stop_accuracy must be above 0 and up to 1; got {self.stop_accuracy}")
        if self.weighting not in WEIGHTINGS:
            known = " or ".join(WEIGHTINGS)
            raise BadInput(f"weighting must be {known}, never both; got {self.weighting!r}")
        if isinstance(self.optimizer, str) and self.optimizer not in OPTIMIZERS:
            known = ", ".join(OPTIMIZERS)
            raise UnknownName(f"no optimizer is called {self.optimizer!r}; choose from {known}")
        if isinstance(self.schedule, str) and self.schedule not in SCHEDULES:
            known = ", ".join(SCHEDULES)
            raise UnknownName(f"no schedule is called {self.schedule!r}; choose from {known}")

    @property
    def needs_accuracy(self) -> bool:
        """Whether stopping depends on an accuracy."""
        return self.stop_accuracy is not None or self.monitor.endswith("accuracy")


def make_optimizer(module: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Make the optimizer of all parameters that are not frozen."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not parameters:
        raise BadInput("the module has no parameters to train")
    make = settings.optimizer
    if isinstance(make, str):
        make = OPTIMIZERS[make]
    return make(parameters, settings.lr, settings.weight_decay)


def make_schedule(
    optimizer: torch.optim.Optimizer, settings: TrainingSettings, steps: int
) -> Schedule | None:
    """Make the learning rate schedule, stepped after every batch; or None."""
    if settings.schedule is None:
        return None
    if not isinstance(settings.schedule, str):
        return settings.schedule(optimizer, steps)

    def compute_rate_factor(step: int) -> float:
        left = 1 - min(step / steps, 1)
        return left if settings.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2

    return torch.optim.lr_scheduler.LambdaLR(optimizer, compute_rate_factor)
