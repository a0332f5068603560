"""Features of a data set by an encoder: computed once, kept as .npy files, checked when read.

Encoding thousands of images takes minutes on a CPU, so a data set is represented by some of its
items: always the same ones, drawn by a hash of their row numbers, since many sets are sorted by
class. Beside every ``features/DATASET/ENCODER-PART-COUNT.npy`` in the cache folder lies a .json
file with its checksum and what it was made from. Another number of items is another file.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Ids, row_noise
from labelwise.benchmark.datasets import load as load_data
from labelwise.benchmark.datasets import store
from labelwise.benchmark.encoders import weights
from labelwise.benchmark.encoders.entries import Encoder
from labelwise.errors import BadInput

COUNTS = {"images": (5000, 1000), "texts": (4000, 2000)}
"""Training and test items that are encoded, by kind, unless the data set has fewer."""

STEP = 64
"""Items between two reports of progress."""

PARTS = ("train", "test")


class Encoded(NamedTuple):
    """Some items of a data set by an encoder.

    Attributes:
        rows: ``(n,)``, their rows in the data set's training pool, ascending.
        features: ``(n, width)`` float32.
        test_rows: the same for the test items.
        test_features: the same for the test items.
    """

    rows: Ids
    features: NDArray[Any]
    test_rows: Ids
    test_features: NDArray[Any]


def chosen(count: int, wanted: int) -> Ids:
    """The rows that stand for a part of a data set: ``wanted`` of ``count``, ascending.

    >>> chosen(10, 4).tolist() == sorted(set(chosen(10, 5).tolist()) & set(chosen(10, 4).tolist()))
    True
    """
    noise = row_noise(0, np.arange(count))
    return np.sort(np.argsort(noise, kind="stable")[:wanted]).astype(np.int64)


def encode(
    encoder: Encoder,
    dataset: str,
    *,
    counts: tuple[int, int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Encoded:
    """Features of a data set's items, from the cache or computed now and kept.

    Args:
        encoder: its parameters must have been fetched.
        dataset: a name of the data sets' catalogue; it must have been fetched.
        counts: how many training and test items; `COUNTS` if None.
        progress: called as ``progress(items done, items)``.
    """
    wanted = counts or COUNTS[encoder.kind]
    if all(_file(encoder, dataset, part, wanted).is_file() for part in (0, 1)):
        return read(encoder, dataset, counts=wanted)
    data = load_data(dataset)
    if (data.shape == ()) != (encoder.kind == "texts") or data.inputs.dtype.kind == "i":
        raise BadInput(f"{encoder.name} encodes {encoder.kind}, and {dataset} holds no such items")
    items = [data.inputs, data.test_inputs]
    rows = [chosen(len(own), number) for own, number in zip(items, wanted, strict=True)]
    pictures = [own[taken] for own, taken in zip(items, rows, strict=True)]
    call = encoder.build(weights.load(encoder), pictures[0])
    total, done = sum(len(own) for own in pictures), 0
    for part, own in enumerate(pictures):
        found = np.empty((len(own), encoder.width), np.float32)
        for begin in range(0, len(own), STEP):
            found[begin : begin + STEP] = call(own[begin : begin + STEP])
            done += len(own[begin : begin + STEP])
            if progress is not None:
                progress(done, total)
        _write(_file(encoder, dataset, part, wanted), found, encoder, rows[part])
    return read(encoder, dataset, counts=wanted)


def read(encoder: Encoder, dataset: str, *, counts: tuple[int, int] | None = None) -> Encoded:
    """Features that were computed before, checked.

    Raises:
        BadInput: if they are not there, or are not what was written.
    """
    wanted = counts or COUNTS[encoder.kind]
    parts: list[NDArray[Any]] = []
    for part in (0, 1):
        path = _file(encoder, dataset, part, wanted)
        again = f"run python -m labelwise.benchmark.encoders encode {encoder.name} {dataset}"
        if not path.is_file():
            raise BadInput(f"the features of {dataset} by {encoder.name} are not there; {again}")
        note = json.loads(path.with_suffix(".json").read_text())
        if [note["parameters"], note["about"]] != [encoder.digest, encoder.about]:
            raise BadInput(f"{path} was made by another {encoder.name}; remove it and {again}")
        found = np.load(path, allow_pickle=False)
        if _sha256(found) != note["sha256"]:
            raise BadInput(f"{path} is not what was written; remove it and {again}")
        parts += [np.array(note["rows"], dtype=np.int64), found]
    return Encoded(*parts)


def _file(encoder: Encoder, dataset: str, part: int, counts: tuple[int, int]) -> Path:
    folder = store.cache_folder() / "features" / dataset
    return folder / f"{encoder.name}-{PARTS[part]}-{counts[part]}.npy"


def _write(path: Path, found: NDArray[Any], encoder: Encoder, rows: Ids) -> None:
    """Keep features; the file appears whole or not at all, after the note about it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    note = {
        "sha256": _sha256(found),
        "encoder": encoder.name,
        "about": encoder.about,
        "parameters": encoder.digest,
        "shape": list(found.shape),
        "rows": rows.tolist(),
    }
    part = path.with_name(f".{path.stem}.{os.getpid()}.npy")
    try:
        np.save(part, found)
        path.with_suffix(".json").write_text(json.dumps(note))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _sha256(found: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(found).view(np.uint8).data).hexdigest()
