"""The connection of this process to a Ray cluster: what is said once it is lost.

Ray tells of a lost cluster in many ways, late, or not at all. Here all of them become one error
that names the cluster. Nothing here imports ray.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from labelwise.running.ray_parts import ClusterFailed
from labelwise.running.ray_watch import Watch


def first_line(error: BaseException) -> str:
    """What an error says, in one line and without its full stop.

    Example:
        >>> first_line(OSError("no route to the host.")), first_line(OSError())
        ('no route to the host', 'OSError')
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):  # what follows is the message, or has it last
        lines[0] += f" {lines[-1 if lines[1].startswith('Traceback') else 1]}"
    return lines[0].rstrip(".:") if lines else type(error).__name__


class Connection:
    """A cluster that this process has joined, until it is lost; then it stays lost."""

    def __init__(
        self,
        address: str,
        watch: Watch,
        *,
        is_joined: Callable[[], bool],
        leave: Callable[[], None],
        answers: type[Exception],
    ) -> None:
        """Begin with a cluster that is there.

        Args:
            address: of the cluster, for messages.
            watch: looks after its head.
            is_joined: whether this process still belongs to it.
            leave: called once it is lost, so that this process can join a cluster again.
            answers: errors that are answers of a cluster, and no sign that it is lost.
        """
        self._address, self._watch = address, watch
        self._is_joined, self._leave, self._answers = is_joined, leave, (answers, ClusterFailed)
        self._lost, self._leaving = "", threading.Lock()

    def check(self) -> None:
        """Refuse to go on without the cluster."""
        if self._lost:
            raise ClusterFailed(self._lost)
        if self._watch.is_lost:
            self._give_up("")
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
                self._give_up(first_line(error), error)
            raise

    def close(self) -> None:
        """Look after the head no more."""
        self._watch.stop()

    def _give_up(self, why: str, cause: BaseException | None = None) -> NoReturn:
        silent = f"has not answered for {self._watch.silence:.0f} s"
        what = silent if self._watch.is_lost else f"is lost ({why})"
        with self._leaving:  # of several threads that notice, the first one leaves
            if not self._lost:
                self._lost = (
                    f"the head of the Ray cluster, {self._address}, {what}; start the cluster and "
                    "the selection again"
                )
                self._watch.stop()
                self._leave()
        raise ClusterFailed(self._lost) from cause
