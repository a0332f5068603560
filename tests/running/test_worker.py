"""What one process answers, and what it says of files and of what it cannot load."""

import doctest
import pickle
import sys
import types

import numpy as np
import pytest

from labelwise.errors import BadInput
from labelwise.running import worker
from labelwise.running.parts import MappedFile
from labelwise.running.worker import LARGE, Machine, Seen, Worker, packed, see, size, unpacked


def run(function, *arguments):
    return unpacked(Worker(pickle.dumps).run(pickle.dumps((function, arguments))))


@pytest.mark.parametrize("length", [3, LARGE])
def test_an_array_comes_back_as_it_is_and_may_be_written_to(length):
    payload = pickle.dumps((np.arange, (length,)))
    answer = Worker(pickle.dumps).run(payload)
    assert isinstance(answer, bytes) == (length == 3)
    found = unpacked(answer)
    np.testing.assert_array_equal(found, np.arange(length))
    found += 1
    assert size(answer) >= found.nbytes


def test_what_is_of_a_module_that_is_not_here_is_told(monkeypatch):
    module = types.ModuleType("nowhere_else")
    exec("def score(rows):\n    return rows", module.__dict__)
    monkeypatch.setitem(sys.modules, "nowhere_else", module)
    payload = pickle.dumps((module.score, (1,)))
    assert unpacked(Worker(pickle.dumps).run(payload)) == 1
    monkeypatch.delitem(sys.modules, "nowhere_else")
    told = (
        r"^what was sent cannot be loaded on .+ \(No module named 'nowhere_else'\); install the mod"
    )
    with pytest.raises(BadInput, match=told):
        unpacked(Worker(pickle.dumps).run(payload))
    monkeypatch.setitem(sys.modules, "nowhere_else", types.ModuleType("nowhere_else"))
    with pytest.raises(BadInput, match=r"cannot be loaded on .*attribute 'score'"):
        unpacked(Worker(pickle.dumps).run(payload))


def fail():
    raise ImportError("of its own")


def test_an_error_of_the_function_itself_is_left_as_it_is():
    with pytest.raises(ImportError, match="of its own") as caught:
        run(fail)
    assert str(caught.value) == "of its own" and "in fail" in caught.value.__notes__[0]


def test_what_can_travel_does_and_what_cannot_is_named():
    assert pickle.loads(packed(pickle.dumps, [1, 2], "the list")) == [1, 2]
    with pytest.raises(
        BadInput, match=r"^the file cannot be sent to other processes \(.*BufferedR"
    ):
        with open(__file__, "rb") as file:
            packed(pickle.dumps, file, "the file")


HERE, THERE = Machine("a", "1"), Machine("b", "2")


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (Seen(HERE, {"f": (10, 5)}), ""),
        (Seen(HERE, {"f": (10, 6)}), "f has changed while items were picked"),
        (Seen(HERE, {"f": (11, 5)}), "f has changed while items were picked"),
        (Seen(HERE, {}), "f has changed while items were picked"),
        (Seen(HERE, {"f": (10, 5), "g": (1, 1)}), "g has changed while items were picked"),
        (Seen(THERE, {"f": (10, 6)}), ""),  # a copy
        (Seen(Machine("a", "2"), {"f": (10, 6)}), ""),  # another machine of the same name
        (Seen(THERE, {"f": (11, 5)}), "f has 10 bytes on a but 11 on b; give every machine the"),
    ],
)
def test_files_that_are_not_the_same_are_told(other, told):
    found = Seen(HERE, {"f": (10, 5)}).unlike(other)
    assert found.startswith(told) and bool(found) == bool(told)


def test_all_files_are_seen_but_for_remote_ones(tmp_path):
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, np.ones(3))
    mapped = MappedFile(str(tmp_path / "raw.bin"), np.dtype("f8"), 0, (3,))
    (tmp_path / "raw.bin").write_bytes(bytes(24))
    values = {"features": [str(tmp_path / "?.npy"), np.ones(3)], "outputs": mapped}
    values["logits"] = "s3://bucket/rows.npy"
    found = see(values)
    assert found.files.keys() == {str(tmp_path / name) for name in ("a.npy", "b.npy", "raw.bin")}
    assert found.files[str(tmp_path / "raw.bin")][0] == 24
    (tmp_path / "raw.bin").unlink()
    assert found.now().files[str(tmp_path / "raw.bin")] == (0, 0)
    assert found.now().by == found.by


def test_the_examples_run():
    found = doctest.testmod(worker, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0 and found.failed == 0
