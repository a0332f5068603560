"""Whether the files of a pool stay what they were, on all machines that read them."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labelwise.errors import BadInput
from labelwise.pool.file_patterns import find_row_files
from labelwise.pool.parts import MappedFile, Values
from labelwise.pool.remote_files import is_remote


class Machine(NamedTuple):
    """A machine that has run since it was started; names alone may be those of many."""

    name: str
    start: str


def this_machine() -> Machine:
    """The one that this process runs on."""
    start = Path("/proc/sys/kernel/random/boot_id")
    return Machine(socket.gethostname(), start.read_text() if start.exists() else "")


class Seen(NamedTuple):
    """Files as a machine sees them: size and time of the last change by path, 0 and 0 if gone."""

    by: Machine
    files: dict[str, tuple[int, int]]

    def now(self) -> "Seen":
        """The same files as they are now, on this machine."""
        return Seen(this_machine(), {path: _facts(Path(path)) for path in self.files})

    def unlike(self, other: "Seen") -> str:
        """What is said of a file that is not the same in both; empty if all are.

        Copies on two machines may be of different times, but not of different sizes.
        """
        for path in sorted(self.files.keys() | other.files.keys()):
            (ours, our_time), (theirs, their_time) = (
                seen.files.get(path, (0, 0)) for seen in (self, other)
            )
            if self.by == other.by and (ours, our_time) != (theirs, their_time):
                return f"{path} has changed while items were picked; select from files that stay"
            if ours != theirs:
                sizes = f"{ours} bytes on {self.by.name} but {theirs} on {other.by.name}"
                return f"{path} has {sizes}; give every machine the same file"
        return ""


def see(values: Values) -> Seen:
    """The files that representations are read from, but for those in object storage."""
    files: list[Path] = []
    for name, value in values.items():
        for given in value if isinstance(value, list | tuple) else [value]:
            if isinstance(given, MappedFile):
                files.append(Path(given.path))
            elif isinstance(given, np.memmap):
                files += _whole_file(given)
            elif isinstance(given, str | Path) and not is_remote(given):
                files += find_row_files(Path(given), name)
    return Seen(this_machine(), {str(file.absolute()): (0, 0) for file in files}).now()


def _whole_file(rows: "np.memmap[Any, Any]") -> list[Path]:
    """The file that is mapped, unless only a part of it is: others may write what lies beside."""
    if rows.filename is None or not Path(rows.filename).exists():
        return []
    file = Path(rows.filename)
    return [file] if rows.offset + rows.nbytes == file.stat().st_size else []


@contextmanager
def unchanged(values: Values) -> Iterator[None]:
    """Refuse files that change while rows are read; of an error that it led to, say the cause."""
    before = see(values)
    try:
        yield
    except Exception as error:
        if changed := before.now().unlike(before):
            raise BadInput(changed) from error
        raise
    if changed := before.now().unlike(before):
        raise BadInput(changed)


def _facts(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
