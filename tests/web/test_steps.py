"""What the background process decides, from where the campaign stands."""

import os
import socket
import subprocess
import sys
import time

from labelwise.campaign.settings import Settings
from labelwise.record.events import Asked, Started, Told, Trained, Training, TrainingFailed
from labelwise.record.ledger import replay
from labelwise.web.steps import is_lost, left_to_ask, next_step, signature
from tests.web.processes import talker

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
    command = talker("here", "input()  # labelwise")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as younger:
        younger.stdout.readline()  # before it runs, the system does not know its command yet
        now = time.time()
        assert not is_lost(Training(now, 1, 5, signature(younger.pid)), now)
        assert is_lost(Training(now - 60, 1, 5, signature(younger.pid)), now)
        younger.kill()
    # In a container that was started again, even that of the process that asks.
    script = """
import os, time
from labelwise.record.events import Training
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
