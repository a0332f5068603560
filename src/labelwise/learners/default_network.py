r"""Whole networks trained from scratch, as an option of a campaign: small, and fast on a CPU.

=======  ==========================================  =============================================
kind     inputs                                      network
=======  ==========================================  =============================================
images   ``(n, 1 or 3, side, side)`` bytes           three pairs of convolutions, averaged
texts    ``(n, d)`` rows of an embedding             a perceptron with one hidden layer
numbers  ``(n, d)`` standardised rows                a perceptron with one hidden layer
=======  ==========================================  =============================================

Images are standardized per channel inside the network. Regression values are standardized for
training, :math:`(y - \mu) / \sigma`, and scaled back in predictions. Both scales are saved with the
network. Training shifts images at random by up to an eighth of their side; it does not flip them,
because that would turn some letters into others.

A training makes about `LEAST_STEPS` steps, in `LEAST_EPOCHS` to `MOST_EPOCHS` epochs. Networks with
fewer than `SMALL` parameters run on one CPU thread. Cost: about 10 s of one core for 100 to 300
labelled 28 x 28 images, one second for other items.

Reference: K. Simonyan, A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
Recognition", ICLR 2015, for stages of small convolutions.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.arrays import Array
from labelwise.errors import BadInput
from labelwise.learner import FitReport
from labelwise.learners import saving
from labelwise.learners.embedding import Standardizer
from labelwise.learners.inputs import Batch
from labelwise.learners.members.laplace import LaplaceMembers
from labelwise.learners.torch_learner import TorchLearner
from labelwise.pool.blocks import Progress

Builder = Callable[[tuple[int, ...], int], nn.Module]
"""``builder(shape of one item, outputs) -> module``, whose last layer is linear."""

BATCH, LEAST_STEPS, LEAST_EPOCHS, MOST_EPOCHS = 32, 300, 10, 60

SMALL = 1_000_000  # Networks with fewer parameters run on one CPU thread
_SCALED_FROM = 5_000  # Number of images used to measure mean and standard deviation


class Perceptron(nn.Module):
    """Linear layers with ReLU between them; the last one is the ``head``."""

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


class Convolutions(nn.Module):
    """Three pairs of 3 x 3 convolutions with batch normalization, global average pooling, a head.

    For images larger than 16 pixels the first convolution is 5 x 5 with stride 2.
    """

    def __init__(
        self, shape: Sequence[int], outputs: int, widths: Sequence[int] = (32, 64, 128)
    ) -> None:
        """Make layers for images of ``shape`` (channels, height, width)."""
        super().__init__()
        side, halved = min(shape[1:]), min(shape[1:]) > 16
        layers: list[nn.Module] = []
        for stage, (before, after) in enumerate(pairwise((shape[0], *widths))):
            large = halved and stage == 0
            layers += _make_convolution(before, after, 5 if large else 3, 2 if large else 1)
            layers += _make_convolution(after, after, 3, 1)
            side = -(-side // 2) if large else side
            if side >= 4 and stage < len(widths) - 1:
                layers.append(nn.MaxPool2d(2))
                side //= 2
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(widths[-1], outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """``(b, channels, height, width)`` to ``(b, outputs)``."""
        outputs: Tensor = self.head(self.body(inputs))
        return outputs


def _make_convolution(before: int, after: int, kernel: int, stride: int) -> list[nn.Module]:
    layer = nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False)
    return [layer, nn.BatchNorm2d(after), nn.ReLU()]


class ScaledNetwork(nn.Module):
    """A network with standardized inputs; also stores the scale of regression labels."""

    mean: Tensor
    spread: Tensor
    labels: Tensor

    def __init__(self, network: nn.Module, scale: Standardizer | None) -> None:
        """``scale`` belongs to the inputs; None if they are standardized already."""
        super().__init__()
        mean, spread = (np.zeros(1), np.ones(1)) if scale is None else (scale.mean, scale.spread)
        self.network = network
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float32))
        self.register_buffer("spread", torch.as_tensor(spread, dtype=torch.float32))
        self.register_buffer("labels", torch.tensor([0.0, 1.0], dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Any:
        """Outputs of the network; standardized values for a regression."""
        return self.network((inputs.to(self.mean.dtype) - self.mean) / self.spread)


class DefaultLearner(TorchLearner):
    """A `TorchLearner` with outputs for the labels, which it standardizes in a regression."""

    def __init__(
        self,
        build: Callable[[int], ScaledNetwork],
        *,
        classes: int | None = None,
        regression: bool = False,
        **settings: Any,
    ) -> None:
        """Remember how to build networks.

        ``build`` makes a new network with the given number of outputs; labels may need more than
        ``classes``. ``settings`` are those of `TorchLearner`.
        """
        loss = "mse" if regression else "cross_entropy"
        super().__init__(lambda: build(self._outputs), loss=loss, **settings)
        self._classes, self._regression = classes, regression
        self._outputs = 1

    def fit(
        self, inputs: Array, targets: Array, weights: Array = None, *, seed: int = 0
    ) -> FitReport:
        """As `TorchLearner.fit`; the loss is in the units of the labels."""
        with _restore_torch_threads():
            return self._fit(inputs, targets, weights, seed)

    def represent(
        self, inputs: Array, names: Sequence[str], *, folder: str | Path | None = None
    ) -> dict[str, Array]:
        """As `TorchLearner.represent`; a regression's values are in the units of the labels."""
        with _restore_torch_threads():
            self._limit_torch_threads(self.module)
            return super().represent(inputs, names, folder=folder)

    def _fit(self, inputs: Array, targets: Array, weights: Array, seed: int) -> FitReport:
        epochs = ceil(LEAST_STEPS * BATCH / max(len(targets), 1))
        epochs = min(max(epochs, LEAST_EPOCHS), MOST_EPOCHS)
        self._settings = replace(self._settings, epochs=epochs)
        values = np.asarray(targets)
        if not self._regression:
            most = int(values.max()) + 1 if values.size and values.dtype.kind in "iu" else 2
            self._outputs = max(most, self._classes or 2, 2)
            return super().fit(inputs, targets, weights, seed=seed)
        values = values.astype(np.float64).reshape(len(values), -1)
        if values.shape[1:] != (1,):
            raise BadInput(f"a regression takes one value per item; got {values.shape}")
        if not np.isfinite(values).all():
            raise BadInput("labels must be finite numbers")
        scale = Standardizer.fit(values)
        self._outputs = 1
        report = super().fit(inputs, scale(values), weights, seed=seed)
        mean, spread = float(scale.mean[0, 0]), float(scale.spread[0, 0])
        self._get_scaled_network().labels.copy_(torch.tensor([mean, spread], dtype=torch.float64))
        return replace(report, loss=report.loss * spread**2)

    def load(self, folder: str | Path) -> None:
        """Take the network that `save` wrote, however many outputs it has."""
        tensors, facts = saving.load_learner(folder, type(self).__name__)
        head = tensors.get(f"module.{facts['head']}.weight")
        if head is None or facts["classes"] == self._regression:
            raise BadInput(f"{folder} holds a network for other labels; train again")
        self._outputs = len(head)
        super().load(folder)

    def _represent_batch(self, batch: Batch, names: Sequence[str]) -> dict[str, Tensor]:
        """Representations with values in the units of the labels."""
        found = super()._represent_batch(batch, names)
        if self._regression:
            mean, spread = self._get_scaled_network().labels.tolist()
            for name in found.keys() & {"outputs", "member_votes"}:
                found[name] = found[name] * spread + mean
        return found

    def _make_starting_module(self) -> nn.Module:
        """A fresh module, on one thread if it is small."""
        module = super()._make_starting_module()
        self._limit_torch_threads(module)
        return module

    def _limit_torch_threads(self, module: nn.Module) -> None:
        """Run a small network on one thread.

        Its layers take microseconds, so threads mostly wait for each other: on a busy machine a
        training on 96 images of 8 x 8 took 276 s with two threads and 10 to 20 s with one.
        """
        size = sum(parameter.numel() for parameter in module.parameters())
        if self._device.type == "cpu" and size < SMALL:
            torch.set_num_threads(1)

    def _get_scaled_network(self) -> ScaledNetwork:
        module = self.module
        assert isinstance(module, ScaledNetwork)
        return module


@contextmanager
def _restore_torch_threads() -> Iterator[None]:
    """Restore the number of torch threads, which is a global setting."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_network_learner(
    inputs: Array,
    classes: int | None = None,
    *,
    regression: bool = False,
    module: Builder | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> DefaultLearner:
    """Make a learner that trains a network of the table above; arguments as `default_learner`."""
    shape = tuple(inputs.shape[1:])
    pictures = len(shape) == 3
    # Evenly spaced images are enough to measure mean and deviation.
    step = max(1, -(-len(inputs) // _SCALED_FROM))
    scale = Standardizer.fit(inputs[::step]) if pictures else None
    make: Builder = module or (Convolutions if pictures else make_perceptron)
    return DefaultLearner(
        lambda outputs: ScaledNetwork(make(shape, outputs), scale),
        classes=classes,
        regression=regression,
        head=None if module else "network.head",
        optimizer="adamw",
        lr=2e-3,
        weight_decay=1e-3 if pictures else 1e-2,
        schedule="cosine",
        batch_size=BATCH,
        augment=shift_images if pictures else None,
        members=LaplaceMembers(count=50),
        device=device,
        progress=progress,
    )


def make_perceptron(shape: Sequence[int], outputs: int) -> nn.Module:
    """A perceptron with one hidden layer of 128 units."""
    return Perceptron(int(np.prod(shape)), 128, outputs)


def shift_images(images: Tensor) -> Tensor:
    """Shift every image at random by up to an eighth of its side, repeating border pixels.

    >>> shift_images(torch.ones(5, 1, 8, 8)).unique().tolist()
    [1.0]
    """
    count, (height, width) = len(images), images.shape[2:]
    room = max(1, min(height, width) // 8)
    padded = nn.functional.pad(images.float(), (room,) * 4, mode="replicate")
    down, right = torch.randint(2 * room + 1, (2, count, 1), device=images.device)
    rows = (down + torch.arange(height, device=images.device))[:, :, None]
    columns = (right + torch.arange(width, device=images.device))[:, None, :]
    items = torch.arange(count, device=images.device)[:, None, None]
    return padded[items, :, rows, columns].permute(0, 3, 1, 2)
