"""Training steps captured as CUDA graphs.

A step of small networks launches a few hundred kernels of microseconds each, and launching takes
longer than running them. After a few ordinary steps one step is captured, which reads the items'
positions from a fixed tensor; later steps copy their positions there and replay the graph. There
is one graph per batch size. If capturing fails, all steps run in the ordinary way.
"""

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelwise.learners.settings import TrainingSettings

Step = Callable[[NDArray[np.int64], Tensor], None]

FIRST = 3  # Ordinary steps per batch size before one is captured; they allocate what it needs

WORTH = 200  # Capturing does not pay for trainings with fewer steps


def can_record(
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
            self._record(positions, places)
        if size in self._records:
            static, graph = self._records[size]
            static.copy_(places)
            graph.replay()
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*capturable.*")
            self._step(positions, places)
        self._made[size] += 1

    def _record(self, positions: NDArray[np.int64], places: Tensor) -> None:
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
