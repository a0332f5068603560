"""Files that outlive an interruption: whole or not at all, one owner at a time, errors in words."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from labelwise.errors import BadInput, StorageFailed


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Say which folder cannot be written to."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(
            f"cannot write to {folder} ({_reason(error)}), where resume keeps how far it has come; "
            "make room there, or give another folder"
        ) from error


@contextmanager
def intact(path: Path) -> Iterator[None]:
    """Say which folder is damaged if a file in it cannot be read as it was written."""
    try:
        yield
    except BadInput:  # in words already
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError) as error:
        raise BadInput(
            f"{path.parent} is damaged ({path.name}: {_reason(error)}); delete the folder and "
            "start again"
        ) from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file, for which its folder is refused to other processes."""
    with writing(path.parent):
        file = path.open("w")
    with file:
        try:
            system: Any = import_module("fcntl")
        except ImportError:  # not a POSIX system: nobody is kept out
            yield
            return
        try:
            system.flock(file, system.LOCK_EX | system.LOCK_NB)
        except OSError as error:
            raise BadInput(
                f"another selection is using {path.parent}; wait for it, or give another folder"
            ) from error
        yield


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write that appears whole or not at all."""
    with part(path).open("wb") as file:
        yield file
        to_disk(file)
    os.replace(part(path), path)


def part(path: Path) -> Path:
    """What a file is called that is not yet whole."""
    return path.with_suffix(".part")


def to_disk(file: BinaryIO) -> None:
    """Wait until what was written would outlive a power cut."""
    file.flush()
    os.fsync(file.fileno())


def read_json(path: Path) -> dict[str, Any] | None:
    """The values in a file; None if there is none."""
    with intact(path):
        if not path.exists():
            return None
        found = json.loads(path.read_text())
        if not isinstance(found, dict):
            raise TypeError("no JSON object")
        return found


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write values for `read_json`; what JSON does not have is written as its text."""
    with whole(path) as file:
        file.write(as_json(values).encode())


def as_json(values: Mapping[str, Any]) -> str:
    """The text that `write_json` writes."""
    return json.dumps(dict(values), default=repr)
