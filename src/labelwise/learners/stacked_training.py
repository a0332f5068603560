"""Several networks of one architecture trained as one batched model.

Their parameters are stacked, ``(M, ...)`` each, and the forward pass is vmapped over the stack, so
that M small matrix products become one large one. Everything else is separate: initial parameters,
order of batches, best epoch, early stopping and, if given, items. The optimizers work elementwise,
so a step on stacked parameters is a step on each.

The result equals that of `labelwise.learners.training.train` for each network with the same seed,
up to rounding (layers that draw in training, such as dropout, draw other numbers).

On a GPU a step of small networks is hundreds of short kernels whose launches take longer than they
run. After a few ordinary steps one is captured as a CUDA graph, which reads the items' positions
from a fixed tensor; later steps of the same batch size copy theirs there and replay it. If
capturing fails, all steps run in the ordinary way.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import stack_module_state, vmap
from torch.nn.modules.conv import _ConvNd

from labelwise.errors import BadInput
from labelwise.learners.inputs import (
    RESIDENT_BYTES,
    Batch,
    Items,
    ItemSubset,
    TensorItems,
    prepare_batch,
    split_into_batches,
)
from labelwise.learners.members.base import ModuleWithState, ignore_vmap_warnings
from labelwise.learners.network import call_module, call_with_features, evaluation_mode, get_dtype
from labelwise.learners.settings import TrainingSettings, make_optimizer, make_schedule
from labelwise.learners.training import (
    EpochMeasure,
    LabelledItems,
    PenalizedLayer,
    StoppingRule,
    TrainingOutcome,
    TrainingWatcher,
    apply_batch_loss,
    autocast_context,
    check_accuracy_use,
    check_finite,
    draw_batches,
    mark_correct_items,
)
from labelwise.pool.blocks import Progress

Step = Callable[[NDArray[np.int64], Tensor], None]

FIRST = 3  # Ordinary steps per batch size before one is captured; they allocate what it needs
WORTH = 200  # Capturing does not pay for trainings with fewer steps


def can_capture_graph(
    optimizer: torch.optim.Optimizer,
    settings: TrainingSettings,
    device: torch.device,
    *,
    steps: int,
) -> bool:
    """Whether a step can be captured; makes the optimizer capturable if so.

    Schedules and augmentation change something outside of device tensors at every step, and mixed
    precision keeps its own copies between steps, so they exclude capturing.
    """
    fixed = settings.schedule is None and settings.augment is None and not settings.amp
    if device.type != "cuda" or not fixed or steps < WORTH:
        return False
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = True
    return True


class CudaGraphStep:
    """A training step that is captured once and replayed; called like the step itself."""

    def __init__(self, step: Step) -> None:
        """Keep the step; it is captured after it ran a few times."""
        self._step, self._failed = step, False
        self._made: Counter[torch.Size] = Counter()
        self._records: dict[torch.Size, tuple[Tensor, Any]] = {}

    def __call__(self, positions: NDArray[np.int64], places: Tensor) -> None:
        """Run the step for items at ``positions`` ``(M, b)``, on the device in ``places``."""
        size = places.shape
        if size not in self._records and self._made[size] >= FIRST and not self._failed:
            self._capture_graph(positions, places)
        if size in self._records:
            static, graph = self._records[size]
            static.copy_(places)
            graph.replay()
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*capturable.*")
            self._step(positions, places)
        self._made[size] += 1

    def _capture_graph(self, positions: NDArray[np.int64], places: Tensor) -> None:
        """Capture a step without running it."""
        static, graph = places.clone(), torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._step(positions, static)
        except RuntimeError:  # the step synchronizes with the host
            self._failed = True
            torch.cuda.synchronize(places.device)
            return
        self._records[places.shape] = static, graph


Positions = NDArray[np.int64]


class StackedSets:
    """The labelled items of ``M`` networks, ``m`` each.

    Attributes:
        each: the set of every network.
        shared: whether all networks have the same set.
        targets: ``(M, m, ...)``, on the device.
        weights: ``(M, m)``, on the device.
    """

    def __init__(
        self, sets: LabelledItems | Sequence[LabelledItems], count: int, device: torch.device
    ) -> None:
        """Combine one set for all, or one set for each of ``count`` networks."""
        self.shared = isinstance(sets, LabelledItems)
        self.each: list[LabelledItems] = (
            [sets] * count if isinstance(sets, LabelledItems) else list(sets)
        )
        sizes = sorted({len(own) for own in self.each})
        if len(self.each) != count or len(sizes) != 1:
            raise BadInput(
                f"give one set, or {count} sets of one size; got {len(self.each)} of sizes {sizes}"
            )
        self.targets = self._stack_set_parts([own.targets for own in self.each], device)
        self.weights = self._stack_set_parts([own.weights for own in self.each], device)
        self._device = device
        self._networks = torch.arange(count, device=device)[:, None]
        self._pool, self._where = _find_stacked_source([own.items for own in self.each])
        self._places = None if self._where is None else torch.from_numpy(self._where).to(device)
        self._rows = (
            _stack_network_items([own.items for own in self.each]) if self._pool is None else None
        )

    def __len__(self) -> int:
        return len(self.each[0])

    @property
    def is_on_device(self) -> bool:
        """Whether a batch is one lookup on the device."""
        rows = self._pool.rows if isinstance(self._pool, TensorItems) else self._rows
        return rows is not None and rows.device == self.targets.device

    def gather_values(self, values: Tensor, places: Tensor) -> Tensor:
        """Entries of `targets` or `weights` for the items at ``places`` ``(M, b)``."""
        return values[self._networks, places]

    def batch(self, positions: Positions, places: Tensor, dtype: torch.dtype) -> Batch:
        """The items at ``positions`` ``(M, b)``; ``places`` are the same numbers on the device."""
        rows = self._pool.rows if isinstance(self._pool, TensorItems) else None
        if rows is not None and rows.device == places.device:
            inside = places if self._places is None else self.gather_values(self._places, places)
            return prepare_batch(rows[inside], self._device, dtype)
        if self._pool is not None:
            where = self._where
            wanted = positions if where is None else np.take_along_axis(where, positions, axis=1)
            flat = prepare_batch(self._pool.batch(wanted.ravel()), self._device, dtype)
            return map_batch_tensors(
                lambda part: part.reshape(*positions.shape, *part.shape[1:]), flat
            )
        if self._rows is not None and self._rows.device == places.device:
            return prepare_batch(self.gather_values(self._rows, places), self._device, dtype)
        return stack_batches(self.batches(positions, dtype))

    def batches(self, positions: Positions, dtype: torch.dtype) -> list[Batch]:
        """The same, as one batch per network."""
        pairs = zip(self.each, positions, strict=True)
        return [prepare_batch(own.items.batch(row), self._device, dtype) for own, row in pairs]

    def _stack_set_parts(self, parts: list[Tensor], device: torch.device) -> Tensor:
        if self.shared:
            return parts[0].to(device).expand(len(parts), *parts[0].shape)
        return torch.stack([part.to(device) for part in parts])


def _find_stacked_source(items: list[Items]) -> tuple[Items | None, Positions | None]:
    """The common source of all items, and positions in it, ``(M, m)``; None for all of it."""
    first = items[0]
    if all(_is_same_item_source(own, first) for own in items):
        if not isinstance(first, ItemSubset):
            return first, None
        return first.items, np.tile(first.positions, (len(items), 1))
    parts = [own for own in items if isinstance(own, ItemSubset)]
    if len(parts) < len(items) or not all(
        _is_same_item_source(own.items, parts[0].items) for own in parts
    ):
        return None, None
    return parts[0].items, np.stack([own.positions for own in parts])


def _stack_network_items(items: list[Items]) -> Tensor | None:
    """Items of different sources as one tensor ``(M, m, ...)``, if they are small tensors."""
    tensors = [own.items if isinstance(own, ItemSubset) else own for own in items]
    rows = [tensor.rows for tensor in tensors if isinstance(tensor, TensorItems)]
    alike = {(part.shape[1:], part.dtype, part.device) for part in rows}
    if len(rows) < len(items) or len(alike) > 1:
        return None
    every = np.arange(len(items[0]))
    if len(items) * len(every) * rows[0][:1].nbytes > RESIDENT_BYTES:
        return None
    return torch.stack([own.batch(every) for own in items])


def _is_same_item_source(one: Items, other: Items) -> bool:
    """Whether two refer to the same items."""
    if isinstance(one, TensorItems) and isinstance(other, TensorItems):
        return one.rows is other.rows
    return one is other


def stack_batches(batches: Sequence[Batch]) -> Batch:
    """Stack batches of the same form, ``(M, b, ...)``."""
    return map_batch_tensors(lambda *parts: torch.stack(parts), *batches)


def map_batch_tensors(function: Callable[..., Tensor], first: Batch, *others: Any) -> Batch:
    """Tree map: apply a function to corresponding tensors of batches."""
    if isinstance(first, Tensor):
        return function(first, *others)
    if isinstance(first, Mapping):
        return {
            name: map_batch_tensors(function, value, *(other[name] for other in others))
            for name, value in first.items()
        }
    return tuple(map_batch_tensors(function, *parts) for parts in zip(first, *others, strict=True))


ELEMENTWISE_OPTIMIZERS = {
    getattr(torch.optim, name)
    for name in "SGD Adam AdamW NAdam RAdam RMSprop Adagrad Adadelta Adamax".split()
}
"""Optimizers whose step on a number depends only on that number and its gradients."""


class NetworkStack:
    """Modules of one architecture with their parameters and buffers stacked, ``(M, ...)`` each."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        """Copy the states of the modules; the layers of the first one are used for all."""
        self.modules, self.base = list(modules), modules[0]
        parameters, self.buffers = stack_module_state(self.modules)
        self.parameters = nn.ParameterList(
            nn.Parameter(value.detach(), requires_grad=value.requires_grad)
            for value in parameters.values()
        )
        self._names = list(parameters)

    def __len__(self) -> int:
        return len(self.modules)

    @property
    def state(self) -> dict[str, Tensor]:
        """Parameters and buffers by name."""
        return {**dict(zip(self._names, self.parameters, strict=True)), **self.buffers}

    def outputs(self, batch: Batch, *, shared: bool = False) -> Tensor:
        """``(M, b, K)`` for separate batches ``(M, b, ...)`` or a shared one ``(b, ...)``."""
        return self._vmap_networks(call_module, batch, None if shared else 0)  # type: ignore[no-any-return]

    def outputs_and_features(self, head: str, batch: Batch) -> tuple[Tensor, Tensor]:
        """``(M, b, K)`` and ``(M, b, d)`` for a shared batch."""

        def call_with_head(module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
            return call_with_features(module, f"base.{head}", batch)

        outputs, features = self._vmap_networks(call_with_head, batch, None)
        return outputs, features

    def write_states(
        self, states: Mapping[str, Tensor], numbers: Sequence[int] | None = None
    ) -> None:
        """Copy stacked states to all modules or to those with these numbers."""
        with torch.no_grad():
            for number in range(len(self)) if numbers is None else numbers:
                module = self.modules[number]
                for name, value in [*module.named_parameters(), *module.named_buffers()]:
                    value.copy_(states[name][number])

    def _vmap_networks(
        self, function: Callable[[nn.Module, Batch], Any], batch: Batch, axis: int | None
    ) -> Any:
        def call_network(state: dict[str, Tensor], batch: Batch) -> Any:
            return function(ModuleWithState(self.base, state), batch)

        return vmap(call_network, in_dims=(0, axis), randomness="different")(self.state, batch)


def can_stack(
    modules: Sequence[nn.Module],
    labelled: LabelledItems | Sequence[LabelledItems],
    settings: TrainingSettings,
    device: torch.device,
) -> bool:
    """Whether the modules can be trained together, tested by a forward and a backward pass.

    Excluded are layers with a penalty, optimizers that are not elementwise, anything that vmap does
    not support (data-dependent control flow, different shapes), and convolutions on a CPU, which
    batch into grouped convolutions that are slower than separate ones.
    """
    layers = list(modules[0].modules())
    if any(isinstance(layer, PenalizedLayer) for layer in layers):
        return False
    if device.type == "cpu" and any(isinstance(layer, _ConvNd) for layer in layers):
        return False
    if type(make_optimizer(modules[0], settings)) not in ELEMENTWISE_OPTIMIZERS:
        return False
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus), ignore_vmap_warnings():
        for module in modules:
            module.train()
        try:
            steps = _StackedSteps(NetworkStack(modules), labelled, settings, device)
            size = min(len(steps.sets), settings.batch_size)
            losses, _ = steps.compute_losses(np.tile(np.arange(size), (len(modules), 1)))
            losses.sum().backward()  # type: ignore[no-untyped-call]
        except Exception:  # vmap failed; other errors recur in training
            return False
    return True


def train_together(
    modules: Sequence[nn.Module],
    labelled: LabelledItems | Sequence[LabelledItems],
    settings: TrainingSettings,
    *,
    seeds: Sequence[int],
    device: torch.device,
    validation: LabelledItems | Sequence[LabelledItems] | None = None,
    watchers: Mapping[int, TrainingWatcher] | None = None,
    progress: Progress | None = None,
) -> list[TrainingOutcome]:
    """Train modules in place, each as `train` would with its seed.

    Modules of one architecture have one set for all, or one each of the same size, and the same for
    ``validation``. Watchers, by module number, are called at the beginning and after every epoch,
    but not after single steps, and without access to losses.
    """
    for module in modules:
        module.train()
    steps = _StackedSteps(NetworkStack(modules), labelled, settings, device)
    sets = steps.sets
    check_accuracy_use(settings, sets.targets)
    held = None if validation is None else StackedSets(validation, len(modules), device)
    rngs = [np.random.default_rng([seed, 1]) for seed in seeds]
    stopping = _StoppingState(steps.stack, settings)
    watching = watchers or {}
    for number, watcher in watching.items():
        watcher.begin(sets.each[number])
    for epoch in range(1, settings.epochs + 1):
        pairs = zip(sets.each, rngs, strict=True)
        plans = [draw_batches(own.weights, settings, rng) for own, rng in pairs]
        measured = steps.epoch(plans)
        losses = [None] * len(modules) if held is None else steps.measure_validation(held)
        for number in stopping.running:
            which = f"of network {number} in epoch {epoch}"
            check_finite(measured[number].loss, f"the loss {which}", sets.each[number], settings)
            if held is not None and (own := losses[number]) is not None:
                check_finite(own.loss, f"the validation loss {which}", held.each[number], settings)
        # Watchers see ordinary modules, with the parameters of this epoch.
        steps.stack.write_states(steps.stack.state, list(watching))
        for number, watcher in watching.items():
            watcher.epoch_done(modules[number], epoch, settings.epochs, _reject_stacked_losses)
        if progress is not None:
            progress("training", epoch, settings.epochs)
        stopping.update(epoch, measured, losses)
        if not stopping.running:
            break
    return stopping.restore_best_epochs()


class _StackedSteps:
    """Optimizer steps for all networks of a stack at once."""

    def __init__(
        self,
        stack: NetworkStack,
        labelled: LabelledItems | Sequence[LabelledItems],
        settings: TrainingSettings,
        device: torch.device,
    ) -> None:
        self.stack, self._settings = stack, settings
        self.sets = StackedSets(labelled, len(stack), device)
        self._device, self._dtype = device, get_dtype(stack.base)
        self._optimizer = make_optimizer(stack.parameters, settings)
        count = settings.epochs * -(-len(self.sets) // settings.batch_size)
        self._schedule = make_schedule(self._optimizer, settings, count)
        uneven = settings.weighting == "loss" and bool((self.sets.weights != 1).any())
        self._weights = self.sets.weights if uneven else None
        self._total = torch.zeros(len(stack), device=device)
        self._right = torch.zeros(len(stack), device=device)
        self._recorded: CudaGraphStep | None = None
        if self.sets.is_on_device and can_capture_graph(
            self._optimizer, settings, device, steps=count
        ):
            self._recorded = CudaGraphStep(self._make_stacked_step)

    def epoch(self, plans: Sequence[Sequence[Positions]]) -> list[EpochMeasure]:
        """Make a step on each batch of every network; return their mean losses and accuracies."""
        self.stack.base.train()
        self._total.zero_()
        self._right.zero_()
        # Batches have the same sizes in all networks, and other items.
        orders = np.stack([np.concatenate(plan) for plan in plans])
        cuts = np.cumsum([0, *(len(part) for part in plans[0])]).tolist()
        places = torch.from_numpy(orders).to(
            self._device
        )  # once per epoch: every copy synchronizes
        for begin, end in pairwise(cuts):
            make = self._make_stacked_step if self._recorded is None else self._recorded
            make(orders[:, begin:end], places[:, begin:end])
            if self._schedule is not None:
                self._schedule.step()
        count = len(self.sets)
        pairs = torch.stack([self._total / count, self._right / count], dim=1).tolist()
        return [EpochMeasure(*pair) for pair in pairs]

    def _make_stacked_step(self, positions: NDArray[np.int64], places: Tensor) -> None:
        """Make one step and add its losses to those of the epoch."""
        losses, hits = self.compute_losses(positions, places)
        self._optimizer.zero_grad(set_to_none=True)
        losses.mean(dim=1).sum().backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._total += losses.detach().sum(dim=1)
        self._right += hits

    def compute_losses(
        self, positions: NDArray[np.int64], places: Tensor | None = None
    ) -> tuple[Tensor, Tensor | float]:
        """Weighted losses ``(M, b)`` of items, and hits ``(M,)`` if stopping depends on them."""
        if places is None:
            places = torch.from_numpy(positions).to(self._device)
        targets = self.sets.gather_values(self.sets.targets, places).flatten(0, 1)
        batch = self._gather_stacked_batch(positions, places)
        with autocast_context(self._device, self._settings.amp):
            outputs = self.stack.outputs(batch).flatten(0, 1)
            losses = apply_batch_loss(self._settings.loss, outputs, targets).reshape(places.shape)
        if self._weights is not None:
            losses = losses * self.sets.gather_values(self._weights, places)
        if not self._settings.needs_accuracy:
            return losses, 0.0
        return losses, mark_correct_items(outputs, targets).reshape(places.shape).sum(dim=1)

    def measure_validation(self, held: StackedSets) -> list[EpochMeasure | None]:
        """Every network's weighted mean loss and accuracy on some items, in eval mode."""
        functions = [self._settings.loss]
        functions += [mark_correct_items] if self._settings.needs_accuracy else []
        total = torch.zeros(len(self.stack), len(functions), device=self._device)
        with evaluation_mode(self.stack.base), torch.no_grad():
            for part in split_into_batches(np.arange(len(held)), 512):
                positions = np.tile(part, (len(self.stack), 1))
                places = torch.from_numpy(positions).to(self._device)
                outputs = self._compute_stacked_outputs(held, positions, places)
                targets = held.gather_values(held.targets, places)
                weights = held.gather_values(held.weights, places)
                for column, function in enumerate(functions):
                    pairs = zip(outputs, targets, strict=True)
                    losses = torch.stack([function(*pair) for pair in pairs])
                    total[:, column] += (losses * weights).sum(dim=1)
        return [EpochMeasure(*row) for row in (total / len(held)).tolist()]

    def _compute_stacked_outputs(
        self, held: StackedSets, positions: NDArray[np.int64], places: Tensor
    ) -> Tensor:
        """``(M, b, K)``; a shared set is passed once."""
        if not held.shared:
            return self.stack.outputs(held.batch(positions, places, self._dtype))
        batch = prepare_batch(held.each[0].items.batch(positions[0]), self._device, self._dtype)
        return self.stack.outputs(batch, shared=True)

    def _gather_stacked_batch(self, positions: NDArray[np.int64], places: Tensor) -> Batch:
        """The networks' batches, ``(M, b, ...)``."""
        augment = self._settings.augment
        if augment is None:
            return self.sets.batch(positions, places, self._dtype)
        return stack_batches([augment(own) for own in self.sets.batches(positions, self._dtype)])


class _StoppingState:
    """The networks that are still training, and the state of each to restore at the end."""

    def __init__(self, stack: NetworkStack, settings: TrainingSettings) -> None:
        self._stack, count = stack, len(stack)
        self.running = list(range(count))
        self._rules = [StoppingRule(settings) for _ in self.running]
        self._outcomes: list[TrainingOutcome] = [TrainingOutcome(math.nan, 0, False)] * count
        self._kept: dict[str, Tensor] | None = None
        self._safe: set[int] = set()  # networks whose state is kept

    def update(
        self, epoch: int, training: list[EpochMeasure], validation: Sequence[EpochMeasure | None]
    ) -> None:
        """Record the end of an epoch."""
        better, ended = [], []
        for number in self.running:
            held = validation[number]
            improved, done = self._rules[number].update(epoch, training[number], held)
            if improved and held is not None:
                better.append(number)
            self._outcomes[number] = TrainingOutcome(training[number].loss, epoch, done)
            if done:
                ended.append(number)
        self._keep_network_states(better)
        self._keep_network_states([number for number in ended if number not in self._safe])
        self.running = [number for number in self.running if number not in ended]

    def restore_best_epochs(self) -> list[TrainingOutcome]:
        """Write the kept states to the modules."""
        self._keep_network_states([number for number in self.running if number not in self._safe])
        assert self._kept is not None
        self._stack.write_states(self._kept)
        for module in self._stack.modules:
            module.eval()
        return self._outcomes

    def _keep_network_states(self, numbers: list[int]) -> None:
        """Keep the current states of some networks."""
        if not numbers:
            return
        state = {name: value.detach() for name, value in self._stack.state.items()}
        if self._kept is None:
            self._kept = {name: value.clone() for name, value in state.items()}
        for name, value in state.items():
            self._kept[name][numbers] = value[numbers]
        self._safe.update(numbers)


def _reject_stacked_losses(*_: object) -> Tensor:
    raise BadInput("losses of items are not available while networks are trained together")
