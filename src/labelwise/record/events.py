"""The events of a campaign, each with its time and, where known, its annotator.

A record is an append-only list of events; the state is replayed from it
(`labelwise.record.ledger`). Each event is stored as one JSON object with its kind and a format
number. Newer formats are rejected, because guessing could lose labels.
"""

import json
import math
import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn, get_args

from labelwise.errors import BadInput, StorageFailed
from labelwise.files import JsonObject
from labelwise.learner import Label as Label

FORMAT = 1  # Format number of the events


@dataclass(frozen=True, slots=True)
class Started:
    """The campaign began with a pool of ``items`` items."""

    at: float
    settings: JsonObject
    items: int
    by: str = ""


@dataclass(frozen=True, slots=True)
class Changed:
    """Settings changed; ``settings`` holds only the changed ones."""

    at: float
    settings: JsonObject
    by: str = ""


@dataclass(frozen=True, slots=True)
class Added:
    """The pool grew by ``items`` items."""

    at: float
    items: int


@dataclass(frozen=True, slots=True)
class Asked:
    """Batch number ``batch`` was selected: ``ids`` need labels, best first."""

    at: float  # seconds since the epoch, UTC, as in every event
    batch: int  # 1, 2, ...
    ids: tuple[int, ...]  # the picks, in the order of picking
    # number of pool items that each pick represents, or None
    weights: tuple[float, ...] | None = None
    scores: tuple[float, ...] | None = None  # the strategy's score of each pick, or None
    strategy: str = ""  # its name
    seed: int = 0  # its seed
    options: JsonObject = field(default_factory=dict)  # its options
    model: int | None = None  # number of the training whose model represented the pool, or None
    # randomly picked ids, used only for evaluation; part of ``ids`` or extra
    validation: tuple[int, ...] = ()
    # predicted label and confidence for each pick, or None
    guesses: tuple[tuple[Label, float], ...] | None = None
    info: JsonObject = field(default_factory=dict)  # additional results of the strategy


@dataclass(frozen=True, slots=True)
class Released:
    """Picks that nobody works on need no label any more and can be picked again."""

    at: float
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lent:
    """An annotator leased items until a time; nobody else labels them until then."""

    at: float
    ids: tuple[int, ...]
    by: str
    until: float


@dataclass(frozen=True, slots=True)
class Returned:
    """An annotator returned leased items without labels."""

    at: float
    ids: tuple[int, ...]
    by: str


@dataclass(frozen=True, slots=True)
class Told:
    """An annotator labelled an item; a second label replaces the first.

    ``suggested`` is the prediction that the page had preselected, if any: the annotator confirmed
    or corrected it, so agreement with the model is biased.
    """

    at: float
    id: int
    label: Label
    by: str = ""
    seconds: float | None = None
    suggested: Label | None = None


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """An annotator took back their last resolution, label or skip of an item."""

    at: float
    id: int
    by: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """An annotator marked an item as not to be labelled, with a reason."""

    at: float
    id: int
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """An annotator decided the label of an item, overriding all votes."""

    at: float
    id: int
    label: Label
    by: str = ""


@dataclass(frozen=True, slots=True)
class Renamed:
    """A class got a new name in all labels; that of an existing class merges both."""

    at: float
    old: Label
    new: Label
    by: str = ""


@dataclass(frozen=True, slots=True)
class Noted:
    """An annotator wrote a note about an item; an empty text removes it."""

    at: float
    id: int
    text: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class Training:
    """Training number ``number`` began with ``labels`` labels."""

    at: float
    number: int
    labels: int
    by: str = ""


@dataclass(frozen=True, slots=True)
class Trained:
    """Training number ``number`` succeeded."""

    at: float
    number: int
    labels: int
    seconds: float
    metrics: JsonObject
    checkpoint: str | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TrainingFailed:
    """Training number ``number`` ended with an error."""

    at: float
    number: int
    error: str


Event = (
    Started
    | Changed
    | Added
    | Asked
    | Released
    | Lent
    | Returned
    | Told
    | Withdrawn
    | Skipped
    | Resolved
    | Renamed
    | Noted
    | Training
    | Trained
    | TrainingFailed
)

KINDS: dict[str, type[Event]] = {
    re.sub(r"(?<!^)([A-Z])", r"_\1", kind.__name__).lower(): kind for kind in get_args(Event)
}
"""Event classes by their kind in the JSON: the name of the class in lower case."""

_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_NAMES = {kind: name for name, kind in KINDS.items()}
_OMITTED = ("suggested",)  # Fields that are left out if they are None: 0.1.0 does not know them
_FIELDS = {kind: tuple(entry.name for entry in fields(kind)) for kind in _NAMES}
_TUPLES = {
    kind: [name for name in ("ids", "weights", "scores", "validation") if name in names]
    for kind, names in _FIELDS.items()
}


def read_event_kind(event: Event) -> str:
    """The kind of an event, as in its JSON.

    Example:
        >>> read_event_kind(Told(at=0.0, id=7, label="cat"))
        'told'
    """
    return _NAMES[type(event)]


def event_to_json(event: Event) -> JsonObject:
    """Convert an event to the JSON object that the record stores.

    Raises:
        BadInput: if a field has a value of the wrong type.

    Example:
        >>> event_to_json(Withdrawn(at=5.0, id=7, by="ann"))
        {'kind': 'withdrawn', 'format': 1, 'at': 5.0, 'id': 7, 'by': 'ann'}
    """
    kind = type(event)
    if kind not in _NAMES:
        raise BadInput(f"a record holds events; got {kind.__name__}")
    result: JsonObject = {"kind": _NAMES[kind], "format": FORMAT}
    for name in _FIELDS[kind]:
        value = getattr(event, name)
        expected, words = _FIELD_TYPES[name]
        if not is_event_value(expected, value) or (expected == "json" and type(value) is not dict):
            raise BadInput(f"{name} of {kind.__name__} must be {words}; got {reprlib.repr(value)}")
        if value is not None or name not in _OMITTED:
            result[name] = value
    if isinstance(event, Asked):
        if len(set(event.ids)) != len(event.ids):
            raise BadInput(f"ids of batch {event.batch} must all be different")
        for name in ("weights", "scores", "guesses"):
            values = getattr(event, name)
            if values is not None and len(values) != len(event.ids):
                raise BadInput(
                    f"batch {event.batch} has {len(event.ids)} ids but {len(values)} {name}; "
                    "give one for each id"
                )
    return result


def event_from_json(value: Mapping[str, Any]) -> Event:
    """Convert a JSON object of the record to its event.

    Raises:
        StorageFailed: if a newer labelwise wrote it, or it is not an event.

    Example:
        >>> event_from_json({"kind": "withdrawn", "format": 1, "at": 5.0, "id": 7, "by": "ann"})
        Withdrawn(at=5.0, id=7, by='ann')
    """
    entries = dict(value)
    number = entries.pop("format", None)
    if number != FORMAT or type(number) is not int:
        _reject_event_format(number)
    name = entries.pop("kind", None)
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise StorageFailed(
            f"the record holds an event of unknown kind {reprlib.repr(name)}; "
            "update labelwise to read it"
        )
    try:
        for key in _TUPLES[kind]:
            if entries.get(key) is not None:
                entries[key] = tuple(entries[key])
        if kind is Asked and entries.get("guesses") is not None:
            entries["guesses"] = tuple((label, share) for label, share in entries["guesses"])
        return kind(**entries)
    except (TypeError, ValueError) as error:
        raise StorageFailed(f"the record holds a damaged event of kind {name!r}: {error}") from None


def encode_event(event: Event) -> str:
    """Encode an event as one line of ASCII, which every storage preserves."""
    return _ENCODER.encode(event_to_json(event))


def decode_event(text: str) -> Event:
    """Decode one line written by `encode_event`."""
    try:
        value = json.loads(text)
    except ValueError:
        raise StorageFailed(f"the record holds a damaged event: {reprlib.repr(text)}") from None
    if type(value) is not dict or not text.isascii():  # only ASCII is written
        raise StorageFailed(f"the record holds something other than an event: {reprlib.repr(text)}")
    return event_from_json(value)


NO_EVENT = '{"kind":"returned","format":1,"at":0,"ids":[],"by":""}'
"""An event without any effect, which can take the place of a damaged one."""


def decode_events(lines: Iterable[str], campaign: str, start: int) -> list[Event]:
    """Decode the lines of a record from number ``start`` on.

    Raises:
        StorageFailed: an event is damaged; names its number and how to go on without it.
    """
    events: list[Event] = []
    try:
        for line in lines:
            events.append(decode_event(line))
    except StorageFailed as error:
        number = start + len(events)
        raise StorageFailed(
            f"event {number} of {campaign!r} cannot be read: {error}. If it is damaged, restore "
            "the record from a backup, or give up this event only: replace its body in the table "
            f"labelwise_events (campaign {campaign!r}, number {number}) by {NO_EVENT}"
        ) from None
    return events


def _reject_event_format(number: object) -> NoReturn:
    if type(number) is not int:
        raise StorageFailed(f"the record holds an event without a format number: {number!r}")
    raise StorageFailed(
        f"the record was written by a newer labelwise (format {number}); "
        f"this one reads up to format {FORMAT}: update labelwise"
    )


# Field types. Only values that survive a JSON round trip are written.

_TYPES: dict[str, tuple[type, ...]] = {
    "number": (int, float),
    "seconds": (int, float),
    "label": (int, float, str),
    "text": (str,),
    "whole": (int,),
    "count": (int,),
    "id": (int,),
    "scalar": (int, float, str, bool, type(None)),
}
_RANGES = {"seconds": (0, math.inf), "count": (0, math.inf), "id": (-(2**63), 2**63 - 1)}


def is_event_value(kind: str, value: Any) -> bool:
    """Whether a value has a kind: a name in `_TYPES`, ``json``, or ``guess`` (label and share).

    ``x?`` is an x or None; ``x*`` is a tuple of x. Types are exact, so that True is not a number.

    Example:
        >>> is_event_value("label", "cat"), is_event_value("label", float("nan"))
        (True, False)
        >>> is_event_value("id*?", (3, 5)), is_event_value("id*?", None), is_event_value("id", True)
        (True, True, False)
    """
    if kind[-1] == "?":
        return value is None or is_event_value(kind[:-1], value)
    if kind[-1] == "*":
        return type(value) is tuple and all(is_event_value(kind[:-1], entry) for entry in value)
    if kind == "guess":
        pair = type(value) is tuple and len(value) == 2
        return pair and is_event_value("label", value[0]) and is_event_value("number", value[1])
    if kind == "json" and type(value) is dict:
        keys = all(type(key) is str for key in value)
        return keys and all(is_event_value("json", entry) for entry in value.values())
    if kind == "json" and type(value) is list:
        return all(is_event_value("json", entry) for entry in value)
    if type(value) not in _TYPES["scalar" if kind == "json" else kind]:
        return False
    if type(value) is float and not math.isfinite(value):
        return False
    lowest, highest = _RANGES.get(kind, (None, None))
    return lowest is None or lowest <= value <= highest


_FIELD_TYPES: dict[str, tuple[str, str]] = {
    name: (kind, words)
    for names, kind, words in (
        ("at until", "number", "a finite number of seconds"),
        ("seconds", "seconds?", "a finite number of seconds, 0 or more, or None"),
        ("id", "id", "a whole number of 64 bits"),
        ("ids validation", "id*", "a tuple of whole numbers of 64 bits"),
        ("label old new", "label", "a whole number, a finite number or a text"),
        ("suggested", "label?", "a label or None"),
        ("by reason text error strategy", "text", "a text"),
        ("checkpoint", "text?", "a text or None"),
        ("items batch number labels", "count", "a whole number, 0 or more"),
        ("model", "count?", "a whole number or None"),
        ("seed", "whole", "a whole number"),
        ("weights scores", "number*?", "a tuple of finite numbers or None"),
        ("guesses", "guess*?", "a tuple of (label, confidence) tuples or None"),
        ("settings options metrics info", "json", "a dict of JSON values, with texts as keys"),
    )
    for name in names.split()
}
"""Kind and description of each field; a field has the same type in every event."""
