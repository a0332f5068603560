"""The head of a small Ray cluster in processes of its own, with a server for Ray's client."""

import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HOST = "127.0.0.2"  # all of 127.x.x.x is this machine; Ray replaces 127.0.0.1 by a public address


class Head:
    """A head that runs.

    Attributes:
        address: what to give as ``on``.
        group: of its processes.
        environment: for processes that join it.
    """

    def __init__(self, group: int, port: int, environment: dict[str, str]) -> None:
        self.group, self.environment = group, environment
        self.address = f"ray://{HOST}:{port}"

    def pid(self, name: str) -> int:
        """The process of the head whose program is called so."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                program = (process / "cmdline").read_text().split("\0")[0]
                if program.endswith(name) and os.getpgid(int(process.name)) == self.group:
                    return int(process.name)
        raise LookupError(name)


def new_secret() -> dict[str, str]:
    """What every process of a cluster needs in its environment."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def started_head(cpus: int = 2) -> Iterator[Head]:
    """Start a head at ports that are free, and end all of its processes.

    Its secret is the one of this process, if it has one: Ray reads it once. There is one head at a
    time on a machine, because their servers would take each other's ports.
    """
    with open(Path(tempfile.gettempdir()) / "labelwise-ray-head.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _head(cpus) as head:
            yield head


@contextmanager
def _head(cpus: int) -> Iterator[Head]:
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    # Without the second, what Ray starts for a client ends at once now and then.
    settings = {"RAY_memory_monitor_refresh_ms": "0", "GRPC_ENABLE_FORK_SUPPORT": "0"}
    environment = {**os.environ, **settings}
    if "RAY_AUTH_MODE" not in environment:
        environment |= new_secret()
    environment.pop("RAY_ADDRESS", None)
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "start.log"
        command = _command(port, cpus, folder)
        with log.open("w") as out:
            streams = {"stdout": out, "stderr": out, "stdin": subprocess.DEVNULL}
            process = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
        try:
            _wait_for(port, process, log)
            yield Head(process.pid, port, environment)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _command(port: int, cpus: int, folder: str) -> list[str]:
    return [
        str(Path(sys.executable).parent / "ray"),
        *("start", "--head", "--port=0", f"--node-ip-address={HOST}", f"--num-cpus={cpus}"),
        *(f"--ray-client-server-port={port}", "--min-worker-port=0", "--max-worker-port=0"),
        *("--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={folder}"),
    ]


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until the server listens; the command has ended by then, and its processes go on."""
    end = time.monotonic() + 60
    while time.monotonic() < end and not process.poll():
        with suppress(OSError):
            socket.create_connection((HOST, port), timeout=1).close()
            return
        time.sleep(0.1)
    raise RuntimeError(log.read_text())
