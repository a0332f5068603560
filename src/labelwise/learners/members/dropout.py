r"""Monte-Carlo dropout: members are the network with some of its units switched off for good.

Member :math:`j` multiplies what leaves dropout layer :math:`l` by :math:`\mu_{jl} / (1 - p_l)`,
with :math:`\mu_{jl}` zeros and ones drawn once, from the seed. The same mask serves every item of a
pool and every batch, as strategies that look at joint predictions need it (batchbald,
bayesian_coreset): a member is then one function, not a new one for every item. All other layers,
BatchNorm among them, stay in eval mode.

Cost: the layers after the first dropout layer once per member, those before it once per some
thousand items; no cost in training.

References: Y. Gal, Z. Ghahramani, "Dropout as a Bayesian Approximation", ICML 2016. A. Kirsch,
J. van Amersfoort, Y. Gal, "BatchBALD", NeurIPS 2019, for masks that are the same for all items.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from labelwise.errors import BadInput
from labelwise.learners.inputs import Batch, batch_length
from labelwise.learners.members.base import Members, ignore_vmap_warnings
from labelwise.learners.network import call_module
from labelwise.learners.training import LabelledItems

MASKS = 3
"""The stream of randomness that masks are drawn from."""

ROWS_AT_ONCE = 4096
"""Items times members that go through the network together."""

ALPHA = -1.7580993408473766
"""What an alpha dropout layer sets a unit to: the limit of SELU, far below zero."""


class DropoutMembers(Members):
    """The network under ``count`` dropout masks, each the same for all items.

    ``nn.Dropout`` and ``nn.AlphaDropout`` switch off single units, ``nn.Dropout1d`` to ``3d`` and
    ``nn.FeatureAlphaDropout`` whole channels. Layers with p = 0 count as none. Of sequences of
    different lengths, the shorter ones meet the beginning of the mask.

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
        """Remember how many masks to draw; 10 to 100 are usual."""
        if count < 1:
            raise BadInput(f"count must be 1 or more; got {count}")
        self.count = count
        self._seed: int | None = None
        self._masks: dict[tuple[Any, ...], Tensor] = {}
        self._stack_parts = True

    def adapt(self, module: nn.Module, head: str) -> None:
        """Refuse a module without dropout before it is trained."""
        _find_dropout_layers(module)

    def fitted(
        self,
        module: nn.Module,
        head: str,
        labelled: LabelledItems,
        features: Callable[[], Tensor],
        seed: int,
    ) -> None:
        """Keep the seed; a mask is drawn when its layer is first met and its shape is known."""
        _find_dropout_layers(module)
        self._begin_draws(seed)

    def outputs(self, module: nn.Module, head: str, batch: Batch, features: Tensor) -> Tensor:
        """Outputs under every mask, ``(b, count, K)``."""
        members = torch.arange(self.count, device=features.device)
        if self._stack_parts:
            found = self._all_at_once(module, batch, members)
            if found is not None:
                return found.transpose(0, 1)
            self._stack_parts = False  # the module cannot be vmapped
        return torch.stack([self._run_member(module, batch, member) for member in members], dim=1)

    def tensors(self) -> dict[str, Tensor]:
        """The seed, from which all masks follow."""
        return {} if self._seed is None else {"seed": torch.tensor(self._seed)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back the seed."""
        self._begin_draws(int(tensors["seed"]))

    def _begin_draws(self, seed: int) -> None:
        self._seed, self._masks, self._stack_parts = seed, {}, True

    def _all_at_once(self, module: nn.Module, batch: Batch, members: Tensor) -> Tensor | None:
        """``(count, b, K)``; None if the module cannot be vmapped.

        The batch itself is not mapped over, so that layers before the first mask run once for all
        members of a chunk.
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
        """The outputs ``(b, K)`` of the member of that number."""
        with self._apply_masks(module, batch_length(batch), member) as met:
            output = call_module(module, batch)
        if not any(met.values()):
            raise BadInput(
                f"the module never calls its dropout layers ({', '.join(met)}); all members would "
                "be the same: call them in forward"
            )
        return output

    @contextmanager
    def _apply_masks(
        self, module: nn.Module, count: int, member: Tensor
    ) -> Iterator[dict[str, int]]:
        """Dropout layers multiply by the member's masks; gives how often each was called."""
        met = dict.fromkeys(_find_dropout_layers(module), 0)

        def hook(name: str) -> Callable[[Any, Any, Tensor], Tensor]:
            def drop(layer: _DropoutNd, _: Any, values: Tensor) -> Tensor:
                if len(values) != count:
                    raise BadInput(
                        f"the first axis of what enters {name} must be the item; for {count} items "
                        f"it got {tuple(values.shape)}"
                    )
                masks = self._draw_mask(name, layer, met[name], values)
                met[name] += 1
                mask = masks.index_select(0, member.reshape(1))[0]
                return _switched_off(layer, values, mask)

            return drop

        handles = [
            layer.register_forward_hook(hook(name))
            for name, layer in _find_dropout_layers(module).items()
        ]
        try:
            yield met
        finally:
            for handle in handles:
                handle.remove()

    def _draw_mask(self, name: str, layer: _DropoutNd, time: int, values: Tensor) -> Tensor:
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
    """The dropout layers that do something, by name."""
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


def _switched_off(layer: _DropoutNd, values: Tensor, mask: Tensor) -> Tensor:
    """Values with the units off where the mask is 0, and the rest scaled as in training."""
    keep = 1 - layer.p
    if keep == 0:
        return torch.zeros_like(values)
    if not isinstance(layer, nn.AlphaDropout | nn.FeatureAlphaDropout):
        return values * mask.to(values.dtype) / keep
    scale = 1 / math.sqrt(keep * (1 + layer.p * ALPHA**2))
    return torch.where(mask, values, ALPHA) * scale - scale * layer.p * ALPHA
