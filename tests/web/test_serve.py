"""The server as a process: where it listens, what it imports, and what a kill leaves."""

import socket
import subprocess
import sys
import threading
import time
from functools import partial

import httpx
import pytest

from labelwise.campaign.project import Project
from labelwise.errors import BadInput
from labelwise.record.events import Asked
from labelwise.web import security, serve
from tests.web.conftest import PATIENCE, launch

TOKEN = "open-sesame-please"
get = partial(httpx.get, timeout=PATIENCE, verify=False)


def ask(project, ids):
    project.open_record().commit(
        lambda ledger, now: ([Asked(now, 1, tuple(ids), strategy="random")], None)
    )


@pytest.fixture
def project(make_project):
    made = make_project()
    ask(made, range(60))
    return made


@pytest.fixture(scope="module")
def plain_server(digits, tmp_path_factory):
    """A server without a token, for tests that change nothing."""
    home = tmp_path_factory.mktemp("plain") / "digits.labelwise"
    Project.start(digits.folder, home=home, features=digits.pixels).close()
    server = launch(home, "--no-training")
    yield server
    for client in server.clients:
        client.close()
    server.kill()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_address_of_a_server_on_all_addresses_can_be_shared(host, monkeypatch):
    monkeypatch.setattr(
        security, "find_network_address", {"0.0.0.0": "10.0.0.7", "::": "fd00::7"}.get
    )
    name = {"0.0.0.0": "10.0.0.7", "::": "[fd00::7]"}[host]
    assert (
        security.make_page_address(host, 8600, "sesame-open")
        == f"http://{name}:8600/?token=sesame-open"
    )


def test_the_server_never_imports_torch_nor_other_heavy_packages(project):
    script = f"""
import sys
from labelwise.cli import label
from labelwise.campaign.project import Project
from labelwise.web.app import create_app
from starlette.testclient import TestClient
app = create_app(Project.open({str(project.home)!r}), trains=False)
with TestClient(app, base_url="http://127.0.0.1") as client:
    code = client.get("/api/session").json()["csrf"]
    headers = {{"X-Annotator": "ann", "X-Labelwise-Csrf": code}}
    labels = [{{"id": 0, "label": "3"}}]
    answers = [
        client.post("/api/labels", json={{"labels": labels, "lend": 5}}, headers=headers),
        client.get("/api/state", headers=headers),
        client.get("/api/items/0/image"),
        client.get("/api/export"),
        client.get("/api/history"),
    ]
assert all(answer.status_code == 200 for answer in answers), answers
heavy = {{"torch", "sklearn", "matplotlib", "pandas", "transformers", "ray"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_it_listens_on_loopback_alone(plain_server):
    port = httpx.URL(plain_server.url).port
    assert plain_server.url.startswith("http://127.0.0.1:")
    listening = subprocess.run(["ss", "-ltnHp"], capture_output=True, text=True).stdout.splitlines()
    mine = f"pid={plain_server.process.pid},"
    assert [line.split()[3] for line in listening if mine in line] == [f"127.0.0.1:{port}"]


def test_another_address_without_a_token_is_refused_before_anything_starts(project):
    with pytest.raises(AssertionError, match="a token is needed"):
        launch(project.home, "--host", "0.0.0.0", "--no-training")
    with pytest.raises(AssertionError, match="8 to 200"):
        launch(project.home, "--token", "short", "--no-training")


def test_a_token_opens_a_server_on_all_addresses(project, start_server):
    server = start_server(project.home, "--host", "0.0.0.0", "--no-training", LABELWISE_TOKEN=TOKEN)
    assert TOKEN in "".join(server.lines)
    assert get(server.url + "api/state").status_code == 401
    with httpx.Client(base_url=server.url, timeout=PATIENCE, follow_redirects=True) as browser:
        assert browser.get("/", params={"token": TOKEN}).status_code == 200
        assert browser.get("/api/state").status_code == 200
    port = httpx.URL(server.url).port
    evil = get(server.url, headers={"Host": f"evil.example:{port}"})
    assert evil.status_code == 421


def test_wrong_tokens_are_slowed_down(project, start_server):
    server = start_server(project.home, "--no-training", "--token", TOKEN)
    start = time.monotonic()
    codes = [get(server.url, params={"token": f"guess-{n}"}).status_code for n in range(11)]
    assert codes == [401] * 11
    assert time.monotonic() - start >= 1.0
    assert get(server.url, params={"token": TOKEN}).status_code == 303


def test_a_cookie_stays_good_when_the_server_is_started_again(project, start_server):
    first = start_server(project.home, "--no-training", "--token", TOKEN)
    with httpx.Client(timeout=PATIENCE, follow_redirects=True) as browser:
        assert browser.get(first.url, params={"token": TOKEN}).status_code == 200
        code = browser.get(first.url + "api/session").json()["csrf"]
        first.kill()
        again = start_server(project.home, "--no-training", "--token", TOKEN)
        assert browser.get(again.url + "api/state").status_code == 200
        assert browser.get(again.url + "api/session").json()["csrf"] == code


def test_a_body_without_a_length_is_cut_off(plain_server):
    client = plain_server.client()
    endless = (b" " * 65_536 for _ in range(64))
    try:
        answer = client.post("/api/labels", content=endless)
        assert answer.status_code == 413
    except httpx.TransportError:  # the server hung up while we were still talking
        pass
    assert client.get("/api/state").status_code == 200


def test_nothing_is_logged_about_who_asked_for_what(project, start_server):
    server = start_server(project.home, "--no-training", "--token", TOKEN)
    known = {"Authorization": f"Bearer {TOKEN}", "X-Annotator": "ann"}
    assert get(server.url + "api/state", headers=known).status_code == 200
    assert get(server.url + "nowhere?token=" + TOKEN).status_code == 303
    assert server.stop() == 0
    assert not any("GET" in line or "ann" in line for line in server.lines)


def test_everything_acknowledged_survives_a_kill_and_loans_go_on(project, start_server):
    acknowledged: dict[int, str] = {}
    server = start_server(project.home, "--no-training")

    def work(name, client):
        try:
            answer = client.post("/api/lend", json={"count": 2}).json()
            while answer["items"]:
                item = answer["items"][0]["id"]
                body = {"labels": [{"id": item, "label": str(item % 10)}], "lend": 2}
                answer = client.post("/api/labels", json=body).json()
                acknowledged[item] = name
                if len(acknowledged) >= 20:
                    server.process.kill()
        except httpx.TransportError:
            return

    people = {name: server.client(name) for name in ("ann", "bob", "cem")}
    threads = [threading.Thread(target=work, args=person) for person in people.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.kill()
    assert 20 <= len(acknowledged) < 60
    again = start_server(project.home, "--no-training")
    votes = project.open_record().ledger().votes
    assert all(votes[item] == {name: str(item % 10)} for item, name in acknowledged.items())
    held: dict[str, set[int]] = {
        name: {
            item["id"]
            for item in again.client(name).post("/api/lend", json={"count": 50}).json()["items"]
        }
        for name in ("ann", "bob", "cem")
    }
    everything = [item for ids in held.values() for item in ids]
    assert len(everything) == len(set(everything)) == 60 - len(votes)


def test_ctrl_c_ends_it_in_good_order_while_a_page_waits(project, start_server):
    server = start_server(project.home, "--no-training")
    client = server.client()
    version = client.get("/api/state").json()["version"]
    answers = []

    def wait():
        try:
            answers.append(client.get("/api/state", params={"since": version, "wait": 25}))
        except httpx.TransportError:  # on a busy machine the server may be gone before it asks
            answers.append(None)

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(0.5)  # it is answered when the server ends
    assert waiting.is_alive()
    assert server.stop() == 0
    waiting.join(PATIENCE)
    assert answers and (answers[0] is None or answers[0].status_code == 200)
    assert "Stopped" in "".join(server.lines)
    assert "Traceback" not in "".join(server.lines)


def test_a_port_in_use_is_an_error_in_one_line(project):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(AssertionError, match=r"cannot listen on 127\.0\.0\.1 port") as caught:
            launch(project.home, "--port", port, "--no-training")
    assert "Traceback" not in str(caught.value)


def test_an_address_that_is_none_is_an_error():
    with pytest.raises(BadInput, match="cannot listen on"):
        serve.open_listener("no such host.invalid", 0)


def test_static_files_are_asked_for_again_but_sent_only_if_changed(plain_server):
    first = get(plain_server.url + "static/api.js")
    assert first.status_code == 200 and first.headers["Cache-Control"] == "no-cache"
    assert "javascript" in first.headers["Content-Type"]
    known = {"If-None-Match": first.headers["ETag"]}
    assert get(plain_server.url + "static/api.js", headers=known).status_code == 304
    page = get(plain_server.url)
    assert "text/html" in page.headers["Content-Type"]
    assert "<script>" not in page.text and "onclick" not in page.text and " style=" not in page.text
