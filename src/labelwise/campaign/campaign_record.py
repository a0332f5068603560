"""The actions of annotators on the record of a campaign; no model is needed.

Every method reads the newest state, checks and appends events in one transaction, so any number of
threads and processes can work at once.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from labelwise.campaign import operations
from labelwise.campaign.explanations import explain_pick
from labelwise.campaign.labels import resolve_labels
from labelwise.campaign.operations import ItemIds, Seconds, check_annotator
from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput, UnknownName
from labelwise.files import JsonObject
from labelwise.record.events import Added, Changed, Event, Label, Started
from labelwise.record.group_commit import SharedRecord
from labelwise.record.ledger import Ledger
from labelwise.record.storage import Storage
from labelwise.rounds.default_strategies import BASELINE


class CampaignRecord(SharedRecord):
    """The record of a campaign: leases items and stores labels, for many threads and processes.

    Example:
        >>> from labelwise.campaign import open_storage
        >>> record = CampaignRecord("birds", open_storage("memory://"))
        >>> settings = record.start(1000, classes=("owl", "wren"))
        >>> length = record.tell({3: "owl", 8: "wren"}, by="ann", anything=True)
        >>> record.undo("ann")
        8
        >>> dict(record.ledger().labels)
        {3: 'owl'}
    """

    def __init__(
        self, name: str, storage: Storage, *, clock: Callable[[], float] = time.time
    ) -> None:
        """Set up without reading."""
        super().__init__(name, storage, clock)
        self._settings: tuple[JsonObject, Settings] | None = None

    @property
    def settings(self) -> Settings:
        """The current settings."""
        return self.look(self.settings_of)

    def start(self, items: int, *, by: str = "", **settings: Any) -> Settings:
        """Start the campaign, or check that an existing one has the same settings.

        ``items`` is the size of the pool, which may have grown. The ``settings`` are those of
        `Settings`; for an existing campaign, only those to check.
        """
        wanted = Settings.from_dict(settings).check_text()

        def begin(ledger: Ledger, now: float) -> tuple[list[Event], Settings]:
            if not ledger.length:
                return [Started(now, wanted.to_dict(), items, by)], wanted
            current = self.settings_of(ledger)
            _check_same_settings(self.name, current, wanted, settings)
            if items < ledger.items:
                raise BadInput(
                    f"the pool has {items} items but campaign {self.name!r} has {ledger.items}; "
                    "give the same pool, or one with items added"
                )
            grown = items - ledger.items
            return ([Added(now, grown)] if grown else []), current

        check_annotator(by)
        return self.commit(begin)

    def change(self, *, by: str = "", expected: int | None = None, **settings: Any) -> Settings:
        """Change settings; existing batches stay as they are."""

        def decide(ledger: Ledger, now: float) -> tuple[list[Event], Settings]:
            old = self.settings_of(ledger)
            new = old.replace_settings(**_match_class_types(ledger, old, settings))
            before, after = old.to_dict(), new.to_dict()
            different = {name: value for name, value in after.items() if before[name] != value}
            _check_holdout_growth(ledger, old, new)
            return ([Changed(now, different, by)] if different else []), new

        check_annotator(by)
        return self.commit(decide, expected=expected)

    def tell(
        self,
        labels: Mapping[Any, Label],
        *,
        by: str = "",
        seconds: Seconds = None,
        anything: bool = False,
        expected: int | None = None,
    ) -> int:
        """Record labels; a second label by the same annotator replaces the first.

        Args:
            labels: by item id: a class (name or index), or a number.
            by: the annotator.
            seconds: labelling time by item id, or one for all.
            anything: accept labels of items that were never asked for.
            expected: the length that the record must have.

        Returns:
            The new length of the record.
        """
        if anything:
            self._check_unasked_items(labels)

        def decide(ledger: Ledger, now: float) -> tuple[list[Event], int]:
            events = operations.make_label_events(
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

    def _check_unasked_items(self, ids: Iterable[object]) -> None:
        """Reject items that do not exist; without a pool, all may."""

    def withdraw(self, ids: ItemIds, *, by: str = "", expected: int | None = None) -> None:
        """Withdraw this annotator's labels or skips of some items."""
        self._commit_events(by, expected, partial(operations.make_withdrawal_events, ids=ids))

    def skip(
        self, ids: ItemIds, *, reason: str = "", by: str = "", expected: int | None = None
    ) -> None:
        """Mark items as not to be labelled, with a reason."""
        self._commit_events(
            by, expected, partial(operations.make_skip_events, ids=ids, reason=reason)
        )

    def resolve(
        self, labels: Mapping[Any, Label], *, by: str = "", expected: int | None = None
    ) -> None:
        """Resolve disagreements: these labels override all votes."""

        def make_events(ledger: Ledger, *, by: str, now: float) -> list[Event]:
            settings = self.settings_of(ledger)
            return operations.make_resolution_events(ledger, settings, labels, by=by, now=now)

        self._commit_events(by, expected, make_events)

    def _commit_events(
        self, by: str, expected: int | None, make_events: Callable[..., Sequence[Event]]
    ) -> None:
        """Commit the events ``make_events(ledger, by=by, now=now)`` of an annotator."""
        self.commit(
            lambda ledger, now: (make_events(ledger, by=by, now=now), None), expected=expected
        )

    def lend(self, by: str, count: int = 1) -> list[int]:
        """Lease items to this annotator; nobody else gets them until the lease ends.

        Items that the annotator already leases come first. The list is shorter or empty if no more
        items wait.
        """
        return self.commit(
            lambda ledger, now: operations.lease_items(
                ledger, self.settings_of(ledger), by=by, count=count, now=now
            )
        )

    def give_back(self, by: str, ids: ItemIds | None = None) -> None:
        """Return this annotator's leases: some items, or all."""
        self._commit_events(by, None, partial(operations.make_return_events, ids=ids))

    def remove_annotator(self, name: str, *, by: str = "") -> None:
        """Keep an annotator out: their leases are returned, and their labels stay."""
        self._commit_events(by, None, partial(operations.make_removal_events, name=name))

    def admit_annotator(self, name: str, *, by: str = "") -> None:
        """Let a removed annotator label again."""
        self._commit_events(by, None, partial(operations.make_admission_events, name=name))

    def undo(self, by: str) -> int | None:
        """Withdraw this annotator's last label or skip, and lease them the item again.

        Returns:
            The item's id, or None if there is nothing to undo.
        """
        return self.commit(
            lambda ledger, now: operations.undo_last_action(
                ledger, self.settings_of(ledger), by=by, now=now
            )
        )

    def labels(self) -> dict[int, Label]:
        """The label of every item that has one, by the campaign's resolution rule."""
        return self.look(lambda ledger: resolve_labels(ledger, self.settings_of(ledger)))

    def labelled(self) -> list[JsonObject]:
        """One row per labelled item, by id.

        ``weight`` is the number of pool items that the pick represents, or None;
        ``validation`` marks items that are used only for evaluation.
        """

        def rows(ledger: Ledger) -> list[JsonObject]:
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
        """One sentence on why an item was picked."""

        def find(ledger: Ledger) -> str:
            pick = ledger.pick_of(item)
            if pick is None:
                return "It was not picked: it was labelled without being asked for."
            return explain_pick(*pick)

        return self.look(find)

    def settings_of(self, ledger: Ledger) -> Settings:
        """The settings in a ledger of this campaign."""
        if not ledger.length:
            raise UnknownName(f"there is no campaign called {self.name!r}; start it first")
        known = self._settings
        if known is None or known[0] != ledger.settings:
            known = (dict(ledger.settings), Settings.from_dict(ledger.settings))
            self._settings = known
        return known[1]


def _check_holdout_growth(ledger: Ledger, old: Settings, new: Settings) -> None:
    """Reject a larger holdout than the one that strategies have left alone so far."""
    seen = any(
        batch.asked.strategy != BASELINE and len(batch.asked.validation) < len(batch.asked.ids)
        for batch in ledger.batches
    )
    if new.validation > old.validation and seen:
        raise BadInput(
            f"validation cannot rise from {old.validation:g} to {new.validation:g} now: of the "
            "items that would be reserved, the strategy has picked the hardest already, so the "
            "rest would look too easy; give a test set (labelwise start --test FILE) or start "
            f"another campaign with validation={new.validation:g}"
        )


def _match_class_types(ledger: Ledger, old: Settings, settings: JsonObject) -> JsonObject:
    """Use the types of recorded classes: the text 3 and the number 3 are one class."""
    wanted = settings.get("classes")
    if not isinstance(wanted, list | tuple):
        return settings
    given = {label for votes in ledger.votes.values() for label in votes.values()}
    known: JsonObject = {str(label): label for label in (*given, *(old.classes or ()))}
    kinds = {type(label) for label in known.values()}
    if kinds == {int} and all(str(name).isdecimal() for name in wanted):
        known = {str(name): int(name) for name in wanted} | known
    elif kinds == {str} and any(str(name) in known for name in wanted):
        known = {str(name): str(name) for name in wanted} | known
    return {**settings, "classes": [known.get(str(name), name) for name in wanted]}


def _check_same_settings(
    name: str, current: Settings, wanted: Settings, given: Mapping[str, Any]
) -> None:
    """Reject settings that differ from those of an existing campaign."""
    now, asked = current.to_dict(), wanted.to_dict()
    for key in given:
        if now[key] != asked[key]:
            raise BadInput(
                f"campaign {name!r} has {key}={now[key]!r}, not {asked[key]!r}; leave it out, "
                f"or call change({key}=...) on the campaign"
            )
