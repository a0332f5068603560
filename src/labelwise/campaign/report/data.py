"""The contents of a campaign's report, collected from its record."""

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from labelwise.campaign.costs import campaign_cost
from labelwise.campaign.evaluation import (
    ModelEvaluation,
    ModelQuality,
    ModelScore,
    learning_curve,
    list_suspicious_labels,
    read_model_quality,
    read_model_score,
)
from labelwise.campaign.explanations import explain_pick
from labelwise.campaign.folder.items import CampaignItems
from labelwise.campaign.folder.missing_items import list_annotators
from labelwise.campaign.labels import resolve_labels
from labelwise.campaign.settings import Settings
from labelwise.campaign.stopping import advise_campaign, select_shown
from labelwise.display import format_percent
from labelwise.errors import BadInput, UnknownName
from labelwise.media.images import make_thumbnail_url
from labelwise.record.agreement import AnnotatorAgreement, agreement
from labelwise.record.events import Asked, Event, Label, Told, Trained, Withdrawn
from labelwise.record.ledger import Ledger

_METRICS = {
    "accuracy": "accuracy",
    "mse": "mean squared error",
    "prequential": "accuracy on each batch before training on it",
}
MAX_TEXT = 600  # Characters of a text that are shown

_RANGES = 10
_MAX_COLUMNS = 12
_MAX_STEPS = 200


@dataclass(frozen=True)
class ReportedPick:
    """A picked item."""

    id: int
    shown: str  # its text, or its file name
    picture: str | None = None  # a ``data:image/...`` URL with its image, or None
    label: str | None = None  # its label, or None
    guess: str | None = None  # the prediction when it was picked, or None
    confidence: float | None = None  # of the prediction, or None
    why: str = ""  # the reason for picking it


@dataclass(frozen=True)
class BatchPicks:
    """The first picks of a batch."""

    number: int
    strategy: str
    picks: tuple[ReportedPick, ...]


Labels = Mapping[int, Label]
Rows = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class ReportData:
    """The contents of the page; empty parts are left out."""

    name: str
    items: int = 0  # number of items in the pool
    labels: int = 0  # number of items with a label
    batches: int = 0  # number of batches
    tiles: Rows = ()  # key figures: name, value, note
    advice: tuple[str, ...] = ()  # whether to continue, in sentences
    metric: str = "accuracy"  # name of the measure of ``points``
    is_regression: bool = False  # whether labels are numbers
    measured: int = 0  # holdout size of the last model
    points: tuple[ModelScore, ...] = ()  # the learning curve
    trainings: Rows = ()  # a row per training
    growth: tuple[tuple[float, int], ...] = ()  # time and number of labels from then on
    balance: tuple[tuple[str, int], ...] = ()  # class, or range of values, and its number of items
    # the classes that are columns of ``confusions``, or what is said of each
    confusion_head: tuple[str, ...] = ()
    confusions: Rows = ()  # a row per class, on labels that the model was not trained on
    reliability: Rows = ()  # a row per range of confidence, on the same labels
    calibration: str = ""  # the expected calibration error in a sentence; empty if unknown
    # labels that are likely wrong, the most suspicious first
    suspicious: tuple[ReportedPick, ...] = ()
    annotators: Rows = ()  # a row per annotator, the one with the most labels first
    agreement: str = ""  # of the annotators, in a sentence
    pairs: Rows = ()  # a row per two annotators with common items
    surprises: tuple[ReportedPick, ...] = ()  # picks with a wrong prediction, most confident first
    picks: tuple[BatchPicks, ...] = ()  # the first picks of the last batches
    costs: Rows = ()  # amounts by name
    settings: Rows = ()  # values by name
    version: str = ""  # of labelwise
    made: float = 0.0  # time of the report, in seconds since the epoch


ShowItem = Callable[[int], tuple[str, str | None]]
"""Returns an item's text or file name, and its image as a URL, or None."""


def make_item_view(items: CampaignItems) -> ShowItem:
    """A function that shows the items of a campaign."""

    def show_item(item: int) -> tuple[str, str | None]:
        try:
            about = items.describe(item)
            picture = make_thumbnail_url(items.path(item)) if items.kind == "images" else None
        except (UnknownName, BadInput) as error:  # its file may be missing
            return str(error), None
        words = about.get("name") or about.get("text")
        if words is None:
            words = ", ".join(f"{name} {value}" for name, value in about["columns"].items())
        return (words if len(words) <= MAX_TEXT else f"{words[: MAX_TEXT - 1]}…"), picture

    return show_item


def collect_report(
    name: str,
    ledger: Ledger,
    events: Sequence[Event],
    show_item: ShowItem,
    *,
    picks: int = 10,
    now: Callable[[], float] = time.time,
) -> ReportData:
    """Collect the contents of the page."""
    settings = Settings.from_dict(ledger.settings)
    labels = resolve_labels(ledger, settings)
    found = learning_curve(ledger)
    metric = found[-1].metric if found else "accuracy"
    together = agreement(ledger)
    quality = read_model_quality(ledger)
    confusion_head, confusions = _collect_confusion_rows(quality)
    error = quality.calibration_error
    return ReportData(
        name=name,
        items=ledger.items,
        labels=len(labels),
        batches=len(ledger.batches),
        tiles=_collect_tiles(ledger, len(labels)),
        advice=_collect_advice(ledger, settings),
        metric=_METRICS[metric],
        is_regression=settings.regression,
        measured=(found[-1].evaluated or 0) if found and metric != "prequential" else 0,
        points=tuple(found),
        trainings=_collect_training_rows(ledger.trainings, metric),
        growth=_collect_growth(events),
        balance=_count_report_ranges(labels)
        if settings.regression
        else _count_report_classes(labels, settings),
        confusion_head=confusion_head,
        confusions=confusions,
        reliability=_collect_reliability_rows(quality),
        calibration=""
        if error is None
        else f"on average, confidence and accuracy differ by {format_percent(error)}",
        suspicious=_collect_suspicious(ledger, show_item, picks),
        annotators=_collect_annotator_rows(ledger, events, together.reliability),
        agreement=together.says if together.items else "",
        pairs=_collect_pair_rows(together),
        surprises=_collect_surprises(ledger, labels, show_item, picks)
        if not settings.regression
        else (),
        picks=_collect_batches(ledger, labels, show_item, picks),
        costs=_collect_cost_rows(ledger, settings),
        settings=_collect_setting_rows(settings),
        version=metadata.version("labelwise"),
        made=now(),
    )


def _collect_pair_rows(found: AnnotatorAgreement) -> Rows:
    rows = []
    for pair in found.pairs:
        names, kappa = f"{pair.first} & {pair.second}", _format_number(pair.kappa)
        rows.append((names, f"{pair.items:,}", f"{pair.agreed:,}", kappa))
    return tuple(rows)


def _collect_advice(ledger: Ledger, settings: Settings) -> tuple[str, ...]:
    """Whether to continue, then the forecast and each rule that could judge."""
    if not ledger.trainings:
        return ()
    found = advise_campaign(ledger, settings)
    judged = [f"{said.rule}: {said.says}" for said in select_shown(found.rules)]
    ahead = [found.forecast.says] if found.forecast.gain is not None else []
    return (found.says, *ahead, *judged)


def _collect_cost_rows(ledger: Ledger, settings: Settings) -> Rows:
    cost = campaign_cost(ledger, settings)
    rows: list[tuple[str, str, float | None]] = [
        ("labels", f"{cost.labels:,}", settings.budget_labels)
    ]
    if cost.seconds_per_label is not None:
        rows.append(("median time per label", f"{cost.seconds_per_label:.1f} s", None))
    if cost.hours is not None:
        rows.append(("hours of labelling", f"{cost.hours:.2f}", settings.budget_hours))
    if cost.money is not None:
        rows.append(("money", f"{cost.money:,.2f}", settings.budget_money))
    if cost.share is not None:
        rows.append(("budget spent", format_percent(cost.share), None))
    if cost.left is not None:
        rows.append(("labels left in the budget", f"{cost.left:,}", None))
    return tuple(
        (name, value if limit is None else f"{value} of {limit:,}") for name, value, limit in rows
    )


def _collect_tiles(ledger: Ledger, labels: int) -> Rows:
    tiles = [
        ("labelled", f"{labels:,}", f"of {ledger.items:,} items"),
        ("waiting", f"{len(ledger.waiting):,}", "selected, without a label"),
        ("skipped", f"{len(ledger.skipped):,}", ""),
        ("annotators", f"{sum(work.labels > 0 for work in ledger.per_annotator.values()):,}", ""),
        ("models", f"{len(ledger.trainings):,}", "trained"),
    ]
    disputed = len(ledger.disagreements())
    if disputed:
        tiles.append(("disputed", f"{disputed:,}", "items without a clear label"))
    return tuple(tiles)


def _collect_training_rows(trainings: Sequence[Trained], metric: str) -> Rows:
    """Number, training and held-out labels, score and its interval, and time of every model."""
    rows = []
    for training in trainings:
        found, score = ModelEvaluation.from_training(training), read_model_score(training, metric)
        shown, ends = found.describe_progress() if found.held_out else "–", "–"
        if score is not None:
            shown = _format_report_score(score.value, metric)
            if score.low is not None and score.high is not None:
                ends = " to ".join(
                    _format_report_score(end, metric) for end in (score.low, score.high)
                )
        counts = (f"{found.training_labels:,}", f"{found.held_out:,}")
        balanced, f1 = found.balanced_accuracy, found.macro_f1
        others = () if metric == "mse" else (_format_report_share(balanced), _format_number(f1))
        seconds = f"{training.seconds:.1f} s"
        rows.append((f"{training.number}", *counts, shown, ends, *others, seconds))
    return tuple(rows)


def _format_report_score(value: float, metric: str) -> str:
    return f"{value:.4g}" if metric == "mse" else format_percent(value)


def _format_report_share(value: float | None) -> str:
    return "–" if value is None else format_percent(value)


def _collect_growth(events: Iterable[Event]) -> tuple[tuple[float, int], ...]:
    """The number of votes over time, thinned to at most 200 steps."""
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
    if len(steps) <= _MAX_STEPS:
        return tuple(steps)
    places = [round(place * (len(steps) - 1) / (_MAX_STEPS - 1)) for place in range(_MAX_STEPS)]
    return tuple(steps[place] for place in places)


def _count_report_classes(labels: Labels, settings: Settings) -> tuple[tuple[str, int], ...]:
    counts = Counter({str(label): 0 for label in settings.classes or ()})
    counts.update(str(label) for label in labels.values())
    return tuple(counts.most_common()) if labels else ()


def _collect_confusion_rows(found: ModelQuality) -> tuple[tuple[str, ...], Rows]:
    """Head and rows of the confusion matrix; of many classes only the most frequent confusion."""
    names, counts = [str(label) for label in found.classes], found.confusions
    wide, rows = len(names) > _MAX_COLUMNS, []
    for place, (name, own) in enumerate(zip(names, counts, strict=True)):
        total = sum(own)
        share = format_percent(own[place] / total) if total else "–"
        cells = [f"{count:,}" if count else "" for count in own]
        if wide:
            most = max((count, other) for other, count in enumerate(own) if other != place)
            cells = [f"{names[most[1]]} ({most[0]:,})" if most[0] else "–"]
        rows.append((name, f"{total:,}", share, *cells))
    columns = ("most often taken for",) if wide else tuple(f"as {name}" for name in names)
    return ("label", "labels", "accuracy", *columns), tuple(rows)


def _collect_reliability_rows(quality: ModelQuality) -> Rows:
    """Confidence, share right and number of labels of each range of confidence."""
    return tuple(
        (format_percent(sure), format_percent(right), f"{count:,}")
        for sure, right, count in quality.reliability
    )


def _collect_suspicious(
    ledger: Ledger, show_item: ShowItem, count: int
) -> tuple[ReportedPick, ...]:
    picks = []
    for one in list_suspicious_labels(ledger)[:count]:
        shown, picture = show_item(one.id)
        why = f"The model gives its label {format_percent(one.probability)}."
        label, suggested = str(one.label), str(one.suggested)
        picks.append(ReportedPick(one.id, shown, picture, label, suggested, why=why))
    return tuple(picks)


def _count_report_ranges(labels: Labels) -> tuple[tuple[str, int], ...]:
    values = [float(value) for value in labels.values()]
    if not values:
        return ()
    low, high = min(values), max(values)
    width = (high - low) / _RANGES
    if not width > 0:
        return ((f"{low:.3g}", len(values)),)
    places = Counter(min(int((value - low) / width), _RANGES - 1) for value in values)
    return tuple(
        (f"{low + place * width:.3g} to {low + (place + 1) * width:.3g}", places[place])
        for place in range(_RANGES)
    )


def _collect_annotator_rows(
    ledger: Ledger, events: Iterable[Event], reliability: Mapping[str, float]
) -> Rows:
    """Labels, skips, time and estimated share of correct labels of every annotator."""
    took = defaultdict(list)
    for event in events:
        if isinstance(event, Told) and event.seconds is not None:
            took[event.by].append(event.seconds)
    active = [one for one in list_annotators(ledger).items() if one[1].labels or one[1].skips]
    return tuple(
        (
            by or "(no name)",
            f"{work.labels:,}",
            f"{work.skips:,}",
            f"{statistics.median(took[by]):.1f}" if took[by] else "–",
            f"{work.seconds / 3600:.2f}",
            _format_report_share(reliability.get(by)),
        )
        for by, work in sorted(active, key=lambda entry: (-entry[1].labels, entry[0]))
    )


def _collect_surprises(
    ledger: Ledger, labels: Labels, show_item: ShowItem, count: int
) -> tuple[ReportedPick, ...]:
    """Picks with a wrong prediction, most confident first."""
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
    return tuple(
        _report_pick(labels, asked, rank, show_item) for _, _, asked, rank in wrong[:count]
    )


def _collect_batches(
    ledger: Ledger, labels: Labels, show_item: ShowItem, count: int
) -> tuple[BatchPicks, ...]:
    """The first picks of the last three batches, newest first."""
    shown = []
    for batch in reversed(ledger.batches):
        chosen = [
            rank for rank, item in enumerate(batch.asked.ids) if item not in batch.asked.validation
        ]
        picks = tuple(_report_pick(labels, batch.asked, rank, show_item) for rank in chosen[:count])
        if picks:
            shown.append(BatchPicks(batch.number, batch.asked.strategy, picks))
        if len(shown) == 3:
            break
    return tuple(shown)


def _report_pick(labels: Labels, asked: Asked, rank: int, show_item: ShowItem) -> ReportedPick:
    item = asked.ids[rank]
    shown, picture = show_item(item)
    label = labels.get(item)
    guess = None if asked.guesses is None else asked.guesses[rank]
    return ReportedPick(
        item,
        shown,
        picture,
        None if label is None else str(label),
        None if guess is None else str(guess[0]),
        None if guess is None else guess[1],
        explain_pick(asked, rank),
    )


def _collect_setting_rows(settings: Settings) -> Rows:
    shown = []
    for name, value in settings.to_dict().items():
        if value is None or value == {}:
            continue
        words = ", ".join(str(entry) for entry in value) if isinstance(value, list) else str(value)
        shown.append((name.replace("_", " "), words))
    return tuple(shown)


def _format_number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
