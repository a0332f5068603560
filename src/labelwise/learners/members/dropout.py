r"""Monte-Carlo dropout: every member is the network with fixed dropout masks.

Member :math:`j` multiplies the input of dropout layer :math:`l` by :math:`\mu_{jl} / (1 - p_l)`,
with a binary mask :math:`\mu_{jl}` drawn once from the seed. All items and batches share the mask,
so a member is one function, as strategies with joint predictions require (batchbald,
bayesian_coreset). All other layers, including BatchNorm, stay in eval mode.

Cost: layers after the first dropout layer run once per member, layers before it once per chunk of
members; no cost in training.

References: Y. Gal, Z. Ghahramani, "Dropout as a Bayesian Approximation", ICML 2016. A. Kirsch,
J. van Amersfoort, Y. Gal, "BatchBALD", NeurIPS 2019, for masks shared by all items.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from labelwise.errors import BadInput
from labelwise.learners.inputs import Batch, batch_length
from labelwise.learners.members.base import Members, TrainedModule, ignore_vmap_warnings
from labelwise.learners.network import call_module

MASKS = 3  # Random stream of the masks
ROWS_AT_ONCE = 4096  # Maximum items times members per forward pass
ALPHA = -1.7580993408473766
"""Value of a dropped unit in alpha dropout: the limit of SELU at minus infinity."""


class DropoutMembers(Members):
    """The network with ``count`` dropout masks, each shared by all items.

    ``nn.Dropout`` and ``nn.AlphaDropout`` drop single units, ``nn.Dropout1d`` to ``3d`` and
    ``nn.FeatureAlphaDropout`` whole channels. Layers with p = 0 are ignored. Shorter sequences use
    the beginning of the mask.

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> from labelwise.learners.torch_learner import TorchLearner
        >>> inputs = np.random.default_rng(0).normal(size=(60, 4))
        >>> targets = (inputs[:, 0] > 0).astype(int)
        >>> def make():
        ...     return nn.Sequential(
        ...         nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 2)
        ...     )
        >>> learner = TorchLearner(make, epochs=10, members=DropoutMembers(count=8))
        >>> report = learner.fit(inputs, targets, seed=0)
        >>> learner.represent(inputs, ["member_probabilities"])["member_probabilities"].shape
        (60, 8, 2)
    """

    def __init__(self, *, count: int = 20) -> None:
        """Store the number of masks; 10 to 100 are usual."""
        if count < 1:
            raise BadInput(f"count must be 1 or more; got {count}")
        self.count = count
        self._seed: int | None = None
        self._masks: dict[tuple[object, ...], Tensor] = {}
        self._stack_parts = True

    def adapt(self, module: nn.Module, head: str) -> None:
        """Reject a module without dropout before training."""
        _find_dropout_layers(module)

    def fitted(self, trained: TrainedModule) -> None:
        """Store the seed; a mask is drawn at the first call of its layer."""
        _find_dropout_layers(trained.module)
        self._reset_dropout_masks(trained.seed)

    def outputs(self, module: nn.Module, head: str, batch: Batch, features: Tensor) -> Tensor:
        """Outputs with every mask, ``(b, count, K)``."""
        members = torch.arange(self.count, device=features.device)
        if self._stack_parts:
            found = self._run_all_members(module, batch, members)
            if found is not None:
                return found.transpose(0, 1)
            self._stack_parts = False  # the module cannot be vmapped
        return torch.stack([self._run_member(module, batch, member) for member in members], dim=1)

    def tensors(self) -> dict[str, Tensor]:
        """The seed, which determines all masks."""
        return {} if self._seed is None else {"seed": torch.tensor(self._seed)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the seed."""
        self._reset_dropout_masks(int(tensors["seed"]))

    def _reset_dropout_masks(self, seed: int) -> None:
        self._seed, self._masks, self._stack_parts = seed, {}, True

    def _run_all_members(self, module: nn.Module, batch: Batch, members: Tensor) -> Tensor | None:
        """``(count, b, K)``; None if the module cannot be vmapped.

        vmap does not map over the batch, so layers before the first mask run once per chunk of
        members.
        """
        chunk = max(ROWS_AT_ONCE // batch_length(batch), 1)
        run = torch.func.vmap(partial(self._run_member, module, batch), chunk_size=chunk)
        try:
            with ignore_vmap_warnings():
                found: Tensor = run(members)
        except (RuntimeError, UserWarning):
            return None
        return found

    def _run_member(self, module: nn.Module, batch: Batch, member: Tensor) -> Tensor:
        """Outputs ``(b, K)`` of one member, given by its index."""
        with self._apply_dropout_masks(module, batch_length(batch), member) as met:
            output = call_module(module, batch)
        if not any(met.values()):
            raise BadInput(
                f"the module never calls its dropout layers ({', '.join(met)}); all members would "
                "be the same: call them in forward"
            )
        return output

    @contextmanager
    def _apply_dropout_masks(
        self, module: nn.Module, count: int, member: Tensor
    ) -> Iterator[dict[str, int]]:
        """Apply the member's masks in dropout layers; yield the number of calls of each layer."""
        met = dict.fromkeys(_find_dropout_layers(module), 0)

        def make_mask_hook(name: str) -> Callable[[_DropoutNd, object, Tensor], Tensor]:
            def apply_mask(layer: _DropoutNd, _: object, values: Tensor) -> Tensor:
                if len(values) != count:
                    raise BadInput(
                        f"the first axis of what enters {name} must be the item; for {count} items "
                        f"it got {tuple(values.shape)}"
                    )
                masks = self._draw_dropout_mask(name, layer, met[name], values)
                met[name] += 1
                mask = masks.index_select(0, member.reshape(1))[0]
                return _drop_units(layer, values, mask)

            return apply_mask

        handles = [
            layer.register_forward_hook(make_mask_hook(name))
            for name, layer in _find_dropout_layers(module).items()
        ]
        try:
            yield met
        finally:
            for handle in handles:
                handle.remove()

    def _draw_dropout_mask(self, name: str, layer: _DropoutNd, time: int, values: Tensor) -> Tensor:
        """Zeros and ones ``(count, ...)`` for the ``time``-th call of a layer."""
        shape = tuple(values.shape[1:])
        if not isinstance(layer, nn.Dropout | nn.AlphaDropout):
            shape = (*shape[:1], *(1 for _ in shape[1:]))  # whole channels
        key = (name, time, shape, values.device)
        if key not in self._masks:
            if self._seed is None:
                raise BadInput("no masks are drawn yet; fit or load the learner first")
            stream = [self._seed, MASKS, time, *name.encode()]
            rngs = (np.random.default_rng([*stream, j]) for j in range(self.count))
            kept = np.stack([rng.random(shape) >= layer.p for rng in rngs])
            self._masks[key] = torch.from_numpy(kept).to(values.device)
        return self._masks[key]


def _find_dropout_layers(module: nn.Module) -> dict[str, _DropoutNd]:
    """Dropout layers with p above 0, by name."""
    found = {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, _DropoutNd) and layer.p > 0
    }
    if not found:
        raise BadInput(
            "the module has no dropout layer with p above 0 (F.dropout within forward cannot be "
            "seen); add nn.Dropout layers, or use other members"
        )
    return found


def _drop_units(layer: _DropoutNd, values: Tensor, mask: Tensor) -> Tensor:
    """Values with units dropped where the mask is 0 and the others scaled as in training."""
    keep = 1 - layer.p
    if keep == 0:
        return torch.zeros_like(values)
    if not isinstance(layer, nn.AlphaDropout | nn.FeatureAlphaDropout):
        return values * mask.to(values.dtype) / keep
    scale = 1 / math.sqrt(keep * (1 + layer.p * ALPHA**2))
    return torch.where(mask, values, ALPHA) * scale - scale * layer.p * ALPHA
