"""An interrupted encoding goes on where it stopped."""

import numpy as np
import pytest

from labelwise.encoders.feature_files import PartialFeatures
from labelwise.errors import BadInput
from tests.encoders.counting import CountingEncoder

TEXTS = [f"{chr(97 + number % 26)} text {number}" for number in range(40)]


def encode(folder, encoder, texts=TEXTS):
    with PartialFeatures(folder, encoder) as features:
        assert features.encode(texts) == {}
        return features.read(texts)


def test_only_what_is_missing_is_encoded_after_a_failure(tmp_path):
    expected = CountingEncoder().encode_batch(TEXTS)
    broken = CountingEncoder(fail_after=20)
    with pytest.raises(RuntimeError, match="out of power"):
        encode(tmp_path / "f", broken)
    again = CountingEncoder()
    np.testing.assert_array_equal(encode(tmp_path / "f", again), expected)
    assert 0 < len(again.seen) < len(TEXTS)
    finished = CountingEncoder()
    new = [*TEXTS, "zebra", "zebra"]
    np.testing.assert_array_equal(encode(tmp_path / "f", finished, new)[-1], [5, ord("z")])
    assert finished.seen == ["zebra"]  # equal items once


def test_files_cut_off_by_a_crash_are_completed(tmp_path):
    expected = encode(tmp_path, CountingEncoder())
    for name, lost in (("rows.float32", 13), ("items.sha256", 70)):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-lost])
        again = CountingEncoder()
        np.testing.assert_array_equal(encode(tmp_path, again), expected)
        assert 0 < len(again.seen) <= 4


@pytest.mark.parametrize("changed", [{"checksum": "two"}, {"dimension": 3}])
def test_rows_of_another_encoder_are_not_used(changed, tmp_path):
    encode(tmp_path, CountingEncoder())
    other = CountingEncoder(**changed)
    assert encode(tmp_path, other).shape == (len(TEXTS), other.dimension)
    assert sorted(other.seen) == sorted(TEXTS)


def test_changed_and_unreadable_images(tmp_path):
    from PIL import Image

    from labelwise.encoders.registry import open_encoder
    from tests.encoders.test_encoding import FLOATS, write_images

    images = tmp_path / "images"
    images.mkdir()
    paths = write_images(images, 4)
    encoder = open_encoder(FLOATS, "images")
    with PartialFeatures(tmp_path / "f", encoder) as features:
        features.encode(paths)
        before = features.read(paths)
    Image.new("RGB", (300, 300), (255, 0, 0)).save(paths[1])
    paths[2].write_bytes(b"damaged")
    with PartialFeatures(tmp_path / "f", encoder) as features:
        broken = features.encode(paths)
        assert list(broken) == [2] and "not an image" in broken[2]
        after = features.read([paths[0], paths[1], paths[3]])
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 3]])
    assert not np.allclose(after[1], before[1])


def test_two_processes_do_not_write_to_the_same_folder(tmp_path):
    with PartialFeatures(tmp_path, CountingEncoder()):
        with pytest.raises(BadInput, match="another process encodes into"):
            PartialFeatures(tmp_path, CountingEncoder()).__enter__()
    encode(tmp_path, CountingEncoder())


def test_progress_counts_what_was_done_before(tmp_path):
    encode(tmp_path, CountingEncoder(), TEXTS[:10])
    calls = []
    with PartialFeatures(tmp_path, CountingEncoder()) as features:
        features.encode(TEXTS, progress=lambda *given: calls.append(given))
    assert calls[0] == ("encoding", 10, 40) and calls[-1] == ("encoding", 40, 40)
