"""File change guard: the files of a pool must not change while items are picked."""

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labelwise.errors import BadInput
from labelwise.pool.sources.file_patterns import find_row_files
from labelwise.pool.sources.remote_files import is_remote
from labelwise.pool.sources.source import MappedFile, Values


class Machine(NamedTuple):
    """Identity of a machine since its last boot; host names are not unique."""

    name: str
    start: str


def this_machine() -> Machine:
    """The machine that this process runs on."""
    start = Path("/proc/sys/kernel/random/boot_id")
    return Machine(socket.gethostname(), start.read_text() if start.exists() else "")


class FileState(NamedTuple):
    """Size and modification time of files by path, as one machine sees them; zeros if missing."""

    machine: Machine
    files: dict[str, tuple[int, int]]

    @classmethod
    def read(cls, paths: Iterable[str]) -> "FileState":
        """The present state of some files on this machine."""
        return cls(this_machine(), {path: _read_file_status(Path(path)) for path in paths})

    def describe_difference(self, other: "FileState") -> str:
        """A message about a file whose size, or time on one machine, differs; empty if none."""
        for path in sorted(self.files.keys() | other.files.keys()):
            (ours, our_time), (theirs, their_time) = (
                state.files.get(path, (0, 0)) for state in (self, other)
            )
            if self.machine == other.machine and (ours, our_time) != (theirs, their_time):
                return f"{path} changed while items were picked; select from files that stay"
            if ours != theirs:
                sizes = f"{ours} bytes on {self.machine.name} but {theirs} on {other.machine.name}"
                return f"{path} has {sizes}; give every machine the same file"
        return ""


def find_source_files(values: Values) -> list[str]:
    """Absolute paths of the local files that representations are read from."""
    files: list[Path] = []
    for name, value in values.items():
        for given in value if isinstance(value, list | tuple) else [value]:
            if isinstance(given, MappedFile):
                files.append(Path(given.path))
            elif isinstance(given, np.memmap):
                files += _find_mapped_file(given)
            elif isinstance(given, str | Path) and not is_remote(given):
                files += find_row_files(Path(given), name)
    return [str(file.absolute()) for file in files]


def _find_mapped_file(rows: "np.memmap[Any, Any]") -> list[Path]:
    """The mapped file, unless only a part of it is mapped: the rest may change."""
    if rows.filename is None or not Path(rows.filename).exists():
        return []
    file = Path(rows.filename)
    return [file] if rows.offset + rows.nbytes == file.stat().st_size else []


@contextmanager
def guard_files(values: Values) -> Iterator[None]:
    """Reject files that change while rows are read; errors caused by a change name it."""
    files = find_source_files(values)
    if not files:
        yield
        return
    before = FileState.read(files)
    try:
        yield
    except Exception as error:
        if change := FileState.read(files).describe_difference(before):
            raise BadInput(change) from error
        raise
    if change := FileState.read(files).describe_difference(before):
        raise BadInput(change)


def _read_file_status(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
