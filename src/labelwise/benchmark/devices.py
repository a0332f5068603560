"""The device of a run: choice, clock, peak memory, and versions for results files."""

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
    """The device of that name; ``"auto"`` chooses a GPU if there is one."""
    return choose_device(name)


def move_items(inputs: Any, device: Device) -> Items:
    """Items on the device if they fit, so that trainings do not transfer them."""
    return move_to_device(as_items(inputs), device, torch.float32)


def describe_device(device: Device) -> str:
    """Short description of the device."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"cpu, {torch.get_num_threads()} threads of {platform.machine()}"


def list_versions() -> dict[str, str]:
    """Versions of the packages that results depend on."""
    return {
        "labelwise": metadata.version("labelwise"),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


@cache
def describe_code() -> str:
    """Version and digest of the source of this package, computed once per process."""
    own = Path(__file__).resolve().parents[1]
    return f"{metadata.version('labelwise')}+{digest_source(own)}"


def digest_source(folder: Path) -> str:
    """Twelve digits that depend on the names and contents of all Python files under a folder."""
    parts = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_bytes().replace(b"\r\n", b"\n")
        parts.update(f"{path.relative_to(folder).as_posix()} {len(text)}\n".encode() + text)
    return parts.hexdigest()[:12]


def use_one_thread() -> None:
    """Compute on one thread from now on, for processes that run in parallel."""
    torch.set_num_threads(1)


class DeviceClock:
    """Measures seconds after all work of the device is done.

    >>> clock = DeviceClock(torch.device("cpu"))
    >>> clock.lap() >= 0
    True
    """

    def __init__(self, device: Device) -> None:
        """Start measuring."""
        self._device = device
        self._begin = self._read_time()

    def lap(self) -> float:
        """Seconds since the start or the last lap."""
        now = self._read_time()
        seconds, self._begin = now - self._begin, now
        return seconds

    def _read_time(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def reset_peak_memory(device: Device) -> None:
    """Measure peak memory from now on, where that is possible."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        _CLEAR.write_text("5")


def peak_megabytes(device: Device) -> float | None:
    """Peak memory of the GPU or of the process; None where it is unknown."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 2**20
    with suppress(OSError, ValueError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return None
