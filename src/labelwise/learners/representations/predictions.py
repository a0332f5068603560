"""Representations of a batch from what a trained network gives for it."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labelwise.learners.settings import Loss


def full_precision(values: Tensor) -> Tensor:
    """Half precision as float32; the rest as it is."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def predictions(outputs: Tensor, several: Tensor | None, classes: bool) -> dict[str, Tensor]:
    """All that follows from a network's outputs and its members'.

    Args:
        outputs: ``(b, K)``.
        several: ``(b, m, K)`` outputs of members, or None.
        classes: whether outputs are logits of classes or values.
    """
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

    Args:
        outputs: ``(b, K)``.
        several: ``(b, m, K)`` outputs of members, which a regression must have.
        classes: whether outputs are logits of classes or values.
        noise: ``(b,)`` uniform numbers, to draw a class by its probability, or a member's value;
            without it, the predicted class, or the members' mean.
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


def residuals(outputs: Tensor, targets: Tensor, loss: Loss) -> Tensor:
    """The derivative of every item's loss by its outputs, ``(b, K)``."""
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        (derivative,) = torch.autograd.grad(loss(leaf, targets).sum(), leaf)
    return derivative


@dataclass(frozen=True)
class HeadGradient:
    """The summed gradient of the head: ``weight`` ``(K, d)``, and ``bias`` ``(K,)`` or None."""

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def over(
        cls, head: nn.Linear, batches: Iterable[tuple[Tensor, Tensor, Tensor]], loss: Loss
    ) -> "HeadGradient":
        """Sum over batches of ``features, outputs, targets``, in float64: terms nearly cancel."""
        weight = torch.zeros_like(head.weight, dtype=torch.float64)
        bias = torch.zeros(len(weight), dtype=torch.float64, device=weight.device)
        for features, outputs, targets in batches:
            pulls = residuals(full_precision(outputs), targets, loss).double()
            weight += pulls.T @ features.double()
            bias += pulls.sum(dim=0)
        return cls(weight, bias if head.bias is not None else None)

    def norms_and_products(self, pulls: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """Squared norms of the items' gradients, and their products with this one, ``(b,)`` each.

        Args:
            pulls: ``(b, K)`` from `residuals`.
            features: ``(b, d)``.
        """
        a, h = pulls.double(), features.double()
        lengths = h.square().sum(dim=1)
        products = ((h @ self.weight.T) * a).sum(dim=1)
        if self.bias is not None:
            lengths, products = lengths + 1, products + a @ self.bias
        return a.square().sum(dim=1) * lengths, products
