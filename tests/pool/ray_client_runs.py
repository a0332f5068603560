"""Selections through Ray's client, in a process of its own; run by a test.

Run: python -m tests.pool.ray_client_runs picks ADDRESS FOLDER
     python -m tests.pool.ray_client_runs killed|headless|silent FOLDER
"""

import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import labelwise
from labelwise.cli import run as run_command
from labelwise.errors import BadInput
from labelwise.pool.ray.shards import ClusterFailed, RayActors, connect, dataset_rows, ray_processes
from tests.conftest import make_features, make_probabilities
from tests.pool.ray_heads import Head, started_head

BUDGET, MIDDLE = 20, 6
NEEDS = {"entropy": "probabilities", "k_center": "features", "lewis": "features"}
"""A strategy of each form, and what it needs."""


REFUSED = {
    "another": lambda: connect("ray://127.0.0.1:9"),
    "ray data": lambda: dataset_rows(None),
}


def make_pool():
    """A small pool."""
    features = make_features(2000, 6).astype(np.float32)
    return {"features": features, "probabilities": make_probabilities(2000, 5)}


def select_arguments(on: str) -> list[str]:
    """A selection from features.npy to there.csv."""
    named = ["-b", str(BUDGET), "-o", "there.csv", "--actors", "1", "--on", on]
    return ["select", "features.npy", "-s", "k_center", *named]


def picks(address: str, folder: Path) -> None:
    """Print the picks of every strategy from arrays and from files, and some facts."""
    pool = make_pool()
    for name, rows in pool.items():
        np.save(folder / f"{name}.npy", rows)
    found = {}
    with RayActors(2, on=address) as actors:
        for strategy, name in NEEDS.items():
            for kind, given in [("array", pool[name]), ("file", folder / f"{name}.npy")]:
                named = {name: given, "labelled": [5, 1500]}
                chosen = labelwise.select(strategy, BUDGET, **named, seed=5, on=actors)
                found[f"{strategy} {kind}"] = chosen.ids.tolist()
        found["pids"] = [os.getpid(), *(process.pid for process in actors.processes)]
    os.chdir(folder)
    assert run_command(select_arguments(address)) == 0
    with ray_processes(address, 1) as (process,):
        found["power"] = process.submit(pow, 2, 10).result()
    for name, call in REFUSED.items():
        try:
            call()
        except BadInput as error:
            found[name] = str(error)
    print(json.dumps(found))


def lose(event: str, folder: Path) -> None:
    """Select, let ``event`` happen to the head at a pick, and print what came of it."""
    path = folder / "features.npy"
    np.save(path, make_pool()["features"])
    with started_head() as head:
        happened = 0.0

        def progress(stage: str, done: int, total: int) -> None:
            nonlocal happened
            if stage == "herding" and done == MIDDLE:
                happened = time.monotonic()
                befall(head, event)
            if happened:
                time.sleep(4)  # else the selection would be done before anyone misses the head

        try:
            named = {"features": path, "on": head.address, "actors": 2}
            labelwise.select("herding", BUDGET, **named, progress=progress)
            print("nobody missed the head")
        except ClusterFailed as error:
            print(error)
        print("seconds", time.monotonic() - happened)
    with started_head() as head:
        found = labelwise.select("herding", BUDGET, features=path, on=head.address, actors=1)
        print("again", found.ids.tolist())


def befall(head: Head, event: str) -> None:
    """What happens to a head."""
    if event == "headless":  # what is beside it on its machine goes on for a minute
        os.kill(head.pid("gcs_server"), signal.SIGKILL)
    else:
        os.killpg(head.group, signal.SIGKILL if event == "killed" else signal.SIGSTOP)


if __name__ == "__main__":
    warnings.simplefilter("error")
    if sys.argv[1] == "picks":
        picks(sys.argv[2], Path(sys.argv[3]))
    else:
        lose(sys.argv[1], Path(sys.argv[2]))
