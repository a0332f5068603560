"""Floods and silence: real connections on loopback, against small limits and the real ones."""

import asyncio
import http.client
import resource
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager

import httpx
import pytest
import uvicorn

from labelwise.record.events import Asked
from labelwise.web.serve import HEADER_BYTES, LimitedConnection, raise_file_limit
from tests.web.conftest import PATIENCE, wait_until

GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def app(scope, receive, send):
    """Answers ok; /slow only after a second."""
    if scope["path"] == "/slow":
        await asyncio.sleep(1.0)
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def running(*, header_seconds):
    """A server for three connections. Gives ``connect()``; ``connect.held()`` counts them."""

    class Small(LimitedConnection):
        most = 3

    Small.header_seconds = header_seconds
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http=Small,
        log_level="critical",
        lifespan="off",
        ws="none",
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=600,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    wait_until(lambda: server.started)
    address, opened = listener.getsockname(), []

    def connect():
        opened.append(socket.create_connection(address, timeout=PATIENCE))
        return opened[-1]

    connect.held = lambda: len(server.server_state.connections)
    try:
        yield connect
    finally:
        for one in opened:
            one.close()
        server.should_exit = True
        thread.join()


@pytest.fixture
def small():
    """A server that waits for a head longer than any test takes."""
    with running(header_seconds=600.0) as connect:
        yield connect


@pytest.fixture
def hasty():
    """A server that waits 0.4 s for a head."""
    with running(header_seconds=0.4) as connect:
        yield connect


def status(connection):
    """What is answered, as a number; 0 if it is closed without a word."""
    answer = http.client.HTTPResponse(connection)
    try:
        answer.begin()
        answer.read()
    except (ConnectionError, http.client.HTTPException):
        return 0
    return answer.status


def ask(connection, request=GET):
    try:
        connection.sendall(request)
    except ConnectionError:
        return 0
    return status(connection)


def test_those_that_are_there_go_on_while_new_ones_are_closed(small):
    inside = [small() for _ in range(3)]
    assert [ask(one) for one in inside] == [200] * 3
    assert ask(small()) == 0
    assert [ask(one) for one in inside] == [200] * 3


def test_there_is_room_again_when_one_has_left(small):
    first, *_ = inside = [small() for _ in range(3)]
    assert [ask(one) for one in inside] == [200] * 3
    assert ask(small()) == 0
    first.close()
    wait_until(lambda: small.held() == 2)
    assert ask(small()) == 200


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHos"])
def test_a_connection_that_does_not_ask_anything_is_closed(hasty, said):
    begun = time.monotonic()
    silent = hasty()
    silent.sendall(said)
    assert status(silent) == 0
    assert time.monotonic() - begun > 0.3  # and not at once


def in_time(connect, request=GET):
    """A connection whose first head came in time, which on a busy machine not every one does."""
    tries = (connect() for _ in range(100))
    return next(one for one in tries if ask(one, request) == 200)


def test_a_request_that_comes_letter_by_letter_is_cut_off_also_after_an_answer(hasty):
    slow = in_time(hasty)
    end = time.monotonic() + PATIENCE
    with pytest.raises(ConnectionError):
        while time.monotonic() < end:
            slow.sendall(b"G")
            time.sleep(0.05)


def test_silent_connections_fill_the_server(small):
    for _ in range(3):
        small()
    wait_until(lambda: small.held() == 3)
    assert ask(small()) == 0


def test_silent_connections_do_not_keep_others_out_for_long(hasty):
    silent = [hasty() for _ in range(3)]
    assert [status(one) for one in silent] == [0] * 3
    in_time(hasty)


def test_an_answer_may_take_longer_than_a_head(hasty):
    slow = GET.replace(b"/ ", b"/slow ", 1)
    assert any(ask(in_time(hasty, slow)) == 200 for _ in range(10))  # and it can ask again


def test_the_process_may_open_as_many_files_as_it_may_have_connections():
    script = """
import resource
from labelwise.web.serve import raise_file_limit
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 700))
raise_file_limit(600)
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (600, 700)
raise_file_limit(500)
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (600, 700)
raise_file_limit(800)
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (700, 700)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


ANNOTATORS, EACH, FLOOD = 50, 2, 1000


@pytest.fixture
def project(make_project):
    made = make_project(batch=100)
    ids = tuple(range(ANNOTATORS * EACH))
    made.open_record().commit(lambda ledger, now: ([Asked(now, 1, ids)], None))
    return made


def annotate(server, name, given, flooded, errors):
    """Label two items, the second while the flood is on, over one connection as a page would."""
    try:
        client = server.client(name)
        for place in range(EACH):
            if place:
                client.get("/api/state").raise_for_status()
                while not flooded.wait(1):  # a page speaks up before its connection is given up
                    client.get("/api/state").raise_for_status()
            item = client.post("/api/lend", json={"count": 1}).json()["items"][0]["id"]
            body = {"labels": [{"id": item, "label": str(item % 10)}]}
            client.post("/api/labels", json=body).raise_for_status()
            given[item] = name
    except (httpx.HTTPError, LookupError) as error:
        errors.append(error)


def flood(address, count):
    """Open so many connections, and ask on each; what was answered."""
    opened = []
    for _ in range(count):
        try:
            opened.append(socket.create_connection(address, timeout=PATIENCE))
            opened[-1].sendall(GET)
        except OSError:
            pass
    codes = Counter(status(one) for one in opened)
    return opened, codes


def has_room(server):
    """Whether the server has noticed that the flood is over."""
    try:
        return httpx.get(server.url, timeout=PATIENCE).status_code == 200
    except httpx.TransportError:
        return False


def test_fifty_people_label_through_a_flood_and_the_server_lives(project, start_server):
    raise_file_limit(4 * FLOOD)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < FLOOD + 300:
        pytest.skip("this system does not allow enough open files for a flood")
    server = start_server(project.home, "--no-training")
    address = ("127.0.0.1", httpx.URL(server.url).port)
    given, errors, flooded = {}, [], threading.Event()
    threads = [
        threading.Thread(target=annotate, args=(server, f"p{n}", given, flooded, errors))
        for n in range(ANNOTATORS)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(given) == ANNOTATORS or errors)
    opened, codes = flood(address, FLOOD)
    flooded.set()
    for thread in threads:
        thread.join()
    for one in opened:
        one.close()
    assert errors == []
    assert server.process.poll() is None
    assert codes[200] > 100 and codes[0] > 100
    assert codes[200] + codes[0] == len(opened)
    votes = project.open_record().ledger().votes
    assert {item: dict(said) for item, said in votes.items()} == {
        item: {name: str(item % 10)} for item, name in given.items()
    }
    assert len(given) == ANNOTATORS * EACH
    wait_until(lambda: has_room(server))
    assert server.client("late").get("/api/state").json()["labelled"] == len(given)
    assert any("connections at once" in line for line in server.lines)
    assert not any("Traceback" in line for line in server.lines)
