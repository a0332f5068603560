"""What the tests of the page share: campaigns, a server that can be killed, and Chromium."""

import contextlib
import csv
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from PIL import Image
from sklearn.datasets import load_digits

from labelwise.campaign.campaign_record import CampaignRecord
from labelwise.campaign.project import Project
from labelwise.record.events import Asked, Event
from labelwise.record.ledger import Ledger
from labelwise.web.app import create_app
from tests.web.conftest import PATIENCE

CHROMIUM = Path(os.environ.get("LABELWISE_CHROMIUM", "/usr/bin/chromium"))
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()
SERVE = """
import sys
from pathlib import Path
from labelwise.campaign.project import Project
from labelwise.web.serve import serve
home, port, trains = sys.argv[1:]
ready = lambda address, owner: print(address, flush=True)
serve(Project.open(Path(home)), port=int(port), trains=trains == "yes", ready=ready)
"""
DIGITS = tuple(str(digit) for digit in range(10))
PIXELS, KINDS = load_digits(return_X_y=True)


def lasting_port() -> int:
    """A free port that no other socket is given by chance while its server is away for a moment."""
    for port in random.SystemRandom().sample(range(20_000, 30_000), 100):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports are taken")


class _Server(uvicorn.Server):
    """Lets the pages that wait for news go before it ends."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.site.watch.close()
        await super().shutdown(sockets)


class Labelling:
    """A campaign's folder, and a server for it: in a thread, or in a process that can be killed."""

    def __init__(self, project: Project, *, process: bool = False, trains: bool = False) -> None:
        self.project, self._trains = project, trains
        self._port = lasting_port() if process else 0
        self._process: subprocess.Popen[str] | None = None
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self.start = self._start_process if process else self._start_thread

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    def _start_thread(self) -> "Labelling":
        listener = socket.create_server(("127.0.0.1", 0))
        self._port = listener.getsockname()[1]
        app = create_app(self.project, trains=self._trains)
        config = uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=3)
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],))
        self._thread.start()
        return self

    def _start_process(self) -> "Labelling":
        """Start the server, always on the same port."""
        command = [sys.executable, "-c", SERVE, str(self.project.home), str(self._port)]
        self._process = subprocess.Popen(
            [*command, "yes" if self._trains else "no"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        address = self._process.stdout.readline().strip()
        assert address == self.url, "the server did not start"
        return self

    def kill(self) -> None:
        """End the server, its process without a warning, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join()
            self._server = None

    @contextmanager
    def open_record(self) -> Iterator[CampaignRecord]:
        """The campaign as another process would see it."""
        record = Project.open(self.project.home).open_record()
        yield record
        record.storage.close()

    def append(self, *events: Event) -> None:
        """Put events into the record."""
        with self.open_record() as record:
            record.commit(lambda ledger, now: (events, None))

    def ask(self, ids: Sequence[int], **known: Any) -> None:
        """Open a batch of these items."""
        batch = len(self.ledger().batches) + 1
        self.append(Asked(time.time(), batch, tuple(ids), strategy="random", **known))

    def ledger(self) -> Ledger:
        with self.open_record() as record:
            return record.ledger()

    def votes(self) -> dict[int, dict[str, Any]]:
        """What everyone said, by item: ``{id: {person: label}}``."""
        return {item: dict(votes) for item, votes in self.ledger().votes.items() if votes}


def digit_pictures(folder: Path, count: int) -> Path:
    """The first so many of scikit-learn's digits as PNG files."""
    folder.mkdir()
    for place in range(count):
        pixels = (255 - PIXELS[place].reshape(8, 8) * 15.9).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{place:04d}.png")
    return folder


def table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    """Make campaigns with servers, which end with the test."""
    made: list[Labelling] = []

    def images(count: int = 40, *, asked: int | None = None, **settings: Any) -> Labelling:
        source = digit_pictures(tmp_path / f"digits{len(made)}", count)
        pixels = tmp_path / f"pixels{len(made)}.npy"  # so that no picture has to be encoded
        np.save(pixels, PIXELS[:count])
        settings = {"features": pixels, **settings}
        return begin(source, asked=count if asked is None else asked, **settings)

    def begin(
        source: Path,
        *,
        asked: int,
        known: dict[str, Any] | None = None,
        process: bool = False,
        trains: bool = False,
        **settings: Any,
    ) -> Labelling:
        home = tmp_path / f"home{len(made)}.labelwise"
        project = Project.start(source, home=home, **({"classes": DIGITS} | settings))
        labelling = Labelling(project, process=process, trains=trains)
        made.append(labelling)
        if asked:
            labelling.ask(range(asked), **(known or {}))
        return labelling.start()

    images.begin = begin
    yield images
    for labelling in made:
        labelling.kill()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser; without one these tests say that they did not run."""
    if not CHROMIUM.exists():
        pytest.skip(
            f"THE LABELLING PAGE WAS NOT TESTED: {CHROMIUM} is missing; apt-get install chromium, "
            "or set LABELWISE_CHROMIUM"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=FLAGS, timeout=1000 * PATIENCE
        )
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Any) -> Iterator[Any]:
    """Open a page in a browser profile of its own; scripts must run without errors."""
    contexts, errors = [], []

    def go(url: str, *, name: str | None = "Ada", script: str = "", **options: Any) -> Any:
        context = chromium.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("pageerror", lambda error: errors.append(str(error)))
        if name is not None:
            # A page without an address of its own, between two sites, has no storage.
            remember = f"localStorage['labelwise/name'] ??= {name!r}"
            page.add_init_script(f"try {{ {remember} }} catch {{}}")
        if script:
            page.add_init_script(script)
        page.goto(url)
        return page

    yield go
    for context in contexts:
        context.close()
    assert errors == []
