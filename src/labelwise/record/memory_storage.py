"""A storage in memory: for trying things out and for tests; gone when the process ends.

It holds the same lines of text as the others, so that what works here works there.
"""

import threading
from collections.abc import Sequence

from labelwise.errors import BadInput, StorageFailed
from labelwise.record.events import Event, decode, encode
from labelwise.record.storage import Decide, check_length, check_name, check_start


class MemoryStorage:
    """Records in a dict; safe to use from several threads.

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

    def append(self, campaign: str, events: Sequence[Event], *, expected: int | None = None) -> int:
        """Add events to a record, all or none; the new length."""
        check_name(campaign)
        lines = [encode(event) for event in events]
        with self._lock:
            record = self._record(campaign)
            check_length(campaign, len(record), expected)
            return self._extend(campaign, lines)

    def read(self, campaign: str, start: int = 0) -> list[Event]:
        """The events from number ``start`` on; an unknown campaign has none."""
        if start < 0:
            raise BadInput(f"events are numbered from 0; got {start}")
        with self._lock:
            lines = self._record(campaign)[start:]
        return [decode(line) for line in lines]

    def length(self, campaign: str) -> int:
        """How many events the record has; 0 for an unknown campaign."""
        with self._lock:
            return len(self._record(campaign))

    def campaigns(self) -> list[str]:
        """The names of all campaigns, in alphabetical order."""
        with self._lock:
            self._record("")
            return sorted(self._records)

    def transact(self, campaign: str, start: int, decide: Decide) -> int:
        """Read, decide and append while all other writers wait; the new length."""
        check_name(campaign)
        with self._lock:
            record = self._record(campaign)
            check_start(campaign, len(record), start)
            events = decide([decode(line) for line in record[start:]])
            return self._extend(campaign, [encode(event) for event in events])

    def keep_snapshot(self, campaign: str, number: int, body: bytes) -> None:
        """Keep a summary of the first ``number`` events, unless a newer one is there."""
        check_name(campaign)
        with self._lock:
            check_start(campaign, len(self._record(campaign)), number)
            kept = self._snapshots.get(campaign)
            if kept is None or kept[0] <= number:
                self._snapshots[campaign] = (number, bytes(body))

    def snapshot(self, campaign: str) -> tuple[int, bytes] | None:
        """The newest summary kept and how many events it sums up, or None."""
        with self._lock:
            self._record(campaign)
            return self._snapshots.get(campaign)

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._closed = True

    def _record(self, campaign: str) -> list[str]:
        if self._closed:
            raise StorageFailed("the storage was closed; open it again")
        return self._records.get(campaign, [])

    def _extend(self, campaign: str, lines: list[str]) -> int:
        record = self._records.get(campaign, [])
        if lines:
            record = self._records.setdefault(campaign, record)
            record.extend(lines)
        return len(record)
