"""Base class of members, and functions that call several versions of a network."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from labelwise.learners.inputs import Batch
from labelwise.learners.training import LabelledItems, TrainingWatcher


class ModuleWithState(nn.Module):
    """A module called with another state; names of its layers get the prefix ``"base."``."""

    def __init__(self, base: nn.Module, state: Mapping[str, Tensor]) -> None:
        """``state`` is in the format of ``base.state_dict()``; the base is not modified."""
        super().__init__()
        # For tensors that share memory, only the first name is listed.
        names = [*dict(base.named_parameters()), *dict(base.named_buffers())]
        self.base = base
        self._state = {name: state[name] for name in names if name in state}

    def forward(self, *inputs: Batch, **named: Batch) -> Batch:
        """Call the base with that state."""
        return functional_call(self.base, self._state, inputs, named)


@contextmanager
def ignore_vmap_warnings() -> Iterator[None]:
    """Turn vmap's slow fallback for an operation into an error, so the caller loops instead."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="There is a performance drop")
        yield


def compute_head_outputs(features: Tensor, weights: Tensor, biases: Tensor | None) -> Tensor:
    """Outputs ``(b, m, K)`` of ``m`` linear layers ``(m, K, d)`` at once, in their precision."""
    weights = weights.to(features.device)
    # Low precision would hide the differences of the draws.
    with torch.autocast(features.device.type, enabled=False):
        outputs = features.to(weights.dtype) @ weights.flatten(0, 1).T
    several = outputs.reshape(len(features), *weights.shape[:2])
    return several if biases is None else several + biases.to(features.device)


class TrainedModule(NamedTuple):
    """A trained module."""

    module: nn.Module
    head: str  # name of its last linear layer
    labelled: LabelledItems  # the training items
    features: Callable[[], Tensor]  # computes the head's inputs ``(m, d)`` of all labelled items
    seed: int


class Members(TrainingWatcher, ABC):
    """``count`` versions of a network; also a `TrainingWatcher` of its training.

    Call order: `adapt` on a fresh module, the methods of `TrainingWatcher` while it trains,
    `fitted` at the end, and `outputs` for every batch of a pool.
    """

    count: int

    def adapt(self, module: nn.Module, head: str) -> None:
        """Replace layers of a module before training."""

    def fitted(self, trained: TrainedModule) -> None:
        """Handle the end of training."""

    @abstractmethod
    def outputs(self, module: nn.Module, head: str, batch: Batch, features: Tensor) -> Tensor:
        """The members' outputs for a batch, ``(b, count, K)``; ``features`` enter the head."""

    def tensors(self) -> dict[str, Tensor]:
        """Tensors to save with the module."""
        return {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the result of `tensors`."""
