"""Find out before the work whether its result can be written."""

import tempfile
from pathlib import Path

from labelwise.errors import BadInput


def check_file(path: Path, *, make_folder: bool = False) -> None:
    """Refuse a file that cannot be written, by trying its folder.

    Args:
        path: of the file.
        make_folder: whether the command makes a folder that is missing.
    """
    if path.is_dir():
        raise BadInput(f"{path} is a folder; give the name of a file")
    if not path.parent.is_dir():
        if make_folder and not path.parent.exists():
            return
        raise BadInput(f"there is no folder {path.parent} to write {path.name} to; make it")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise BadInput(
            f"cannot write to the folder {path.parent} ({error.strerror}); give another --out"
        ) from None


def check_folder(path: Path) -> None:
    """Refuse a folder that is a file."""
    if path.exists() and not path.is_dir():
        raise BadInput(f"{path} is a file; give a folder")
