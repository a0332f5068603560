"""Two pools have the same facts exactly when they are the same pool."""

import io
import time

import numpy as np
import pytest

from labelwise.running.fingerprint import ROWS, describe, digest
from labelwise.running.shards import open_sources
from tests.running.object_store import object_store


def facts(value):
    given = {"features": value}
    return describe(given, open_sources(given))


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
    assert facts(np.load(path, mmap_mode="r")) == facts(path)


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
    assert digest(None) is None
    assert digest([1, 2, 3]) == digest(np.array([1, 2, 3]))
    assert len({digest([1, 2, 3]), digest([3, 2, 1]), digest([1, 2, 4]), digest([1, 2])}) == 4
