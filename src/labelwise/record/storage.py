"""Where the records of campaigns are kept: what any storage must do, and how to open one.

A storage holds, for each campaign, a list of events that is only ever appended to. What was
appended is on disk when `append` returns; what failed left no trace. `transact` is the one step
in which deciding and writing cannot be interleaved with anybody else's.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from labelwise.errors import BadInput, Conflict, MissingDependency
from labelwise.record.events import Event

Decide = Callable[[list[Event]], Sequence[Event]]


class Storage(Protocol):
    """Append-only records of campaigns, by name."""

    def append(self, campaign: str, events: Sequence[Event], *, expected: int | None = None) -> int:
        """Add events to a record, all or none.

        Args:
            campaign: its name; a new name begins a new record.
            events: what to add.
            expected: the length the record should have before, or None for any.

        Returns:
            The new length.

        Raises:
            Conflict: if the record has another length than expected.
            StorageFailed: if it could not be written; then nothing was, unless the connection to
                a server was lost at the very end, which the message says.
        """
        ...

    def read(self, campaign: str, start: int = 0) -> list[Event]:
        """The events from number ``start`` on; an unknown campaign has none."""
        ...

    def length(self, campaign: str) -> int:
        """How many events the record has; 0 for an unknown campaign."""
        ...

    def campaigns(self) -> list[str]:
        """The names of all campaigns, in alphabetical order."""
        ...

    def transact(self, campaign: str, start: int, decide: Decide) -> int:
        """Read, decide and append as one step that nobody else can come between.

        ``decide`` is called once with the events from number ``start`` on, while all other
        writers wait; what it returns is appended. An error in it changes nothing and is passed
        on. It must be quick and must not use the storage itself.

        Returns:
            The new length.
        """
        ...

    def keep_snapshot(self, campaign: str, number: int, body: bytes) -> None:
        """Keep a summary of the first ``number`` events; an older one is replaced."""
        ...

    def snapshot(self, campaign: str) -> tuple[int, bytes] | None:
        """The newest summary kept and how many events it sums up, or None."""
        ...

    def close(self) -> None:
        """Let go of files and connections; using the storage again is an error."""
        ...


def open_storage(url: str, *, create: bool = True) -> Storage:
    """Open the storage at a URL.

    Args:
        url: ``sqlite:///labels.db`` (a file; four slashes for an absolute path),
            ``postgresql+psycopg://user@host/database`` or ``memory://`` (lost at the end).
        create: make the file and the tables if they are not there.

    Raises:
        BadInput: if the URL cannot be understood.
        UnknownName: if there is no record there and ``create`` is False.
        MissingDependency: if the driver is not installed.
        StorageFailed: if it cannot be opened.

    Example:
        >>> from labelwise.record.events import Told
        >>> storage = open_storage("memory://")
        >>> storage.append("birds", [Told(at=0.0, id=3, label="owl")])
        1
        >>> storage.read("birds")[0].label
        'owl'
    """
    if not isinstance(url, str) or "://" not in url:
        raise BadInput(
            "a storage is given as a URL: sqlite:///labels.db, "
            "postgresql+psycopg://user@host/database or memory://"
        )
    if url.startswith("memory://"):
        from labelwise.record.memory_storage import MemoryStorage

        return MemoryStorage()
    try:
        from labelwise.record.sql import open_sql
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "sqlalchemy":
            raise
        raise MissingDependency(
            "a campaign needs SQLAlchemy; run pip install 'labelwise[web]'"
        ) from error
    return open_sql(url, create=create)


def check_name(campaign: str) -> None:
    """Refuse a campaign's name that some storage could not hold."""
    if not isinstance(campaign, str) or not campaign or not campaign.isprintable():
        raise BadInput(f"a campaign's name must be a text that can be printed; got {campaign!r}")
    if len(campaign) > 200:
        raise BadInput(f"a campaign's name must have at most 200 letters; got {len(campaign)}")


def check_length(campaign: str, length: int, expected: int | None) -> None:
    """Refuse to append to a record that others have appended to."""
    if expected is not None and length != expected:
        raise Conflict(
            f"the record of {campaign!r} has {length} events, not {expected}; "
            "read it again and retry"
        )


def check_start(campaign: str, length: int, start: int) -> None:
    """Refuse to go on from further than the record reaches."""
    if start < 0:
        raise BadInput(f"events are numbered from 0; got {start}")
    if start > length:
        raise Conflict(
            f"the record of {campaign!r} has {length} events, fewer than the {start} read before; "
            "was an older copy put in its place? open it again"
        )
