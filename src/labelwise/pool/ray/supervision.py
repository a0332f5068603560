"""Supervision of a Ray cluster: its address, its head, and actors that start late. No ray import.

A cluster is joined by a process of one of its nodes (``HOST:PORT`` of its head) or from outside
(``ray://HOST:PORT`` of the server for Ray's client). Without its head a cluster answers for a while
or never again, and Ray reports this in many ways, late or not at all. So one thread asks the head
every few seconds and another waits no longer than that for the answer; all failures become one
error that names the cluster. Calls that may never return run in threads that are abandoned.

An actor starts late because the cluster has no room, which should be reported soon, or because its
machines are busy, which only takes time. Half-way through the waiting time a process is started
that needs no room: once it runs, the cluster is known to start processes, and an actor that still
has not started finds no room. Otherwise the cluster is slow and gets several times as long.
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
"""How long a machine may take to accept a connection."""


def find_address(on: str) -> str:
    """The address that a user means; empty where Ray is to be started here.

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
    """A host and a port where a cluster is joined, and whether from outside."""

    host: str
    port: int
    outside: bool

    @classmethod
    def of(cls, address: str) -> "ClusterAddress | None":
        """The place that an address names; None where it names none, as ``auto`` does."""
        host, _, port = address.removeprefix(CLIENT).rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            return None
        return cls(host.strip("[]"), int(port), address.startswith(CLIENT))

    def listens(self) -> bool:
        """Whether anything accepts connections there."""
        try:
            socket.create_connection((self.host, self.port), timeout=LISTEN_SECONDS).close()
        except OSError:
            return False
        return True

    def is_same(self, other: "ClusterAddress") -> bool:
        """Whether this place is another one, which may be given by another name of its host."""
        hosts = _resolved(other.host), "127.0.0.1"
        return self[1:] == other[1:] and _resolved(self.host) in hosts


def _resolved(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def check_joined(address: str, joined: str) -> None:
    """Refuse another cluster than the one that this process has joined."""
    there, here = ClusterAddress.of(address), ClusterAddress.of(joined)
    if there is not None and here is not None and not there.is_same(here):
        raise BadInput(
            f"this process has joined the Ray cluster at {joined}; call ray.shutdown() before it "
            f"joins the one at {address}"
        )


def check_listens(address: str) -> None:
    """Refuse an address where nothing listens, or which cannot be joined from this machine."""
    if address.startswith(CLIENT) and find_spec("grpc") is None:
        raise MissingDependency(
            f"joining {address} needs grpcio, for Ray's client; run pip install 'labelwise[ray]'"
        )
    place = ClusterAddress.of(address)
    if place is not None and not place.listens():
        raise ClusterFailed(f"no Ray cluster answers at {address}; check the address and the port")


EVERY_SECONDS = 5.0
"""How often the head is asked, and how long one answer may take."""


class HeadMonitor:
    """Asks whether a head is there, until it is stopped.

    Attributes:
        is_lost: whether the head has been silent for too long.
        silence: for how many seconds the head has not answered.
    """

    def __init__(
        self,
        look: Callable[[], Any],
        *,
        patience: float,
        lost: Callable[[], None] | None = None,
        every: float = EVERY_SECONDS,
    ) -> None:
        """Start.

        Args:
            look: asks the head. It may raise, or never return; what is False is no answer.
            patience: how many seconds the head may be silent.
            lost: called if it is for longer, to wake up those who wait for it; after that the head
                is asked no more.
            every: how many seconds there are between two looks.
        """
        self._look, self._patience, self._lost, self._every = look, patience, lost, every
        self._ended, self._answer = threading.Event(), threading.Event()
        self.is_lost, self.silence = False, 0.0
        self._thread = threading.Thread(target=self._run, name="labelwise-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask no more, and wait for no answer."""
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
        """Whether the head answers in time; the thread of a look that never returns is left."""
        answers: list[Any] = []
        came = self._answer = threading.Event()  # of this look: an older one may still come

        def ask() -> None:
            with suppress(Exception):
                answers.append(self._look())
            came.set()

        if not self._ended.is_set():
            threading.Thread(target=ask, name="labelwise-look", daemon=True).start()
            came.wait(self._every)
        return answers[:1] == [True]


CHECK_SECONDS = 1.0
"""How often is seen whether a cluster is there while it is asked something."""
LEAVE_SECONDS = 5.0
"""How long leaving a cluster that is lost may take: a head that is silent would hold it up."""

T = TypeVar("T")


def run_in_thread(function: Callable[[], T]) -> "Future[T]":
    """What a function will return, if ever: its thread does not keep this process from ending."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:  # for whoever waits
            answer.set_exception(error)

    threading.Thread(target=run, name="labelwise-ask", daemon=True).start()
    return answer


class ClusterConnection:
    """A cluster that this process has joined, until it is lost; then it stays lost."""

    def __init__(
        self,
        address: str,
        *watches: HeadMonitor,
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
            answer = run_in_thread(question)
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
                wait([run_in_thread(self._leave)], timeout=LEAVE_SECONDS)
        raise ClusterFailed(self._lost) from cause


SLOW = 4
"""So many times as long is waited where no process starts at all."""
SLOWER = 3
"""How many times as long as a process that needs no room may take one that needs room."""


class StartPatience:
    """Waits for one actor among some; a new one for every actor that has come.

    Attributes:
        seconds: how long nothing has come.
        others_start: whether a process that needs no room has started.
    """

    def __init__(
        self, seconds: float, ask: Callable[[], Any], has_started: Callable[[Any], bool]
    ) -> None:
        """Begin to wait.

        Args:
            seconds: how long, where processes start.
            ask: asks for a process that needs no room.
            has_started: whether what was asked for has started.
        """
        self._limit, self._ask, self._has_started = seconds, ask, has_started
        self._since, self._asked, self._probe = time.monotonic(), 0.0, None
        self.seconds, self.others_start = 0.0, False

    @property
    def is_slow(self) -> bool:
        """Whether no process has started in the time that one should take."""
        return self.seconds >= self._limit and not self.others_start

    @property
    def most(self) -> float:
        """How long is waited in all, as far as is known."""
        return self._limit * (1 if self.others_start else SLOW)

    def is_over(self) -> bool:
        """Whether nothing will come any more; to be asked every now and then."""
        self.seconds = time.monotonic() - self._since
        if self._probe is None:
            if self.seconds >= self._limit / 2:
                self._asked, self._probe = self.seconds, self._ask()
        elif not self.others_start and self._has_started(self._probe):
            self.others_start = True
            self._limit = max(self._limit, SLOWER * (self.seconds - self._asked))
        return self.seconds >= self.most


def describe_slow_cluster(seconds: float) -> str:
    """No process of any kind has started for so long."""
    return (
        f"no process of the cluster started within {seconds:.0f} s; look at its nodes, which may "
        "be too busy or without memory"
    )


def describe_full_cluster(
    late: int, count: int, seconds: float, room: Mapping[str, tuple[float, float]]
) -> str:
    """Processes start, but actors do not.

    Args:
        late: how many have not started.
        count: how many there should be.
        seconds: for how long nothing has come.
        room: by what an actor needs, how much is free and how much there is in the cluster.

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
    """Warn that a cluster may be given up after so many seconds."""
    words = "no process of the cluster has started yet; its nodes may be busy or without memory"
    warnings.warn(f"{words}; waiting for {most:.0f} s in all", LabelwiseWarning, stacklevel=3)


def describe_failed_start(why: str) -> str:
    """An actor was lost before it said anything."""
    return f"an actor ended while it started ({why}); every node needs the same labelwise as this"


def check_version(theirs: str) -> None:
    """Refuse a node with another labelwise."""
    ours = version("labelwise")
    if theirs != ours:
        raise ClusterFailed(
            f"a node of the cluster has labelwise {theirs}, but here it is {ours}; install the "
            "same on all"
        )
