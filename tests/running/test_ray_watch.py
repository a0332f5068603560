"""A head that answers, fails or says nothing at all: when it is given up, and who is told."""

import threading
import time

import pytest

from labelwise.running.ray_watch import Watch

EVERY, PATIENCE = 0.05, 0.5  # a busy machine may take some looks to run a thread


def watched(look, lost=None):
    return Watch(look, patience=PATIENCE, lost=lost, every=EVERY)


def fail():
    raise ConnectionError("gone")


def say_nothing():
    threading.Event().wait(1)


@pytest.mark.parametrize("look", [fail, say_nothing, lambda: False])
def test_a_head_that_does_not_answer_is_lost_after_a_while(look):
    told = threading.Event()
    begin = time.monotonic()
    watch = watched(look, told.set)
    assert told.wait(10)
    assert time.monotonic() - begin >= PATIENCE and watch.is_lost and watch.silence >= PATIENCE
    watch.stop()


def test_a_head_that_answers_is_not_lost():
    told = threading.Event()
    watch = watched(lambda: True, told.set)
    assert not told.wait(2 * PATIENCE) and not watch.is_lost
    watch.stop()


def test_a_head_that_answers_now_and_then_is_not_lost():
    told, looks = threading.Event(), []

    def look():
        looks.append(time.monotonic())
        return len(looks) % 3 == 0

    watch = watched(look, told.set)
    assert not told.wait(2 * PATIENCE) and not watch.is_lost
    watch.stop()


def test_a_head_that_comes_back_is_lost_no_more():
    there = threading.Event()
    watch = watched(there.is_set)
    assert waited(lambda: watch.is_lost)
    there.set()
    assert waited(lambda: not watch.is_lost)
    watch.stop()


def waited(condition):
    end = time.monotonic() + 10
    while time.monotonic() < end and not condition():
        time.sleep(EVERY)
    return condition()


def test_nobody_looks_after_it_was_stopped():
    looks = []
    watch = watched(lambda: looks.append(1) or True)
    assert waited(lambda: looks)
    watch.stop()
    count = len(looks)
    time.sleep(5 * EVERY)
    assert len(looks) == count and not watch._thread.is_alive()
