"""The server's side of the background process: starts it, listens to it, ends it.

The process is told what to do through its input and says how far it is on its output, a line of
JSON each. It ends when its input does, so it cannot outlive the server, even one that was killed.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READY = "getting ready"
"""What the process does before there is anything to do."""


@dataclass(frozen=True)
class Progress:
    """What the background process last said about itself."""

    stage: str | None = None
    done: int | None = None
    total: int | None = None
    error: str | None = None


class Supervisor:
    """One background process, if wanted.

    Args:
        command: What to run; see `worker_command`.
        ended: Called with what happened when the process ends by itself.
    """

    def __init__(
        self, command: Sequence[str], *, ended: Callable[[int, str], None] | None = None
    ) -> None:
        self._command, self._ended = list(command), ended
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._saying = threading.Lock()
        self._stopping = False
        self._listener: threading.Thread | None = None
        self.progress = Progress()
        self.changes = 0

    @property
    def process_id(self) -> int | None:
        """Of the running process."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Start the process unless it is running."""
        with self._lock:
            if self._stopping or self.process_id is not None:
                return
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=_leaving_a_core(os.environ),
            )
            self._say(self._process, Progress(stage=READY))
            listen = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
            self._listener = listen
            listen.start()

    def ask(self, order: str) -> bool:
        """Send the process an order (``train`` or ``look``), and start it if it had ended."""
        if order == "train":
            self.start()
        with self._lock:
            process = self._process
            if process is None or process.stdin is None or process.poll() is not None:
                return False
            try:
                process.stdin.write(order + "\n")
                process.stdin.flush()
            except (OSError, ValueError):  # it ended just now; the listener will say so
                return False
            return True

    def stop(self, seconds: float = 3.0) -> None:
        """End the process: close its input, and end it by force if that is not enough."""
        with self._lock:
            self._stopping = True
            process = self._process
        if process is None:
            return
        _close(process)
        for last_resort in (process.terminate, process.kill):
            try:
                process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                last_resort()
        process.wait()
        if self._listener is not None:
            self._listener.join(seconds)

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                said = _parse(line)
                if said is not None:
                    self._say(process, said)
        code = process.wait()
        _close(process)
        if self._stopping:
            return
        error = how_it_ended(code)
        self._say(process, Progress(error=error))
        if self._ended is not None:
            self._ended(process.pid, error)

    def _say(self, by: "subprocess.Popen[str]", progress: Progress) -> None:
        """Note what a process says; not of one that ended and has been replaced meanwhile."""
        with self._saying:
            if by is self._process and progress != self.progress:
                self.progress = progress
                self.changes += 1


def _leaving_a_core(environment: Mapping[str, str]) -> dict[str, str]:
    """Where nobody said how many threads to train with: all cores but one, for those who label."""
    threads = str(max(1, (os.cpu_count() or 1) - 1))
    return {"OMP_NUM_THREADS": threads, **environment}


def worker_command(home: Path) -> list[str]:
    """What starts the background process of a campaign."""
    return [sys.executable, "-m", "labelwise.web.worker", str(home)]


def how_it_ended(code: int) -> str:
    """What to tell people about a process that ended by itself.

    >>> how_it_ended(-9)
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


def _close(process: "subprocess.Popen[str]") -> None:
    try:
        if process.stdin is not None:
            process.stdin.close()
    except OSError:  # it has ended, and did not read all
        pass


def _parse(line: str) -> Progress | None:
    """A line of progress; anything else that a library printed is passed by."""
    try:
        said: dict[str, Any] = json.loads(line)
        return Progress(**said)
    except (ValueError, TypeError):
        return None
