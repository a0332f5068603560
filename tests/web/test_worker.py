"""The background process: that it is alone, what it says, and that nothing is lost with it."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from starlette.testclient import TestClient

from labelwise.campaign.runner import is_training_lost, sign_process
from labelwise.errors import Conflict, StorageFailed
from labelwise.record.events import Asked, Trained, Training, TrainingFailed
from labelwise.web.app import create_app
from tests.web.conftest import CLASSES, PATIENCE, wait_until
from tests.web.processes import is_running, talker

# With a real campaign of digits as rows of numbers, a real model and a real server.

NETWORK = """
from pathlib import Path
from torch import nn

def build(shape, outputs):
    if (Path(__file__).parent / "broken").exists():
        raise RuntimeError("no room for the weights")
    return nn.Sequential(nn.Linear(shape[0], 16), nn.ReLU(), nn.Linear(16, outputs))
"""


@pytest.fixture
def make_rows(tmp_path, monkeypatch):
    """Start a campaign on rows of numbers, whose network fails while a file ``broken`` is there."""
    monkeypatch.delitem(sys.modules, "network_of_a_test", raising=False)  # that of another test
    from sklearn.datasets import load_digits

    from labelwise.campaign.project import Project

    rows, _ = load_digits(return_X_y=True)
    np.save(tmp_path / "digits.npy", rows[:150].astype(np.float32))
    (tmp_path / "network_of_a_test.py").write_text(NETWORK)

    def make(**settings):
        wanted = {"batch": 10, "classes": CLASSES, "strategy": "margin", **settings}
        return Project.start(
            tmp_path / "digits.npy",
            home=tmp_path / "digits.labelwise",
            module="network_of_a_test:build",
            **wanted,
        )

    return make


def label_all(client, count=50):
    """Label up to ``count`` items that can be leased; how many that was."""
    done = 0
    while done < count:
        wanted = {"count": min(count - done, 8)}
        items = client.post("/api/lend", json=wanted).json()["items"]
        if not items:
            break
        labels = [{"id": item["id"], "label": str(item["id"] % 10)} for item in items]
        assert client.post("/api/labels", json={"labels": labels}).status_code == 200
        done += len(items)
    return done


def state(client):
    return client.get("/api/state").json()


def wait_for(client, check, seconds=600):
    """The state as soon as it is as wanted."""
    return wait_until(lambda: (found := state(client)) and check(found) and found, seconds)


def is_idle(found):
    return found["batch"] and found["training"]["stage"] is None


def worker_id(server):
    """The process that the server started before it said its address."""
    command = ["ps", "--ppid", str(server.process.pid), "-o", "pid="]
    (found,) = subprocess.run(command, capture_output=True, text=True).stdout.split()
    return int(found)


def begin_training(project, process):
    """Write what a process writes when it begins to train."""
    event = Training(time.time(), 1, 10, sign_process(process))
    project.open_record().commit(lambda ledger, now: ([event], None))


def test_batches_follow_each_other_and_a_failed_training_loses_nothing(
    make_rows, start_server, tmp_path
):
    project = make_rows(batch=20, tail=0.5)
    server = start_server(project.home)
    client = server.client("ann")
    wait_for(client, is_idle)
    (tmp_path / "broken").touch()
    assert label_all(client, 12) == 12
    failed = wait_for(client, lambda found: found["training"]["error"])
    assert "no room for the weights" in failed["training"]["error"]
    assert not failed["training"]["running"] and failed["labelled"] == 12
    assert failed["batch"]["done"] == 12 and failed["batch"]["waiting"] == 8
    (tmp_path / "broken").unlink()
    assert client.post("/api/train", json={}).json() == {"asked": True}
    after = wait_for(client, lambda found: found["batch"]["number"] == 2)
    assert after["training"]["error"] is None
    assert after["batch"]["waiting"] == 8 + 20  # the tail of the first is still open
    ledger = project.open_record().ledger()
    assert [one.labels for one in ledger.trainings] == [12]
    assert ledger.batches[1].asked.model == ledger.trainings[0].number == 2
    process = worker_id(server)
    assert server.stop() == 0
    wait_until(lambda: not is_running(process))


@pytest.mark.slow
def test_two_servers_train_and_ask_once(make_rows, start_server):
    project = make_rows(batch=20)
    first, second = start_server(project.home), start_server(project.home)
    ann, bob = first.client("ann"), second.client("bob")
    wait_for(ann, is_idle)
    wait_for(bob, is_idle)
    for _ in range(5):  # the 20 of the first batch: the next may be there before the last of them
        assert label_all(ann, 2) == label_all(bob, 2) == 2
    wait_for(bob, lambda found: found["batch"]["number"] == 2 and is_idle(found))
    wait_for(ann, is_idle)
    time.sleep(1.5)
    events = project.storage().read(project.name)
    assert set(project.open_record().labels()) == set(
        project.open_record().ledger().batches[0].asked.ids
    )
    assert [event.number for event in events if isinstance(event, Training)] == [1]
    assert [event.number for event in events if isinstance(event, Trained)] == [1]
    assert [event.batch for event in events if isinstance(event, Asked)] == [1, 2]


def test_only_one_of_two_processes_may_train(make_rows):
    from labelwise.web.worker import Worker

    project = make_rows()
    first = Worker(project.home, lambda **words: None)
    while first.run_next_step():
        pass
    asked = project.open_record().ledger().batches[0].asked.ids
    project.open_record().tell({item: str(item % 10) for item in asked}, by="ann")
    campaign = first._runner.open_campaign()
    other = subprocess.Popen(
        talker("{}", "input()  # labelwise"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        other.stdout.readline()  # before it runs, the system does not know its command yet
        begin_training(project, other.pid)
        with pytest.raises(Conflict, match="training 1 is running"):
            campaign.train(lost=is_training_lost)
        assert not first.run_next_step(ordered=True)
    finally:
        other.communicate(b"\n")
    events = project.storage().read(project.name)
    assert sum(isinstance(event, Training) for event in events) == 1


def worker_with_labels(project, count=10):
    """A background process in this one, with labels of its first batch; and what it says."""
    from labelwise.web.worker import Worker

    said = []
    worker = Worker(project.home, lambda **words: said.append(words))
    while worker.run_next_step():
        pass
    asked = project.open_record().ledger().batches[0].asked.ids[:count]
    project.open_record().tell({item: str(item % 10) for item in asked}, by="ann")
    return worker, said


@pytest.mark.parametrize("classes", [None, CLASSES])
def test_a_batch_of_one_class_is_followed_by_another_batch(make_rows, classes):
    from labelwise.web.worker import Worker

    project, said = make_rows(classes=classes), []
    worker, record = Worker(project.home, lambda **words: said.append(words)), project.open_record()
    while worker.run_next_step():
        pass
    record.tell(dict.fromkeys(record.ledger().batches[0].asked.ids, "7"), by="ann")
    while worker.run_next_step():
        pass
    ledger = record.ledger()
    assert len(ledger.batches) == 2 and ledger.failure is None and not ledger.trainings
    assert not any(words.get("error") for words in said)
    with TestClient(create_app(project, trains=False), base_url="http://127.0.0.1") as client:
        note = client.get("/api/state").json()["training"]["note"]
    assert note.startswith("all training labels so far are '7', and a model needs two classes")
    asked = ledger.batches[1].asked
    other = next(item for item in asked.ids if item not in asked.validation)
    record.tell({**dict.fromkeys(asked.ids, "7"), other: "8"}, by="ann")
    assert worker.run_next_step() and len(record.ledger().trainings) == 1


def refuse(monkeypatch, storage, method, *numbers):
    """Have some calls of a storage fail, numbered from 1."""
    usual, count = getattr(storage, method), iter(range(1, 1000))

    def call(*args):
        if next(count) in numbers:
            raise StorageFailed("another process has been writing for too long")
        return usual(*args)

    monkeypatch.setattr(storage, method, call)


@pytest.mark.parametrize("numbers", [(2,), (2, 3)])  # its end; and that it failed
def test_a_training_whose_end_could_not_be_recorded_does_not_block_the_campaign(
    make_rows, monkeypatch, numbers
):
    project = make_rows()
    worker, said = worker_with_labels(project)
    refuse(monkeypatch, worker._runner.open_campaign().storage, "transact", *numbers)
    assert not worker.run_next_step()
    assert "the training failed: another process has been writing" in said[-1]["error"]
    assert not worker.run_next_step() and "error" in said[-1]  # not twice on the same labels
    ledger = project.open_record().ledger()
    assert ledger.training is None and ledger.failure.number == 1
    while worker.run_next_step(ordered=not project.open_record().ledger().trainings):
        pass
    ledger = project.open_record().ledger()
    assert [one.number for one in ledger.trainings] == [2] and len(ledger.batches) == 2
    assert said[-1] == {}


def test_a_training_that_ends_with_its_process_is_taken_over_by_one_that_waited(make_rows):
    project = make_rows()
    worker, _ = worker_with_labels(project)
    other = subprocess.Popen(
        talker("{}", "input()  # labelwise"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        other.stdout.readline()
        begin_training(project, other.pid)
        length = project.storage().length(project.name)
        assert not worker.run_next_step() and not worker.run_next_step()
    finally:
        other.communicate(b"\n")
    assert project.storage().length(project.name) == length  # the record tells nothing of it
    while worker.run_next_step():
        pass
    ledger = project.open_record().ledger()
    assert [one.number for one in ledger.trainings] == [2] and len(ledger.batches) == 2
    failed = [e for e in project.storage().read(project.name) if isinstance(e, TrainingFailed)]
    assert [event.error for event in failed] == ["the process that trained was ended"]


def test_a_record_that_cannot_be_read_once_is_looked_at_again(make_rows, monkeypatch):
    project = make_rows()
    worker, _ = worker_with_labels(project)
    refuse(monkeypatch, worker._record.storage, "read", 1)
    with pytest.raises(StorageFailed):
        worker.run_next_step()
    while worker.run_next_step():
        pass
    ledger = project.open_record().ledger()
    assert len(ledger.trainings) == 1 and len(ledger.batches) == 2


@contextmanager
def running_worker(project):
    """The background process, and a function that hears what it says next."""
    run = "from labelwise.web import worker; worker.RETRY_DELAY = worker.LOOK_INTERVAL = 0.2"
    command = [sys.executable, "-c", f"{run}; worker.main([{str(project.home)!r}])"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        silent = threading.Timer(PATIENCE, process.kill)  # then there is no line to be read
        silent.start()
        try:
            yield process, lambda: json.loads(process.stdout.readline())
        finally:
            silent.cancel()
            process.kill()


def test_a_record_that_is_away_for_a_while_costs_no_order_and_leaves_no_error(make_rows):
    project = make_rows()
    worker_with_labels(project, 2)  # too few to train on unless someone wants it
    (record,) = project.home.glob("*.db")
    away = record.with_suffix(".away")
    with running_worker(project) as (process, hear):
        assert hear()["stage"] == "getting ready" and hear() == {}
        record.rename(away)
        assert "is gone" in hear()["error"]
        away.rename(record)
        while said := hear():
            assert "is gone" in said["error"]
        record.rename(away)
        assert "is gone" in hear()["error"]
        process.stdin.write("train\n")
        process.stdin.flush()
        assert "is gone" in hear()["error"]
        assert "is gone" in hear()["error"]  # by now the order has met with the error
        away.rename(record)
        while "is gone" in (said := hear()).get("error", ""):
            pass
        assert said == {"stage": "training on 2 labels"}
        while hear():
            pass
    assert [one.labels for one in project.open_record().ledger().trainings] == [2]


@pytest.mark.slow
def test_a_killed_training_process_is_noted_and_started_again(make_rows, start_server):
    project = make_rows()
    server = start_server(project.home)
    client = server.client("ann")
    wait_for(client, is_idle)
    process = worker_id(server)
    os.kill(process, signal.SIGSTOP)  # so that it is surely caught before it has trained
    assert label_all(client, 10) == 10
    begin_training(project, process)
    os.kill(process, signal.SIGKILL)
    failed = wait_for(client, lambda found: found["training"]["error"])
    assert "SIGKILL" in failed["training"]["error"] and not failed["training"]["running"]
    wait_until(lambda: isinstance(project.storage().read(project.name)[-1], TrainingFailed))
    assert client.post("/api/train", json={}).json() == {"asked": True}
    wait_for(client, lambda found: found["batch"]["number"] == 2)
    assert len(project.open_record().ledger().labels) == 10
    events = project.storage().read(project.name)
    assert sum(isinstance(event, TrainingFailed) for event in events) == 1


@pytest.mark.slow
def test_a_killed_servers_training_is_taken_over_by_the_next(make_rows, start_server):
    project = make_rows()
    server = start_server(project.home)
    client = server.client("ann")
    wait_for(client, is_idle)
    process = worker_id(server)
    os.kill(process, signal.SIGSTOP)
    assert label_all(client, 10) == 10
    begin_training(project, process)
    server.kill()
    os.kill(process, signal.SIGKILL)
    again = start_server(project.home).client("ann")
    wait_for(again, lambda found: found["batch"]["number"] == 2)
    assert len(project.open_record().ledger().labels) == 10


def test_the_worker_ends_when_the_server_is_killed(make_rows, start_server):
    project = make_rows()
    server = start_server(project.home)
    process = worker_id(server)
    server.kill()
    wait_until(lambda: not is_running(process))


def test_progress_is_said_line_by_line(make_rows):
    from labelwise.web.worker import Worker

    said = []
    project = make_rows()
    worker = Worker(project.home, lambda **words: said.append(words))
    while worker.run_next_step():
        pass
    assert said[0]["stage"] == "selecting batch 1" and said[-1] == {}
    record = project.open_record()
    asked = record.ledger().batches[0].asked.ids
    record.tell({item: "1" if item % 2 else "2" for item in asked}, by="ann")
    while worker.run_next_step():
        pass
    stages = [words["stage"].split(":")[0] for words in said if "stage" in words]
    assert list(dict.fromkeys(stages)) == [
        "selecting batch 1",
        "training on 10 labels",
        "selecting batch 2",
    ]
    assert json.dumps(said)
    worker.warm_up()
    worker.predict_items()
    assert (project.home / "predictions.npz").exists() and said[-1] == {}


@pytest.mark.parametrize(
    ("moment", "counts"),
    [
        ("selecting batch 2", True),
        ("training on 10 labels", False),  # that training does what is wanted
        ("the training failed: RuntimeError: no room for the weights", True),
    ],
)
def test_an_order_counts_unless_it_came_while_a_training_was_at_work(
    make_rows, tmp_path, moment, counts
):
    from labelwise.web.worker import Worker, _wait_for_worker_orders

    orders = queue.Queue()

    def say(stage=None, error=None, done=None, total=None):
        if moment in (stage, error) and orders.empty():  # someone sees this and wants a training
            orders.put(("train", time.monotonic()))

    project = make_rows()
    worker = Worker(project.home, say)
    while worker.run_next_step():
        pass
    asked = project.open_record().ledger().batches[0].asked.ids
    project.open_record().tell({item: str(item % 10) for item in asked}, by="ann")
    if moment.startswith("the training failed"):
        (tmp_path / "broken").touch()
    while worker.run_next_step():
        pass
    assert orders.qsize() == 1
    assert ("train" in _wait_for_worker_orders(orders, worker.trained_at)) == counts


def test_an_error_in_choosing_is_told_and_not_repeated(make_rows):
    from labelwise.web.worker import Worker

    said = []
    project = make_rows()
    worker = Worker(project.home, lambda **words: said.append(words))
    project.open_record().change(first="margin")  # needs a model, and there is none
    assert not worker.run_next_step()
    assert (
        "the selection failed" in said[-1]["error"]
        and "nothing is trained yet" in said[-1]["error"]
    )
    worker.warm_up()
    assert said[-2] == {"stage": "getting ready"} and "nothing is trained yet" in said[-1]["error"]
    project.open_record().change(batch=11)
    count = len(said)
    assert not worker.run_next_step() and len(said) == count
    project.open_record().change(first="random")
    worker.run_next_step(ordered=True)
    assert project.open_record().ledger().batches and said[-1] == {}


def test_an_error_that_another_process_has_overcome_is_told_no_more(make_rows):
    from labelwise.web.worker import Worker

    said = []
    project = make_rows()
    worker = Worker(project.home, lambda **words: said.append(words))
    project.open_record().change(first="margin")
    assert not worker.run_next_step() and "error" in said[-1]
    event = Asked(time.time(), 1, tuple(range(10)), strategy="random")
    project.open_record().commit(lambda ledger, now: ([event], None))
    assert not worker.run_next_step() and said[-1] == {}


@pytest.mark.parametrize("process", ["worker"])
def test_a_folder_that_is_no_campaign_ends_the_process_with_one_line(tmp_path, process):
    command = [sys.executable, "-m", f"labelwise.web.{process}", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.PIPE, timeout=PATIENCE
    )
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
