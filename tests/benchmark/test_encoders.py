"""Features of data sets are computed once, for the same items every time."""

import numpy as np
import pytest

from labelwise.benchmark import encoders
from labelwise.benchmark.datasets import load
from labelwise.benchmark.encoders import (
    _fit_tfidf_encoder,
    choose_encoded_rows,
    encode_dataset_items,
)
from labelwise.encoders import encode as encode_items
from labelwise.encoders.registry import BuiltInEncoder
from labelwise.errors import BadInput
from tests.benchmark.toy_encoders import NAMES

COUNTS = 300, 100
TEXTS = ["the cat sat", "a cat and a dog", "stars and planets", "planets have moons", "dog sat"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("LABELWISE_DATA", str(tmp_path))
    return tmp_path / "features" / "digits"


def test_features_belong_to_the_rows_that_are_given_with_them():
    found, data = encode_dataset_items(NAMES[0], "digits", counts=COUNTS), load("digits")
    for rows, features, inputs in (
        (found.rows, found.features, data.inputs),
        (found.test_rows, found.test_features, data.test_inputs),
    ):
        assert features.dtype == np.float32
        np.testing.assert_allclose(features, encode_items(inputs[rows], NAMES[0]), rtol=1e-2)


def test_a_part_of_a_sorted_data_set_has_all_classes():
    rows = choose_encoded_rows(1000, 200)
    assert len(set(rows.tolist())) == 200 and (np.diff(rows) > 0).all()
    sorted_classes = np.arange(1000) // 100
    assert np.bincount(sorted_classes[rows]).min() >= 8


def test_more_items_include_the_fewer():
    assert set(choose_encoded_rows(500, 50)) < set(choose_encoded_rows(500, 80))
    assert choose_encoded_rows(30, 100).tolist() == list(range(30))


def test_the_second_time_nothing_is_computed(folder):
    first = encode_dataset_items(NAMES[0], "digits", counts=COUNTS)
    (path,) = folder.iterdir()
    before = path.stat()
    again = encode_dataset_items(NAMES[0], "digits", counts=COUNTS)
    np.testing.assert_array_equal(again.features, first.features)
    assert path.stat().st_ino == before.st_ino and path.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("kept", [b"", b"half"])
def test_damaged_features_are_refused(folder, kept):
    encode_dataset_items(NAMES[0], "digits", counts=COUNTS)
    (path,) = folder.iterdir()
    path.write_bytes(kept)
    with pytest.raises(BadInput, match="damaged"):
        encode_dataset_items(NAMES[0], "digits", counts=COUNTS)


def test_features_of_another_version_of_the_encoder_are_refused(folder, monkeypatch):
    encode_dataset_items(NAMES[0], "digits", counts=COUNTS)
    known = BuiltInEncoder(NAMES[0], "images", 6, 0, "toy", sha256="0" * 64)
    monkeypatch.setitem(encoders.BUILT_IN, NAMES[0], known)
    with pytest.raises(BadInput, match="another version of the encoder; remove it"):
        encode_dataset_items(NAMES[0], "digits", counts=COUNTS)


@pytest.mark.parametrize(("name", "dataset"), [("tfidf_50", "digits"), ("minilm", "digits")])
def test_items_of_another_kind_are_refused(name, dataset):
    with pytest.raises(BadInput, match="encode"):
        encode_dataset_items(name, dataset)


@pytest.mark.parametrize("letters", [False, True])
def test_texts_with_common_words_are_near(letters):
    call = _fit_tfidf_encoder(np.array(TEXTS * 3, object), 3, letters=letters)
    found = call(np.array(["cat dog sat", "dog cat", "planets moons"], object))
    assert found.shape == (3, 3) and found.dtype == np.float32
    near, far = (float(found[0] @ found[other]) for other in (1, 2))
    assert near > far + 0.3
