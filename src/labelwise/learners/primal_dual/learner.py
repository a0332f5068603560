r"""Training under one constraint per labelled item, and the dual variables that come of it.

With losses :math:`\ell_i` and :math:`\ell'_i` (usually the same), weights :math:`w_i` of mean 1
and bounds :math:`\epsilon_i`,

.. math::
    \min_\theta \; \frac{1}{m} \sum_i w_i \, \ell_i(\theta)
    \quad \text{s.t.} \quad \ell'_i(\theta) \le \epsilon_i ,
    \qquad
    L(\theta, \lambda) = \frac{1}{m} \sum_i w_i
        \bigl[ \ell_i + \lambda_i (\ell'_i - \epsilon_i) \bigr] ,

is solved by descending :math:`L` in :math:`\theta` and ascending it in :math:`\lambda \ge 0`
(`labelwise.learners.primal_dual.ascent`). Because of the :math:`1/m`, :math:`w_i \lambda_i / m` is
the ordinary Lagrange multiplier, and on a convex problem
:math:`\partial P^* / \partial \epsilon_i = - w_i \lambda_i / m`.

Cost: a training, and one number per item; ``granularity="full"`` adds a forward pass per epoch.

Reference: J. Elenter, N. NaderiAlizadeh, A. Ribeiro, "A Lagrangian Duality Approach to Active
Learning", NeurIPS 2022, Algorithm 1 and Theorem 3.2.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.arrays import Floats
from labelwise.errors import BadInput, UnknownName
from labelwise.learner import FitReport
from labelwise.learners import saving
from labelwise.learners.inputs import Batch, as_items
from labelwise.learners.network import call_with_features
from labelwise.learners.network_reader import full_precision
from labelwise.learners.primal_dual.ascent import DualAscent, DualWatcher, UnconstrainedWatcher
from labelwise.learners.primal_dual.dual_head import PAPER, DualHead, DualHeadRecipe, DualHeadReport
from labelwise.learners.settings import LOSSES, Loss
from labelwise.learners.torch_learner import TorchLearner
from labelwise.learners.training import LabelledItems, TrainingWatcher

SLACK = 1.15
"""Epsilon over the unconstrained loss, where it is not given: the middle of [1.05, 1.25]."""
FLOOR = 1e-3
"""Epsilon is at least this share of the loss at the start, where it is not given."""


class PrimalDualLearner(TorchLearner):
    """A `TorchLearner` that is trained under constraints, and gives ``duals`` too.

    After `fit`, ``duals`` holds how hard the constraint of every labelled item was to meet; a
    regression head on the features predicts it for other items, as the representation ``duals``
    that the strategy ``ally`` reads.

    Example:
        >>> import numpy as np
        >>> import labelwise
        >>> from torch import nn
        >>> from labelwise.learners.primal_dual import PrimalDualLearner
        >>> inputs = np.random.default_rng(0).normal(size=(200, 2))
        >>> targets = (inputs[:, 0] > 0).astype(int)
        >>> make = lambda: nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
        >>> learner = PrimalDualLearner(make, epsilon=0.2, epochs=30, lr=0.01)
        >>> report = learner.fit(inputs[:40], targets[:40], seed=0)
        >>> learner.duals.shape, bool((learner.duals >= 0).all())
        ((40,), True)
        >>> rows = learner.represent(inputs[40:], ["features", "duals"])
        >>> picks = labelwise.select("ally", 20, **rows, diversity="none")
        >>> to_border = np.abs(inputs[40:, 0])
        >>> bool(to_border[picks.ids].mean() < 0.5 * to_border.mean())
        True
    """

    def __init__(
        self,
        make_module: Callable[[], nn.Module],
        *,
        epsilon: float | Any | None = None,
        dual_lr: float = 0.05,
        granularity: str = "minibatch",
        loss_for_dual: str = "pre",
        dual_every: int = 1,
        constraint_loss: str | Loss | None = None,
        cap: float | None = None,
        diminishing: bool = False,
        restore_duals: bool = True,
        normalise: bool = True,
        dual_head: str | DualHeadRecipe = "robust",
        **options: Any,
    ) -> None:
        """Remember how to train.

        Args:
            make_module: gives a new module, not yet trained, at every call.
            epsilon: the bound of every item's loss; a number, or ``(m,)``, one per labelled item.
                None takes 1.15 times the mean loss of a training without constraints, which is
                made first (and doubles the time), or a thousandth of the loss at the start where
                that is more: a network that fits all its labels has a loss of about 0.
            dual_lr: how far a dual variable rises per step and unit of loss.
            granularity: ``"minibatch"`` raises the dual variables of a batch after its step, as
                the authors' code does; ``"full"`` those of all items after every epoch, by their
                losses in eval mode, as the paper's Algorithm 1 does.
            loss_for_dual: of a minibatch: its loss ``"pre"`` the step, in train mode, or
                ``"post"``, in eval mode.
            dual_every: epochs between updates with ``"full"``.
            constraint_loss: what is bounded, ``"cross_entropy"``, ``"mse"`` or
                ``loss(outputs, targets) -> (b,)``; None for the loss itself.
            cap: the largest value of a dual variable: mislabelled items want more than any other.
            diminishing: divide ``dual_lr`` by the square root of the epoch.
            restore_duals: where the best epoch is kept, keep its dual variables too.
            normalise: divide the Lagrangian by the mean of ``1 + lambda``. With weight decay the
                decay then keeps its strength relative to the mean loss; without it, it would
                fade as dual variables grow.
            dual_head: ``"robust"``, ``"paper"`` (learning rate ``dual_lr``), or a `DualHeadRecipe`.
            **options: those of `TorchLearner`.
        """
        super().__init__(make_module, **options)
        if isinstance(constraint_loss, str) and constraint_loss not in LOSSES:
            known = ", ".join(LOSSES)
            raise UnknownName(f"no loss is called {constraint_loss!r}; choose from {known}")
        bounded = LOSSES[constraint_loss] if isinstance(constraint_loss, str) else constraint_loss
        self._ascent = DualAscent(
            dual_lr=dual_lr,
            granularity=granularity,
            loss_for_dual=loss_for_dual,
            every=dual_every,
            loss=bounded,
            cap=cap,
            diminishing=diminishing,
            restore=restore_duals,
            normalise=normalise,
        )
        self._given = None if epsilon is None else np.asarray(epsilon, dtype=np.float64)
        if self._given is not None:
            _check_epsilon(self._given)
        self._recipe = replace(PAPER, lr=dual_lr) if dual_head == "paper" else dual_head
        self._dual_head = DualHead(self._recipe)
        self._watcher: DualWatcher | UnconstrainedWatcher | None = None
        self._duals, self._epsilon = np.empty(0), np.empty(0)
        self.unconstrained_loss: float | None = None
        self.head_report: DualHeadReport | None = None

    @property
    def duals(self) -> Floats:
        """``(m,)`` the dual variables of the labelled items; NaN for those held out."""
        self._get_state()
        return self._duals

    @property
    def epsilon(self) -> Floats:
        """``(m,)`` the bounds that the labelled items were trained under."""
        self._get_state()
        return self._epsilon

    def fit(self, inputs: Any, targets: Any, weights: Any = None, *, seed: int) -> FitReport:
        """Train under the constraints, all dual variables from zero, and fit the dual head.

        Args:
            inputs: the labelled items, ``(m, ...)``, in any form of `labelwise.learners.inputs`.
            targets: ``(m,)`` classes, or ``(m,)`` or ``(m, k)`` values.
            weights: ``(m,)``, not negative; only their ratios matter. They multiply the loss and
                the constraint of an item alike.
            seed: decides all that is random.
        """
        items = as_items(inputs)
        self._epsilon = self._compute_bounds(len(items))
        seconds = 0.0
        if self._given is None:
            seconds = self._measure_losses(items, targets, weights, seed)
        self._watcher = DualWatcher(
            self._epsilon,
            self._ascent,
            split=bool(self._validation) and not isinstance(self._validation, tuple),
            drawn=self._settings.weighting == "sampler",
        )
        report = super().fit(items, targets, weights, seed=seed)
        return replace(report, seconds=report.seconds + seconds)

    def predicted_duals(self, batch: Batch) -> Tensor:
        """Predicted duals ``(b,)`` of a batch on the device; gradients flow to it.

        The module must be in eval mode, as it is after `fit`.
        """
        state = self._get_state()
        _, features = call_with_features(state.module, state.head, batch)
        return self._dual_head(full_precision(features))

    def offered(self) -> list[str]:
        """The representations that this learner can give, now that it is trained."""
        return [*super().offered(), "duals"]

    def save(self, folder: str | Path) -> None:
        """Write the trained module and its dual head to ``folder``, as safetensors and JSON."""
        super().save(folder)
        tensors = {f"head.{name}": value for name, value in self._dual_head.tensors().items()}
        tensors |= {"duals": torch.tensor(self._duals), "epsilon": torch.tensor(self._epsilon)}
        facts = {"learner": "DualHead", "recipe": self._dual_head.describe_state()}
        saving.save_learner(Path(folder) / "dual_head", tensors, facts)

    def load(self, folder: str | Path) -> None:
        """Take what `save_learner` wrote; ``make_module`` must make a module of the same shape."""
        super().load(folder)
        tensors, facts = saving.load_learner(Path(folder) / "dual_head", "DualHead")
        own = {
            name: value.to(self._device)
            for name, value in saving.strip_prefix("head.", tensors).items()
        }
        self._dual_head = DualHead.restore_state(own, facts["recipe"])
        self._duals, self._epsilon = tensors["duals"].numpy(), tensors["epsilon"].numpy()
        self.unconstrained_loss = self.head_report = None

    def _compute_bounds(self, count: int) -> Floats:
        """``(m,)`` from what the user gave."""
        if self._given is None or self._given.ndim == 0:
            return np.full(count, np.nan if self._given is None else float(self._given))
        if self._given.shape != (count,):
            raise BadInput(
                f"there are {count} items but epsilon of shape {self._given.shape}; give one "
                "number, or one per item"
            )
        return self._given.copy()

    def _measure_losses(self, items: Any, targets: Any, weights: Any, seed: int) -> float:
        """Set epsilon by a training without constraints; return how long it took."""
        before = self._fitted
        if before is not None and self._warm_start:  # train a copy: the module itself comes next
            self._fitted = replace(before, module=copy.deepcopy(before.module))
        self._watcher = watcher = UnconstrainedWatcher(self._ascent.loss)
        try:
            report = super().fit(items, targets, weights, seed=seed)
        finally:
            self._fitted = before
        self.unconstrained_loss = watcher.end
        self._epsilon[:] = max(SLACK * watcher.end, FLOOR * (watcher.start or 0.0))
        return report.seconds

    def _watchers(self) -> list[TrainingWatcher]:
        assert self._watcher is not None
        return [*super()._watchers(), self._watcher]

    def _after_training(self, labelled: LabelledItems, seed: int) -> None:
        if not isinstance(self._watcher, DualWatcher):
            return
        super()._after_training(labelled, seed)
        self._duals = np.full(len(self._epsilon), np.nan)
        self._duals[self._watcher.positions] = self._watcher.values.cpu().numpy()
        self._dual_head = DualHead(self._recipe)
        features = full_precision(self._labelled_features(labelled))
        self.head_report = self._dual_head.fit(
            features, self._watcher.values, labelled.weights, seed=seed
        )

    def _rows(self, batch: Batch, names: Sequence[str]) -> dict[str, Tensor]:
        if "duals" not in names:
            return super()._rows(batch, names)
        others = [name for name in names if name != "duals"]
        found = super()._rows(batch, list(dict.fromkeys([*others, "features"])))
        with torch.no_grad():
            found["duals"] = self._dual_head(full_precision(found["features"]))
        return {name: found[name] for name in names}


def _check_epsilon(epsilon: Floats) -> None:
    wrong = ~(np.isfinite(epsilon) & (epsilon >= 0))
    if wrong.any():
        value = epsilon if epsilon.ndim == 0 else epsilon[wrong][0]
        raise BadInput(f"epsilon must be finite and not negative; got {value}")
