"""Requests and responses of the API, as models that also give its OpenAPI description."""

import unicodedata
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
)

from labelwise.campaign.forecast import Forecast
from labelwise.campaign.stopping import Advice
from labelwise.errors import BadInput
from labelwise.files import JsonObject

LARGEST_NUMBER = 2**53 - 1  # The largest integer that JSON transfers exactly to every language
NAME_LENGTH = 80
TEXT_LENGTH = 1_000
NO_CONTROLS = r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*$"
"""One line without control characters, which could hide text in a log or a table."""


def clean_annotator_name(given: str) -> str:
    """An annotator's name as the record keeps it.

    >>> clean_annotator_name(" Jörg ")
    'Jörg'
    """
    name = unicodedata.normalize("NFC", given).strip()
    if not 1 <= len(name) <= NAME_LENGTH:
        raise BadInput(f"the annotator's name has {len(name)} letters; give 1 to {NAME_LENGTH}")
    if not name.isprintable():  # two different names must not look the same
        raise BadInput(f"the annotator's name {name!r} has an invisible character; give another")
    if "\ufffd" in name:  # what `unquote` makes of bytes that are not UTF-8
        raise BadInput(f"the annotator's name {name!r} is not UTF-8; percent-encode it as UTF-8")
    return name


def _accept_whole_float(value: object) -> object:
    """Accept 40.0 as an integer, since JSON has one number type; "40" and true stay invalid."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_accept_whole_float)
Id = Annotated[
    int, Field(ge=0, le=LARGEST_NUMBER, strict=True, description="An item's stable id."), WHOLE
]
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
    int, Field(ge=0, le=50, strict=True, description="How many further items to lease."), WHOLE
]


class RequestBody(BaseModel):
    """A request body; unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid")


class LendBody(RequestBody):
    """A request for items to label."""

    count: Annotated[int, Field(ge=1, le=50, strict=True), WHOLE] = 1


class OneLabel(RequestBody):
    """One item's label."""

    id: Id
    label: LabelValue
    seconds: Seconds | None = None
    suggested: LabelValue | None = Field(
        default=None, description="The prediction that was preselected, if any."
    )


class LabelsBody(RequestBody):
    """Labels, and how many items to lease next."""

    labels: Annotated[list[OneLabel], Field(min_length=1, max_length=500)]
    lend: Count = 0
    anything: bool = Field(default=False, description="Accept items that were never asked for.")


class SkipBody(RequestBody):
    """Skip an item, with a reason."""

    id: Id
    reason: Annotated[str, Field(max_length=TEXT_LENGTH, pattern=NO_CONTROLS)] = ""
    lend: Count = 0


class ReturnBody(RequestBody):
    """Return leased items without a label; all of them without ids."""

    ids: Annotated[list[Id], Field(max_length=1_000)] | None = None


class LeaveBody(RequestBody):
    """The items of a closed page, and those that it has just answered."""

    ids: Annotated[list[Id], Field(max_length=1_000)] = Field(
        default_factory=list,
        description="Items that it holds, besides those that the server knows.",
    )
    answered: Annotated[list[Id], Field(max_length=1_000)] = Field(
        default_factory=list, description="Items whose answers are on their way; they stay leased."
    )


class ResolveBody(RequestBody):
    """Resolve a disagreement."""

    id: Id
    label: LabelValue


class EmptyBody(RequestBody):
    """An empty body."""


class Error(BaseModel):
    """The response to every refused call."""

    error: str = Field(description="The problem, and what to do.")


class ClassChoice(BaseModel):
    """A class and its key."""

    value: int | float | str
    name: str
    key: str | None = Field(description="1 to 9, then 0; null for further classes.")
    description: str | None = Field(default=None, description="What the class means.")


class Session(BaseModel):
    """The session data of a page."""

    csrf: str = Field(description="The value of X-Labelwise-Csrf for calls that change something.")
    name: str | None = Field(description="The annotator's name as the record keeps it.")
    campaign: str
    id: str = Field(description="Identifies the campaign; another may have the same name.")
    kind: str = Field(description="images, texts or numbers.")
    classes: list[ClassChoice]
    free: bool = Field(description="Whether labels may be new classes.")
    regression: bool = Field(description="Whether a label is a number.")
    items: int = Field(description="Number of items of the pool.")
    overlap: int = Field(description="Number of people who label each item.")
    batch: int = Field(description="Number of items of a batch.")
    lend_seconds: float = Field(description="Duration of a lease.")
    strategy: str
    trains: bool = Field(description="Whether this server trains in the background.")
    owner: bool = Field(description="Whether the settings can be changed from this machine.")
    version: str


class Item(BaseModel):
    """An item to show."""

    id: int
    kind: str
    name: str | None = None
    text: str | None = None
    columns: JsonObject | None = None
    image: str | None = Field(default=None, description="The address of its picture.")
    why: str | None = Field(default=None, description="Why it was picked.")
    batch: int | None = None
    rank: int | None = Field(default=None, description="Its rank in the batch, from 1.")


class Held(BaseModel):
    """Why an annotator gets no item: who has those that wait for a label."""

    others: int = Field(description="Items that are leased to other people.")
    answered: int = Field(description="Items that you labelled and another person has to.")


class LeasedItems(BaseModel):
    """Items leased to this annotator, in the order in which to label them."""

    items: list[Item]
    held: Held | None = Field(default=None, description="Given by /api/lend without any item.")


class Accepted(LeasedItems):
    """The number of recorded answers, and the next items."""

    accepted: int
    length: int


class Undone(BaseModel):
    """The item whose label or skip was withdrawn, or null."""

    item: Item | None


class Done(BaseModel):
    """The record's length after the call."""

    length: int


class BatchState(BaseModel):
    """The newest batch."""

    number: int
    size: int
    done: int
    waiting: int = Field(description="Items of all open batches that wait for a label.")
    rolling: bool = Field(description="Whether waiting items are selected again by each new model.")


class BudgetState(BaseModel):
    """Costs so far, and their limits."""

    labels: int
    hours: float | None = None
    money: float | None = None
    of_labels: int | None = None
    of_hours: float | None = None
    of_money: float | None = None
    share: float | None = Field(default=None, description="The largest spent share of a limit.")


class CurvePoint(BaseModel):
    """The score of one model; models with too few held-out labels have none."""

    labels: int = Field(description="All labels at the time, held-out ones included.")
    evaluated: int | None = Field(default=None, description="Labels it was measured on.")
    metric: str = Field(description="accuracy, mse, or prequential (each batch before training).")
    accuracy: float | None = None
    mse: float | None = None
    low: float | None = None
    high: float | None = None


class EvaluationState(BaseModel):
    """The labels of the last model, and its score if it has enough held-out labels."""

    training_labels: int
    held_out: int = Field(description="Labels that only evaluate the model.")
    needed: int = Field(description="Held-out labels from which on a score is shown.")
    metric: str | None = Field(default=None, description="accuracy or mse, with a score.")
    value: float | None = None
    low: float | None = None
    high: float | None = None
    balanced_accuracy: float | None = Field(default=None, description="Mean over the classes.")
    macro_f1: float | None = Field(default=None, description="Mean F1 over the classes.")
    says: str


class ReliabilityBin(BaseModel):
    """Labels whose predictions were about equally confident."""

    confidence: float = Field(description="Their mean confidence.")
    right: float = Field(description="The share of them that was predicted right.")
    labels: int


class QualityState(BaseModel):
    """Confusions and calibration of the last model, on labels that it was not trained on."""

    source: str = Field(description="cross-validation, holdout, or empty if nothing was measured.")
    labels: int
    needed: int = Field(description="Labels from which on confusions and calibration are given.")
    classes: list[int | float | str] = Field(description="Empty with many classes.")
    confusions: list[list[int]] = Field(
        description="How often each class (row) was predicted as each class (column)."
    )
    reliability: list[ReliabilityBin] = Field(description="By ranges of confidence.")
    calibration_error: float | None = Field(
        description="Mean distance of confidence and share right."
    )


class TrainingState(BaseModel):
    """The background process."""

    running: bool
    number: int | None = None
    stage: str | None = Field(
        None, description="For people: training, selecting the next batch, ..."
    )
    done: int | None = None
    total: int | None = None
    error: str | None = Field(
        default=None, description="Why the last training failed, until another begins."
    )
    note: str | None = Field(
        default=None, description="Why there is no training now although labels are new."
    )
    trains: bool = Field(description="Whether this server trains in the background.")


class AnnotatorState(BaseModel):
    """The work of one person."""

    name: str
    labels: int
    skips: int
    seconds: float
    removed: bool = Field(description="Whether the owner has removed them; their labels stay.")


class State(BaseModel):
    """The progress of the campaign."""

    length: int = Field(description="Number of events in the record.")
    version: str = Field(description="Changes whenever anything here does; see since.")
    items: int
    labelled: int
    skipped: int
    gone: int = Field(description="Items that are closed because their files are missing.")
    disagreements: int
    batch: BatchState | None
    budget: BudgetState
    curve: list[CurvePoint]
    evaluation: EvaluationState | None = Field(description="Of the last model; null before it.")
    goal: float | None = Field(description="The accuracy to reach.")
    settings: str = Field(description="Changes whenever a setting or a class does.")
    training: TrainingState
    advice: str = Field(description="One sentence on whether to go on.")
    rules: list[Advice]
    stop: bool = Field(description="Whether the advice is to stop.")
    forecast: Forecast
    you: AnnotatorState | None
    annotators: list[AnnotatorState]


class Guess(BaseModel):
    """The model's prediction when it picked the item."""

    label: int | float | str
    confidence: float | None


class Vote(BaseModel):
    """One person's label."""

    by: str
    label: int | float | str


class DisagreementOut(BaseModel):
    """An item that people label differently."""

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


class OrderedTraining(BaseModel):
    """Whether the background process will train."""

    asked: bool


ExportFormat = Literal["csv", "jsonl"]
