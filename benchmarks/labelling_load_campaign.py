"""What the load benchmark labels: a pool, its campaign, a storage, and the server before it."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.campaign.project import Project
from labelwise.record.events import Asked

COLUMNS, CLASSES = 8, ("owl", "wren", "kite")
BATCH = 100_000
LEND_SECONDS = 600.0

LABELWISE = [sys.executable, "-c", "import sys; from labelwise.cli import main; sys.exit(main())"]
"""The command line of the labelwise that this process imports."""


def make_pool(path: Path, items: int, seed: int) -> None:
    """A feature file of so many items."""
    rows = np.random.default_rng(seed).standard_normal((items, COLUMNS), dtype=np.float32)
    np.save(path, rows)


def start_campaign(pool: Path, home: Path, storage: str | None, **settings: Any) -> Project:
    """A campaign over the pool, with its record in a storage or in the file of its folder."""
    return Project.start(
        pool,
        home=home,
        classes=CLASSES,
        storage=storage,
        validation=0.0,
        lend_seconds=LEND_SECONDS,
        **settings,
    )


def storage_url(project: Project) -> str:
    """Where a campaign's record is."""
    return project.description.storage or f"sqlite:///{(project.home / 'record.db').absolute()}"


def ask_for_all(project: Project, seed: int) -> int:
    """Ask for every item of the pool in random order, in large batches; how many batches."""
    order = np.random.default_rng(seed).permutation(len(project.items)).tolist()
    batches = [tuple(order[first : first + BATCH]) for first in range(0, len(order), BATCH)]
    events = [
        Asked(at=time.time(), batch=number, ids=ids, strategy="random", seed=seed)
        for number, ids in enumerate(batches, start=1)
    ]
    project.storage().append(project.name, events, expected=1)
    return len(batches)


@contextmanager
def open_place(kind: str, folder: Path) -> Iterator[tuple[str | None, int | None]]:
    """A storage's URL (None for the file in the campaign's folder), and its server's process."""
    if kind == "sqlite":
        yield None, None
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has an opinion about folders where we want none
        from pgserver.postgres_server import get_server
    with tempfile.TemporaryDirectory(prefix="postgres-", dir=folder) as data:
        os.chmod(data, 0o755)  # the server may run as another user
        server = get_server(Path(data).resolve() / "data", cleanup_mode="stop")
        try:
            url = str(server.get_uri()).replace("postgresql:", "postgresql+psycopg:", 1)
            yield url, server.get_pid()
        finally:
            server.cleanup()


class Server:
    """``labelwise label --no-training`` in a process of its own."""

    def __init__(self, home: Path) -> None:
        begin = time.perf_counter()
        command = [*LABELWISE, "label", "--campaign", str(home)]
        command += ["--port", "0", "--no-open", "--no-training"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        self.port = self._read_port()
        self.seconds_to_start = time.perf_counter() - begin

    def _read_port(self, patience: float = 120.0) -> int:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], patience)
        said = self._process.stdout.readline() if ready else ""
        if "http://127.0.0.1:" not in said:
            self._process.kill()
            raise RuntimeError(f"the server did not start: {said!r}")
        return int(said.rpartition("http://127.0.0.1:")[2].strip().rstrip("/"))

    def stop(self) -> None:
        """Let it end as Ctrl-C would."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def cpu_seconds(pid: int | None) -> float | None:
    """CPU time of a process and of its children so far; None where the system does not tell."""
    if pid is None or not Path(f"/proc/{pid}/stat").exists():
        return None
    family = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    total = 0.0
    for each in family:
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # a child that has ended
            continue
        total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # ended children's too
    return total


def resident_megabytes(pid: int) -> float | None:
    """Memory of a process."""
    path = Path(f"/proc/{pid}/status")
    if not path.exists():
        return None
    line = next(line for line in path.read_text().splitlines() if line.startswith("VmRSS:"))
    return round(int(line.split()[1]) * 1024 / 1e6, 1)


def syncs_per_second(folder: Path, seconds: float) -> float:
    """How often the disk can be made to keep 4 kB more, one write after the other."""
    sync = getattr(os, "fdatasync", os.fsync)
    path, block, count = folder / "syncs", os.urandom(4096), 0
    with path.open("wb", buffering=0) as file:
        begin = time.perf_counter()
        while (spent := time.perf_counter() - begin) < seconds:
            file.write(block)
            sync(file.fileno())
            count += 1
    path.unlink()
    return count / spent
