"""Storage of campaign records: the interface, and the one in memory.

A storage holds an append-only list of events per campaign. When `append` or `transact` returns,
the events are on disk; if it fails, nothing was written. `transact` reads, decides and writes as
one step that other writers cannot interleave with.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from labelwise.errors import BadInput, Conflict, StorageFailed
from labelwise.record.events import Event, decode_events, encode_event

Decide = Callable[[list[Event]], Sequence[Event]]


class Storage(ABC):
    """Append-only records of campaigns, by name. Safe to use from several threads."""

    def append(self, campaign: str, events: Sequence[Event], *, expected: int | None = None) -> int:
        """Append events to a record, all or none.

        Args:
            campaign: its name; a new name begins a new record.
            events: the events to append.
            expected: the length that the record must have before, or None for any.

        Returns:
            The new length.

        Raises:
            Conflict: if the record has another length than expected.
            StorageFailed: if nothing could be written. The message says so if the connection to a
                server was lost during the commit, where the outcome is unknown.
        """

        def decide(new: list[Event]) -> Sequence[Event]:
            if new and expected is not None:
                raise Conflict(
                    f"the record of {campaign!r} has {expected + len(new)} events, "
                    f"not {expected}; read it again and retry"
                )
            return events

        return self.transact(campaign, expected, decide)

    @abstractmethod
    def transact(self, campaign: str, start: int | None, decide: Decide) -> int:
        """Read, decide and append as one step while other writers wait.

        Args:
            campaign: its name.
            start: ``decide`` gets the events from this number on; none if None.
            decide: returns the events to append. It is called once; its errors are passed on and
                nothing is written. It must be quick and must not use the storage.

        Returns:
            The new length.
        """

    @abstractmethod
    def read(self, campaign: str, start: int = 0) -> list[Event]:
        """The events from number ``start`` on; none for an unknown campaign."""

    @abstractmethod
    def length(self, campaign: str) -> int:
        """The number of events of a record; 0 for an unknown campaign."""

    @abstractmethod
    def campaigns(self) -> list[str]:
        """The names of all campaigns, sorted."""

    @abstractmethod
    def save_snapshot(self, campaign: str, number: int, body: bytes) -> None:
        """Store a snapshot of the first ``number`` events, unless there is a newer one."""

    @abstractmethod
    def load_snapshot(self, campaign: str) -> tuple[int, bytes] | None:
        """The newest snapshot and the number of events that it covers, or None."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections; the storage cannot be used afterwards."""


class MemoryStorage(Storage):
    """Records in a dict, lost when the process ends. Events are stored as text, as in files.

    Example:
        >>> from labelwise.record.events import Skipped
        >>> storage = MemoryStorage()
        >>> storage.append("birds", [Skipped(at=0.0, id=3, reason="blurred")], expected=0)
        1
        >>> storage.campaigns(), storage.length("birds"), storage.length("fish")
        (['birds'], 1, 0)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, list[str]] = {}
        self._snapshots: dict[str, tuple[int, bytes]] = {}
        self._closed = False

    def transact(self, campaign: str, start: int | None, decide: Decide) -> int:
        """Read, decide and append; return the new length."""
        if not start:
            check_campaign_name(campaign)
        with self._lock:
            record = self._read_lines(campaign)
            check_record_start(campaign, len(record), start)
            new = [] if start is None else decode_events(record[start:], campaign, start)
            lines = [encode_event(event) for event in decide(new)]
            if lines:
                record = self._records.setdefault(campaign, record)
                record.extend(lines)
            return len(record)

    def read(self, campaign: str, start: int = 0) -> list[Event]:
        """The events from number ``start`` on; none for an unknown campaign."""
        check_record_start(campaign, start, start)
        with self._lock:
            lines = self._read_lines(campaign)[start:]
        return decode_events(lines, campaign, start)

    def length(self, campaign: str) -> int:
        """The number of events of a record; 0 for an unknown campaign."""
        with self._lock:
            return len(self._read_lines(campaign))

    def campaigns(self) -> list[str]:
        """The names of all campaigns, sorted."""
        with self._lock:
            self._read_lines("")
            return sorted(self._records)

    def save_snapshot(self, campaign: str, number: int, body: bytes) -> None:
        """Store a snapshot of the first ``number`` events, unless there is a newer one."""
        check_campaign_name(campaign)
        with self._lock:
            check_record_start(campaign, len(self._read_lines(campaign)), number)
            kept = self._snapshots.get(campaign)
            if kept is None or kept[0] <= number:
                self._snapshots[campaign] = (number, bytes(body))

    def load_snapshot(self, campaign: str) -> tuple[int, bytes] | None:
        """The newest snapshot and the number of events that it covers, or None."""
        with self._lock:
            self._read_lines(campaign)
            return self._snapshots.get(campaign)

    def close(self) -> None:
        """Reject further use."""
        self._closed = True

    def _read_lines(self, campaign: str) -> list[str]:
        if self._closed:
            raise StorageFailed("the storage was closed; open it again")
        return self._records.get(campaign, [])


def check_campaign_name(campaign: str) -> None:
    """Reject campaign names that some storage could not hold."""
    if not isinstance(campaign, str) or not campaign or not campaign.isprintable():
        raise BadInput(f"a campaign's name must be a printable text; got {campaign!r}")
    if len(campaign) > 200:
        raise BadInput(f"a campaign's name must have at most 200 characters; got {len(campaign)}")


def check_record_start(campaign: str, length: int, start: int | None) -> None:
    """Reject a start that is negative or beyond the end of the record."""
    if start is None:
        return
    if start < 0:
        raise BadInput(f"events are numbered from 0; got {start}")
    if start > length:
        raise Conflict(
            f"the record of {campaign!r} has {length} events, fewer than the {start} read before; "
            "was it replaced by an older copy? open it again"
        )
