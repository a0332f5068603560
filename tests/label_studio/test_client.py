"""Calls of a server on loopback: what is sent to whom, and what is said when it goes wrong."""

import base64
import socket
import threading
import warnings

import pytest

from labelwise.errors import BadInput, LabelwiseWarning, UnknownName
from labelwise.label_studio import client as api
from labelwise.label_studio.client import (
    LabelStudioClient,
    LabelStudioFailed,
    decode_data_url,
    normalize_url,
    read_label_studio_token,
)
from tests.label_studio.twin import TOKEN, fail

PERSONAL = "eyJhbGciOi.eyJ0b2tlbl.c2lnbmF0dXJl"


@pytest.fixture
def twin(make_twin):
    return make_twin()


@pytest.fixture
def other(make_twin):
    made = make_twin()
    made.tokens = {None}
    return made


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(api, "PAUSE", 0.01)


@pytest.fixture
def client(twin):
    return LabelStudioClient(twin.url, TOKEN, source="LABEL_STUDIO_TOKEN")


@pytest.mark.parametrize(
    ("given", "clean"),
    [
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        (" https://Labels.Example.org/projects/5/data?tab=3 ", "https://labels.example.org"),
        ("https://example.org/studio/projects/", "https://example.org/studio"),
        ("http://localhost:8080/api/projects/5", "http://localhost:8080"),
    ],
)
def test_an_address_is_taken_as_a_browser_shows_it(given, clean):
    assert normalize_url(given) == clean


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x.org", "http://", "http://a:b", ""])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(BadInput, match="written http://HOST"):
        normalize_url(url)


def test_a_password_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(BadInput, match="leave name and password out") as caught:
        normalize_url("http://ann:sesame@localhost:8080")
    assert "sesame" not in str(caught.value)


def test_a_token_without_encryption_is_warned_of_except_on_this_machine():
    with pytest.warns(LabelwiseWarning, match=r"goes to labels\.example without encryption"):
        LabelStudioClient("http://labels.example", TOKEN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LabelStudioClient("https://labels.example", TOKEN)
        LabelStudioClient("http://localhost:8080", TOKEN)


def test_errors_name_the_remedy_and_never_the_token(twin, client):
    wrong = LabelStudioClient(twin.url, "not-the-token-77", source="LABEL_STUDIO_TOKEN")
    nowhere = LabelStudioClient("http://127.0.0.1:1", "not-the-token-77")
    cases = [
        (
            lambda: wrong.read_project(5),
            LabelStudioFailed,
            "refuses the token in LABEL_STUDIO_TOKEN",
        ),
        (
            lambda: nowhere.read_project(5),
            LabelStudioFailed,
            r"cannot reach http://127\.0\.0\.1:1 ",
        ),
        (lambda: client.read_project(6), UnknownName, "has no project 6"),
    ]
    for call, kind, words in cases:
        with pytest.raises(kind, match=words) as caught:
            call()
        assert "not-the-token-77" not in str(caught.value) and TOKEN not in str(caught.value)


def test_a_server_that_is_not_label_studio_is_found_out(twin, client):
    fail(twin, "GET", "/api/projects/5/", 200, answer=b"<html>hello</html>")
    with pytest.raises(LabelStudioFailed, match="not as Label Studio does"):
        client.read_project(5)
    fail(twin, "GET", "/api/projects/5/", 200, answer=b'{"hello": 1}')
    with pytest.raises(LabelStudioFailed, match="not as Label Studio does"):
        client.read_project(5)


def test_what_reads_is_tried_again_and_what_writes_is_not(twin, client):
    fail(twin, "GET", "/api/projects/5/", 503)
    fail(twin, "GET", "/api/projects/5/", None)
    assert client.read_project(5)["id"] == 5
    fail(twin, "PATCH", "/api/projects/5/", 503, answer=b'{"detail": "too busy"}')
    with pytest.raises(LabelStudioFailed, match=r"answers 503: .*too busy"):
        client.request("PATCH", "/api/projects/5/", {"title": "x"})
    assert twin.calls["PATCH", "/api/projects/5/"] == 1


def test_a_call_follows_no_redirect(twin, other, client):
    fail(twin, "GET", "/api/projects/5/", 302, answer=other.url.encode() + b"/api/projects/5/")
    with pytest.raises(LabelStudioFailed, match=f"redirects to {other.url}"):
        client.read_project(5)
    assert not other.calls


def test_a_personal_token_is_exchanged_and_renewed_when_it_runs_out(twin):
    client = LabelStudioClient(twin.url, PERSONAL)
    refresh = "/api/token/refresh/"
    for number in (1, 2):
        fail(twin, "POST", refresh, 200, answer=f'{{"access": "for-minutes-{number}"}}'.encode())
    twin.tokens = {"Bearer for-minutes-1"}
    client.read_project(5)
    twin.tokens = {"Bearer for-minutes-2"}
    client.request("PATCH", "/api/projects/5/", {"title": "renewed"})
    assert twin.project["title"] == "renewed" and twin.calls["POST", refresh] == 2
    assert all(header is None for path, header in twin.headers if path == refresh)


def test_a_personal_token_that_is_refused_is_said_so(twin):
    fail(twin, "POST", "/api/token/refresh/", 401)
    with pytest.raises(LabelStudioFailed, match="refuses the token"):
        LabelStudioClient(twin.url, PERSONAL).read_project(5)


def test_the_token_goes_to_its_own_server_alone(twin, other, client):
    twin.files["/data/upload/5/a.png"] = b"mine"
    other.files["/b.png"] = b"theirs"
    assert client.download("/data/upload/5/a.png") == b"mine"
    assert client.download(f"{other.url}/b.png") == b"theirs"
    fail(twin, "GET", "/data/away.png", 302, answer=other.url.encode() + b"/b.png")
    assert client.download("/data/away.png") == b"theirs"
    assert twin.headers[0] == ("/data/upload/5/a.png", f"Token {TOKEN}")
    assert {header for _, header in other.headers} == {None}


def test_files_in_a_cloud_storage_are_asked_of_the_server(twin, client):
    twin.files["/tasks/8/resolve/"] = b"from the cloud"
    assert client.download("s3://bucket/a.png", task=8) == b"from the cloud"


def test_only_files_from_the_net_are_fetched(twin, client, tmp_path):
    (tmp_path / "secret").write_text("x")
    for address in (f"file://{tmp_path}/secret", "ftp://x/y", "a.png", "//example.org/x", ""):
        with pytest.raises(BadInput, match="cannot fetch"):
            client.download(address)
    fail(twin, "GET", "/data/away", 302, answer=f"file://{tmp_path}/secret".encode())
    with pytest.raises(BadInput, match="answers 302"):
        client.download("/data/away")


def test_files_that_are_missing_or_too_long_are_errors_of_their_tasks(twin, client):
    twin.files["/data/long"] = b"x" * 101
    with pytest.raises(BadInput, match="longer than 100 bytes"):
        client.download("/data/long", limit=100)
    with pytest.raises(BadInput, match="answers 404"):
        client.download("/data/none")
    with pytest.raises(BadInput, match=r"cannot reach http://127\.0\.0\.1:1 "):
        client.download("http://127.0.0.1:1/a.png?signature=secret")


def test_data_addresses_are_decoded_or_refused():
    body = bytes(range(256))
    assert decode_data_url("data:image/png;base64," + base64.b64encode(body).decode()) == body
    for wrong in ("data:image/png;base64", "data:;base64,&&&", "data:,"[:4]):
        with pytest.raises(BadInput):
            decode_data_url(wrong)


def test_tasks_come_in_pages_and_in_order(twin, client):
    numbers = twin.add(*({"body": f"text {n}"} for n in range(120)))
    found = list(client.list_tasks_after(5, numbers[9]))
    assert [task["id"] for task in found] == numbers[10:]
    assert twin.calls["GET", "/api/tasks"] == 4


def test_many_tasks_are_asked_for_in_several_calls(twin, client):
    numbers = twin.add(*({"body": f"text {n}"} for n in range(450)))
    assert [task["id"] for task in client.export_tasks(5, numbers)] == numbers
    assert twin.calls["GET", "/api/projects/5/export"] == 3


def test_the_token_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("THE_TOKEN", " abc \n")
    assert read_label_studio_token("THE_TOKEN") == "abc"
    monkeypatch.delenv("THE_TOKEN")
    with pytest.raises(BadInput, match="no token in the variable THE_TOKEN"):
        read_label_studio_token("THE_TOKEN")
    for odd in ("", "two words", "tök"):
        with pytest.raises(BadInput, match="THE_TOKEN"):
            LabelStudioClient("http://localhost", odd, source="THE_TOKEN")


def test_proxies_are_used_except_for_this_machine(twin, other, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, other.url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert LabelStudioClient(twin.url, TOKEN).read_project(5)["id"] == 5
    assert not other.calls
    with pytest.warns(LabelwiseWarning, match="without encryption"):
        away = LabelStudioClient("http://labels.invalid", TOKEN)
    with pytest.raises(LabelStudioFailed):
        away.request("PATCH", "/api/projects/5/", {})
    assert sum(other.calls.values()) == 1  # the proxy was asked


def test_a_server_that_stays_silent_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = LabelStudioClient(f"http://127.0.0.1:{silent.getsockname()[1]}", TOKEN)
        with pytest.raises(LabelStudioFailed, match="cannot reach"):
            client.request("PATCH", "/api/projects/5/", {}, timeout=0.2)


def test_a_file_without_an_end_is_cut_off_at_the_limit(client):
    def send_forever(server):
        with server.accept()[0] as connection:
            connection.recv(10_000)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            try:
                while True:
                    connection.sendall(b"x" * 65536)
            except OSError:
                pass  # the client has closed the connection

    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = threading.Thread(target=send_forever, args=(server,))
        sender.start()
        with pytest.raises(BadInput, match="longer than 1,000,000 bytes"):
            client.download(f"http://127.0.0.1:{server.getsockname()[1]}/x", limit=1_000_000)
        sender.join(60)
    assert not sender.is_alive()


def test_a_circle_of_redirects_ends(twin, client):
    fail(twin, "GET", "/data/a", 302, times=99, answer=twin.url.encode() + b"/data/a")
    with pytest.raises(BadInput, match="redirects more than 5 times"):
        client.download("/data/a")


def test_a_personal_token_is_exchanged_with_its_own_server_alone(twin, other):
    personal = LabelStudioClient(twin.url, "aaa.bbb.ccc")
    fail(twin, "POST", "/api/token/refresh/", 307, answer=f"{other.url}/refresh".encode())
    with pytest.raises(BadInput, match="answers 307"):
        personal.download("/data/upload/5/a.png")
    assert not other.headers
