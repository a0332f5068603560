"""History of a campaign: every event of its record in words."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from labelwise.campaign.evaluation import ModelEvaluation
from labelwise.display import escape_text, format_count, format_duration, format_person
from labelwise.record.events import (
    Asked,
    Changed,
    Event,
    Lent,
    Renamed,
    Skipped,
    Started,
    Told,
    Trained,
    Training,
    read_event_kind,
)


def describe_events(events: Sequence[Event]) -> Iterator[tuple[float, str]]:
    """Describe events with their times; consecutive labels by one person are one line."""
    run: list[Told] = []
    for event in events:
        if isinstance(event, Lent) and run and event.by == run[0].by:
            continue  # the page reserves items while a person labels; that does not end a run
        if isinstance(event, Told) and (not run or run[0].by == event.by):
            run.append(event)
            continue
        if run:
            yield run[-1].at, _describe_label_events(run)
        run = [event] if isinstance(event, Told) else []
        if not run:
            yield event.at, describe_event(event)
    if run:
        yield run[-1].at, _describe_label_events(run)


def describe_event(event: Event) -> str:
    """Describe one event."""
    return DESCRIPTIONS[read_event_kind(event)](event)


def _describe_label_events(run: Sequence[Told]) -> str:
    who = format_person(run[0].by)
    if len(run) == 1:
        words = f"{who} labelled item {run[0].id} {escape_text(run[0].label, 40)}"
    else:
        counts = Counter(escape_text(event.label, 30) for event in run).most_common()
        shown = ", ".join(f"{count} × {label}" for label, count in counts[:5])
        more = f" and {len(counts) - 5} more" if len(counts) > 5 else ""
        words = f"{who} labelled {format_count(len(run), 'item')} ({shown}{more})"
    seconds = [event.seconds for event in run if event.seconds is not None]
    return f"{words} in {format_duration(sum(seconds))}" if seconds else words


def _format_event_author(event: Started | Changed | Renamed | Training) -> str:
    """Format " by NAME"; the background process is not named."""
    named = event.by and not event.by.startswith("background process ")
    return f" by {format_person(event.by)}" if named else ""


def _describe_change(event: Changed) -> str:
    changes = ", ".join(
        f"{name}={escape_text(value, 60)}" for name, value in event.settings.items()
    )
    return f"settings changed{_format_event_author(event)}: {changes}"


def _describe_batch(event: Asked) -> str:
    count = format_count(len(dict.fromkeys(event.ids + event.validation)), "item")
    words = f"batch {event.batch}: {count} asked for, chosen by {escape_text(event.strategy)}"
    if event.validation:
        words += f", {len(event.validation)} of them drawn at random for evaluation"
    return words + (f", with model {event.model}" if event.model is not None else "")


def _describe_model(event: Trained) -> str:
    found = ModelEvaluation.from_training(event).describe()
    return f"model {event.number} ({format_duration(event.seconds)}): {found}"


def _describe_skip(event: Skipped) -> str:
    reason = f" ({escape_text(event.reason, 80)})" if event.reason else ""
    return f"{format_person(event.by)} skipped item {event.id}{reason}"


DESCRIPTIONS: dict[str, Callable[[Any], str]] = {
    "started": lambda event: (
        f"campaign started{_format_event_author(event)} with {format_count(event.items, 'item')}"
    ),
    "changed": _describe_change,
    "added": lambda event: f"the pool grew by {format_count(event.items, 'item')}",
    "asked": _describe_batch,
    "released": lambda event: (
        f"{format_count(len(event.ids), 'waiting item')} released to be picked again"
    ),
    "renamed": lambda event: (
        f"class {escape_text(event.old, 40)} renamed to {escape_text(event.new, 40)}"
        f"{_format_event_author(event)}"
    ),
    "lent": lambda event: (
        f"{format_count(len(event.ids), 'item')} reserved for {format_person(event.by)}"
    ),
    "returned": lambda event: (
        f"{format_person(event.by)} gave back {format_count(len(event.ids), 'item')}"
    ),
    "told": lambda event: _describe_label_events([event]),
    "withdrawn": lambda event: f"{format_person(event.by)} withdrew their label of item {event.id}",
    "skipped": _describe_skip,
    "noted": lambda event: (
        f"{format_person(event.by)} noted on item {event.id}: {escape_text(event.text, 80)}"
        if event.text
        else f"{format_person(event.by)} removed the note on item {event.id}"
    ),
    "resolved": lambda event: (
        f"{format_person(event.by)} settled item {event.id}: {escape_text(event.label, 40)}"
    ),
    "training": lambda event: (
        f"training {event.number} began{_format_event_author(event)}, with "
        f"{format_count(event.labels, 'label')} in all"
    ),
    "trained": _describe_model,
    "training_failed": lambda event: (
        f"training {event.number} failed: {escape_text(event.error, 200)}"
    ),
}
"""Function that describes an event, by kind."""
