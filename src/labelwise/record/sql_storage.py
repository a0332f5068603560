"""Storage in an SQL database through SQLAlchemy: an SQLite file, or PostgreSQL for teams.

Three tables: campaigns with the length of their record, events by campaign and number, and the
newest snapshot of each campaign. Writers to one campaign take turns: an SQLite transaction begins
with the write lock of the file, a PostgreSQL transaction with a lock on the campaign's row. A
commit returns when the events are on disk: SQLite syncs its write-ahead log (WAL) at every commit,
and PostgreSQL sessions set ``synchronous_commit = on``.
"""

import os
import sqlite3
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError

from labelwise.errors import BadInput, StorageFailed, UnknownName, require_extra
from labelwise.record.events import Event, decode_events, encode_event
from labelwise.record.storage import Decide, Storage, check_campaign_name, check_record_start

SCHEMA = 1  # Number of the table layout; the events have their own format number
LOCK_TIMEOUT = 30.0  # Seconds to wait for other writers

_tables = sa.MetaData()
_layout = sa.Table("labelwise_layout", _tables, sa.Column("number", sa.Integer, primary_key=True))
_campaigns = sa.Table(
    "labelwise_campaigns",
    _tables,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("length", sa.BigInteger, nullable=False),
)
_events = sa.Table(
    "labelwise_events",
    _tables,
    sa.Column("campaign", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("body", sa.Text, nullable=False),
    sqlite_with_rowid=False,  # stores the events of a campaign together, in order
)
_snapshots = sa.Table(
    "labelwise_snapshots",
    _tables,
    sa.Column("campaign", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)


def open_sql_storage(
    url: str, *, create: bool = True, timeout: float = LOCK_TIMEOUT
) -> "SqlStorage":
    """Open the storage in the database at a URL; see `labelwise.record.open_storage`."""
    parsed = _parse_storage_url(url)
    if parsed.get_backend_name() == "sqlite":
        file = _find_sqlite_file(parsed, create)
        storage = SqlStorage(_create_sqlite_engine(file, timeout), file.name, file=file)
    else:
        engine = _create_postgresql_engine(parsed, timeout)
        host = parsed.host or parsed.query.get("host") or "localhost"
        secrets = [str(text) for text in (parsed.password, parsed.query.get("password")) if text]
        storage = SqlStorage(engine, f"postgresql://{host}/{parsed.database or ''}", secrets)
    try:
        storage._prepare_tables(create)
    except BaseException:
        storage.close()
        raise
    return storage


class SqlStorage(Storage):
    """Records in an SQL database; safe to use from several threads and processes.

    Example:
        >>> import tempfile
        >>> from labelwise.record.events import Told
        >>> folder = tempfile.TemporaryDirectory()
        >>> storage = open_sql_storage(f"sqlite:///{folder.name}/labels.db")
        >>> storage.append("birds", [Told(at=0.0, id=3, label="owl")], expected=0)
        1
        >>> storage.close()
        >>> open_sql_storage(f"sqlite:///{folder.name}/labels.db").read("birds")[0].label
        'owl'
        >>> folder.cleanup()
    """

    def __init__(
        self, engine: sa.Engine, place: str, secrets: Sequence[str] = (), file: Path | None = None
    ) -> None:
        """Use an engine made by `open_sql_storage`.

        No message contains one of the ``secrets``; ``file`` is None for a server.
        """
        self.place = place
        self._engine, self._secrets, self._file = engine, tuple(secrets), file
        self._pid, self._closed = os.getpid(), False
        self._identity: tuple[int, int] | None = None
        self._inherited: list[object] = []
        weakref.finalize(self, _dispose_engine, engine, self._pid)

    def transact(self, campaign: str, start: int | None, decide: Decide) -> int:
        """Read, decide and append while other writers wait; return the new length."""
        if not start:
            check_campaign_name(campaign)
        with self._begin(writes=True) as connection:
            length = _lock_campaign_row(connection, campaign)
            new: list[Event] = []
            if start is not None and start != length:
                check_record_start(campaign, length, start)
                new = decode_events(_read_lines(connection, campaign, start), campaign, start)
            events = decide(new)
            rows = [
                {"campaign": campaign, "number": number, "body": encode_event(event)}
                for number, event in enumerate(events, start=length)
            ]
            if rows:
                connection.execute(sa.insert(_events), rows)
                change = sa.update(_campaigns).where(_campaigns.c.name == campaign)
                connection.execute(change.values(length=length + len(rows)))
            return length + len(rows)

    def read(self, campaign: str, start: int = 0) -> list[Event]:
        """The events from number ``start`` on; none for an unknown campaign."""
        check_record_start(campaign, start, start)
        with self._begin() as connection:
            lines = _read_lines(connection, campaign, start)
        return decode_events(lines, campaign, start)

    def length(self, campaign: str) -> int:
        """The number of events of a record; 0 for an unknown campaign."""
        with self._begin() as connection:
            return _read_record_length(connection, campaign)

    def campaigns(self) -> list[str]:
        """The names of all campaigns, sorted."""
        query = sa.select(_campaigns.c.name).where(_campaigns.c.length > 0)
        with self._begin() as connection:
            return sorted(connection.scalars(query))

    def save_snapshot(self, campaign: str, number: int, body: bytes) -> None:
        """Store a snapshot of the first ``number`` events, unless there is a newer one."""
        check_campaign_name(campaign)
        with self._begin(writes=True) as connection:
            check_record_start(campaign, _lock_campaign_row(connection, campaign), number)
            here = _snapshots.c.campaign == campaign
            kept = connection.scalar(sa.select(_snapshots.c.number).where(here))
            if kept is not None and kept > number:
                return
            connection.execute(sa.delete(_snapshots).where(here))
            row = {"campaign": campaign, "number": number, "body": body}
            connection.execute(sa.insert(_snapshots), row)

    def load_snapshot(self, campaign: str) -> tuple[int, bytes] | None:
        """The newest snapshot and the number of events that it covers, or None."""
        query = sa.select(_snapshots.c.number, _snapshots.c.body)
        with self._begin() as connection:
            row = connection.execute(query.where(_snapshots.c.campaign == campaign)).first()
        return None if row is None else (row.number, bytes(row.body))

    def close(self) -> None:
        """Close files and connections; the storage cannot be used afterwards."""
        self._closed = True
        self._engine.dispose()

    @contextmanager
    def _begin(self, writes: bool = False) -> Iterator[sa.Connection]:
        """Begin a transaction: committed at the end, rolled back on any error."""
        if self._closed:
            raise StorageFailed(f"{self.place} was closed; open it again")
        if self._pid != os.getpid():  # after a fork: two processes cannot share a connection
            self._inherited.append(self._engine.pool)  # the child must not even close them
            self._engine.dispose(close=False)
            self._pid = os.getpid()
        if self._file is not None and self._identity is not None:
            try:  # in a deleted or replaced file labels would be lost
                found = os.stat(self._file)
            except OSError as error:
                gone = f"{self.place} is gone ({error.strerror}); put it back"
                raise StorageFailed(gone) from None
            if (found.st_dev, found.st_ino) != self._identity:
                raise StorageFailed(f"{self.place} was replaced by another file; open it again")
        try:
            with self._engine.connect() as connection, connection.begin():
                if self._file is not None:  # the driver itself begins no transactions
                    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
                yield connection
        except SQLAlchemyError as error:
            raise explain_sql_error(error, self.place, self._secrets) from None

    def _prepare_tables(self, create: bool) -> None:
        """Create the tables if needed, and check their layout number."""
        with self._begin() as connection:
            found = _read_layout_number(connection)
        if found is None:
            if not create:
                raise UnknownName(f"{self.place} does not contain a labelwise record")
            with self._begin(writes=True) as connection:
                _create_tables(connection, self.place)
                found = _read_layout_number(connection)
        if found != SCHEMA:
            age = "a newer" if found is None or found > SCHEMA else "an older"
            raise StorageFailed(
                f"{self.place} was written by {age} labelwise (layout {found}); "
                f"this one reads layout {SCHEMA}: use the version that fits"
            )
        if self._file is not None:
            status = os.stat(self._file)
            self._identity = (status.st_dev, status.st_ino)


# Queries


def _read_layout_number(connection: sa.Connection) -> int | None:
    if not sa.inspect(connection).has_table(_layout.name):
        return None
    number: int | None = connection.scalar(sa.select(sa.func.max(_layout.c.number)))
    return number


def _create_tables(connection: sa.Connection, place: str) -> None:
    """Create the tables, unless another process did so in the meantime."""
    if connection.dialect.name == "postgresql":  # two processes cannot create a table at once
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(7_210_419_604)))
    if _read_layout_number(connection) is not None:
        return
    if connection.dialect.name == "sqlite" and sa.inspect(connection).get_table_names():
        raise BadInput(f"{place} is another program's database; give the record its own file")
    _tables.create_all(connection)
    connection.execute(sa.insert(_layout), {"number": SCHEMA})


def _read_record_length(connection: sa.Connection, campaign: str) -> int:
    query = sa.select(_campaigns.c.length).where(_campaigns.c.name == campaign)
    return connection.scalar(query) or 0


def _lock_campaign_row(connection: sa.Connection, campaign: str) -> int:
    """Wait for the turn to write to a campaign, and return the length of its record.

    SQLite has waited already: its transaction began with the lock.
    """
    query = sa.select(_campaigns.c.length).where(_campaigns.c.name == campaign).with_for_update()
    length = connection.scalar(query)
    if length is None and connection.dialect.name == "postgresql":
        insert = postgresql.insert(_campaigns).values(name=campaign, length=0)
        connection.execute(insert.on_conflict_do_nothing())
        length = connection.scalar(query)
    elif length is None:
        connection.execute(sa.insert(_campaigns), {"name": campaign, "length": 0})
    return length or 0


def _read_lines(connection: sa.Connection, campaign: str, start: int) -> list[str]:
    """The lines of the events from ``start`` to the end of the record, or an error."""
    length = _read_record_length(connection, campaign)
    if length <= start:
        return []
    chosen = (_events.c.campaign == campaign, _events.c.number.between(start, length - 1))
    query = sa.select(_events.c.number, _events.c.body).where(*chosen)
    # Sorted here: a server with a full disk cannot sort, but must still be readable.
    lines = [body for _, body in sorted(map(tuple, connection.execute(query)))]
    if len(lines) != length - start:
        raise StorageFailed(
            f"the record of {campaign!r} is damaged: {length - start - len(lines)} of its events "
            f"from number {start} on are missing; restore it from a backup"
        )
    return lines


# Engines


def _parse_storage_url(url: str) -> sa.URL:
    """Parse a URL of a known kind. It may contain a password, so no message quotes it."""
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError):
        raise BadInput(
            "the storage's URL cannot be read; write postgresql+psycopg://user@host:5432/database "
            "and quote the characters :@/? in a password as %3A %40 %2F %3F"
        ) from None
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
        raise BadInput(
            f"no storage is called {parsed.drivername!r}; choose sqlite:///labels.db, "
            "postgresql+psycopg://user@host/database or memory://"
        )
    return parsed


def _find_sqlite_file(url: sa.URL, create: bool) -> Path:
    """The file of a URL; it must exist unless it may be created."""
    if not url.database or url.database.startswith((":memory:", "file:")) or url.query or url.host:
        raise BadInput(
            "an SQLite storage is a file: sqlite:///labels.db, or sqlite:////absolute/path.db; "
            "for one without a file use memory://"
        )
    file = Path(url.database).absolute()
    if not create and not file.exists():
        raise UnknownName(f"there is no file {file}")
    if not file.parent.is_dir():
        raise BadInput(f"there is no folder {file.parent} for the record {file.name}; create it")
    return file


def _dispose_engine(engine: sa.Engine, pid: int) -> None:
    """Close the connections of a storage that nobody closed; not those inherited by a fork."""
    if os.getpid() == pid:
        engine.dispose()


def _create_sqlite_engine(file: Path, timeout: float) -> sa.Engine:
    """An engine that syncs every commit; `SqlStorage` begins its transactions."""
    readable = _describe_read_only_file(file)
    engine = sa.create_engine(
        sa.URL.create(
            "sqlite", database=f"file:{quote(str(file))}" if readable else str(file), query=readable
        ),
        connect_args={"timeout": timeout},
        hide_parameters=True,
    )

    @sa.event.listens_for(engine, "connect")
    def prepare_connection(connection: Any, _: object) -> None:
        connection.isolation_level = None
        # A text with a flipped bit is reported with its event, not as a failure of the database.
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        connection.execute("PRAGMA synchronous = FULL")
        if not readable and connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            _switch_to_wal(connection, timeout)

    return engine


def _describe_read_only_file(file: Path) -> dict[str, str]:
    """SQLite's options for a record that can only be read; empty for one that can be written.

    SQLite needs two files next to one in WAL mode. Where they cannot be made, the file is read as
    one that nobody changes; so it must have been closed properly.
    """
    if not file.exists() or (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)):
        return {}
    log = file.with_name(file.name + "-wal")
    closed = not (log.exists() and log.stat().st_size)
    return {"uri": "true", "mode": "ro"} | ({"immutable": "1"} if closed else {})


def _switch_to_wal(connection: Any, timeout: float) -> None:
    """Switch the file to WAL; SQLite does not wait if another process does so right now."""
    end = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > end:
                raise
        time.sleep(0.01)


def _create_postgresql_engine(url: sa.URL, timeout: float) -> sa.Engine:
    """An engine that syncs every commit and does not wait for locks forever."""
    with require_extra("a PostgreSQL storage needs psycopg", "postgres"):
        import psycopg  # noqa: F401
    limit = {} if "connect_timeout" in url.query else {"connect_timeout": 10}
    engine = sa.create_engine(url, pool_pre_ping=True, connect_args=limit, hide_parameters=True)

    @sa.event.listens_for(engine, "connect")
    def prepare_connection(connection: Any, _: object) -> None:
        connection.autocommit = True
        connection.execute("SET synchronous_commit = on")
        connection.execute(f"SET lock_timeout = {int(timeout * 1000)}")
        connection.autocommit = False

    return engine


# Errors

_LOST_CONNECTION = "the connection was lost; check whether this was recorded, then try again"

_ADVICE = (
    ("SQLITE_FULL 53100", "the disk is full; free some space and try again"),
    ("SQLITE_IOERR", "the disk could not be read or written; is it full or gone?"),
    (
        "SQLITE_BUSY SQLITE_LOCKED 55P03",
        "another process has been writing to it for too long; try again",
    ),
    ("SQLITE_READONLY", "it is read-only; change its permissions or its folder's"),
    ("SQLITE_PERM", "it may not be opened; change its permissions"),
    ("SQLITE_CANTOPEN", "it cannot be opened; does its folder exist, and is it writable?"),
    ("SQLITE_NOTADB", "it is not a database; give the record its own file"),
    ("SQLITE_CORRUPT", "its file is damaged; restore it from a backup"),
    ("53", "the server is out of resources; try again later"),
    ("25006", "the server accepts no writes now; is it a standby?"),
    ("42501", "this user has no permission for that; ask for it"),
    ("28", "the server refused the login; check the user and the password"),
    ("3D000", "there is no such database; create it first"),
    ("57", "the server stopped; check whether this was recorded, then try again"),
    ("08", _LOST_CONNECTION),
)
"""Advice by the beginnings of SQLite's error names and PostgreSQL's error codes."""


def explain_sql_error(
    error: SQLAlchemyError, place: str, secrets: Sequence[str] = ()
) -> StorageFailed:
    """Convert an SQLAlchemy error to an error with advice."""
    original = getattr(error, "orig", None) or error
    code = getattr(original, "sqlite_errorname", getattr(original, "sqlstate", None))
    found = [words for codes, words in _ADVICE if code and code.startswith(tuple(codes.split()))]
    if found:
        words = found[0]
    elif isinstance(error, DBAPIError) and error.connection_invalidated:
        words = _LOST_CONNECTION
    elif isinstance(error, OperationalError) and code is None:
        words = "the server cannot be reached; check that it runs and its address"
    else:
        words = "the database failed"
    details = hide_secrets(" ".join(str(original).split()), secrets)
    return StorageFailed(f"{place}: {words} ({details})")


def hide_secrets(text: str, secrets: Sequence[str]) -> str:
    """Replace every secret, also in its URL-quoted forms, by ***.

    Example:
        >>> hide_secrets("no route to postgresql://ann:a%2Fb@host", ["a/b"])
        'no route to postgresql://ann:***@host'
    """
    for secret in secrets:
        for form in (secret, quote(secret, safe=""), quote(secret), quote_plus(secret)):
            text = text.replace(form, "***")
    return text
