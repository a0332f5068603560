"""The state of the schedule, what is left to ask for, and trainings whose process is gone."""

import os
import socket
import subprocess
import sys
import time
from dataclasses import replace

from labelwise.campaign.labels import explain_missing_classes
from labelwise.campaign.runner import (
    count_items_to_ask,
    is_training_lost,
    read_schedule_state,
    sign_process,
)
from labelwise.campaign.settings import Settings
from labelwise.record.events import Asked, Started, Told, Trained, Training, TrainingFailed
from labelwise.record.ledger import replay
from labelwise.rounds import ScheduleState
from tests.web.processes import talker

SETTINGS = Settings(batch=10, tail=0.2, classes=("a", "b"), strategy="margin")


def standing(*events, items=100, settings=SETTINGS):
    return replay([Started(0.0, settings.to_dict(), items), *events])


def batch(number, ids, model=None):
    return Asked(1.0, number, tuple(ids), strategy="random", model=model)


def told(ids):
    return [Told(2.0, item, "ab"[item % 2], "ann") for item in ids]


def trained(number, labels):
    return [Training(3.0, number, labels), Trained(4.0, number, labels, 1.0, {})]


def test_the_schedule_follows_the_ledger():
    first = [batch(1, range(10)), *told(range(8)), Training(3.0, 1, 8)]
    failed = read_schedule_state(
        standing(*first, TrainingFailed(4.0, 1, "out of memory")), SETTINGS
    )
    assert failed == ScheduleState(
        left=90, labels=8, open_items=2, batch_size=10, batch_open=2, tail=0.2, failed=True
    )
    assert read_schedule_state(standing(*first), SETTINGS).training
    both = [batch(1, range(10)), *told(range(8)), *trained(1, 8), batch(2, range(10, 20), model=1)]
    assert read_schedule_state(standing(*both, *told(range(10, 13))), SETTINGS) == ScheduleState(
        left=80,
        labels=11,
        open_items=9,
        batch_size=10,
        batch_open=7,
        batch_model=1,
        trained_model=1,
        trained_labels=8,
        tail=0.2,
    )


def test_labels_of_one_class_cannot_train_a_classifier():
    asked = [batch(1, range(10)), *(Told(2.0, item, "a", "ann") for item in range(8))]
    assert not read_schedule_state(standing(*asked), SETTINGS).trainable
    assert explain_missing_classes(standing(*asked), SETTINGS).startswith(
        "all training labels so far are 'a', and a model needs two classes"
    )
    held_out = replace(batch(1, range(10)), validation=(9,))
    mixed = [held_out, *asked[1:], Told(2.0, 9, "b", "ann")]
    assert not read_schedule_state(standing(*mixed), SETTINGS).trainable
    assert read_schedule_state(standing(*asked, Told(2.0, 9, "b", "ann")), SETTINGS).trainable
    numbers = Settings(regression=True, strategy="random")
    assert explain_missing_classes(standing(*asked, settings=numbers), numbers) is None


def test_the_pool_and_the_budget_bound_what_is_asked():
    asked = [batch(1, range(10)), *told(range(8))]
    assert count_items_to_ask(standing(*asked, items=15), SETTINGS) == 5
    budget = Settings(batch=10, classes=("a", "b"), budget_labels=14)
    assert count_items_to_ask(standing(*asked, settings=budget), budget) == 4
    spent = Settings(batch=10, classes=("a", "b"), budget_labels=8)
    assert count_items_to_ask(standing(*asked, settings=spent), spent) == 0
    money = Settings(batch=10, classes=("a", "b"), price=1.0, budget_money=8.0)
    assert count_items_to_ask(standing(*asked, settings=money), money) == 0
    double = Settings(batch=10, classes=("a", "b"), overlap=2, budget_labels=40)
    assert count_items_to_ask(standing(*asked, settings=double), double) <= 10


def test_a_training_is_lost_where_its_process_number_is_that_of_a_younger_one():
    command = talker("here", "input()  # labelwise")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as younger:
        younger.stdout.readline()  # before it runs, the system does not know its command yet
        now = time.time()
        assert not is_training_lost(Training(now, 1, 5, sign_process(younger.pid)), now)
        assert is_training_lost(Training(now - 60, 1, 5, sign_process(younger.pid)), now)
        younger.kill()
    # In a container that was started again, even that of the process that asks.
    script = """
import os, time
from labelwise.record.events import Training
from labelwise.campaign.runner import is_training_lost, sign_process
now = time.time()
print(is_training_lost(Training(now - 3600, 1, 5, sign_process(os.getpid())), now))
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert said.stdout.strip() == "True"


def test_a_training_whose_process_is_gone_is_training_lost():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    now = time.time()
    assert is_training_lost(Training(now, 1, 5, sign_process(process.pid)), now)
    assert not is_training_lost(Training(now, 1, 5, sign_process(os.getpid())), now)
    elsewhere = f"background process {process.pid} on not-{socket.gethostname()}"
    assert not is_training_lost(Training(now, 1, 5, elsewhere), now)
    assert is_training_lost(Training(now - 2 * 86_400, 1, 5, elsewhere), now)
    assert not is_training_lost(Training(now, 1, 5, "ann"), now)
