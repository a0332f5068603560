"""Which files a path stands for: one, those of a folder, or all that a pattern fits."""

from glob import glob
from pathlib import Path

from labelwise.errors import BadInput, UnknownName
from labelwise.running.sources import KINDS


def part_paths(path: Path, name: str) -> list[Path]:
    """The files that a path stands for, in the order of their names.

    Args:
        path: of a file, of a folder of .npy or of .parquet files, or a pattern.
        name: what it is called in errors.
    """
    if path.is_dir():
        inside = (one for one in path.iterdir() if one.suffix in KINDS)
        found = sorted(one for one in inside if not one.name.startswith("."))
        if not found:
            raise BadInput(f"{name}: folder {path} holds no .parquet and no .npy file")
    elif path.exists():
        found = [path]
    elif any(letter in str(path) for letter in "*?["):
        found = [Path(one) for one in sorted(glob(str(path)))]
        if not found:
            raise UnknownName(f"{name}: no file is called {path}")
    else:
        raise UnknownName(f"{name}: there is no file {path}")
    kinds = {one.suffix for one in found}
    if not kinds <= set(KINDS):
        wrong = next(one.name for one in found if one.suffix not in KINDS)
        raise BadInput(f"{name}: cannot read {wrong!r}; give a .npy or .parquet file")
    if len(kinds) > 1:
        raise BadInput(f"{name}: {path} stands for .npy and .parquet files; give those of one kind")
    return found
