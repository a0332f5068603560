"""Pictures as they are, from the campaign's folder.

`Items.path` has made sure that the file lies there. Only files that a browser shows as pictures
are sent, with their type, and what an SVG file might hold besides a picture cannot run.
"""

import hashlib
import os
import stat
from pathlib import Path

from starlette.responses import Response

from labelwise.errors import UnknownName

TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".avif": "image/avif",
    ".svg": "image/svg+xml",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
}
LARGEST = 256 << 20
"""Bytes."""


# The path leads to the file itself; a link or a pipe has taken its place since.
_ONLY_FILES = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def picture(path: Path, known: str | None = None) -> Response:
    """The file as an answer, or 304 if ``known`` (If-None-Match) is what it is now."""
    kind = TYPES.get(path.suffix.lower())
    if kind is None:
        raise UnknownName(f"{path.name!r} is no picture that a browser shows")
    try:
        # What follows speaks of one open file, whatever happens to the name in the meantime.
        with open(path, "rb", opener=_no_link) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
                raise UnknownName(f"{path.name!r} is no file of at most {LARGEST >> 20} MiB")
            version = f"{path}:{found.st_size}:{found.st_mtime_ns}"
            tag = f'"{hashlib.sha256(version.encode()).hexdigest()[:24]}"'
            headers = {
                "ETag": tag,
                "Cache-Control": "private, max-age=3600",
                "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
            }
            if known is not None and tag in known:
                return Response(status_code=304, headers=headers)
            return Response(file.read(), media_type=kind, headers=headers)
    except OSError as error:
        raise UnknownName(f"the file {path.name!r} cannot be read: {error.strerror}") from None


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | _ONLY_FILES)
