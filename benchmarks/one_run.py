"""Run one measurement in a process of its own, so that time and memory are clean.

`run_alone` starts a process that calls ``function(task)`` of one of the benchmark's modules and
hands back what that returns, or why there is nothing to hand back: not installed, over the limit
of seconds, out of memory. The function measures its calls with a `Meter`.
"""

import gc
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


class Meter:
    """Seconds and peak memory of calls, none of which may take longer than ``limit`` seconds."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.seconds: list[float] = []
        self.peak_bytes = 0
        self._before = 0

    def warm_up(self, call: Callable[[], Any]) -> None:
        """Call once without measuring: imports, threads and caches are ready afterwards."""
        signal.setitimer(signal.ITIMER_REAL, self._limit + 60)
        call()
        signal.setitimer(signal.ITIMER_REAL, 0)

    def measure(self, call: Callable[[], Any]) -> Any:
        """Call once; the operating system ends this process when the limit is over."""
        if not self.seconds:  # later calls are timed as they come, in a process that has run it
            gc.collect()
            self._before = _resident(reset=True)
        signal.setitimer(signal.ITIMER_REAL, self._limit)
        begin = time.perf_counter()
        answer = call()
        self.seconds.append(time.perf_counter() - begin)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.peak_bytes = max(self.peak_bytes, _peak() - self._before)
        return answer


def _resident(*, reset: bool = False) -> int:
    """Bytes in memory now; ``reset`` makes the peak start from here (on Linux)."""
    if not Path("/proc/self/status").exists():
        return _peak()
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    """The most bytes that were in memory.

    Linux also counts it per process image; ``ru_maxrss`` begins with that of the parent.
    """
    if Path("/proc/self/status").exists():
        return _status("VmHWM")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def run_alone(module: str, function: str, task: dict[str, Any], threads: int) -> dict[str, Any]:
    """What ``module.function(task)`` returns in a process of its own, or an ``error``.

    Args:
        module: a module beside this one.
        function: takes the task and returns what JSON can hold.
        task: ``memory_gigabytes`` limits the address space, ``limit`` is named in errors.
        threads: how many threads libraries may use.
    """
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        order = json.dumps({"module": module, "function": function, "task": task})
        command = [sys.executable, __file__, order, str(result)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if result.exists():
            return json.loads(result.read_text())
    if done.returncode == -signal.SIGALRM:
        return {"error": f"over the limit of {task['limit']:g} seconds"}
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {"error": f"ended with code {done.returncode}: {last}"}


def main() -> None:
    """Do what the command line orders and write the result to the file that it names."""
    order, result = json.loads(sys.argv[1]), Path(sys.argv[2])
    task = order["task"]
    most = int(task["memory_gigabytes"] * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        answer = getattr(importlib.import_module(order["module"]), order["function"])(task)
    except ImportError as error:
        answer = {"error": f"cannot be imported: {error}"}
    except Exception as error:
        answer = {"error": _reason(error, task)}
    result.write_text(json.dumps(answer))


def _reason(error: Exception, task: dict[str, Any]) -> str:
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return f"out of memory ({task['memory_gigabytes']:g} GB)"
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"


def circumstances(threads: int) -> dict[str, Any]:
    """The machine and the libraries: what one must know to repeat a line."""
    import scipy

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "threads": threads,
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "load_average": round(os.getloadavg()[0], 2),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "blas": f"{blas['name']} {blas['version']}",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _cpu() -> str:
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    import platform

    return platform.processor() or platform.machine()


def write_line(line: dict[str, Any], out: Path | None) -> None:
    """Print a line and, where a file is given, append it there too."""
    text = json.dumps(line)
    print(text, flush=True)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
