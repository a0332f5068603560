"""The cache of data sets: one .npz file each, without pickles, and the checks of their content.

Images stay bytes; texts are one UTF-8 byte array with the end of each text. The digest is a
SHA-256 of the arrays, so a package and the original download of the same data have the same one.
"""

import hashlib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from labelwise.benchmark.datasets.entries import Arrays, DatasetArrays, DatasetEntry, as_text_array
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.files import ARRAY_ERRORS, write_atomically
from labelwise.media.packages import cache_folder


def find_cached_dataset(name: str) -> Path:
    """The file of a data set in the cache, whether it exists or not."""
    return cache_folder() / f"{name}.npz"


def digest_dataset(arrays: DatasetArrays) -> str:
    """SHA-256 of a data set's arrays with names, types and shapes, as 64 hexadecimal digits."""
    total = hashlib.sha256()
    for key, array in _encode_dataset_texts(arrays).items():
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        total.update(f"{key} {plain.dtype.str} {array.shape}\n".encode())
        total.update(plain.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def write_npz_file(path: Path, arrays: Mapping[str, Arrays], *, compress: bool = False) -> None:
    """Write arrays to an .npz file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save: Callable[..., None] = np.savez_compressed if compress else np.savez
    with write_atomically(path) as part:
        save(part, **arrays)


def write_dataset(name: str, arrays: DatasetArrays, source: str) -> Path:
    """Store a data set in the cache."""
    notes = {"digest": np.array(digest_dataset(arrays)), "source": np.array(source)}
    write_npz_file(find_cached_dataset(name), {**_encode_dataset_texts(arrays), **notes})
    return find_cached_dataset(name)


def read_dataset(name: str) -> tuple[DatasetArrays, str, str]:
    """The arrays of a cached data set, their source, and their digest."""
    path = find_cached_dataset(name)
    again = f"remove it and run labelwise data fetch {name} again"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            arrays = _decode_dataset_texts({key: content[key] for key in content.files})
            written, source = str(content["digest"]), str(content["source"])
    except (*ARRAY_ERRORS, KeyError) as error:
        raise BadInput(f"{path} is not a complete data set ({error}); {again}") from error
    found = digest_dataset(arrays)
    if found != written:
        raise BadInput(f"{path} has checksum {found[:16]} instead of {written[:16]}; {again}")
    return arrays, source, found


def _encode_dataset_texts(arrays: DatasetArrays) -> dict[str, Arrays]:
    """Arrays without objects: texts as bytes, with the end of each text."""
    encoded: dict[str, Arrays] = {}
    for key, array in arrays._asdict().items():
        if array.dtype == object:
            texts = [text.encode("utf-8") for text in array]
            encoded[key] = np.frombuffer(b"".join(texts), np.uint8)
            encoded[f"{key}_ends"] = np.cumsum([len(text) for text in texts], dtype=np.int64)
        else:
            encoded[key] = array
    return encoded


def _decode_dataset_texts(encoded: Mapping[str, Arrays]) -> DatasetArrays:
    arrays = []
    for key in DatasetArrays._fields:
        array = encoded[key]
        if f"{key}_ends" in encoded:
            whole, ends = array.tobytes(), encoded[f"{key}_ends"].tolist()
            pairs = zip([0, *ends[:-1]], ends, strict=True)
            array = as_text_array([whole[begin:end].decode("utf-8") for begin, end in pairs])
        arrays.append(array)
    return DatasetArrays(*arrays)


def check_dataset(entry: DatasetEntry, arrays: DatasetArrays, digest: str) -> None:
    """Reject wrong counts, shapes, classes or values; a checksum that differs is a warning."""
    parts = (
        ("training", arrays.inputs, arrays.targets, entry.train_counts),
        ("test", arrays.test_inputs, arrays.test_targets, entry.test_counts),
    )
    for part, inputs, targets, _ in parts:
        if len(inputs) != len(targets):
            raise BadInput(
                f"{entry.name} has {len(inputs)} {part} items but {len(targets)} targets"
            )
        if inputs.shape[1:] != entry.shape:
            raise BadInput(f"{entry.name} has items of shape {inputs.shape[1:]}, not {entry.shape}")
        for array in (inputs, targets):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise BadInput(f"{entry.name} has {part} values that are not finite")
    counts = len(arrays.inputs), len(arrays.test_inputs)
    if counts not in ((entry.train, entry.test), *entry.other_counts):
        raise BadInput(
            f"{entry.name} has {counts[0]} training and {counts[1]} test items instead of "
            f"{entry.train} and {entry.test}; are files missing?"
        )
    if entry.classes is not None:
        for part, _, targets, expected in parts:
            _check_dataset_classes(f"{entry.name} has", part, targets, entry.classes, expected)
    if entry.digest is not None and digest != entry.digest:
        warnings.warn(
            f"these arrays of {entry.name} have checksum {digest[:16]} instead of "
            f"{entry.digest[:16]}: counts and classes are right, but order or values differ from "
            "the known copy, so results with the same seed will differ",
            LabelwiseWarning,
            stacklevel=3,
        )


def _check_dataset_classes(
    subject: str, part: str, targets: Arrays, classes: int, expected: tuple[int, ...] | None
) -> None:
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= classes:
        raise BadInput(f"{subject} {part} classes from {low} to {high}; there are {classes}")
    counts = np.bincount(targets, minlength=classes)
    if expected is not None and counts.tolist() != list(expected):
        wrong = int(np.flatnonzero(counts != np.array(expected))[0])
        raise BadInput(
            f"{subject} {counts[wrong]} {part} items of class {wrong} instead of {expected[wrong]}"
        )
