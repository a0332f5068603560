"""A storage in an SQL database through SQLAlchemy: SQLite in a file, or PostgreSQL for teams.

Three tables: campaigns with the lengths of their records, events by campaign and number, and the
newest snapshot of each. Writers to one campaign come one after the other: in SQLite because a
transaction begins with the file's write lock, in PostgreSQL because it begins with a lock on the
campaign's row. A commit returns when the database has the events on disk: SQLite writes ahead to a
log (WAL) and syncs it at every commit, PostgreSQL is told to do so whatever its own default.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import SQLAlchemyError

from labelwise.errors import BadInput, StorageFailed, UnknownName
from labelwise.record import engines
from labelwise.record.events import Event, decode, encode
from labelwise.record.sql_errors import failure
from labelwise.record.storage import Decide, check_length, check_name, check_start

SCHEMA = 1
"""The number of the tables' layout; the events inside have their own."""

PATIENCE = 30.0
"""Seconds to wait for other writers before giving up."""

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
    sqlite_with_rowid=False,  # the events of a campaign lie together, in order
)
_snapshots = sa.Table(
    "labelwise_snapshots",
    _tables,
    sa.Column("campaign", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)


def open_sql(url: str, *, create: bool = True, patience: float = PATIENCE) -> "SqlStorage":
    """Open the storage in the database at a URL; see `labelwise.campaign.open_storage`."""
    parsed = engines.parse(url)
    if parsed.get_backend_name() == "sqlite":
        file = engines.sqlite_file(parsed, create)
        storage = SqlStorage(engines.sqlite_engine(file, patience), file.name, file=file)
    else:
        engine = engines.postgresql_engine(parsed, patience)
        secrets = engines.secrets_of(parsed)
        storage = SqlStorage(engine, engines.place_of(parsed), secrets)
    try:
        storage._set_up(create)
    except BaseException:
        storage.close()
        raise
    return storage


class SqlStorage:
    """Records in an SQL database; safe to use from several threads and processes.

    Made by `labelwise.campaign.open_storage`.

    Example:
        >>> import tempfile
        >>> from labelwise.record.events import Told
        >>> folder = tempfile.TemporaryDirectory()
        >>> storage = open_sql(f"sqlite:///{folder.name}/labels.db")
        >>> storage.append("birds", [Told(at=0.0, id=3, label="owl")], expected=0)
        1
        >>> storage.close()
        >>> open_sql(f"sqlite:///{folder.name}/labels.db").read("birds")[0].label
        'owl'
        >>> folder.cleanup()
    """

    def __init__(
        self, engine: sa.Engine, place: str, secrets: Sequence[str] = (), file: Path | None = None
    ) -> None:
        """Use an engine.

        Args:
            engine: set up as `open_sql` does.
            place: how messages call the database.
            secrets: texts that no message may show.
            file: the database's file, where it has one.
        """
        self.place = place
        self._engine, self._secrets, self._file = engine, tuple(secrets), file
        self._process, self._closed = os.getpid(), False
        self._identity: tuple[int, int] | None = None
        self._inherited: list[object] = []

    def append(self, campaign: str, events: Sequence[Event], *, expected: int | None = None) -> int:
        """Add events to a record, all or none; the new length."""
        check_name(campaign)
        lines = [encode(event) for event in events]
        with self._begin(writes=True) as connection:
            length = _lock(connection, campaign)
            check_length(campaign, length, expected)
            return _extend(connection, campaign, length, lines)

    def read(self, campaign: str, start: int = 0) -> list[Event]:
        """The events from number ``start`` on; an unknown campaign has none."""
        if start < 0:
            raise BadInput(f"events are numbered from 0; got {start}")
        with self._begin() as connection:
            lines = _lines(connection, campaign, start)
        return [decode(line) for line in lines]

    def length(self, campaign: str) -> int:
        """How many events the record has; 0 for an unknown campaign."""
        with self._begin() as connection:
            return _length(connection, campaign)

    def campaigns(self) -> list[str]:
        """The names of all campaigns, in alphabetical order."""
        query = sa.select(_campaigns.c.name).where(_campaigns.c.length > 0)
        with self._begin() as connection:
            return sorted(connection.scalars(query))

    def transact(self, campaign: str, start: int, decide: Decide) -> int:
        """Read, decide and append while all other writers wait; the new length."""
        check_name(campaign)
        with self._begin(writes=True) as connection:
            length = _lock(connection, campaign)
            check_start(campaign, length, start)
            lines = _lines(connection, campaign, start) if length > start else []
            events = decide([decode(line) for line in lines])
            return _extend(connection, campaign, length, [encode(event) for event in events])

    def keep_snapshot(self, campaign: str, number: int, body: bytes) -> None:
        """Keep a summary of the first ``number`` events, unless a newer one is there."""
        check_name(campaign)
        with self._begin(writes=True) as connection:
            check_start(campaign, _lock(connection, campaign), number)
            here = _snapshots.c.campaign == campaign
            kept = connection.scalar(sa.select(_snapshots.c.number).where(here))
            if kept is not None and kept > number:
                return
            connection.execute(sa.delete(_snapshots).where(here))
            row = {"campaign": campaign, "number": number, "body": body}
            connection.execute(sa.insert(_snapshots), row)

    def snapshot(self, campaign: str) -> tuple[int, bytes] | None:
        """The newest summary kept and how many events it sums up, or None."""
        query = sa.select(_snapshots.c.number, _snapshots.c.body)
        with self._begin() as connection:
            row = connection.execute(query.where(_snapshots.c.campaign == campaign)).first()
        return None if row is None else (row.number, bytes(row.body))

    def close(self) -> None:
        """Let go of files and connections; using the storage again is an error."""
        self._closed = True
        self._engine.dispose()

    @contextmanager
    def _begin(self, writes: bool = False) -> Iterator[sa.Connection]:
        """A transaction: committed at the end, rolled back on any error."""
        if self._closed:
            raise StorageFailed(f"{self.place} was closed; open it again")
        self._leave_parents_connections()
        self._check_file()
        try:
            with self._engine.connect() as connection:
                connection = connection.execution_options(writes=writes)
                with connection.begin():
                    yield connection
        except SQLAlchemyError as error:
            raise failure(error, self.place, self._secrets) from None

    def _leave_parents_connections(self) -> None:
        """After a fork, open connections of one's own: two processes cannot share one."""
        if self._process != os.getpid():
            self._inherited.append(self._engine.pool)  # not even closing them is allowed here
            self._engine.dispose(close=False)
            self._process = os.getpid()

    def _check_file(self) -> None:
        """Refuse to write to a file that was deleted or replaced: nobody would find it again."""
        if self._file is None or self._identity is None:
            return
        try:
            found = os.stat(self._file)
        except OSError as error:
            raise StorageFailed(f"{self.place} is gone ({error.strerror}); put it back") from None
        if (found.st_dev, found.st_ino) != self._identity:
            raise StorageFailed(f"{self.place} was replaced by another file; open it again")

    def _set_up(self, create: bool) -> None:
        """Make the tables if need be, and see that they are of this version."""
        with self._begin() as connection:
            found = _layout_number(connection)
        if found is None:
            if not create:
                raise UnknownName(f"{self.place} holds no labelwise record")
            with self._begin(writes=True) as connection:
                _create(connection, self.place)
                found = _layout_number(connection)
        if found != SCHEMA:
            age = "a newer" if found is None or found > SCHEMA else "an older"
            raise StorageFailed(
                f"{self.place} was written by {age} labelwise (layout {found}); "
                f"this one reads layout {SCHEMA}: use the version that fits"
            )
        if self._file is not None:
            status = os.stat(self._file)
            self._identity = (status.st_dev, status.st_ino)


def _layout_number(connection: sa.Connection) -> int | None:
    if not sa.inspect(connection).has_table(_layout.name):
        return None
    number: int | None = connection.scalar(sa.select(sa.func.max(_layout.c.number)))
    return number


def _create(connection: sa.Connection, place: str) -> None:
    """Make the tables, unless somebody else did so in the meantime."""
    if connection.dialect.name == "postgresql":  # two processes cannot create a table at once
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(7_210_419_604)))
    if _layout_number(connection) is not None:
        return
    if connection.dialect.name == "sqlite" and sa.inspect(connection).get_table_names():
        raise BadInput(f"{place} belongs to something else; give the record a file of its own")
    _tables.create_all(connection)
    connection.execute(sa.insert(_layout), {"number": SCHEMA})


def _length(connection: sa.Connection, campaign: str) -> int:
    query = sa.select(_campaigns.c.length).where(_campaigns.c.name == campaign)
    return connection.scalar(query) or 0


def _lock(connection: sa.Connection, campaign: str) -> int:
    """Wait for one's turn to write to a campaign; its length then.

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


def _lines(connection: sa.Connection, campaign: str, start: int) -> list[str]:
    """The events' texts from ``start`` to the record's end, all of them or an error."""
    length = _length(connection, campaign)
    if length <= start:
        return []
    chosen = (_events.c.campaign == campaign, _events.c.number.between(start, length - 1))
    query = sa.select(_events.c.number, _events.c.body).where(*chosen)
    # Sorted here: a server whose disk is full has no room for sorting, but must still be read.
    lines = [body for _, body in sorted(map(tuple, connection.execute(query)))]
    if len(lines) != length - start:
        raise StorageFailed(
            f"the record of {campaign!r} is damaged: {length - start - len(lines)} of its events "
            f"from number {start} on are missing; restore it from a copy"
        )
    return lines


def _extend(connection: sa.Connection, campaign: str, length: int, lines: list[str]) -> int:
    if not lines:
        return length
    rows = [
        {"campaign": campaign, "number": number, "body": line}
        for number, line in enumerate(lines, start=length)
    ]
    connection.execute(sa.insert(_events), rows)
    new = length + len(lines)
    change = sa.update(_campaigns).where(_campaigns.c.name == campaign).values(length=new)
    connection.execute(change)
    return new
