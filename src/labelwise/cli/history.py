"""``labelwise history``: what happened in a campaign, line by line."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer

from labelwise.cli.app import app
from labelwise.cli.hints import pasteable
from labelwise.cli.project_option import CampaignOption, open_project
from labelwise.cli.words import clock, duration, learned, many, measured, percent, person, safe
from labelwise.errors import BadInput, UnknownName

_HISTORY = """Tell what happened, oldest first; labels of one person in a row are one line.

[bold]Examples[/bold]

  labelwise history

  labelwise history --last 100

  labelwise history --item 12

  labelwise history --json > record.jsonl

With --json, every event of the record is one line, as the record holds it.
"""


@app.command(help=_HISTORY)
def history(
    last: Annotated[
        int, typer.Option("--last", "-n", help="How many lines; 0 for all.", metavar="N")
    ] = 30,
    item: Annotated[
        int | None, typer.Option("--item", help="Only what befell this item.", metavar="ID")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all events as lines of JSON.")
    ] = False,
    campaign: CampaignOption = None,
) -> None:
    """Tell what happened."""
    from labelwise.record.events import event_to_json

    if last < 0:
        raise BadInput(f"--last must be 0 or more; got {last}")
    project = open_project(campaign)
    events = project.storage().read(project.name)
    if item is not None:
        events = [event for event in events if _befell(event, item)]
        if not events and item not in project.items:
            raise UnknownName(f"the campaign has no item {item}; check the id")
        if not events and not as_json:
            print(f"nothing has happened to item {item} yet; it was never asked for")
    if as_json:
        for event in events:
            print(json.dumps(event_to_json(event)))
        return
    lines = [f"{clock(at)}  {words}" for at, words in told_lines(events)]
    if last and len(lines) > last:
        which = "" if item is None else f" --item {item}"
        command = pasteable(f"labelwise history{which} --last 0")
        print(f"({many(len(lines) - last, 'earlier line')}: {command})")
    for line in lines[-last:] if last else lines:
        print(line)


def _befell(event: Any, item: int) -> bool:
    ids = (*getattr(event, "ids", ()), *getattr(event, "validation", ()))
    return getattr(event, "id", None) == item or item in ids


def told_lines(events: Sequence[Any]) -> Iterator[tuple[float, str]]:
    """Times with what happened, labels that one person gave in a row taken together."""
    from labelwise.record.events import Lent, Told

    run: list[Any] = []
    for event in events:
        if isinstance(event, Lent) and run and event.by == run[0].by:
            continue  # the page lends as it goes; such a loan does not end a run of labels
        if isinstance(event, Told) and (not run or run[0].by == event.by):
            run.append(event)
            continue
        if run:
            yield run[-1].at, _labelled(run)
        run = [event] if isinstance(event, Told) else []
        if not run:
            yield event.at, say(event)
    if run:
        yield run[-1].at, _labelled(run)


def _labelled(run: Sequence[Any]) -> str:
    who = person(run[0].by)
    if len(run) == 1:
        words = f"{who} labelled item {run[0].id} {safe(run[0].label, 40)}"
    else:
        counts = Counter(safe(event.label, 30) for event in run).most_common()
        shown = ", ".join(f"{count} × {label}" for label, count in counts[:5])
        more = f" and {len(counts) - 5} more" if len(counts) > 5 else ""
        words = f"{who} labelled {many(len(run), 'item')} ({shown}{more})"
    seconds = [event.seconds for event in run if event.seconds is not None]
    return f"{words} in {duration(sum(seconds))}" if seconds else words


def say(event: Any) -> str:
    """One event in words, without its time."""
    from labelwise.record.events import kind_of

    return _SAYS[kind_of(event)](event)


def _by(event: Any) -> str:
    return f" by {person(event.by)}" if event.by else ""


def _wanted_by(event: Any) -> str:
    """Who wanted a training; the process that was at it is nobody."""
    return "" if event.by.startswith("background process ") else _by(event)


def _started(event: Any) -> str:
    return f"campaign started{_by(event)} with {many(event.items, 'item')}"


def _changed(event: Any) -> str:
    changes = ", ".join(f"{name}={safe(value, 60)}" for name, value in event.settings.items())
    return f"settings changed{_by(event)}: {changes}"


def _asked(event: Any) -> str:
    count = many(len(dict.fromkeys(event.ids + event.validation)), "item")
    words = f"batch {event.batch}: {count} asked for, chosen by {safe(event.strategy)}"
    if event.validation:
        words += f", {len(event.validation)} of them at random for measuring"
    return words + (f", with model {event.model}" if event.model is not None else "")


def _trained(event: Any) -> str:
    words = f"model {event.number} trained on {many(learned(event), 'label')}"
    words += f" in {duration(event.seconds)}"
    found = measured(event.metrics)
    if found is None:
        return words
    name, value = found
    return f"{words}: {name} {percent(value) if name == 'accuracy' else f'{value:.4g}'}"


def _skipped(event: Any) -> str:
    reason = f" ({safe(event.reason, 80)})" if event.reason else ""
    return f"{person(event.by)} skipped item {event.id}{reason}"


_SAYS: dict[str, Callable[[Any], str]] = {
    "started": _started,
    "changed": _changed,
    "added": lambda event: f"the pool grew by {many(event.items, 'item')}",
    "asked": _asked,
    "lent": lambda event: f"{many(len(event.ids), 'item')} lent to {person(event.by)}",
    "returned": lambda event: f"{person(event.by)} gave back {many(len(event.ids), 'item')}",
    "told": lambda event: _labelled([event]),
    "withdrawn": lambda event: f"{person(event.by)} took back their word on item {event.id}",
    "skipped": _skipped,
    "resolved": lambda event: (
        f"{person(event.by)} settled item {event.id}: {safe(event.label, 40)}"
    ),
    "training": lambda event: (
        f"training {event.number} began{_wanted_by(event)}, with {many(event.labels, 'label')} "
        "in all"
    ),
    "trained": _trained,
    "training_failed": lambda event: f"training {event.number} failed: {safe(event.error, 200)}",
}
"""How each kind of event is told."""
