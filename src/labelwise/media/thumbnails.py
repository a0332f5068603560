"""Thumbnails as data URLs, for pages that need no other file.

Images are re-encoded, so metadata such as the place where a photo was taken is removed.
"""

import base64
import io
import warnings
from pathlib import Path
from typing import Any

from labelwise.errors import BadInput, MissingDependency

SIDE = 240  # Longest side of a thumbnail

_TINY = 64


def make_thumbnail_url(path: Path) -> str | None:
    """Make a thumbnail as a data URL; None if the image cannot be read.

    Tiny images are enlarged without blurring.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> path = Path(tempfile.mkdtemp()) / "red.png"
        >>> Image.new("RGB", (400, 300), (255, 0, 0)).save(path)
        >>> make_thumbnail_url(path)[:23]
        'data:image/jpeg;base64,'
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"PIL\.")
            kind, data = _encode_thumbnail(path)
    except (BadInput, OSError, ValueError, SyntaxError, MissingDependency):
        return None
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _encode_thumbnail(path: Path) -> tuple[str, bytes]:
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise MissingDependency(
            f"thumbnails need Pillow ({error}); run pip install 'labelwise[demo]'"
        ) from error
    try:
        with Image.open(path) as opened:
            opened.draft("RGB", (2 * SIDE, 2 * SIDE))
            picture = ImageOps.exif_transpose(opened)
            flat = _convert_to_rgb(path, picture, Image)
    except Image.DecompressionBombError as error:
        raise BadInput(str(error)) from error
    tiny = max(flat.size) <= _TINY
    if tiny:
        times = SIDE // 2 // max(flat.size) or 1
        flat = flat.resize([times * length for length in flat.size], Image.Resampling.NEAREST)
    flat.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    kind = "png" if tiny else "jpeg"
    flat.save(file, kind, quality=82)  # PNG ignores the quality
    return kind, file.getvalue()


def _convert_to_rgb(path: Path, picture: Any, image: Any) -> Any:
    """Convert to RGB, on white where the image is transparent."""
    if picture.mode.startswith("I") or picture.mode == "F":  # more than 8 bits
        from labelwise.media.images import read_image

        pixels = read_image(path, min(SIDE, max(picture.size)), grey=False)
        shown = image.fromarray(pixels.transpose(1, 2, 0))
        factor = min(1.0, SIDE / max(picture.size))
        return shown.resize([max(1, round(factor * length)) for length in picture.size])
    if picture.mode in ("LA", "La", "RGBA", "RGBa", "PA") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        white = image.new("RGBA", picture.size, (255, 255, 255, 255))
        picture = image.alpha_composite(white, picture)
    return picture.convert("RGB")
