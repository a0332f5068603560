"""Call a function in parallel processes of this machine, and keep the last result in a process."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar

import joblib

P = ParamSpec("P")
R = TypeVar("R")


class WorkerProcess(Protocol):
    """A process, of this machine or of a cluster, that calls one function after the other."""

    def submit(self, function: Callable[..., R], *arguments: object) -> Future[R]:
        """The result of a call, which may come later."""


def call_in_processes(
    function: Callable[..., R], arguments: Iterable[tuple[object, ...]], workers: int | None
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


def keep_last_result(function: Callable[P, R]) -> Callable[P, R]:
    """A cache of one result, for arguments that can be compared but not hashed.

    The old result is freed before the next one is computed.
    """
    kept: list[tuple[object, R]] = []

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not kept or kept[0][0] != (args, kwargs):
            kept.clear()
            kept.append(((args, kwargs), function(*args, **kwargs)))
        return kept[0][1]

    return call
