"""Votes from Label Studio in the record of a campaign: new, changed and withdrawn ones, and skips.

Label Studio is authoritative for its own annotators; the record follows it and keeps the history.
A file (`ImportedVotes`) lists which votes came from there, so that labels from the labelling page
are not touched, and the time of an annotation is not counted twice when its label changes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from labelwise.campaign.campaign_record import CampaignRecord
from labelwise.campaign.operations import SYSTEM_ANNOTATOR
from labelwise.errors import BadInput
from labelwise.files import read_json, write_json
from labelwise.label_studio.formats import TaskVotes
from labelwise.record.events import Event, Resolved, Skipped, Told, Withdrawn
from labelwise.record.ledger import Ledger

VOTES_FILE = ".told.json"
SKIPPED = "skipped in Label Studio"
DELETED = "its task was deleted in Label Studio"

ITEMS_PER_COMMIT = 5000


class ImportedVotes:
    """Annotators whose votes on an item come from Label Studio, with the seconds counted."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / VOTES_FILE
        stored = read_json(self._path) if self._path.exists() else {}
        self._seconds: dict[int, dict[str, float]] = {}
        try:
            for by, items in stored.items():
                for item, seconds in items.items():
                    self._seconds.setdefault(int(item), {})[by] = float(seconds)
        except (ValueError, TypeError, AttributeError) as error:
            raise BadInput(f"{self._path} is damaged ({error}); restore it") from None

    @property
    def items(self) -> list[int]:
        """Items with votes from Label Studio."""
        return list(self._seconds)

    def get_seconds(self, item: int) -> dict[str, float]:
        """Get the annotators of an item, with the seconds that were counted."""
        return self._seconds.get(item, {})

    def save_votes(self, votes: Mapping[int, Mapping[str, float]], *, add: bool) -> None:
        """Store the annotators of items; with ``add``, in addition to the stored ones.

        Old and new annotators are both stored before the record is changed: after an interruption,
        everything in the record is then known to come from Label Studio.
        """
        changed = False
        for item, new in votes.items():
            old = self.get_seconds(item)
            kept = {**new, **old} if add else dict(new)
            if kept != old:
                changed = True
                self._seconds[item] = kept
                if not kept:
                    del self._seconds[item]
        if changed:
            stored: dict[str, dict[str, float]] = {}
            for item, seconds_by in self._seconds.items():
                for by, seconds in seconds_by.items():
                    stored.setdefault(by, {})[str(item)] = seconds
            write_json(self._path, stored, durable=True)


def import_votes(
    record: CampaignRecord, votes: Mapping[int, TaskVotes | None], imported: ImportedVotes
) -> Counter[str]:
    """Make the votes on items in the record the same as in Label Studio.

    Empty votes withdraw everything that came from there. None stands for a deleted task: its item
    is skipped too, unless there are labels from elsewhere.

    Returns:
        Number of ``new`` and ``changed`` labels, and of items with ``withdrawn`` votes and
        ``skipped`` items.
    """
    counts: Counter[str] = Counter()
    items = list(votes)
    for first in range(0, len(items), ITEMS_PER_COMMIT):
        part = items[first : first + ITEMS_PER_COMMIT]
        after = {
            item: _sum_annotator_seconds(votes[item], imported.get_seconds(item)) for item in part
        }
        imported.save_votes(after, add=True)

        def decide(
            ledger: Ledger, now: float, part: Sequence[int] = part
        ) -> tuple[list[Event], Counter[str]]:
            found: Counter[str] = Counter()
            events: list[Event] = []
            for item in part:
                known = imported.get_seconds(item)
                events += _find_vote_changes(ledger, item, votes[item], known, now, found)
            return events, found

        counts += record.commit(decide)
        imported.save_votes(after, add=False)
    return counts


def _sum_annotator_seconds(
    given: TaskVotes | None, before: Mapping[str, float]
) -> dict[str, float]:
    """Compute the seconds of every current annotator; they never decrease."""
    if given is None:
        return {}
    found = {by: max(vote.seconds or 0.0, before.get(by, 0.0)) for by, vote in given.votes.items()}
    if given.skip is not None:
        found[given.skip] = before.get(given.skip, 0.0)
    return found


def _find_vote_changes(
    ledger: Ledger,
    item: int,
    given: TaskVotes | None,
    imported: Mapping[str, float],
    now: float,
    counts: Counter[str],
) -> list[Event]:
    """Find the events that bring an item up to date.

    A label ends a skip, so the skip comes last, and is repeated if it has to stay.
    """
    votes, skip = ledger.votes.get(item, {}), ledger.skipped.get(item)
    current = given or TaskVotes()
    events: list[Event] = []
    for by in imported:
        if by not in current.votes and by != current.skip:
            events += _withdraw_vote(ledger, item, by, now)
    counts["withdrawn"] += bool(events)
    if given is None:
        if votes.keys() <= imported.keys() and (skip is None or skip.by in imported):
            events.append(Skipped(now, item, SYSTEM_ANNOTATOR, DELETED))
        return events
    changed = [by for by, vote in given.votes.items() if votes.get(by) != vote.label]
    for by in changed:
        vote = given.votes[by]
        seconds = None
        if vote.seconds is not None:
            # Label Studio adds up the time of an annotation; count only what is new.
            seconds = max(vote.seconds - (imported.get(by, 0.0) if by in votes else 0.0), 0.0)
        events.append(Told(now, item, vote.label, by, seconds))
        counts["changed" if by in votes else "new"] += 1
    if given.skip is not None:
        already = skip is not None and skip.by == given.skip
        if changed or not already:
            events.append(Skipped(now, item, given.skip, SKIPPED))
            counts["skipped"] += not already
    return events


def _withdraw_vote(ledger: Ledger, item: int, by: str, now: float) -> list[Event]:
    """Withdraw a label or skip of an annotator, but keep a disagreement that they resolved."""
    skip, resolved = ledger.skipped.get(item), ledger.resolutions.get(item)
    if by not in ledger.votes.get(item, {}) and (skip is None or skip.by != by):
        return []
    events: list[Event] = [Withdrawn(now, item, by)]
    if resolved is not None and resolved.by == by:  # the first event withdraws the resolution
        events += [Withdrawn(now, item, by), Resolved(now, item, resolved.label, by)]
    return events
