"""What pictures become before a network sees them: bytes of a square, offline and without torch.

A picture is turned upright, put on white, and scaled as a whole to ``(channels, side, side)``.

Cost: one pass over the files, which are read side by side.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from labelwise.errors import BadInput, MissingDependency
from labelwise.pool.blocks import Progress

Arrays = NDArray[Any]
T = TypeVar("T")

SIDE = 32
"""Pictures are scaled to squares of this side, or of their own where all are smaller."""

PICTURES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"))
"""The endings of files that are taken for pictures."""

_GREY = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N", "F")
_SIDE_BY_SIDE = 512


@dataclass(frozen=True)
class PictureForm:
    """What pictures have in common.

    Attributes:
        side: of the square that each is scaled to.
        grey: whether none has colours.
        broken: what is wrong with files that are no pictures.
    """

    side: int
    grey: bool
    broken: Mapping[Path, str] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one item: channels, height, width."""
        return (1 if self.grey else 3, self.side, self.side)

    def __str__(self) -> str:
        return f"{self.side} x {self.side}, {'grey' if self.grey else 'colour'}"


def picture_form(
    files: Sequence[Path], *, side: int = SIDE, progress: Progress | None = None
) -> PictureForm:
    """The form that fits all pictures; only their heads are read.

    Args:
        files: of the pictures.
        side: the largest side to scale to; where all pictures are smaller, theirs is taken.
        progress: called as ``progress("looking at pictures", done, total)``.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> path = Path(tempfile.mkdtemp()) / "small.png"
        >>> Image.new("L", (6, 8)).save(path)
        >>> picture_form([path]).shape
        (1, 8, 8)
    """
    if side < 4:
        raise BadInput(f"pictures need a side of 4 or more; got {side}")
    found = list(_side_by_side(_head, files, "looking at pictures", progress))
    heads = [head for head in found if not isinstance(head, str)]
    broken = {file: head for file, head in zip(files, found, strict=True) if isinstance(head, str)}
    largest = max((max(size) for size, _ in heads), default=side)
    return PictureForm(min(side, largest), all(grey for _, grey in heads), broken)


def read_pictures(
    files: Sequence[Path], out: Arrays, *, progress: Progress | None = None
) -> dict[Path, str]:
    """Read pictures into an array, which may be a mapped file.

    Args:
        files: n pictures.
        out: ``(n, 1 or 3, side, side)`` uint8, written to; a broken picture's row stays.
        progress: called as ``progress("reading pictures", done, total)``.

    Returns:
        What is wrong with the files that could not be read.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> path = Path(tempfile.mkdtemp()) / "red.png"
        >>> Image.new("RGB", (40, 30), (255, 0, 0)).save(path)
        >>> pictures = np.empty((1, 3, 4, 4), dtype=np.uint8)
        >>> read_pictures([path], pictures), pictures[0, :, 0, 0].tolist()
        ({}, [255, 0, 0])
    """
    channels, side = out.shape[1], out.shape[2]

    def one(file: Path) -> Arrays | str:
        try:
            return read_picture(file, side, grey=channels == 1)
        except BadInput as error:
            return str(error)

    broken = {}
    for place, found in enumerate(_side_by_side(one, files, "reading pictures", progress)):
        if isinstance(found, str):
            broken[files[place]] = found
        else:
            out[place] = found
    return broken


def read_picture(file: Path, side: int, *, grey: bool) -> Arrays:
    """A picture as ``(channels, side, side)`` bytes.

    It is turned as its camera says, put on white where it is transparent, and squeezed into a
    square as a whole. Of 16 bits the upper 8 are kept; of an animation, the first picture.

    Args:
        file: any that Pillow reads.
        side: of the square.
        grey: whether to leave out colours.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> path = Path(tempfile.mkdtemp()) / "clear.png"
        >>> Image.new("RGBA", (9, 9), (0, 0, 0, 0)).save(path)
        >>> read_picture(path, 4, grey=True).ravel()[:3].tolist()
        [255, 255, 255]
    """
    image, mode = _pillow().Image, "L" if grey else "RGB"
    try:
        with image.open(file) as picture:
            picture.draft(mode, (2 * side, 2 * side))  # a JPEG is decoded small at once
            upright = _pillow().ImageOps.exif_transpose(picture)
            flat = _eight_bits(upright, mode)
            if flat.size != (side, side):
                flat = flat.resize((side, side), image.Resampling.BOX)
            pixels = np.asarray(flat)
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise BadInput(_reason(error)) from error
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


def _eight_bits(picture: Any, mode: str) -> Any:
    """Grey or colour without transparency, whatever it was."""
    image = _pillow().Image
    if picture.mode.startswith("I") or picture.mode == "F":
        values = np.asarray(picture).astype(np.float64)
        if picture.mode == "F":  # there is no usual range
            low, high = np.nanmin(values), np.nanmax(values)
            values = np.nan_to_num((values - low) / max(high - low, 1e-30)) * 65535
        picture = image.fromarray((np.clip(values, 0, 65535) / 257).astype(np.uint8))
    if picture.mode in ("LA", "La", "RGBA", "RGBa", "PA") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        white = image.new("RGBA", picture.size, (255, 255, 255, 255))
        picture = image.alpha_composite(white, picture)
    return picture.convert(mode)


def _head(file: Path) -> tuple[tuple[int, int], bool] | str:
    """Size of a picture and whether it is grey, or what is wrong with it."""
    image = _pillow().Image
    try:
        with image.open(file) as picture:
            return picture.size, picture.mode in _GREY
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        return _reason(error)


def _reason(error: Exception) -> str:
    """What is wrong with a picture, in a few words without its path."""
    name = type(error).__name__
    if name == "UnidentifiedImageError":
        return "no picture of a known kind"
    if name == "DecompressionBombError":
        return "more pixels than is safe to open"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or name


def _pillow() -> Any:
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError as error:
        raise MissingDependency(
            f"reading pictures needs Pillow ({error}); run pip install 'labelwise[demo]'"
        ) from error
    return PIL


def _side_by_side(
    work: Callable[[Path], T], files: Sequence[Path], stage: str, progress: Progress | None
) -> Iterator[T]:
    """What becomes of every file, in their order; Pillow lets other threads run while it reads."""
    _pillow()
    with _quiet(), ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as threads:
        for first in range(0, len(files), _SIDE_BY_SIDE):
            part = files[first : first + _SIDE_BY_SIDE]
            yield from threads.map(work, part)
            if progress is not None:
                progress(stage, first + len(part), len(files))


@contextmanager
def _quiet() -> Iterator[None]:
    """Pillow warns of odd metadata and large pictures; what it cannot read is an error anyway."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield
