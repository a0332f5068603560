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

PORTS = 20_000, 30_000
START_SECONDS = 300
SETTINGS = {
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_worker_niceness": "0",  # else every other program goes first
    "GRPC_ENABLE_FORK_SUPPORT": "0",  # else what Ray starts for a client ends at once now and then
    # How long that may take, and the cluster: Ray gives them half a minute, however busy it is.
    "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": str(START_SECONDS),
    "RAY_gcs_server_port_wait_time_s": str(START_SECONDS),
}


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
        for number, command in in_session(self.group).items():
            if command.split("\0")[0].endswith(name):
                return number
        raise LookupError(name)


def in_session(session: int) -> dict[int, str]:
    """The commands of all processes of a session that run, by their ids; Ray's own have groups."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (process / "cmdline").read_text()
            if command and os.getsid(int(process.name)) == session:  # an ended one has no command
                found[int(process.name)] = command
    return found


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
    port = _free_port()
    environment = {**os.environ, **SETTINGS}
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
            for number in in_session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            process.wait()


def _free_port() -> int:
    """One that no process is given by chance, as are those above 32768, before it is used."""
    for port in range(PORTS[0] + os.getpid() % 1000, PORTS[1]):
        with suppress(OSError):
            socket.create_server((HOST, port)).close()
            return port
    raise RuntimeError(f"no port of {HOST} from {PORTS[0]} to {PORTS[1]} is free")


def _command(port: int, cpus: int, folder: str) -> list[str]:
    return [
        str(Path(sys.executable).parent / "ray"),
        *("start", "--head", "--port=0", f"--node-ip-address={HOST}", f"--num-cpus={cpus}"),
        *(f"--ray-client-server-port={port}", "--min-worker-port=0", "--max-worker-port=0"),
        *("--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={folder}"),
    ]


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until the server listens; the command has ended by then, and its processes go on."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and not process.poll():
        with suppress(OSError):
            socket.create_connection((HOST, port), timeout=1).close()
            return
        time.sleep(0.1)
    raise RuntimeError(log.read_text())
