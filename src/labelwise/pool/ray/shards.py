"""Blocks of rows, and functions, on a Ray cluster.

Every actor opens its part of the files, and is restarted if its process or node is lost (see
`labelwise.pool.ray.parts`). A selection fails with an error if the cluster has no resources for the
actors, if an actor is lost repeatedly, or if the head of the cluster is lost.

This is the only module that imports ray.
"""

import gc
import logging
import os
import secrets
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from importlib.metadata import version
from typing import Any, NamedTuple, TypeVar

import numpy as np

from labelwise.arrays import HostArray, Ids
from labelwise.errors import BadInput, first_line, require_extra
from labelwise.pool.blocks import Progress
from labelwise.pool.parts import (
    Answer,
    Dumps,
    PartWorker,
    name_function,
    pack_for_worker,
    unpack_from_worker,
)
from labelwise.pool.ray.parts import (
    RESTORES,
    ClusterFailed,
    LostAnswer,
    RayShards,
    Reference,
    WorkerPool,
)
from labelwise.pool.ray.supervision import (
    CLIENT,
    ClusterConnection,
    HeadMonitor,
    check_cluster_listens,
    check_joined_cluster,
    find_cluster_address,
)
from labelwise.pool.rows import Rows
from labelwise.pool.sources.source import Values

with require_extra("selecting on Ray needs ray", "ray"):
    import ray
    from ray import cloudpickle
    from ray.exceptions import GetTimeoutError, RayError, RayTaskError

START_SECONDS = 120.0  # Longest wait for the next actor to start; a busy machine takes a minute
TRIES = 2  # Attempts to start or join Ray after transient errors
PATIENCE_SECONDS = 5.0  # Wait for answers between two checks of the cluster
SILENT_SECONDS = 35.0
"""Longest silence of the head: Ray's client tries to reconnect for 30 seconds, and Ray would end
this process after a minute."""
INLINE = 100_000
"""Ray sends arguments up to this many bytes with the call; larger ones are stored once."""

T = TypeVar("T")
Actor = Any  # A handle of Ray for a `_Actor` in another process
_dumps: Dumps = cloudpickle.dumps
_resources: Any = ray.cluster_resources
_free_resources: Any = ray.available_resources
_nodes: Any = ray.nodes


def connect(on: str = "ray", actors: int | None = None) -> None:
    """Join a Ray cluster, or start one on this machine, unless this process has joined one.

    ``"ray"`` starts Ray here with room for ``actors`` processes (or joins the cluster that
    RAY_ADDRESS names), ``"ray:HOST:PORT"`` and ``"ray:auto"`` join a running cluster,
    ``"ray://HOST:PORT"`` joins through Ray's client.
    """
    address = find_cluster_address(on)
    if ray.is_initialized():
        if on != "ray":
            check_joined_cluster(address, _read_joined_address())
        return
    # Otherwise Ray replaces print in the whole process.
    os.environ.setdefault("RAY_TQDM_PATCH_PRINT", "0")
    if address:
        _join_cluster(address)
    else:
        _start_local_cluster(max(actors or 1, os.cpu_count() or 1))


def _join_cluster(address: str) -> None:
    check_cluster_listens(address)
    for left in reversed(range(TRIES)):
        ray.shutdown()  # clean up after a lost connection of Ray's client
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Ray Client connection timed out")
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            _joined_as[:] = [address]
            return
        except Exception as error:  # Ray raises many types, including plain Exception
            # The server process for Ray's client sometimes ends during its start.
            if left and str(error).startswith("Initialization failure from server"):
                continue
            raise ClusterFailed(
                f"cannot join the Ray cluster at {address} ({first_line(error)}); it must run the "
                "same Python and Ray, ray:// needs the port of its client server and ray: that of "
                "its head, and with RAY_AUTH_MODE=token this process needs its token"
            ) from error


def _start_local_cluster(processes: int) -> None:
    # Ray uses token authentication by default and would write a token to the home folder.
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
    # Ray's memory monitor ends actors when other programs use up the machine's memory.
    os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
    # Ray lowers the priority of its workers by default.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # The default of 30 seconds is too short on a busy machine.
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "60")
    why = ""
    with warnings.catch_warnings():
        # Processes left by a failed start end with this process.
        warnings.filterwarnings("ignore", "subprocess .* is still running", ResourceWarning)
        for _ in range(TRIES):
            why = _try_local_start(processes)
            if not why:
                return
            gc.collect()
    raise ClusterFailed(f"Ray cannot be started here ({why})")


def _try_local_start(processes: int) -> str:
    """Start Ray; return the reason for a failure, or an empty text."""
    try:
        ray.init(
            address="local",
            num_cpus=processes,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            # Loopback address; Ray would replace 127.0.0.1 with a public address.
            _node_ip_address="127.0.0.2" if sys.platform == "linux" else None,
        )
    except Exception as error:  # Ray raises many types, including plain Exception
        ray.shutdown()
        return first_line(error)
    return ""


_joined_as: list[str] = []
"""The address by which this process joined a cluster last; Ray's client does not tell it."""


def _get_ray_client() -> Any:
    """Return Ray's client if this process joined a cluster through it, else None."""
    stub: Any = ray.util.client.ray
    return stub.get_context() if stub.is_connected() else None


def _read_joined_address() -> str:
    """Return the address of the joined cluster."""
    if _get_ray_client() is not None:
        return _joined_as[0] if _joined_as else CLIENT
    return str(ray.get_runtime_context().gcs_address)


def _does_head_answer() -> bool:
    """Whether the head answers: only it knows the resources of the cluster."""
    return ray.is_initialized() and bool(_resources())


def _supervise_cluster() -> ClusterConnection:
    """Monitor the head of the joined cluster, without which Ray may wait forever."""
    client, hang_up = _get_ray_client(), None
    if client is not None:
        worker = client.client_worker

        def hang_up() -> None:
            """Cancel pending requests; closing the connection would wait for an answer."""
            worker._in_shutdown = True
            if worker.channel is not None:
                worker.channel.close()

    return ClusterConnection(
        _read_joined_address(),
        HeadMonitor(_does_head_answer, patience=SILENT_SECONDS, lost=hang_up),
        is_joined=ray.is_initialized,
        leave=ray.shutdown,
        answers=RayError,
    )


class ActorProcess(NamedTuple):
    """The process in which an actor runs."""

    host: str
    pid: int


class _Actor(PartWorker):
    """A worker in a separate process."""

    def __init__(self) -> None:
        super().__init__(_dumps)

    def hello(self) -> tuple[str, ActorProcess]:
        return version("labelwise"), ActorProcess(socket.gethostname(), os.getpid())


class RayActors:
    """Processes of a Ray cluster that hold the rows of pools, for one or more selections.

    Attributes:
        generations: number of restarts of each actor.

    >>> import labelwise
    >>> features = np.array([[0.0], [1.0], [2.4], [3.0], [5.0]])  # on a line
    >>> with RayActors(2) as actors:
    ...     print(labelwise.select("k_center", 3, features=features, on=actors).ids)
    [4 0 2]
    """

    dumps = staticmethod(_dumps)

    def __init__(
        self,
        count: int | None = None,
        *,
        on: str = "ray",
        gpus: float = 0,
        start_seconds: float = START_SECONDS,
    ) -> None:
        """Start the actors.

        There is one per CPU of the cluster ``on`` if ``count`` is None; each has one CPU and
        ``gpus``. Increase ``start_seconds``, the longest wait for the next one, for a cluster that
        starts machines on demand.
        """
        if count is not None and (isinstance(count, bool) or count != int(count) or count < 1):
            raise BadInput(f"actors must be a whole number, 1 or more; got {count!r}")
        connect(on, count)
        self._connection = _supervise_cluster()
        self._start_seconds, self._gpus = start_seconds, gpus
        self.steady, self._replacing = threading.RLock(), threading.Lock()
        self.generations: list[int] = []
        self.processes: list[ActorProcess] = []
        self._handles: list[Actor] = []
        try:
            count = count or max(int(self._connection.ask(_resources).get("CPU", 1)), 1)
            self._handles = [self._connection.ask(self._start) for _ in range(count)]
            self.generations, self.processes = [0] * count, [ActorProcess("", 0)] * count
            self._await_actors(range(count))
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._handles)

    def __enter__(self) -> "RayActors":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the actors; the cluster keeps running."""
        # First, so that other threads do not restart the actors that end here.
        handles, self._handles = self._handles, []
        self._kill_actors(handles)
        self._connection.close()

    def _kill_actors(self, handles: Sequence[Actor]) -> None:
        with suppress(ClusterFailed):  # without a cluster, Ray would look for another
            self._connection.check()
            for handle in handles:
                _kill_actor(handle)

    def send(self, number: int, method: str, *arguments: object) -> Reference:
        """Call a method of an actor without waiting for the answer."""
        handle = self._open()[number]
        with self._sending():
            return getattr(handle, method).remote(*arguments)

    def store(self, payload: bytes) -> Reference:
        """Put a large payload in the object store, one copy per node; return a small one as is."""
        if len(payload) <= INLINE:
            return payload
        self._open()
        with self._sending():
            return ray.put(payload)

    def collect(self, answers: Sequence[Reference]) -> list[Answer | LostAnswer]:
        """Wait until each answer has arrived or is lost; return them."""
        while True:
            self._open()
            try:
                with self._connection.use():
                    return list(ray.get(answers, timeout=PATIENCE_SECONDS))
            except GetTimeoutError:
                continue
            except RayTaskError as error:
                if isinstance(error.cause, RayError):  # the arguments did not arrive
                    raise ClusterFailed(f"{_NO_ROOM} ({first_line(error.cause)})") from error
                raise  # a bug, not a lost actor
            except RayError as error:
                if len(answers) == 1:
                    return [LostAnswer(first_line(error))]
                return [self.collect([answer])[0] for answer in answers]

    def replace(self, numbers: Sequence[int], generations: Sequence[int] | None = None) -> None:
        """Restart lost actors on any node, unless another thread has done so."""
        with self._replacing:
            lost = list(numbers)
            if generations is not None:
                pairs = zip(numbers, generations, strict=True)
                lost = [number for number, which in pairs if which == self.generations[number]]
            try:
                self._make(lost)
                self._await_actors(lost)
            except BaseException:
                handles = self._handles  # other threads must not wait for actors that never start
                self._kill_actors([handles[number] for number in lost if handles])
                raise

    def _make(self, numbers: Sequence[int]) -> None:
        self._open()
        self._connection.ask(_check_local_ray)
        for number in numbers:
            handles = self._open()
            _kill_actor(handles[number])
            made = self._connection.ask(self._start)
            with self.steady:
                self.generations[number] += 1
                handles[number] = made
            if handles is not self._handles:  # closed by another thread
                _kill_actor(made)

    def _open(self) -> list[Actor]:
        """Return the actors; raise an error if they are closed or the cluster is lost."""
        self._connection.check()  # otherwise Ray would look for another cluster
        handles = self._handles
        if not handles:
            raise ClusterFailed("these actors have ended; start new ones")
        return handles

    @contextmanager
    def _sending(self) -> Iterator[None]:
        """Context for calls that send data to the cluster."""
        try:
            with self._connection.use():
                yield
        except RayError as error:
            raise ClusterFailed(f"{_NO_ROOM} ({first_line(error)})") from error

    def _start(self) -> Actor:
        options = {"num_cpus": 1, "num_gpus": self._gpus, "max_restarts": 0}
        return _REMOTE.options(**options, scheduling_strategy="SPREAD").remote()

    def _await_actors(self, numbers: Sequence[int]) -> None:
        """Wait until actors have started; restart those lost in the meantime."""
        why = self._await_actor_starts(numbers)
        for _ in range(RESTORES):
            if not why:
                return
            self._make(list(why))
            why = self._await_actor_starts(list(why))
        if why:
            raise ClusterFailed(_FAILED_START.format(next(iter(why.values()))))

    def _await_actor_starts(self, numbers: Sequence[int]) -> dict[int, str]:
        """Wait for actors to start; return the lost ones. Each start resets the time limit."""
        lost = {}
        asked = {self.send(number, "hello"): number for number in numbers}
        waiting, since = list(asked), time.monotonic()
        timeout = min(PATIENCE_SECONDS, self._start_seconds)
        while waiting:
            with self._connection.use():
                done, waiting = ray.wait(waiting, num_returns=1, timeout=timeout)
            if not done:
                self._connection.ask(_check_local_ray)
                if time.monotonic() - since >= self._start_seconds:
                    raise ClusterFailed(self._explain_late_start(len(waiting)))
                continue
            number, since = asked[done[0]], time.monotonic()
            try:
                with self._connection.use():
                    theirs, self.processes[number] = ray.get(done[0])
                if theirs != version("labelwise"):
                    raise ClusterFailed(
                        f"a node of the cluster has labelwise {theirs}, but here it is "
                        f"{version('labelwise')}; install the same on all"
                    )
            except RayError as error:
                self._open()  # raises an error if the actors were closed
                lost[number] = first_line(error)
                if getattr(error, "actor_init_failed", True):
                    raise ClusterFailed(_FAILED_START.format(lost[number])) from error
        return lost

    def _explain_late_start(self, late: int) -> str:
        free, there = self._connection.ask(_free_resources), self._connection.ask(_resources)
        names = ("CPU", "GPU") if self._gpus else ("CPU",)
        room = [f"{free.get(n, 0):g} of the cluster's {there.get(n, 0):g} {n}s" for n in names]
        return (
            f"{late} of {len(self)} actors could not start within {self._start_seconds:.0f} s; "
            f"each needs a {' and a '.join(names)}, and {' and '.join(room)} are free: ask for "
            "fewer actors, add nodes, or give busy ones more time with start_seconds"
        )


_REMOTE = ray.remote(_Actor)
_FAILED_START = "an actor ended while it started ({}); every node needs the same labelwise as this"
_NO_ROOM = "the Ray cluster could not take what was sent to it"


def _check_local_ray() -> None:
    """Check Ray's local daemon: soon after it ends, Ray silently ends this process."""
    here = ray.get_runtime_context().get_node_id() if _get_ray_client() is None else None
    if any(node["NodeID"] == here and not node["Alive"] for node in _nodes()):
        raise ClusterFailed(
            "Ray has ended on this machine; look for what ended it, such as too little memory, and "
            "select again"
        )


def _kill_actor(handle: Actor) -> None:
    with suppress(Exception):  # the actor or the cluster may have ended already
        ray.kill(handle)


def dataset_rows(dataset: Any, *, seconds: float = 45.0) -> dict[str, Any]:
    """Return arguments for `RayShards` that refer to a Ray dataset; its rows stay in the cluster.

    Columns have the names of representations (``features``, ``probabilities``, ...), or ``inputs``
    with a learner. Ray Data does not keep the order of rows, so a column ``id`` should hold the
    items' ids. Computing the ``ray.data.Dataset`` needs free CPUs, for which ``seconds`` is the
    longest wait: call this before the actors start.
    """
    if _get_ray_client() is not None:
        raise BadInput(
            "Ray Data does not run through Ray's client (ray://); select on a node of the cluster, "
            "with on='ray:HOST:PORT'"
        )
    _wait_for_cpu(seconds)
    pieces = dataset.to_numpy_refs()
    found = ray.get([_DESCRIBED.remote(piece) for piece in pieces])
    ids = [some for _, some in found if some is not None]
    return {
        "values": {},
        "count": sum(length for length, _ in found),
        "pieces": [(length, p) for (length, _), p in zip(found, pieces, strict=True) if length],
        "ids": np.concatenate(ids).astype(np.int64) if ids else None,
    }


def _wait_for_cpu(seconds: float) -> None:
    """Wait for a free CPU, without which Ray Data would wait forever."""
    end = time.monotonic() + seconds
    with closing(_supervise_cluster()) as connection:
        while connection.ask(_free_resources).get("CPU", 0) < 1:
            if time.monotonic() > end:
                raise ClusterFailed(
                    f"no CPU of the cluster was free within {seconds:.0f} s; compute the dataset "
                    "before actors take all of them, or ask for fewer actors"
                )
            time.sleep(0.5)


def _describe_piece(block: Rows) -> tuple[int, HostArray | None]:
    return len(next(iter(block.values()))), block.get("id")


_DESCRIBED = ray.remote(num_cpus=0)(_describe_piece)


@contextmanager
def open_ray_shards(
    on: "str | RayActors",
    values: Values,
    count: int,
    *,
    actors: int | None = None,
    ids: Ids | None = None,
    labelled: Ids | None = None,
    progress: Progress | None = None,
) -> Iterator[RayShards]:
    """Open a pool on a cluster, as in `connect`, or on actors, which stay; close it on exit."""
    workers = on if isinstance(on, RayActors) else RayActors(actors, on=on)
    try:
        shards = RayShards(workers, values, count, ids=ids, labelled=labelled, progress=progress)
        try:
            yield shards
            shards.check_files()
        finally:
            shards.close()
    finally:
        if workers is not on:
            workers.close()


class RayProcess:
    """One process of a cluster, with the method `submit` of `concurrent.futures.Executor`."""

    def __init__(self, workers: WorkerPool, number: int) -> None:
        """Wrap one worker; a local thread waits for its answers."""
        self._workers, self._number = workers, number
        self._waiter = ThreadPoolExecutor(1, thread_name_prefix="labelwise-ray")

    def submit(self, function: Callable[..., T], *arguments: object) -> Future[T]:
        """Run ``function(*arguments)`` in the process; calls run one after the other."""
        what = f"the call of {name_function(function)}"
        payload = pack_for_worker(self._workers.dumps, (function, arguments), what)
        return self._waiter.submit(self._call_worker, payload)

    def shutdown(self, *, wait: bool = True) -> None:
        """Cancel calls that have not started; with ``wait``, wait for the current call."""
        self._waiter.shutdown(wait=wait, cancel_futures=True)

    def _call_worker(self, payload: bytes) -> Any:
        why = ""
        for _ in range(1 + RESTORES):
            sent = self._workers.send(self._number, "run", payload)
            (answer,) = self._workers.collect([sent])
            if not isinstance(answer, LostAnswer):
                return unpack_from_worker(answer)
            why = answer.why
            self._workers.replace([self._number])
        raise ClusterFailed(
            f"process {self._number + 1} of {len(self._workers)} was lost {1 + RESTORES} times in "
            f"one call ({why}); look for what ends it, such as a node without enough memory"
        )


@contextmanager
def ray_processes(
    on: str, count: int | None = None, *, gpus: float = 0
) -> Iterator[list[RayProcess]]:
    """Start processes on a cluster and end them on exit.

    Each has one CPU and ``gpus``; there is one per CPU of the cluster if ``count`` is None.

    >>> with ray_processes("ray", 1) as (process,):
    ...     process.submit(pow, 2, 10).result()
    1024
    """
    with RayActors(count, on=on, gpus=gpus) as workers:
        processes = [RayProcess(workers, number) for number in range(len(workers))]
        try:
            yield processes
        finally:
            for process in processes:  # first, so that no queued call starts
                process.shutdown(wait=False)
            workers.close()  # ends the calls that are still running
            for process in processes:
                process.shutdown()
