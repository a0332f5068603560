"""A trained network, read for representations: one pass over the items for all names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labelwise.errors import BadInput
from labelwise.learner import check_names
from labelwise.learners.gradients import gradient_norms_and_products, summed_gradient
from labelwise.learners.inputs import Batch, as_items, even_parts, ready
from labelwise.learners.members import Members
from labelwise.learners.network import call_with_features, evaluating, layer_of, precision_of
from labelwise.learners.representations.predictions import (
    HeadGradient,
    full_precision,
    predictions,
    pseudo_labels,
    residuals,
)
from labelwise.learners.representations.rows import Kept, Streamed
from labelwise.learners.settings import Settings
from labelwise.learners.training import Labelled, autocast, is_mixed
from labelwise.pool.blocks import Progress


@dataclass(frozen=True)
class Fitted:
    """What a training leaves: the module, its head, what it was trained on, and the task.

    ``vector`` is the summed gradient over the labelled items, once it has been asked for.
    """

    module: nn.Module
    head: str
    labelled: Labelled | None
    classes: bool
    seed: int = 0
    vector: dict[str, Tensor] | HeadGradient | None = None


class NetworkReader:
    """Reads representations off a trained network; `_fitted` is put in place by who trains it."""

    def __init__(
        self,
        settings: Settings,
        *,
        device: torch.device,
        members: Members | None,
        gradients: str,
        pseudo: str,
        batch_size: int,
        progress: Progress | None,
    ) -> None:
        """Remember how to read.

        Args:
            settings: of the training; its loss and its precision count here too.
            device: where the network is.
            members: where ``member_probabilities`` come from.
            gradients: of the ``"network"`` or of the ``"head"`` alone.
            pseudo: where gradients are taken, ``"argmax"`` or ``"sample"``.
            batch_size: items in a batch.
            progress: called as ``progress(stage, done, total)``.
        """
        if gradients not in ("network", "head"):
            raise BadInput(f"gradients must be of the network or the head; got {gradients!r}")
        if pseudo not in ("argmax", "sample"):
            raise BadInput(f"pseudo must be argmax or sample; got {pseudo!r}")
        if batch_size < 1:
            raise BadInput(f"represent_batch_size must be 1 or more; got {batch_size}")
        self._settings, self._device = settings, device
        self._members, self._gradients = members, gradients
        self._samples, self._noise = pseudo == "sample", np.random.default_rng(0)
        self._batch_size, self._progress = batch_size, progress
        self._fitted: Fitted | None = None

    @property
    def module(self) -> nn.Module:
        """The trained module, in eval mode."""
        return self._state().module

    @property
    def head(self) -> nn.Linear:
        """The trained module's last linear layer."""
        state = self._state()
        return layer_of(state.module, state.head)

    def predict(self, inputs: Any) -> NDArray[Any]:
        """Classes ``(n,)``, or values ``(n, k)``."""
        name = "logits" if self._state().classes else "outputs"
        rows = self.represent(inputs, [name])[name]
        values = rows.float().cpu().numpy() if isinstance(rows, Tensor) else rows
        return values.argmax(axis=1) if name == "logits" else np.asarray(values)

    def represent(
        self, inputs: Any, names: Sequence[str], *, folder: str | Path | None = None
    ) -> dict[str, Any]:
        """The named representations of items, in one pass over them, in eval mode.

        Args:
            inputs: ``(n, ...)``, in any form of `labelwise.learners.inputs`.
            names: which representations.
            folder: where to stream them, as ``NAME.npy``, for pools larger than memory.

        Returns:
            By name: NumPy arrays; tensors where the device is a GPU; mapped files with ``folder``.

        Raises:
            UnknownName: a name is no representation, or this learner cannot give it.
        """
        state = self._state()
        check_names(names, self.offered(), "this learner")
        items = as_items(inputs)
        if not len(items):
            raise BadInput("there are no items to represent; give one or more")
        self._before_rows(names)
        kept = Kept(len(items)) if folder is None else Streamed(len(items), Path(folder))
        dtype = precision_of(state.module)
        done = 0
        with evaluating(state.module), kept:
            for positions in even_parts(np.arange(len(items)), self._batch_size):
                batch = ready(items.batch(positions), self._device, dtype)
                kept.put(done, self._rows(batch, names))
                done += len(positions)
                if self._progress is not None:
                    self._progress("representing", done, len(items))
            return kept.close()

    def offered(self) -> list[str]:
        """The representations that this learner can give, now that it is trained."""
        members, gradients = self._members is not None, ["gradient_norms", "gradient_products"]
        if self._state().classes:
            several = ["member_probabilities", "member_votes"] if members else []
            return ["features", "logits", "probabilities", *several, *gradients]
        votes = ["member_votes"] if self._outputs_count() == 1 else []
        return ["features", "outputs", *([*votes, *gradients] if members else [])]

    # What learners built on this one may use and replace.

    def _outputs_count(self) -> int:
        """How many outputs the network has."""
        return self.head.out_features

    def _before_rows(self, names: Sequence[str]) -> None:
        """A pass over a pool is to begin."""
        state = self._state()
        self._noise = np.random.default_rng([state.seed, 3])  # the same draws in every pass
        wanted = any(name.startswith("gradient_") for name in names)
        if not wanted or state.vector is not None:
            return
        if state.labelled is None:
            raise BadInput(
                "a loaded learner has no labelled items; fit it for representations of gradients"
            )
        loss = self._settings.loss
        with evaluating(state.module):
            vector: Any
            if self._gradients == "network":
                vector = summed_gradient(state.module, self._batches(state.labelled), loss)
            else:
                vector = HeadGradient.over(self.head, self._head_batches(state.labelled), loss)
        self._fitted = replace(state, vector=vector)

    def _rows(self, batch: Batch, names: Sequence[str]) -> dict[str, Tensor]:
        """The named representations of a batch."""
        state = self._state()
        with torch.no_grad(), autocast(self._device, self._settings.amp):
            outputs, features = call_with_features(state.module, state.head, batch)
            several = self._member_outputs(batch, features, names)
        if is_mixed(self._device, self._settings.amp):
            features = features.bfloat16()  # after some layers they only look more precise
        found = {"features": features, **predictions(outputs, several, state.classes)}
        if any(name.startswith("gradient_") for name in names):
            found |= self._gradient_rows(batch, outputs, features, several)
        return {name: found[name].detach() for name in names}

    def _member_outputs(
        self, batch: Batch, features: Tensor, names: Sequence[str]
    ) -> Tensor | None:
        """``(b, m, K)`` if any name needs it."""
        state = self._state()
        kinds = ("member_",) if state.classes else ("member_", "gradient_")
        if self._members is None or not any(name.startswith(kinds) for name in names):
            return None
        return self._members.outputs(state.module, state.head, batch, features)

    def _gradient_rows(
        self, batch: Batch, outputs: Tensor, features: Tensor, several: Tensor | None
    ) -> dict[str, Tensor]:
        """Squared norms, and products with the summed gradient over the labelled items."""
        state, loss = self._state(), self._settings.loss
        noise = None
        if self._samples:
            noise = torch.from_numpy(self._noise.random(len(outputs))).to(outputs.device)
        targets = pseudo_labels(full_precision(outputs), several, state.classes, noise)
        if isinstance(state.vector, HeadGradient):
            pulls = residuals(full_precision(outputs), targets, loss)
            norms, products = state.vector.norms_and_products(pulls, features)
        else:
            assert state.vector is not None
            norms, products = gradient_norms_and_products(
                state.module, batch, targets, state.vector, loss
            )
        return {"gradient_norms": norms, "gradient_products": products}

    def _state(self) -> Fitted:
        if self._fitted is None:
            raise BadInput("the learner is not trained yet; call fit or load first")
        return self._fitted

    def _batches(self, labelled: Labelled) -> Iterator[tuple[Batch, Tensor]]:
        """Labelled items and their targets, as the module takes them."""
        dtype = precision_of(self.module)
        for positions in even_parts(np.arange(len(labelled)), self._batch_size):
            batch = ready(labelled.items.batch(positions), self._device, dtype)
            yield batch, labelled.targets[torch.from_numpy(positions).to(self._device)]

    def _head_batches(self, labelled: Labelled) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Features, outputs and targets of the labelled items."""
        state = self._state()
        for batch, targets in self._batches(labelled):
            with torch.no_grad():
                outputs, features = call_with_features(state.module, state.head, batch)
            yield features, outputs, targets

    def _labelled_features(self, labelled: Labelled) -> Tensor:
        with evaluating(self.module):
            return torch.cat([features for features, _, _ in self._head_batches(labelled)])
