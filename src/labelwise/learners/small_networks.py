"""Small networks for demos and tests; benchmarks of papers have their own."""

from itertools import pairwise

from torch import Tensor, nn


class Perceptron(nn.Module):
    """Linear layers with ReLU between them; the last one is the ``head``.

    Example:
        >>> import torch
        >>> network = Perceptron(64, 32, 10)
        >>> network(torch.zeros(5, 8, 8)).shape
        torch.Size([5, 10])
    """

    def __init__(self, *widths: int) -> None:
        """Make layers of these widths: the inputs', any hidden ones, the outputs'."""
        super().__init__()
        hidden = [part for pair in pairwise(widths[:-1]) for part in (nn.Linear(*pair), nn.ReLU())]
        self.body = nn.Sequential(nn.Flatten(), *hidden)
        self.head = nn.Linear(widths[-2], widths[-1])

    def forward(self, inputs: Tensor) -> Tensor:
        """``(b, ...)`` to ``(b, outputs)``; everything after the first axis is flattened."""
        outputs: Tensor = self.head(self.body(inputs))
        return outputs
