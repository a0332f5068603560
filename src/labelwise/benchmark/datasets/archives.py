"""Files found in a folder or inside archives, read without unpacking anything to the disk.

Archives may hold archives (Caltech101 is a .tar.gz in a .zip). Only members that match are read,
into memory, and their names are never used as paths, so that an archive cannot write anywhere.
"""

import fnmatch
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from labelwise.errors import BadInput

_ARCHIVES = (".zip", ".whl", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".deb")
_LARGEST = 4 << 30
"""Bytes; the largest file of any set here, the unlabelled part of STL-10, has 2.7 GB."""
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, OSError, EOFError)


def matches(name: str, pattern: str) -> bool:
    """Whether a shell pattern, in lower case, fits a path or, without a slash, its last part.

    >>> matches("CIFAR/Train.bin", "train*"), matches("train/a.bin", "train*")
    (True, False)
    """
    whole = name.lower()
    return fnmatch.fnmatchcase(whole if "/" in pattern else whole.rpartition("/")[2], pattern)


def gather(source: Path, wanted: Sequence[str]) -> dict[str, bytes]:
    """All files under a folder, or in an archive, whose path matches a pattern.

    Args:
        source: a folder, searched through with the archives in it, or one archive or file.
        wanted: patterns, see `matches`.

    Returns:
        Contents by path, in the order of the paths, which begin with the folder's own name. What
        ends in .gz is decompressed and loses the ending.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt.gz").write_bytes(gzip.compress(b"one"))
    ...     list(gather(Path(folder), ["*.txt"]).values())
    [b'one']
    """
    if not source.exists():
        raise BadInput(f"there is no folder or archive {source}; name the one with the files")
    found: dict[str, bytes] = {}
    top = source.resolve()
    for path in top.rglob("*") if top.is_dir() else [top]:
        if not path.is_file():
            continue
        name = path.relative_to(top.parent).as_posix()
        try:
            with path.open("rb") as file:
                found.update(_matching(file, name, wanted))
        except _BROKEN as error:
            raise BadInput(f"{path} cannot be read ({error}); download it again") from error
    return dict(sorted(found.items()))


def _matching(file: IO[bytes], name: str, wanted: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """The file itself if it matches, or all in it that do if it is an archive."""
    lower = name.lower()
    plain = name[:-3] if lower.endswith(".gz") else name
    if lower.endswith(_ARCHIVES):
        for member, size, content in _members(file, lower):
            if size > _LARGEST:
                raise OSError(f"{member} would take {size} bytes")
            packed = member.lower().endswith(_ARCHIVES)
            inside = (
                io.BytesIO(content.read()) if packed else content
            )  # zipfile goes back and forth
            yield from _matching(inside, member, wanted)
    elif any(matches(plain, pattern) for pattern in wanted):
        yield plain, file.read() if plain == name else gzip.decompress(file.read())


def _members(file: IO[bytes], name: str) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, size and content of the files in an archive, in one pass over it."""
    if name.endswith((".zip", ".whl")):
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if not member.is_dir():
                    with archive.open(member) as content:
                        yield _known(member.filename), member.file_size, content
    elif name.endswith(".deb"):
        yield from _debian(file)
    else:
        with tarfile.open(fileobj=file, mode="r|*") as tar:
            for entry in tar:
                inside = tar.extractfile(entry) if entry.isfile() else None
                if inside is not None:
                    yield _known(entry.name), entry.size, inside


def _known(name: str) -> str:
    """The notes that macOS leaves beside a file have its name, after a ._; they are no data."""
    folder, _, last = name.rpartition("/")
    return f"{folder}/apple-double" if last.startswith("._") else name


def _debian(file: IO[bytes]) -> Iterator[tuple[str, int, IO[bytes]]]:
    """The parts of a Debian package, which is an ar archive: control.tar and data.tar."""
    if file.read(8) != b"!<arch>\n":
        raise OSError("it is no Debian package")
    while len(header := file.read(60)) == 60:
        size = int(header[48:58])
        content = file.read(size)
        file.read(size % 2)  # parts begin at even places
        yield header[:16].decode("ascii").strip().rstrip("/"), size, io.BytesIO(content)
