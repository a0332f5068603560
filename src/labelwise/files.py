"""Files: atomic writes, locks, JSON values and natural sort."""

import json
import math
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from tokenize import TokenError
from typing import Any, TypeVar

import numpy as np

from labelwise.arrays import HostArray, is_array, to_numpy
from labelwise.errors import BadInput, first_line

PathLike = TypeVar("PathLike", str, Path)
Json = Any
"""A value that JSON can hold."""
JsonObject = dict[str, Json]
"""A JSON object, as it is read from a file or a response."""
FileStamp = tuple[int, int, int]
"""Modification time, size and inode of a file, which change with its content."""


def read_file_stamp(path: Path) -> FileStamp | None:
    """The stamp of a file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@contextmanager
def write_atomically(path: str | Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the same folder that replaces ``path`` if the block succeeds.

    Args:
        path: the file to write; its folder must exist.
        durable: flush the file to disk before it replaces the old one, so that a power cut
            leaves the old or the new content.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> with write_atomically(folder / "note.txt") as part:
        ...     _ = part.write_text("done")
        >>> [file.name for file in folder.iterdir()]
        ['note.txt']
    """
    path = Path(path)
    # The suffix is kept because some libraries choose the format by it.
    handle, name = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.stem}.", suffix=f".part{path.suffix}"
    )
    os.close(handle)
    part = Path(name)
    try:
        yield part
        part.chmod(0o666 & ~_read_umask())  # mkstemp makes files that only the owner can read
        if durable:
            with part.open("rb+") as file:
                os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_output_path(path: Path, formats: Sequence[str] = ()) -> None:
    """Reject a file that cannot be written, before the work: its ending, or no folder for it."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder; give the name of a file")
    if formats and path.suffix not in formats:
        raise BadInput(f"cannot write {path.name!r}; end the name in {', '.join(formats)}")
    if not path.absolute().parent.is_dir():
        raise BadInput(f"there is no folder {path.parent} to write {path.name} to; make it")


def write_text(path: str | Path, text: str, *, durable: bool = False) -> None:
    """Write a UTF-8 text file atomically."""
    with write_atomically(path, durable=durable) as part:
        part.write_text(text, encoding="utf-8")


def write_json(
    path: str | Path, value: object, *, indent: int | None = None, durable: bool = False
) -> None:
    """Write a JSON file atomically; see `to_json` for values that JSON does not have."""
    text = json.dumps(to_json(value), ensure_ascii=False, indent=indent, allow_nan=False)
    write_text(path, text + "\n", durable=durable)


def read_json(path: str | Path) -> JsonObject:
    """Read a JSON file that holds an object.

    Raises:
        BadInput: the file is not a JSON object.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path} is damaged ({error}); restore it from a backup") from None
    if not isinstance(found, dict):
        raise BadInput(f"{path} is damaged: it is not a JSON object; restore it from a backup")
    return found


ARRAY_ERRORS = (
    *(OSError, ValueError, TypeError, OverflowError, EOFError, SyntaxError, TokenError),
    *(zipfile.BadZipFile, zlib.error),
)
"""Errors of NumPy for a file of arrays that is missing or damaged."""


def load_npy(path: str | Path) -> HostArray:
    """Map the array of a .npy file that labelwise wrote; a damaged file is an error."""
    with _name_damaged_file(path):
        array: HostArray = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def load_npz(path: str | Path) -> dict[str, HostArray]:
    """The arrays of a .npz file that labelwise wrote; a damaged file is an error."""
    with _name_damaged_file(path), Path(path).open("rb") as file:
        with np.load(file, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}


@contextmanager
def _name_damaged_file(path: str | Path) -> Iterator[None]:
    try:
        yield
    except ARRAY_ERRORS as error:
        raise BadInput(
            f"{path} is missing or damaged ({first_line(error)}); restore it from a copy, or start "
            "another campaign"
        ) from error


def to_json(value: object, *, non_finite: Callable[[float], str | None] = str) -> Json:
    """Convert a value to what strict JSON can hold.

    Arrays become lists. Other objects become their ``str``.

    Args:
        value: of any type.
        non_finite: converts infinity and NaN; by default to the texts that ``float`` reads.

    Example:
        >>> to_json({"gamma": np.inf, "ranks": np.array([3, 4]), "loss": (0.5, np.nan)})
        {'gamma': 'inf', 'ranks': [3, 4], 'loss': [0.5, 'nan']}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): to_json(entry, non_finite=non_finite) for name, entry in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    elif is_array(value):
        value = to_numpy(value).tolist()
    if isinstance(value, list | tuple):
        return [to_json(entry, non_finite=non_finite) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else non_finite(value)
    return value if isinstance(value, bool | int | str) else str(value)


@contextmanager
def lock_file(path: str | Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold an exclusive lock on a file, which is created if needed.

    Args:
        path: the lock file.
        wait: wait for another process to release it.

    Yields:
        Whether the lock is held; False if another process holds it. Always True on systems
        without ``fcntl``, where nothing is locked.
    """
    with Path(path).open("w") as file:
        try:
            import fcntl
        except ImportError:
            yield True
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def sort_naturally(paths: Iterable[PathLike]) -> list[PathLike]:
    """Sort paths folder by folder, with digits compared as numbers.

    Example:
        >>> sort_naturally(["part-10.npy", "part-2.npy", "part-1.npy"])
        ['part-1.npy', 'part-2.npy', 'part-10.npy']
    """
    return sorted(
        paths, key=lambda path: ([_split_digits(part) for part in PurePath(path).parts], str(path))
    )


def _split_digits(text: str) -> list[str | int]:
    """Alternate text and numbers; the first and the last entry are text."""
    parts = re.split(r"(\d+)", text)
    return [int(part) if position % 2 else part for position, part in enumerate(parts)]
