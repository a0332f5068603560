"""Follow what people say in Label Studio: new, changed and withdrawn labels and skips.

Label Studio holds the truth about its own annotators; the record of the campaign is made to say the
same, and to keep what was said before. Which words of the record came from there is remembered in a
file (`Owned`), so that labels given on the labelling page are left alone, and that time which was
counted once is not counted again when someone changes a label.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from labelwise.campaign.folder.missing_items import SYSTEM_ANNOTATOR
from labelwise.errors import BadInput
from labelwise.label_studio.formats import Said
from labelwise.label_studio.order import read_json, write_json
from labelwise.record.events import Event, Resolved, Skipped, Told, Withdrawn
from labelwise.record.ledger import Ledger

OWNED = ".told.json"
SKIPPED = "skipped in Label Studio"
DELETED = "its task was deleted in Label Studio"
"""Why items whose tasks are gone are skipped."""

AT_ONCE = 5000
"""So many items are followed in one step of the record."""


class Owned:
    """Whose words on which items come from Label Studio, and how many seconds were counted.

    Args:
        folder: Of the project's tasks.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / OWNED
        held = read_json(self._path) if self._path.exists() else {}
        self._words: dict[int, dict[str, float]] = {}
        try:
            for by, items in held.items():
                for item, seconds in items.items():
                    self._words.setdefault(int(item), {})[by] = float(seconds)
        except (ValueError, TypeError, AttributeError) as error:
            raise BadInput(f"{self._path} is damaged ({error}); restore it") from None

    @property
    def items(self) -> list[int]:
        """The items of which someone said something."""
        return list(self._words)

    def of(self, item: int) -> dict[str, float]:
        """Who said something of an item, with the seconds that were counted."""
        return self._words.get(item, {})

    def keep(self, words: Mapping[int, Mapping[str, float]], *, also: bool) -> None:
        """Write the words on some items; with ``also``, besides those that are there.

        Before the record is changed, both old and new words are kept: whatever an interruption
        leaves in the record is then known to come from Label Studio.
        """
        changed = False
        for item, new in words.items():
            old = self.of(item)
            kept = {**new, **old} if also else dict(new)
            if kept != old:
                changed = True
                self._words[item] = kept
                if not kept:
                    del self._words[item]
        if changed:
            self._write()

    def _write(self) -> None:
        held: dict[str, dict[str, float]] = {}
        for item, words in self._words.items():
            for by, seconds in words.items():
                held.setdefault(by, {})[str(item)] = seconds
        write_json(self._path, held)


def follow(desk: Any, said: Mapping[int, Said], owned: Owned) -> Counter[str]:
    """Make the record say of some items what Label Studio says.

    Args:
        desk: Of the campaign.
        said: By item; nothing said takes all back that came from Label Studio.
        owned: What came from there before.

    Returns:
        How many labels are ``new`` and ``changed``, how many words were ``withdrawn``, and how
        many items ``skipped``.
    """
    return _in_parts(desk, said, owned, differences)


def forget(desk: Any, items: Iterable[int], owned: Owned) -> Counter[str]:
    """Take items out whose tasks were deleted: their labels go, and they are not asked for again.

    Labels that were given elsewhere stay.
    """
    return _in_parts(desk, dict.fromkeys(items, Said()), owned, departures)


def _in_parts(desk: Any, said: Mapping[int, Said], owned: Owned, decide: Any) -> Counter[str]:
    counts: Counter[str] = Counter()
    items = list(said)
    for first in range(0, len(items), AT_ONCE):
        part = {item: said[item] for item in items[first : first + AT_ONCE]}
        after = {item: standing(said[item], owned.of(item)) for item in part}
        owned.keep(after, also=True)

        def step(
            ledger: Ledger, now: float, part: Mapping[int, Said] = part
        ) -> tuple[list[Event], Counter[str]]:
            found: Counter[str] = Counter()
            events: list[Event] = []
            for item, words in part.items():
                events += decide(ledger, item, words, owned.of(item), now, found)
            return events, found

        counts += desk.commit(step)
        owned.keep(after, also=False)
    return counts


def standing(said: Said, before: Mapping[str, float]) -> dict[str, float]:
    """Whose words stand, with all seconds that they took; time never becomes less."""
    words = {by: max(vote.seconds or 0.0, before.get(by, 0.0)) for by, vote in said.votes.items()}
    if said.skip is not None:
        words[said.skip] = before.get(said.skip, 0.0)
    return words


def differences(
    ledger: Ledger,
    item: int,
    said: Said,
    owned: Mapping[str, float],
    now: float,
    counts: Counter[str],
) -> list[Event]:
    """What to record so that an item stands as Label Studio has it.

    ``owned`` holds who said something of it there before, with the seconds that were counted. A
    label ends a skip, so the skip comes last, and again where it has to stay.
    """
    votes, skip = ledger.votes.get(item, {}), ledger.skipped.get(item)
    events: list[Event] = []
    for by in owned:
        if by not in said.votes and by != said.skip:
            events += _taken_back(ledger, item, by, now)
    withdrawn = bool(events)
    counts["withdrawn"] += withdrawn
    told = [by for by, vote in said.votes.items() if votes.get(by) != vote.label]
    for by in told:
        vote = said.votes[by]
        seconds = None
        if vote.seconds is not None:
            seconds = max(vote.seconds - (owned.get(by, 0.0) if by in votes else 0.0), 0.0)
        events.append(Told(now, item, vote.label, by, seconds))
        counts["changed" if by in votes else "new"] += 1
    if said.skip is not None:
        stands = skip is not None and skip.by == said.skip
        if told or not stands:
            events.append(Skipped(now, item, said.skip, SKIPPED))
            counts["skipped"] += not stands
    return events


def departures(
    ledger: Ledger,
    item: int,
    said: Said,
    owned: Mapping[str, float],
    now: float,
    counts: Counter[str],
) -> list[Event]:
    """What to record of an item whose task was deleted."""
    events = [event for by in owned for event in _taken_back(ledger, item, by, now)]
    counts["withdrawn"] += bool(events)
    skip = ledger.skipped.get(item)
    left = [by for by in ledger.votes.get(item, {}) if by not in owned]
    if not left and (skip is None or skip.by in owned):
        events.append(Skipped(now, item, SYSTEM_ANNOTATOR, DELETED))
    return events


def _taken_back(ledger: Ledger, item: int, by: str, now: float) -> list[Event]:
    """An end of a person's label or skip; a disagreement that they settled stays settled."""
    skip, settled = ledger.skipped.get(item), ledger.resolutions.get(item)
    if by not in ledger.votes.get(item, {}) and (skip is None or skip.by != by):
        return []
    events: list[Event] = [Withdrawn(now, item, by)]
    if settled is not None and settled.by == by:  # it goes first, and comes back after
        events += [Withdrawn(now, item, by), Resolved(now, item, settled.label, by)]
    return events
