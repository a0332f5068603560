"""Which files a path stands for: one, those of a folder, or all that a pattern fits."""

import re
from collections.abc import Iterable, Iterator
from glob import glob
from pathlib import Path, PurePath
from typing import TypeVar

from labelwise.errors import BadInput, UnknownName
from labelwise.pool.sources import KINDS

HIDDEN, LOGS = ".", "_"
"""How the names of half written files begin, and of folders in which other tools keep their own."""

Name = TypeVar("Name", str, Path)


def in_order(paths: Iterable[Name]) -> list[Name]:
    """Paths by name, folder by folder; runs of digits count as numbers.

    So parts of one pool are in the order in which they were written, whatever they are.

    >>> in_order(["part-10.npy", "part-2.npy", "part-1.npy"])
    ['part-1.npy', 'part-2.npy', 'part-10.npy']
    """
    return sorted(paths, key=lambda path: ([_words(one) for one in PurePath(path).parts], path))


def _words(text: str) -> list[str | int]:
    """Text and numbers in turn, the first and the last a text."""
    return [int(one) if at % 2 else one for at, one in enumerate(re.split(r"(\d+)", text))]


def in_sub_folder(name: str, folder: str, file: str) -> BadInput:
    """The error for files in a folder of a folder, which would otherwise be left out silently.

    Args:
        name: what the rows are called.
        folder: what was given.
        file: one of the files, from there.
    """
    pattern = f"{folder}/**/*{PurePath(file).suffix}"
    return BadInput(
        f"{name}: folder {folder} has rows in a sub-folder too ({file}); give the pattern "
        f"{pattern!r} for all of them, or a folder without sub-folders"
    )


def part_paths(path: Path, name: str) -> list[Path]:
    """The files that a path stands for, in the order of their names (`in_order`).

    Args:
        path: of a file, of a folder of .npy or of .parquet files, or a pattern.
        name: what it is called in errors.
    """
    if path.is_dir():
        found = [one for one in path.iterdir() if _is_rows(one)]
        for deeper in _deeper(path):
            raise in_sub_folder(name, str(path), str(deeper.relative_to(path)))
        if not found:
            raise BadInput(f"{name}: folder {path} holds no .parquet and no .npy file")
    elif path.exists():
        found = [path]
    elif any(letter in str(path) for letter in "*?["):
        found = [Path(one) for one in glob(str(path), recursive=True)]
        if not found:
            raise UnknownName(f"{name}: no file is called {path}")
    else:
        raise UnknownName(f"{name}: there is no file {path}")
    kinds = {one.suffix for one in found}
    if not kinds <= set(KINDS):
        wrong = next(one.name for one in in_order(found) if one.suffix not in KINDS)
        raise BadInput(f"{name}: cannot read {wrong!r}; give a .npy or .parquet file")
    if len(kinds) > 1:
        raise BadInput(f"{name}: {path} stands for .npy and .parquet files; give those of one kind")
    return in_order(found)


def _is_rows(path: Path) -> bool:
    return path.suffix in KINDS and not path.name.startswith(HIDDEN)


def is_open(folders: Iterable[str]) -> bool:
    """Whether none of the folders that a file is in is hidden, or of logs.

    >>> is_open(["2024", "may"]), is_open(["_delta_log"])
    (True, False)
    """
    return not any(one.startswith((HIDDEN, LOGS)) for one in folders)


def _deeper(folder: Path) -> Iterator[Path]:
    """Files of rows in the folders of a folder."""
    for one in in_order(one for one in folder.iterdir() if one.is_dir() and is_open([one.name])):
        yield from in_order(some for some in one.iterdir() if _is_rows(some))
        yield from _deeper(one)
