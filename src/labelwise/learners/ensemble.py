r"""Deep ensembles: several networks that differ in initial parameters and order of batches.

The members' probabilities :math:`p_{im}` are averaged, :math:`\bar p_i = \frac1M \sum_m p_{im}`,
and logits are :math:`\log \bar p_i`. Features are the concatenated features of the members,
``(n, M d)``.

Cost: if the architecture allows it, the members train as one batched model
(`labelwise.learners.stacked_training`), and M small networks take little longer than one.

Reference: B. Lakshminarayanan, A. Pritzel, C. Blundell, "Simple and Scalable Predictive Uncertainty
Estimation Using Deep Ensembles", NeurIPS 2017.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.arrays import Array
from labelwise.errors import BadInput
from labelwise.learner import FitReport, check_seed
from labelwise.learners.inputs import Batch
from labelwise.learners.members.base import ignore_vmap_warnings
from labelwise.learners.network import call_module, call_with_features, get_linear_layer
from labelwise.learners.network_reader import derive_predictions, full_precision
from labelwise.learners.preparation import seed_torch
from labelwise.learners.stacked_training import NetworkStack, can_stack, train_together
from labelwise.learners.torch_learner import TorchLearner, TrainingStart, check_factory
from labelwise.learners.training import (
    TrainingOutcome,
    autocast_context,
    is_mixed_precision,
    train,
)


def derive_member_seeds(seed: int, count: int) -> list[int]:
    """The seeds of an ensemble's members; a `TorchLearner` with one of them trains that member.

    >>> derive_member_seeds(0, 2) == derive_member_seeds(0, 3)[:2]
    True
    """
    return [
        int(np.random.SeedSequence([seed, number]).generate_state(1)[0]) for number in range(count)
    ]


class EnsembleModule(nn.Module):
    """The ``members`` of an ensemble; outputs are their mean, or log of mean probabilities."""

    def __init__(self, members: Iterable[nn.Module], *, classes: bool = True) -> None:
        """Combine modules that give logits (``classes``) or values."""
        super().__init__()
        self.members = nn.ModuleList(members)
        self.classes = classes

    def forward(self, *inputs: Batch, **named: Batch) -> Tensor:
        """The mean of the members' outputs."""
        found = [call_module(member, named or inputs) for member in self.members]
        return average_member_outputs(torch.stack(found, dim=1), self.classes)


def average_member_outputs(several: Tensor, classes: bool) -> Tensor:
    """Members' outputs ``(b, M, K)`` to those of the ensemble, ``(b, K)``."""
    several = full_precision(several)
    if not classes:
        return several.mean(dim=1)
    return several.log_softmax(dim=2).logsumexp(dim=1) - math.log(several.shape[1])


class EnsembleLearner(TorchLearner):
    """Train ``members`` networks of one architecture and represent items by all of them.

    It gives features ``(n, M d)``, logits, probabilities, member_probabilities ``(n, M, K)`` and
    member_votes; for a regression features, outputs and member_votes (of one output). Held-out
    items are the same for all members; each stops and keeps its best epoch independently.

    Attributes:
        batched: whether the last `fit` trained the members as one batched model; None before.

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> inputs = np.random.default_rng(0).normal(size=(60, 4))
        >>> targets = (inputs[:, 0] > 0).astype(int)
        >>> make = lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> learner = EnsembleLearner(make, members=5, epochs=10)
        >>> report = learner.fit(inputs[:40], targets[:40], seed=0)
        >>> learner.batched
        True
        >>> rows = learner.represent(inputs, ["features", "member_probabilities"])
        >>> rows["features"].shape, rows["member_probabilities"].shape
        ((60, 40), (60, 5, 2))
    """

    def __init__(
        self, make_module: Callable[[], nn.Module], *, members: int = 5, **options: Any
    ) -> None:
        """Store the options: those of `TorchLearner` except ``pseudo``.

        ``make_module`` makes a new, untrained module at every call; there are 2 or more
        ``members``.
        """
        if isinstance(members, bool) or not isinstance(members, int) or members < 2:
            raise BadInput(f"members must be a whole number, 2 or more; got {members!r}")
        check_factory(make_module)
        if "pseudo" in options:
            raise BadInput("an ensemble gives no gradients, so pseudo has no meaning; leave it out")
        super().__init__(self._make_ensemble_module, **options)
        self._make_member = make_module
        self._seeds = derive_member_seeds(0, members)
        self._stack: NetworkStack | None = None
        self._one_by_one = False
        self.batched: bool | None = None

    @property
    def head(self) -> nn.Linear:
        """Not available: every member has its own."""
        raise BadInput("an ensemble has one head per member; use module.members")

    @property
    def members(self) -> list[nn.Module]:
        """The trained modules, in eval mode."""
        return _get_ensemble_members(self.module)

    def fit(
        self, inputs: Array, targets: Array, weights: Array | None = None, *, seed: int = 0
    ) -> FitReport:
        """Train all members; the arguments are those of `TorchLearner.fit`.

        Reports the mean loss, the maximum number of epochs, and whether all stopped early.
        """
        self._seeds = derive_member_seeds(check_seed(seed), len(self._seeds))
        report = super().fit(inputs, targets, weights, seed=seed)
        self._reset_network_stack()
        return report

    def _count_network_outputs(self) -> int:
        return get_linear_layer(self.members[0], self._get_fitted_network().head).out_features

    def _get_network_with_head(self, module: nn.Module) -> nn.Module:
        return _get_ensemble_members(module)[0]

    def offered(self) -> list[str]:
        """The representations that this learner can give after training."""
        if self._get_fitted_network().classes:
            return ["features", "logits", "probabilities", "member_probabilities", "member_votes"]
        return [
            "features",
            "outputs",
            *(["member_votes"] if self._count_network_outputs() == 1 else []),
        ]

    def load(self, folder: str | Path) -> None:
        """Load members saved by `save`; ``make_module`` must build the same architecture."""
        super().load(folder)
        self._reset_network_stack()

    def _train_module(self, start: TrainingStart) -> TrainingOutcome:
        outcomes = self._train_members(start, _get_ensemble_members(start.module))
        start.module.eval()
        return TrainingOutcome(
            float(np.mean([outcome.loss for outcome in outcomes])),
            max(outcome.epochs for outcome in outcomes),
            all(outcome.converged for outcome in outcomes),
        )

    def _train_members(
        self, start: TrainingStart, members: list[nn.Module]
    ) -> list[TrainingOutcome]:
        given: dict[str, Any] = {
            "device": self._device,
            "validation": start.validation,
            "progress": self._progress,
        }
        labelled, settings = start.labelled, self._settings
        self.batched = can_stack(members, labelled, settings, self._device)
        if self.batched:
            return train_together(members, labelled, settings, seeds=self._seeds, **given)
        outcomes = []
        for module, seed in zip(members, self._seeds, strict=True):
            with seed_torch(seed, self._device):
                outcomes.append(train(module, labelled, settings, seed=seed, **given))
        return outcomes

    def _represent_batch(self, batch: Batch, names: Sequence[str]) -> dict[str, Tensor]:
        """The named representations of a batch."""
        classes = self._get_fitted_network().classes
        with torch.no_grad(), autocast_context(self._device, self._settings.amp):
            several, features = self._represent_members(batch)
        if is_mixed_precision(self._device, self._settings.amp):
            features = features.bfloat16()  # mixed precision: more digits would be noise
        outputs = average_member_outputs(several, classes)
        found = {"features": features, **derive_predictions(outputs, several, classes)}
        return {name: found[name].detach() for name in names}

    def _represent_members(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Outputs ``(b, M, K)``, and features ``(b, M d)``, at once or member by member."""
        head = self._get_fitted_network().head
        if not self._one_by_one:
            try:
                self._stack = self._stack or NetworkStack(self.members)
                with ignore_vmap_warnings():
                    outputs, features = self._stack.outputs_and_features(head, batch)
                return outputs.transpose(0, 1), features.transpose(0, 1).flatten(1)
            except Exception:  # vmap failed; other errors recur below
                self._one_by_one, self._stack = True, None
        pairs = [call_with_features(module, head, batch) for module in self.members]
        return torch.stack([p[0] for p in pairs], dim=1), torch.cat([p[1] for p in pairs], dim=1)

    def _reset_network_stack(self) -> None:
        """Forget what was derived from earlier members."""
        assert isinstance(self.module, EnsembleModule)
        self.module.classes = self._get_fitted_network().classes
        self._stack, self._one_by_one = None, False

    def _make_ensemble_module(self) -> EnsembleModule:
        """Fresh members, each from its own seed."""
        modules: list[nn.Module] = []
        for seed in self._seeds:
            with seed_torch(seed, self._device):
                modules.append(self._make_member())
        for module in modules:
            if not isinstance(module, nn.Module):
                raise BadInput(f"make_module must give a torch module; got {type(module).__name__}")
        old = [] if self._fitted is None else self.members
        if len({id(module) for module in [*modules, *old]}) < len(modules) + len(old):
            raise BadInput("make_module gave the same module twice; make a new one at every call")
        return EnsembleModule(modules)


def _get_ensemble_members(module: nn.Module) -> list[nn.Module]:
    assert isinstance(module, EnsembleModule)
    return list(module.members)
