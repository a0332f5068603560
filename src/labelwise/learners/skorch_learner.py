r"""A skorch net as a learner: trained by skorch with weights, represented like a torch module.

Callbacks, splits, schedules and early stopping of skorch work as usual. Only the loss differs: the
criterion gives one loss per item, and a step minimises

.. math:: \frac{1}{b} \sum_i w_i \, \ell(f_\theta(x_i), y_i) ,

with weights of mean 1, so that an item of weight 2 counts like the same item twice. The weights are
passed along with the inputs through splits and loaders, and removed before the module is called.

Reference: M. Tietz, T. J. Fan, D. Nouri, B. Bossan and others, "skorch: A scikit-learn compatible
neural network library that wraps PyTorch", 2017.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

from labelwise.arrays import Array
from labelwise.errors import BadInput, require_extra
from labelwise.learner import FitReport
from labelwise.learners import labels
from labelwise.learners.inputs import Batch, Items, ItemSubset, as_items, prepare_batch
from labelwise.learners.network import get_dtype
from labelwise.learners.network_reader import FittedNetwork
from labelwise.learners.preparation import inspect_module, place_labelled_items, seed_torch
from labelwise.learners.settings import Loss, squared_error
from labelwise.learners.torch_learner import TorchLearner
from labelwise.learners.training import LabelledItems, check_finite
from labelwise.pool.blocks import Progress

if TYPE_CHECKING:
    from skorch import NeuralNet

INPUTS, WEIGHT = "labelwise inputs", "labelwise weight"


class SkorchLearner(TorchLearner):
    """Train a copy of a skorch net at every `fit` and compute representations from its module.

    With the criterion ``NLLLoss`` the module gives probabilities, as skorch requires, and logits
    are their logarithms. With other criteria a classifier's module gives logits.

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
        net: "NeuralNet | Callable[[], NeuralNet]",
        *,
        head: str | None = None,
        pseudo: str = "argmax",
        represent_batch_size: int = 512,
        progress: Progress | None = None,
    ) -> None:
        """Store the net, of which a copy is trained, or a function that makes a new one.

        The other arguments are those of `TorchLearner`.
        """
        with require_extra("SkorchLearner needs the package skorch", "skorch"):
            import skorch
        self._skorch = skorch
        self._make_net = net if callable(net) and not hasattr(net, "get_params") else lambda: net
        first = self._make_weighted_net()
        super().__init__(
            lambda: _wrap_skorch_module(self._make_weighted_net().initialize()),
            head=head,
            loss=self._choose_skorch_loss(first),
            device=first.device,
            pseudo=pseudo,
            represent_batch_size=represent_batch_size,
            progress=progress,
        )
        self._net: NeuralNet | None = None

    @property
    def net(self) -> "NeuralNet":
        """The trained net."""
        if self._net is None:
            raise BadInput("the learner is not trained yet; call fit first")
        return self._net

    def fit(
        self, inputs: Array, targets: Array, weights: Array | None = None, *, seed: int = 0
    ) -> FitReport:
        """Train a copy of the net from the start; the arguments are those of `TorchLearner.fit`."""
        begin = time.perf_counter()
        items = as_items(inputs)
        values, classes = labels.convert_targets(targets, len(items), self._loss_name)
        shares = labels.convert_weights(weights, len(items))
        with seed_torch(seed, self._device), _seed_numpy(seed):
            net = self._make_weighted_net().initialize()
            module, dtype = _wrap_skorch_module(net), get_dtype(net.module_)
            head = inspect_module(module, self._head, items, values, classes, self._device)
            whole = place_labelled_items(items, values, shares, torch.device("cpu"), dtype=dtype)
            net.partial_fit(_WeightedDataset(whole, dtype), whole.targets.numpy())
        kept = _select_skorch_training_items(net, whole)
        labelled = place_labelled_items(
            kept.items, kept.targets, kept.weights, self._device, dtype=dtype
        )
        loss, held_out = _read_last_skorch_epoch(net)
        settings = replace(self._settings, loss=_make_skorch_item_loss(net), lr=net.lr)
        check_finite(loss, f"the loss in epoch {len(net.history)}", whole, settings)
        self._net, self._settings = net, settings
        self._fitted = FittedNetwork(module.eval(), head, labelled, classes, seed)
        seconds = time.perf_counter() - begin
        ended = len(net.history) < net.max_epochs
        return FitReport(loss, len(net.history), ended, seconds, len(labelled), held_out)

    def _make_weighted_net(self) -> "NeuralNet":
        """An untrained copy of the net with weighted losses."""
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

    def _choose_skorch_loss(self, net: "NeuralNet") -> str | Loss:
        """The kind of loss, which decides whether targets are classes or values."""
        if isinstance(net, self._skorch.NeuralNetClassifier):
            return "cross_entropy"
        return "mse" if isinstance(net, self._skorch.NeuralNetRegressor) else squared_error


class _WeightedLoss:
    """Mixin of a skorch net for items with weights."""

    criterion_: Any

    def initialize_criterion(self) -> Any:
        """Make a criterion that gives one loss per item."""
        super().initialize_criterion()  # type: ignore[misc]
        criterion = copy.deepcopy(self.criterion_)
        if not hasattr(criterion, "reduction"):
            raise BadInput(
                f"the criterion {type(criterion).__name__} has no reduction and cannot be "
                "weighted; give one with reduction='none' like those of torch"
            )
        criterion.reduction = "none"
        self.criterion_ = criterion
        return self

    def get_split_datasets(self, *inputs: Any, **named: Any) -> Any:
        """Split, and store the training part."""
        split = super().get_split_datasets(*inputs, **named)  # type: ignore[misc]
        self.trained_on_ = split[0]
        return split

    def infer(self, x: Batch, **named: Batch) -> Batch:
        """Call the module without the weights."""
        return super().infer(_drop_skorch_weights(x), **named)  # type: ignore[misc]

    def get_loss(
        self, y_pred: Batch, y_true: Tensor, X: Batch = None, training: bool = False
    ) -> Tensor:
        """The weighted mean; items without a weight count 1."""
        losses = super().get_loss(  # type: ignore[misc]
            y_pred, y_true, X=_drop_skorch_weights(X), training=training
        )
        mean = _average_item_losses(losses, len(y_true))
        if isinstance(X, Mapping) and WEIGHT in X:
            mean = mean * X[WEIGHT].to(device=mean.device, dtype=mean.dtype)
        return mean.mean()


def _drop_skorch_weights(inputs: Batch) -> Batch:
    """Inputs without their weights."""
    return inputs[INPUTS] if isinstance(inputs, Mapping) and WEIGHT in inputs else inputs


def _average_item_losses(losses: Tensor, count: int) -> Tensor:
    """Losses ``(b, ...)`` averaged over all but the items."""
    if losses.ndim == 0 or len(losses) != count:
        raise BadInput(
            f"the criterion must give one loss per item, ({count}, ...); got {tuple(losses.shape)}"
        )
    return losses.reshape(count, -1).mean(dim=1)


class _WeightedDataset(Dataset[tuple[dict[str, Batch], Tensor]]):
    """Labelled items one by one, as skorch reads them: inputs with their weight, and the target."""

    def __init__(self, labelled: LabelledItems, dtype: torch.dtype) -> None:
        self._items, self._dtype = labelled.items, dtype
        self._targets, self._weights = labelled.targets, labelled.weights

    def __len__(self) -> int:
        return len(self._targets)

    def __getitem__(self, position: int) -> tuple[dict[str, Batch], Tensor]:
        batch = prepare_batch(
            self._items.batch(np.array([position])), torch.device("cpu"), self._dtype
        )
        return {INPUTS: _take_single_item(batch), WEIGHT: self._weights[position]}, self._targets[
            position
        ]


def _take_single_item(batch: Batch) -> Batch:
    """The item of a batch of one."""
    if isinstance(batch, Tensor):
        return batch[0]
    if isinstance(batch, Mapping):
        return {name: _take_single_item(value) for name, value in batch.items()}
    raise BadInput(f"a skorch net takes a tensor or a mapping; got {len(batch)} inputs an item")


class _LogProbabilities(nn.Module):
    """The logarithms of the probabilities that a module gives."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(self, *inputs: Batch, **named: Batch) -> Tensor:
        answer = self.base(*inputs, **named)
        probabilities: Tensor = answer[0] if isinstance(answer, tuple) else answer
        return probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()


def _wrap_skorch_module(net: "NeuralNet") -> nn.Module:
    """The module of the net, giving logits or values."""
    module: nn.Module = net.module_
    return _LogProbabilities(module) if isinstance(net.criterion_, nn.NLLLoss) else module


def _make_skorch_item_loss(net: "NeuralNet") -> Loss:
    """The net's criterion as a loss of logits or values, one per item."""
    criterion = net.criterion_
    if isinstance(criterion, nn.NLLLoss):
        return lambda outputs, targets: criterion(outputs.log_softmax(dim=1), targets)
    return lambda outputs, targets: _average_item_losses(criterion(outputs, targets), len(outputs))


def _select_skorch_training_items(net: "NeuralNet", whole: LabelledItems) -> LabelledItems:
    """The labelled items that the net did not hold out."""
    kept = net.trained_on_
    if not isinstance(kept, Subset) or not isinstance(kept.dataset, _WeightedDataset):
        return whole
    positions = np.sort(np.asarray(kept.indices, dtype=np.int64))
    items: Items = ItemSubset(whole.items, positions)
    return LabelledItems(items, whole.targets[positions], whole.weights[positions])


def _read_last_skorch_epoch(net: "NeuralNet") -> tuple[float, int]:
    """The training loss of the last epoch, and the number of validation items."""
    if not len(net.history):
        return math.nan, 0
    batches = net.history[-1]["batches"]
    sizes = [batch.get("train_batch_size", 0) for batch in batches]
    losses = [batch.get("train_loss", 0.0) for batch in batches]
    held_out = sum(batch.get("valid_batch_size", 0) for batch in batches)
    return float(np.average(losses, weights=sizes)), held_out


@contextmanager
def _seed_numpy(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator, which splits may use; restore it afterwards."""
    before = np.random.get_state()
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        np.random.set_state(before)
