"""Group commit: operations of many threads are written to a record in one transaction.

A commit waits some milliseconds for the disk. Operations that arrive meanwhile are queued, and the
first waiting thread writes all of them: one transaction, one wait. A rejected operation does not
affect the others.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from labelwise.errors import Conflict, StorageFailed
from labelwise.record.events import Event, event_to_json
from labelwise.record.ledger import Ledger
from labelwise.record.snapshots import MIN_EVENTS, load_ledger, save_snapshot_if_due
from labelwise.record.storage import Storage

T = TypeVar("T")

Operation = Callable[[Ledger, float], tuple[Sequence[Event], T]]
"""``operation(ledger, now) -> (events, answer)``; it must not change the ledger."""


@dataclass(eq=False)
class _QueuedOperation(Generic[T]):
    """An operation in the queue, and its result."""

    operation: Operation[T]
    expected: int | None
    woken: threading.Event = field(default_factory=threading.Event)  # done, or the next to write
    done: bool = False
    answer: T | None = None
    error: BaseException | None = None


class SharedRecord:
    """The record of one campaign and its ledger, shared by many threads.

    Example:
        >>> from labelwise.record.events import Skipped
        >>> from labelwise.record import open_storage
        >>> record = SharedRecord("birds", open_storage("memory://"), lambda: 0.0)
        >>> record.commit(lambda ledger, now: ([Skipped(now, 7, "ann", "blurred")], ledger.length))
        0
        >>> record.look(lambda ledger: ledger.length)
        1
    """

    def __init__(self, name: str, storage: Storage, clock: Callable[[], float]) -> None:
        """Set up without reading."""
        self.name, self.storage, self.clock = name, storage, clock
        self._clock_lag = 0.0  # seconds that the clock is behind the latest event
        self._ledger: Ledger | None = None
        self._ledger_lock = threading.RLock()
        self._queue: list[_QueuedOperation[Any]] = []
        self._has_writer = False  # whether a thread writes or was woken to write
        self._queue_lock = threading.Lock()  # guards _queue and _has_writer

    def commit(self, operation: Operation[T], *, expected: int | None = None) -> T:
        """Run an operation on the newest state and write its events, or raise its error.

        Raises:
            Conflict: if the record does not have ``expected`` events.
            StorageFailed: if the record could not be written; nothing of the operation is in it.
        """
        mine, writes = _QueuedOperation(operation, expected), False
        try:
            with self._queue_lock:
                self._queue.append(mine)
                writes, self._has_writer = not self._has_writer, True
            if not writes:
                mine.woken.wait()
                writes = not mine.done
            if writes:
                with self._ledger_lock:
                    self._write_group()
        finally:  # hand over writing, also after an interrupt, to the first operation queued since
            with self._queue_lock:
                if not mine.done and mine in self._queue:
                    self._queue.remove(mine)
                if writes or (mine.woken.is_set() and not mine.done):
                    self._has_writer = bool(self._queue)
                    if self._queue:
                        self._queue[0].woken.set()
        if mine.error is not None:
            raise mine.error
        return cast(T, mine.answer)

    def look(self, function: Callable[[Ledger], T]) -> T:
        """``function(ledger)`` on the newest state while nobody changes it; it cannot commit."""
        with self._ledger_lock:
            return function(self.ledger())

    def ledger(self) -> Ledger:
        """The newest state. It changes with the record: threads use `look` instead."""
        with self._ledger_lock:
            ledger = self._ledger or load_ledger(self.storage, self.name)
            self._ledger = None  # it may be incomplete if the record cannot be read
            ledger.extend(self.storage.read(self.name, ledger.length))
            self._ledger = ledger
            return ledger

    def _write_group(self) -> None:
        """Write all queued operations. After a failure the ledger may be ahead and is dropped."""
        with self._queue_lock:
            group, self._queue = self._queue, []
        try:
            ledger = self._ledger or load_ledger(self.storage, self.name)
            self._ledger = None
            self.storage.transact(
                self.name, ledger.length, lambda new: self._run_group(group, ledger, new)
            )
            self._ledger = ledger
        except BaseException as error:
            for queued in group:
                queued.error = _copy_commit_error(error)
            if not isinstance(error, Exception):
                raise
        else:
            if ledger.length - ledger.snapshot_length >= MIN_EVENTS:
                save_snapshot_if_due(self.storage, self.name, ledger)
        finally:
            for queued in group:
                queued.done = True
                queued.woken.set()

    def _run_group(
        self, group: list[_QueuedOperation[Any]], ledger: Ledger, new: Sequence[Event]
    ) -> list[Event]:
        """The events of all operations; an error is kept for its own operation."""
        ledger.extend(new)
        # After the clock was set back, time goes on from the latest event: leases neither seem
        # to have expired nor last until the clock has caught up.
        time = self.clock()
        self._clock_lag = max(self._clock_lag, ledger.latest - time)
        now, written = time + self._clock_lag, list[Event]()
        for queued in group:
            try:
                if queued.expected is not None:
                    check_record_length(ledger, queued.expected)
                events, queued.answer = queued.operation(ledger, now)
                for event in events:
                    event_to_json(event)  # invalid events are rejected before they join the group
            except Exception as error:
                queued.error = error
            else:
                ledger.extend(events)
                written += events
        return written


def _copy_commit_error(error: BaseException) -> BaseException:
    """Copy an error, so that several threads can raise it at the same time."""
    if isinstance(error, StorageFailed):
        return StorageFailed(*error.args)
    if isinstance(error, Exception):
        return error
    return StorageFailed("writing to the record was interrupted; nothing was stored, try again")


def check_record_length(ledger: Ledger, expected: int) -> None:
    """Raise a conflict if the record has another length than the caller saw."""
    if ledger.length != expected:
        raise Conflict(
            f"the record has {ledger.length} events, not {expected}: it was changed in the "
            "meantime; read the ledger again and retry"
        )
