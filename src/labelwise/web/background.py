"""Both ends of a background process: the server starts and ends it, the process reports to it.

Orders go to the input of the process and reports come from its output, one line each. The process
ends when its input closes, so it never outlives the server, even a killed one.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from labelwise.errors import LabelwiseWarning
from labelwise.pool.blocks import Progress

REPORT_INTERVAL = 0.3  # Seconds between two reports of progress

READY = "getting ready"  # Stage of an idle process that imports libraries in advance
WORK = ("train", "refresh")  # Orders to do something; others only wake the process

WorkerOrder = tuple[str, float]  # An order and the time of its arrival, by the monotonic clock


@dataclass(frozen=True)
class WorkerReport:
    """The last report of a background process."""

    stage: str | None = None
    done: int | None = None
    total: int | None = None
    error: str | None = None


class BackgroundProcess:
    """A background process as its server sees it."""

    def __init__(
        self, command: Sequence[str], *, on_exit: Callable[[int, str], None] | None = None
    ) -> None:
        """Remember the command; `start` runs it.

        ``on_exit`` gets the PID and the reason when the process ends by itself.
        """
        self._command, self._on_exit = list(command), on_exit
        self._process: subprocess.Popen[str] | None = None
        self._lock, self._report_lock = threading.Lock(), threading.Lock()
        self._stopping = False
        self._reader: threading.Thread | None = None
        self.report = WorkerReport()  # the last report
        self.changes = 0  # number of reports that differed from the one before

    @property
    def pid(self) -> int | None:
        """PID of the running process."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Start the process unless it is running."""
        with self._lock:
            if self._stopping or self.pid is not None:
                return
            # Leave one core to the server, unless a number of threads is set.
            threads = str(max(1, (os.cpu_count() or 1) - 1))
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={"OMP_NUM_THREADS": threads, **os.environ},
            )
            self._set_report(self._process, WorkerReport(stage=READY))
            self._reader = threading.Thread(
                target=self._read_reports, args=(self._process,), daemon=True
            )
            self._reader.start()

    def send_order(self, order: str) -> bool:
        """Send an order; those in `WORK` start a process that has ended. False if not sent."""
        if order in WORK:
            self.start()
        with self._lock:
            process = self._process
            if process is None or process.stdin is None or process.poll() is not None:
                return False
            try:
                process.stdin.write(order + "\n")
                process.stdin.flush()
            except (OSError, ValueError):  # the process has just ended; the reader reports it
                return False
            return True

    def stop(self, seconds: float = 3.0) -> None:
        """End the process: close its input, then terminate it, then kill it."""
        with self._lock:
            self._stopping = True
            process = self._process
        if process is None:
            return
        _close_process_input(process)
        for end in (process.terminate, process.kill):
            try:
                process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                end()
        process.wait()
        if self._reader is not None:
            self._reader.join(seconds)

    def _read_reports(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                with suppress(ValueError, TypeError):  # a line that a library printed
                    self._set_report(process, WorkerReport(**json.loads(line)))
        code = process.wait()
        _close_process_input(process)
        if not self._stopping:
            error = describe_process_exit(code)
            self._set_report(process, WorkerReport(error=error))
            if self._on_exit is not None:
                self._on_exit(process.pid, error)

    def _set_report(self, process: "subprocess.Popen[str]", report: WorkerReport) -> None:
        """Keep a report, unless its process has been replaced."""
        with self._report_lock:
            if process is self._process and report != self.report:
                self.report = report
                self.changes += 1


def build_worker_command(home: Path) -> list[str]:
    """The command that starts the background process of a campaign."""
    return [sys.executable, "-m", "labelwise.web.worker", str(home)]


def describe_process_exit(code: int) -> str:
    """Explain why a process ended by itself.

    >>> describe_process_exit(-9)
    'the training process was ended by SIGKILL, perhaps for lack of memory; try again'
    """
    if code >= 0:
        return f"the training process ended with code {code}; see the server's terminal, try again"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    memory = ", perhaps for lack of memory" if name == "SIGKILL" else ""
    return f"the training process was ended by {name}{memory}; try again"


def _close_process_input(process: "subprocess.Popen[str]") -> None:
    with suppress(OSError):  # it ended before it had read everything
        if process.stdin is not None:
            process.stdin.close()


def connect_to_server() -> tuple[Callable[..., None], "queue.Queue[WorkerOrder]"]:
    """Make this process a background process of the server that started it.

    Returns:
        ``report(**fields)``, which sends a `WorkerReport`, and the queue of orders.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the server, which ends this process
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of libraries goes to the terminal
    orders: queue.Queue[WorkerOrder] = queue.Queue()
    threading.Thread(target=_read_worker_orders, args=(sys.stdin, orders), daemon=True).start()
    warnings.simplefilter("always", LabelwiseWarning)
    if hasattr(os, "nice"):
        os.nice(10)  # the server has priority

    def report(**fields: object) -> None:
        output.write(json.dumps(fields) + "\n")
        output.flush()

    return report, orders


def limit_progress_reports(report: Progress) -> Progress:
    """Pass on progress a few times per second, and always its end."""
    last = 0.0

    def report_sometimes(stage: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done == total or now - last > REPORT_INTERVAL:
            last = now
            report(stage, done, total)

    return report_sometimes


def _read_worker_orders(lines: TextIO, orders: "queue.Queue[WorkerOrder]") -> None:
    """Queue orders until the input closes, which means that the server has ended."""
    for line in lines:
        orders.put((line.strip(), time.monotonic()))
    os._exit(0)
