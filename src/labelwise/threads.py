"""Threads for work that NumPy does on one core.

Matrix products use all cores by themselves. Everything else (logarithms, norms, comparisons) uses
one, although NumPy lets other threads run meanwhile; `run_in_threads` divides such work. Inside it,
matrix products stay on the calling thread (`labelwise.arrays`), because additional BLAS threads
would compete for the cores.
"""

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TypeVar

P = TypeVar("P")
T = TypeVar("T")

LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that limit the threads of BLAS; they limit ours too."""

_in_worker: ContextVar[bool] = ContextVar("labelwise_in_worker", default=False)


def thread_count() -> int:
    """Number of threads to use: the cores of this process, unless limited."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    given = (os.environ.get(name, "").split(",")[0] for name in LIMITS)
    limits = [int(limit) for limit in given if limit.isdecimal() and int(limit) > 0]
    return min([cores or 1, *limits])


def is_worker_thread() -> bool:
    """Whether this is one of several threads of `run_in_threads`."""
    return _in_worker.get()


def run_in_threads(function: Callable[[P], T], parts: Iterable[P]) -> list[T]:
    """``function(part)`` for every part, on several threads; the results are in order.

    An error of an earlier part is raised before that of a later one. Settings such as
    ``np.errstate`` hold in the threads as well.

    Example:
        >>> run_in_threads(lambda part: part * part, range(4))
        [0, 1, 4, 9]
    """
    parts = list(parts)
    threads = min(thread_count(), len(parts))
    if threads < 2 or is_worker_thread():
        return [function(part) for part in parts]

    def run_part(part: P) -> T:
        _in_worker.set(True)
        return function(part)

    with ThreadPoolExecutor(threads, thread_name_prefix="labelwise") as pool:
        jobs = [pool.submit(copy_context().run, run_part, part) for part in parts]
        try:
            return [job.result() for job in jobs]
        finally:
            for job in jobs:  # after an error, parts that have not started are skipped
                job.cancel()


def split_range(count: int, step: int) -> list[slice]:
    """Slices of ``step`` items that cover ``count`` of them; one empty slice for none.

    >>> split_range(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(first, min(first + step, count)) for first in range(0, max(count, 1), step)]


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Look for no reference cycles meanwhile, which takes long among a million new objects."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
