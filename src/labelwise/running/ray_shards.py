"""Blocks of rows on a Ray cluster: the same strategies, on more machines than one.

Every actor opens its part of the files by itself, and is made again if its process or its node is
lost (`labelwise.running.ray_parts` says how). A selection that cannot go on says why: when actors
find no room, when one is lost again and again, when the head of the cluster is gone.

This is the only module that imports ray.
"""

import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import Ids
from labelwise.blocks import Progress
from labelwise.errors import BadInput, MissingDependency
from labelwise.running.parts import Values
from labelwise.running.ray_parts import ClusterFailed, HeldShards, Lost
from labelwise.running.worker import Answer, Dumps, Worker

try:
    import ray
    from ray import cloudpickle
    from ray.exceptions import GetTimeoutError, RayError, RayTaskError
except ImportError as error:
    raise MissingDependency(
        "selecting on Ray needs ray; run pip install 'labelwise[ray]'"
    ) from error

START_SECONDS = 45.0
"""How long nothing may come of starting an actor before the selection is given up."""
PATIENCE_SECONDS = 5.0
"""How long answers are waited for until the cluster's head is looked after."""
HEAD_SECONDS = 20.0
"""How long the head may be silent."""
INLINE = 100_000
"""Ray sends arguments up to so many bytes with the call; larger ones are stored once for all."""

_dumps: Dumps = cloudpickle.dumps
_resources: Any = ray.cluster_resources
_free_resources: Any = ray.available_resources


def connect(on: str = "ray", actors: int | None = None) -> None:
    """Join a Ray cluster, or start one in this machine; nothing if this process has joined one.

    Args:
        on: ``"ray"`` starts Ray here (or joins the cluster that RAY_ADDRESS names),
            ``"ray:HOST:PORT"`` and ``"ray:auto"`` join one that runs, ``"ray://HOST:PORT"`` does so
            from outside through Ray's client.
        actors: how many processes a cluster that is started here must have room for.
    """
    if on != "ray" and not on.startswith("ray:"):
        raise BadInput(f"on must be ray, ray:HOST:PORT or ray://HOST:PORT; got {on!r}")
    if ray.is_initialized():
        _check_joined(on[4:])
        return
    # Ray would put its own function in the place of print, in the whole process.
    os.environ.setdefault("RAY_TQDM_PATCH_PRINT", "0")
    address = on if on.startswith("ray://") else on[4:] or os.environ.get("RAY_ADDRESS", "")
    if address:
        _join(address)
    else:
        _start_here(max(actors or 1, os.cpu_count() or 1))


def _check_joined(address: str) -> None:
    """Refuse another cluster than the one that this process has joined."""
    head = _head()
    if head is None or address in ("", "auto") or address.startswith("//"):
        return
    host, _, port = address.rpartition(":")
    if port != str(head[1]) or _resolved(host) not in (_resolved(head[0]), "127.0.0.1"):
        raise BadInput(
            f"this process has joined the Ray cluster at {head[0]}:{head[1]}; call ray.shutdown() "
            f"before it joins the one at {address}"
        )


def _resolved(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def _join(address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdecimal() and not _answers(host, int(port)):
        raise ClusterFailed(f"no Ray cluster answers at {address}; check the address and the port")
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except ImportError as error:
        raise MissingDependency(
            f"joining {address} needs Ray's client; run pip install 'ray[client]'"
        ) from error
    except (RayError, RuntimeError, ValueError, OSError) as error:
        raise ClusterFailed(
            f"cannot join the Ray cluster at {address} ({_first_line(error)}); it must run the "
            "same Python and Ray, and with RAY_AUTH_MODE=token this process needs its token"
        ) from error


def _start_here(processes: int) -> None:
    # Ray asks for a token by default. Without one of ours it leaves one in the home folder.
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
    # Ray's memory monitor watches the whole machine: it would end our actors for others' memory.
    os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
    try:
        ray.init(
            address="local",
            num_cpus=processes,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            # All of 127.x.x.x is this machine; 127.0.0.1 Ray would replace by a public address.
            _node_ip_address="127.0.0.2" if sys.platform == "linux" else None,
        )
    except (RayError, RuntimeError, OSError) as error:
        raise ClusterFailed(f"Ray cannot be started here ({_first_line(error)})") from error


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


class Process(NamedTuple):
    """Where an actor runs."""

    host: str
    pid: int


class _Actor(Worker):
    """A worker in a process of its own."""

    def __init__(self) -> None:
        super().__init__(_dumps)

    def hello(self) -> tuple[str, Process]:
        return version("labelwise"), Process(socket.gethostname(), os.getpid())


class RayActors:
    """Processes of a Ray cluster that hold the rows of pools, for one selection or for many.

    Attributes:
        generations: how often each was made again.
        processes: where each runs.

    Example:
        >>> import labelwise
        >>> features = np.arange(5.0)[:, None]  # 0 1 2 3 4 on a line
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
        """Start them.

        Args:
            count: how many, with one CPU each; as many as the cluster has CPUs if None.
            on: the cluster, as in `connect`.
            gpus: how many GPUs each needs, for learners that compute on them.
            start_seconds: how long nothing may come of starting an actor; more for a cluster that
                starts machines when they are asked for.
        """
        if count is not None and (isinstance(count, bool) or count != int(count) or count < 1):
            raise BadInput(f"actors must be a whole number, 1 or more; got {count!r}")
        connect(on, count)
        self._head = _head()
        self._looked = self._heard = time.monotonic()
        self._start_seconds, self._gpus = start_seconds, gpus
        count = count or max(int(_resources().get("CPU", 1)), 1)
        self.generations = [0] * count
        self.processes: list[Process] = [Process("", 0)] * count
        self._handles = [self._start() for _ in range(count)]
        try:
            self._greet(range(count))
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
        """End the processes; the cluster stays."""
        if ray.is_initialized():
            for handle in self._handles:
                _end(handle)
        self._handles = []

    def send(self, number: int, method: str, *arguments: Any) -> Any:
        """Call a method of an actor; the answer comes later."""
        self._check_open()
        with _connected():
            return getattr(self._handles[number], method).remote(*arguments)

    def store(self, payload: bytes) -> Any:
        """One copy in the object store for all actors of a node, unless it is small."""
        return ray.put(payload) if len(payload) > INLINE else payload

    def collect(self, answers: Sequence[Any]) -> list[Answer | Lost]:
        """The answers, as soon as all have come or will never come."""
        while True:
            self._check_head()
            try:
                with _connected():
                    return list(ray.get(answers, timeout=PATIENCE_SECONDS))
            except GetTimeoutError:
                continue
            except RayTaskError:
                raise  # a fault of ours, and no lost actor
            except RayError as error:
                if len(answers) == 1:
                    return [Lost(_first_line(error))]
                return [self.collect([answer])[0] for answer in answers]

    def replace(self, numbers: Sequence[int]) -> None:
        """Make lost actors again, wherever there is room."""
        self._check_open()
        for number in numbers:
            _end(self._handles[number])
            self._handles[number] = self._start()
            self.generations[number] += 1
        self._greet(numbers)

    def _check_open(self) -> None:
        if not ray.is_initialized() or not self._handles:  # Ray would look for another cluster
            raise ClusterFailed("these actors have ended, or ray.shutdown() was called; start new")

    def _start(self) -> Any:
        options = {"num_cpus": 1, "num_gpus": self._gpus, "max_restarts": 0}
        return _REMOTE.options(**options, scheduling_strategy="SPREAD").remote()

    def _greet(self, numbers: Sequence[int]) -> None:
        """Wait until actors have started; every one that has gives the others time."""
        ours = version("labelwise")
        asked = {self.send(number, "hello"): number for number in numbers}
        waiting, since = list(asked), time.monotonic()
        while waiting:
            with _connected():
                done, waiting = ray.wait(waiting, num_returns=1, timeout=PATIENCE_SECONDS)
            if not done:
                self._check_head()
                if time.monotonic() - since > self._start_seconds:
                    raise ClusterFailed(self._why_late(len(waiting)))
                continue
            since = time.monotonic()
            try:
                theirs, self.processes[asked[done[0]]] = ray.get(done[0])
            except RayError as error:
                raise ClusterFailed(
                    f"an actor ended while it started ({_first_line(error)}); every node needs the "
                    "same labelwise as this one"
                ) from error
            if theirs != ours:
                raise ClusterFailed(
                    f"a node of the cluster has labelwise {theirs}, but here it is {ours}; "
                    "install the same on all"
                )

    def _why_late(self, late: int) -> str:
        free, there = _free_resources(), _resources()
        gpus = ""
        if self._gpus:
            gpus = f" and {free.get('GPU', 0):g} of its {there.get('GPU', 0):g} GPUs"
        return (
            f"{late} of {len(self)} actors could not start within {self._start_seconds:.0f} s; "
            f"each needs a CPU{' and a GPU' if gpus else ''}, and {free.get('CPU', 0):g} of the "
            f"cluster's {there.get('CPU', 0):g} CPUs{gpus} are free: ask for fewer actors or add "
            "nodes"
        )

    def _check_head(self) -> None:
        """See now and then whether the head is there: without it Ray would end this process."""
        now = time.monotonic()
        if self._head is None or now - self._looked < PATIENCE_SECONDS:
            return
        self._looked = now
        if _answers(*self._head):
            self._heard = now
        elif now - self._heard > HEAD_SECONDS:
            ray.shutdown()
            self._handles = []
            host, port = self._head
            raise ClusterFailed(
                f"the head of the Ray cluster, {host}:{port}, has not answered for "
                f"{now - self._heard:.0f} s; start the cluster and the selection again"
            )


_REMOTE = ray.remote(_Actor)


def _end(handle: Any) -> None:
    try:
        ray.kill(handle)
    except (RayError, RuntimeError, ValueError):
        return  # it has ended already


def _head() -> tuple[str, int] | None:
    """Where the cluster's head listens; None where Ray's client hides it."""
    address = getattr(ray.get_runtime_context(), "gcs_address", None)
    if not address or _through_client():
        return None
    host, _, port = address.rpartition(":")
    return host, int(port)


@contextmanager
def _connected() -> Iterator[None]:
    """Say that the cluster is gone if Ray's client does: after half a minute without it."""
    try:
        yield
    except ConnectionError as error:
        raise ClusterFailed(
            f"the connection to the Ray cluster is lost ({_first_line(error)}); start the cluster "
            "and the selection again"
        ) from error


def _through_client() -> bool:
    client: Any = ray.util.client.ray
    return bool(client.is_connected())


class RayShards(HeldShards):
    """A pool whose rows are held by actors of a Ray cluster; a `labelwise.blocks.Shards`.

    Example:
        >>> with RayActors(2) as actors:
        ...     shards = RayShards(actors, {"features": np.ones((6, 2))}, 6)
        ...     print(shards.sum(len), len(shards.map(len)))
        6 2
    """


def dataset_rows(dataset: Any, *, seconds: float = START_SECONDS) -> dict[str, Any]:
    """The rows of a Ray Data set, which stay in the cluster: arguments for `RayShards`.

    Its columns are called as representations are (``features``, ``probabilities``, ...), or
    ``inputs`` where a learner is given. Ray Data keeps no order of rows, so a column ``id`` should
    hold the items' ids.

    Args:
        dataset: a ``ray.data.Dataset``. Computing it needs CPUs, which actors keep for themselves:
            call this before they start.
        seconds: how long nothing may come of it.
    """
    pieces = dataset.to_numpy_refs()
    asked = [_DESCRIBED.remote(piece) for piece in pieces]
    waiting = asked
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1, timeout=seconds)
        if not done:
            free = _free_resources().get("CPU", 0)
            raise ClusterFailed(
                f"{len(waiting)} of {len(asked)} blocks of the dataset did not come within "
                f"{seconds:.0f} s, with {free:g} CPUs free; compute it before actors take them"
            )
    found = ray.get(asked)
    ids = [some for _, some in found if some is not None]
    return {
        "values": {},
        "count": sum(length for length, _ in found),
        "pieces": [(length, p) for (length, _), p in zip(found, pieces, strict=True) if length],
        "ids": np.concatenate(ids).astype(np.int64) if ids else None,
    }


def _described(block: Any) -> tuple[int, Any]:
    return len(next(iter(block.values()))), block.get("id")


_DESCRIBED = ray.remote(num_cpus=0)(_described)


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
    """A pool on Ray for as long as it is needed.

    Args:
        on: a cluster as in `connect`, or actors that run already and stay.
        values: representations by name.
        count: how many rows there are.
        actors: how many to start.
        ids: the items' ids; row numbers if None.
        labelled: ids of the items that are labelled already.
        progress: told how far a selection has come.
    """
    crew = on if isinstance(on, RayActors) else RayActors(actors, on=on)
    try:
        shards = RayShards(crew, values, count, ids=ids, labelled=labelled, progress=progress)
        try:
            yield shards
        finally:
            shards.close()
    finally:
        if crew is not on:
            crew.close()
