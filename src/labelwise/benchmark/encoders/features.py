"""Features of a data set: computed once, stored as .npy files, and checked when read.

Encoding thousands of images takes minutes on a CPU, so a data set is represented by a fixed subset
of its items, drawn by a hash of the row numbers because many sets are sorted by class. Each
``features/DATASET/ENCODER-PART-COUNT.npy`` in the cache has a .json file with its checksum and
origin.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labelwise.arrays import Ids, row_noise
from labelwise.benchmark.datasets import load as load_data
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.encoders.entries import PretrainedEncoder
from labelwise.benchmark.encoders.weights import load_weights
from labelwise.errors import BadInput
from labelwise.files import write_atomically
from labelwise.media.packages import cache_folder

COUNTS = {"images": (5000, 1000), "texts": (4000, 2000)}
"""Numbers of training and test items to encode, by kind."""

STEP = 64
"""Items per progress report."""

PARTS = ("train", "test")


class EncodedItems(NamedTuple):
    """Features of some items of a data set.

    Attributes:
        rows: ``(n,)``, rows in the training pool, ascending.
        features: ``(n, width)`` float32.
        test_rows: rows of the test items.
        test_features: features of the test items.
    """

    rows: Ids
    features: Arrays
    test_rows: Ids
    test_features: Arrays


def choose_rows(count: int, wanted: int) -> Ids:
    """A fixed subset of ``wanted`` of ``count`` rows, ascending.

    >>> set(choose_rows(10, 4)) < set(choose_rows(10, 5))
    True
    """
    noise = row_noise(0, np.arange(count))
    return np.sort(np.argsort(noise, kind="stable")[:wanted]).astype(np.int64)


def encode(
    encoder: PretrainedEncoder,
    dataset: str,
    *,
    counts: tuple[int, int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EncodedItems:
    """Features of a data set's items, from the cache or computed now and stored.

    Args:
        encoder: must have been fetched.
        dataset: name of a fetched data set.
        counts: numbers of training and test items; `COUNTS` if None.
        progress: called as ``progress(items done, items)``.
    """
    wanted = counts or COUNTS[encoder.kind]
    if all(_feature_file(encoder, dataset, part, wanted).is_file() for part in (0, 1)):
        return read_features(encoder, dataset, counts=wanted)
    data = load_data(dataset)
    if (data.shape == ()) != (encoder.kind == "texts") or data.inputs.dtype.kind == "i":
        raise BadInput(f"{encoder.name} encodes {encoder.kind}, and {dataset} has no such items")
    items = [data.inputs, data.test_inputs]
    rows = [choose_rows(len(own), number) for own, number in zip(items, wanted, strict=True)]
    selected = [own[taken] for own, taken in zip(items, rows, strict=True)]
    call = encoder.build(load_weights(encoder), selected[0])
    total, done = sum(len(own) for own in selected), 0
    for part, own in enumerate(selected):
        found = np.empty((len(own), encoder.width), np.float32)
        for begin in range(0, len(own), STEP):
            found[begin : begin + STEP] = call(own[begin : begin + STEP])
            done += len(own[begin : begin + STEP])
            if progress is not None:
                progress(done, total)
        _write_features(_feature_file(encoder, dataset, part, wanted), found, encoder, rows[part])
    return read_features(encoder, dataset, counts=wanted)


def read_features(
    encoder: PretrainedEncoder, dataset: str, *, counts: tuple[int, int] | None = None
) -> EncodedItems:
    """Stored features, checked; BadInput if they are missing or were changed."""
    wanted = counts or COUNTS[encoder.kind]
    parts: list[Arrays] = []
    for part in (0, 1):
        path = _feature_file(encoder, dataset, part, wanted)
        again = f"run python -m labelwise.benchmark.encoders encode {encoder.name} {dataset}"
        if not path.is_file():
            raise BadInput(f"the features of {dataset} by {encoder.name} do not exist; {again}")
        note = json.loads(path.with_suffix(".json").read_text())
        if [note["parameters"], note["about"]] != [encoder.digest, encoder.about]:
            raise BadInput(f"{path} was made by another {encoder.name}; remove it and {again}")
        found = np.load(path, allow_pickle=False)
        if _digest_array(found) != note["sha256"]:
            raise BadInput(f"{path} was changed; remove it and {again}")
        parts += [np.array(note["rows"], dtype=np.int64), found]
    return EncodedItems(*parts)


def _feature_file(
    encoder: PretrainedEncoder, dataset: str, part: int, counts: tuple[int, int]
) -> Path:
    folder = cache_folder() / "features" / dataset
    return folder / f"{encoder.name}-{PARTS[part]}-{counts[part]}.npy"


def _write_features(path: Path, found: Arrays, encoder: PretrainedEncoder, rows: Ids) -> None:
    """Store features atomically, after the file that describes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    note = {
        "sha256": _digest_array(found),
        "encoder": encoder.name,
        "about": encoder.about,
        "parameters": encoder.digest,
        "shape": list(found.shape),
        "rows": rows.tolist(),
    }
    with write_atomically(path) as part:
        np.save(part, found)
        path.with_suffix(".json").write_text(json.dumps(note))


def _digest_array(found: Arrays) -> str:
    return hashlib.sha256(np.ascontiguousarray(found).view(np.uint8).data).hexdigest()


REGULARIZATION = 0.01
"""Inverse penalty of the probe's logistic regression."""


def standardize_features(features: Arrays, test_features: Arrays) -> tuple[Arrays, ...]:
    """Center and scale both by the first, to mean square 1; one scale for all columns.

    >>> near, far = standardize_features(np.array([[1.0, 2.0], [3.0, 2.0]]), np.array([[2.0, 3.0]]))
    >>> near.round(3).tolist(), far.round(3).tolist()
    ([[-1.414, 0.0], [1.414, 0.0]], [[0.0, 1.414]])
    """
    centre = features.mean(axis=0)
    spread = float(np.sqrt(np.square(features - centre).mean()))
    if not spread > 0:
        spread = 1.0  # all items are equal
    return (features - centre) / spread, (test_features - centre) / spread


def probe(encoded: EncodedItems, targets: Arrays, test_targets: Arrays, labels: int) -> float:
    """Test accuracy of logistic regression on the features of the first ``labels`` items.

    Args:
        encoded: features of ``n`` training and ``m`` test items.
        targets: ``(n,)`` classes.
        test_targets: ``(m,)`` classes.
        labels: number of labels to use, in the order of a hash.
    """
    from sklearn.linear_model import LogisticRegression

    order = np.argsort(row_noise(1, encoded.rows), kind="stable")[:labels]
    near, far = standardize_features(encoded.features, encoded.test_features)
    model = LogisticRegression(C=REGULARIZATION, max_iter=1000).fit(near[order], targets[order])
    return float(model.score(far, test_targets))
