"""What one process answers, and what it says of files and of what it cannot load."""

import pickle
import sys
import types

import numpy as np
import pytest

from labelwise.errors import BadInput
from labelwise.pool.parts import (
    LARGE,
    PartWorker,
    count_answer_bytes,
    pack_for_worker,
    unpack_from_worker,
)


def run(function, *arguments):
    return unpack_from_worker(PartWorker(pickle.dumps).run(pickle.dumps((function, arguments))))


@pytest.mark.parametrize("length", [3, LARGE])
def test_an_array_comes_back_as_it_is_and_may_be_written_to(length):
    payload = pickle.dumps((np.arange, (length,)))
    answer = PartWorker(pickle.dumps).run(payload)
    assert isinstance(answer, bytes) == (length == 3)
    found = unpack_from_worker(answer)
    np.testing.assert_array_equal(found, np.arange(length))
    found += 1
    assert count_answer_bytes(answer) >= found.nbytes


def test_what_is_of_a_module_that_is_not_here_is_told(monkeypatch):
    module = types.ModuleType("nowhere_else")
    exec("def score(rows):\n    return rows", module.__dict__)
    monkeypatch.setitem(sys.modules, "nowhere_else", module)
    payload = pickle.dumps((module.score, (1,)))
    assert unpack_from_worker(PartWorker(pickle.dumps).run(payload)) == 1
    monkeypatch.delitem(sys.modules, "nowhere_else")
    told = (
        r"^what was sent cannot be loaded on .+ \(No module named 'nowhere_else'\); install the mod"
    )
    with pytest.raises(BadInput, match=told):
        unpack_from_worker(PartWorker(pickle.dumps).run(payload))
    monkeypatch.setitem(sys.modules, "nowhere_else", types.ModuleType("nowhere_else"))
    with pytest.raises(BadInput, match=r"cannot be loaded on .*attribute 'score'"):
        unpack_from_worker(PartWorker(pickle.dumps).run(payload))


def fail():
    raise ImportError("of its own")


def test_an_error_of_the_function_itself_is_left_as_it_is():
    with pytest.raises(ImportError, match="of its own") as caught:
        run(fail)
    assert str(caught.value) == "of its own" and "in fail" in caught.value.__notes__[0]


def test_what_can_travel_does_and_what_cannot_is_named():
    assert pickle.loads(pack_for_worker(pickle.dumps, [1, 2], "the list")) == [1, 2]
    with pytest.raises(
        BadInput, match=r"^the file cannot be sent to other processes \(.*BufferedR"
    ):
        with open(__file__, "rb") as file:
            pack_for_worker(pickle.dumps, file, "the file")
