"""Rooms are used again, and by one at a time."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from labelwise.kernels.linear import scratch as rooms
from labelwise.kernels.linear.scratch import room


def in_new_thread(function):
    """What a function returns in a thread that has no rooms yet."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(3, 4), (5,), (0, 3), ()])
def test_a_room_has_the_shape_and_the_type_asked_for(shape, dtype):
    with room(shape, dtype) as array:
        array[...] = 7
        assert array.shape == shape and array.dtype == dtype and array.flags.c_contiguous
        np.testing.assert_array_equal(array, np.full(shape, 7, dtype))


def test_the_next_in_a_thread_gets_the_same_memory():
    def addresses():
        found = []
        for shape, dtype in [((100,), np.float64), ((50, 2), np.float64), ((10,), np.float32)]:
            with room(shape, dtype) as array:
                found.append(array.ctypes.data)
        return found

    assert len(set(in_new_thread(addresses))) == 1


def test_a_larger_room_takes_the_place_of_a_smaller_one():
    def sizes():
        for count in (10, 20, 15):
            with room((count,), np.uint8):
                pass
        return [memory.nbytes for memory in rooms._spare.rooms]

    assert in_new_thread(sizes) == [20]


def test_two_at_a_time_do_not_share():
    with room((100,), np.float64) as first, room((100,), np.float64) as second:
        first[:], second[:] = 1, 2
        assert not np.shares_memory(first, second)
        assert first.sum() == 100


def test_threads_do_not_share():
    with room((100,), np.float64) as mine:
        pass

    def other():
        with room((100,), np.float64) as array:
            return array

    assert not np.shares_memory(mine, in_new_thread(other))


def test_few_rooms_are_kept_and_no_large_ones(monkeypatch):
    monkeypatch.setattr(rooms, "KEPT", 2)
    monkeypatch.setattr(rooms, "LARGEST", 1000)

    def kept():
        with room((1001,), np.uint8), room((9,), np.uint8), room((9,), np.uint8):
            with room((9,), np.uint8):
                pass
        return [memory.nbytes for memory in rooms._spare.rooms]

    assert in_new_thread(kept) == [9, 9]


def test_a_room_is_free_again_after_an_error():
    def fail():
        with pytest.raises(ZeroDivisionError), room((8,), np.uint8):
            raise ZeroDivisionError
        return len(rooms._spare.rooms)

    assert in_new_thread(fail) == 1
