"""The events of a campaign: what happened, when, and by whom.

The record of a campaign is a list of these, only ever appended to; everything else is worked out
from it (`labelwise.record.ledger`). An event is written as one JSON object with its kind and the
number of the format it was written in. An older format is brought up to date on reading by the
functions in `UPGRADES`; a newer one is refused, since guessing at it could lose labels.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from labelwise.errors import BadInput, StorageFailed
from labelwise.learner import Label as Label
from labelwise.record.event_checks import CHECKS

FORMAT = 1
"""The number of the format that this version writes."""

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

UPGRADES: dict[int, Upgrade] = {}
"""By old format number: a function from an event's JSON to that of the next format."""


@dataclass(frozen=True, slots=True)
class Started:
    """The campaign began, over a pool of ``items`` items."""

    at: float
    settings: dict[str, Any]
    items: int
    by: str = ""


@dataclass(frozen=True, slots=True)
class Changed:
    """Settings changed; ``settings`` holds only those."""

    at: float
    settings: dict[str, Any]
    by: str = ""


@dataclass(frozen=True, slots=True)
class Added:
    """The pool grew by ``items`` items."""

    at: float
    items: int


@dataclass(frozen=True, slots=True)
class Asked:
    """Batch number ``batch`` was chosen: labels are wanted for ``ids``, best first.

    Attributes:
        at: seconds since the epoch, UTC; so in every event.
        batch: 1, 2, ...
        ids: the picks, in the order of picking.
        weights: how many pool items each pick stands for, or None.
        scores: the strategy's score of each pick, or None.
        strategy: its name.
        seed: its seed.
        options: its options.
        model: the number of the training whose model represented the pool, or None.
        validation: ids picked at random and only for measuring; among ``ids`` or besides them.
        guesses: the model's label and its confidence for each pick, or None.
        info: what the strategy had to say.
    """

    at: float
    batch: int
    ids: tuple[int, ...]
    weights: tuple[float, ...] | None = None
    scores: tuple[float, ...] | None = None
    strategy: str = ""
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    model: int | None = None
    validation: tuple[int, ...] = ()
    guesses: tuple[tuple[Label, float], ...] | None = None
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lent:
    """Items were lent to one person until a time, so that nobody else labels them meanwhile."""

    at: float
    ids: tuple[int, ...]
    by: str
    until: float


@dataclass(frozen=True, slots=True)
class Returned:
    """A person gave items back without labels."""

    at: float
    ids: tuple[int, ...]
    by: str


@dataclass(frozen=True, slots=True)
class Told:
    """A person labelled an item; a second time changes that person's label."""

    at: float
    id: int
    label: Label
    by: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A person took back the last thing they said of an item: resolution, label or skip."""

    at: float
    id: int
    by: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A person said that an item should not be labelled, and why."""

    at: float
    id: int
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A person settled which label an item has, whatever the others said."""

    at: float
    id: int
    label: Label
    by: str = ""


@dataclass(frozen=True, slots=True)
class Training:
    """Training number ``number`` began, on so many labels."""

    at: float
    number: int
    labels: int
    by: str = ""


@dataclass(frozen=True, slots=True)
class Trained:
    """Training number ``number`` ended well."""

    at: float
    number: int
    labels: int
    seconds: float
    metrics: dict[str, Any]
    checkpoint: str | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TrainingFailed:
    """Training number ``number`` ended in an error."""

    at: float
    number: int
    error: str


Event = (
    Started
    | Changed
    | Added
    | Asked
    | Lent
    | Returned
    | Told
    | Withdrawn
    | Skipped
    | Resolved
    | Training
    | Trained
    | TrainingFailed
)

KINDS: dict[str, type[Event]] = {
    "started": Started,
    "changed": Changed,
    "added": Added,
    "asked": Asked,
    "lent": Lent,
    "returned": Returned,
    "told": Told,
    "withdrawn": Withdrawn,
    "skipped": Skipped,
    "resolved": Resolved,
    "training": Training,
    "trained": Trained,
    "training_failed": TrainingFailed,
}
"""The events by the name that the record knows them by."""

_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_NAMES = {kind: name for name, kind in KINDS.items()}
_FIELDS = {kind: tuple(entry.name for entry in fields(kind)) for kind in _NAMES}
_TUPLES = {
    kind: tuple(
        name
        for name in ("ids", "weights", "scores", "validation", "guesses")
        if name in _FIELDS[kind]
    )
    for kind in _NAMES
}


def kind_of(event: Event) -> str:
    """The name of an event's kind, as in its JSON.

    Example:
        >>> kind_of(Told(at=0.0, id=7, label="cat"))
        'told'
    """
    return _NAMES[type(event)]


def to_json(event: Event) -> dict[str, Any]:
    """An event as the JSON object that the record holds.

    Raises:
        BadInput: if a value is not of the kind that the event calls for.

    Example:
        >>> to_json(Withdrawn(at=5.0, id=7, by="ann"))
        {'kind': 'withdrawn', 'format': 1, 'at': 5.0, 'id': 7, 'by': 'ann'}
    """
    kind = type(event)
    if kind not in _NAMES:
        raise BadInput(f"a record holds events; got {kind.__name__}")
    result: dict[str, Any] = {"kind": _NAMES[kind], "format": FORMAT}
    for name in _FIELDS[kind]:
        value = getattr(event, name)
        fits, words = CHECKS[name]
        if not fits(value):
            raise BadInput(f"{name} of {kind.__name__} must be {words}; got {_short(value)}")
        result[name] = value
    if isinstance(event, Asked):
        _check_aligned(event)
    return result


def from_json(value: Mapping[str, Any], upgrades: Mapping[int, Upgrade] = UPGRADES) -> Event:
    """The event that a JSON object of the record tells of.

    Args:
        value: what `to_json` made, in this format or an older one.
        upgrades: by old format number, how to get to the next format.

    Raises:
        StorageFailed: if it was written by a newer labelwise, or is not an event.

    Example:
        >>> from_json({"kind": "withdrawn", "format": 1, "at": 5.0, "id": 7, "by": "ann"})
        Withdrawn(at=5.0, id=7, by='ann')
    """
    entries = dict(value)
    number = entries.get("format")
    if type(number) is not int or number != FORMAT:
        entries = _upgrade(entries, upgrades)
    del entries["format"]
    name = entries.pop("kind", None)
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise StorageFailed(
            f"the record holds an event of unknown kind {_short(name)}; update labelwise to read it"
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


def encode(event: Event) -> str:
    """An event as one line of plain ASCII, which every storage holds unchanged."""
    return _ENCODER.encode(to_json(event))


def decode(text: str) -> Event:
    """The event of one line that `encode` wrote."""
    try:
        value = json.loads(text)
    except ValueError:
        raise StorageFailed(f"the record holds a damaged event: {_short(text)}") from None
    if type(value) is not dict:
        raise StorageFailed(f"the record holds something that is no event: {_short(text)}")
    return from_json(value)


def _upgrade(entries: dict[str, Any], upgrades: Mapping[int, Upgrade]) -> dict[str, Any]:
    """Bring an event's JSON to the format of this version, one format at a time."""
    number = entries.get("format")
    if type(number) is not int:
        raise StorageFailed(f"the record holds an event without a format number: {_short(entries)}")
    if number > FORMAT:
        raise StorageFailed(
            f"the record was written by a newer labelwise (format {number}); "
            f"this one reads up to format {FORMAT}: update labelwise"
        )
    for old in range(number, FORMAT):
        if old not in upgrades:
            raise StorageFailed(
                f"the record holds an event of format {old}, which this labelwise no longer reads; "
                "open it once with an older version"
            )
        entries = {**upgrades[old](entries), "format": old + 1}
    return entries


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _check_aligned(event: Asked) -> None:
    if len(set(event.ids)) != len(event.ids):
        raise BadInput(f"ids of batch {event.batch} must all be different")
    for name in ("weights", "scores", "guesses"):
        values = getattr(event, name)
        if values is not None and len(values) != len(event.ids):
            raise BadInput(
                f"batch {event.batch} has {len(event.ids)} ids but {len(values)} {name}; "
                "give one for each id"
            )
