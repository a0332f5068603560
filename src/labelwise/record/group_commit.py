"""Group commit: operations of many threads are written to a record in one transaction.

A commit waits some milliseconds for the disk. Operations that arrive meanwhile are queued, and the
first waiting thread writes all of them: one transaction, one wait. A rejected operation does not
affect the others.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from labelwise.errors import StorageFailed
from labelwise.record.events import Event, event_to_json
from labelwise.record.ledger import Ledger
from labelwise.record.snapshots import load_ledger, save_snapshot_if_due
from labelwise.record.storage import Storage

T = TypeVar("T")

Operation = Callable[[Ledger, float], tuple[Sequence[Event], T]]
"""``operation(ledger, now) -> (events, answer)``; it must not change the ledger."""


class _QueuedOperation(Generic[T]):
    """An operation in the queue, and its result."""

    def __init__(self, operation: Operation[T]) -> None:
        self.operation = operation
        self.woken = threading.Event()  # when done, or to write the next group
        self.done = False
        self.answer: T | None = None
        self.error: BaseException | None = None

    def run(self, ledger: Ledger, now: float) -> Sequence[Event]:
        """Return the events; an error is kept for this operation only."""
        try:
            events, self.answer = self.operation(ledger, now)
            for event in events:
                event_to_json(event)  # invalid events are rejected before they join the group
        except Exception as error:
            self.error = error
            return ()
        return events


class GroupCommit:
    """The record of one campaign and its ledger, shared by many threads.

    Example:
        >>> from labelwise.record.events import Skipped
        >>> from labelwise.record.storage import open_storage
        >>> record = GroupCommit("birds", open_storage("memory://"), lambda: 0.0)
        >>> record.commit(lambda ledger, now: ([Skipped(now, 7, "ann", "blurred")], ledger.length))
        0
        >>> record.look(lambda ledger: ledger.length)
        1
    """

    def __init__(self, name: str, storage: Storage, clock: Callable[[], float]) -> None:
        """Set up without reading.

        Args:
            name: name of the campaign.
            storage: the storage with its record.
            clock: returns the seconds since the epoch.
        """
        self.name, self.storage, self.clock = name, storage, clock
        self._ledger: Ledger | None = None
        self._ledger_lock = threading.RLock()
        self._queue: list[_QueuedOperation[Any]] = []
        self._has_writer = False  # whether a thread writes or was woken to write
        self._queue_lock = threading.Lock()  # guards _queue and _has_writer

    def commit(self, operation: Operation[T]) -> T:
        """Run an operation on the newest state and write its events, or raise its error.

        Raises:
            StorageFailed: if the record could not be written; nothing of the operation is in it.
        """
        mine, writes = _QueuedOperation(operation), False
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
        finally:
            self._wake_next_writer(mine, writes)
        if mine.error is not None:
            raise mine.error
        answer: Any = mine.answer
        return answer  # type: ignore[no-any-return]

    def _wake_next_writer(self, mine: _QueuedOperation[Any], wrote: bool) -> None:
        """Hand over writing, also after an interrupt, to the first operation queued since."""
        with self._queue_lock:
            if not mine.done and mine in self._queue:
                self._queue.remove(mine)
            if wrote or (mine.woken.is_set() and not mine.done):
                self._has_writer = bool(self._queue)
                if self._queue:
                    self._queue[0].woken.set()

    def look(self, function: Callable[[Ledger], T]) -> T:
        """``function(ledger)`` on the newest state while nobody changes it; it cannot commit."""
        with self._ledger_lock:
            return function(self.ledger())

    def ledger(self) -> Ledger:
        """The newest state. It changes with the record: threads use `look` instead."""
        with self._ledger_lock:
            ledger = self._open_ledger()
            try:
                ledger.extend(self.storage.read(self.name, ledger.length))
            except BaseException:
                self._ledger = None
                raise
            return ledger

    def _open_ledger(self) -> Ledger:
        if self._ledger is None:
            self._ledger = load_ledger(self.storage, self.name)
        return self._ledger

    def _write_group(self) -> None:
        """Write all queued operations. After a failure the ledger may be ahead and is dropped."""
        with self._queue_lock:
            group, self._queue = self._queue, []
        try:
            ledger = self._open_ledger()
            self.storage.transact(
                self.name, ledger.length, lambda new: self._run_group(group, ledger, new)
            )
        except BaseException as error:
            self._ledger = None
            for queued in group:
                queued.error = _copy_error(error)
            if not isinstance(error, Exception):
                raise
        else:
            save_snapshot_if_due(self.storage, self.name, ledger)
        finally:
            for queued in group:
                queued.done = True
                queued.woken.set()

    def _run_group(
        self, group: list[_QueuedOperation[Any]], ledger: Ledger, new: Sequence[Event]
    ) -> list[Event]:
        ledger.extend(new)
        now, written = self.clock(), []
        for queued in group:
            for event in queued.run(ledger, now):
                ledger.apply(event)
                written.append(event)
        return written


def _copy_error(error: BaseException) -> BaseException:
    """Copy an error, so that several threads can raise it at the same time."""
    if isinstance(error, StorageFailed):
        return StorageFailed(*error.args)
    if isinstance(error, Exception):
        return error
    return StorageFailed("writing to the record was interrupted; nothing was stored, try again")
