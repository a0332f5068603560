"""The connection of this process to a Ray cluster: what is said once it is lost.

Ray tells of a lost cluster in many ways, late, or not at all. Here all of them become one error
that names the cluster. What may never return, such as a question to a head that is gone, is done by
a thread that is left then. Nothing here imports ray.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from labelwise.errors import first_line
from labelwise.pool.ray.parts import ClusterFailed
from labelwise.pool.ray.watch import Watch

CHECK_SECONDS = 1.0
"""How often is seen whether a cluster is there while it is asked something."""
LEAVE_SECONDS = 5.0
"""How long leaving a cluster that is lost may take: a head that is silent would hold it up."""

T = TypeVar("T")


def in_thread(function: Callable[[], T]) -> "Future[T]":
    """What a function will return, if ever: its thread does not keep this process from ending."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:  # for whoever waits
            answer.set_exception(error)

    threading.Thread(target=run, name="labelwise-ask", daemon=True).start()
    return answer


class Connection:
    """A cluster that this process has joined, until it is lost; then it stays lost."""

    def __init__(
        self,
        address: str,
        *watches: Watch,
        is_joined: Callable[[], bool],
        leave: Callable[[], None],
        answers: type[Exception],
    ) -> None:
        """Begin with a cluster that is there.

        Args:
            address: of the cluster, for messages.
            watches: look after its head; each is enough to miss it.
            is_joined: whether this process still belongs to it.
            leave: called once it is lost, so that this process can join a cluster again.
            answers: errors that are answers of a cluster, and no sign that it is lost.
        """
        self._address, self._watches = address, watches
        self._is_joined, self._leave, self._answers = is_joined, leave, (answers, ClusterFailed)
        self._lost, self._leaving = "", threading.Lock()

    def check(self) -> None:
        """Refuse to go on without the cluster."""
        if self._lost:
            raise ClusterFailed(self._lost)
        if silent := self._silence():
            self._give_up(silent)
        if not self._is_joined():
            raise ClusterFailed(
                f"this process has left the Ray cluster at {self._address}: ray.shutdown() was "
                "called, or the connection is lost; start new actors"
            )

    @contextmanager
    def use(self) -> Iterator[None]:
        """Talk to the cluster."""
        self.check()
        try:
            yield
        except self._answers:
            raise
        except Exception as error:
            # On a connection that is lost Ray's client raises errors of any kind.
            if isinstance(error, ConnectionError) or not self._is_joined():
                self._give_up(self._silence() or f"is lost ({first_line(error)})", error)
            raise

    def ask(self, question: Callable[[], T]) -> T:
        """What a question returns or raises; it may wait for a head that has gone meanwhile."""
        with self.use():
            answer = in_thread(question)
            while wait([answer], timeout=CHECK_SECONDS).not_done:
                self.check()
            return answer.result()

    def close(self) -> None:
        """Look after the head no more."""
        for watch in self._watches:
            watch.stop()

    def _silence(self) -> str:
        """That the head has been silent for too long, or nothing."""
        for watch in self._watches:
            seconds = watch.silence  # once, and first: the head may answer just now
            if watch.is_lost and seconds:
                return f"has not answered for {seconds:.0f} s"
        return ""

    def _give_up(self, what: str, cause: BaseException | None = None) -> NoReturn:
        with self._leaving:  # of several threads that notice, the first one leaves
            if not self._lost:
                self._lost = (
                    f"the head of the Ray cluster, {self._address}, {what}; start the cluster and "
                    "the selection again"
                )
                self.close()
                wait([in_thread(self._leave)], timeout=LEAVE_SECONDS)
        raise ClusterFailed(self._lost) from cause
