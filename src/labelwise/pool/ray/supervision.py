"""Supervision of a Ray cluster: its address, its head, and actors that start late. No ray import.

A process joins a cluster from one of its nodes (``HOST:PORT`` of the head) or through Ray's client
(``ray://HOST:PORT``). Ray reports the loss of the head in many ways, late or not at all. So one
thread queries the head every few seconds and another limits the wait for the answer; all failures
become one error that names the cluster. Calls that may never return run in abandoned threads.

An actor starts late because the cluster lacks resources, which should be reported soon, or because
its machines are busy. Half-way through the waiting time a probe process that needs no resources is
started. If the probe runs and an actor still does not start, the cluster lacks resources. If the
probe does not run either, the cluster is slow, and the waiting time is extended.
"""

import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple, NoReturn, TypeVar

from labelwise.errors import BadInput, LabelwiseWarning, MissingDependency, first_line
from labelwise.pool.ray.parts import ClusterFailed

CLIENT = "ray://"
LISTEN_SECONDS = 5.0
"""Timeout for a TCP connection."""


def find_address(on: str) -> str:
    """Return the address of the cluster; empty if Ray is to be started on this machine.

    Example:
        >>> find_address("ray:node:6379"), find_address("ray://node:10001")
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
        hosts = _resolved(other.host), "127.0.0.1"
        return self[1:] == other[1:] and _resolved(self.host) in hosts


def _resolved(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def check_joined(address: str, joined: str) -> None:
    """Reject a cluster other than the one this process has joined."""
    there, here = ClusterAddress.of(address), ClusterAddress.of(joined)
    if there is not None and here is not None and not there.is_same(here):
        raise BadInput(
            f"this process has joined the Ray cluster at {joined}; call ray.shutdown() before it "
            f"joins the one at {address}"
        )


def check_listens(address: str) -> None:
    """Reject an address that does not listen or cannot be joined from this machine."""
    if address.startswith(CLIENT) and find_spec("grpc") is None:
        raise MissingDependency(
            f"joining {address} needs grpcio, for Ray's client; run pip install 'labelwise[ray]'"
        )
    place = ClusterAddress.of(address)
    if place is not None and not place.listens():
        raise ClusterFailed(f"no Ray cluster answers at {address}; check the address and the port")


EVERY_SECONDS = 5.0
"""Interval between queries of the head, and timeout of one answer."""


class HeadMonitor:
    """Queries the head of a cluster periodically until stopped.

    Attributes:
        is_lost: whether the head has been silent for too long.
        silence: seconds since the last answer.
    """

    def __init__(
        self,
        look: Callable[[], Any],
        *,
        patience: float,
        lost: Callable[[], None] | None = None,
        every: float = EVERY_SECONDS,
    ) -> None:
        """Start the monitor.

        Args:
            look: queries the head. It may raise or never return; a false value means no answer.
            patience: longest allowed silence in seconds.
            lost: called after a longer silence, to wake up waiting threads; the monitor then stops.
            every: seconds between two queries.
        """
        self._look, self._patience, self._lost, self._every = look, patience, lost, every
        self._ended, self._answer = threading.Event(), threading.Event()
        self.is_lost, self.silence = False, 0.0
        self._thread = threading.Thread(target=self._run, name="labelwise-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop without waiting for a pending answer."""
        self._ended.set()
        self._answer.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(EVERY_SECONDS)

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            begin = time.monotonic()
            if self._answered():
                self.silence, self.is_lost = 0.0, False
                continue
            self.silence += self._every + min(time.monotonic() - begin, self._every)
            if self.silence >= self._patience and not self._ended.is_set():
                self.is_lost = True
                if self._lost is not None:
                    self._lost()
                    return

    def _answered(self) -> bool:
        """Whether the head answers in time; the thread of a query that hangs is abandoned."""
        answers: list[Any] = []
        came = self._answer = threading.Event()  # one per query: an older answer may arrive late

        def ask() -> None:
            with suppress(Exception):
                answers.append(self._look())
            came.set()

        if not self._ended.is_set():
            threading.Thread(target=ask, name="labelwise-look", daemon=True).start()
            came.wait(self._every)
        return answers[:1] == [True]


CHECK_SECONDS = 1.0
"""Interval between checks of the cluster while waiting for an answer."""
LEAVE_SECONDS = 5.0
"""Timeout for leaving a lost cluster, which may hang on a silent head."""

T = TypeVar("T")


def run_in_thread(function: Callable[[], T]) -> "Future[T]":
    """Run a function in a daemon thread and return its future."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:  # raised by Future.result
            answer.set_exception(error)

    threading.Thread(target=run, name="labelwise-ask", daemon=True).start()
    return answer


class ClusterConnection:
    """Connection to a joined cluster; once lost, it stays lost."""

    def __init__(
        self,
        address: str,
        *watches: HeadMonitor,
        is_joined: Callable[[], bool],
        leave: Callable[[], None],
        answers: type[Exception],
    ) -> None:
        """Supervise a cluster that this process has joined.

        Args:
            address: of the cluster, for messages.
            watches: monitors of the head; one of them is enough to report a loss.
            is_joined: whether this process is still connected.
            leave: called once after a loss, so that this process can join a cluster again.
            answers: errors that a working cluster raises; they do not indicate a loss.
        """
        self._address, self._watches = address, watches
        self._is_joined, self._leave, self._answers = is_joined, leave, (answers, ClusterFailed)
        self._lost, self._leaving = "", threading.Lock()

    def check(self) -> None:
        """Raise an error if the cluster is lost."""
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
        """Context for calls to the cluster; converts errors of a lost connection."""
        self.check()
        try:
            yield
        except self._answers:
            raise
        except Exception as error:
            # On a lost connection Ray's client raises errors of many types.
            if isinstance(error, ConnectionError) or not self._is_joined():
                self._give_up(self._silence() or f"is lost ({first_line(error)})", error)
            raise

    def ask(self, question: Callable[[], T]) -> T:
        """Return the result of a call that may hang if the head is lost."""
        with self.use():
            answer = run_in_thread(question)
            while wait([answer], timeout=CHECK_SECONDS).not_done:
                self.check()
            return answer.result()

    def close(self) -> None:
        """Stop the monitors."""
        for watch in self._watches:
            watch.stop()

    def _silence(self) -> str:
        """Describe a head that has been silent for too long; empty if none has."""
        for watch in self._watches:
            seconds = watch.silence  # read once: the head may answer at any time
            if watch.is_lost and seconds:
                return f"has not answered for {seconds:.0f} s"
        return ""

    def _give_up(self, what: str, cause: BaseException | None = None) -> NoReturn:
        with self._leaving:  # only the first thread leaves the cluster
            if not self._lost:
                self._lost = (
                    f"the head of the Ray cluster, {self._address}, {what}; start the cluster and "
                    "the selection again"
                )
                self.close()
                wait([run_in_thread(self._leave)], timeout=LEAVE_SECONDS)
        raise ClusterFailed(self._lost) from cause


SLOW = 4
"""Factor on the waiting time if no process starts at all."""
SLOWER = 3
"""Allowed start time of an actor, as a multiple of the start time of the probe."""


class StartPatience:
    """Time limit for the next actor to start; create a new one after each start.

    Attributes:
        seconds: time without a new actor.
        others_start: whether the probe process has started.
    """

    def __init__(
        self, seconds: float, ask: Callable[[], Any], has_started: Callable[[Any], bool]
    ) -> None:
        """Start the clock.

        Args:
            seconds: time limit if the cluster starts processes.
            ask: requests a probe process that needs no resources.
            has_started: whether the requested probe has started.
        """
        self._limit, self._ask, self._has_started = seconds, ask, has_started
        self._since, self._asked, self._probe = time.monotonic(), 0.0, None
        self.seconds, self.others_start = 0.0, False

    @property
    def is_slow(self) -> bool:
        """Whether no process has started within the usual time."""
        return self.seconds >= self._limit and not self.others_start

    @property
    def most(self) -> float:
        """Current estimate of the total time limit."""
        return self._limit * (1 if self.others_start else SLOW)

    def is_over(self) -> bool:
        """Whether the time limit has passed; call it periodically, as it also starts the probe."""
        self.seconds = time.monotonic() - self._since
        if self._probe is None:
            if self.seconds >= self._limit / 2:
                self._asked, self._probe = self.seconds, self._ask()
        elif not self.others_start and self._has_started(self._probe):
            self.others_start = True
            self._limit = max(self._limit, SLOWER * (self.seconds - self._asked))
        return self.seconds >= self.most


def describe_slow_cluster(seconds: float) -> str:
    """Describe a cluster that has started no process for ``seconds``."""
    return (
        f"no process of the cluster started within {seconds:.0f} s; look at its nodes, which may "
        "be too busy or without memory"
    )


def describe_full_cluster(
    late: int, count: int, seconds: float, room: Mapping[str, tuple[float, float]]
) -> str:
    """Describe a cluster that starts processes but lacks resources for actors.

    Args:
        late: number of actors that have not started.
        count: number of requested actors.
        seconds: time without a new actor.
        room: free and total amount in the cluster of each resource that an actor needs.

    Example:
        >>> describe_full_cluster(1, 2, 45, {"CPU": (0, 8), "GPU": (1, 2)})  # doctest: +ELLIPSIS
        "1 of 2 ... each needs a CPU and a GPU, and 0 of the cluster's 8 CPUs and 1 of its 2 GPUs...
    """
    whose = ["the cluster's", *["its"] * len(room)]
    parts = [
        f"{free:g} of {of} {there:g} {name}s"
        for of, (name, (free, there)) in zip(whose, room.items(), strict=False)
    ]
    return (
        f"{late} of {count} actors could not start within {seconds:.0f} s; each needs a "
        f"{' and a '.join(room)}, and {' and '.join(parts)} are free: ask for fewer actors or add "
        "nodes"
    )


def warn_slow_cluster(most: float) -> None:
    """Warn that the selection may fail after ``most`` seconds."""
    words = "no process of the cluster has started yet; its nodes may be busy or without memory"
    warnings.warn(f"{words}; waiting for {most:.0f} s in all", LabelwiseWarning, stacklevel=3)


def describe_failed_start(why: str) -> str:
    """Describe an actor that was lost during its start."""
    return f"an actor ended while it started ({why}); every node needs the same labelwise as this"


def check_version(theirs: str) -> None:
    """Reject a node with another version of labelwise."""
    ours = version("labelwise")
    if theirs != ours:
        raise ClusterFailed(
            f"a node of the cluster has labelwise {theirs}, but here it is {ours}; install the "
            "same on all"
        )
