"""Find the images in a folder."""

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from labelwise.media.images import IMAGE_SUFFIXES


@dataclass(frozen=True)
class FolderImages:
    """The images in a folder."""

    paths: Sequence[str]  # relative to it, separated by /, in alphabetical order
    refused: Mapping[str, str]
    others: Mapping[str, int]  # number of other files by suffix


def find_images(folder: Path) -> FolderImages:
    """Find images in a folder and below; hidden files, campaigns and linked folders are ignored."""
    real = folder.resolve()
    paths: list[str] = []
    refused: dict[str, str] = {}
    others: dict[str, int] = {}
    for place, folders, files in os.walk(real):
        here = Path(place)
        for name in sorted(folders):
            if (here / name).is_symlink() and not (here / name).resolve().is_relative_to(real):
                refused[_relative_path(here / name, real)] = "a link that leads out of the folder"
        folders[:] = [n for n in folders if not n.startswith(".") and not n.endswith(".labelwise")]
        for name in files:
            file = here / name
            if name.startswith("."):
                continue
            if file.suffix.lower() not in IMAGE_SUFFIXES:
                suffix = file.suffix.lower() or "no suffix"
                others[suffix] = others.get(suffix, 0) + 1
                continue
            mode = file.lstat().st_mode
            if stat.S_ISLNK(mode) and not file.resolve().is_relative_to(real):
                refused[_relative_path(file, real)] = "a link that leads out of the folder"
            elif not stat.S_ISREG(mode) and file.exists() and not file.is_file():
                refused[_relative_path(file, real)] = "not a regular file"
            else:
                paths.append(_relative_path(file, real))
    return FolderImages(sorted(paths), refused, others)


def _relative_path(path: Path, folder: Path) -> str:
    return str(PurePosixPath(*path.relative_to(folder).parts))
