"""What all kinds of members have in common, and how several versions of a network are called."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from labelwise.learners.inputs import Batch
from labelwise.learners.training import LabelledItems, TrainingWatcher


class ModuleWithState(nn.Module):
    """A module that is called with parameters and buffers other than its own.

    Layers keep their names after ``"base."``, so that they can still be found and hooked.
    """

    def __init__(self, base: nn.Module, state: Mapping[str, Tensor]) -> None:
        """``state`` as ``base.state_dict()`` gives it; the base itself never changes."""
        super().__init__()
        # Of tensors that share memory, only the first name is among these.
        names = [*dict(base.named_parameters()), *dict(base.named_buffers())]
        self.base = base
        self._get_state = {name: state[name] for name in names if name in state}

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """What the base gives with that state."""
        return functional_call(self.base, self._get_state, inputs, named)


@contextmanager
def ignore_vmap_warnings() -> Iterator[None]:
    """An operation that vmap would run in a loop is an error: a loop of ours does without vmap."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="There is a performance drop")
        yield


def outputs_of_heads(features: Tensor, weights: Tensor, biases: Tensor | None) -> Tensor:
    """The outputs of ``m`` linear layers at once, ``(b, m, K)``, in the precision of the weights.

    Args:
        features: ``(b, d)``.
        weights: ``(m, K, d)``.
        biases: ``(m, K)``, or None.
    """
    weights = weights.to(features.device)
    with torch.autocast(features.device.type, enabled=False):  # draws differ in their last digits
        outputs = features.to(weights.dtype) @ weights.flatten(0, 1).T
    several = outputs.reshape(len(features), *weights.shape[:2])
    return several if biases is None else several + biases.to(features.device)


class Members(TrainingWatcher, ABC):
    """``count`` versions of a network; also a `TrainingWatcher` of its training.

    Call order: `adapt` on a fresh module, the methods of `TrainingWatcher` while it trains,
    `fitted` at the end, and `outputs` for every batch of a pool.
    """

    count: int

    def adapt(self, module: nn.Module, head: str) -> None:
        """Exchange layers of a module before it is trained."""

    def fitted(
        self,
        module: nn.Module,
        head: str,
        labelled: LabelledItems,
        features: Callable[[], Tensor],
        seed: int,
    ) -> None:
        """The training is over.

        Args:
            module: trained.
            head: the name of its last linear layer.
            labelled: what it was trained on.
            features: computes what enters the head, ``(m, d)``, for all labelled items.
            seed: decides all draws.
        """

    @abstractmethod
    def outputs(self, module: nn.Module, head: str, batch: Batch, features: Tensor) -> Tensor:
        """The members' outputs (logits of classes, or values) for a batch, ``(b, count, K)``.

        Args:
            module: trained, in eval mode.
            head: the name of its last linear layer.
            batch: what the module is called with.
            features: ``(b, d)``, what enters the head.
        """

    def tensors(self) -> dict[str, Tensor]:
        """What must be saved with the module."""
        return {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
