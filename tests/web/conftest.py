"""A real campaign of handwritten digits and real servers on loopback, for the tests of the page."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

DIGITS = 150
"""How many pictures the folder holds."""

CLASSES = [str(digit) for digit in range(10)]

PATIENCE = 240.0
"""Seconds after which something will not happen any more; a busy machine may take many."""


@dataclass(frozen=True)
class Digits:
    """A folder of pictures, what they show, by file name, and their pixels as features."""

    folder: Path
    truth: dict[str, str]
    pixels: Path


@dataclass
class Server:
    """A running ``labelwise label`` in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    reader: threading.Thread
    lines: list[str] = field(default_factory=list)
    clients: list[httpx.Client] = field(default_factory=list)

    def client(self, name: str = "ann", **named: Any) -> httpx.Client:
        """A client with the headers that the page would send."""
        client = httpx.Client(
            base_url=self.url, timeout=PATIENCE, follow_redirects=True, verify=False, **named
        )
        self.clients.append(client)
        session = client.get("/api/session", params={"name": name}).json()
        client.headers.update({"X-Annotator": name, "X-Labelwise-Csrf": session["csrf"]})
        return client

    def kill(self) -> None:
        """End the process at once, as a power cut would."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self) -> int:
        """End the process in good order, and hear all that it said; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self.reader.join(PATIENCE)
        return code


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Digits:
    """Real handwritten digits as .png files of 16 x 16, under names that do not give them away."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    images, targets = load_digits(return_X_y=True)
    folder = tmp_path_factory.mktemp("pictures") / "digits"
    folder.mkdir()
    truth = {}
    for number in range(DIGITS):
        grey = np.kron(images[number].reshape(8, 8) * 255 / 16, np.ones((2, 2)))
        name = f"scan-{number:04d}.png"
        Image.fromarray(grey.astype(np.uint8)).save(folder / name)
        truth[name] = str(targets[number])
    pixels = folder.parent / "pixels.npy"  # so that no picture has to be encoded
    np.save(pixels, images[:DIGITS])
    return Digits(folder, truth, pixels)


@pytest.fixture
def make_project(digits: Digits, tmp_path: Path) -> Callable[..., Any]:
    """Start a campaign on the digits: ``make_project(batch=20, ...)``; settings may be given."""
    from labelwise.campaign.project import Project

    def make(name: str = "digits", **settings: Any) -> Any:
        wanted = {"batch": 20, "classes": CLASSES, "strategy": "margin", **settings}
        wanted = {"features": digits.pixels, **wanted}
        return Project.start(digits.folder, home=tmp_path / f"{name}.labelwise", **wanted)

    return make


def ask(project: Any, ids: Iterable[int], **more: Any) -> None:
    """Open a batch as a campaign would."""
    from labelwise.record.events import Asked

    number = len(project.open_record().ledger().batches) + 1

    def decide(ledger: Any, now: float) -> Any:
        return [Asked(now, number, tuple(ids), strategy="random", **more)], None

    project.open_record().commit(decide)


@pytest.fixture
def project(make_project: Callable[..., Any]) -> Any:
    """A campaign with a batch of 20 items."""
    made = make_project()
    ask(made, range(20))
    return made


@pytest.fixture
def page(project: Any) -> Iterator[Callable[[str], Any]]:
    """Gives clients of one server: ``page("ann")``."""
    from starlette.testclient import TestClient

    from labelwise.web.app import create_app

    with TestClient(
        create_app(project, trains=False),
        base_url="http://127.0.0.1:8600",
        raise_server_exceptions=False,
    ) as first:

        def enter(name: str) -> Any:
            client = TestClient(first.app, base_url=first.base_url, raise_server_exceptions=False)
            client.portal = first.portal  # one server has one event loop
            code = client.get("/api/session", params={"name": name}).json()["csrf"]
            client.headers.update({"X-Annotator": name, "X-Labelwise-Csrf": code})
            return client

        yield enter


@pytest.fixture
def start_server() -> Iterator[Callable[..., Server]]:
    """Start ``labelwise label`` on a free port: ``start_server(project.home, "--no-training")``."""
    servers: list[Server] = []

    def start(home: Path, *options: str, **environment: str) -> Server:
        server = launch(home, *options, **environment)
        servers.append(server)
        return server

    yield start
    for server in servers:
        for client in server.clients:
            client.close()
        server.kill()


def launch(home: Path, *options: str, **environment: str) -> Server:
    """Run the command as a user would, and wait until it says its address."""
    port = () if "--port" in options else ("--port", "0")
    start = "import labelwise.cli.label; from labelwise.cli import main; main()"
    command = [sys.executable, "-c", start, "label"]
    process = subprocess.Popen(
        [*command, "-c", str(home), "--no-open", *port, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )
    lines: list[str] = []
    found = threading.Event()
    address: list[str] = []

    def read() -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                lines.append(line)
                match = re.search(r"http://\S+?/(?=[\s?]|$)", line)
                if match and not address:
                    address.append(match[0])
                    found.set()
        found.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    if not found.wait(PATIENCE) or not address:
        process.kill()
        process.wait(PATIENCE)
        reader.join(PATIENCE)
        raise AssertionError(f"the server did not start: {''.join(lines)}")
    return Server(process, address[0], reader, lines)


def wait_until(check: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """What ``check`` gives as soon as it is true; an error if it is not in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not so within {seconds:g} s: {check}")
