"""The background process of the ML backend, by itself and behind a running server."""

import itertools
import json
import os
import queue
import re
import signal
import subprocess
import sys
import time

import httpx
import pytest

from labelwise.campaign.project import Project
from labelwise.label_studio import LabelStudioClient, SyncOptions, sync_project, worker
from labelwise.label_studio.backend import connect_backend, make_basic_header
from labelwise.label_studio.worker import wait_for_sync_commands
from tests.label_studio.twin import TOKEN
from tests.web.conftest import PATIENCE, wait_until

SECRET = "open-sesame-please"
SERVE = ("label-studio", "serve", "--port", "0")
COMMAND = "import labelwise.cli.label_studio; from labelwise.cli import main; main()"


@pytest.fixture
def home(twin, tmp_path):
    place = tmp_path / "c.labelwise"
    sync_project(LabelStudioClient(twin.url, TOKEN), 5, home=place, options=SyncOptions(batch=6))
    return place


@pytest.fixture
def serve(home):
    """Run ``labelwise label-studio serve``; the process, and a client for it."""
    running = []

    def start(*options, **environment):
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *SERVE, "-c", str(home), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "LABEL_STUDIO_TOKEN": TOKEN, **environment},
        )
        running.append(process)
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stdout.read()
        return process, found[0]

    yield start
    for process in running:
        process.kill()
        process.wait(PATIENCE)
        process.stdout.close()


class Coming:
    """A queue to which each order comes when it is waited for; with None, nobody says anything."""

    def __init__(self, lines, seconds=0.0):
        self.lines, self.seconds, self.waits = iter(lines), seconds, []

    def get(self, timeout):
        self.waits.append(timeout)
        time.sleep(self.seconds)
        line = next(self.lines)
        if line is None:
            raise queue.Empty
        return line, 0.0

    def empty(self):
        return True


def test_orders_in_quick_succession_are_one(monkeypatch):
    monkeypatch.setattr(worker, "MAX_DELAY", 3600.0)
    lines = Coming(["tasks 4", "tasks 9 4", None, "tasks 5", None])
    assert wait_for_sync_commands(lines) == [4, 9]
    assert lines.waits == [worker.FULL_SYNC_INTERVAL, worker.QUIET_SECONDS, worker.QUIET_SECONDS]
    assert wait_for_sync_commands(lines) == [5]


def test_orders_that_are_there_already_are_taken_without_waiting(monkeypatch):
    monkeypatch.setattr(worker, "MAX_DELAY", 0.0)
    lines = queue.Queue()
    for task in (4, 7, 4, 9):
        lines.put((f"tasks {task}", 0.0))
    assert wait_for_sync_commands(lines) == [4, 7, 9]


def test_orders_that_never_cease_are_not_waited_for_forever(monkeypatch):
    monkeypatch.setattr(worker, "MAX_DELAY", 0.2)
    lines = Coming(itertools.repeat("look"), seconds=0.05)
    assert wait_for_sync_commands(lines) is None
    assert 1 <= len(lines.waits) <= 6  # the first, and those in 0.2 s


def test_without_any_order_everything_is_looked_at_from_time_to_time(monkeypatch):
    monkeypatch.setattr(worker, "FULL_SYNC_INTERVAL", 0.05)
    assert wait_for_sync_commands(queue.Queue()) is None


def test_a_hint_makes_the_record_follow(twin, home, serve):
    process, url = serve("--token", SECRET)

    def call(method, path, body=None):
        auth = ("labelwise", SECRET)
        return httpx.request(method, url + path, json=body, auth=auth, timeout=PATIENCE).json()

    wait_until(lambda: call("GET", "health").get("stage") is None)
    record = Project.open(home).open_record()
    task = twin.queue()[0]
    number = twin.annotate(task, "food")
    hint = {"action": "ANNOTATION_CREATED", "annotation": {"id": number, "task": task}}
    assert call("POST", "webhook", hint) == {"status": "taken"}
    wait_until(lambda: dict(record.ledger().labels.items()))
    del twin.annotations[number]
    call("POST", "webhook", {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": number}]})
    wait_until(lambda: not record.ledger().labels)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 0
    said = process.stdout.read()
    assert "Stopped" in said and TOKEN not in said and SECRET not in said


def test_a_server_that_is_away_is_told_by_health_and_waited_for(twin, serve):
    twin.tokens = set()
    _, url = serve()
    health = f"{url}health"
    error = wait_until(lambda: httpx.get(health, timeout=PATIENCE).json().get("error"))
    assert "refuses the token in LABEL_STUDIO_TOKEN" in error and TOKEN not in error


def test_a_project_is_told_of_the_backend_once_and_with_its_password(twin):
    held = {"ml": [], "hooks": []}
    plain = twin.answer

    def answer(method, path, query, body):
        for name, base in (("ml", "/api/ml"), ("hooks", "/api/webhooks/")):
            if path == base and method == "GET":
                assert query["project"] == ["5"]
                return 200, held[name]
            if path == base:
                held[name].append({"id": len(held[name]) + 1, **body})
                if name == "ml":  # as Label Studio does, without the password
                    held["hooks"].append({"id": 1, "url": body["url"] + "/webhook"})
                return 201, {}
            if path.startswith(base) and method == "PATCH":
                held[name][0] |= body
                return 200, {}
        return plain(method, path, query, body)

    twin.answer = answer
    client = LabelStudioClient(twin.url, TOKEN)
    assert connect_backend(client, 5, "http://ml.example:9090/", SECRET) == "connected"
    assert connect_backend(client, 5, "http://ml.example:9090", SECRET) == "connected again"
    (ml,), (hook,) = held["ml"], held["hooks"]
    assert (ml["url"], ml["auth_method"]) == ("http://ml.example:9090", "BASIC_AUTH")
    assert (ml["basic_auth_user"], ml["basic_auth_pass"]) == ("labelwise", SECRET)
    assert hook["headers"] == {"Authorization": make_basic_header(SECRET)} and hook["send_payload"]
    assert json.dumps(held).count(SECRET) == 1
