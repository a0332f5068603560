"""Snapshot members: the network at the ends of the later epochs of one training.

Votes that change between later epochs, when the loss is nearly constant, mark uncertain items. The
strategy ``disagreement`` (DIAM) uses these votes.

The default is the later half of the epochs up to the learner's final parameters: the last epoch, or
the best epoch with validation. Epochs after the best one are dropped.

Cost per kept epoch: one copy of all parameters in main memory, and one forward pass.

Reference: Y.-P. Tang, S.-J. Huang, "Active Learning for Multiple Target Models", NeurIPS 2022.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from labelwise.errors import BadInput
from labelwise.learners.inputs import Batch
from labelwise.learners.members.base import Members, ModuleWithState
from labelwise.learners.network import call_module
from labelwise.learners.saving import strip_tensor_prefix
from labelwise.learners.training import LabelledItems

State = Mapping[str, Tensor]


class SnapshotMembers(Members):
    """The network at the ends of its later epochs; `count` is known after training.

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> import labelwise
        >>> from labelwise.learners.torch_learner import TorchLearner
        >>> inputs = np.random.default_rng(0).normal(size=(60, 4))
        >>> targets = (inputs[:, 0] > 0).astype(int)
        >>> make = lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> learner = TorchLearner(make, epochs=20, members=SnapshotMembers())
        >>> report = learner.fit(inputs[:20], targets[:20], seed=0)
        >>> votes = learner.represent(inputs, ["member_votes"])["member_votes"]
        >>> votes.shape
        (60, 10)
        >>> len(labelwise.select("disagreement", 5, member_votes=votes, seed=0).ids)
        5
    """

    def __init__(self, *, last: int | None = None) -> None:
        """Keep this many ``last`` epochs instead of the later half, which bounds memory."""
        if last is not None and last < 1:
            raise BadInput(f"last must be 1 or more, or None for the later half; got {last}")
        self._last = last
        self._states: dict[int, State] = {}  # by epoch, in order
        self._near: dict[int, State] = {}  # copies on the device of the batches
        self.count = 0

    @property
    def epochs(self) -> list[int]:
        """Epochs of the members, counted from 1."""
        return list(self._states)

    def begin(self, labelled: LabelledItems) -> None:
        """Discard the snapshots of the last training."""
        self._keep_snapshots({})

    def epoch_done(
        self, module: nn.Module, epoch: int, epochs: int, losses: Callable[..., Tensor]
    ) -> None:
        """Store a copy of the network and drop copies that are too old."""
        if self._last is not None and self._last > epochs:
            raise BadInput(f"last is {self._last} but there are only {epochs} epochs")
        oldest = epoch // 2 if self._last is None else epoch - self._last
        state = {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}
        self._keep_snapshots({n: s for n, s in self._states.items() if n > oldest} | {epoch: state})

    def snapshot(self) -> dict[int, State]:
        """The copies kept at this epoch; shared, since they never change."""
        return dict(self._states)

    def restore(self, snapshot: object) -> None:
        """Restore the copies kept at the best epoch."""
        assert isinstance(snapshot, dict)
        self._keep_snapshots(dict(snapshot))

    def outputs(self, module: nn.Module, head: str, batch: Batch, features: Tensor) -> Tensor:
        """Outputs at the end of every kept epoch, ``(b, count, K)``."""
        if not self._states:
            raise BadInput("no epochs are kept yet; fit or load the learner first")
        for epoch in self._states.keys() - self._near.keys():
            state = self._states[epoch]
            self._near[epoch] = {name: value.to(features.device) for name, value in state.items()}
        found = [
            call_module(ModuleWithState(module, self._near[epoch]), batch) for epoch in self._states
        ]
        return torch.stack(found, dim=1)

    def tensors(self) -> dict[str, Tensor]:
        """All copies, by epoch and name."""
        return {
            f"{epoch}.{name}": value
            for epoch, state in self._states.items()
            for name, value in state.items()
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore all copies."""
        epochs = sorted({int(name.split(".")[0]) for name in tensors})
        self._keep_snapshots({epoch: strip_tensor_prefix(f"{epoch}.", tensors) for epoch in epochs})

    def _keep_snapshots(self, states: dict[int, State]) -> None:
        self._states, self._near, self.count = states, {}, len(states)
