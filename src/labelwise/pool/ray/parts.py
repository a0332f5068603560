"""Blocks of rows held by worker processes, which may be lost and restarted.

In a `WorkerPool` each worker holds one part of the rows (`labelwise.pool.part_worker`). Functions
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
from typing import Any, Protocol, TypeVar

import numpy as np

from labelwise.arrays import Ids
from labelwise.errors import BadInput, LabelwiseError
from labelwise.learner import Learner
from labelwise.pool.blocks import Progress, add_results
from labelwise.pool.change_guard import FileState, Machine, find_files
from labelwise.pool.part_worker import (
    Answer,
    Dumps,
    count_answer_bytes,
    describe_function,
    pack_payload,
    unpack_answer,
)
from labelwise.pool.parts import Division, Values, cut_part, prepare_values
from labelwise.pool.rows import Rows, join_rows, take_rows
from labelwise.pool.shards import BLOCK_BYTES

RESTORES = 3
"""How often a worker is made again for one call."""

T = TypeVar("T")
_KEYS = itertools.count()


class ClusterFailed(LabelwiseError, RuntimeError):
    """The cluster cannot go on with a selection."""


@dataclass(frozen=True)
class LostAnswer:
    """In the place of an answer that will never come."""

    why: str


class WorkerPool(Protocol):
    """Workers by number; each has the methods of `PartWorker`."""

    @property
    def generations(self) -> Sequence[int]:
        """How often each was made again."""

    @property
    def dumps(self) -> Dumps:
        """Functions and their arguments as bytes that `pickle.loads` reads."""

    @property
    def steady(self) -> AbstractContextManager[Any]:
        """Entered, it keeps every worker the one whose generation is told; for a short while."""

    def __len__(self) -> int:
        """How many there are."""

    def store(self, payload: bytes) -> Any:
        """What to send to several workers instead of the payload."""

    def send(self, number: int, method: str, *arguments: Any) -> Any:
        """Call a method of a worker; the answer comes later. Calls are answered in turn."""

    def collect(self, answers: Sequence[Any]) -> list[Answer | LostAnswer]:
        """The answers, as soon as all have come or will never come."""

    def replace(self, numbers: Sequence[int], generations: Sequence[int] | None = None) -> None:
        """Make some workers again, which remember nothing.

        Args:
            numbers: those that were lost.
            generations: which of each was lost; one that was made again since is left alone.
        """


@dataclass
class CallTraffic:
    """What one function cost all workers together: calls, bytes both ways, CPU seconds."""

    calls: int = 0
    sent: int = 0
    received: int = 0
    seconds: float = 0.0


class HeldShards:
    """A pool whose rows are held by workers; a `labelwise.pool.blocks.Shards`.

    Attributes:
        labelled: the rows of the labelled items, or None.
        traffic: by the name of the function that was called.
        restored: how often a worker was lost and its part opened again.
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
        pieces: Sequence[tuple[int, Any]] = (),
        progress: Progress | None = None,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        """Let every worker open its part.

        Args:
            workers: hold the rows.
            values: representations by name: paths that every worker can open, or arrays. With a
                learner, ``inputs``.
            count: how many rows there are.
            ids: ``(count,)`` the items' ids; row numbers if None.
            labelled: ids of the items that are labelled already.
            learner: computes the representations ``names`` where the inputs are.
            names: those that a strategy needs.
            pieces: instead of values, the rows in pieces that lie elsewhere: how many rows each
                has, and what to send to a worker so that it gets the piece.
            progress: told how far a selection has come.
            block_bytes: how much memory one block takes, about.
        """
        self._workers, self._key = workers, next(_KEYS)
        self._values, self._block_bytes, self._names = (
            prepare_values(values),
            block_bytes,
            tuple(names),
        )
        self._learner: Any = None
        if learner is not None:
            self._learner = workers.store(pack_payload(workers.dumps, learner, "the learner"))
        self._pieces = [piece for _, piece in pieces]
        self._edges = np.cumsum([0, *(length for length, _ in pieces)]) if pieces else None
        parts = max(min(len(workers), count), 1)
        self._division = Division(count, parts, ids=ids, labelled=labelled, edges=self._edges)
        parts = self._division.parts
        self._progress = progress
        self._opened = [-1] * parts  # which generation of its worker holds a part
        self._seen: dict[tuple[int, Machine], FileState] = {}  # as first seen
        self._seen_here: FileState | None = None
        with suppress(LabelwiseError, OSError):  # the workers may see what is not here
            self._seen_here = FileState.read(find_files(self._values))
        self._log: list[tuple[str, bytes]] = []
        self.traffic: dict[str, CallTraffic] = {}
        self.restore_state = 0
        self.labelled = self._fetch_labelled()

    @property
    def ids(self) -> Ids:
        """``(n,)`` ids of all rows, block after block."""
        return self._division.candidates

    def __len__(self) -> int:
        return len(self._division)

    def progress(self, stage: str, done: int, total: int) -> None:
        """Tell whoever watches how far the work has come."""
        if self._progress is not None:
            self._progress(stage, done, total)

    def positions(self, ids: Ids) -> Ids:
        """Where the items stand among all rows; an id that is not there is an error."""
        return self._division.positions(ids)

    def map(self, function: Callable[..., T], *arguments: Any) -> list[T]:
        """``function(shard, *arguments)`` for every block, in the order of the blocks."""
        parts = self._call_workers("map", function, arguments)
        return [result for part in parts for result in part]

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The results of `map` added up, by every worker first; tuples field by field."""
        found = self._call_workers("sum", function, arguments)
        parts = [part for part in found if part is not None]
        return reduce(add_results, parts) if parts else None

    def rows(self, ids: Ids) -> dict[str, Any]:
        """The rows of the given items, in the order of ``ids``, brought to the caller."""
        ids = np.asarray(ids, dtype=np.int64)
        owners = self._division.owners(ids)
        visited = np.unique(owners).tolist() or [int(np.argmax(self._division.sizes > 0))]
        answers = self._ask_workers("rows", visited, lambda number: (ids[owners == number],))
        return self._in_order([unpack_answer(answer) for answer in answers], owners)

    def check_files(self) -> None:
        """Refuse files that have changed since the pool was opened: picks would be of neither."""
        answers = self._ask_workers("seen", range(len(self._opened)), lambda number: ())
        for number, answer in enumerate(answers):
            self._check_file_state(number, unpack_answer(answer))

    def close(self) -> None:
        """Let the workers forget the pool."""
        with suppress(ClusterFailed):  # workers that have ended remember nothing
            for number in range(min(len(self._opened), len(self._workers))):
                self._workers.send(number, "close", self._key)

    def _fetch_labelled(self) -> Rows | None:
        answers = self._ask_workers("labelled", range(len(self._opened)), lambda number: ())
        some = [rows for rows in map(unpack_answer, answers) if rows is not None]
        owners = self._division.owners(self._division.labelled)
        return self._in_order(some, owners) if some else None

    def _in_order(self, parts: Sequence[Rows], owners: Ids) -> dict[str, Any]:
        """Rows that came part by part, in the order in which they were asked for."""
        joined = join_rows(parts)
        if len(parts) == 1:
            return joined
        return take_rows(joined, np.argsort(np.argsort(owners, kind="stable")))

    def _call_workers(self, kind: str, function: Callable[..., Any], arguments: Any) -> list[Any]:
        name = describe_function(function)
        payload = pack_payload(self._workers.dumps, (function, arguments), f"the strategy's {name}")
        sent = self._workers.store(payload)
        everywhere = range(len(self._opened))
        answers = self._ask_workers("call", everywhere, lambda number: (kind, sent), name)
        self._log.append((kind, payload))
        results = [unpack_answer(answer) for answer in answers]
        if not any(remembers for _, remembers, _ in results):
            self._log.clear()
        self.traffic[name].sent += len(payload) * len(answers)
        self.traffic[name].seconds += sum(seconds for _, _, seconds in results)
        return [result for result, _, _ in results]

    def _ask_workers(
        self,
        method: str,
        numbers: Sequence[int],
        arguments: Callable[[int], tuple[Any, ...]],
        name: str = "",
    ) -> list[Answer]:
        """The answers of some workers, in that order; lost ones are made again and asked again."""
        found: dict[int, Answer] = {}
        lost: dict[int, str] = {}
        for _ in range(1 + RESTORES):
            if lost:
                self._restore_workers(lost)
            left = [number for number in numbers if number not in found]
            with self._workers.steady:  # a worker that another thread makes again holds nothing
                opening = [(number, sent) for number in left for sent in self._open_part(number)]
                calls = [self._workers.send(n, method, self._key, *arguments(n)) for n in left]
            answers = self._workers.collect([*(sent for _, sent in opening), *calls])
            for (number, _), answer in zip(opening, answers[: len(opening)], strict=True):
                if not isinstance(answer, LostAnswer):
                    self._check_file_state(number, unpack_answer(answer))
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

    def _open_part(self, number: int) -> list[Any]:
        """Let a worker that does not hold its part open it and go through the calls so far."""
        if self._opened[number] == self._workers.generations[number]:
            return []
        facts: Any = {"names": self._names, "block_bytes": self._block_bytes}
        part = cut_part(self._division, number, self._values, **facts)
        pieces = self._pieces
        if self._edges is not None:
            pieces = pieces[slice(*np.searchsorted(self._edges, [part.first, part.last]))]
        sent = [self._workers.send(number, "open", self._key, part, self._learner, *pieces)]
        for kind, payload in self._log:
            sent.append(self._workers.send(number, "replay", self._key, kind, payload))
        self._opened[number] = self._workers.generations[number]
        return sent

    def _check_file_state(self, number: int, seen: FileState | None) -> None:
        """Refuse files that are not what they were; nothing is seen by a call that is repeated."""
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
        self.restore_state += len(lost)
        self.progress(stage, 1, 1)

    def _count_traffic(self, name: str, answers: list[Answer]) -> list[Answer]:
        traffic = self.traffic.setdefault(name, CallTraffic())
        traffic.calls += 1
        traffic.received += sum(map(count_answer_bytes, answers))
        return answers
