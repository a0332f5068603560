"""Files that change, or are not the same on two machines, are told."""

import os

import numpy as np
import pytest

import labelwise
from labelwise.errors import BadInput
from labelwise.pool.parts import MappedFile
from labelwise.pool.sources.change_guard import FileState, Machine, find_source_files

HERE, THERE = Machine("a", "1"), Machine("b", "2")


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (FileState(HERE, {"f": (10, 5)}), ""),
        (FileState(HERE, {"f": (10, 6)}), "f changed while items were picked"),
        (FileState(HERE, {"f": (11, 5)}), "f changed while items were picked"),
        (FileState(HERE, {}), "f changed while items were picked"),
        (FileState(HERE, {"f": (10, 5), "g": (1, 1)}), "g changed while items were picked"),
        (FileState(THERE, {"f": (10, 6)}), ""),  # a copy
        (FileState(Machine("a", "2"), {"f": (10, 6)}), ""),  # another machine of the same name
        (
            FileState(THERE, {"f": (11, 5)}),
            "f has 10 bytes on a but 11 on b; give every",
        ),
    ],
)
def test_files_that_differ_are_named(other, told):
    found = FileState(HERE, {"f": (10, 5)}).describe_difference(other)
    assert found.startswith(told) and bool(found) == bool(told)


def test_all_files_are_seen_but_for_remote_ones(tmp_path):
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, np.ones(3))
    mapped = MappedFile(str(tmp_path / "raw.bin"), np.dtype("f8"), 0, (3,))
    (tmp_path / "raw.bin").write_bytes(bytes(24))
    values = {"features": [str(tmp_path / "?.npy"), np.ones(3)], "outputs": mapped}
    values["logits"] = "s3://bucket/rows.npy"
    found = FileState.read(find_source_files(values))
    assert found.files.keys() == {str(tmp_path / name) for name in ("a.npy", "b.npy", "raw.bin")}
    assert found.files[str(tmp_path / "raw.bin")][0] == 24
    (tmp_path / "raw.bin").unlink()
    now = FileState.read(found.files)
    assert now.files[str(tmp_path / "raw.bin")] == (0, 0) and now.machine == found.machine


def longer(path):
    np.save(path, np.ones((500, 3)))


def cut(path):
    os.truncate(path, 200)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "rows.npy"
    np.save(file, np.random.default_rng(0).normal(size=(400, 3)))
    return file


@pytest.mark.parametrize("given", [str, lambda path: path, lambda path: path.parent])
@pytest.mark.parametrize("change", [longer, cut, os.utime, os.remove])
def test_a_selection_from_a_file_that_changes_is_refused(path, given, change):
    changes = [change]

    def progress(stage, done, total):
        if changes:
            changes.pop()(path)

    with pytest.raises(BadInput, match=r"rows\.npy changed while items were picked"):
        labelwise.select("lewis", 10, features=given(path), progress=progress)
    assert not changes


def test_a_selection_from_a_mapped_file_that_changes_is_refused(path):
    rows = np.load(path, mmap_mode="r")
    with pytest.raises(BadInput, match=r"rows\.npy changed while items were picked"):
        labelwise.select("lewis", 10, features=rows, progress=lambda *_: os.utime(path))


def test_rows_beside_those_of_a_mapped_file_may_change(path):
    rows = np.load(path, mmap_mode="r")[:300]
    labelwise.select("lewis", 10, features=rows, progress=lambda *_: os.utime(path))


def test_one_of_several_files_that_changes_is_enough(path):
    for several in ([path, path], (path, path)):
        with pytest.raises(BadInput, match=r"rows\.npy changed while items were picked"):
            labelwise.select("lewis", 10, features=several, progress=lambda *_: os.utime(path))


def test_another_error_is_told_as_it_is(path):
    def progress(stage, done, total):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        labelwise.select("lewis", 10, features=path, progress=progress)
