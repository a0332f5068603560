"""Count the functions between the last label of a batch and the opening of the next batch.

A campaign runs in this process: the server answers ``POST /api/labels`` with the last label, and
the worker trains and opens the next batch. Every distinct labelwise function that is entered
counts once, in all threads. The *path* is the part that serves the request, writes and reads the
record, decides and runs the step: the packages web, campaign, record and rounds, without class
bodies, comprehensions and lambdas. The computation itself (learners, theory, selection, strategies,
kernels, pool) is counted separately.

    python benchmarks/label_path.py            # the counts by package
    python benchmarks/label_path.py --list     # every function in the order of its first call
"""

import argparse
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
from fastapi.testclient import TestClient

import labelwise
from labelwise.campaign.project import Project
from labelwise.web.app import create_app
from labelwise.web.worker import Worker

ROOT = str(Path(labelwise.__file__).parent)
PATH = ("web", "campaign", "record", "rounds")


class CallRecorder:
    """Records the labelwise functions that are entered while it is switched on."""

    def __init__(self):
        self.on = False
        self.entered = {}

    def __call__(self, frame, event, argument):
        """The profile function of every thread."""
        if self.on and event == "call" and frame.f_code.co_filename.startswith(ROOT):
            code = frame.f_code
            if not code.co_name.startswith("<"):
                module = code.co_filename.removeprefix(ROOT).strip("/").removesuffix(".py")
                self.entered.setdefault(f"{module}:{code.co_qualname}")


def record_label_path(folder):
    """The functions in the order of their first call, and how many were called until the answer."""
    recorder = CallRecorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    rows = np.random.default_rng(0).normal(size=(120, 8)).astype(np.float32)
    np.save(folder / "rows.npy", rows)
    project = Project.start(
        folder / "rows.npy",
        home=folder / "c",
        classes=["low", "high"],
        batch=10,
        strategy="margin",
        tail=0.0,
    )
    worker = Worker(project.home, lambda **report: None)
    while worker.run_next_step():
        pass
    worker.warm_up()
    with TestClient(create_app(project, trains=False), base_url="http://127.0.0.1") as client:
        csrf = client.get("/api/session", params={"name": "ann"}).json()["csrf"]
        client.headers.update({"X-Annotator": "ann", "X-Labelwise-Csrf": csrf})
        (item,) = client.post("/api/lend", json={"count": 1}).json()["items"]
        for number in range(10):
            recorder.on = number == 9
            label = {"id": item["id"], "label": "high" if rows[item["id"], 0] > 0 else "low"}
            answer = client.post("/api/labels", json={"labels": [label], "lend": 1})
            answer.raise_for_status()
            item = next(iter(answer.json()["items"]), None)
        answered = len(recorder.entered)
        while worker.run_next_step():
            pass
        recorder.on = False
    sys.setprofile(None)
    threading.setprofile(None)
    assert len(project.open_record().ledger().batches) == 2, "no new batch was opened"
    return list(recorder.entered), answered


def main():
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print every function")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        entered, answered = record_label_path(Path(folder))
    path = [name for name in entered if name.split("/")[0] in PATH]
    request = [name for name in entered[:answered] if name in path]
    if arguments.list:
        print("\n".join(path))
    packages = {}
    for name in entered:
        package = name.split("/")[0] if "/" in name else "labelwise"
        packages[package] = packages.get(package, 0) + 1
    for package, count in sorted(packages.items(), key=lambda pair: -pair[1]):
        print(f"{package:12} {count:4}")
    print(f"path {len(path)} of {len(entered)} functions, {len(request)} until the answer")


if __name__ == "__main__":
    main()
