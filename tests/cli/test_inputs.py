"""The files that a command reads are there, and are not written to."""

import doctest
from pathlib import Path

import numpy as np
import pytest

from labelwise.cli import inputs
from labelwise.cli.inputs import check_apart, named_files
from labelwise.errors import BadInput, UnknownName


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("parts").mkdir()
    for name in ("f.npy", "parts/0.npy", "parts/1.npy"):
        np.save(name, np.eye(3))


def test_a_file_without_a_name_is_refused():
    with pytest.raises(BadInput, match="duals: '' is no file; give its name"):
        named_files(features=["f.npy"], duals=["f.npy", ""])


@pytest.mark.parametrize("missing", ["no.npy", "no-*.npy", "file:///no/such/file.npy"])
def test_a_missing_file_is_refused_whether_needed_or_not(missing):
    with pytest.raises(UnknownName, match=r"duals: (there is no file|no file is called)"):
        check_apart(None, {"features": "f.npy", "duals": ["f.npy", missing]})


@pytest.mark.parametrize(
    ("out", "read"),
    [
        ("f.npy", {"features": "f.npy"}),
        ("parts/../f.npy", {"features": ["parts", "f.npy"]}),
        ("parts/1.npy", {"features": "parts"}),
        ("parts/0.npy", {"features": "parts/*.npy"}),
    ],
)
def test_a_file_that_is_read_is_not_written_to(out, read):
    with pytest.raises(BadInput, match=r"--out .*npy would overwrite .*npy, which is read"):
        check_apart(Path(out), read)


def test_files_beside_those_that_are_read_may_be_written():
    np.save("old.npy", np.eye(3))
    given = {"features": ["f.npy", "parts"], "duals": "s3://bucket/old.npy"}
    for out in ("new.csv", "old.npy", "parts/new.csv"):
        check_apart(Path(out), given, None, Path("missing.txt"))


def test_the_examples_hold():
    assert doctest.testmod(inputs).failed == 0
