"""The bridge against a real Label Studio server, started on loopback for these tests alone.

The server is the executable that the variable LABEL_STUDIO names. Without it, one is installed from
PyPI into pytest's cache when LABEL_STUDIO_INSTALL=1 (a gigabyte, and some minutes the first time);
else these tests are skipped, and say so.
"""

import base64
import fcntl
import io
import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import httpx
import numpy as np
import pytest

import labelwise.cli.export
import labelwise.cli.label_studio
import labelwise.cli.status  # noqa: F401
from labelwise.campaign.project import Project
from labelwise.cli import run
from labelwise.label_studio import LabelStudioClient, SyncOptions, sync_project
from labelwise.label_studio.tasks import ServingOrder
from tests.label_studio.test_worker import COMMAND, SECRET, SERVE
from tests.label_studio.twin import texts
from tests.web.conftest import wait_until

pytestmark = pytest.mark.slow

VERSION = "label-studio==1.23.0"
USER, PASSWORD, TOKEN = "ann@example.org", "pass-word-1", uuid.uuid4().hex + "01234567"


def config(shown, control, names):
    kind = "Image" if shown == "image" else "Text"
    choices = "".join(f'<Choice value="{name}"/>' for name in names)
    return (
        f'<View><{kind} name="{shown}" value="${shown}"/>'
        f'<Choices name="{control}" toName="{shown}">{choices}</Choices></View>'
    )


class Studio:
    """A running server, as its users see it."""

    def __init__(self, url):
        self.url = url
        self.http = httpx.Client(
            base_url=url, headers={"Authorization": f"Token {TOKEN}"}, timeout=120
        )

    def call(self, method, path, body=None, **named):
        answer = self.http.request(method, path, json=body, **named)
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def make(self, title, labels):
        return self.call("POST", "/api/projects", {"title": title, "label_config": labels})["id"]

    def add(self, project, tasks):
        path = f"/api/projects/{project}/import?return_task_ids=true"
        return self.call("POST", path, tasks)["task_ids"]

    def annotate(self, task, control, shown, label, seconds=2.0):
        value = {"choices": [label]}
        one = {"from_name": control, "to_name": shown, "type": "choices", "value": value}
        body = {
            "result": [] if label is None else [one],
            "was_cancelled": label is None,
            "lead_time": seconds,
        }
        return self.call("POST", f"/api/tasks/{task}/annotations/", body)["id"]

    def next(self, project):
        """What the button "Label All Tasks" asks for."""
        path = f"/api/dm/actions?id=next_task&project={project}"
        return self.call("POST", path, {"project": str(project)})["id"]

    def held(self, project):
        return self.call("GET", f"/api/projects/{project}/")


@pytest.fixture(scope="module")
def executable(request):
    given = os.environ.get("LABEL_STUDIO")
    if given:
        assert shutil.which(given), f"LABEL_STUDIO is {given}, which cannot be run"
        return given
    place = Path(request.config.cache.mkdir("label-studio"))
    if os.environ.get("LABEL_STUDIO_INSTALL") != "1" and not (place / "installed").exists():
        pytest.skip(
            "NOT RUN: no Label Studio server; set LABEL_STUDIO to a label-studio executable, "
            f"or LABEL_STUDIO_INSTALL=1 to have {VERSION} installed (1 GB)"
        )
    with (place / "lock").open("w") as lock:  # of several test processes, one installs
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "installed").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", place / "venv"], check=True)
            pip = place / "venv" / "bin" / "pip"
            subprocess.run([pip, "install", "--quiet", VERSION], check=True)
            (place / "installed").touch()
    return str(place / "venv" / "bin" / "label-studio")


@pytest.fixture(scope="module")
def studio(executable, tmp_path_factory):
    """A server with one user; its first start takes about half a minute."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("label-studio")
    quiet = {"COLLECT_ANALYTICS": "0", "LATEST_VERSION_CHECK": "0", "SENTRY_DSN": ""}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                *(executable, "start", "--no-browser", "--internal-host", "127.0.0.1"),
                *("--port", str(port), "--data-dir", str(folder), "--username", USER),
                *("--password", PASSWORD, "--user-token", TOKEN, "--enable-legacy-api-token"),
            ],
            stdout=log,
            stderr=log,
            env={**os.environ, **quiet, "FRONTEND_SENTRY_DSN": ""},
        )
    made = Studio(f"http://127.0.0.1:{port}")
    try:
        wait_until(lambda: _answers(made, process, folder / "log"), seconds=600)
        yield made
    finally:
        made.http.close()
        process.terminate()
        process.wait(30)


def _answers(studio, process, log):
    assert process.poll() is None, log.read_text()[-3000:]
    try:
        return studio.http.get("/api/version").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture
def reviews(studio):
    """A project of 60 texts, and what each is about."""
    project = studio.make("texts", config("body", "mood", ["sport", "food"]))
    data = texts(60)
    numbers = studio.add(project, [{"body": text["body"]} for text in data])
    return project, {task: text["kind"] for task, text in zip(numbers, data, strict=True)}


@pytest.fixture
def go(studio, tmp_path):
    def run(project, token=TOKEN, **wishes):
        wanted = SyncOptions(**{"strategy": "margin", "batch": 8, **wishes})
        return sync_project(
            LabelStudioClient(studio.url, token), project, home=tmp_path / "c", options=wanted
        )

    return run


def test_texts_are_served_in_the_order_of_picking_round_after_round(studio, reviews, go, tmp_path):
    project, truth = reviews
    assert go(project).new == 60
    assert not go(project).changed
    for number in (1, 2):
        order = ServingOrder.load(tmp_path / "c.tasks")
        assert studio.held(project)["model_version"] == order.version == f"labelwise-{number}"
        served = []
        for place in range(8):
            task = studio.next(project)
            served.append(task)
            studio.annotate(task, "mood", "body", truth[task] if place else None)
        assert tuple(served) == order.tasks
        done = go(project, guesses=number == 1)
        assert done.words == {"new": 7, "skipped": 1} and len(done.trained) == 1
    ledger = Project.open(tmp_path / "c.labelwise").open_record().ledger()
    assert ledger.per_annotator[USER].labels == 14 and ledger.seconds_spent == 28.0
    (first,) = studio.call("GET", f"/api/tasks/{served[-1]}/")["predictions"]
    assert first["score"] == 7 / 16 and 0 < first["result"][0]["score"] <= 1


def test_what_is_changed_or_deleted_there_is_followed(studio, reviews, go, tmp_path):
    project, _ = reviews
    go(project)
    one, two, three = ServingOrder.load(tmp_path / "c.tasks").tasks[:3]
    numbers = [studio.annotate(task, "mood", "body", "food") for task in (one, two, three)]
    assert go(project).words == {"new": 3}
    value = {"choices": ["sport"]}
    result = [{"from_name": "mood", "to_name": "body", "type": "choices", "value": value}]
    studio.call("PATCH", f"/api/annotations/{numbers[0]}/", {"result": result, "lead_time": 5.0})
    studio.call("DELETE", f"/api/annotations/{numbers[1]}/")
    studio.call("DELETE", f"/api/tasks/{three}/")
    studio.add(project, [{"body": "a late text about soup"}])
    done = go(project)
    assert (done.new, done.gone) == (1, 1)
    assert done.words == {"changed": 1, "withdrawn": 2}
    ledger = Project.open(tmp_path / "c.labelwise").open_record().ledger()
    assert list(ledger.labels.values()) == ["sport"] and len(ledger.skipped) == 1
    assert ledger.seconds_spent == 9.0  # 2 + 2 + 2, and 3 more for the change
    assert not go(project).changed


def test_a_personal_access_token_works_too(studio, reviews, go):
    token = studio.call("POST", "/api/token/", {})["token"]
    assert token.count(".") == 2
    assert go(reviews[0], token=token).started


def png(pixels):
    from PIL import Image

    file = io.BytesIO()
    grey = np.kron(pixels.reshape(8, 8) * 255 / 16, np.ones((4, 4)))
    Image.fromarray(grey.astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def digits(studio):
    """A project of 120 handwritten digits, uploaded or as data: addresses, and what they show."""
    from sklearn.datasets import load_digits

    images, targets = load_digits(return_X_y=True)
    project = studio.make("digits", config("image", "digit", range(10)))
    files = [(f"f{n}", (f"{n:03d}.png", png(images[n]), "image/png")) for n in range(60)]
    path = f"/api/projects/{project}/import?return_task_ids=true"
    answer = studio.http.post(path, files=files)
    assert answer.status_code == 201, answer.text
    codes = [base64.b64encode(png(images[n])).decode() for n in range(60, 120)]
    studio.add(project, [{"image": f"data:image/png;base64,{code}"} for code in codes])
    path = f"/api/tasks?project={project}&page_size=200&include=id,data"
    truth = {}
    for task in studio.call("GET", path)["tasks"]:
        address = task["data"]["image"]
        number = None if address.startswith("data:") else int(address[-7:-4])
        number = 60 + codes.index(address.partition(",")[2]) if number is None else number
        truth[task["id"]] = str(targets[number])
    return project, truth


def test_pictures_come_from_uploads_and_data_addresses(
    studio, digits, tmp_path, monkeypatch, capsys
):
    """As a user would: nothing but the commands."""
    project, truth = digits
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABEL_STUDIO_TOKEN", TOKEN)
    command = ["label-studio", "sync", studio.url, "--project", str(project), "--batch", "20"]
    assert run(command) == 0
    assert "120 new" in capsys.readouterr().out
    for _ in range(20):
        task = studio.next(project)
        studio.annotate(task, "digit", "image", truth[task])
    assert run(command) == 0
    out = capsys.readouterr().out
    assert "20 new" in out and "model 1" in out and "(labelwise-2)" in out
    assert run(["export", "--out", "labels.jsonl"]) == 0
    assert len(Path("labels.jsonl").read_text().splitlines()) == 20


def test_the_backend_keeps_a_project_of_pictures_up_to_date(studio, digits, tmp_path):
    project, truth = digits
    home = tmp_path / "c.labelwise"
    sync_project(
        LabelStudioClient(studio.url, TOKEN),
        project,
        home=home,
        options=SyncOptions(strategy="margin", batch=10),
    )
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *SERVE, "-c", str(home), "--connect", "--token", SECRET],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LABEL_STUDIO_TOKEN": TOKEN},
    )
    try:
        lines = [process.stdout.readline() for _ in range(3)]
        assert lines[-1] == "Label Studio: connected\n", lines
        (backend,) = studio.call("GET", f"/api/ml?project={project}")
        assert (
            backend["readable_state"] == "Connected" and backend["model_version"] == "labelwise-1"
        )
        for _ in range(10):
            task = studio.next(project)
            studio.annotate(task, "digit", "image", truth[task])
        wait_until(lambda: studio.held(project)["model_version"] == "labelwise-2", seconds=300)
        assert len(Project.open(home).open_record().ledger().trainings) == 1
        _predict(studio, project, backend, home)
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def _predict(studio, project, backend, home):
    """Have Label Studio itself ask the backend for predictions, of all tasks."""
    versions = studio.call("GET", f"/api/ml/{backend['id']}/versions")
    assert versions["versions"][0] == "labelwise-2"
    body = {"selectedItems": {"all": True, "excluded": []}}
    path = f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}"
    studio.call("POST", path, body)
    counts = studio.call("GET", f"/api/projects/{project}/model-versions/")
    assert counts["labelwise-2"] == 120  # the ten that were written, and all others behind them
    order = ServingOrder.load(home.with_name("c.tasks"))
    time.sleep(0.1)
    assert studio.next(project) == order.tasks[0]
