"""What is said once a cluster is lost, in whatever way that shows."""

import doctest
import time

import pytest

from labelwise.running import ray_connection
from labelwise.running.ray_connection import Connection, first_line
from labelwise.running.ray_parts import ClusterFailed
from labelwise.running.ray_watch import Watch

AGAIN = "start the cluster and the selection again"


class Joined:
    """A cluster that this process has joined until it leaves it."""

    def __init__(self, answers=True):
        self.here, self.left, self.answers = True, 0, answers
        self.watch = watch = Watch(lambda: self.answers, patience=0.2, every=0.05)
        named = {"is_joined": lambda: self.here, "leave": self.leave, "answers": LookupError}
        self.connection = Connection("node:6379", watch, **named)

    def leave(self):
        self.here, self.left = False, self.left + 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()


def test_a_connection_that_breaks_is_told_once_and_for_all():
    with Joined() as cluster:
        lost = rf"^the head of the Ray cluster, node:6379, is lost \(no route\); {AGAIN}$"
        with pytest.raises(ClusterFailed, match=lost), cluster.connection.use():
            raise ConnectionError("no route.\nmore")
        cluster.here = True  # another one was joined since
        with pytest.raises(ClusterFailed, match=lost):
            cluster.connection.check()
        assert cluster.left == 1


def test_a_head_that_is_silent_is_told():
    with Joined(answers=False) as cluster:
        end = time.monotonic() + 10
        while time.monotonic() < end and not cluster.watch.is_lost:
            time.sleep(0.05)
        silent = f"node:6379, has not answered for 0 s; {AGAIN}"
        with pytest.raises(ClusterFailed, match=silent), cluster.connection.use():
            raise AssertionError("nothing may be asked of it")
        assert cluster.left == 1


def test_any_error_on_a_connection_that_has_ended_is_its_loss():
    with Joined() as cluster:
        with pytest.raises(ClusterFailed, match=r"is lost \(closed channel\)"):
            with cluster.connection.use():
                cluster.here = False
                raise ValueError("closed channel")


@pytest.mark.parametrize("error", [LookupError, TypeError])
def test_other_errors_are_left_as_they_are(error):
    with Joined() as cluster:
        with pytest.raises(error, match=r"^odd$"), cluster.connection.use():
            raise error("odd")
        cluster.connection.check()
        assert cluster.left == 0


def test_an_answer_is_no_loss_even_on_a_connection_that_has_ended():
    with Joined() as cluster:
        with pytest.raises(LookupError, match=r"^odd$"), cluster.connection.use():
            cluster.here = False
            raise LookupError("odd")


def test_a_cluster_that_was_left_is_named():
    with Joined() as cluster:
        cluster.leave()
        with pytest.raises(
            ClusterFailed, match=r"has left the Ray cluster at node:6379: ray\.shut"
        ):
            cluster.connection.check()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (" \n ", "ValueError"),
        ("no route.\nmore", "no route"),
        ("it failed:\n  no port is free.\nmore", "it failed: no port is free"),
        (
            "it failed:\nTraceback (most recent call last):\n  a\nOSError: b",
            "it failed: OSError: b",
        ),
        ("it ended with:", "it ended with"),
    ],
)
def test_what_an_error_says_is_one_line(text, line):
    assert first_line(ValueError(text)) == line


def test_the_examples_run():
    found = doctest.testmod(ray_connection)
    assert found.attempted > 0 and found.failed == 0
