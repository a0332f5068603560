"""Preparation of a training: device, seeds, head and holdout."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labelwise.arrays import Array
from labelwise.errors import BadInput
from labelwise.learner import check_seed
from labelwise.learners import labels
from labelwise.learners.inputs import Items, ItemSubset, as_items, move_to_device, prepare_batch
from labelwise.learners.network import call_module, evaluation_mode, find_head, get_dtype
from labelwise.learners.settings import Loss
from labelwise.learners.training import LabelledItems


def choose_device(device: str | torch.device) -> torch.device:
    """Choose an available device; ``"auto"`` prefers a GPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = torch.device(device)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise BadInput("no GPU is available; use device='cpu'")
    return chosen


@contextmanager
def seed_torch(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch and use deterministic kernels inside the block; restore both afterwards."""
    number = check_seed(seed)
    on_gpu, cudnn = device.type == "cuda", torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(number)  # torch.manual_seed would seed all GPUs too
        try:
            if on_gpu:
                cudnn.deterministic, cudnn.benchmark = True, False
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(number)
            yield
        finally:
            cudnn.deterministic, cudnn.benchmark = before


def inspect_module(
    module: nn.Module,
    head: str | None,
    items: Items,
    targets: Tensor,
    classes: bool,
    device: torch.device,
) -> str:
    """Find the name of the head by running a few items, and check the labels."""
    positions = np.arange(min(len(items), 4))
    batch = prepare_batch(items.batch(positions), device, get_dtype(module))
    found = find_head(module, head, batch)
    with evaluation_mode(module), torch.no_grad():
        outputs = call_module(module, batch)
    labels.check_targets(targets, classes, outputs.shape[1])
    return found


def hold_out_items(
    whole: LabelledItems,
    classes: bool,
    validation: float | tuple[Array, Array],
    loss: str | Loss,
    seed: int,
    *,
    outputs: int | None = None,
) -> tuple[LabelledItems, LabelledItems | None]:
    """Split labelled items into training items and holdout.

    ``validation`` is the share to hold out, or other ``(inputs, targets)``, which the ``loss`` and
    the number of ``outputs`` check.
    """
    if isinstance(validation, tuple):
        others, device = as_items(validation[0]), whole.targets.device
        targets, _ = labels.convert_targets(validation[1], len(others), loss)
        if outputs is not None:
            labels.check_label_range(targets, classes, outputs)
        ones = torch.ones(len(others))
        return whole, place_labelled_items(others, targets, ones, device, dtype=whole.weights.dtype)
    if not validation:
        return whole, None
    rng = np.random.default_rng([seed, 2])
    kept, held = labels.split_holdout(whole.targets, classes, validation, rng)
    return _select_labelled_part(whole, kept, "train on"), _select_labelled_part(
        whole, held, "hold out"
    )


def _select_labelled_part(
    whole: LabelledItems, positions: NDArray[np.int64], purpose: str
) -> LabelledItems:
    """The items at some positions, with weights of mean 1."""
    weights = whole.weights[positions]
    if not bool(weights.any()):
        raise BadInput(
            f"the items to {purpose} all have weight zero; leave such items out, or give "
            "validation=(inputs, targets)"
        )
    items = ItemSubset(whole.items, positions)
    return LabelledItems(items, whole.targets[positions], weights / weights.mean())


def place_labelled_items(
    items: Items,
    targets: Tensor,
    weights: Tensor,
    device: torch.device,
    *,
    dtype: torch.dtype = torch.float32,
) -> LabelledItems:
    """Move labelled items to the device, if they fit, in the precision of a module."""
    kind = torch.promote_types(dtype, torch.float32)  # targets keep more digits than half precision
    values = targets.to(kind) if targets.is_floating_point() else targets
    return LabelledItems(
        move_to_device(items, device, dtype),
        values.to(device),
        weights.to(device=device, dtype=kind),
    )
