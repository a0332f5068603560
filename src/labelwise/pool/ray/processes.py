"""Run functions in processes of a Ray cluster.

A lost process is restarted, and its current call is repeated from the start.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from labelwise.pool.parts import describe_function, pack_payload, unpack_answer
from labelwise.pool.ray.parts import RESTORES, ClusterFailed, LostAnswer, WorkerPool

T = TypeVar("T")


class RayProcess:
    """One process of a cluster, with the method `submit` of `concurrent.futures.Executor`."""

    def __init__(self, workers: WorkerPool, number: int) -> None:
        """Wrap one worker; a local thread waits for its answers."""
        self._workers, self._number = workers, number
        self._waiter = ThreadPoolExecutor(1, thread_name_prefix="labelwise-ray")

    def submit(self, function: Callable[..., T], *arguments: object) -> Future[T]:
        """Run ``function(*arguments)`` in the process; calls run one after the other."""
        what = f"the call of {describe_function(function)}"
        payload = pack_payload(self._workers.dumps, (function, arguments), what)
        return self._waiter.submit(self._call_worker, payload)

    def shutdown(self, *, wait: bool = True) -> None:
        """Cancel calls that have not started; with ``wait``, wait for the current call."""
        self._waiter.shutdown(wait=wait, cancel_futures=True)

    def _call_worker(self, payload: bytes) -> Any:
        why = ""
        for _ in range(1 + RESTORES):
            sent = self._workers.send(self._number, "run", payload)
            (answer,) = self._workers.collect([sent])
            if not isinstance(answer, LostAnswer):
                return unpack_answer(answer)
            why = answer.why
            self._workers.replace([self._number])
        raise ClusterFailed(
            f"process {self._number + 1} of {len(self._workers)} was lost {1 + RESTORES} times in "
            f"one call ({why}); look for what ends it, such as a node without enough memory"
        )


@contextmanager
def ray_processes(
    on: str, count: int | None = None, *, gpus: float = 0
) -> Iterator[list[RayProcess]]:
    """Start processes on a cluster and end them on exit.

    Args:
        on: the cluster, as in `labelwise.pool.ray.shards.connect`.
        count: number of processes with one CPU each; one per CPU of the cluster if None.
        gpus: GPUs per process.

    Example:
        >>> with ray_processes("ray", 1) as (process,):
        ...     process.submit(pow, 2, 10).result()
        1024
    """
    from labelwise.pool.ray.shards import RayActors

    with RayActors(count, on=on, gpus=gpus) as workers:
        processes = [RayProcess(workers, number) for number in range(len(workers))]
        try:
            yield processes
        finally:
            for process in processes:  # first, so that no queued call starts
                process.shutdown(wait=False)
            workers.close()  # ends the calls that are still running
            for process in processes:
                process.shutdown()
