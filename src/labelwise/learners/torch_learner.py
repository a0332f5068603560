"""Any torch module as a learner: trained with weights, and represented in one pass."""

import inspect
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import nn

from labelwise.arrays import Array, HostArray
from labelwise.errors import BadInput, UnknownName
from labelwise.learner import FitReport
from labelwise.learners import labels, saving
from labelwise.learners.estimator import EstimatorMethods
from labelwise.learners.inputs import Batch, as_items
from labelwise.learners.members.base import Members, TrainedModule
from labelwise.learners.network import find_shared_parts, get_dtype, get_linear_layer
from labelwise.learners.network_reader import FittedNetwork, NetworkReader
from labelwise.learners.preparation import (
    choose_device,
    hold_out_items,
    inspect_module,
    place_labelled_items,
    seed_torch,
)
from labelwise.learners.settings import LOSSES, Loss, Schedule, TrainingSettings
from labelwise.learners.training import LabelledItems, TrainingOutcome, TrainingWatcher, train
from labelwise.pool.blocks import Progress


class TrainingStart(NamedTuple):
    """Everything that a training starts from."""

    module: nn.Module
    head: str
    labelled: LabelledItems
    validation: LabelledItems | None
    classes: bool
    seed: int


class TorchLearner(NetworkReader, EstimatorMethods):
    """Train a fresh module at every `fit` and compute representations from it.

    Targets that are whole numbers are classes ``0 .. K-1``, with ``K`` the module's outputs; with
    the loss ``"mse"``, and with other targets, they are values of a regression.

    =====================  ==========================================================
    task                   what `represent` gives
    =====================  ==========================================================
    classification         features, logits, probabilities, gradient_norms, gradient_products,
                           gradient_sketch
    with ``members``       member_probabilities, member_votes too
    regression             features, outputs, gradient_sketch
    with ``members``       member_votes (of one output), gradient_norms, gradient_products too
    =====================  ==========================================================

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> from labelwise import TorchLearner
        >>> inputs = np.random.default_rng(0).normal(size=(60, 4))
        >>> targets = (inputs[:, 0] > 0).astype(int)
        >>> make = lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> learner = TorchLearner(make, epochs=30)
        >>> report = learner.fit(inputs[:40], targets[:40], seed=0)
        >>> rows = learner.represent(inputs[40:], ["features", "probabilities"])
        >>> rows["features"].shape, rows["probabilities"].shape
        ((20, 8), (20, 2))
    """

    def __init__(
        self,
        make_module: Callable[[], nn.Module],
        *,
        head: str | None = None,
        loss: str | Loss = "cross_entropy",
        optimizer: str | Callable[..., torch.optim.Optimizer] = "adam",
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        schedule: str | Callable[..., Schedule] | None = None,
        epochs: int = 100,
        batch_size: int = 64,
        patience: int | None = None,
        min_epochs: int = 1,
        monitor: str = "validation_loss",
        validation: float | tuple[Array, Array] = 0.0,
        stop_accuracy: float | None = None,
        stop_loss: float | None = None,
        warm_start: bool = False,
        augment: Callable[[Batch], Batch] | None = None,
        device: str | torch.device = "cpu",
        amp: bool = False,
        weighting: str = "loss",
        members: Members | None = None,
        pseudo: str = "argmax",
        represent_batch_size: int = 512,
        progress: Progress | None = None,
    ) -> None:
        """Store the options.

        Args:
            make_module: makes a new, untrained module at every call.
            head: name of the last linear layer; detected if it is unambiguous.
            loss: ``"cross_entropy"``, ``"mse"``, or ``loss(outputs, targets) -> (b,)``.
            optimizer: ``"adam"``, ``"adamw"``, ``"sgd"`` (momentum 0.9), or
                ``optimizer(parameters, lr, weight_decay)``.
            lr: learning rate.
            weight_decay: as the optimizer takes it.
            schedule: of the learning rate over all steps: None, ``"cosine"``, ``"linear"``, or
                ``schedule(optimizer, steps)``, whose ``step`` is called after every step.
            epochs: passes over the labelled items, at most.
            batch_size: items in a step; batches differ by one item at most.
            patience: stop after this many epochs without an improvement of ``monitor``.
            min_epochs: never stop, and keep no epoch as the best, before this many epochs.
            monitor: quantity that patience depends on: ``"validation_loss"``,
                ``"validation_accuracy"``, ``"training_loss"`` or ``"training_accuracy"``.
            validation: a share of the labelled items to hold out, or ``(inputs, targets)``. The
                best epoch by ``monitor`` is kept, and the report counts their labels.
            stop_accuracy: stop at this accuracy, that of the validation items with
                ``monitor="validation_accuracy"`` and of the training items otherwise.
            stop_loss: stop at this mean training loss.
            warm_start: continue from the module of the last `fit`, with a new optimizer.
            augment: changes a batch of training inputs, on the device.
            device: for training and representing; ``"auto"`` prefers a GPU.
            amp: mixed precision (bfloat16) on a GPU; features are then bfloat16.
            weighting: ``"loss"`` multiplies losses by the weights; ``"sampler"`` draws batches
                in proportion to them.
            members: where ``member_probabilities`` come from.
            pseudo: gradients are taken at the predicted class (a regression: the members' mean),
                ``"argmax"``, or at one drawn by its probability (a member's), ``"sample"``.
            represent_batch_size: items in a batch of `represent`.
            progress: called as ``progress(stage, done, total)``.
        """
        if isinstance(loss, str) and loss not in LOSSES:
            raise UnknownName(f"no loss is called {loss!r}; choose from {', '.join(LOSSES)}")
        if isinstance(validation, int | float) and not 0 <= validation < 1:
            raise BadInput(f"validation must be a share from 0 to below 1; got {validation}")
        settings = TrainingSettings(
            loss=LOSSES[loss] if isinstance(loss, str) else loss,
            optimizer=optimizer,
            lr=lr,
            weight_decay=weight_decay,
            schedule=schedule,
            epochs=epochs,
            batch_size=batch_size,
            patience=patience,
            min_epochs=min_epochs,
            monitor=monitor,
            stop_accuracy=stop_accuracy,
            stop_loss=stop_loss,
            augment=augment,
            amp=amp,
            weighting=weighting,
        )
        check_factory(make_module)
        is_held_out = isinstance(validation, tuple) or bool(validation)
        if patience is not None and monitor.startswith("validation") and not is_held_out:
            raise BadInput(
                f"patience is {patience} but nothing is held out; set validation, e.g. to 0.2, or "
                "monitor='training_loss'"
            )
        if is_held_out and monitor.startswith("training"):
            raise BadInput(f"monitor is {monitor!r}, which does not use validation; set it to 0")
        super().__init__(
            settings,
            device=choose_device(device),
            members=members,
            pseudo=pseudo,
            batch_size=represent_batch_size,
            progress=progress,
        )
        self._make_module, self._head, self._loss_name = make_module, head, loss
        self._validation, self._warm_start = validation, warm_start

    # scikit-learn's conventions.

    _arguments: dict[str, Any]

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """Remember the arguments of the constructor, which `get_params` gives."""
        self = super().__new__(cls)
        bound = inspect.signature(cls.__init__).bind_partial(self, *given, **named)
        bound.apply_defaults()
        _, *arguments = bound.arguments.items()
        self._arguments = {name: value for name, value in arguments if name != "options"}
        self._arguments |= dict(arguments).get("options", {})
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor."""
        return dict(self._arguments)

    def _change_params(self, params: dict[str, Any]) -> None:
        arguments = self._arguments | params
        type(self).__init__(self, **arguments)
        self._arguments = arguments

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the module is trained."""
        return self._fitted is not None

    @property
    def regression(self) -> bool:  # type: ignore[override]
        """Whether targets are values; of an untrained learner, whether its loss says so."""
        return self._loss_name == "mse" if self._fitted is None else not self._fitted.classes

    @property
    def classes_(self) -> HostArray:
        """The classes, ``0 .. K-1``."""
        return np.arange(self._count_network_outputs())

    def fit(
        self, inputs: Array, targets: Array, weights: Array | None = None, *, seed: int = 0
    ) -> FitReport:
        """Train from the start, or with ``warm_start`` from where the last training ended.

        Args:
            inputs: the labelled items, ``(m, ...)``, in any form of `labelwise.learners.inputs`.
            targets: ``(m,)`` classes, or ``(m,)`` or ``(m, k)`` values.
            weights: ``(m,)``, not negative; only their ratios matter. A weight of 2 counts like
                the same item twice.
            seed: decides everything random, including the initial parameters.
        """
        begin = time.perf_counter()
        with seed_torch(seed, self._device):
            start = self._prepare_training(inputs, targets, weights, seed)
            outcome = self._train_module(start)
            report = self._finish_training(start, outcome)
        return replace(report, seconds=time.perf_counter() - begin)

    def save(self, folder: str | Path) -> None:
        """Write the trained module to ``folder``, as safetensors and JSON."""
        state = self._get_fitted_network()
        tensors = {f"module.{name}": value for name, value in state.module.state_dict().items()}
        if self._members is not None:
            own = self._members.tensors()
            tensors |= {f"members.{name}": value for name, value in own.items()}
        facts = {"learner": type(self).__name__, "head": state.head, "classes": state.classes}
        saving.save_learner(folder, tensors, facts)

    def load(self, folder: str | Path) -> None:
        """Load a module saved by `save`; ``make_module`` must build the same architecture."""
        tensors, facts = saving.load_learner(folder, type(self).__name__)
        module = self._make_module().to(self._device)
        if self._members is not None:
            self._members.adapt(module, facts["head"])
        try:
            module.load_state_dict(saving.strip_tensor_prefix("module.", tensors))
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise BadInput(
                f"{folder} fits another module than make_module gives: {reason}"
            ) from error
        self._fitted = FittedNetwork(
            module.to(self._device).eval(), facts["head"], None, facts["classes"]
        )
        if self._members is not None:
            self._members.load(saving.strip_tensor_prefix("members.", tensors))

    # Extension points for subclasses.

    def _prepare_training(
        self, inputs: Array, targets: Array, weights: Array | None, seed: int
    ) -> TrainingStart:
        """The part of `fit` before the training; called within `seed_torch`."""
        items = as_items(inputs)
        values, classes = labels.convert_targets(targets, len(items), self._loss_name)
        shares = labels.convert_weights(weights, len(items))
        module = self._make_starting_module()
        one = self._get_network_with_head(module)
        head = inspect_module(one, self._head, items, values, classes, self._device)
        outputs = get_linear_layer(one, head).out_features
        if self._members is not None:
            self._members.adapt(module, head)
        whole = place_labelled_items(items, values, shares, self._device, dtype=get_dtype(one))
        labelled, validation = hold_out_items(
            whole, classes, self._validation, self._loss_name, seed, outputs=outputs
        )
        return TrainingStart(module, head, labelled, validation, classes, seed)

    def _train_module(self, start: TrainingStart) -> TrainingOutcome:
        """Train the module in place."""
        return train(
            start.module,
            start.labelled,
            self._settings,
            seed=start.seed,
            device=self._device,
            validation=start.validation,
            watchers=self._list_watchers(),
            progress=self._progress,
        )

    def _finish_training(self, start: TrainingStart, outcome: TrainingOutcome) -> FitReport:
        """The part of `fit` after the training; the report has no time yet."""
        self._fitted = FittedNetwork(
            start.module, start.head, start.labelled, start.classes, start.seed
        )
        self._after_training(start.labelled, start.seed)
        held_out = 0 if start.validation is None else len(start.validation)
        done = (outcome.loss, outcome.epochs, outcome.converged)
        return FitReport(*done, 0.0, len(start.labelled), held_out)

    def _get_network_with_head(self, module: nn.Module) -> nn.Module:
        """The network that has the head: the module itself."""
        return module

    def _list_watchers(self) -> list[TrainingWatcher]:
        """Watchers of the training."""
        return [] if self._members is None else [self._members]

    def _after_training(self, labelled: LabelledItems, seed: int) -> None:
        """Called after training with the module in place."""
        if self._members is not None:
            state = self._get_fitted_network()
            features = partial(self._compute_labelled_features, labelled)
            self._members.fitted(TrainedModule(state.module, state.head, labelled, features, seed))

    def _make_starting_module(self) -> nn.Module:
        """A fresh module, or the last one with ``warm_start``."""
        last = None if self._fitted is None else self._fitted.module
        if self._warm_start and last is not None:
            return last
        module = self._make_module()
        if not isinstance(module, nn.Module):
            raise BadInput(f"make_module must give a torch module; got {type(module).__name__}")
        if last is not None and (shared := find_shared_parts(module, last)):
            raise BadInput(
                f"make_module gave {shared} of the last training again; make a new one at every "
                "call, freeze it, or set warm_start=True"
            )
        return module.to(self._device)


def check_factory(make_module: object) -> None:
    """Reject a module, or anything else that is not a function that makes one."""
    if isinstance(make_module, nn.Module) or not callable(make_module):
        raise BadInput(
            "make_module must be a function that makes a new module at every call, such as "
            f"lambda: nn.Linear(4, 2); got {type(make_module).__name__} (labelwise.represent "
            "takes a trained module)"
        )
