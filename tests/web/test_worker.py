"""The background process: what it decides, that it is alone, and that nothing is lost with it."""

import doctest
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from labelwise.campaign.events import (
    Asked,
    Started,
    Told,
    Trained,
    Training,
    TrainingFailed,
)
from labelwise.campaign.ledger import replay
from labelwise.campaign.settings import Settings
from labelwise.errors import Conflict
from labelwise.web import supervisor
from labelwise.web.steps import is_lost, left_to_ask, next_step, signature
from labelwise.web.supervisor import Progress, Supervisor
from tests.web.conftest import CLASSES, wait_until

SETTINGS = Settings(batch=10, tail=0.2, classes=("a", "b"), strategy="margin")


def standing(*events, items=100, settings=SETTINGS):
    return replay([Started(0.0, settings.to_dict(), items), *events])


def batch(number, ids, model=None):
    return Asked(1.0, number, tuple(ids), strategy="random", model=model)


def told(ids):
    return [Told(2.0, item, "a", "ann") for item in ids]


def trained(number, labels):
    return [Training(3.0, number, labels), Trained(4.0, number, labels, 1.0, {})]


def step(ledger, left=50, **more):
    return next_step(ledger, SETTINGS, left=left, **more)


def test_examples_in_the_docstrings_are_right():
    results = doctest.testmod(supervisor)
    assert results.attempted > 0 and results.failed == 0


def test_a_new_campaign_is_asked_for_its_first_batch():
    assert step(standing()) == "ask"
    assert step(standing(), left=0) is None


def test_training_waits_for_the_tail_of_the_batch():
    first = batch(1, range(10))
    assert step(standing(first)) is None
    assert step(standing(first, *told(range(7)))) is None
    assert step(standing(first, *told(range(8)))) == "train"
    assert step(standing(first, *told(range(10)))) == "train"


def test_after_the_training_the_next_batch_is_asked_while_the_tail_is_open():
    events = [batch(1, range(10)), *told(range(8)), *trained(1, 8)]
    assert step(standing(*events)) == "ask"
    assert step(standing(*events, batch(2, range(10, 20), model=1))) is None
    both = [*events, batch(2, range(10, 20), model=1), *told(range(8, 18))]
    assert step(standing(*both)) == "train"


def test_nobody_trains_twice_at_once():
    assert step(standing(batch(1, range(10)), *told(range(10))), busy=True) is None


def test_a_model_trained_early_in_the_batch_is_trained_again_at_the_tail():
    early = [batch(1, range(10)), *told(range(2)), *trained(1, 2), *told(range(2, 10))]
    assert step(standing(*early)) == "train"


def test_when_nothing_is_left_to_ask_the_last_tail_is_trained_on_too():
    events = [batch(1, range(10)), *told(range(8)), *trained(1, 8)]
    assert step(standing(*events), left=0) is None
    assert step(standing(*events, *told([8, 9])), left=0) == "train"
    assert step(standing(*events, *told([8, 9]), *trained(2, 10)), left=0) is None


def test_a_failed_training_is_not_tried_again_on_the_same_labels():
    failed = [Training(3.0, 1, 8), TrainingFailed(4.0, 1, "out of memory")]
    tail = standing(batch(1, range(10)), *told(range(8)), *failed)
    assert step(tail, failed_at=8) is None
    assert step(tail) == "train"  # a new process tries once
    more = standing(batch(1, range(10)), *told(range(8)), *failed, *told([8]))
    assert step(more, failed_at=8) is None  # still in the tail
    whole = standing(batch(1, range(10)), *told(range(8)), *failed, *told([8, 9]))
    assert step(whole, failed_at=8) == "train"
    assert step(whole, failed_at=10) is None


def test_the_pool_and_the_budget_bound_what_is_asked():
    asked = [batch(1, range(10)), *told(range(8))]
    assert left_to_ask(standing(*asked, items=15), SETTINGS) == 5
    budget = Settings(batch=10, classes=("a", "b"), budget_labels=14)
    assert left_to_ask(standing(*asked, settings=budget), budget) == 4
    spent = Settings(batch=10, classes=("a", "b"), budget_labels=8)
    assert left_to_ask(standing(*asked, settings=spent), spent) == 0
    money = Settings(batch=10, classes=("a", "b"), price=1.0, budget_money=8.0)
    assert left_to_ask(standing(*asked, settings=money), money) == 0
    double = Settings(batch=10, classes=("a", "b"), overlap=2, budget_labels=40)
    assert left_to_ask(standing(*asked, settings=double), double) <= 10


def test_a_training_is_lost_where_its_process_number_is_that_of_a_younger_one():
    command = [sys.executable, "-c", "input()  # labelwise"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as younger:
        now = time.time()
        assert not is_lost(Training(now, 1, 5, signature(younger.pid)), now)
        assert is_lost(Training(now - 60, 1, 5, signature(younger.pid)), now)
        younger.kill()
    # In a container that was started again, even that of the process that asks.
    script = """
import os, time
from labelwise.campaign.events import Training
from labelwise.web.steps import is_lost, signature
now = time.time()
print(is_lost(Training(now - 3600, 1, 5, signature(os.getpid())), now))
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert said.stdout.strip() == "True"


def test_a_training_whose_process_is_gone_is_lost():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    now = time.time()
    assert is_lost(Training(now, 1, 5, signature(process.pid)), now)
    assert not is_lost(Training(now, 1, 5, signature(os.getpid())), now)
    elsewhere = f"background process {process.pid} on not-{socket.gethostname()}"
    assert not is_lost(Training(now, 1, 5, elsewhere), now)
    assert is_lost(Training(now - 2 * 86_400, 1, 5, elsewhere), now)
    assert not is_lost(Training(now, 1, 5, "ann"), now)


def talker(words, more="import sys; sys.stdin.read()"):
    """A process that says something and then waits for the end of its input."""
    return [sys.executable, "-c", f"print({words!r}, flush=True); {more}"]


def test_what_the_process_says_is_known_and_what_libraries_print_is_not():
    said = Supervisor(talker('hello\n{"stage": "training", "done": 1, "total": 4}'))
    said.start()
    try:
        wait_until(lambda: said.progress == Progress("training", 1, 4), 20)
    finally:
        said.stop()
    assert said.process_id is None


def test_a_process_that_ends_by_itself_is_told_once_and_started_again_on_demand():
    ended = []
    dying = Supervisor(
        talker("{}", "import os; os.kill(os.getpid(), 9)"), ended=lambda *a: ended.append(a)
    )
    dying.start()
    wait_until(lambda: ended, 20)
    (process, error), *others = ended
    assert not others and "SIGKILL" in error
    assert dying.progress.error == error
    assert not dying.ask("look")
    dying.ask("train")
    wait_until(lambda: len(ended) == 2, 20)
    assert ended[1][0] != process
    dying.stop()
    assert not dying.ask("train")


def test_a_process_that_does_not_listen_is_ended_by_force():
    deaf = Supervisor(talker('{"stage": "deaf"}', "import time; time.sleep(60)"))
    deaf.start()
    wait_until(lambda: deaf.progress.stage == "deaf", 20)
    begin = time.monotonic()
    deaf.stop(seconds=0.3)
    assert time.monotonic() - begin < 10 and deaf.process_id is None


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
def make_rows(tmp_path):
    """Start a campaign on rows of numbers, whose network fails while a file ``broken`` is there."""
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
    """Label what can be borrowed; how many that was."""
    items = client.post("/api/lend", json={"count": count}).json()["items"]
    if not items:
        return 0
    labels = [{"id": item["id"], "label": str(item["id"] % 10)} for item in items]
    assert client.post("/api/labels", json={"labels": labels}).status_code == 200
    return len(items)


def state(client):
    return client.get("/api/state").json()


def wait_for(client, check, seconds=240):
    """The state as soon as it is as wanted."""
    return wait_until(lambda: (found := state(client)) and check(found) and found, seconds)


def is_idle(found):
    return found["batch"] and found["training"]["stage"] is None


def worker_id(server):
    """The process that the server started."""
    command = ["ps", "--ppid", str(server.process.pid), "-o", "pid="]
    (found,) = subprocess.run(command, capture_output=True, text=True).stdout.split()
    return int(found)


def is_running(process):
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def begin_training(project, process):
    """Write what a process writes when it begins to train."""
    event = Training(time.time(), 1, 10, signature(process))
    project.desk().commit(lambda ledger, now: ([event], None))


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
    assert failed["batch"] == {"number": 1, "size": 20, "done": 12, "waiting": 8}
    (tmp_path / "broken").unlink()
    assert client.post("/api/train", json={}).json() == {"asked": True}
    after = wait_for(client, lambda found: found["batch"]["number"] == 2)
    assert after["training"]["error"] is None
    assert after["batch"]["waiting"] == 8 + 20  # the tail of the first is still open
    ledger = project.desk().ledger()
    assert [one.labels for one in ledger.trainings] == [12]
    assert ledger.batches[1].asked.model == ledger.trainings[0].number == 2
    process = worker_id(server)
    assert server.stop() == 0
    wait_until(lambda: not is_running(process), 20)


@pytest.mark.slow
def test_two_servers_train_and_ask_once(make_rows, start_server):
    project = make_rows(batch=20)
    first, second = start_server(project.home), start_server(project.home)
    ann, bob = first.client("ann"), second.client("bob")
    wait_for(ann, is_idle)
    wait_for(bob, is_idle)
    while label_all(ann, 3) + label_all(bob, 3):
        pass
    wait_for(bob, lambda found: found["batch"]["number"] == 2 and is_idle(found))
    wait_for(ann, is_idle)
    time.sleep(1.5)
    events = project.storage().read(project.name)
    assert [event.number for event in events if isinstance(event, Training)] == [1]
    assert [event.number for event in events if isinstance(event, Trained)] == [1]
    assert [event.batch for event in events if isinstance(event, Asked)] == [1, 2]


def test_only_one_of_two_processes_may_train(make_rows):
    from labelwise.web.worker import Worker

    project = make_rows()
    first = Worker(project.home, lambda **words: None)
    while first.look():
        pass
    asked = project.desk().ledger().batches[0].asked.ids
    project.desk().tell({item: str(item % 10) for item in asked}, by="ann")
    campaign = first._ready()
    other = subprocess.Popen(talker("{}", "input()  # labelwise"), stdin=subprocess.PIPE)
    try:
        begin_training(project, other.pid)
        with pytest.raises(Conflict, match="training 1 is at work"):
            campaign.train(lost=is_lost)
        assert not first.look(ordered=True)
    finally:
        other.communicate(b"\n")
    events = project.storage().read(project.name)
    assert sum(isinstance(event, Training) for event in events) == 1


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
    events = project.storage().read(project.name)
    assert sum(isinstance(event, TrainingFailed) for event in events) == 1
    assert client.post("/api/train", json={}).json() == {"asked": True}
    wait_for(client, lambda found: found["batch"]["number"] == 2)
    assert len(project.desk().ledger().labels) == 10


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
    assert len(project.desk().ledger().labels) == 10


def test_the_worker_ends_when_the_server_is_killed(make_rows, start_server):
    project = make_rows()
    server = start_server(project.home)
    process = worker_id(server)
    server.kill()
    wait_until(lambda: not is_running(process), 20)


def test_progress_is_said_line_by_line(make_rows):
    from labelwise.web.worker import Worker

    said = []
    project = make_rows()
    worker = Worker(project.home, lambda **words: said.append(words))
    while worker.look():
        pass
    assert said[0]["stage"] == "choosing batch 1" and said[-1] == {}
    desk = project.desk()
    asked = desk.ledger().batches[0].asked.ids
    desk.tell({item: "1" if item % 2 else "2" for item in asked}, by="ann")
    while worker.look():
        pass
    stages = [words["stage"].split(":")[0] for words in said if "stage" in words]
    assert list(dict.fromkeys(stages)) == [
        "choosing batch 1",
        "training on 10 labels",
        "choosing batch 2",
    ]
    assert json.dumps(said)


def test_an_error_in_choosing_is_told_and_not_repeated(make_rows):
    from labelwise.web.worker import Worker

    said = []
    project = make_rows()
    worker = Worker(project.home, lambda **words: said.append(words))
    project.desk().change(first="margin")  # needs a model, and there is none
    assert not worker.look()
    assert "the choice failed" in said[-1]["error"] and "no model yet" in said[-1]["error"]
    project.desk().change(batch=11)
    count = len(said)
    assert not worker.look() and len(said) == count
    project.desk().change(first="random")
    worker.look(ordered=True)
    assert project.desk().ledger().batches and said[-1] == {}


def test_an_error_that_another_process_has_overcome_is_told_no_more(make_rows):
    from labelwise.web.worker import Worker

    said = []
    project = make_rows()
    worker = Worker(project.home, lambda **words: said.append(words))
    project.desk().change(first="margin")
    assert not worker.look() and "error" in said[-1]
    event = Asked(time.time(), 1, tuple(range(10)), strategy="random")
    project.desk().commit(lambda ledger, now: ([event], None))
    assert not worker.look() and said[-1] == {}


@pytest.mark.parametrize("process", ["worker"])
def test_a_folder_that_is_no_campaign_ends_the_process_with_one_line(tmp_path, process):
    command = [sys.executable, "-m", f"labelwise.web.{process}", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.PIPE, timeout=60
    )
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
