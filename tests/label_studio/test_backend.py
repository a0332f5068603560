"""The ML backend: what it answers, how quickly, and to whom."""

import base64
import subprocess
import sys
import time

import pytest
from starlette.testclient import TestClient

from labelwise.errors import BadInput
from labelwise.label_studio import LabelStudioClient, SyncOptions, sync_project
from labelwise.label_studio import backend as answering
from labelwise.label_studio.backend import (
    LabelStudioBackend,
    create_backend_app,
    make_basic_header,
)
from labelwise.web.background import WorkerReport
from tests.label_studio.twin import TEXTS, TOKEN, Twin, texts

SECRET = "open-sesame-please"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """A campaign of 30 tasks with a batch of 6 waiting, and the server that it came from."""
    twin = Twin()
    twin.add(*texts(30))
    home = tmp_path_factory.mktemp("backend") / "c.labelwise"
    sync_project(LabelStudioClient(twin.url, TOKEN), 5, home=home, options=SyncOptions(batch=6))
    yield home, twin
    twin.close()


@pytest.fixture
def orders():
    return []


@pytest.fixture
def backend(campaign, orders):
    made = LabelStudioBackend(campaign[0], send=orders.append)
    yield made
    made.close()


def open_client(backend, base="http://127.0.0.1:9090", **named):
    return TestClient(
        create_backend_app(backend, **named), base_url=base, raise_server_exceptions=False
    )


@pytest.fixture
def client(backend):
    return open_client(backend)


def test_health_says_what_the_process_does_and_reads_nothing(campaign):
    said = WorkerReport(stage="training", error="the token was refused")
    backend = LabelStudioBackend(campaign[0], send=print, get_progress=lambda: said)
    backend.close()  # health must not need the record
    answer = open_client(backend).get("/health")
    assert answer.json() == {
        "status": "UP",
        "model_class": "labelwise",
        "stage": "training",
        "error": "the token was refused",
    }


def test_setup_gives_the_version_that_is_served(client, campaign):
    body = {"project": "5.1700000000", "schema": TEXTS, "hostname": "", "access_token": "x"}
    answer = client.post("/setup", json=body)
    assert answer.json() == {"model_version": "labelwise-1"}
    assert client.get("/versions").json()["versions"] == ["labelwise-1"]


def test_answers_are_quick_after_the_first(client):
    client.get("/health")
    for method, path, body in (
        ("GET", "/health", None),
        ("POST", "/setup", {"project": "5.1"}),
        ("POST", "/predict", {"tasks": [{"id": 101}], "project": "5.1"}),
        ("POST", "/webhook", {"action": "ANNOTATION_CREATED"}),
    ):
        began = time.process_time()  # of this process alone: a busy machine is not our fault
        assert client.request(method, path, json=body).status_code == 200
        assert time.process_time() - began < 0.5


def test_predictions_are_in_the_order_of_the_picks(client, campaign):
    _, twin = campaign
    tasks = [{"id": number, "data": data} for number, data in twin.tasks.items()]
    answer = client.post("/predict", json={"tasks": tasks, "label_config": TEXTS}).json()
    assert answer["model_version"] == "labelwise-1" and len(answer["results"]) == 30
    scores = {
        task["id"]: found["score"] for task, found in zip(tasks, answer["results"], strict=True)
    }
    queue = sorted(scores, key=scores.__getitem__)
    assert queue[:6] == twin.queue()
    written = {p["task"]: p["score"] for p in twin.predictions}
    assert {task: scores[task] for task in written} == written
    assert {scores[task] for task in queue[6:]} == {1.0}
    assert all(found["result"] == [] for found in answer["results"])


def test_tasks_that_are_not_known_yet_come_last(client):
    answer = client.post("/predict", json={"tasks": [{"id": 99999}]}).json()
    assert answer["results"] == [{"result": [], "score": 1.0, "model_version": "labelwise-1"}]


@pytest.mark.parametrize(
    ("body", "order"),
    [
        ({"action": "ANNOTATION_CREATED", "annotation": {"id": 1, "task": 103}}, "tasks 103"),
        ({"action": "ANNOTATION_UPDATED", "annotation": {"id": 1, "task": 103}}, "tasks 103"),
        ({"action": "ANNOTATIONS_CREATED", "annotation": [{"task": 7}, {"task": 8}]}, "tasks 7 8"),
        ({"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 1}]}, "look"),
        ({"action": "ANNOTATION_DELETED", "annotation": {"id": 1}}, "look"),
        ({"action": "TASKS_CREATED", "tasks": [{"id": 140}]}, "look"),
        ({"action": "TASKS_DELETED", "tasks": [{"id": 101}]}, "look"),
        ({"action": "START_TRAINING", "project": {"id": 5}}, "look"),
        ({"action": "ANNOTATION_CREATED", "annotation": {"task": "7; rm -rf"}}, "look"),
        ({"action": "ANNOTATION_CREATED"}, "look"),
    ],
)
def test_events_are_hints_in_both_spellings(client, orders, body, order):
    assert client.post("/webhook", json=body).json() == {"status": "taken"}
    assert orders == [order]


def test_events_of_no_concern_are_taken_and_forgotten(client, orders):
    for body in ({"action": "LABEL_LINK_CREATED"}, {"action": None}, {}):
        assert client.post("/webhook", json=body).json() == {"status": "ignored"}
    assert orders == []


def test_another_project_is_refused(client, orders):
    for path, body in (
        ("/setup", {"project": "6.1700000000"}),
        ("/predict", {"project": "6.1", "tasks": []}),
        ("/webhook", {"action": "ANNOTATION_CREATED", "project": {"id": 6}}),
    ):
        answer = client.post(path, json=body)
        assert answer.status_code == 400 and "for project 5, not '6'" in answer.json()["error"]
    assert orders == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/predict", b"{}"),
        ("/predict", b'{"tasks": 3}'),
        ("/predict", b'{"tasks": [{"id": "x"}]}'),
        ("/predict", b"not json"),
        ("/predict", b"[]"),
        ("/webhook", b"[1]"),
        ("/webhook", b""),
        ("/setup", b'"x"'),
        ("/setup", b"{}"),
    ],
)
def test_bodies_that_make_no_sense_are_refused_in_words(client, path, body):
    answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422) and answer.json()["error"]


def test_guesses_are_given_only_if_wished_for(tmp_path):
    mine = Twin()
    mine.add(*texts(30))
    for task in list(mine.tasks)[:8]:
        mine.annotate(task, mine.tasks[task]["kind"])
    place = tmp_path / "g.labelwise"
    sync_project(
        LabelStudioClient(mine.url, TOKEN),
        5,
        home=place,
        options=SyncOptions(batch=6, strategy="margin"),
    )
    backend = LabelStudioBackend(place, send=print, guesses=True)
    task = {"id": mine.queue()[0]}
    body = {"tasks": [task, {"id": 101}], "label_config": TEXTS}
    picked, other = open_client(backend).post("/predict", json=body).json()["results"]
    (region,) = picked["result"]
    assert region["from_name"] == "mood" and region["value"]["choices"][0] in ("sport", "food")
    assert 0 < region["score"] <= 1 and picked["score"] == 0.0 and other["result"] == []
    backend.close()
    mine.close()


def test_an_order_that_a_sync_wrote_meanwhile_is_used_at_once(tmp_path):
    twin = Twin()
    twin.add(*texts(12))
    home = tmp_path / "c.labelwise"
    client = LabelStudioClient(twin.url, TOKEN)
    sync_project(client, 5, home=home, options=SyncOptions(batch=6))
    backend = LabelStudioBackend(home, send=print)
    assert backend.order.version == "labelwise-1"
    twin.predictions.clear()
    (new,) = twin.add({"body": "a new one"})
    sync_project(client, 5, home=home)
    assert backend.order.version == "labelwise-2" and new in backend.index.items
    backend.close()
    twin.close()


@pytest.mark.parametrize(
    "header",
    [
        make_basic_header(SECRET),
        "Basic " + base64.b64encode(f"anyone:{SECRET}".encode()).decode(),
        f"Bearer {SECRET}",
        f"Token {SECRET}",
    ],
)
def test_who_knows_the_token_is_answered(backend, header):
    client = open_client(backend, token=SECRET)
    assert client.get("/health", headers={"Authorization": header}).status_code == 200


WRONG = (
    *("", "Basic", "Basic !!!", "Bearer wrong-one", "Digest x", f"Basic {SECRET}"),
    *(make_basic_header("wrong-one"), "Basic " + base64.b64encode(b"\xff:\xff").decode()),
)


@pytest.mark.parametrize("header", WRONG)
@pytest.mark.parametrize("path", ["/health", "/webhook", "/nothing"])
def test_who_does_not_is_not(backend, orders, header, path):
    client = open_client(backend, token=SECRET)
    answer = client.post(path, json={"action": "START_TRAINING"}, headers={"Authorization": header})
    assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Basic")
    assert SECRET not in answer.text and orders == []


def test_guessing_the_token_is_slowed_down(backend):
    client = open_client(backend, token=SECRET)
    wrong = {"Authorization": make_basic_header("guess-guess")}
    start = time.monotonic()
    codes = [client.get("/health", headers=wrong).status_code for _ in range(12)]
    assert codes == [401] * 12
    assert time.monotonic() - start >= 2.0  # a second for each of the last two


def test_other_machines_need_a_token(backend):
    with pytest.raises(BadInput, match="a token is needed"):
        create_backend_app(backend, host="0.0.0.0")


def test_other_hosts_pages_and_long_bodies_are_refused(backend, monkeypatch):
    assert open_client(backend, "http://evil.example").get("/health").status_code == 421
    named = open_client(backend, "http://ml.example", allow_hosts=["ml.example"])
    assert named.get("/health").status_code == 200
    client = open_client(backend)
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert client.post("/webhook", json={}, headers=headers).status_code == 403
    monkeypatch.setattr(answering, "MAX_BODY_BYTES", 100)
    answer = open_client(backend).post("/predict", json={"tasks": [{"id": n} for n in range(50)]})
    assert answer.status_code == 413


def test_there_is_no_description_and_no_way_around(client):
    for path in ("/docs", "/openapi.json", "/redoc", "/../campaign.json", "/health/"):
        assert client.get(path).status_code == 404


def test_the_backend_never_imports_torch_nor_other_heavy_packages(campaign):
    script = f"""
import sys
from pathlib import Path
from starlette.testclient import TestClient
from labelwise.label_studio.backend import LabelStudioBackend, create_backend_app
backend = LabelStudioBackend(Path({str(campaign[0])!r}), send=print, guesses=True)
client = TestClient(create_backend_app(backend), base_url="http://127.0.0.1")
answers = [
    client.get("/health"),
    client.post("/setup", json={{"project": "5.1"}}),
    client.post("/predict", json={{"tasks": [{{"id": 101}}], "label_config": {TEXTS!r}}}),
    client.post("/webhook", json={{"action": "START_TRAINING"}}),
]
assert all(answer.status_code == 200 for answer in answers), answers
heavy = {{"torch", "sklearn", "matplotlib", "pandas", "transformers", "ray"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
