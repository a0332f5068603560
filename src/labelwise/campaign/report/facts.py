"""What a campaign's report shows, gathered from its record as plain values."""

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from labelwise.campaign.costs import spent
from labelwise.campaign.folder.missing_items import annotators
from labelwise.campaign.forecast import curve, forecast
from labelwise.campaign.labels import resolve_labels
from labelwise.campaign.report.figures import Point, percent
from labelwise.campaign.settings import Settings
from labelwise.campaign.stopping import advise, should_stop
from labelwise.campaign.why import why
from labelwise.errors import BadInput, UnknownName
from labelwise.media.thumbnails import picture_address
from labelwise.record.agreement import agreement
from labelwise.record.events import Event, Label, Told, Withdrawn

_METRICS = {
    "accuracy": "accuracy",
    "mse": "mean squared error",
    "prequential": "accuracy on each batch before training on it",
}
LONGEST = 600
"""Letters of a text that are shown."""

_BINS = 10
_STEPS = 200


@dataclass(frozen=True)
class Pick:
    """An item that was picked.

    Attributes:
        id: of the item.
        shown: its text, or the name of its picture.
        picture: an address with the picture in it (``data:image/...``), or None.
        label: what it was labelled, or None.
        guess: what the model took it for when it was picked, or None.
        confidence: how sure the model was, or None.
        why: why it was picked.
    """

    id: int
    shown: str
    picture: str | None = None
    label: str | None = None
    guess: str | None = None
    confidence: float | None = None
    why: str = ""


@dataclass(frozen=True)
class BatchPicks:
    """The first picks of a batch."""

    number: int
    strategy: str
    picks: tuple[Pick, ...]


@dataclass(frozen=True)
class Person:
    """What one person did: standing labels and skips, time, and how often they are right."""

    name: str
    labels: int
    skips: int
    seconds: float
    per_label: float | None = None
    reliability: float | None = None


Labels = Mapping[int, Label]
Rows = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Facts:
    """All that the page shows; what is empty is left out.

    Attributes:
        name: of the campaign.
        items: how many the pool has.
        labels: how many of them have a label.
        batches: how many were asked for.
        tiles: amounts with their names and a note each.
        advice: whether to go on, in sentences.
        metric: what ``points`` measure.
        share: whether that is a share, told in percent.
        measured: how many items the last model was measured on.
        points: the learning curve.
        trainings: a row per training.
        growth: times and how many labels there were from then on.
        balance: classes, or ranges of values, and how many items have each.
        ranges: whether ``balance`` holds ranges.
        people: who labelled, the busiest first.
        agreement: how far they agree, in a sentence.
        pairs: a row per two people with items in common.
        surprises: picks whose guess was wrong, the surest first.
        picks: the first picks of the last batches.
        costs: amounts by name.
        settings: values by name.
        version: of labelwise.
        made: when, in seconds since the epoch.
    """

    name: str
    items: int = 0
    labels: int = 0
    batches: int = 0
    tiles: Rows = ()
    advice: tuple[str, ...] = ()
    metric: str = "accuracy"
    share: bool = True
    measured: int = 0
    points: tuple[Point, ...] = ()
    trainings: Rows = ()
    growth: tuple[tuple[float, int], ...] = ()
    balance: tuple[tuple[str, int], ...] = ()
    ranges: bool = False
    people: tuple[Person, ...] = ()
    agreement: str = ""
    pairs: Rows = ()
    surprises: tuple[Pick, ...] = ()
    picks: tuple[BatchPicks, ...] = ()
    costs: Rows = ()
    settings: Rows = ()
    version: str = ""
    made: float = 0.0


Show = Callable[[int], tuple[str, str | None]]
"""Gives an item's text or name, and its picture as an address, or None."""


def shower(items: Any) -> Show:
    """How the items of a campaign are shown.

    Args:
        items: a `labelwise.campaign.folder.items.Items`.
    """

    def show(item: int) -> tuple[str, str | None]:
        try:
            about = items.describe(item)
            picture = picture_address(items.path(item)) if items.kind == "images" else None
        except (UnknownName, BadInput) as error:  # a file may be gone since
            return str(error), None
        words = about.get("name") or about.get("text")
        if words is None:
            words = ", ".join(f"{name} {value}" for name, value in about["columns"].items())
        return (words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"), picture

    return show


def gather(
    name: str,
    ledger: Any,
    events: Sequence[Event],
    show: Show,
    *,
    picks: int = 10,
    now: Callable[[], float] = time.time,
) -> Facts:
    """Everything the page shows.

    Args:
        name: of the campaign.
        ledger: where it stands.
        events: its whole record.
        show: gives an item's text or name, and its picture.
        picks: how many of each batch are shown.
        now: gives the time.
    """
    settings = Settings.from_dict(ledger.settings)
    labels = resolve_labels(ledger, settings)
    found = curve(ledger)
    metric = found[-1].metric if found else "accuracy"
    together = agreement(ledger)
    pairs = [
        (f"{pair.first} & {pair.second}", f"{pair.items:,}", f"{pair.agreed:,}", _plain(pair.kappa))
        for pair in together.pairs
    ]
    return Facts(
        name=name,
        items=ledger.items,
        labels=len(labels),
        batches=len(ledger.batches),
        tiles=_tiles(ledger, len(labels)),
        advice=_advice(ledger, settings),
        metric=_METRICS[metric],
        share=metric != "mse",
        measured=int(ledger.trainings[-1].metrics.get("validation_labels") or 0) if found else 0,
        points=tuple(Point(p.labels, p.accuracy, p.low, p.high) for p in found),
        trainings=_trainings(ledger.trainings, metric),
        growth=_growth(events),
        balance=_ranges(labels) if settings.regression else _classes(labels, settings),
        ranges=settings.regression,
        people=_people(ledger, events, together.reliability),
        agreement=together.says if together.items else "",
        pairs=tuple(pairs),
        surprises=_surprises(ledger, labels, show, picks) if not settings.regression else (),
        picks=_batches(ledger, labels, show, picks),
        costs=_costs(ledger, settings),
        settings=_settings(settings),
        version=metadata.version("labelwise"),
        made=now(),
    )


def _advice(ledger: Any, settings: Settings) -> tuple[str, ...]:
    """Whether to go on, by each rule that could judge, and what to expect."""
    found = advise(ledger, settings)
    judged = [f"{said.rule}: {said.says}" for said in found if said.judged]
    verdict = "labelling can stop" if should_stop(found) else "labelling should go on"
    expected = forecast(ledger, settings)
    ahead = [expected.says] if expected.gain is not None else []
    return (*([verdict] if judged else []), *judged, *ahead)


def _costs(ledger: Any, settings: Settings) -> Rows:
    cost = spent(ledger, settings)
    rows: list[tuple[str, str, float | None]] = [
        ("labels", f"{cost.labels:,}", settings.budget_labels)
    ]
    if cost.seconds_per_label is not None:
        rows.append(("median time of a label", f"{cost.seconds_per_label:.1f} s", None))
    if cost.hours is not None:
        rows.append(("hours of labelling", f"{cost.hours:.2f}", settings.budget_hours))
    if cost.money is not None:
        rows.append(("money", f"{cost.money:,.2f}", settings.budget_money))
    if cost.share is not None:
        rows.append(("budget spent", percent(cost.share), None))
    if cost.left is not None:
        rows.append(("labels that the budget still pays for", f"{cost.left:,}", None))
    return tuple(
        (name, value if limit is None else f"{value} of {limit:,}") for name, value, limit in rows
    )


def _tiles(ledger: Any, labels: int) -> Rows:
    tiles = [
        ("labelled", f"{labels:,}", f"of {ledger.items:,} items"),
        ("waiting", f"{len(ledger.waiting):,}", "asked for, without a label"),
        ("skipped", f"{len(ledger.skipped):,}", ""),
        ("people", f"{sum(work.labels > 0 for work in ledger.per_annotator.values()):,}", ""),
        ("models", f"{len(ledger.trainings):,}", "trained"),
    ]
    disputed = len(ledger.disagreements())
    if disputed:
        tiles.append(("disputed", f"{disputed:,}", "items without a clear label"))
    return tuple(tiles)


def _trainings(trainings: Sequence[Any], metric: str) -> Rows:
    rows = []
    for training in trainings:
        value, interval = training.metrics.get(metric), training.metrics.get("interval")
        ends = "–"
        if interval and metric != "prequential":
            ends = " to ".join(_amount(end, metric) for end in interval)
        shown = "–" if value is None else _amount(value, metric)
        seconds = f"{training.seconds:.1f} s"
        rows.append((f"{training.number}", f"{training.labels:,}", shown, ends, seconds))
    return tuple(rows)


def _amount(value: float, metric: str) -> str:
    return f"{value:.4g}" if metric == "mse" else percent(value)


def _growth(events: Iterable[Event]) -> tuple[tuple[float, int], ...]:
    """How many votes stood at each time, thinned to some hundred times."""
    standing: set[tuple[int, str]] = set()
    steps: list[tuple[float, int]] = []
    for event in events:
        if isinstance(event, Told):
            standing.add((event.id, event.by))
        elif isinstance(event, Withdrawn):
            standing.discard((event.id, event.by))
        else:
            continue
        steps.append((max(event.at, steps[-1][0] if steps else event.at), len(standing)))
    if len(steps) <= _STEPS:
        return tuple(steps)
    places = [round(place * (len(steps) - 1) / (_STEPS - 1)) for place in range(_STEPS)]
    return tuple(steps[place] for place in places)


def _classes(labels: Labels, settings: Settings) -> tuple[tuple[str, int], ...]:
    counts = Counter({str(label): 0 for label in settings.classes or ()})
    counts.update(str(label) for label in labels.values())
    return tuple(counts.most_common()) if labels else ()


def _ranges(labels: Labels) -> tuple[tuple[str, int], ...]:
    values = [float(value) for value in labels.values()]
    if not values:
        return ()
    low, high = min(values), max(values)
    width = (high - low) / _BINS
    if not width > 0:
        return ((f"{low:.3g}", len(values)),)
    places = Counter(min(int((value - low) / width), _BINS - 1) for value in values)
    return tuple(
        (f"{low + place * width:.3g} to {low + (place + 1) * width:.3g}", places[place])
        for place in range(_BINS)
    )


def _people(
    ledger: Any, events: Iterable[Event], reliability: Mapping[str, float]
) -> tuple[Person, ...]:
    took = defaultdict(list)
    for event in events:
        if isinstance(event, Told) and event.seconds is not None:
            took[event.by].append(event.seconds)
    people = [
        Person(
            by or "(no name)",
            work.labels,
            work.skips,
            work.seconds,
            statistics.median(took[by]) if took[by] else None,
            reliability.get(by),
        )
        for by, work in annotators(ledger).items()
        if work.labels or work.skips
    ]
    return tuple(sorted(people, key=lambda person: (-person.labels, person.name)))


def _surprises(ledger: Any, labels: Labels, show: Show, count: int) -> tuple[Pick, ...]:
    """Picks that the model took for something else than they were."""
    wrong = []
    for batch in ledger.batches:
        for rank, guess in enumerate(batch.asked.guesses or ()):
            item = batch.asked.ids[rank]
            label = labels.get(item)
            if item in ledger.validation:
                continue
            if guess is not None and label is not None and str(label) != str(guess[0]):
                wrong.append((-guess[1], item, batch.asked, rank))
    wrong.sort(key=lambda entry: entry[:2])
    return tuple(_pick(labels, asked, rank, show) for _, _, asked, rank in wrong[:count])


def _batches(ledger: Any, labels: Labels, show: Show, count: int) -> tuple[BatchPicks, ...]:
    """The first picks of the last three batches that a strategy chose, newest first."""
    shown = []
    for batch in reversed(ledger.batches):
        chosen = [
            rank for rank, item in enumerate(batch.asked.ids) if item not in batch.asked.validation
        ]
        picks = tuple(_pick(labels, batch.asked, rank, show) for rank in chosen[:count])
        if picks:
            shown.append(BatchPicks(batch.number, batch.asked.strategy, picks))
        if len(shown) == 3:
            break
    return tuple(shown)


def _pick(labels: Labels, asked: Any, rank: int, show: Show) -> Pick:
    item = asked.ids[rank]
    shown, picture = show(item)
    label = labels.get(item)
    guess = None if asked.guesses is None else asked.guesses[rank]
    return Pick(
        item,
        shown,
        picture,
        None if label is None else str(label),
        None if guess is None else str(guess[0]),
        None if guess is None else guess[1],
        why(asked, rank),
    )


def _settings(settings: Settings) -> Rows:
    shown = []
    for name, value in settings.to_dict().items():
        if value is None or value == {}:
            continue
        words = ", ".join(str(entry) for entry in value) if isinstance(value, list) else str(value)
        shown.append((name.replace("_", " "), words))
    return tuple(shown)


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
