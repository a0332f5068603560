"""Steps in a row are those of a loop, wherever they are made."""

import gc

import numpy as np
import pytest

from labelwise.arrays import to_numpy
from labelwise.kernels.loop.scan import Scan

torch = pytest.importorskip("torch")
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def on_gpu(array):
    return torch.as_tensor(array, device="cuda")


LIBRARIES = [np.asarray, torch.as_tensor, pytest.param(on_gpu, marks=NO_GPU)]


def fibonacci(constants, state):
    """The new state holds an array of the old one; what is put out is one of the old ones."""
    before, now = state
    return (now, (before + now) % constants[0]), (before, now[:2] * 2)


def slow(bound, before, now, count):
    outs = []
    for _ in range(count):
        outs.append((before, 2 * now[:2]))
        before, now = now, (before + now) % bound
    return before, now, outs


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("length", "rounds"), [(1, 1), (1, 5), (3, 1), (4, 3)])
def test_rounds_of_steps_are_a_loop(library, length, rounds):
    scan = Scan(fibonacci, length)
    for start in (1.0, 7.0):
        bound, before, now = np.full(3, 1000.0 + start), np.arange(3.0), np.full(3, start)
        given = (library(bound),), (library(before), library(now))
        state, out = scan(*given, rounds=rounds)
        *expected, outs = slow(bound, before, now, length * rounds)
        np.testing.assert_array_equal(np.stack([to_numpy(part) for part in state]), expected)
        for found, column in zip(out, zip(*outs, strict=True), strict=True):
            np.testing.assert_array_equal(to_numpy(found), np.stack(column))


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_came_out_is_not_overwritten_by_the_next_call(library):
    scan = Scan(fibonacci, 2)
    constants = (library(np.full(3, 1e6)),)
    state, first = scan(constants, (library(np.ones(3)), library(np.ones(3))))
    kept = [to_numpy(part).copy() for part in (*state, *first)]
    scan(constants, state, rounds=3)
    for part, copy in zip((*state, *first), kept, strict=True):
        np.testing.assert_array_equal(to_numpy(part), copy)


@NO_GPU
def test_an_earlier_graph_that_is_garbage_does_not_spoil_a_recording():
    given = (on_gpu(np.full(3, 1e6)),), (on_gpu(np.ones(3)), on_gpu(np.ones(3)))
    before = gc.get_threshold()
    gc.disable()
    for _ in range(20):
        scan = Scan(fibonacci, 2)
        scan(*given)
        scan.itself = scan  # only the collector frees it
    del scan
    gc.enable()
    gc.set_threshold(1)
    try:
        state, _ = Scan(fibonacci, 3)(*given)
    finally:
        gc.set_threshold(*before)
    assert to_numpy(state[1]).tolist() == [5.0] * 3
