"""Find and read files in folders and archives without unpacking anything to disk.

Archives may contain archives (Caltech101 is a .tar.gz in a .zip). Only matching members are read,
into memory, and their names are never used as paths, so an archive cannot write anywhere.
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
_LARGEST_MEMBER = 4 << 30  # the largest real file, the unlabelled part of STL-10, has 2.7 GB
_READ_ERRORS = (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, OSError, EOFError)


def matches_pattern(name: str, pattern: str) -> bool:
    """Whether a lower-case shell pattern matches a path or, without a slash, its last part.

    >>> matches_pattern("CIFAR/Train.bin", "train*"), matches_pattern("train/a.bin", "train*")
    (True, False)
    """
    path = name.lower()
    return fnmatch.fnmatchcase(path if "/" in pattern else path.rpartition("/")[2], pattern)


def gather_files(source: Path, patterns: Sequence[str]) -> dict[str, bytes]:
    """Read all files under a folder, or in an archive, whose path matches a pattern.

    Returns contents by path, sorted; paths begin with the folder's own name. Files ending in .gz
    are decompressed and lose the suffix.
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
                found.update(_read_matching(file, name, patterns))
        except _READ_ERRORS as error:
            raise BadInput(f"{path} cannot be read ({error}); download it again") from error
    return dict(sorted(found.items()))


def _read_matching(
    file: IO[bytes], name: str, patterns: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """The file itself if it matches, or the matching members of an archive."""
    lower = name.lower()
    plain = name[:-3] if lower.endswith(".gz") else name
    if lower.endswith(_ARCHIVES):
        for member, size, content in _iterate_members(file, lower):
            if size > _LARGEST_MEMBER:
                raise OSError(f"{member} would take {size} bytes")
            if member.lower().endswith(_ARCHIVES):
                content = io.BytesIO(content.read())  # zipfile needs a seekable file
            yield from _read_matching(content, member, patterns)
    elif any(matches_pattern(plain, pattern) for pattern in patterns):
        yield plain, file.read() if plain == name else gzip.decompress(file.read())


def _iterate_members(file: IO[bytes], name: str) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, size and content of the files in an archive, in one pass."""
    if name.endswith((".zip", ".whl")):
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if not member.is_dir() and not _is_apple_double(member.filename):
                    with archive.open(member) as content:
                        yield member.filename, member.file_size, content
    elif name.endswith(".deb"):
        yield from _iterate_debian_parts(file)
    else:
        with tarfile.open(fileobj=file, mode="r|*") as tar:
            for entry in tar:
                inside = tar.extractfile(entry) if entry.isfile() else None
                if inside is not None and not _is_apple_double(entry.name):
                    yield entry.name, entry.size, inside


def _is_apple_double(name: str) -> bool:
    """Whether a member holds macOS metadata of another file."""
    return name.rpartition("/")[2].startswith("._")


def _iterate_debian_parts(file: IO[bytes]) -> Iterator[tuple[str, int, IO[bytes]]]:
    """The parts control.tar and data.tar of a Debian package, which is an ar archive."""
    if file.read(8) != b"!<arch>\n":
        raise OSError("it is not a Debian package")
    while len(header := file.read(60)) == 60:
        size = int(header[48:58])
        content = file.read(size)
        file.read(size % 2)  # parts are aligned to even offsets
        yield header[:16].decode("ascii").strip().rstrip("/"), size, io.BytesIO(content)
