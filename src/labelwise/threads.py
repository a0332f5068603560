"""Several threads for work that NumPy does on one.

Matrix products take all cores by themselves. Everything else (logarithms, norms, comparisons)
takes one, though NumPy lets other threads run meanwhile. `side_by_side` cuts such work into parts.
In the parts, matrix products stay on the thread that asks for them (`labelwise.arrays`): threads of
BLAS beside ours would fight for the cores.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Who limits the threads of BLAS means ours too."""

_beside: ContextVar[bool] = ContextVar("labelwise_beside", default=False)


def thread_count() -> int:
    """How many threads may run: as many as there are cores for this process, unless limited."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    given = (os.environ.get(name, "").split(",")[0] for name in LIMITS)
    limits = [int(limit) for limit in given if limit.isdecimal() and int(limit) > 0]
    return min([cores or 1, *limits])


def is_beside_others() -> bool:
    """Whether this is one of several threads of `side_by_side`."""
    return _beside.get()


def side_by_side(function: Callable[[Any], T], parts: Iterable[Any]) -> list[T]:
    """``function(part)`` for every part, on several threads; the answers are in order.

    An error of an earlier part is raised before that of a later one. Settings such as
    ``np.errstate`` hold in the threads as well.

    Example:
        >>> side_by_side(lambda part: part * part, range(4))
        [0, 1, 4, 9]
    """
    parts = list(parts)
    threads = min(thread_count(), len(parts))
    if threads < 2 or is_beside_others():
        return [function(part) for part in parts]

    def one(part: Any) -> T:
        _beside.set(True)
        return function(part)

    with ThreadPoolExecutor(threads, thread_name_prefix="labelwise") as pool:
        jobs = [pool.submit(copy_context().run, one, part) for part in parts]
        try:
            return [job.result() for job in jobs]
        finally:
            for job in jobs:  # after an error, those that have not begun need not
                job.cancel()


def spans(count: int, step: int) -> list[slice]:
    """Slices of ``step`` items that cover ``count`` of them; one empty slice for none.

    >>> spans(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(first, min(first + step, count)) for first in range(0, max(count, 1), step)]
