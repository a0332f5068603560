"""The device of a run: choice, clock, peak memory, and the line of a study."""

import platform
import time
from typing import Any

import torch

from labelwise.benchmark.lines import make_result_line, peak_process_memory, reset_process_memory
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.learners.inputs import Items, as_items, move_to_device
from labelwise.learners.preparation import choose_device

Device = torch.device


def find_benchmark_device(name: str) -> Device:
    """The device of that name; ``"auto"`` chooses a GPU if there is one."""
    return choose_device(name)


def move_items_to_device(inputs: Any, device: Device) -> Items:
    """Items on the device if they fit, so that trainings do not transfer them."""
    return move_to_device(as_items(inputs), device, torch.float32)


def describe_device(device: Device) -> str:
    """Short description of the device."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"cpu, {torch.get_num_threads()} threads of {platform.machine()}"


def use_one_torch_thread() -> None:
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


def reset_device_memory(device: Device) -> None:
    """Measure peak memory from now on, where that is possible."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        reset_process_memory()


def peak_device_memory(device: Device) -> float | None:
    """Peak memory of the GPU or of the process; None where it is unknown."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 2**20
    return peak_process_memory()


def make_study_line(
    protocol: Protocol,
    entrant: Entrant,
    seed: int,
    device: Device,
    number: int,
    labels: int,
    value: float,
    seconds: float,
) -> RoundResult:
    """A result line of a study with one measurement; ``seconds`` count as those of selecting."""
    return make_result_line(
        protocol,
        entrant,
        seed,
        round=number,
        labels=labels,
        values=(value,),
        seconds={"train": 0.0, "represent": 0.0, "select": seconds},
        device=describe_device(device),
        peak_megabytes=peak_device_memory(device),
    )
