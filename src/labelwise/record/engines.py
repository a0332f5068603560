"""How to reach a database: what its URL means, and connections that keep what they are given."""

import sqlite3
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from labelwise.errors import BadInput, MissingDependency, UnknownName


def parse(url: str) -> sa.URL:
    """A URL of a kind we know. Its text may hold a password, so that no message quotes it."""
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError):
        raise BadInput(
            "the storage's URL cannot be read; write postgresql+psycopg://user@host:5432/database "
            "and quote the letters :@/? in a password as %3A %40 %2F %3F"
        ) from None
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
        raise BadInput(
            f"no storage is called {parsed.drivername!r}; choose sqlite:///labels.db, "
            "postgresql+psycopg://user@host/database or memory://"
        )
    return parsed


def sqlite_file(url: sa.URL, create: bool) -> Path:
    """The file that a URL names, which must be there unless it may be created."""
    if not url.database or url.database.startswith((":memory:", "file:")) or url.query or url.host:
        raise BadInput(
            "an SQLite storage is a file: sqlite:///labels.db, or sqlite:////absolute/path.db; "
            "for one without a file use memory://"
        )
    file = Path(url.database).absolute()
    if not create and not file.exists():
        raise UnknownName(f"there is no file {file}")
    if not file.parent.is_dir():
        raise BadInput(f"there is no folder {file.parent} for the record {file.name}; make it")
    return file


def sqlite_engine(file: Path, patience: float) -> sa.Engine:
    """Connections to a file that sync every commit; a transaction that writes begins locked."""
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(file)),
        connect_args={"timeout": patience},
        hide_parameters=True,
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.isolation_level = None  # transactions begin where we say so, below
        connection.execute("PRAGMA synchronous = FULL")
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            _write_ahead(connection, patience)

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _write_ahead(connection: Any, patience: float) -> None:
    """Switch the file to WAL; SQLite does not wait by itself if others do so right now."""
    end = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > end:
                raise
        time.sleep(0.01)


def secrets_of(url: sa.URL) -> list[str]:
    """The passwords in a URL."""
    return [str(text) for text in (url.password, url.query.get("password")) if text]


def place_of(url: sa.URL) -> str:
    """How messages call a server's database; without the user, let alone the password."""
    return f"postgresql://{url.host or url.query.get('host') or 'localhost'}/{url.database or ''}"


def postgresql_engine(url: sa.URL, patience: float) -> sa.Engine:
    """Connections to a server that sync every commit and do not wait for locks for ever."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingDependency(
            "a PostgreSQL storage needs psycopg; run pip install 'labelwise[postgres]'"
        ) from None
    timeout = {} if "connect_timeout" in url.query else {"connect_timeout": 10}
    engine = sa.create_engine(url, pool_pre_ping=True, connect_args=timeout, hide_parameters=True)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.autocommit = True
        connection.execute("SET synchronous_commit = on")  # on disk when we say so
        connection.execute(f"SET lock_timeout = {int(patience * 1000)}")
        connection.autocommit = False

    return engine
