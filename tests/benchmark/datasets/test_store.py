"""Data sets are kept as they are, and what happened to a file is noticed."""

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.benchmark.datasets import store
from labelwise.benchmark.datasets.entries import (
    DatasetArrays,
    as_text_array,
    hold_out_test_items,
    number_dataset_classes,
)
from labelwise.errors import BadInput
from labelwise.media.packages import cache_folder
from tests.benchmark.datasets.files import some_classes, some_images

IMAGES = DatasetArrays(
    some_images(6, 1, 4), some_classes(6, 3), some_images(2, 1, 4), some_classes(2, 3)
)
TEXTS = DatasetArrays(
    as_text_array(["", "ü€", "a\nb"]), np.arange(3), as_text_array(["x"]), np.arange(1)
)


@pytest.mark.parametrize("parts", [IMAGES, TEXTS])
def test_arrays_and_source_come_back(parts, cache):
    path = store.write_dataset("x", parts, "somewhere")
    assert path == cache / "x.npz"
    found, source, digest = store.read_dataset("x")
    for array, wanted in zip(found, parts, strict=True):
        np.testing.assert_array_equal(array, wanted)
        assert array.dtype == wanted.dtype
    assert (source, digest) == ("somewhere", store.digest_dataset(parts))
    assert [path.name for path in cache.iterdir()] == ["x.npz"]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=8))
def test_any_texts_survive(texts):
    parts = DatasetArrays(
        as_text_array(texts), np.arange(len(texts)), as_text_array(["t"]), np.arange(1)
    )
    assert store._decode_dataset_texts(store._encode_dataset_texts(parts)).inputs.tolist() == texts


def test_the_digest_tells_values_shapes_types_and_places_of_texts_apart():
    digests = {
        store.digest_dataset(IMAGES),
        store.digest_dataset(IMAGES._replace(inputs=IMAGES.inputs + np.uint8(1))),
        store.digest_dataset(IMAGES._replace(inputs=IMAGES.inputs.reshape(6, 16))),
        store.digest_dataset(IMAGES._replace(targets=IMAGES.targets.astype(np.int32))),
        store.digest_dataset(IMAGES._replace(targets=IMAGES.targets[::-1])),
        store.digest_dataset(TEXTS),
        store.digest_dataset(TEXTS._replace(inputs=as_text_array(["ü€", "", "a\nb"]))),
    }
    assert len(digests) == 7


def test_the_digest_does_not_depend_on_layout_or_byte_order():
    swapped = IMAGES.targets.astype(">i8")
    turned = np.asfortranarray(IMAGES.inputs)
    assert store.digest_dataset(
        IMAGES._replace(inputs=turned, targets=swapped)
    ) == store.digest_dataset(IMAGES)


def test_the_digest_is_a_sha_256_of_names_types_shapes_and_bytes():
    parts = DatasetArrays(
        np.arange(4, dtype=np.uint8), np.arange(2), as_text_array(["ab", "c"]), np.ones(1, "f4")
    )
    plain = b"inputs |u1 (4,)\n\x00\x01\x02\x03"
    plain += b"targets <i8 (2,)\n" + bytes(8) + b"\x01" + bytes(7)
    plain += b"test_inputs |u1 (3,)\nabc"
    plain += b"test_inputs_ends <i8 (2,)\n\x02" + bytes(7) + b"\x03" + bytes(7)
    plain += b"test_targets <f4 (1,)\n\x00\x00\x80\x3f"
    assert store.digest_dataset(parts) == sha256(plain).hexdigest()


def test_a_changed_byte_is_noticed(cache):
    path = store.write_dataset("x", IMAGES, "s")
    data = bytearray(path.read_bytes())
    place = data.index(IMAGES.inputs.tobytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(BadInput, match=r"x\.npz is not a complete data set .*fetch x again"):
        store.read_dataset("x")


def test_other_arrays_under_the_old_checksum_are_noticed(cache):
    store.write_dataset("x", IMAGES, "s")
    arrays = store._encode_dataset_texts(IMAGES._replace(targets=IMAGES.targets[::-1]))
    old = np.array(store.digest_dataset(IMAGES))
    np.savez(cache / "x.npz", **arrays, digest=old, source=np.array("s"))
    with pytest.raises(BadInput, match=r"has checksum .* instead of"):
        store.read_dataset("x")


@pytest.mark.parametrize("data", [b"", b"hello", b"PK\x03\x04"])
def test_a_file_that_was_cut_off_is_noticed(data, cache):
    cache.mkdir()
    (cache / "x.npz").write_bytes(data)
    with pytest.raises(BadInput, match="is not a complete data set"):
        store.read_dataset("x")


def test_a_file_of_objects_is_not_unpickled(cache):
    cache.mkdir()
    np.savez(cache / "x.npz", inputs=np.array([{}], dtype=object))
    with pytest.raises(BadInput, match="allow_pickle"):
        store.read_dataset("x")


def test_the_folder_is_the_users_choice(monkeypatch):
    monkeypatch.setenv("LABELWISE_DATA", "~/sets")
    assert cache_folder() == Path.home() / "sets"
    monkeypatch.delenv("LABELWISE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/x")
    assert cache_folder() == Path("/var/x/labelwise")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "labelwise"


def test_the_same_items_are_held_out_every_time():
    parts = hold_out_test_items(np.arange(20), 2 * np.arange(20), 5)
    assert parts.test_inputs.tolist() == [0, 2, 9, 12, 18]
    np.testing.assert_array_equal(parts.test_targets, 2 * parts.test_inputs)
    np.testing.assert_array_equal(parts.targets, 2 * parts.inputs)
    assert sorted([*parts.inputs, *parts.test_inputs]) == list(range(20))


@pytest.mark.parametrize("test", [0, 5, 6])
def test_all_or_nothing_cannot_be_held_out(test):
    with pytest.raises(BadInput, match=f"{test} of 5 items cannot be held out"):
        hold_out_test_items(np.arange(5), np.arange(5), test)


def test_classes_are_numbered_in_the_order_of_their_names_or_in_a_given_one():
    assert number_dataset_classes(["b", "a", "b"]).tolist() == [1, 0, 1]
    assert number_dataset_classes(["b", "a", "b"], ["b", "c", "a"]).tolist() == [0, 2, 0]
    with pytest.raises(BadInput, match="unknown class 'd'"):
        number_dataset_classes(["d"], ["a"])
