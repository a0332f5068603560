"""Storages for tests: in memory, SQLite in a file, and a PostgreSQL server started for the tests.

A test module gets the fixtures from the conftest of its folder; other folders import them there:

    from tests.record.storages import (
        make_postgres_url, postgres_server, postgres_url, sqlite_url, storage, storage_url
    )
"""

import atexit
import itertools
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

import psycopg
import pytest

from labelwise.record import open_storage
from labelwise.record.storage import Storage

KINDS = ("memory", "sqlite", "postgres")
_numbers = itertools.count()


class Postgres:
    """A PostgreSQL server on a socket in a folder of its own; any number of them can run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server = _start(folder)
        self.execute("ALTER SYSTEM SET autovacuum = off")  # it would free space of a full disk
        self.execute("SELECT pg_reload_conf()")

    def url(self, database: str = "postgres") -> str:
        """The URL of a database, for `open_storage`."""
        return str(self._server.get_uri(database)).replace("postgresql:", "postgresql+psycopg:", 1)

    def execute(self, command: str) -> None:
        """Run a command of the administrator's."""
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(command)

    def crash(self) -> None:
        """Stop at once, as in a power cut: nothing in memory is written any more."""
        os.kill(self._server.get_pid(), signal.SIGQUIT)
        while (self.folder / "postmaster.pid").exists():
            time.sleep(0.01)

    def start_again(self) -> None:
        """Start after a crash."""
        _patiently(self._server.ensure_postgres_running)

    def stop(self) -> None:
        """Stop for good."""
        self._server.cleanup()
        atexit.unregister(self._server._cleanup)  # its folder is gone by then


@contextmanager
def start_postgres() -> Iterator[Postgres]:
    """A server in a new folder, gone at the end."""
    with tempfile.TemporaryDirectory(prefix="labelwise-postgres-") as folder:
        server = Postgres(Path(folder).resolve() / "data")
        try:
            yield server
        finally:
            server.stop()


def _start(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has an opinion about folders where we want none
        pgserver = pytest.importorskip("pgserver", reason="there is no pgserver for this Python")

    def start() -> Any:
        pgserver.PostgresServer._instances.pop(folder, None)  # that of a try before
        return pgserver.get_server(folder, cleanup_mode="stop")

    return _patiently(start)


def _patiently(start: Callable[[], Any]) -> Any:
    """Start a server; a busy machine may need more than the ten seconds it is given.

    At the next try it may still be starting (AssertionError), or be added by another process of
    the tests for the first time on this machine (SubprocessError).
    """
    for _ in range(30):
        try:
            return start()
        except (SubprocessError, AssertionError) as error:
            failure: Exception = error
            time.sleep(2.0)
    raise failure


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a file that is not there yet."""
    return f"sqlite:///{tmp_path}/labels.db"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """The server of this test process."""
    with start_postgres() as server:
        yield server


@pytest.fixture
def make_postgres_url(postgres_server: Postgres) -> Iterator[Callable[[], str]]:
    """A function that makes an empty database and gives its URL; they go when the test ends."""
    made: list[str] = []

    def make() -> str:
        made.append(f"test_{os.getpid()}_{next(_numbers)}")
        postgres_server.execute(f"CREATE DATABASE {made[-1]}")
        return postgres_server.url(made[-1])

    yield make
    for name in made:
        postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres_url(make_postgres_url: Callable[[], str]) -> str:
    """The URL of an empty database of the test's own."""
    return make_postgres_url()


@pytest.fixture(params=KINDS[1:])
def storage_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty storage that several processes can share, of every kind."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest) -> Iterator[Storage]:
    """An empty storage, of every kind."""
    kind = request.param
    url = "memory://" if kind == "memory" else request.getfixturevalue(f"{kind}_url")
    with closing(open_storage(url)) as opened:
        yield opened
