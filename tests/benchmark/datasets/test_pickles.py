"""Pickles of arrays are read, and what could do harm is refused."""

import os
import pickle

import numpy as np
import pytest

from labelwise.benchmark.datasets.readers import unpickle_arrays
from labelwise.errors import BadInput
from tests.benchmark.datasets.files import python_2_batch, some_images


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["u1", "i8", "f4"])
def test_arrays_come_back_as_they_were(protocol, dtype):
    values = {"data": np.arange(12).astype(dtype).reshape(3, 4), "labels": [1, 2], "name": b"x"}
    found = unpickle_arrays("batch", pickle.dumps(values, protocol))
    plain = {k.decode() if isinstance(k, bytes) else k: v for k, v in found.items()}
    np.testing.assert_array_equal(plain["data"], values["data"])
    assert plain["data"].dtype == dtype
    assert (plain["labels"], plain["name"]) == ([1, 2], b"x")


def test_what_python_2_wrote_is_read():
    images = some_images(2, 3, 32)
    found = unpickle_arrays("batch", python_2_batch(images, [7, 3]))
    np.testing.assert_array_equal(found[b"data"], images.reshape(2, -1))
    assert found[b"labels"] == [7, 3]


class Harm:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_cannot_run_a_command(protocol, tmp_path):
    target = tmp_path / "done"
    data = pickle.dumps({"data": Harm(os.system, f"touch {target}")}, protocol)
    with pytest.raises(BadInput, match=r"batch is not a pickle of arrays .*system"):
        unpickle_arrays("batch", data)
    assert not target.exists()


@pytest.mark.parametrize("function", [eval, getattr, np.load, np.memmap, pickle.loads])
def test_other_functions_are_refused_whoever_they_belong_to(function):
    with pytest.raises(BadInput, match="which arrays do not need"):
        unpickle_arrays("batch", pickle.dumps(Harm(function, "1")))


def test_harm_inside_an_array_of_objects_is_refused_too():
    array = np.array([Harm(os.getcwd)], dtype=object)
    with pytest.raises(BadInput, match="getcwd"):
        unpickle_arrays("batch", pickle.dumps(array))


def test_only_the_codec_that_bytes_need_is_known():
    data = b"\x80\x02c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00hextR."
    with pytest.raises(BadInput, match="codec 'hex'"):
        unpickle_arrays("batch", data)


@pytest.mark.parametrize("data", [b"", b"hello", b"\x80\x04", b"\x80\x02}(U\x04da"])
def test_what_is_no_pickle_is_named(data):
    with pytest.raises(BadInput, match="cut is not a pickle of arrays"):
        unpickle_arrays("cut", data)
