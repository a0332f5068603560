"""Calls without rows: what they return, what they raise, and processes that are lost at them."""

import os
import threading
import time

import pytest

from labelwise.errors import BadInput
from labelwise.pool.ray.parts import RESTORES, ClusterFailed
from tests.pool.test_ray_parts import CrewHere

ray = pytest.importorskip("ray")
from labelwise.pool.ray import shards as ray_shards  # noqa: E402
from labelwise.pool.ray.shards import RayActors, RayProcess, ray_processes  # noqa: E402
from tests.pool.ray_fixtures import two_actors  # noqa: E402, F401

pytestmark = pytest.mark.xdist_group("ray")


def refuse(value):
    raise BadInput(f"{value} is odd")


def test_calls_are_made_in_turn_and_answered():
    process = RayProcess(CrewHere(2), 1)
    seen = []
    futures = [process.submit(seen.append, number) for number in range(5)]
    futures.append(process.submit(refuse, 3))
    assert [future.result() for future in futures[:5]] == [None] * 5
    with pytest.raises(BadInput, match=r"^3 is odd$"):
        futures[5].result()
    process.shutdown()


@pytest.mark.parametrize(
    "lost", [{"before": [1]}, {"after": [1]}, {"before": [1, 2], "after": [3]}]
)
def test_a_call_is_made_again_by_a_process_that_is_made_again(lost):
    crew = CrewHere(2, **lost)
    process = RayProcess(crew, 1)
    assert [process.submit(pow, 2, k).result() for k in range(3)] == [1, 2, 4]
    assert crew.generations == [0, len(crew.before | crew.after)]
    assert crew.workers[0] is not None
    process.shutdown()


def test_a_process_that_is_lost_every_time_is_given_up():
    process = RayProcess(CrewHere(2, before=range(100)), 0)
    with pytest.raises(
        ClusterFailed, match=rf"process 1 of 2 was lost {RESTORES + 1} times in one"
    ):
        process.submit(pow, 2, 3).result()
    process.shutdown()


def test_a_call_that_cannot_travel_is_refused():
    process = RayProcess(CrewHere(1), 0)
    with pytest.raises(BadInput, match=r"the call of acquire cannot be sent to other processes \("):
        process.submit(threading.Lock().acquire)
    process.shutdown()


def wait_for(path, others):
    """Leave a sign, and wait until all have left theirs; so all must run at the same time."""
    open(path, "w").close()
    end = time.monotonic() + 300
    while time.monotonic() < end and not all(map(os.path.exists, others)):
        time.sleep(0.01)
    return os.getpid(), all(map(os.path.exists, others))


def test_processes_of_a_cluster_work_side_by_side(actors, tmp_path):
    paths = [str(tmp_path / name) for name in "ab"]
    with ray_processes("ray", 2) as processes:
        calls = zip(processes, paths, strict=True)
        found = [call.result() for call in [p.submit(wait_for, path, paths) for p, path in calls]]
    assert all(together for _, together in found)
    assert len({os.getpid(), *(pid for pid, _ in found)}) == 3


@pytest.mark.parametrize("pause", [0, 0.5])
def test_processes_that_are_no_longer_needed_end_in_the_middle_of_a_call(
    actors, monkeypatch, pause
):
    """Also where much time goes by between the end of the call and the end of the waiting."""
    close = RayActors.close
    monkeypatch.setattr(RayActors, "close", lambda crew: (close(crew), time.sleep(pause)))
    before = waiting_threads()
    with ray_processes("ray", 1) as (process,):
        calls = [process.submit(time.sleep, seconds) for seconds in (0, 1000, 0)]
        wait_until_running(calls[1])
    with pytest.raises(ClusterFailed, match="these actors have ended"):
        calls[1].result()
    assert calls[2].cancelled() and waiting_threads() == before


def test_a_process_that_ends_while_the_others_are_ended_is_not_made_again(actors, monkeypatch):
    """Where the call of the first has failed long before the second one is ended."""
    end = ray_shards._kill_actor
    monkeypatch.setattr(ray_shards, "_kill_actor", lambda handle: (end(handle), time.sleep(1)))
    with ray_processes("ray", 2) as (first, second):
        calls = [process.submit(time.sleep, 1000) for process in (first, second)]
        wait_until_running(*calls)
        workers = first._workers
    for call in calls:
        with pytest.raises(ClusterFailed, match="these actors have ended"):
            call.result()
    assert workers.generations == [0, 0] and not workers._handles


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_is_made_again_while_all_are_ended_ends_too(actors, monkeypatch, moment):
    crew = RayActors(1)
    start, started = crew._start, []

    def start_and_close():
        if moment == "before":
            crew.close()
        started.append(start())
        if moment == "after":
            crew.close()
        return started[0]

    monkeypatch.setattr(crew, "_start", start_and_close)
    with pytest.raises(ClusterFailed, match="these actors have ended"):
        crew.replace([0])
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(started[0].hello.remote(), timeout=300)


def wait_until_running(*calls):
    """One that has not begun would be cancelled."""
    end = time.monotonic() + 300
    while time.monotonic() < end and not all(call.running() for call in calls):
        time.sleep(0.01)


def waiting_threads():
    """Those that wait for answers."""
    return [thread for thread in threading.enumerate() if "labelwise-ray" in thread.name]
