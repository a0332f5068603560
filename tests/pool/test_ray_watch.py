"""A head that answers, fails or says nothing at all: when it is given up, and who is told."""

import threading
import time
from types import SimpleNamespace

import pytest

from labelwise.pool.ray import supervision as ray_watch
from labelwise.pool.ray.supervision import HeadMonitor

EVERY, PATIENCE = 0.1, 2  # ten looks or more: a busy machine may miss some for lack of a thread


def watched(look, lost=None):
    return HeadMonitor(look, patience=PATIENCE, lost=lost, every=EVERY)


def fail():
    raise ConnectionError("gone")


def say_nothing():
    threading.Event().wait(1)


@pytest.mark.parametrize("look", [fail, say_nothing, lambda: False])
def test_a_head_that_does_not_answer_is_lost_after_a_while(look):
    told = threading.Event()
    begin = time.monotonic()
    watch = watched(look, told.set)
    assert told.wait(60)
    assert time.monotonic() - begin >= PATIENCE and watch.is_lost and watch.silence >= PATIENCE
    watch.stop()


def test_time_in_which_nobody_looked_is_not_the_silence_of_the_head(monkeypatch):
    """Such as that of a process that was stopped in the middle of a look and goes on much later."""
    looks, passed, told = [], [0], threading.Event()
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0])
    monkeypatch.setattr(ray_watch, "time", clock)

    def look():
        looks.append(1)
        passed[0] += 1000  # as much time goes by, and the look is of no use
        return len(looks) > 3

    watch = watched(look, told.set)
    assert waited(lambda: len(looks) > 5)
    assert not told.is_set() and not watch.is_lost and watch.silence < PATIENCE
    watch.stop()


@pytest.mark.parametrize("every", [1, 3])
def test_a_head_that_answers_always_or_now_and_then_is_not_lost(every):
    told, looks = threading.Event(), []

    def look():
        looks.append(1)
        return len(looks) % every == 0

    watch = watched(look, told.set)
    assert waited(lambda: len(looks) > 1.5 * PATIENCE / EVERY)
    assert not told.is_set() and not watch.is_lost
    watch.stop()


def test_a_head_that_comes_back_is_lost_no_more():
    there = threading.Event()
    watch = watched(there.is_set)
    assert waited(lambda: watch.is_lost)
    there.set()
    assert waited(lambda: not watch.is_lost)
    watch.stop()


def waited(condition):
    end = time.monotonic() + 60
    while time.monotonic() < end and not condition():
        time.sleep(EVERY)
    return condition()


def looking():
    """Whether anyone looks just now."""
    return "labelwise-ask" in [thread.name for thread in threading.enumerate()]


def test_nobody_looks_after_it_was_stopped():
    looks = []
    watch = watched(lambda: looks.append(1) or True)
    assert waited(lambda: looks)
    watch.stop()
    assert waited(lambda: not watch._thread.is_alive() and not looking())
    count = len(looks)
    time.sleep(5 * EVERY)
    assert len(looks) == count


def test_stopping_waits_for_no_answer():
    over = threading.Event()

    def look():
        watch._every = 1000  # how long this look may take
        over.wait(1000)

    watch = HeadMonitor(look, patience=10_000, every=1)
    assert waited(looking)
    watch.stop()
    assert waited(lambda: not watch._thread.is_alive())
    over.set()
