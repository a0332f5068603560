"""Features of a data set by frozen encoders: computed once and cached.

==================  ============================================================================
name                encoder
==================  ============================================================================
``tfidf_WIDTH``     TF-IDF of words, in its first singular directions on the pool
``letters_WIDTH``   the same of runs of 3 to 5 letters within words
others              any specification of `labelwise.encoders`, such as ``minilm`` or ``timm:NAME``
==================  ============================================================================

Encoding thousands of images takes minutes on a CPU, so a data set is represented by a fixed subset
of its items, drawn by a hash of the row numbers because many sets are sorted by class. Features are
in ``features/DATASET/ENCODER-TRAIN-TEST.npz`` in the cache of the data sets, as float16, with the
checksum of the encoder.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labelwise.arrays import Ids, row_noise
from labelwise.benchmark.datasets import load
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.encoders.encoder import Kind
from labelwise.encoders.encoding import encode as encode_items
from labelwise.encoders.registry import BUILT_IN, open_encoder
from labelwise.errors import BadInput
from labelwise.files import load_npz, write_atomically
from labelwise.media.packages import cache_folder

COUNTS = {"images": (5000, 1000), "texts": (4000, 2000)}
"""Numbers of training and test items to encode, by kind."""

_COUNTED = re.compile(r"(tfidf|letters)_([1-9]\d*)")


class EncodedItems(NamedTuple):
    """Features of some items of a data set."""

    rows: Ids  # ``(n,)``, rows in the training pool, ascending
    features: Arrays  # ``(n, width)`` float32
    test_rows: Ids
    test_features: Arrays


def choose_encoded_rows(count: int, wanted: int) -> Ids:
    """A fixed subset of ``wanted`` of ``count`` rows, ascending.

    >>> set(choose_encoded_rows(10, 4)) < set(choose_encoded_rows(10, 5))
    True
    """
    noise = row_noise(0, np.arange(count))
    return np.sort(np.argsort(noise, kind="stable")[:wanted]).astype(np.int64)


def encode_dataset_items(
    encoder: str, dataset: str, *, counts: tuple[int, int] | None = None
) -> EncodedItems:
    """Features of a data set's items, from the cache or computed now and stored.

    ``counts`` are the numbers of training and test items.
    """
    data = load(dataset)
    kind: Kind = "texts" if data.shape == () else "images"
    counted = _COUNTED.fullmatch(encoder)
    if data.inputs.dtype.kind == "i" or (counted and kind != "texts"):
        raise BadInput(f"{encoder} cannot encode the items of {dataset}; take another encoder")
    items = data.inputs, data.test_inputs
    sizes = counts or COUNTS[kind]
    rows = [choose_encoded_rows(len(own), size) for own, size in zip(items, sizes, strict=True)]
    name = "-".join([re.sub(r"[^\w.]+", "_", encoder), *(str(size) for size in sizes)])
    path = cache_folder() / "features" / dataset / f"{name}.npz"
    checksum = "" if counted else _find_encoder_checksum(encoder, kind)
    if path.is_file():
        return _read_encoded_features(path, checksum)
    selected = [own[taken] for own, taken in zip(items, rows, strict=True)]
    if counted:
        call = _fit_tfidf_encoder(selected[0], int(counted[2]), letters=counted[1] == "letters")
        found = [call(own) for own in selected]
    else:
        parts = [[str(text) for text in own] if kind == "texts" else own for own in selected]
        found = [encode_items(own, encoder) for own in parts]
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {"rows": rows[0], "test_rows": rows[1], "encoder": np.array(checksum)}
    for key, features in zip(("features", "test_features"), found, strict=True):
        arrays[key] = features.astype(np.float16)
    with write_atomically(path) as part, part.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    return _read_encoded_features(path, checksum)


def _find_encoder_checksum(encoder: str, kind: Kind) -> str:
    known = BUILT_IN.get(encoder)
    return known.sha256 or "" if known else open_encoder(encoder, kind).checksum


def _read_encoded_features(path: Path, checksum: str) -> EncodedItems:
    held = load_npz(path)
    if not {"rows", "test_rows", "features", "test_features", "encoder"} <= set(held):
        raise BadInput(f"{path} is damaged; remove it to encode again")
    if held["encoder"].item() != checksum:
        raise BadInput(f"{path} was made by another version of the encoder; remove it")
    features = (held[name].astype(np.float32) for name in ("features", "test_features"))
    return EncodedItems(held["rows"], next(features), held["test_rows"], next(features))


def _fit_tfidf_encoder(corpus: Arrays, width: int, *, letters: bool) -> Callable[[Arrays], Arrays]:
    """The function that encodes texts by the first ``width`` directions of their TF-IDF.

    Reference: S. Deerwester et al., "Indexing by Latent Semantic Analysis", 1990.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    kind = {"analyzer": "char_wb", "ngram_range": (3, 5)} if letters else {"stop_words": "english"}
    counts = TfidfVectorizer(
        sublinear_tf=True, min_df=2, max_features=20_000, dtype=np.float32, **kind
    )
    directions = TruncatedSVD(width, random_state=0, n_iter=5).fit(counts.fit_transform(corpus))
    return lambda texts: np.asarray(directions.transform(counts.transform(texts)))
