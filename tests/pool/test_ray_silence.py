"""A head that says nothing: nobody waits for its answer for ever, and what is said names it."""

import threading
import time
from contextlib import contextmanager

import pytest

from labelwise.pool.ray import supervision as ray_connection
from labelwise.pool.ray.parts import ClusterFailed
from labelwise.pool.ray.supervision import ClusterConnection, HeadMonitor

SILENT = r"^the head of the Ray cluster, node:6379, has not answered for \d+ s; start the cluster"


@contextmanager
def joined(watch, leave=lambda: None):
    known = {"is_joined": lambda: True, "leave": leave, "answers": LookupError}
    connection = ClusterConnection("node:6379", watch, **known)
    yield connection
    connection.close()


def silent():
    return HeadMonitor(lambda: False, patience=1, every=0.1)


def answering():
    return HeadMonitor(lambda: True, patience=600, every=0.1)  # a busy machine may be late to look


def wait_until(condition):
    end = time.monotonic() + 60
    while time.monotonic() < end and not condition():
        time.sleep(0.01)
    assert condition()


def test_a_question_that_a_lost_head_never_answers_is_given_up():
    over = threading.Event()
    with joined(silent()) as connection:
        with pytest.raises(ClusterFailed, match=SILENT):
            connection.ask(over.wait)
    over.set()


def test_an_answer_that_takes_a_while_is_waited_for(monkeypatch):
    monkeypatch.setattr(ray_connection, "CHECK_SECONDS", 0.01)
    with joined(answering()) as connection:
        assert connection.ask(lambda: (time.sleep(0.1), 7)[1]) == 7


@pytest.mark.parametrize("error", [LookupError("odd"), ClusterFailed("odd"), TypeError("odd")])
def test_what_a_question_raises_is_raised_where_it_was_asked(error):
    def ask():
        raise error

    with joined(answering()) as connection:
        with pytest.raises(type(error), match=r"^odd$") as raised:
            connection.ask(ask)
        assert raised.value is error
        connection.check()


def test_a_connection_that_breaks_under_a_question_is_lost():
    def ask():
        raise ConnectionError("no route")

    with joined(answering()) as connection:
        with pytest.raises(ClusterFailed, match=r"is lost \(no route\); start the cluster"):
            connection.ask(ask)


def test_a_head_that_holds_up_those_who_leave_is_left_behind(monkeypatch):
    monkeypatch.setattr(ray_connection, "LEAVE_SECONDS", 0.1)
    over, left = threading.Event(), []

    def leave():
        over.wait()
        left.append(True)

    with joined(silent(), leave=leave) as connection:
        with pytest.raises(ClusterFailed, match=SILENT):
            connection.ask(over.wait)
        with pytest.raises(ClusterFailed, match=SILENT):
            connection.check()
        assert not left
        over.set()
        wait_until(lambda: left)  # it is left after all, once it goes on


class Late(HeadMonitor):
    """A watch whose head answers at last just after somebody has seen that it is lost."""

    there: threading.Event

    @property
    def is_lost(self):
        if seen := self._is_lost:
            self.there.set()
            wait_until(lambda: not self.silence)
        return seen

    @is_lost.setter
    def is_lost(self, value):
        self._is_lost = value


def test_a_head_that_answers_between_two_looks_at_it_leaves_no_empty_reason():
    there = Late.there = threading.Event()
    late = Late(there.is_set, patience=1, every=0.3)
    wait_until(lambda: late._is_lost)
    with joined(late) as connection:
        with pytest.raises(ClusterFailed, match=SILENT) as error:
            connection.check()
        assert "answered for 0 s" not in str(error.value) and "()" not in str(error.value)
