"""What is said once a cluster is lost, in whatever way that shows."""

import threading
import time

import pytest

from labelwise.pool.ray.parts import ClusterFailed
from labelwise.pool.ray.supervision import ClusterConnection, HeadMonitor

AGAIN = "start the cluster and the selection again"


class Joined:
    """A cluster that this process has joined until it leaves it."""

    def __init__(self, answers=True):
        self.here, self.left = True, 0
        patience = 60 if answers else 0.2
        self.watch = watch = HeadMonitor(lambda: answers, patience=patience, every=0.05)
        named = {"is_joined": lambda: self.here, "leave": self.leave, "answers": LookupError}
        self.connection = ClusterConnection("node:6379", watch, **named)

    def leave(self):
        time.sleep(0.05)  # while others notice, too
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
        end = time.monotonic() + 60
        while time.monotonic() < end and not cluster.watch.is_lost:
            time.sleep(0.05)
        silent = rf"node:6379, has not answered for \d+ s; {AGAIN}"
        with pytest.raises(ClusterFailed, match=silent), cluster.connection.use():
            raise AssertionError("nothing may be asked of it")
        assert cluster.left == 1


def test_of_several_threads_that_miss_a_cluster_one_leaves_it():
    together, told = threading.Barrier(4), []

    def miss(cluster):
        with pytest.raises(ClusterFailed) as error, cluster.connection.use():
            together.wait(60)
            raise ConnectionError("no route")
        told.append(str(error.value))

    with Joined() as cluster:
        threads = [threading.Thread(target=miss, args=(cluster,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert cluster.left == 1 and len(told) == 4 and len(set(told)) == 1


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
