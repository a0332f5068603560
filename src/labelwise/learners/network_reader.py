"""Representations from a trained network, all names in one pass over the items."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.arrays import Array, HostArray
from labelwise.errors import BadInput, UnknownName
from labelwise.learner import check_names
from labelwise.learners.gradients import (
    Projections,
    gradient_norms,
    gradient_norms_and_products,
    sketch_gradients,
    summed_gradient,
)
from labelwise.learners.inputs import (
    Batch,
    Collate,
    Items,
    as_items,
    batch_length,
    iterate_batches,
    prepare_batch,
    split_into_batches,
)
from labelwise.learners.labels import convert_targets
from labelwise.learners.members import Members
from labelwise.learners.network import (
    call_with_features,
    evaluation_mode,
    find_head,
    get_dtype,
    get_linear_layer,
)
from labelwise.learners.settings import LOSSES, Loss, TrainingSettings
from labelwise.learners.training import LabelledItems, autocast_context, is_mixed_precision
from labelwise.pool.blocks import Progress

LOSS_GRADIENTS = frozenset({"gradient_norms", "gradient_products"})
"""Representations that need the gradient of every item's loss."""


def full_precision(values: Tensor) -> Tensor:
    """Half precision as float32; the rest as it is."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def derive_predictions(outputs: Tensor, several: Tensor | None, classes: bool) -> dict[str, Tensor]:
    """Representations that follow from outputs ``(b, K)`` and those of members ``(b, m, K)``."""
    outputs = full_precision(outputs)
    if not classes:
        found = {"outputs": outputs}
        if several is not None and outputs.shape[1] == 1:  # a vote is one value
            found["member_votes"] = full_precision(several)[:, :, 0]
        return found
    found = {"logits": outputs, "probabilities": outputs.softmax(dim=1)}
    if several is not None:
        found["member_probabilities"] = full_precision(several).softmax(dim=2)
        found["member_votes"] = several.argmax(dim=2)
    return found


def pseudo_labels(
    outputs: Tensor, several: Tensor | None, classes: bool, noise: Tensor | None = None
) -> Tensor:
    """The labels that gradients are taken at.

    ``several`` ``(b, m, K)`` are outputs of members, which a regression must have. Uniform
    ``noise`` ``(b,)`` draws a class by its probability, or a member's value; without it, the label
    is the predicted class, or the members' mean.
    """
    if classes:
        if noise is None:
            return outputs.argmax(dim=1)
        below = outputs.double().softmax(dim=1).cumsum(dim=1) < noise[:, None]
        return below.sum(dim=1).clamp(max=outputs.shape[1] - 1)
    assert several is not None
    values = full_precision(several)
    if noise is None:
        return values.mean(dim=1)
    items = torch.arange(len(values), device=values.device)
    return values[items, (noise * values.shape[1]).long()]


class RepresentationRows:
    """Rows of representations, in memory or in files ``folder/NAME.npy``.

    In memory they are NumPy arrays for the CPU and tensors on other devices. Files get their names
    when they are complete.
    """

    def __init__(self, count: int, folder: Path | None = None) -> None:
        self._count, self._folder = count, folder
        self._rows: dict[str, Tensor] = {}
        self._files: dict[str, np.memmap] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def write_rows(self, first: int, rows: Mapping[str, Tensor]) -> None:
        """Store rows ``first`` and following of all representations."""
        for name, values in rows.items():
            part = slice(first, first + len(values))
            if self._folder is not None:
                self._write_to_file(name, part, _convert_to_numpy(name, values))
                continue
            if name not in self._rows:
                self._rows[name] = values.new_empty((self._count, *values.shape[1:]))
            self._rows[name][part] = values

    def _write_to_file(self, name: str, part: slice, array: HostArray) -> None:
        if name not in self._files:
            shape = (self._count, *array.shape[1:])
            self._files[name] = np.lib.format.open_memmap(
                self._name_partial_file(name), mode="w+", dtype=array.dtype, shape=shape
            )
        self._files[name][part] = array

    def finish_rows(self) -> dict[str, Array]:
        """All rows by name; those of files are mapped."""
        found: dict[str, Array] = {
            name: _convert_to_numpy(name, rows) if rows.device.type == "cpu" else rows
            for name, rows in self._rows.items()
        }
        for name in list(self._files):
            self._files.pop(name).flush()
            path = self._name_partial_file(name).with_name(f"{name}.npy")
            self._name_partial_file(name).replace(path)
            found[name] = np.load(path, mmap_mode="r")
        return found

    def remove_partial_files(self) -> None:
        """Remove files that are not complete."""
        for name in list(self._files):
            del self._files[name]
            self._name_partial_file(name).unlink(missing_ok=True)

    def _name_partial_file(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / f".{name}.npy.partial"


def _convert_to_numpy(name: str, values: Tensor) -> HostArray:
    """Values as NumPy, which has no bfloat16: it becomes float16.

    The dtype must show the precision; rank tolerances would count rounding errors as directions.
    """
    host = values.detach().cpu()
    if host.dtype != torch.bfloat16:
        return np.asarray(host.numpy())
    half = host.to(torch.float16)
    if not bool(torch.isfinite(half).all()):
        raise BadInput(f"{name} are too large for float16; represent them with amp=False")
    return np.asarray(half.numpy())


@dataclass(frozen=True)
class FittedNetwork:
    """A trained module with its head, training items and task.

    ``labelled`` is None for a loaded module, which gives no products with their gradient;
    ``vector`` is the summed gradient over them, computed on first use.
    """

    module: nn.Module
    head: str
    labelled: LabelledItems | None
    classes: bool
    seed: int = 0
    vector: dict[str, Tensor] | None = None


class NetworkReader:
    """Computes representations from a trained network; subclasses set `_fitted` in `fit`."""

    def __init__(
        self,
        settings: TrainingSettings,
        *,
        device: torch.device,
        members: Members | None,
        pseudo: str,
        batch_size: int,
        progress: Progress | None,
    ) -> None:
        """Store the options, which are those of `TorchLearner`."""
        if pseudo not in ("argmax", "sample"):
            raise BadInput(f"pseudo must be argmax or sample; got {pseudo!r}")
        if batch_size < 1:
            raise BadInput(f"represent_batch_size must be 1 or more; got {batch_size}")
        self._settings, self._device = settings, device
        self._members = members
        self._samples, self._noise = pseudo == "sample", np.random.default_rng(0)
        self._batch_size, self._progress = batch_size, progress
        self._fitted: FittedNetwork | None = None
        self._projections: Projections = {}

    @property
    def module(self) -> nn.Module:
        """The trained module, in eval mode."""
        return self._get_fitted_network().module

    @property
    def head(self) -> nn.Linear:
        """The trained module's last linear layer."""
        state = self._get_fitted_network()
        return get_linear_layer(state.module, state.head)

    def predict(self, inputs: Array) -> HostArray:
        """Classes ``(n,)``, or values ``(n, k)``."""
        name = "logits" if self._get_fitted_network().classes else "outputs"
        rows = self.represent(inputs, [name])[name]
        values = rows.float().cpu().numpy() if isinstance(rows, Tensor) else rows
        return values.argmax(axis=1) if name == "logits" else np.asarray(values)

    def represent(
        self, inputs: Array, names: Sequence[str], *, folder: str | Path | None = None
    ) -> dict[str, Array]:
        """The named representations of items, in one pass over them, in eval mode.

        NumPy arrays by name; tensors where the device is a GPU; with ``folder``, where rows are
        streamed to ``NAME.npy`` for pools larger than memory, mapped files.
        """
        state = self._get_fitted_network()
        check_names(names, self.offered(), "this learner")
        items: Items = as_items(inputs)
        if not len(items):
            raise BadInput("no items to represent; give at least one")
        self._prepare_representations(names)
        kept = RepresentationRows(len(items), None if folder is None else Path(folder))
        dtype = get_dtype(state.module)
        done = 0
        with evaluation_mode(state.module), ExitStack() as stack:
            stack.callback(kept.remove_partial_files)
            for given in iterate_batches(items, self._batch_size):
                batch = prepare_batch(given, self._device, dtype)
                kept.write_rows(done, self._represent_batch(batch, names))
                done += batch_length(batch)
                if self._progress is not None:
                    self._progress("representing", done, len(items))
            return kept.finish_rows()

    def offered(self) -> list[str]:
        """The representations that this learner can give after training."""
        members, gradients = self._members is not None, ["gradient_norms", "gradient_products"]
        if self._get_fitted_network().classes:
            several = ["member_probabilities", "member_votes"] if members else []
            return ["features", "logits", "probabilities", *several, *gradients, "gradient_sketch"]
        votes = ["member_votes"] if self._count_network_outputs() == 1 else []
        several = [*votes, *gradients] if members else []
        return ["features", "outputs", *several, "gradient_sketch"]

    # Extension points for subclasses.

    def _count_network_outputs(self) -> int:
        """Number of outputs of the network."""
        return self.head.out_features

    def _prepare_representations(self, names: Sequence[str]) -> None:
        """Prepare a pass over a pool."""
        state = self._get_fitted_network()
        self._noise = np.random.default_rng([state.seed, 3])  # the same draws in every pass
        if state.labelled is None and "gradient_products" in names:
            raise BadInput(
                "gradient_products need the labelled items, and this module came without them; "
                "fit it, or give labelled=(inputs, targets) to labelwise.represent"
            )
        if not LOSS_GRADIENTS & set(names) or state.labelled is None or state.vector is not None:
            return
        with evaluation_mode(state.module):
            batches = self._iterate_batches(state.labelled)
            vector = summed_gradient(state.module, batches, self._settings.loss)
        self._fitted = replace(state, vector=vector)

    def _represent_batch(self, batch: Batch, names: Sequence[str]) -> dict[str, Tensor]:
        """The named representations of a batch."""
        state = self._get_fitted_network()
        with torch.no_grad(), autocast_context(self._device, self._settings.amp):
            outputs, features = call_with_features(state.module, state.head, batch)
            several = self._member_outputs(batch, features, names)
        if is_mixed_precision(self._device, self._settings.amp):
            features = features.bfloat16()  # mixed precision: more digits would be noise
        found = {"features": features, **derive_predictions(outputs, several, state.classes)}
        if "gradient_sketch" in names:
            found["gradient_sketch"] = self._sketch_batch(batch)
        if LOSS_GRADIENTS & set(names):
            found |= self._represent_gradients(batch, outputs, several)
        return {name: found[name].detach() for name in names}

    def _member_outputs(
        self, batch: Batch, features: Tensor, names: Sequence[str]
    ) -> Tensor | None:
        """``(b, m, K)`` if any name needs it."""
        state = self._get_fitted_network()
        wanted = any(name.startswith("member_") for name in names)
        wanted |= not state.classes and bool(LOSS_GRADIENTS & set(names))
        if self._members is None or not wanted:
            return None
        return self._members.outputs(state.module, state.head, batch, features)

    def _sketch_batch(self, batch: Batch) -> Tensor:
        """Sketches of gradients: of the values, or of the loss of the predicted class."""
        state = self._get_fitted_network()

        def reduce_outputs(outputs: Tensor) -> Tensor:
            if not state.classes:
                return outputs.sum(dim=1)
            return -outputs.log_softmax(dim=1).amax(dim=1)

        return sketch_gradients(state.module, batch, reduce_outputs, self._projections)

    def _represent_gradients(
        self, batch: Batch, outputs: Tensor, several: Tensor | None
    ) -> dict[str, Tensor]:
        """Squared norms, and products with the summed gradient over the labelled items."""
        state, loss = self._get_fitted_network(), self._settings.loss
        noise = None
        if self._samples:
            noise = torch.from_numpy(self._noise.random(len(outputs))).to(outputs.device)
        targets = pseudo_labels(full_precision(outputs), several, state.classes, noise)
        if state.vector is None:
            return {"gradient_norms": gradient_norms(state.module, batch, targets, loss)}
        norms, products = gradient_norms_and_products(
            state.module, batch, targets, state.vector, loss
        )
        return {"gradient_norms": norms, "gradient_products": products}

    def _get_fitted_network(self) -> FittedNetwork:
        if self._fitted is None:
            raise BadInput("the learner is not trained yet; call fit or load first")
        return self._fitted

    def _iterate_batches(self, labelled: LabelledItems) -> Iterator[tuple[Batch, Tensor]]:
        """Labelled items and their targets, as the module takes them."""
        dtype = get_dtype(self.module)
        for positions in split_into_batches(np.arange(len(labelled)), self._batch_size):
            batch = prepare_batch(labelled.items.batch(positions), self._device, dtype)
            yield batch, labelled.targets[torch.from_numpy(positions).to(self._device)]

    def _compute_labelled_features(self, labelled: LabelledItems) -> Tensor:
        """The head's inputs ``(m, d)`` of all labelled items, in eval mode."""
        state = self._get_fitted_network()
        with evaluation_mode(state.module), torch.no_grad():
            pairs = (
                call_with_features(state.module, state.head, batch)
                for batch, _ in self._iterate_batches(labelled)
            )
            return torch.cat([features for _, features in pairs])


def represent(
    module: nn.Module,
    data: Array,
    names: Sequence[str],
    *,
    collate_fn: Collate | None = None,
    labelled: tuple[Array, Array] | None = None,
    loss: str | Loss = "cross_entropy",
    head: str | None = None,
    batch_size: int = 256,
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Array]:
    """Representations by a trained torch module as it is, on its own device.

    Args:
        module: gives logits ``(b, K)``, or values for a regression; a tensor, a tuple that begins
            with one, or an object with ``logits``. Its parameters and its mode are not changed.
        data: in any form of `labelwise.learners.inputs`: an array, a torch data set, a Hugging Face
            ``Dataset``, or a ``DataLoader`` that does not shuffle.
        names: which representations: ``features``, ``logits``, ``probabilities``,
            ``gradient_norms``, ``gradient_products`` and ``gradient_sketch``; of a regression
            ``features``, ``outputs`` and ``gradient_sketch``.
        collate_fn: makes a batch of a list of items, such as transformers'
            ``DataCollatorWithPadding``.
        labelled: ``(inputs, targets)`` of the labelled items; needed for ``gradient_products``.
        loss: ``"cross_entropy"``, ``"mse"`` (a regression), or ``loss(outputs, targets) -> (b,)``
            of classes. Gradients are of the loss at the predicted class.
        head: name of the last linear layer; found if it is unambiguous.
        batch_size: items in a batch; a ``DataLoader`` has its own.
        folder: where to stream them, as ``NAME.npy``, for pools larger than memory.
        progress: called as ``progress("representing", done, total)``.

    Returns:
        By name, one row per item: NumPy arrays; tensors where the module is on a GPU.

    Example:
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> pool = TensorDataset(torch.randn(50, 4), torch.zeros(50))
        >>> loader = DataLoader(pool, batch_size=20)
        >>> rows = represent(module, loader, ["features", "gradient_norms"])
        >>> rows["features"].shape, rows["gradient_norms"].shape
        ((50, 8), (50,))
    """
    if not isinstance(module, nn.Module):
        raise BadInput(f"module must be a torch module; got {type(module).__name__}")
    if isinstance(loss, str) and loss not in LOSSES:
        raise UnknownName(f"no loss is called {loss!r}; choose from {', '.join(LOSSES)}")
    first = next(module.parameters(), None)
    device = torch.device("cpu") if first is None else first.device
    items = as_items(data, collate_fn)
    if not len(items):
        raise BadInput("no items to represent; give at least one")
    dtype = get_dtype(module)
    some = prepare_batch(next(iterate_batches(items, min(4, len(items)))), device, dtype)
    reader = NetworkReader(
        TrainingSettings(loss=LOSSES[loss] if isinstance(loss, str) else loss),
        device=device,
        members=None,
        pseudo="argmax",
        batch_size=batch_size,
        progress=progress,
    )
    known = None
    if labelled is not None:
        inputs = as_items(labelled[0], collate_fn)
        targets, _ = convert_targets(labelled[1], len(inputs), loss)
        weights = torch.ones(len(inputs), device=device)
        known = LabelledItems(inputs, targets.to(device), weights)
    found = find_head(module, head, some)
    reader._fitted = FittedNetwork(module, found, known, classes=loss != "mse")
    return reader.represent(items, names, folder=folder)
