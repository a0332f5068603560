"""Blocks of rows held by worker processes, which may be lost and restarted.

In a `WorkerPool` each worker holds one part of the rows (`labelwise.pool.parts`). Functions
are sent to the workers, and only proposals, sums and picked rows come back. Every worker adds up
its sums first; they are then added here in the order of the parts, so that the result does not
depend on the order of the answers.

A lost worker is restarted elsewhere: it opens the same part and repeats the calls so far in the
same order, which restores its state. Calls are forgotten as soon as no worker keeps any state.

Nothing here knows Ray; `labelwise.pool.ray.shards` provides the workers.
"""

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from labelwise.arrays import Ids
from labelwise.errors import BadInput, LabelwiseError
from labelwise.learner import Learner
from labelwise.pool.blocks import BLOCK_BYTES, Progress, add_block_results
from labelwise.pool.parts import (
    Answer,
    Division,
    Dumps,
    count_answer_bytes,
    cut_part,
    name_function,
    pack_for_worker,
    prepare_representations,
    unpack_from_worker,
)
from labelwise.pool.rows import ArrayDict, Rows, join_rows, take_rows
from labelwise.pool.sources.change_guard import FileState, Machine, find_source_files
from labelwise.pool.sources.source import Values

RESTORES = 3  # Most restarts of a worker for one call
T = TypeVar("T")
Reference = Any  # What stands for an answer, a stored payload or a piece of rows in the transport
_KEYS = itertools.count()


class ClusterFailed(LabelwiseError, RuntimeError):
    """The cluster cannot continue a selection."""


@dataclass(frozen=True)
class LostAnswer:
    """Placeholder for the answer of a lost worker."""

    why: str


class WorkerPool(Protocol):
    """Workers by number; each has the methods of `PartWorker`."""

    @property
    def generations(self) -> Sequence[int]:
        """Number of restarts of each worker."""

    @property
    def dumps(self) -> Dumps:
        """Serializer of functions and arguments; `pickle.loads` reads its output."""

    @property
    def steady(self) -> AbstractContextManager[object]:
        """Context manager that prevents restarts of workers; hold it only briefly."""

    def __len__(self) -> int:
        """Number of workers."""

    def store(self, payload: bytes) -> Reference:
        """Store a payload once; return a reference to send to several workers."""

    def send(self, number: int, method: str, *arguments: object) -> Reference:
        """Call a method of a worker without waiting; a worker answers its calls in order."""

    def collect(self, answers: Sequence[Reference]) -> list[Answer | LostAnswer]:
        """Wait until each answer has arrived or is lost; return them."""

    def replace(self, numbers: Sequence[int], generations: Sequence[int] | None = None) -> None:
        """Restart lost workers without their state, unless restarted since these generations."""


@dataclass
class CallTraffic:
    """Cost of one function over all workers: calls, bytes sent and received, CPU seconds."""

    calls: int = 0
    sent: int = 0
    received: int = 0
    seconds: float = 0.0


class RayShards:
    """A `labelwise.pool.blocks.Shards` whose rows are held by workers.

    Attributes:
        traffic: cost by function name.
        restored: number of times that a lost worker was restored.
    """

    def __init__(
        self,
        workers: WorkerPool,
        values: Values,
        count: int,
        *,
        ids: Ids | None = None,
        labelled: Ids | None = None,
        learner: Learner | None = None,
        names: Sequence[str] = (),
        pieces: Sequence[tuple[int, Reference]] = (),
        progress: Progress | None = None,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        """Let every worker open its part.

        ``values`` are paths that every worker can open, or arrays; with a learner, which computes
        the representations ``names`` where the rows are, ``inputs``. ``pieces`` replace them: the
        rows of each stored piece, and the reference to send to a worker.
        """
        self._workers, self._key = workers, next(_KEYS)
        self._values, self._block_bytes = prepare_representations(values), block_bytes
        self._names = tuple(names)
        self._learner: Reference = None
        if learner is not None:
            self._learner = workers.store(pack_for_worker(workers.dumps, learner, "the learner"))
        self._pieces = [piece for _, piece in pieces]
        self._edges = np.cumsum([0, *(length for length, _ in pieces)]) if pieces else None
        parts = max(min(len(workers), count), 1)
        self._division = Division(count, parts, ids=ids, labelled=labelled, edges=self._edges)
        parts = self._division.parts
        self._progress = progress
        self._opened = [-1] * parts  # generation of the worker that holds each part
        self._seen: dict[tuple[int, Machine], FileState] = {}  # as first seen
        self._seen_here: FileState | None = None
        with suppress(LabelwiseError, OSError):  # the files may exist only on the workers
            self._seen_here = FileState.read(find_source_files(self._values))
        self._log: list[tuple[str, bytes]] = []
        self.traffic: dict[str, CallTraffic] = {}
        self.restored = 0
        self.labelled = self._fetch_labelled()

    @property
    def ids(self) -> Ids:
        """``(n,)`` ids of all rows, block after block."""
        return self._division.candidates

    def __len__(self) -> int:
        return len(self._division)

    def progress(self, stage: str, done: int, total: int) -> None:
        """Report progress to the caller of the selection."""
        if self._progress is not None:
            self._progress(stage, done, total)

    def map(self, function: Callable[..., T], *arguments: object) -> list[T]:
        """``function(shard, *arguments)`` for every block, in the order of the blocks."""
        parts = self._call_workers("map", function, arguments)
        return [result for part in parts for result in part]

    def sum(self, function: Callable[..., T], *arguments: object) -> T:
        """Add up the results of `map`, on each worker first; tuples field by field."""
        found = self._call_workers("sum", function, arguments)
        parts = [part for part in found if part is not None]
        return cast(T, reduce(add_block_results, parts) if parts else None)

    def rows(self, ids: Ids) -> ArrayDict:
        """The rows of the given items, in the order of ``ids``, brought to the caller."""
        ids = np.asarray(ids, dtype=np.int64)
        owners = self._division.owners(ids)
        visited = np.unique(owners).tolist() or [int(np.argmax(self._division.sizes > 0))]
        answers = self._ask_workers("rows", visited, lambda number: (ids[owners == number],))
        return self._restore_row_order([unpack_from_worker(answer) for answer in answers], owners)

    def check_files(self) -> None:
        """Reject files that changed since the pool was opened."""
        answers = self._ask_workers("seen", range(len(self._opened)), lambda number: ())
        for number, answer in enumerate(answers):
            self._check_file_state(number, unpack_from_worker(answer))

    def close(self) -> None:
        """Close the pool on all workers."""
        with suppress(ClusterFailed):  # workers that ended hold no pool
            for number in range(min(len(self._opened), len(self._workers))):
                self._workers.send(number, "close", self._key)

    def _fetch_labelled(self) -> Rows | None:
        answers = self._ask_workers("labelled", range(len(self._opened)), lambda number: ())
        some = [rows for rows in map(unpack_from_worker, answers) if rows is not None]
        owners = self._division.owners(self._division.labelled)
        return self._restore_row_order(some, owners) if some else None

    def _restore_row_order(self, parts: Sequence[Rows], owners: Ids) -> ArrayDict:
        """Restore the requested order of rows that were returned part by part."""
        joined = join_rows(parts)
        if len(parts) == 1:
            return joined
        return take_rows(joined, np.argsort(np.argsort(owners, kind="stable")))

    def _call_workers(
        self, kind: str, function: Callable[..., object], arguments: tuple[object, ...]
    ) -> list[Any]:
        name = name_function(function)
        payload = pack_for_worker(
            self._workers.dumps, (function, arguments), f"the strategy's {name}"
        )
        sent = self._workers.store(payload)
        everywhere = range(len(self._opened))
        answers = self._ask_workers("call", everywhere, lambda number: (kind, sent), name)
        self._log.append((kind, payload))
        results = [unpack_from_worker(answer) for answer in answers]
        if not any(remembers for _, remembers, _ in results):
            self._log.clear()
        self.traffic[name].sent += len(payload) * len(answers)
        self.traffic[name].seconds += sum(seconds for _, _, seconds in results)
        return [result for result, _, _ in results]

    def _ask_workers(
        self,
        method: str,
        numbers: Sequence[int],
        arguments: Callable[[int], tuple[object, ...]],
        name: str = "",
    ) -> list[Answer]:
        """Return the answers of workers in order; lost workers are restarted and called again."""
        found: dict[int, Answer] = {}
        lost: dict[int, str] = {}
        for _ in range(1 + RESTORES):
            if lost:
                self._restore_workers(lost)
            left = [number for number in numbers if number not in found]
            with self._workers.steady:  # a worker restarted by another thread has no part
                opening = [(number, sent) for number in left for sent in self._open_part(number)]
                calls = [self._workers.send(n, method, self._key, *arguments(n)) for n in left]
            answers = self._workers.collect([*(sent for _, sent in opening), *calls])
            for (number, _), answer in zip(opening, answers[: len(opening)], strict=True):
                if not isinstance(answer, LostAnswer):
                    self._check_file_state(number, unpack_from_worker(answer))
            lost = {}
            for number, answer in zip(left, answers[len(opening) :], strict=True):
                if isinstance(answer, LostAnswer):
                    lost[number] = answer.why
                else:
                    found[number] = answer
            if not lost:
                return self._count_traffic(name or method, [found[number] for number in numbers])
        number, why = next(iter(lost.items()))
        raise ClusterFailed(
            f"part {number + 1} of {len(self._opened)} was lost {1 + RESTORES} times in one call "
            f"({why}); look for what ends it, such as a node without enough memory"
        )

    def _open_part(self, number: int) -> list[Reference]:
        """Let a worker without its part open it and repeat the calls so far."""
        if self._opened[number] == self._workers.generations[number]:
            return []
        part = cut_part(
            self._division, number, self._values, names=self._names, block_bytes=self._block_bytes
        )
        pieces = self._pieces
        if self._edges is not None:
            pieces = pieces[slice(*np.searchsorted(self._edges, [part.first, part.last]))]
        sent = [self._workers.send(number, "open", self._key, part, self._learner, *pieces)]
        for kind, payload in self._log:
            sent.append(self._workers.send(number, "replay", self._key, kind, payload))
        self._opened[number] = self._workers.generations[number]
        return sent

    def _check_file_state(self, number: int, seen: FileState | None) -> None:
        """Reject changed files; ``seen`` is None for a repeated call."""
        if seen is None:
            return
        first = self._seen.setdefault((number, seen.machine), seen)
        if change := seen.describe_difference(first) or (
            self._seen_here and seen.describe_difference(self._seen_here)
        ):
            raise BadInput(change)

    def _restore_workers(self, lost: dict[int, str]) -> None:
        stage = f"restoring {len(lost)} of {len(self._opened)} parts"
        self.progress(stage, 0, 1)
        self._workers.replace(list(lost), [self._opened[number] for number in lost])
        self.restored += len(lost)
        self.progress(stage, 1, 1)

    def _count_traffic(self, name: str, answers: list[Answer]) -> list[Answer]:
        traffic = self.traffic.setdefault(name, CallTraffic())
        traffic.calls += 1
        traffic.received += sum(map(count_answer_bytes, answers))
        return answers
