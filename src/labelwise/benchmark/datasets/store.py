"""Where read data sets are kept: one .npz file each, without pickles, in a folder of the user's.

Images stay as bytes, and texts are one run of UTF-8 with the places where each of them ends, so
that loading is little more than reading the file. The digest is a SHA-256 over the arrays. It does
not depend on the files they came from: a package and the original download have the same one.
"""

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from labelwise.benchmark.datasets.entries import Arrays, Parts, as_texts
from labelwise.errors import BadInput


def cache_folder() -> Path:
    """``$LABELWISE_DATA``, or ``labelwise`` in the user's cache folder."""
    if own := os.environ.get("LABELWISE_DATA"):
        return Path(own).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "labelwise"


def cached_file(name: str) -> Path:
    """Where a data set is kept, whether it is there or not."""
    return cache_folder() / f"{name}.npz"


def digest(parts: Parts) -> str:
    """The SHA-256 of the arrays with their names, types and shapes, as 64 hexadecimal digits."""
    total = hashlib.sha256()
    for key, array in _encoded(parts).items():
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        total.update(f"{key} {plain.dtype.str} {plain.shape}\n".encode())
        total.update(plain.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def write(name: str, parts: Parts, source: str, *, compress: bool = False) -> Path:
    """Keep a data set; the file appears whole or not at all.

    Args:
        name: of the data set.
        parts: its arrays.
        source: where they came from, in words.
        compress: takes longer to write and to load, for a file that is to travel.
    """
    path = cached_file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    save: Callable[..., None] = np.savez_compressed if compress else np.savez
    part = path.with_name(f".{name}.{os.getpid()}.npz")
    try:
        notes = {"digest": np.array(digest(parts)), "source": np.array(source)}
        save(part, **_encoded(parts), **notes)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


def read(name: str) -> tuple[Parts, str, str]:
    """The arrays of a kept data set, where they came from, and their digest.

    Raises:
        BadInput: if the file is broken, or is not what was written.
    """
    path = cached_file(name)
    again = f"remove it and run labelwise data fetch {name} again"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            parts = _decoded({key: held[key] for key in held.files})
            written, source = str(held["digest"]), str(held["source"])
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path} is not a whole data set ({error}); {again}") from error
    found = digest(parts)
    if found != written:
        raise BadInput(f"{path} has checksum {found[:16]} instead of {written[:16]}; {again}")
    return parts, source, found


def _encoded(parts: Parts) -> dict[str, Arrays]:
    """Arrays without objects: texts as bytes, with the place where each ends."""
    arrays: dict[str, Arrays] = {}
    for key, array in parts._asdict().items():
        if array.dtype == object:
            texts = [text.encode("utf-8") for text in array]
            arrays[key] = np.frombuffer(b"".join(texts), np.uint8)
            arrays[f"{key}_ends"] = np.cumsum([len(text) for text in texts], dtype=np.int64)
        else:
            arrays[key] = array
    return arrays


def _decoded(arrays: dict[str, Arrays]) -> Parts:
    parts = []
    for key in Parts._fields:
        array = arrays[key]
        if f"{key}_ends" in arrays:
            whole, ends = array.tobytes(), arrays[f"{key}_ends"].tolist()
            starts = [0, *ends[:-1]]
            pairs = zip(starts, ends, strict=True)
            array = as_texts([whole[begin:end].decode("utf-8") for begin, end in pairs])
        parts.append(array)
    return Parts(*parts)
