r"""Training under one constraint per labelled item, with its dual variables.

With losses :math:`\ell_i` and :math:`\ell'_i` (usually the same), weights :math:`w_i` of mean 1
and bounds :math:`\epsilon_i`,

.. math::
    \min_\theta \; \frac{1}{m} \sum_i w_i \, \ell_i(\theta)
    \quad \text{s.t.} \quad \ell'_i(\theta) \le \epsilon_i ,
    \qquad
    L(\theta, \lambda) = \frac{1}{m} \sum_i w_i
        \bigl[ \ell_i + \lambda_i (\ell'_i - \epsilon_i) \bigr] ,

is solved by gradient descent of :math:`L` in :math:`\theta` and ascent in :math:`\lambda`:

.. math:: \lambda_i \leftarrow \max(0, \; \lambda_i + \eta_d \, (\ell'_i - \epsilon_i)) .

The weight :math:`w_i` is in both terms of the Lagrangian but not in the ascent, so an item of
weight 2 equals the same item twice, each copy with the same :math:`\lambda_i`. The ordinary
Lagrange multiplier is :math:`w_i \lambda_i / m`, and on a convex problem
:math:`\partial P^* / \partial \epsilon_i = - w_i \lambda_i / m`.

Constraints that cannot be met let :math:`\lambda` grow without bound, and with it the steps of
plain gradient descent; dividing :math:`L` by the mean of :math:`w (1 + \lambda)` keeps them bounded
and does not move the optimum.

Cost: a training, and one number per item; ``granularity="full"`` adds a forward pass per epoch.

Reference: J. Elenter, N. NaderiAlizadeh, A. Ribeiro, "A Lagrangian Duality Approach to Active
Learning", NeurIPS 2022, Algorithm 1 and Theorem 3.2.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.arrays import Array, Floats
from labelwise.errors import BadInput, UnknownName
from labelwise.learner import FitReport
from labelwise.learners import saving
from labelwise.learners.inputs import Batch, Items, ItemSubset, as_items
from labelwise.learners.network import call_with_features
from labelwise.learners.network_reader import full_precision
from labelwise.learners.primal_dual.dual_head import PAPER, DualHead, DualHeadRecipe, DualHeadReport
from labelwise.learners.settings import LOSSES, Loss
from labelwise.learners.torch_learner import TorchLearner
from labelwise.learners.training import (
    LabelledItems,
    TrainingWatcher,
    apply_batch_loss,
    compute_losses,
)

SLACK = 1.15  # Default epsilon relative to the unconstrained loss: the middle of [1.05, 1.25]
FLOOR = 1e-3  # Smallest default epsilon relative to the loss at the start


@dataclass(frozen=True)
class DualAscent:
    """Options of the dual ascent; see `PrimalDualLearner`."""

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
    """Updates the dual variables during a training and weights the losses by them.

    ``epsilon`` ``(m,)`` bounds the losses of all labelled items, of which some are held out if
    ``split``; ``drawn`` if batches are drawn in proportion to the weights.
    """

    def __init__(self, epsilon: Floats, ascent: DualAscent, *, split: bool, drawn: bool) -> None:
        self._bounds, self._ascent, self._split, self._drawn = epsilon, ascent, split, drawn

    def begin(self, labelled: LabelledItems) -> None:
        """Set all dual variables to zero."""
        self.positions = np.arange(len(labelled))
        if self._split:
            assert isinstance(labelled.items, ItemSubset)
            self.positions = labelled.items.positions
        self._weights = labelled.weights.double()
        self._epsilon = torch.from_numpy(self._bounds[self.positions]).to(self._weights)
        self.values = torch.zeros_like(self._epsilon)
        self._epoch, self._scale = 1, 1.0

    def factors(self, positions: Tensor) -> Tensor | None:
        """``1 + lambda``, or 1 if the constraints have a separate loss; normalised."""
        own = self.values[positions] + 1
        return (own if self._ascent.loss is None else torch.ones_like(own)) / self._scale

    def extra(self, positions: Tensor, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """``lambda l'`` if the constraints have a separate loss."""
        if self._ascent.loss is None:
            return None
        losses = apply_batch_loss(self._ascent.loss, outputs, targets)
        self._before = losses.detach()
        return self.values[positions] * losses / self._scale

    def stepped(self, positions: Tensor, losses: Tensor, again: Callable[..., Tensor]) -> None:
        """Update the dual variables of the batch."""
        if self._ascent.granularity == "full":
            return
        if self._ascent.loss_for_dual == "post":
            losses = again(self._ascent.loss)
        elif self._ascent.loss is not None:
            losses = self._before
        slack = losses.double() - self._epsilon[positions]
        if self._drawn:  # an item of weight 2 is drawn twice as often
            slack = slack / self._weights[positions]
        self._update_duals(positions, slack)

    def epoch_done(
        self, module: nn.Module, epoch: int, epochs: int, losses: Callable[..., Tensor]
    ) -> None:
        """Update all dual variables."""
        if self._ascent.granularity == "full" and epoch % self._ascent.every == 0:
            slack = losses(self._ascent.loss).double() - self._epsilon
            self._update_duals(torch.arange(len(slack), device=slack.device), slack)
        self._epoch = epoch + 1

    def snapshot(self) -> Tensor:
        """The dual variables of this epoch."""
        return self.values.clone()

    def restore(self, snapshot: object) -> None:
        """Restore the dual variables of the best epoch."""
        if self._ascent.restore and isinstance(snapshot, Tensor):
            self.values = snapshot

    def _update_duals(self, positions: Tensor, slack: Tensor) -> None:
        step = self._ascent.dual_lr
        if self._ascent.diminishing:
            step /= self._epoch**0.5
        # index_add: a sampler may have drawn an item twice into the batch.
        self.values.index_add_(0, positions, step * slack)
        self.values.clamp_(min=0, max=self._ascent.cap)
        if self._ascent.normalise:
            self._scale = float((self._weights * (1 + self.values)).sum() / self._weights.sum())


class FirstLossWatcher(TrainingWatcher):
    """Records the mean loss of the first batch, before the first step."""

    def __init__(self, loss: Loss | None) -> None:
        self._loss = loss
        self.start: float | None = None

    def extra(self, positions: Tensor, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Add nothing; record a separate loss of the constraints."""
        if self._loss is not None and self.start is None:
            self.start = float(self._loss(outputs.detach(), targets).mean())
        return None

    def stepped(self, positions: Tensor, losses: Tensor, again: Callable[..., Tensor]) -> None:
        """Record the losses of the first batch."""
        if self.start is None:
            self.start = float(losses.mean())


class PrimalDualLearner(TorchLearner):
    """A `TorchLearner` that is trained under constraints and also gives ``duals``.

    After `fit`, ``duals`` holds the dual variable of every labelled item: how hard its constraint
    was to meet. A regression head on the features predicts it for other items, as the
    representation ``duals`` of the strategy ``ally``.

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
        epsilon: float | Array | None = None,
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
        """Store the options.

        Args:
            make_module: makes a new, untrained module at every call.
            epsilon: bound of the items' losses: a number, or ``(m,)``, one per labelled item. By
                default 1.15 times the mean loss of a first training without constraints (which
                doubles the time), but at least a thousandth of the loss at the start, since a
                network that fits all labels has a loss of about 0.
            dual_lr: learning rate of the dual variables.
            granularity: ``"minibatch"`` updates the dual variables of a batch after its step, as
                the authors' code; ``"full"`` those of all items after every epoch by their losses
                in eval mode, as Algorithm 1.
            loss_for_dual: loss of a minibatch: ``"pre"`` the step, in train mode, or ``"post"``,
                in eval mode.
            dual_every: epochs between updates with ``"full"``.
            constraint_loss: the bounded loss, ``"cross_entropy"``, ``"mse"`` or
                ``loss(outputs, targets) -> (b,)``; None for the loss itself.
            cap: maximum of a dual variable; limits the influence of mislabelled items.
            diminishing: divide ``dual_lr`` by the square root of the epoch.
            restore_duals: restore the dual variables of the best epoch with its parameters.
            normalise: divide the Lagrangian by the mean of ``1 + lambda``, so that weight decay
                keeps its strength as dual variables grow.
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
        self._watcher: DualWatcher | FirstLossWatcher | None = None
        self._duals, self._epsilon = np.empty(0), np.empty(0)
        self.unconstrained_loss: float | None = None
        self.head_report: DualHeadReport | None = None

    @property
    def duals(self) -> Floats:
        """``(m,)`` the dual variables of the labelled items; NaN for those held out."""
        self._get_fitted_network()
        return self._duals

    @property
    def epsilon(self) -> Floats:
        """``(m,)`` the bounds that the labelled items were trained under."""
        self._get_fitted_network()
        return self._epsilon

    def fit(
        self, inputs: Array, targets: Array, weights: Array | None = None, *, seed: int = 0
    ) -> FitReport:
        """Train under the constraints, all dual variables from zero, and fit the dual head.

        The arguments are those of `TorchLearner.fit`; weights multiply the loss and the constraint.
        """
        items = as_items(inputs)
        self._epsilon = self._compute_constraint_bounds(len(items))
        seconds = 0.0
        if self._given is None:
            seconds = self._measure_unconstrained_loss(items, targets, weights, seed)
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
        state = self._get_fitted_network()
        _, features = call_with_features(state.module, state.head, batch)
        return self._dual_head(full_precision(features))

    def offered(self) -> list[str]:
        """The representations that this learner can give after training."""
        return [*super().offered(), "duals"]

    def save(self, folder: str | Path) -> None:
        """Write the trained module and its dual head to ``folder``, as safetensors and JSON."""
        super().save(folder)
        tensors = {f"head.{name}": value for name, value in self._dual_head.tensors().items()}
        tensors |= {"duals": torch.tensor(self._duals), "epsilon": torch.tensor(self._epsilon)}
        facts = {"learner": "DualHead", "recipe": self._dual_head.describe_state()}
        saving.save_learner(Path(folder) / "dual_head", tensors, facts)

    def load(self, folder: str | Path) -> None:
        """Load a learner saved by `save`; ``make_module`` must build the same architecture."""
        super().load(folder)
        tensors, facts = saving.load_learner(Path(folder) / "dual_head", "DualHead")
        own = {
            name: value.to(self._device)
            for name, value in saving.strip_tensor_prefix("head.", tensors).items()
        }
        self._dual_head = DualHead.restore_state(own, facts["recipe"])
        self._duals, self._epsilon = tensors["duals"].numpy(), tensors["epsilon"].numpy()
        self.unconstrained_loss = self.head_report = None

    def _compute_constraint_bounds(self, count: int) -> Floats:
        """The given bounds as ``(m,)``."""
        if self._given is None or self._given.ndim == 0:
            return np.full(count, np.nan if self._given is None else float(self._given))
        if self._given.shape != (count,):
            raise BadInput(
                f"there are {count} items but epsilon of shape {self._given.shape}; give one "
                "number, or one per item"
            )
        return self._given.copy()

    def _measure_unconstrained_loss(
        self, items: Items, targets: Array, weights: Array | None, seed: int
    ) -> float:
        """Set epsilon by a training without constraints; return its seconds."""
        before = self._fitted
        if before is not None and self._warm_start:  # train a copy: `fit` continues with the module
            self._fitted = replace(before, module=copy.deepcopy(before.module))
        self._watcher = watcher = FirstLossWatcher(self._ascent.loss)
        try:
            report = super().fit(items, targets, weights, seed=seed)
            trained = self._get_fitted_network()
            assert trained.labelled is not None
            loss = self._ascent.loss or self._settings.loss
            losses = compute_losses(trained.module, trained.labelled, loss, self._device)
        finally:
            self._fitted = before
        own = trained.labelled.weights
        self.unconstrained_loss = float((losses * own).sum() / own.sum())
        self._epsilon[:] = max(SLACK * self.unconstrained_loss, FLOOR * (watcher.start or 0.0))
        return report.seconds

    def _list_watchers(self) -> list[TrainingWatcher]:
        assert self._watcher is not None
        return [*super()._list_watchers(), self._watcher]

    def _after_training(self, labelled: LabelledItems, seed: int) -> None:
        if not isinstance(self._watcher, DualWatcher):
            return
        super()._after_training(labelled, seed)
        self._duals = np.full(len(self._epsilon), np.nan)
        self._duals[self._watcher.positions] = self._watcher.values.cpu().numpy()
        self._dual_head = DualHead(self._recipe)
        features = full_precision(self._compute_labelled_features(labelled))
        self.head_report = self._dual_head.fit(
            features, self._watcher.values, labelled.weights, seed=seed
        )

    def _represent_batch(self, batch: Batch, names: Sequence[str]) -> dict[str, Tensor]:
        if "duals" not in names:
            return super()._represent_batch(batch, names)
        others = [name for name in names if name != "duals"]
        found = super()._represent_batch(batch, list(dict.fromkeys([*others, "features"])))
        with torch.no_grad():
            found["duals"] = self._dual_head(full_precision(found["features"]))
        return {name: found[name] for name in names}


def _check_epsilon(epsilon: Floats) -> None:
    wrong = ~(np.isfinite(epsilon) & (epsilon >= 0))
    if wrong.any():
        value = epsilon if epsilon.ndim == 0 else epsilon[wrong][0]
        raise BadInput(f"epsilon must be finite and not negative; got {value}")
