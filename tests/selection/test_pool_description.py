"""Two pools have the same facts exactly when they are the same pool."""

import io
import time

import numpy as np
import pytest

from labelwise.pool.representations import open_sources
from labelwise.selection.checkpoint import SUMMED_ROWS as ROWS
from labelwise.selection.checkpoint import checksum_ids, describe_pool
from tests.pool.object_store import object_store


def facts(value):
    given = {"features": value}
    return describe_pool(given, open_sources(given))


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(ROWS + 50, 3)).astype(np.float32)


@pytest.mark.parametrize("row", [0, 17, ROWS, ROWS + 49])
def test_one_number_of_an_array_makes_another_pool(rows, row):
    other = rows.copy()
    assert facts(rows) == facts(other)
    other[row, 1] += 1
    assert facts(rows) != facts(other)


def test_tensors_have_the_facts_of_their_numbers(rows):
    torch = pytest.importorskip("torch")
    assert facts(torch.asarray(rows)) == facts(rows)


def test_files_are_known_by_path_size_and_time(rows, tmp_path):
    path = tmp_path / "f.npy"
    np.save(path, rows)
    (found,) = facts(path)["features"]
    assert found["shape"] == rows.shape
    status = path.stat()
    second = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(status.st_mtime_ns // 10**9))
    changed = f"{second}.{status.st_mtime_ns % 10**9:09d} UTC"
    assert found["files"] == {str(path): {"bytes": status.st_size, "changed": changed}}


def test_a_map_is_known_by_its_file_and_the_place_in_it(rows, tmp_path):
    path = tmp_path / "f.npy"
    np.save(path, rows)
    whole = np.load(path, mmap_mode="r")
    (found,) = facts(whole)["features"]
    assert found["files"] == facts(path)["features"][0]["files"]
    assert found["offset"] == path.stat().st_size - rows.nbytes and "sum" not in found
    assert facts(whole) == facts(np.load(path, mmap_mode="r"))


def parts_of_equal_shape(rows):
    """Maps of one shape that hold other numbers of the same file."""
    return [
        rows[:50],
        rows[50:100],
        rows[100:0:-2],
        rows[0:100:2],
        rows[:50, ::-1],
        rows.view(np.int32)[:50],
        rows[100:][50:][:50],
    ]


def test_parts_of_a_map_are_different_pools(rows, tmp_path):
    path = tmp_path / "f.npy"
    np.save(path, rows)
    parts, again = (parts_of_equal_shape(np.load(path, mmap_mode="r")) for _ in range(2))
    assert len({str(facts(part)) for part in parts}) == len(parts)
    assert [facts(part) for part in parts] == [facts(part) for part in again]
    columns = np.load(path, mmap_mode="r")
    assert facts(columns[:, :2]) != facts(columns[:, 1:])


def test_a_part_of_a_map_is_known_by_its_numbers(rows, tmp_path):
    np.save(tmp_path / "f.npy", rows)
    part = np.load(tmp_path / "f.npy", mmap_mode="r")[5:15, 1:]
    assert facts(part) == facts(np.array(part))


@pytest.mark.parametrize("mode", ["c", "r+"])
def test_a_map_that_may_be_written_to_is_known_by_its_numbers(rows, tmp_path, mode):
    np.save(tmp_path / "f.npy", rows)
    mapped = np.load(tmp_path / "f.npy", mmap_mode=mode)
    assert facts(mapped) == facts(rows)
    mapped[3, 1] += 1
    assert facts(mapped) != facts(rows)


def test_a_map_whose_file_is_gone_is_known_by_its_numbers(rows, tmp_path):
    np.save(tmp_path / "f.npy", rows)
    mapped = np.load(tmp_path / "f.npy", mmap_mode="r")
    (tmp_path / "f.npy").unlink()
    assert facts(mapped) == facts(rows)


def test_an_object_is_known_by_size_and_age(rows):
    pytest.importorskip("pyarrow")
    with object_store() as server:
        server.objects["pool/f.npy"] = written(rows)
        url = server.url("pool/f.npy")
        (before,) = facts(url)["features"]
        ((path, told),) = before["files"].items()
        assert (path, told["bytes"]) == ("pool/f.npy", len(written(rows)))
        assert facts(url)["features"] == [before]
        server.changed = "Tue, 03 Mar 2026 10:00:00 GMT"
        assert facts(url)["features"] != [before]
        server.objects["pool/f.npy"] = written(rows[:5])
        assert "secret" not in str(facts(url))


def written(rows):
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue()


def test_all_files_of_a_folder_count(rows, tmp_path):
    np.save(tmp_path / "a.npy", rows)
    np.save(tmp_path / "b.npy", rows)
    (found,) = facts(tmp_path)["features"]
    assert list(found["files"]) == [str(tmp_path / "a.npy"), str(tmp_path / "b.npy")]
    before = facts(tmp_path)
    np.save(tmp_path / "c.npy", rows)
    assert facts(tmp_path) != before


def test_several_models_have_facts_each(rows):
    assert len(facts([rows, rows[:, :2].copy()])["features"]) == 2


def test_ids_are_told_apart_by_value_and_order():
    assert checksum_ids(None) is None
    assert checksum_ids([1, 2, 3]) == checksum_ids(np.array([1, 2, 3]))
    assert (
        len(
            {
                checksum_ids([1, 2, 3]),
                checksum_ids([3, 2, 1]),
                checksum_ids([1, 2, 4]),
                checksum_ids([1, 2]),
            }
        )
        == 4
    )
