r"""A skorch net as a learner: trained by skorch with weights, represented as any torch module.

skorch trains: its callbacks, splits, schedules and early stopping work as usual. Only the loss is
another one: the criterion is asked for one loss per item, and a step goes down

.. math:: \frac{1}{b} \sum_i w_i \, \ell(f_\theta(x_i), y_i) ,

with weights of mean 1, so that an item of weight 2 counts like the same item twice. The weights
travel with the inputs, through splits and shuffled loaders, and are taken off before the module
is called.

Reference: M. Tietz, T. J. Fan, D. Nouri, B. Bossan and others, "skorch: A scikit-learn compatible
neural network library that wraps PyTorch", 2017.
"""

import copy
import importlib
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

from labelwise.errors import BadInput, MissingDependency
from labelwise.learner import FitReport
from labelwise.learners import labels
from labelwise.learners.inputs import Items, ItemSubset, as_items, prepare_batch
from labelwise.learners.network import get_dtype
from labelwise.learners.network_reader import FittedNetwork
from labelwise.learners.preparation import inspect_module, place_labelled, seed_torch
from labelwise.learners.settings import Loss, squared_error
from labelwise.learners.torch_learner import TorchLearner
from labelwise.learners.training import LabelledItems, check_finite
from labelwise.pool.blocks import Progress

INPUTS, WEIGHT = "labelwise inputs", "labelwise weight"


class SkorchLearner(TorchLearner):
    """Train a copy of a skorch net at every `fit`, and read representations off its module.

    A module whose criterion is ``NLLLoss`` gives probabilities, as skorch wants it; its logits are
    their logarithms. Any other classifier's module gives logits.

    Example:
        >>> import numpy as np
        >>> from skorch import NeuralNetClassifier
        >>> from torch import nn
        >>> from labelwise.learners.skorch_learner import SkorchLearner
        >>> inputs = np.random.default_rng(0).normal(size=(60, 4))
        >>> targets = (inputs[:, 0] > 0).astype(int)
        >>> make = lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> net = NeuralNetClassifier(make, criterion=nn.CrossEntropyLoss, verbose=0)
        >>> learner = SkorchLearner(net)
        >>> report = learner.fit(inputs[:40], targets[:40], np.linspace(1, 2, 40), seed=0)
        >>> report.training_labels, report.validation_labels  # skorch holds out a fifth
        (32, 8)
        >>> learner.represent(inputs[40:], ["features"])["features"].shape
        (20, 8)
    """

    def __init__(
        self,
        net: Any,
        *,
        head: str | None = None,
        gradients: str = "network",
        pseudo: str = "argmax",
        represent_batch_size: int = 512,
        progress: Progress | None = None,
    ) -> None:
        """Remember the net.

        Args:
            net: a skorch net, of which a copy is trained, or a function that gives a new one.
            head: the name of the module's last linear layer; found where only one can be it.
            gradients: of the ``"network"`` or of the ``"head"`` alone.
            pseudo: gradients are taken at the predicted label or at one drawn: ``"argmax"`` or
                ``"sample"``.
            represent_batch_size: items in a batch of `represent`.
            progress: called as ``progress(stage, done, total)`` by `represent`.
        """
        self._skorch = _import_skorch()
        self._make_net = net if callable(net) and not hasattr(net, "get_params") else lambda: net
        first = self._fresh_net()
        super().__init__(
            self._fresh_module,
            head=head,
            loss=self._loss_of(first),
            device=first.device,
            gradients=gradients,
            pseudo=pseudo,
            represent_batch_size=represent_batch_size,
            progress=progress,
        )
        self._net: Any = None

    @property
    def net(self) -> Any:
        """The trained net."""
        if self._net is None:
            raise BadInput("the learner is not trained yet; call fit first")
        return self._net

    def fit(self, inputs: Any, targets: Any, weights: Any = None, *, seed: int) -> FitReport:
        """Train a copy of the net from the start.

        Args:
            inputs: the labelled items, ``(m, ...)``, in any form of `labelwise.learners.inputs`.
            targets: ``(m,)`` classes, or ``(m,)`` or ``(m, k)`` values.
            weights: ``(m,)``, not negative; only their ratios matter. A weight of 2 counts like
                the same item twice.
            seed: decides all that torch and NumPy draw in the training.
        """
        begin = time.perf_counter()
        items = as_items(inputs)
        values, classes = labels.convert_targets(targets, len(items), self._loss_name)
        shares = labels.convert_weights(weights, len(items))
        with seed_torch(seed, self._device), _numpy_seeded(seed):
            net = self._fresh_net().initialize()
            module, dtype = _to_scores(net), get_dtype(net.module_)
            head = inspect_module(module, self._head, items, values, classes, self._device)
            whole = place_labelled(items, values, shares, torch.device("cpu"), dtype=dtype)
            net.partial_fit(_WeightedDataset(whole, dtype), whole.targets.numpy())
        kept = _trained_on(net, whole)
        labelled = place_labelled(kept.items, kept.targets, kept.weights, self._device, dtype=dtype)
        loss, held_out = _last_epoch(net)
        settings = replace(self._settings, loss=_item_loss(net), lr=net.lr)
        check_finite(loss, f"the loss in epoch {len(net.history)}", whole, settings)
        self._net, self._settings = net, settings
        self._fitted = FittedNetwork(module.eval(), head, labelled, classes, seed)
        seconds = time.perf_counter() - begin
        ended = len(net.history) < net.max_epochs
        return FitReport(loss, len(net.history), ended, seconds, len(labelled), held_out)

    def _fresh_net(self) -> Any:
        """A copy of the net that weighs its losses, not yet trained."""
        net = self._make_net()
        if not isinstance(net, self._skorch.NeuralNet):
            raise BadInput(f"a skorch net is needed; got {type(net).__name__}")
        if isinstance(net, self._skorch.NeuralNetBinaryClassifier):
            raise BadInput(
                "NeuralNetBinaryClassifier has one output for two classes; use NeuralNetClassifier "
                "with two outputs"
            )
        kind = type(f"Weighted{type(net).__name__}", (_WeightedLoss, type(net)), {})
        params = copy.deepcopy(net.get_params(deep=False))
        return kind(**params)

    def _loss_of(self, net: Any) -> Any:
        """The kind of loss by which targets are classes or values; else they decide themselves."""
        if isinstance(net, self._skorch.NeuralNetClassifier):
            return "cross_entropy"
        return "mse" if isinstance(net, self._skorch.NeuralNetRegressor) else squared_error

    def _fresh_module(self) -> nn.Module:
        return _to_scores(self._fresh_net().initialize())


def _import_skorch() -> Any:
    try:
        return importlib.import_module("skorch")
    except ImportError as error:
        raise MissingDependency(
            "SkorchLearner needs the package skorch; install it, as pip install skorch"
        ) from error


class _WeightedLoss:
    """What a skorch net does otherwise when its items come with weights; a base of a new class."""

    criterion_: Any

    def initialize_criterion(self) -> Any:
        """Make the criterion, and have it give one loss per item."""
        super().initialize_criterion()  # type: ignore[misc]
        criterion = copy.deepcopy(self.criterion_)
        if not hasattr(criterion, "reduction"):
            raise BadInput(
                f"the criterion {type(criterion).__name__} has no reduction and cannot be "
                "weighted; give one with reduction='none' as torch's have"
            )
        criterion.reduction = "none"
        self.criterion_ = criterion
        return self

    def get_split_datasets(self, *inputs: Any, **named: Any) -> Any:
        """Split, and remember what is trained on."""
        split = super().get_split_datasets(*inputs, **named)  # type: ignore[misc]
        self.trained_on_ = split[0]
        return split

    def infer(self, x: Any, **named: Any) -> Any:
        """Call the module without the weights."""
        return super().infer(_to_plain_inputs(x), **named)  # type: ignore[misc]

    def get_loss(self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False) -> Tensor:
        """The weighted mean; items without a weight count 1."""
        losses = super().get_loss(  # type: ignore[misc]
            y_pred, y_true, X=_to_plain_inputs(X), training=training
        )
        mean = _per_item(losses, len(y_true))
        if isinstance(X, Mapping) and WEIGHT in X:
            mean = mean * X[WEIGHT].to(device=mean.device, dtype=mean.dtype)
        return mean.mean()


def _to_plain_inputs(inputs: Any) -> Any:
    """Inputs without the weights that travel with them."""
    return inputs[INPUTS] if isinstance(inputs, Mapping) and WEIGHT in inputs else inputs


def _per_item(losses: Tensor, count: int) -> Tensor:
    """Losses ``(b, ...)`` averaged over all but the items."""
    if losses.ndim == 0 or len(losses) != count:
        raise BadInput(
            f"the criterion must give one loss per item, ({count}, ...); got {tuple(losses.shape)}"
        )
    return losses.reshape(count, -1).mean(dim=1)


class _WeightedDataset(Dataset[Any]):
    """Labelled items one by one, as skorch reads them: inputs with their weight, and the target."""

    def __init__(self, labelled: LabelledItems, dtype: torch.dtype) -> None:
        self._items, self._dtype = labelled.items, dtype
        self._targets, self._weights = labelled.targets, labelled.weights

    def __len__(self) -> int:
        return len(self._targets)

    def __getitem__(self, position: int) -> tuple[dict[str, Any], Tensor]:
        batch = prepare_batch(
            self._items.batch(np.array([position])), torch.device("cpu"), self._dtype
        )
        return {INPUTS: _single_input(batch), WEIGHT: self._weights[position]}, self._targets[
            position
        ]


def _single_input(batch: Any) -> Any:
    """The item of a batch of one."""
    if isinstance(batch, Tensor):
        return batch[0]
    if isinstance(batch, Mapping):
        return {name: _single_input(value) for name, value in batch.items()}
    raise BadInput(f"a skorch net takes a tensor or a mapping; got {len(batch)} inputs an item")


class _LogProbabilities(nn.Module):
    """A module that gives probabilities, in logarithms."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        answer = self.base(*inputs, **named)
        probabilities: Tensor = answer[0] if isinstance(answer, tuple) else answer
        return probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()


def _to_scores(net: Any) -> nn.Module:
    """The net's module, which gives logits or values."""
    module: nn.Module = net.module_
    return _LogProbabilities(module) if isinstance(net.criterion_, nn.NLLLoss) else module


def _item_loss(net: Any) -> Loss:
    """The net's criterion as a loss of logits or values, one per item."""
    criterion = net.criterion_
    if isinstance(criterion, nn.NLLLoss):
        return lambda outputs, targets: criterion(outputs.log_softmax(dim=1), targets)
    return lambda outputs, targets: _per_item(criterion(outputs, targets), len(outputs))


def _trained_on(net: Any, whole: LabelledItems) -> LabelledItems:
    """The labelled items without those that the net held out."""
    kept = net.trained_on_
    if not isinstance(kept, Subset) or not isinstance(kept.dataset, _WeightedDataset):
        return whole
    positions = np.sort(np.asarray(kept.indices, dtype=np.int64))
    items: Items = ItemSubset(whole.items, positions)
    return LabelledItems(items, whole.targets[positions], whole.weights[positions])


def _last_epoch(net: Any) -> tuple[float, int]:
    """The training loss of the last epoch, and how many items its validation took."""
    if not len(net.history):
        return math.nan, 0
    batches = net.history[-1]["batches"]
    sizes = [batch.get("train_batch_size", 0) for batch in batches]
    losses = [batch.get("train_loss", 0.0) for batch in batches]
    held_out = sum(batch.get("valid_batch_size", 0) for batch in batches)
    return float(np.average(losses, weights=sizes)), held_out


@contextmanager
def _numpy_seeded(seed: int) -> Iterator[None]:
    """NumPy's global generator, which splits may draw from, from the seed; as before afterwards."""
    before = np.random.get_state()
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        np.random.set_state(before)
