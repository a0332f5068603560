"""A training step that a GPU replays without Python in between (a CUDA graph).

A step of small networks is a few hundred kernels of microseconds each, and Python needs longer to
start one than the GPU to run it. The kernels are the same every time; only the items differ. So a
few steps are made as ever, one more is recorded, reading its items' positions from a fixed tensor,
and from then on the positions are copied there and the record is replayed.

The steps are those that Python would have made, in the same order. There is a record for each size
of a batch (sizes differ by one item). Where recording fails, all steps are made as ever.
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

FIRST = 3
"""So many steps of a size are made before one is recorded: they set up what it must find ready."""

WORTH = 200
"""A training of fewer steps is not worth the recording."""


def can_record(
    optimizer: torch.optim.Optimizer,
    settings: TrainingSettings,
    device: torch.device,
    *,
    steps: int,
) -> bool:
    """Whether a step can be recorded; the optimizer is then told to keep its counters there.

    Not where something changes from step to step that is no tensor on the device: the learning rate
    of a schedule, an augmentation. Mixed precision keeps copies of its own between steps.
    """
    fixed = settings.schedule is None and settings.augment is None and not settings.amp
    if device.type != "cuda" or not fixed or steps < WORTH:
        return False
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = True
    return True


class CudaGraphStep:
    """Call it as the step it was made of."""

    def __init__(self, step: Step) -> None:
        """Remember the step; it is recorded when it has been made a few times."""
        self._step, self._failed = step, False
        self._made: Counter[torch.Size] = Counter()
        self._records: dict[torch.Size, tuple[Tensor, Any]] = {}

    def __call__(self, positions: NDArray[np.int64], places: Tensor) -> None:
        """Make the step for the items at ``positions`` ``(M, b)``, and ``places`` on the device."""
        size = places.shape
        if size not in self._records and self._made[size] >= FIRST and not self._failed:
            self._record(positions, places)
        if size in self._records:
            static, graph = self._records[size]
            static.copy_(places)
            graph.replay()
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*capturable.*")  # we mean to record it
            self._step(positions, places)
        self._made[size] += 1

    def _record(self, positions: NDArray[np.int64], places: Tensor) -> None:
        """Record a step, which is not made by that."""
        static, graph = places.clone(), torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._step(positions, static)
        except RuntimeError:  # something in it waits for the host
            self._failed = True
            torch.cuda.synchronize(places.device)
            return
        self._records[places.shape] = static, graph
