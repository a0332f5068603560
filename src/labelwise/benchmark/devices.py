"""Where runs compute: the device, its clock, the most memory in use, and versions."""

import hashlib
import platform
import time
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labelwise.learners.inputs import Items, as_items, move_to_device
from labelwise.learners.preparation import choose_device

Device = torch.device

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def find_device(name: str) -> Device:
    """The device of that name; ``"auto"`` is a GPU where there is one."""
    return choose_device(name)


def on_device(inputs: Any, device: Device) -> Items:
    """Items that lie on the device, if they fit there, so that no training has to move them."""
    return move_to_device(as_items(inputs), device, torch.float32)


def described(device: Device) -> str:
    """The device in a few words, for a results file."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"cpu, {torch.get_num_threads()} threads of {platform.machine()}"


def versions() -> dict[str, str]:
    """Of what numbers may depend on."""
    return {
        "labelwise": metadata.version("labelwise"),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


@cache
def code() -> str:
    """Version and digest of this package's own source, which tells lines of two states apart.

    It is computed once in a process, in some hundredths of a second.
    """
    own = Path(__file__).resolve().parents[1]
    return f"{metadata.version('labelwise')}+{source_digest(own)}"


def source_digest(folder: Path) -> str:
    """Twelve digits that change with any Python file under a folder, its name or its text."""
    parts = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_bytes().replace(b"\r\n", b"\n")
        parts.update(f"{path.relative_to(folder).as_posix()} {len(text)}\n".encode() + text)
    return parts.hexdigest()[:12]


def one_thread() -> None:
    """Compute on one thread from now on; for processes that run side by side."""
    torch.set_num_threads(1)


class Clock:
    """Seconds, stage by stage, with all work of the device done.

    >>> clock = Clock(torch.device("cpu"))
    >>> clock.lap() >= 0
    True
    """

    def __init__(self, device: Device) -> None:
        """Begin."""
        self._device = device
        self._begin = self._now()

    def lap(self) -> float:
        """Seconds since the beginning or the last lap."""
        now = self._now()
        passed, self._begin = now - self._begin, now
        return passed

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def forget_peak(device: Device) -> None:
    """Measure the most memory in use from now on, where that can be done."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        _CLEAR.write_text("5")


def peak_megabytes(device: Device) -> float | None:
    """The most memory in use: of the GPU, or of the process; None where it cannot be known."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 2**20
    with suppress(OSError, ValueError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return None
