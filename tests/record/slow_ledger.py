"""The ledger by its definition: every answer is found by going through the whole list of events."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from labelwise.record.events import (
    Added,
    Asked,
    Changed,
    Event,
    Label,
    Lent,
    Released,
    Renamed,
    Resolved,
    Returned,
    Skipped,
    Started,
    Told,
    Trained,
    Training,
    TrainingFailed,
    Withdrawn,
)

WORDS = (Told, Skipped, Resolved)


class SlowLedger:
    """What a `Ledger` should answer after these events."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = list(events)

    def of(self, *kinds: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]

    def settings(self) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for event in self.of(Started, Changed):
            result = {**({} if isinstance(event, Started) else result), **event.settings}
        return result

    def items(self) -> int:
        count = 0
        for event in self.of(Started, Added):
            count = event.items + (count if isinstance(event, Added) else 0)
        return count

    def said_of(self, id: int) -> tuple[dict[str, Label], Skipped | None, Resolved | None]:
        """The standing votes, skip and resolution of an item."""
        votes: dict[str, Label] = {}
        skip, resolution = None, None
        for event in self.of(Told, Skipped, Resolved, Withdrawn, Renamed):
            if isinstance(event, Renamed):
                votes = {by: event.new if v == event.old else v for by, v in votes.items()}
                if resolution and resolution.label == event.old:
                    resolution = replace(resolution, label=event.new)
                continue
            if event.id != id:
                continue
            if isinstance(event, Told):
                votes[event.by] = event.label
                skip = None
            elif isinstance(event, Skipped):
                votes.pop(event.by, None)
                skip = event
            elif isinstance(event, Resolved):
                resolution, skip = event, None
            elif resolution and resolution.by == event.by:
                resolution = None
            elif skip and skip.by == event.by:
                skip = None
            else:
                votes.pop(event.by, None)
        return votes, skip, resolution

    def ids(self) -> list[int]:
        return sorted({event.id for event in self.of(Told, Skipped, Resolved, Withdrawn)})

    def label(self, id: int) -> Label | None:
        votes, skip, resolution = self.said_of(id)
        if skip or not (votes or resolution):
            return None
        if resolution:
            return resolution.label
        if self.settings().get("regression") and all(type(v) is not str for v in votes.values()):
            ordered = sorted(votes.values())  # type: ignore[type-var]
            middle = len(ordered) // 2
            if len(ordered) % 2:
                return ordered[middle]
            return (ordered[middle - 1] + ordered[middle]) / 2  # type: ignore[operator]
        counts = {label: list(votes.values()).count(label) for label in votes.values()}
        best = [label for label, count in counts.items() if count == max(counts.values())]
        return best[0] if len(best) == 1 else None

    def labels(self) -> dict[int, Label]:
        found = {id: self.label(id) for id in self.ids()}
        return {id: label for id, label in found.items() if label is not None}

    def disagreements(self) -> list[int]:
        return [
            id
            for id in self.ids()
            if self.label(id) is None and self.said_of(id)[0] and not self.said_of(id)[1]
        ]

    def place(self, id: int) -> tuple[int, int] | None:
        """The last batch that asked for an item, by its place in the list, and the rank in it."""
        found, index = None, -1
        for event in self.of(Asked, Released):
            if isinstance(event, Released):
                found = None if id in event.ids else found
                continue
            index += 1
            ids = list(dict.fromkeys(event.ids + event.validation))
            found = (index, ids.index(id)) if id in ids else found
        return found

    def asked_ids(self) -> set[int]:
        ids = {id for event in self.of(Asked) for id in (*event.ids, *event.validation)}
        return {id for id in ids if self.place(id) is not None}

    def waiting(self) -> list[int]:
        wanted = [
            id
            for id in self.asked_ids()
            if len(self.said_of(id)[0]) < self.settings().get("overlap", 1)
            and self.said_of(id)[1] is None
            and self.said_of(id)[2] is None
        ]
        return sorted(wanted, key=lambda id: self.place(id) or (0, 0))

    def weight_of(self, id: int) -> float | None:
        place = self.place(id)
        if place is None:
            return None
        weights = self.of(Asked)[place[0]].weights
        return weights[place[1]] if weights is not None and place[1] < len(weights) else None

    def own_loans(self, by: str, now: float) -> list[int]:
        """What is lent to a person, in the order of lending."""
        loans: dict[int, float] = {}
        for event in self.events:
            if isinstance(event, Lent) and event.by == by:
                loans = {id: until for id, until in loans.items() if until > event.at}
                loans.update(dict.fromkeys(event.ids, event.until))
            elif isinstance(event, Returned) and event.by == by:
                loans = {id: until for id, until in loans.items() if id not in event.ids}
            elif isinstance(event, WORDS) and event.by == by:
                loans.pop(event.id, None)
        return [id for id, until in loans.items() if until > now]

    def people(self) -> list[str]:
        return sorted({event.by for event in self.of(*WORDS, Withdrawn, Lent)})

    def available(self, by: str, count: int, now: float) -> list[int]:
        waiting = self.waiting()
        own = self.own_loans(by, now)
        found = [id for id in own if id in waiting and by not in self.said_of(id)[0]]
        for id in waiting:
            votes = self.said_of(id)[0]
            holders = {who for who in self.people() if id in self.own_loans(who, now)}
            engaged = holders | set(votes)
            if by not in engaged and len(engaged) < self.settings().get("overlap", 1):
                found.append(id)
        return found[:count]

    def standing(self, by: str) -> dict[int, int]:
        """The items that a person has a word on, with the number of the last event of theirs."""
        result = {}
        for number, event in enumerate(self.events):
            if isinstance(event, WORDS) and event.by == by:
                votes, skip, resolution = self.said_of(event.id)
                if by in votes or (skip and skip.by == by) or (resolution and resolution.by == by):
                    result[event.id] = number
        return result

    def last(self, by: str) -> tuple[int, str] | None:
        standing = self.standing(by)
        if not standing:
            return None
        id = max(standing, key=standing.__getitem__)
        _, skip, resolution = self.said_of(id)
        if resolution and resolution.by == by:
            return id, "resolved"
        return id, "skipped" if skip and skip.by == by else "told"

    def work(self, by: str) -> tuple[int, int, float, float]:
        said = [self.said_of(id) for id in self.ids()]
        return (
            sum(by in votes for votes, _, _ in said),
            sum(skip is not None and skip.by == by for _, skip, _ in said),
            sum(event.seconds or 0.0 for event in self.of(Told) if event.by == by),
            max(event.at for event in self.of(*WORDS, Withdrawn) if event.by == by),
        )

    def trainings(self) -> list[Trained]:
        return sorted(self.of(Trained), key=lambda event: event.number)

    def training(self) -> Training | None:
        """The last that began, unless it or a later one ended since."""
        found = self.of(Training, Trained, TrainingFailed)
        begins = [place for place, event in enumerate(found) if isinstance(event, Training)]
        if not begins:
            return None
        last = found[begins[-1]]
        ended = [event.number for event in found[begins[-1] + 1 :]]
        return None if any(number >= last.number for number in ended) else last

    def failure(self) -> TrainingFailed | None:
        """Of the last training that ended, by number; the last word where there are two."""
        good = max((event.number for event in self.of(Trained)), default=-1)
        worse = [event for event in self.of(TrainingFailed) if event.number > good]
        number = max((event.number for event in worse), default=-1)
        return next((event for event in reversed(worse) if event.number == number), None)
