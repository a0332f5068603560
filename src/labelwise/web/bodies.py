"""What the API takes and gives: the models behind its requests, answers and OpenAPI description."""

import unicodedata
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from labelwise.errors import BadInput

LARGEST_NUMBER = 2**53 - 1
"""A whole number that JSON carries to any language unchanged."""
NAME_LENGTH = 80
TEXT_LENGTH = 1_000
NO_CONTROLS = r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*$"
"""A text of one line without control characters, which could hide what a log or a table shows."""


def clean_name(given: str) -> str:
    """An annotator's name as the record keeps it.

    >>> clean_name(" Jörg ")
    'Jörg'
    """
    name = unicodedata.normalize("NFC", given).strip()
    if not 1 <= len(name) <= NAME_LENGTH:
        raise BadInput(f"the annotator's name has {len(name)} letters; give 1 to {NAME_LENGTH}")
    if not name.isprintable():  # nor anything that looks like another name and is not
        raise BadInput(f"the annotator's name {name!r} holds an invisible letter; give another")
    return name


def header_name(given: str) -> str:
    """An annotator's name from a header, which can hold plain letters only: percent-encoded.

    >>> header_name("J%C3%B6rg")
    'Jörg'
    """
    try:
        return clean_name(unquote(given, errors="strict"))
    except UnicodeDecodeError:
        raise BadInput(f"X-Annotator is {given!r}; give it as percent-encoded UTF-8") from None


Id = Annotated[int, Field(ge=0, le=LARGEST_NUMBER, strict=True, description="An item's stable id.")]
LabelValue = Annotated[
    Annotated[StrictInt, Field(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
    | Annotated[StrictFloat, Field(allow_inf_nan=False)]
    | Annotated[StrictStr, Field(min_length=1, max_length=200, pattern=NO_CONTROLS)],
    Field(description="A class, by its value in the session's classes, or a number."),
]
Seconds = Annotated[
    float, Field(ge=0, le=86_400, allow_inf_nan=False, strict=True, description="Time it took.")
]
Count = Annotated[
    int, Field(ge=0, le=50, strict=True, description="How many further items to lend.")
]


class Body(BaseModel):
    """A request body: what it does not know, it refuses."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers(cls, value: Any) -> Any:
        """JSON knows one kind of number: 40.0 is whole, while "40" and true are no numbers."""
        if not isinstance(value, dict):
            return value
        whole = {name: _whole(value[name]) for name in ("id", "count", "lend") if name in value}
        for name in ("ids", "answered"):
            if isinstance(value.get(name), list):
                whole[name] = [_whole(entry) for entry in value[name]]
        return {**value, **whole}


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


class LendBody(Body):
    """Ask for items to label."""

    count: Annotated[int, Field(ge=1, le=50, strict=True)] = 1


class OneLabel(Body):
    """One item's label."""

    id: Id
    label: LabelValue
    seconds: Seconds | None = None


class LabelsBody(Body):
    """Labels, and how many items to lend next."""

    labels: Annotated[list[OneLabel], Field(min_length=1, max_length=500)]
    lend: Count = 0


class SkipBody(Body):
    """Leave an item out, and say why."""

    id: Id
    reason: Annotated[str, Field(max_length=TEXT_LENGTH, pattern=NO_CONTROLS)] = ""
    lend: Count = 0


class ReturnBody(Body):
    """Give lent items back unlabelled; without ids, all of them."""

    ids: Annotated[list[Id], Field(max_length=1_000)] | None = None


class LeaveBody(Body):
    """What a page that is left holds, and what it has answered just now."""

    ids: Annotated[list[Id], Field(max_length=1_000)] = Field(
        default_factory=list, description="What it holds; of what else it was lent, we know."
    )
    answered: Annotated[list[Id], Field(max_length=1_000)] = Field(
        default_factory=list, description="Their answers are on their way: they stay lent."
    )


class ResolveBody(Body):
    """Settle a disagreement."""

    id: Id
    label: LabelValue


class EmptyBody(Body):
    """Nothing needs to be said."""


class Error(BaseModel):
    """What every refused call answers."""

    error: str = Field(description="What was wrong, and what to do.")


class ClassChoice(BaseModel):
    """A class and the key that chooses it."""

    value: int | float | str
    name: str
    key: str | None = Field(description="1 to 9, then 0; none for further classes.")


class Session(BaseModel):
    """What a page needs to know once."""

    csrf: str = Field(description="The value of X-Labelwise-Csrf for calls that change something.")
    name: str | None = Field(description="The annotator's name as the record keeps it.")
    campaign: str
    id: str = Field(description="The campaign's own, as another may have the same name.")
    kind: str = Field(description="images, texts or numbers.")
    classes: list[ClassChoice]
    free: bool = Field(description="Whether other classes than the listed ones may be given.")
    regression: bool = Field(description="Whether a label is a number.")
    items: int = Field(description="How many items the pool has.")
    overlap: int = Field(description="How many people label each item.")
    batch: int = Field(description="How many items a batch has.")
    lend_seconds: float = Field(description="For how long an item is lent.")
    strategy: str
    trains: bool = Field(description="Whether this server trains in the background.")
    version: str


class Item(BaseModel):
    """An item to show."""

    id: int
    kind: str
    name: str | None = None
    text: str | None = None
    columns: dict[str, Any] | None = None
    image: str | None = Field(default=None, description="The address of its picture.")
    why: str | None = Field(default=None, description="Why it was chosen.")
    batch: int | None = None
    rank: int | None = Field(default=None, description="Its place in the batch, from 1.")


class Items(BaseModel):
    """Items lent to this annotator, in the order in which to label them."""

    items: list[Item]


class Accepted(Items):
    """Labels that are now in the record, and the next items."""

    accepted: int
    length: int


class Undone(BaseModel):
    """The item whose last label or skip was taken back, or null if there was none."""

    item: Item | None


class Done(BaseModel):
    """The record's length after the call."""

    length: int


class BatchState(BaseModel):
    """The newest batch."""

    number: int
    size: int
    done: int
    waiting: int = Field(description="Items of all open batches that still want a label.")


class BudgetState(BaseModel):
    """What was spent, of what."""

    labels: int
    hours: float | None = None
    money: float | None = None
    of_labels: int | None = None
    of_hours: float | None = None
    of_money: float | None = None
    share: float | None = Field(default=None, description="The largest spent share of a limit.")


class CurvePoint(BaseModel):
    """What one training measured."""

    labels: int
    metric: str = Field(description="accuracy, mse, or prequential: on each batch before training.")
    accuracy: float | None = None
    mse: float | None = None
    low: float | None = None
    high: float | None = None


class TrainingState(BaseModel):
    """What the background process does."""

    running: bool
    number: int | None = None
    stage: str | None = Field(
        None, description="For people: training, choosing the next batch, ..."
    )
    done: int | None = None
    total: int | None = None
    error: str | None = Field(
        default=None, description="Why the last training failed, until another begins."
    )
    trains: bool = Field(description="Whether this server trains in the background.")


class AdviceLine(BaseModel):
    """What one stopping rule says."""

    rule: str
    stop: bool
    says: str


class ForecastState(BaseModel):
    """What the next batch may bring."""

    gain: float | None = None
    low: float | None = None
    high: float | None = None
    says: str


class AnnotatorState(BaseModel):
    """What one person did."""

    name: str
    labels: int
    skips: int
    seconds: float


class State(BaseModel):
    """How far the campaign has come."""

    length: int = Field(description="Of the record; grows with every change.")
    version: str = Field(description="Changes when anything here does; for since.")
    items: int
    labelled: int
    skipped: int
    gone: int = Field(description="Items that nobody can be shown any more; their files are gone.")
    disagreements: int
    batch: BatchState | None
    budget: BudgetState
    curve: list[CurvePoint]
    training: TrainingState
    advice: list[AdviceLine]
    stop: bool = Field(description="Whether the advice on the whole is to stop.")
    forecast: ForecastState | None
    you: AnnotatorState | None
    annotators: list[AnnotatorState]


class Guess(BaseModel):
    """What the model thought when it chose the item."""

    label: int | float | str
    confidence: float | None


class Vote(BaseModel):
    """One person's label."""

    by: str
    label: int | float | str


class DisagreementOut(BaseModel):
    """An item on which people differ."""

    id: int
    votes: list[Vote]
    item: Item


class HistoryLine(BaseModel):
    """One event of the record."""

    number: int
    kind: str
    at: float
    by: str | None
    says: str


class Started(BaseModel):
    """Whether the background process will train."""

    asked: bool


ExportFormat = Literal["csv", "jsonl"]
