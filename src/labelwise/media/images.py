"""Decode image files to square arrays of bytes, without torch.

EXIF orientation is applied, transparency becomes white, and the whole image is scaled to
``(channels, side, side)``. Files are decoded in parallel threads.
"""

import base64
import io
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

from labelwise.errors import BadInput, MissingDependency, require_extra
from labelwise.pool.blocks import Progress

Arrays = NDArray[Any]
T = TypeVar("T")

SIDE = 32  # Default side of the square, in pixels
THUMBNAIL_SIDE, TINY_SIDE = 240, 64  # Longest side of a thumbnail, and of images that it enlarges
IMAGE_SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"))
"""Suffixes of image files."""

_GREY = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N", "F")
_SIDE_BY_SIDE = 512


@dataclass(frozen=True)
class ImageFormat:
    """Common format of a set of images."""

    side: int  # of the square that each is scaled to
    grey: bool
    # Error message by file, for files that cannot be decoded
    broken: Mapping[Path, str] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one item: channels, height, width."""
        return (1 if self.grey else 3, self.side, self.side)

    def __str__(self) -> str:
        return f"{self.side} x {self.side}, {'grey' if self.grey else 'colour'}"


def find_image_format(
    files: Sequence[Path], *, side: int = SIDE, progress: Progress | None = None
) -> ImageFormat:
    """Find the format that fits all images, at most ``side`` large; only file headers are read."""
    if side < 4:
        raise BadInput(f"images need a side of 4 or more; got {side}")
    found = list(_map_image_files(_read_image_header, files, "reading image headers", progress))
    heads = [head for head in found if not isinstance(head, str)]
    broken = {file: head for file, head in zip(files, found, strict=True) if isinstance(head, str)}
    largest = max((max(size) for size, _ in heads), default=side)
    return ImageFormat(min(side, largest), all(grey for _, grey in heads), broken)


def read_images(
    files: Sequence[Path], out: Arrays, *, progress: Progress | None = None
) -> dict[Path, str]:
    """Decode images into an array, which may be a memory map.

    ``out`` is ``(n, 1 or 3, side, side)`` uint8, possibly a memory map; rows of broken files stay
    unchanged. Returns error messages by file.
    """
    channels, side = out.shape[1], out.shape[2]

    def one(file: Path) -> Arrays | str:
        try:
            return read_image(file, side, grey=channels == 1)
        except BadInput as error:
            return str(error)

    broken = {}
    for place, found in enumerate(_map_image_files(one, files, "reading images", progress)):
        if isinstance(found, str):
            broken[files[place]] = found
        else:
            out[place] = found
    return broken


def read_image(file: Path, side: int, *, grey: bool, smooth: bool = False) -> Arrays:
    """Decode an image to ``(channels, side, side)`` bytes.

    The aspect ratio is not kept. 16-bit images keep their upper 8 bits; animations their first
    frame. ``smooth`` interpolates (bicubic), as a pretrained network needs for small images,
    instead of averaging whole pixels.
    """
    image = _import_pillow().Image
    try:
        with image.open(file) as picture:
            # JPEG: decode at reduced size
            picture.draft("L" if grey else "RGB", (2 * side, 2 * side))
            return scale_image(picture, side, grey=grey, smooth=smooth)
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise BadInput(_describe_image_error(error)) from error


def scale_image(picture: Any, side: int, *, grey: bool, smooth: bool) -> Arrays:
    """Turn a Pillow image upright and scale it to ``(channels, side, side)`` bytes."""
    pillow = _import_pillow()
    flat = _convert_to_bytes(pillow.ImageOps.exif_transpose(picture), "L" if grey else "RGB")
    if flat.size != (side, side):
        filters = pillow.Image.Resampling
        flat = flat.resize((side, side), filters.BICUBIC if smooth else filters.BOX)
    pixels = np.asarray(flat)
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


def convert_array(pixels: Any) -> Any:
    """Convert ``(h, w)``, ``(h, w, c)`` or ``(c, h, w)`` bytes, or floats up to 1, to an image."""
    array = np.asarray(pixels)
    if array.ndim == 3 and array.shape[2] not in (1, 3, 4) and array.shape[0] in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    array = array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array
    if array.ndim not in (2, 3) or not array.size or (array.ndim == 3 and array.shape[2] > 4):
        raise BadInput(f"an image has the shape (h, w) or (h, w, 3); got {np.shape(pixels)}")
    if array.dtype.kind == "f":
        if not ((array >= 0) & (array <= 1)).all():
            raise BadInput("images of floats have values from 0 to 1; scale them, or give bytes")
        array = np.rint(array * 255).astype(np.uint8)
    if array.dtype != np.uint8:
        raise BadInput(f"images are bytes (uint8) or floats from 0 to 1; got {array.dtype}")
    return _import_pillow().Image.fromarray(np.ascontiguousarray(array))


def _convert_to_bytes(picture: Any, mode: str) -> Any:
    """Convert any mode to 8-bit greyscale or RGB without transparency."""
    image = _import_pillow().Image
    if picture.mode.startswith("I") or picture.mode == "F":
        values = np.asarray(picture).astype(np.float64)
        if picture.mode == "F":  # no fixed range
            low, high = np.nanmin(values), np.nanmax(values)
            values = np.nan_to_num((values - low) / max(high - low, 1e-30)) * 65535
        picture = image.fromarray((np.clip(values, 0, 65535) / 257).astype(np.uint8))
    if picture.mode in ("LA", "La", "RGBA", "RGBa", "PA") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        white = image.new("RGBA", picture.size, (255, 255, 255, 255))
        picture = image.alpha_composite(white, picture)
    return picture.convert(mode)


def _read_image_header(file: Path) -> tuple[tuple[int, int], bool] | str:
    """Size of an image and whether it is greyscale, or an error message."""
    image = _import_pillow().Image
    try:
        with image.open(file) as picture:
            return picture.size, picture.mode in _GREY
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        return _describe_image_error(error)


def _describe_image_error(error: Exception) -> str:
    """Describe a decoding error in a few words, without the path."""
    name = type(error).__name__
    if name == "UnidentifiedImageError":
        return "not an image in a known format"
    if name == "DecompressionBombError":
        return "too many pixels to open safely"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or name


def _import_pillow() -> Any:
    with require_extra("reading images needs Pillow", "encoders"):
        import PIL.Image
        import PIL.ImageOps
    return PIL


def _map_image_files(
    work: Callable[[Path], T], files: Sequence[Path], stage: str, progress: Progress | None
) -> Iterator[T]:
    """Apply a function to all files in threads, in order; Pillow releases the GIL."""
    _import_pillow()
    with ignore_pillow_warnings(), ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as threads:
        for first in range(0, len(files), _SIDE_BY_SIDE):
            part = files[first : first + _SIDE_BY_SIDE]
            yield from threads.map(work, part)
            if progress is not None:
                progress(stage, first + len(part), len(files))


@contextmanager
def ignore_pillow_warnings() -> Iterator[None]:
    """Ignore Pillow's warnings about metadata and size; unreadable files raise errors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def make_thumbnail_url(path: Path) -> str | None:
    """Make a thumbnail as a data URL, for pages without other files; None if it cannot be read.

    Images are encoded again, so metadata such as the place where a photo was taken is removed.
    Tiny images are enlarged without blurring.
    """
    side = THUMBNAIL_SIDE
    try:
        pillow = _import_pillow()
    except MissingDependency:
        return None
    bomb = pillow.Image.DecompressionBombError
    try:
        with ignore_pillow_warnings(), pillow.Image.open(path) as opened:
            opened.draft("RGB", (2 * side, 2 * side))
            flat = _convert_to_bytes(pillow.ImageOps.exif_transpose(opened), "RGB")
    except (OSError, ValueError, SyntaxError, bomb):
        return None
    tiny = max(flat.size) <= TINY_SIDE
    if tiny:
        times = side // 2 // max(flat.size) or 1
        nearest = pillow.Image.Resampling.NEAREST
        flat = flat.resize([times * length for length in flat.size], nearest)
    flat.thumbnail((side, side))
    file, kind = io.BytesIO(), "png" if tiny else "jpeg"
    flat.save(file, kind, quality=82)  # PNG ignores the quality
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
