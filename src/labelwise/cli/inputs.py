"""The files that a selection reads: named, there, and none of them written to."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from labelwise.errors import BadInput

Given = Mapping[str, str | list[str]]


def named_files(**files: list[str] | None) -> dict[str, str | list[str]]:
    """Those that are given, by representation; several of one are several models'.

    Example:
        >>> named_files(features=["f.npy"], logits=None, duals=["d.npy", "e.npy"])
        {'features': 'f.npy', 'duals': ['d.npy', 'e.npy']}
    """
    for name, paths in files.items():
        if paths and not all(paths):
            raise BadInput(f"{name}: '' is no file; give its name")
    return {name: v[0] if len(v) == 1 else v for name, v in files.items() if v}


def check_apart(out: Path | None, given: Given, *lists: Path | None) -> None:
    """Refuse a file of a pool that is missing, even if it is not needed, and one to be written to.

    Args:
        out: what will be written, if anything.
        given: files, folders and patterns by representation, as `named_files` makes them.
        *lists: other files that are read.
    """
    from labelwise.pool.file_patterns import KINDS, find_row_files

    places = list(_local(given))
    read = [part for name, path in places for part in find_row_files(path, name)]
    if out is None:
        return
    for file in [*read, *(path for path in lists if path is not None)]:
        if out.exists() and file.exists() and out.samefile(file):
            raise BadInput(f"--out {out} would overwrite {file}, which is read; give another name")
    for _, path in places:
        if path.is_dir() and out.suffix in KINDS and out.parent.samefile(path):
            raise BadInput(f"--out {out} would become a part of the pool; give another folder")


def _local(given: Given) -> Iterator[tuple[str, Path]]:
    """What is on this machine, also by a URL, with the name of its representation."""
    for name, value in given.items():
        for text in [value] if isinstance(value, str) else value:
            if text.startswith("file://"):
                yield name, Path(unquote(urlsplit(text).path))
            elif "://" not in text:
                yield name, Path(text)
