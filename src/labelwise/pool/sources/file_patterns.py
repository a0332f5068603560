"""The row files that a path names: one file, those of a folder, or those that match a pattern."""

from collections.abc import Iterable, Iterator
from glob import glob
from pathlib import Path, PurePath

from labelwise.errors import BadInput, UnknownName
from labelwise.files import sort_naturally

KINDS = (".npy", ".parquet")  # Suffixes of files that hold rows
HIDDEN, LOGS = ".", "_"  # Name prefixes of hidden files and of metadata folders, which are skipped


def make_subfolder_error(name: str, folder: str, file: str) -> BadInput:
    """The error for row files in a subfolder, which would otherwise be ignored silently."""
    pattern = f"{folder}/**/*{PurePath(file).suffix}"
    return BadInput(
        f"{name}: folder {folder} has rows in a subfolder too ({file}); give the pattern "
        f"{pattern!r} for all of them, or a folder without subfolders"
    )


def find_row_files(path: Path, name: str) -> list[Path]:
    """The row files of a path (a file, a folder, a pattern), in natural order."""
    try:
        path.is_dir()
    except OSError as error:
        shown = str(path)[:60]
        raise UnknownName(f"{name}: {shown!r} is not a path ({error.strerror})") from error
    if path.is_dir():
        found = [file for file in path.iterdir() if _is_row_file(file)]
        for deeper in _find_deeper_files(path):
            raise make_subfolder_error(name, str(path), str(deeper.relative_to(path)))
        if not found:
            raise BadInput(f"{name}: folder {path} holds no .parquet and no .npy file")
    elif path.exists():
        found = [path]
    elif any(letter in str(path) for letter in "*?["):
        found = [Path(file) for file in glob(str(path), recursive=True)]
        if not found:
            raise UnknownName(f"{name}: no file matches {path}")
    else:
        raise UnknownName(f"{name}: there is no file {path}")
    for file in found:
        if not file.is_file():
            raise BadInput(f"{name}: {file} is not a regular file; remove it or name the others")
    kinds = {file.suffix for file in found}
    if not kinds <= set(KINDS):
        wrong = next(file.name for file in sort_naturally(found) if file.suffix not in KINDS)
        raise BadInput(f"{name}: cannot read {wrong!r}; give a .npy or .parquet file")
    if len(kinds) > 1:
        raise BadInput(f"{name}: {path} names .npy and .parquet files; give files of one kind")
    return sort_naturally(found)


def _is_row_file(path: Path) -> bool:
    return path.suffix in KINDS and not path.name.startswith(HIDDEN)


def is_visible(folders: Iterable[str]) -> bool:
    """Whether none of the folders of a file is hidden or holds logs.

    >>> is_visible(["2024", "may"]), is_visible(["_delta_log"])
    (True, False)
    """
    return not any(folder.startswith((HIDDEN, LOGS)) for folder in folders)


def _find_deeper_files(folder: Path) -> Iterator[Path]:
    """Row files in the visible subfolders of a folder."""
    below = [path for path in folder.iterdir() if path.is_dir() and is_visible([path.name])]
    for inner in sort_naturally(below):
        yield from sort_naturally(file for file in inner.iterdir() if _is_row_file(file))
        yield from _find_deeper_files(inner)
