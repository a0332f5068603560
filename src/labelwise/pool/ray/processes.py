"""Processes of a Ray cluster for work of any kind: functions go in, what they return comes out.

A process that is lost is made again, and the call that it was at is made again from its beginning.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from labelwise.pool.part_worker import describe_function, pack_payload, unpack_answer
from labelwise.pool.ray.parts import RESTORES, ClusterFailed, LostAnswer, WorkerPool


class RayProcess:
    """One process of a cluster, with the method `submit` of `concurrent.futures.Executor`."""

    def __init__(self, workers: WorkerPool, number: int) -> None:
        """Stand for one worker. A thread of this process waits for its answers."""
        self._workers, self._number = workers, number
        self._waiter = ThreadPoolExecutor(1, thread_name_prefix="labelwise-ray")

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """``function(*arguments)`` over there; calls are made one after the other."""
        what = f"the call of {describe_function(function)}"
        payload = pack_payload(self._workers.dumps, (function, arguments), what)
        return self._waiter.submit(self._call_worker, payload)

    def shutdown(self, *, wait: bool = True) -> None:
        """Make no call after the one that is being made; wait until that has ended, if asked."""
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
    """Processes of a cluster for as long as they are needed.

    Args:
        on: the cluster, as in `labelwise.pool.ray.shards.connect`.
        count: how many, with one CPU each; as many as the cluster has CPUs if None.
        gpus: how many GPUs each needs.

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
            for process in processes:  # before a call ends, lest the next of its process begin
                process.shutdown(wait=False)
            workers.close()  # ends calls that nobody waits for
            for process in processes:
                process.shutdown()
