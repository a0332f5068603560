"""Group commits: many threads, one transaction; one refusal, no harm to the others."""

import ctypes
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from labelwise.errors import BadInput, Conflict, StorageFailed
from labelwise.record.events import Told
from labelwise.record.group_commit import SharedRecord
from labelwise.record.storage import MemoryStorage


class Gate(MemoryStorage):
    """A storage whose next transaction waits, so that others gather behind it; or fails."""

    def __init__(self):
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()
        self.fails = False
        self.sizes = []

    def transact(self, campaign, start, decide):
        before = self.length(campaign)
        self.begun.set()
        assert self.go.wait(60)
        length = super().transact(
            campaign, start, decide if not self.fails else self._failing(decide)
        )
        self.sizes.append(length - before)
        return length

    def _failing(self, decide):
        def fail(events):
            decide(events)
            raise StorageFailed("the disk is full; make room and retry")

        return fail


def told(item):
    """An operation that adds one label, and answers how many stood before it."""
    return lambda ledger, now: ([Told(now, item, "owl")], len(ledger.labels))


def refused(ledger, now):
    raise BadInput("no such thing")


def gathered(storage, operations):
    """What each operation answers or raises if all but the first gather behind it."""
    record = SharedRecord("birds", storage, lambda: 5.0)
    storage.go.clear()
    storage.begun.clear()
    with ThreadPoolExecutor(len(operations)) as pool:
        futures = [pool.submit(record.commit, operations[0])]
        assert storage.begun.wait(60)
        for operation in operations[1:]:
            futures.append(pool.submit(record.commit, operation))
            while len(record._queue) < len(futures) - 1:
                threading.Event().wait(0.001)
        storage.go.set()
    return record, [future.exception() or future.result() for future in futures]


def test_threads_that_wait_are_written_in_one_transaction():
    storage = Gate()
    record, answers = gathered(storage, [told(item) for item in range(9)])
    assert storage.sizes == [1, 8]
    assert answers == list(range(9))  # every operation sees those before it
    assert [event.id for event in storage.read("birds")] == list(range(9))
    assert record.look(lambda ledger: len(ledger.labels)) == 9


def test_a_refused_operation_does_not_touch_the_others():
    storage = Gate()
    operations = [told(0), told(1), refused, told(2), refused, told(3)]
    _, answers = gathered(storage, operations)
    assert [answer for answer in answers if isinstance(answer, int)] == [0, 1, 2, 3]
    assert [str(answer) for answer in answers if isinstance(answer, BadInput)] == [
        "no such thing"
    ] * 2
    assert storage.sizes == [1, 3]


def test_an_event_that_the_record_would_refuse_harms_only_its_operation():
    storage = Gate()
    bad = lambda ledger, now: ([Told(now, 4, float("nan"))], None)  # noqa: E731
    _, answers = gathered(storage, [told(0), told(1), bad, told(2)])
    assert [type(answer) for answer in answers] == [int, int, BadInput, int]
    assert [event.id for event in storage.read("birds")] == [0, 1, 2]


def test_a_failed_write_reaches_every_waiting_caller_and_the_next_one_goes_through():
    storage = Gate()
    storage.go.set()
    record = SharedRecord("birds", storage, lambda: 5.0)
    record.commit(told(0))
    storage.fails = True
    record, answers = gathered(storage, [told(item) for item in range(1, 5)])
    assert all(isinstance(answer, StorageFailed) for answer in answers)
    assert len({id(answer) for answer in answers}) == 4  # an error of its own for every thread
    assert [event.id for event in storage.read("birds")] == [0]
    storage.fails = False
    assert record.commit(told(9)) == 1  # the labels that failed are not in the ledger
    assert record.look(lambda ledger: sorted(ledger.labels)) == [0, 9]


def test_an_interrupted_write_lets_nobody_wait_for_ever():
    class Interrupted(Gate):
        def transact(self, campaign, start, decide):
            super().transact(campaign, start, lambda events: [])
            raise KeyboardInterrupt

    storage = Interrupted()
    _, answers = gathered(storage, [told(0), told(1), told(2)])
    assert isinstance(answers[0], KeyboardInterrupt)
    kinds = sorted(type(answer).__name__ for answer in answers[1:])
    assert kinds == ["KeyboardInterrupt", "StorageFailed"]
    assert not storage.read("birds")


def interrupt(thread):
    """Raise an error in another thread, at its next step, as Ctrl-C does in the main one."""
    number, kind = ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt)
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(number, kind) == 1


def test_who_is_interrupted_while_waiting_leaves_the_others_unharmed():
    storage = Gate()
    record = SharedRecord("birds", storage, lambda: 5.0)
    raised = []

    def wait_and_be_interrupted():
        try:
            record.commit(told(1))
        except KeyboardInterrupt:
            raised.append(True)

    first = threading.Thread(target=record.commit, args=(told(0),))
    second = threading.Thread(target=wait_and_be_interrupted)
    third = threading.Thread(target=record.commit, args=(told(2),))
    first.start()
    assert storage.begun.wait(60)
    for place, thread in enumerate((second, third)):
        thread.start()
        while len(record._queue) < place + 1:
            threading.Event().wait(0.001)
    while sys._current_frames()[second.ident].f_code is not threading.Condition.wait.__code__:
        threading.Event().wait(0.001)
    threading.Event().wait(0.05)  # until it sleeps there
    interrupt(second)  # comes through when the wait is over: it is called to write then
    storage.go.set()
    for thread in (first, second, third):
        thread.join(60)
        assert not thread.is_alive()
    assert raised == [True]
    assert record.commit(told(3)) == 2
    assert sorted(event.id for event in storage.read("birds")) == [0, 2, 3]


@pytest.mark.parametrize("others", [0, 1])
def test_who_is_interrupted_as_it_enters_the_queue_leaves_the_others_unharmed(others):
    class Interrupting:
        """The queue's lock; the first to let it go after ``armed`` is interrupted."""

        def __init__(self):
            self.lock, self.armed = threading.Lock(), False

        def __enter__(self):
            self.lock.acquire()

        def __exit__(self, *_):
            armed, self.armed = self.armed, False
            self.lock.release()
            if armed:
                raise KeyboardInterrupt

    storage = Gate()
    record = SharedRecord("birds", storage, lambda: 5.0)
    record._queue_lock = Interrupting()
    first, last = (
        threading.Thread(target=record.commit, args=(told(item),), daemon=True) for item in (0, 2)
    )
    if others:
        first.start()
        assert storage.begun.wait(60)
    record._queue_lock.armed = True
    with pytest.raises(KeyboardInterrupt):
        record.commit(told(1))
    storage.go.set()
    last.start()
    last.join(60)
    assert [event.id for event in storage.read("birds")] == [0, 2][-1 - others :]


def test_two_desks_on_one_record_see_each_others_events(storage):
    one, other = (
        SharedRecord("birds", storage, lambda: 1.0),
        SharedRecord("birds", storage, lambda: 2.0),
    )
    for item in range(6):
        assert (one, other)[item % 2].commit(told(item)) == item
    assert one.ledger().labels == other.ledger().labels
    assert one.ledger().length == 6


def test_an_unreachable_storage_is_read_anew_when_it_is_back():
    storage = MemoryStorage()
    record = SharedRecord("birds", storage, lambda: 1.0)
    record.commit(told(0))
    storage.close()
    with pytest.raises(StorageFailed, match="closed"):
        record.commit(told(1))
    with pytest.raises(StorageFailed, match="closed"):
        record.ledger()
    storage._closed = False
    assert record.commit(told(2)) == 1


def test_many_threads_lose_nothing(storage):
    record = SharedRecord("birds", storage, lambda: 1.0)

    def work(person):
        for item in range(person * 20, person * 20 + 20):
            record.commit(told(item))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert sorted(event.id for event in storage.read("birds")) == list(range(160))
    assert record.look(lambda ledger: ledger.length) == 160


def test_a_record_that_was_replaced_by_an_older_copy_is_told_and_then_read_anew():
    storage = MemoryStorage()
    record = SharedRecord("birds", storage, lambda: 1.0)
    for item in range(3):
        record.commit(told(item))
    del storage._records["birds"][1:]
    with pytest.raises(Conflict, match="fewer than the 3 read before"):
        record.commit(told(5))
    assert record.commit(told(5)) == 1
    assert [event.id for event in storage.read("birds")] == [0, 5]
