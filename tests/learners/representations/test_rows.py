"""Rows in memory and in files."""

import numpy as np
import pytest
import torch

from labelwise.errors import BadInput
from labelwise.learners.network_reader import RepresentationRows

FEATURES = torch.from_numpy(np.random.default_rng(0).normal(size=(10, 3)))
CLASSES = torch.arange(10)


def fill(rows):
    """Put all rows, in batches of 4."""
    for first in range(0, 10, 4):
        part = slice(first, first + 4)
        rows.write_rows(first, {"features": FEATURES[part], "member_votes": CLASSES[part]})
    return rows


def test_both_kinds_give_back_what_was_put(tmp_path):
    for rows in (RepresentationRows(10), RepresentationRows(10, tmp_path / "new" / "folder")):
        found = fill(rows).finish_rows()
        assert list(found) == ["features", "member_votes"]
        np.testing.assert_array_equal(found["features"], FEATURES.numpy())
        np.testing.assert_array_equal(found["member_votes"], CLASSES.numpy())
        assert found["features"].dtype == np.float64 and found["member_votes"].dtype == np.int64


def test_files_are_plain_npy_and_mapped(tmp_path):
    found = fill(RepresentationRows(10, tmp_path)).finish_rows()
    assert isinstance(found["features"], np.memmap)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["features.npy", "member_votes.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "features.npy"), FEATURES.numpy())


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path):
    rows = fill(RepresentationRows(10, tmp_path))
    assert not list(tmp_path.glob("*.npy"))
    rows.finish_rows()
    assert len(list(tmp_path.glob("*.npy"))) == 2


def test_what_is_not_whole_leaves_nothing_behind(tmp_path):
    np.save(tmp_path / "features.npy", np.zeros(2))  # of an earlier pass
    rows = RepresentationRows(10, tmp_path)
    rows.write_rows(0, {"features": FEATURES[:4], "member_votes": CLASSES[:4]})
    rows.remove_partial_files()
    assert [path.name for path in tmp_path.iterdir()] == ["features.npy"]
    assert np.load(tmp_path / "features.npy").tolist() == [0, 0]


def test_closed_rows_are_not_dropped(tmp_path):
    for rows in (RepresentationRows(10), RepresentationRows(10, tmp_path)):
        found = fill(rows).finish_rows()
        rows.remove_partial_files()
        np.testing.assert_array_equal(found["features"], FEATURES.numpy())


def test_bfloat16_is_kept_as_float16_so_that_its_precision_shows(tmp_path):
    values = FEATURES.to(torch.bfloat16)
    for rows in (RepresentationRows(10), RepresentationRows(10, tmp_path)):
        rows.write_rows(0, {"features": values})
        found = rows.finish_rows()["features"]
        assert found.dtype == np.float16
        np.testing.assert_array_equal(found.astype(np.float64), values.double().numpy())


def test_bfloat16_beyond_the_range_of_float16_is_refused(tmp_path):
    rows = RepresentationRows(10, tmp_path)
    with pytest.raises(BadInput, match=r"features are too large for float16; .* amp=False"):
        rows.write_rows(0, {"features": torch.full((10, 1), 1e6, dtype=torch.bfloat16)})
