"""Two Ray nodes in this machine, one of which goes away in the middle of a selection.

Run: python -m tests.pool.ray_clusters node|"no room"|head|"head and actor"|"silent head" FOLDER
"""

import os
import signal
import sys
import time
from pathlib import Path

os.environ["RAY_memory_monitor_refresh_ms"] = "0"  # it would count the memory of other tests
os.environ["RAY_worker_niceness"] = "0"  # else every other program goes first
os.environ["RAY_TQDM_PATCH_PRINT"] = "0"  # it would put a function of its own in the place of print

import numpy as np
import ray
from ray.cluster_utils import Cluster

import labelwise
from labelwise.pool.ray.shards import ClusterFailed, RayActors
from tests.conftest import make_features

BUDGET, MIDDLE = 40, 20
HEADS = {
    "head": signal.SIGKILL,
    "head and actor": signal.SIGKILL,
    "silent head": signal.SIGSTOP,  # an actor is lost, too
}


def main(event: str, folder: Path) -> None:
    """Select on two nodes, let ``event`` happen at a pick, and print what came of it."""
    features = make_features(3000, 6).astype(np.float32)
    np.save(folder / "features.npy", features)
    expected = labelwise.select("herding", BUDGET, features=features)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    actors = RayActors(2, on=f"ray:{cluster.address}", start_seconds=300)
    if event == "node":
        cluster.add_node(num_cpus=1)  # where there is room for what is lost
    if event == "no room":
        actors._start_seconds = 60  # a busy machine is not to be given up
    happened = 0.0

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal happened
        if stage == "herding" and done == MIDDLE:
            happened = time.monotonic()
            if event in HEADS:
                head = cluster.head_node.all_processes["gcs_server"][0]
                os.kill(head.process.pid, HEADS[event])
                if event != "head":
                    os.kill(actors.processes[0].pid, signal.SIGKILL)
            else:
                cluster.remove_node(second, allow_graceful=False)
                wait_until_one_is_gone([process.pid for process in actors.processes])
        if event == "head" and done > MIDDLE:
            time.sleep(3)  # else the selection would be done before anyone misses the head

    try:
        found = labelwise.select(
            "herding", BUDGET, features=folder / "features.npy", on=actors, progress=progress
        )
        same = "the same picks" if found.ids.tolist() == expected.ids.tolist() else "other picks"
        print(f"{same}, restored {sum(actors.generations)}")
    except ClusterFailed as error:
        print(error)
    print("seconds", time.monotonic() - happened, flush=True)
    if event == "silent head":
        os._exit(0)  # to end its cluster would take minutes; whoever started this does so
    ray.shutdown()
    cluster.shutdown()


def wait_until_one_is_gone(pids: list[int]) -> None:
    """The processes of a node end a second or two after it."""
    end = time.monotonic() + 150
    while time.monotonic() < end and all(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
