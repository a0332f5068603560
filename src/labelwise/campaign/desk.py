"""Desk: all that people do with a campaign, without a model.

Every method reads the newest state, checks, and appends events in one step under the record's lock,
so that it makes no difference how many threads and processes do so at once.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from labelwise.campaign import operations
from labelwise.campaign.explanations import explain_pick
from labelwise.campaign.labels import resolve_labels
from labelwise.campaign.operations import Seconds, check_expected, check_person, whole_ids
from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput, UnknownName
from labelwise.record.events import Added, Changed, Event, Label, Started
from labelwise.record.group_commit import GroupCommit, Operation
from labelwise.record.ledger import Ledger
from labelwise.record.storage import Storage

T = TypeVar("T")


class Desk:
    """Where labels are given out and taken in; safe for many threads and processes.

    Example:
        >>> from labelwise.campaign import open_storage
        >>> desk = Desk("birds", open_storage("memory://"))
        >>> settings = desk.start(1000, classes=("owl", "wren"))
        >>> length = desk.tell({3: "owl", 8: "wren"}, by="ann", anything=True)
        >>> desk.undo("ann")
        8
        >>> dict(desk.ledger().labels)
        {3: 'owl'}
    """

    def __init__(
        self, name: str, storage: Storage, *, clock: Callable[[], float] = time.time
    ) -> None:
        """Sit down at a campaign; nothing is read yet.

        Args:
            name: of the campaign.
            storage: where its record is.
            clock: gives the seconds since the epoch.
        """
        self.name, self.storage = name, storage
        self._groups = GroupCommit(name, storage, clock)
        self._settings: tuple[dict[str, Any], Settings] | None = None

    def ledger(self) -> Ledger:
        """The newest state, to read. It changes under later calls; threads use `look` instead."""
        return self._groups.ledger()

    def look(self, function: Callable[[Ledger], T]) -> T:
        """``function(ledger)`` of the newest state, while no other thread changes it."""
        return self._groups.look(function)

    @property
    def settings(self) -> Settings:
        """The settings as they are now."""
        return self.look(self.settings_of)

    def commit(self, operation: Operation[T], *, expected: int | None = None) -> T:
        """Run ``operation(ledger, now) -> (events, answer)`` under the lock, and append its events.

        Raises:
            Conflict: the record is not ``expected`` events long.
            StorageFailed: it could not be written; nothing of the operation is kept.
        """

        def checked(ledger: Ledger, now: float) -> tuple[Sequence[Event], T]:
            self.settings_of(ledger)
            check_expected(ledger, expected)
            return operation(ledger, now)

        return self._groups.commit(checked)

    def start(self, items: int, *, by: str = "", **settings: Any) -> Settings:
        """Begin the campaign, or find that it was begun with the same settings.

        Args:
            items: how many the pool has; a pool that grew is noted.
            by: who begins it.
            **settings: see `Settings`; of a campaign that is there, only those to be checked.
        """
        wanted = Settings.from_dict(settings)

        def begin(ledger: Ledger, now: float) -> tuple[list[Event], Settings]:
            if not ledger.length:
                return [Started(now, wanted.to_dict(), items, by)], wanted
            current = self.settings_of(ledger)
            _check_same(self.name, current, wanted, settings)
            if items < ledger.items:
                raise BadInput(
                    f"the pool has {items} items but campaign {self.name!r} was told of "
                    f"{ledger.items}; give it the same pool, or one with items added"
                )
            grown = items - ledger.items
            return ([Added(now, grown)] if grown else []), current

        check_person(by)
        return self._groups.commit(begin)

    def change(self, *, by: str = "", expected: int | None = None, **settings: Any) -> Settings:
        """Change settings from now on; batches asked before stay as they are."""

        def decide(ledger: Ledger, now: float) -> tuple[list[Event], Settings]:
            old = self.settings_of(ledger)
            new = old.changed(**_same_classes(ledger, old, settings))
            before, after = old.to_dict(), new.to_dict()
            different = {name: value for name, value in after.items() if before[name] != value}
            return ([Changed(now, different, by)] if different else []), new

        check_person(by)
        return self.commit(decide, expected=expected)

    def tell(
        self,
        labels: Mapping[int, Label],
        *,
        by: str = "",
        seconds: Seconds = None,
        anything: bool = False,
        expected: int | None = None,
    ) -> int:
        """Record labels; another one by the same person replaces their last.

        Args:
            labels: by item id: a class (by name or number), or a value.
            by: who gave them.
            seconds: how long each took, or all of them alike.
            anything: whether to take labels of items that were never asked for.
            expected: how long the record must be.

        Returns:
            The length of the record with the labels in it.
        """
        check_person(by)

        def decide(ledger: Ledger, now: float) -> tuple[list[Event], int]:
            events = operations.told(
                ledger,
                self.settings_of(ledger),
                labels,
                by=by,
                seconds=seconds,
                anything=anything,
                now=now,
            )
            return events, ledger.length + len(events)

        return self.commit(decide, expected=expected)

    def tell_and_lend(
        self,
        labels: Mapping[int, Label],
        *,
        by: str,
        count: int,
        seconds: Seconds = None,
        anything: bool = False,
        expected: int | None = None,
    ) -> list[int]:
        """Record labels and borrow the next items, in one step; both or neither.

        Returns:
            The ids of up to ``count`` items for this person to label.
        """
        check_person(by)

        def decide(ledger: Ledger, now: float) -> tuple[list[Event], list[int]]:
            settings = self.settings_of(ledger)
            events = operations.told(
                ledger, settings, labels, by=by, seconds=seconds, anything=anything, now=now
            )
            lent, ids = operations.lent(
                ledger, settings, by=by, count=count, now=now, without=labels
            )
            return [*events, *lent], ids

        return self.commit(decide, expected=expected)

    def withdraw(self, ids: Any, *, by: str = "", expected: int | None = None) -> None:
        """Take back this person's labels or skips of some items."""
        check_person(by)
        items = whole_ids(ids)
        self.commit(
            lambda ledger, now: (operations.withdrawn(ledger, items, by=by, now=now), None),
            expected=expected,
        )

    def skip(
        self, ids: Any, *, reason: str = "", by: str = "", expected: int | None = None
    ) -> None:
        """Say that items should not be labelled, and why."""
        check_person(by)
        items = whole_ids(ids)
        self.commit(
            lambda ledger, now: (
                operations.skipped(ledger, items, reason=reason, by=by, now=now),
                None,
            ),
            expected=expected,
        )

    def resolve(
        self, labels: Mapping[int, Label], *, by: str = "", expected: int | None = None
    ) -> None:
        """Settle what people disagree about: these labels count, whatever was voted."""
        check_person(by)
        self.commit(
            lambda ledger, now: (
                operations.resolved(ledger, self.settings_of(ledger), labels, by=by, now=now),
                None,
            ),
            expected=expected,
        )

    def lend(self, by: str, count: int = 1) -> list[int]:
        """Items for this person to label; nobody else gets them while the loan lives.

        What the person holds already comes first. The list is shorter, or empty, where no more
        items wait.
        """
        check_person(by)
        return self.commit(
            lambda ledger, now: operations.lent(
                ledger, self.settings_of(ledger), by=by, count=count, now=now
            )
        )

    def give_back(self, by: str, ids: Any = None) -> None:
        """Let others label what was lent to this person: some items, or all."""
        check_person(by)
        items = None if ids is None else whole_ids(ids)
        self.commit(lambda ledger, now: (operations.returned(ledger, items, by=by, now=now), None))

    def undo(self, by: str) -> int | None:
        """Take back this person's last label or skip, and lend them the item again.

        Returns:
            The item's id, or None where there is nothing to take back.
        """
        check_person(by)
        return self.commit(
            lambda ledger, now: operations.undone(ledger, self.settings_of(ledger), by=by, now=now)
        )

    def labels(self) -> dict[int, Label]:
        """The label of every item that has one, by the campaign's rule of resolution."""
        return self.look(lambda ledger: resolve_labels(ledger, self.settings_of(ledger)))

    def labelled(self) -> list[dict[str, Any]]:
        """A row per labelled item, by id: what it is called, weighs, and who said so.

        ``weight`` is how many items of the pool the pick stands for, None where its strategy gave
        no weights; ``validation`` tells items that are only measured on.
        """

        def rows(ledger: Ledger) -> list[dict[str, Any]]:
            labels = resolve_labels(ledger, self.settings_of(ledger))
            return [
                {
                    "id": item,
                    "label": label,
                    "weight": ledger.weight_of(item),
                    "batch": ledger.batch_of(item),
                    "validation": item in ledger.validation,
                    "votes": dict(ledger.votes.get(item, {})),
                }
                for item, label in sorted(labels.items())
            ]

        return self.look(rows)

    def why(self, item: int) -> str:
        """One sentence on why an item was chosen."""

        def find(ledger: Ledger) -> str:
            number, rank = ledger.batch_of(item), ledger.rank_of(item)
            if number is None or rank is None:
                return "Nobody asked for it: its label was told all the same."
            return explain_pick(ledger.batches[number - 1].asked, rank)

        return self.look(find)

    def settings_of(self, ledger: Ledger) -> Settings:
        """The settings that a ledger of this campaign holds."""
        if not ledger.length:
            raise UnknownName(f"there is no campaign called {self.name!r}; start it first")
        known = self._settings
        if known is None or known[0] != ledger.settings:
            known = (dict(ledger.settings), Settings.from_dict(ledger.settings))
            self._settings = known
        return known[1]


def _same_classes(ledger: Ledger, old: Settings, settings: dict[str, Any]) -> dict[str, Any]:
    """Classes as the record has them: the text 3 and the number 3 are one class, told before."""
    wanted = settings.get("classes")
    if not isinstance(wanted, list | tuple):
        return settings
    told = {label for votes in ledger.votes.values() for label in votes.values()}
    known: dict[str, Any] = {str(label): label for label in (*told, *(old.classes or ()))}
    kinds = {type(label) for label in known.values()}
    if kinds == {int} and all(str(name).isdecimal() for name in wanted):
        known = {str(name): int(name) for name in wanted} | known
    elif kinds == {str} and any(str(name) in known for name in wanted):
        known = {str(name): str(name) for name in wanted} | known
    return {**settings, "classes": [known.get(str(name), name) for name in wanted]}


def _check_same(name: str, current: Settings, wanted: Settings, given: Mapping[str, Any]) -> None:
    """Refuse settings that are not those of a campaign that is there."""
    now, asked = current.to_dict(), wanted.to_dict()
    for key in given:
        if now[key] != asked[key]:
            raise BadInput(
                f"campaign {name!r} has {key}={now[key]!r}, not {asked[key]!r}; leave it out, "
                f"or call change({key}=...) on the campaign"
            )
