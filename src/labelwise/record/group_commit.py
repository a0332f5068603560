"""Many threads' operations on a campaign's record, written in groups.

A commit waits for the disk, a few milliseconds that no processor can shorten. Threads that come
while one commit is on its way are therefore gathered, and the first of them writes for all: one
transaction, one wait. An operation that is refused does not touch the others.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from labelwise.errors import StorageFailed
from labelwise.record.events import Event, to_json
from labelwise.record.ledger import Ledger, load_ledger
from labelwise.record.snapshots import keep_if_due
from labelwise.record.storage import Storage

T = TypeVar("T")

Operation = Callable[[Ledger, float], tuple[Sequence[Event], T]]
"""``operation(ledger, now) -> (events, answer)``: reads the ledger and changes nothing itself."""


class _Waiting(Generic[T]):
    """An operation in the queue, and what came of it."""

    def __init__(self, operation: Operation[T]) -> None:
        self.operation = operation
        self.called = threading.Event()  # to write for all, or because it is done
        self.done = False
        self.answer: T | None = None
        self.error: BaseException | None = None

    def run(self, ledger: Ledger, now: float) -> Sequence[Event]:
        """Decide; an error is this operation's own."""
        try:
            events, self.answer = self.operation(ledger, now)
            for event in events:
                to_json(event)  # what the record would refuse is refused here, where it is alone
        except Exception as error:
            self.error = error
            return ()
        return events


class Groups:
    """The record of one campaign, and the ledger that follows it.

    Example:
        >>> from labelwise.campaign import open_storage
        >>> from labelwise.record.events import Skipped
        >>> groups = Groups("birds", open_storage("memory://"), lambda: 0.0)
        >>> groups.commit(lambda ledger, now: ([Skipped(now, 7, "ann", "blurred")], ledger.length))
        0
        >>> groups.look(lambda ledger: ledger.length)
        1
    """

    def __init__(self, name: str, storage: Storage, clock: Callable[[], float]) -> None:
        """Read nothing yet.

        Args:
            name: of the campaign.
            storage: where its record is.
            clock: gives the seconds since the epoch.
        """
        self.name, self.storage, self.clock = name, storage, clock
        self._ledger: Ledger | None = None
        self._turn = threading.RLock()  # of the ledger
        self._queue: list[_Waiting[Any]] = []
        self._writing = False  # whether someone writes, or is called to
        self._queueing = threading.Lock()  # of the queue and of that

    def commit(self, operation: Operation[T]) -> T:
        """Run an operation on the newest state, and write its events, or raise its error.

        Raises:
            StorageFailed: the record could not be written; nothing of the operation is in it.
        """
        mine, writes = _Waiting(operation), False
        try:
            with self._queueing:
                self._queue.append(mine)
                writes, self._writing = not self._writing, True
            if not writes:
                mine.called.wait()
                writes = not mine.done
            if writes:
                with self._turn:
                    self._write()
        finally:
            self._leave(mine, writes)
        if mine.error is not None:
            raise mine.error
        answer: Any = mine.answer
        return answer  # type: ignore[no-any-return]

    def _leave(self, mine: _Waiting[Any], wrote: bool) -> None:
        """Who wrote, or was called to and interrupted, calls the first of those that came since."""
        with self._queueing:
            if not mine.done and mine in self._queue:
                self._queue.remove(mine)
            if wrote or (mine.called.is_set() and not mine.done):
                self._writing = bool(self._queue)
                if self._queue:
                    self._queue[0].called.set()

    def look(self, function: Callable[[Ledger], T]) -> T:
        """``function(ledger)`` of the newest state, while nobody changes it; it cannot commit."""
        with self._turn:
            return function(self.ledger())

    def ledger(self) -> Ledger:
        """The newest state. It changes with the record, so threads use `look` instead."""
        with self._turn:
            ledger = self._opened()
            try:
                for event in self.storage.read(self.name, ledger.length):
                    ledger.apply(event)
            except BaseException:
                self._ledger = None
                raise
            return ledger

    def _opened(self) -> Ledger:
        if self._ledger is None:
            self._ledger = load_ledger(self.storage, self.name)
        return self._ledger

    def _write(self) -> None:
        """Write for all that wait. The ledger is read anew after a failure: it may be ahead."""
        with self._queueing:
            group, self._queue = self._queue, []
        try:
            ledger = self._opened()
            self.storage.transact(self.name, ledger.length, lambda new: self._decide(group, new))
        except BaseException as error:
            self._ledger = None
            for waiting in group:
                waiting.error = _own_copy(error)
            if not isinstance(error, Exception):
                raise
        else:
            keep_if_due(self.storage, self.name, ledger)
        finally:
            for waiting in group:
                waiting.done = True
                waiting.called.set()

    def _decide(self, group: list[_Waiting[Any]], new: Sequence[Event]) -> list[Event]:
        ledger = self._opened()
        for event in new:
            ledger.apply(event)
        now, written = self.clock(), []
        for waiting in group:
            for event in waiting.run(ledger, now):
                ledger.apply(event)
                written.append(event)
        return written


def _own_copy(error: BaseException) -> BaseException:
    """An error that one thread can raise while others raise theirs."""
    if isinstance(error, StorageFailed):
        return StorageFailed(*error.args)
    if isinstance(error, Exception):
        return error
    return StorageFailed("writing to the record was interrupted; nothing was kept, try again")
