"""Several threads: answers in order, errors of the first, and no threads where none are wanted."""

import gc
import threading
import time

import numpy as np
import pytest

from labelwise import threads
from labelwise.threads import is_worker_thread, run_in_threads, split_range, thread_count


@pytest.fixture
def three_threads(monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: 3)


def test_answers_come_in_order_from_several_threads(three_threads):
    met = threading.Barrier(3, timeout=60)  # passes only if three are there at once

    def slow_first(part):
        if part < 3:
            met.wait()
        time.sleep(0.02 * (3 - part) if part < 3 else 0)
        return part, threading.get_ident(), is_worker_thread()

    answers = run_in_threads(slow_first, range(8))
    assert [part for part, _, _ in answers] == list(range(8))
    assert len({thread for _, thread, _ in answers[:3]}) == 3
    assert all(beside for _, _, beside in answers)
    assert not is_worker_thread()


def test_an_earlier_parts_error_is_raised_though_a_later_one_came_first(three_threads):
    def fail(part):
        time.sleep(0.05 if part == 1 else 0)
        if part in (1, 2):
            raise ValueError(f"part {part}")

    with pytest.raises(ValueError, match="part 1"):
        run_in_threads(fail, range(5))


def test_settings_of_numpy_hold_in_the_threads(three_threads):
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        run_in_threads(lambda part: np.log(np.zeros(3)), range(4))
    with np.errstate(divide="ignore"):
        assert np.isinf(run_in_threads(lambda part: np.log(np.zeros(3)), range(4))).all()


def test_threads_do_not_start_threads(three_threads):
    def inner(part):
        return {threading.get_ident(), *run_in_threads(lambda _: threading.get_ident(), range(5))}

    assert all(len(seen) == 1 for seen in run_in_threads(inner, range(3)))


@pytest.mark.parametrize("name", threads.LIMITS)
def test_who_limits_the_threads_of_blas_limits_ours(name, monkeypatch):
    for other in threads.LIMITS:
        monkeypatch.delenv(other, raising=False)
    free = thread_count()
    assert free >= 1
    monkeypatch.setenv(name, "1")
    assert thread_count() == 1
    here = threading.get_ident()
    assert run_in_threads(lambda _: threading.get_ident(), range(3)) == [here] * 3
    for odd in ("", "many", "0", "-2"):
        monkeypatch.setenv(name, odd)
        assert thread_count() == free


@pytest.mark.parametrize(("count", "step"), [(0, 3), (1, 3), (3, 3), (10, 3)])
def test_spans_cover_everything_once(count, step):
    covered = [place for span in split_range(count, step) for place in range(count)[span]]
    assert covered == list(range(count))
    assert all(span.stop - span.start <= step for span in split_range(count, step))


def test_the_garbage_collector_goes_on_after_a_pause():
    with pytest.raises(ValueError, match="stop"), threads.pause_garbage_collection():
        assert not gc.isenabled()
        raise ValueError("stop")
    assert gc.isenabled()
