"""Supervision of a Ray cluster: its address and its head. No ray import.

A process joins a cluster from one of its nodes (``HOST:PORT`` of the head) or through Ray's client
(``ray://HOST:PORT``). Ray reports the loss of the head in many ways, late or not at all. So a
thread queries the head every few seconds, and all failures become one error that names the cluster.
Calls that may never return run in threads that are abandoned.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any, NamedTuple, NoReturn, TypeVar

from labelwise.errors import BadInput, MissingDependency, first_line
from labelwise.pool.ray.parts import ClusterFailed

CLIENT = "ray://"
LISTEN_SECONDS = 5.0  # Timeout for a TCP connection


def find_cluster_address(on: str) -> str:
    """Return the address of the cluster; empty if Ray is to be started on this machine.

    >>> find_cluster_address("ray:node:6379"), find_cluster_address("ray://node:10001")
    ('node:6379', 'ray://node:10001')
    """
    if on != "ray" and not on.startswith("ray:"):
        raise BadInput(f"on must be ray, ray:HOST:PORT or ray://HOST:PORT; got {on!r}")
    address = on if on.startswith(CLIENT) else on[4:]
    if address not in ("", "auto") and ClusterAddress.of(address) is None:
        raise BadInput(f"the address of a Ray cluster is HOST:PORT; got {address!r}")
    return address or os.environ.get("RAY_ADDRESS", "")


class ClusterAddress(NamedTuple):
    """Host and port of a cluster, and whether Ray's client is used."""

    host: str
    port: int
    outside: bool

    @classmethod
    def of(cls, address: str) -> "ClusterAddress | None":
        """Parse an address; None without a host and a valid port, as for ``auto``."""
        host, _, port = address.removeprefix(CLIENT).rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            return None
        return cls(host.strip("[]"), int(port), address.startswith(CLIENT))

    def listens(self) -> bool:
        """Whether the address accepts connections."""
        try:
            socket.create_connection((self.host, self.port), timeout=LISTEN_SECONDS).close()
        except OSError:
            return False
        return True

    def is_same(self, other: "ClusterAddress") -> bool:
        """Whether two addresses name the same server; this one may be a loopback address."""
        hosts = _resolve_host(other.host), "127.0.0.1"
        return self[1:] == other[1:] and _resolve_host(self.host) in hosts


def _resolve_host(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def check_joined_cluster(address: str, joined: str) -> None:
    """Reject a cluster other than the one this process has joined."""
    there, here = ClusterAddress.of(address), ClusterAddress.of(joined)
    if there is not None and here is not None and not there.is_same(here):
        raise BadInput(
            f"this process has joined the Ray cluster at {joined}; call ray.shutdown() before it "
            f"joins the one at {address}"
        )


def check_cluster_listens(address: str) -> None:
    """Reject an address that does not listen or cannot be joined from this machine."""
    if address.startswith(CLIENT) and find_spec("grpc") is None:
        raise MissingDependency(
            f"joining {address} needs grpcio, for Ray's client; run pip install 'labelwise[ray]'"
        )
    place = ClusterAddress.of(address)
    if place is not None and not place.listens():
        raise ClusterFailed(f"no Ray cluster answers at {address}; check the address and the port")


EVERY_SECONDS = 5.0  # Interval between queries of the head, and timeout of one answer
CHECK_SECONDS = 1.0  # Interval between checks of the cluster while waiting for an answer
LEAVE_SECONDS = 5.0  # Timeout for leaving a lost cluster, which may hang on a silent head
T = TypeVar("T")


def run_in_daemon_thread(function: Callable[[], T]) -> "Future[T]":
    """Run a function in a daemon thread and return its future."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:  # raised by Future.result
            answer.set_exception(error)

    threading.Thread(target=run, name="labelwise-ask", daemon=True).start()
    return answer


class HeadMonitor:
    """Queries the head of a cluster periodically until stopped.

    Attributes:
        is_lost: whether the head has been silent for too long.
        silence: seconds since the last answer.
    """

    def __init__(
        self,
        look: Callable[[], object],
        *,
        patience: float,
        lost: Callable[[], None] | None = None,
        every: float = EVERY_SECONDS,
    ) -> None:
        """Start the monitor.

        ``look`` queries the head: it may raise or never return, and only True is an answer.
        ``lost`` is called after a silence of ``patience`` seconds, to wake up waiting threads; the
        monitor then stops.
        """
        self._look, self._patience, self._lost, self._every = look, patience, lost, every
        self._ended: Future[None] = Future()
        self.is_lost, self.silence = False, 0.0
        self._thread = threading.Thread(target=self._run, name="labelwise-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop without waiting for a pending answer."""
        with suppress(InvalidStateError):  # another thread may stop it too
            self._ended.set_result(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(EVERY_SECONDS)

    def _run(self) -> None:
        while not wait([self._ended], timeout=self._every).done:
            begin = time.monotonic()
            answer = run_in_daemon_thread(self._look)  # abandoned if it hangs
            either: list[Future[Any]] = [answer, self._ended]
            wait(either, timeout=self._every, return_when=FIRST_COMPLETED)
            if answer.done() and answer.exception() is None and answer.result() is True:
                self.silence, self.is_lost = 0.0, False
                continue
            self.silence += self._every + min(time.monotonic() - begin, self._every)
            if self.silence >= self._patience and not self._ended.done():
                self.is_lost = True
                if self._lost is not None:
                    self._lost()
                    return


class ClusterConnection:
    """Connection to a joined cluster; once lost, it stays lost."""

    def __init__(
        self,
        address: str,
        monitor: HeadMonitor,
        *,
        is_joined: Callable[[], bool],
        leave: Callable[[], None],
        answers: type[Exception],
    ) -> None:
        """Supervise a cluster that this process has joined.

        ``leave`` is called once after a loss, so that this process can join a cluster again;
        ``answers`` are errors that a working cluster raises.
        """
        self._address, self._monitor = address, monitor
        self._is_joined, self._leave, self._answers = is_joined, leave, (answers, ClusterFailed)
        self._lost, self._leaving = "", threading.Lock()

    def check(self) -> None:
        """Raise an error if the cluster is lost."""
        if self._lost:
            raise ClusterFailed(self._lost)
        if silent := self._describe_silence():
            self._give_up(silent)
        if not self._is_joined():
            raise ClusterFailed(
                f"this process has left the Ray cluster at {self._address}: ray.shutdown() was "
                "called, or the connection is lost; start new actors"
            )

    @contextmanager
    def use(self) -> Iterator[None]:
        """Context for calls to the cluster; converts errors of a lost connection."""
        self.check()
        try:
            yield
        except self._answers:
            raise
        except Exception as error:
            # On a lost connection Ray's client raises errors of many types.
            if isinstance(error, ConnectionError) or not self._is_joined():
                self._give_up(self._describe_silence() or f"is lost ({first_line(error)})", error)
            raise

    def ask(self, question: Callable[[], T]) -> T:
        """Return the result of a call that may hang if the head is lost."""
        with self.use():
            answer = run_in_daemon_thread(question)
            while wait([answer], timeout=CHECK_SECONDS).not_done:
                self.check()
            return answer.result()

    def close(self) -> None:
        """Stop the monitor."""
        self._monitor.stop()

    def _describe_silence(self) -> str:
        """Describe a head that has been silent for too long; empty if it has not."""
        seconds = self._monitor.silence  # read once: the head may answer at any time
        return f"has not answered for {seconds:.0f} s" if self._monitor.is_lost and seconds else ""

    def _give_up(self, what: str, cause: BaseException | None = None) -> NoReturn:
        with self._leaving:  # only the first thread leaves the cluster
            if not self._lost:
                self._lost = (
                    f"the head of the Ray cluster, {self._address}, {what}; start the cluster and "
                    "the selection again"
                )
                self.close()
                wait([run_in_daemon_thread(self._leave)], timeout=LEAVE_SECONDS)
        raise ClusterFailed(self._lost) from cause
