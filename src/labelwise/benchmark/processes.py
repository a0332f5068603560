"""Call a function in parallel processes of this machine."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import joblib

R = TypeVar("R")


def call_in_processes(
    function: Callable[..., R], arguments: Iterable[tuple[Any, ...]], workers: int | None
) -> Iterator[R]:
    """Results of ``function(*arguments)`` as they come, from processes with one thread each.

    ``workers=None`` starts one process per core.

    >>> sorted(call_in_processes(pow, [(2, 3), (3, 2)], workers=1))
    [8, 9]
    """
    # One thread per process, so that processes do not compete for cores.
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = joblib.Parallel(n_jobs=workers or -1, return_as="generator_unordered")
        yield from parallel(joblib.delayed(function)(*own) for own in arguments)
