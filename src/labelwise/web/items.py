"""All items of a campaign for the page: search, filter and sort, one page of rows at a time."""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Literal, NamedTuple

import numpy as np
from fastapi import Depends, Query, Request
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from starlette.responses import Response

from labelwise.arrays import Ids
from labelwise.campaign import export
from labelwise.campaign.evaluation import (
    FEWEST_EVALUATED,
    ModelEvaluation,
    list_suspicious_labels,
)
from labelwise.campaign.project import Project
from labelwise.errors import UnknownName
from labelwise.files import FileStamp, JsonObject, read_file_stamp
from labelwise.record.events import Event, Label, Noted
from labelwise.record.ledger import Ledger
from labelwise.web import bodies, predictions, views
from labelwise.web.api import Annotator, TheSite, changing, reading
from labelwise.web.pool_map import MapSource, StoredMap

Status = Literal["open", "waiting", "labelled", "skipped", "disputed"]
STATUSES: tuple[Status, ...] = ("open", "waiting", "labelled", "skipped", "disputed")
Filter = Literal[
    "all", "open", "waiting", "labelled", "skipped", "disputed", "surprising", "noted", "duplicates"
]
Order = Literal["id", "label", "prediction", "confidence", "batch", "by"]

SHOWN_TEXT, SHOWN_COLUMNS, SEARCHED_TEXT = 300, 6, 1_000
"""Characters and columns of an item in a list, and characters that are searched."""
CACHED_QUERIES = 16
MOST_DUPLICATES = 99  # Near-duplicates that are listed with an item
FOUND, PICKED = 1, 2
"""Flags of an item on the map: a query finds it; it is selected and waits for a label."""


class ItemRow(BaseModel):
    """An item in a list."""

    id: int
    name: str | None = None
    text: str | None = Field(default=None, description="Shortened, unless ids has one id.")
    columns: JsonObject | None = Field(
        default=None, description="The first ones, or all if ids has one id."
    )
    image: str | None = None
    status: Status
    label: int | float | str | None = None
    by: list[str] = Field(description="Who labelled or skipped it.")
    reason: str | None = Field(default=None, description="Why it was skipped.")
    prediction: int | float | str | None = None
    confidence: float | None = None
    batch: int | None = None
    notes: list[str] = Field(description="Notes of annotators.")
    duplicates: list[int] = Field(description="Ids of its near-duplicates, if the map is ready.")


class ItemPage(BaseModel):
    """Some rows of a list, and the length of the list."""

    total: int
    rows: list[ItemRow]


@dataclass(frozen=True)
class ItemQuery:
    """Filter and order of the list of items."""

    search: str = ""  # words that must all occur in the name, text or columns; case is ignored
    # a status, ``all``, ``noted``, ``surprising`` (the label is not the prediction) or
    # ``duplicates`` (near-duplicates, by group)
    show: Filter = "all"
    label: str | None = None  # a class, as text
    prediction: str | None = None  # a predicted class, as text
    by: str | None = None  # an annotator
    batch: int | None = None  # a batch number
    ids: tuple[int, ...] = ()  # only these items; empty for all
    sort: Order = "id"  # the column to sort by; ties by id
    descending: bool = False  # whether the largest come first


class Categories:
    """Distinct values with a number for each, in the order of their first use.

    >>> kinds = Categories()
    >>> kinds.encode(["cat", "dog", "cat"]).tolist(), kinds.find("dog"), kinds.find("owl")
    ([0, 1, 0], 1, -2)
    """

    def __init__(self) -> None:
        self.values: list[Label] = []
        self._numbers: dict[str, int] = {}

    def encode(self, values: Iterable[Label]) -> NDArray[np.int32]:
        """The numbers of values, ``(n,)``; new values get new numbers."""
        numbers = self._numbers
        codes = []
        for value in values:
            text = str(value)
            code = numbers.get(text)
            if code is None:
                code = numbers[text] = len(self.values)
                self.values.append(value)
            codes.append(code)
        return np.array(codes, dtype=np.int32)

    def find(self, text: str) -> int:
        """The number of a value given as text; -2 if there is none."""
        return self._numbers.get(text, -2)

    def ranks(self) -> NDArray[np.int64]:
        """The alphabetical rank of every value, with a last entry 0 for "none" (-1)."""
        order = sorted(range(len(self.values)), key=lambda code: str(self.values[code]))
        ranks = np.zeros(len(order) + 1, dtype=np.int64)
        ranks[order] = np.arange(1, len(order) + 1)
        return ranks


class MapMarks(NamedTuple):
    """Codes into ``names`` from 1 on (0 for none) and flags of all items, ``(n,)`` each."""

    names: list[str]
    labels: NDArray[np.uint16]
    predictions: NDArray[np.uint16]
    flags: NDArray[np.uint8]


Look = Callable[[Callable[[Ledger], None]], None]  # Runs a function on the newest ledger


class ItemTable:
    """Columns over all items, ``(n,)`` each, updated when the record has changed.

    Args:
        project: The campaign.
        look: Runs a function on the newest ledger.
    """

    def __init__(self, project: Project, look: Look) -> None:
        self._project, self._look = project, look
        self.map = MapSource(project)
        self._lock = threading.Lock()
        self._predictions: tuple[FileStamp | None, predictions.PoolPredictions | None]
        self._predictions = (None, None)
        self._texts: list[str] = []  # searched, lower case
        self._preparing = False
        self._version: tuple[object, ...] = ()  # of record, predictions and map
        self._found: OrderedDict[ItemQuery, Ids] = OrderedDict()

    def list_items(self, query: ItemQuery, offset: int, limit: int) -> ItemPage:
        """Some rows of the items that a query finds."""
        if not self._preparing:  # at the first list, so that searches are fast
            self._preparing = True
            threading.Thread(target=self._prepare_search, daemon=True).start()
        with self._lock:
            self._update_columns()
            found = self._find_cached_items(query)
            shown = found[offset : offset + limit]
            whole = len(query.ids) == 1
            return ItemPage(
                total=len(found), rows=[self._show_item_row(int(item), whole) for item in shown]
            )

    def prepare_map(self) -> str:
        """Start to compute the map unless it is complete; what the page says meanwhile."""
        with self._lock:
            self._update_columns()
            return self.map.prepare_map(len(self.status))

    def mark_items(self, query: ItemQuery) -> "MapMarks":
        """Label, prediction and flags of all items on the map."""
        with self._lock:
            self._update_columns()
            flags = np.zeros(len(self.status), np.uint8)
            flags[self._find_cached_items(query)] |= FOUND
            flags[self.status == STATUSES.index("waiting")] |= PICKED
            names = [str(value) for value in self.classes.values]
            codes = (self.label + 1).astype(np.uint16), (self.prediction + 1).astype(np.uint16)
            return MapMarks(names, *codes, flags)

    def _update_columns(self) -> None:
        """Compute the columns again if the record has changed."""
        stamp = read_file_stamp(self._project.home / predictions.FILE)
        if stamp != self._predictions[0]:
            self._predictions = stamp, predictions.read_predictions(self._project.home)
        known_map = self.map.read_map()
        map_version = None if known_map is None else known_map.version

        def update(ledger: Ledger) -> None:
            version = (ledger.length, stamp, map_version)
            if version != self._version:
                self._version = version
                self._compute_columns(ledger, known_map)

        self._look(update)

    def _compute_columns(self, ledger: Ledger, known_map: StoredMap | None) -> None:
        self._found.clear()
        n = ledger.items
        self.classes, self.people = Categories(), Categories()
        self.label = np.full(n, -1, dtype=np.int32)
        self.prediction = np.full(n, -1, dtype=np.int32)
        self.confidence = np.full(n, np.nan, dtype=np.float32)
        self.batch = np.zeros(n, dtype=np.int32)
        self.annotator = np.full(n, -1, dtype=np.int32)
        self.status = np.zeros(n, dtype=np.uint8)
        self.label[list(ledger.labels)] = self.classes.encode(ledger.labels.values())
        self.votes, self._skipped = dict(ledger.votes), dict(ledger.skipped)
        self._notes = {item: dict(notes) for item, notes in ledger.notes.items()}
        voters = (next(iter(given)) for given in self.votes.values())
        self.annotator[list(self.votes)] = self.people.encode(voters)
        for asked in (batch.asked for batch in ledger.batches):
            everything = [*asked.ids, *asked.validation]
            self.batch[everything] = asked.batch
            if asked.guesses is not None:
                chosen = list(asked.ids)
                self.prediction[chosen] = self.classes.encode(label for label, _ in asked.guesses)
                self.confidence[chosen] = [share for _, share in asked.guesses]
        self.group = np.full(n, -1, dtype=np.int32)
        if known_map is not None:
            self.group[: len(known_map.groups)] = known_map.groups[:n]
        newest = self._predictions[1]
        if newest is not None:
            # Labelled items keep the prediction that was made before their label was known.
            rest = np.flatnonzero(self.label[: len(newest.codes)] < 0)
            codes = self.classes.encode(newest.names)
            self.prediction[rest] = codes[newest.codes[rest]]
            self.confidence[rest] = newest.confidence[rest]
        for doubt in list_suspicious_labels(ledger):  # by a model that was not trained on the label
            self.prediction[doubt.id] = self.classes.encode([doubt.suggested])[0]
            self.confidence[doubt.id] = 1 - doubt.probability
        # A prediction must not influence the label of an item that evaluates the model.
        unlabelled = [item for item in ledger.validation if self.label[item] < 0]
        self.prediction[unlabelled], self.confidence[unlabelled] = -1, np.nan
        for name, members in (
            ("waiting", ledger.waiting),
            ("labelled", ledger.labels),
            ("skipped", ledger.skipped),
            ("disputed", [one.id for one in ledger.disagreements()]),
        ):
            self.status[list(members)] = STATUSES.index(name)

    def predict_items(self, ids: Iterable[int]) -> dict[int, tuple[Label, float]]:
        """Prediction and probability of unlabelled items, except for those of the evaluation."""
        with self._lock:
            self._update_columns()
            known = [item for item in ids if item < len(self.label) and self.prediction[item] >= 0]
            return {
                item: (self.classes.values[self.prediction[item]], float(self.confidence[item]))
                for item in known
                if self.label[item] < 0
            }

    def list_predictions(self, describe: Callable[[int], str]) -> list[dict[str, object]]:
        """A row per predicted item; `describe` gives an item as text."""
        with self._lock:
            self._update_columns()
            names = [*self.classes.values, None]  # the last one for -1
            return [
                {
                    "id": item,
                    "item": describe(item),
                    "label": names[self.label[item]],
                    "prediction": names[self.prediction[item]],
                    "confidence": round(float(self.confidence[item]), 4),
                }
                for item in np.flatnonzero(self.prediction >= 0).tolist()
            ]

    def _find_cached_items(self, query: ItemQuery) -> Ids:
        found = self._found.get(query)
        if found is None:
            found = self._found[query] = self._find_items(query)
            if len(self._found) > CACHED_QUERIES:
                self._found.popitem(last=False)
        return found

    def _find_items(self, query: ItemQuery) -> Ids:
        keep = np.ones(len(self.status), dtype=bool)
        if query.ids:
            keep[:] = False
            keep[[item for item in query.ids if item < len(keep)]] = True
        if query.show == "surprising":
            keep &= (self.label >= 0) & (self.prediction >= 0) & (self.label != self.prediction)
        elif query.show == "noted":
            keep[:] = False
            keep[list(self._notes)] = True
        elif query.show == "duplicates":
            keep &= self.group >= 0
        elif query.show != "all":
            keep &= self.status == STATUSES.index(query.show)
        if query.label is not None:
            keep &= self.label == self.classes.find(query.label)
        if query.prediction is not None:
            keep &= self.prediction == self.classes.find(query.prediction)
        if query.by is not None:
            keep &= self.annotator == self.people.find(query.by)
        if query.batch is not None:
            keep &= self.batch == query.batch
        ids = np.flatnonzero(keep)
        if query.search and len(self._texts) < len(keep):
            self._texts = self._read_texts()
        for word in query.search.lower().split():
            contains = np.zeros(len(keep), dtype=bool)
            contains[[item for item, text in enumerate(self._texts) if word in text]] = True
            ids = ids[contains[ids]]
        return self._sort_items(ids, query)

    def _sort_items(self, ids: Ids, query: ItemQuery) -> Ids:
        if query.sort == "id":
            if query.show == "duplicates":
                ids = ids[np.argsort(self.group[ids], kind="stable")]
            return ids[::-1] if query.descending else ids
        columns: dict[str, Callable[[], NDArray[np.float64]]] = {
            "label": lambda: self.classes.ranks()[self.label[ids]].astype(float),
            "prediction": lambda: self.classes.ranks()[self.prediction[ids]].astype(float),
            "by": lambda: self.people.ranks()[self.annotator[ids]].astype(float),
            "confidence": lambda: self.confidence[ids].astype(float),
            "batch": lambda: self.batch[ids].astype(float),
        }
        keys = columns[query.sort]()
        missing = np.isnan(keys) if query.sort == "confidence" else keys == 0
        keys = np.where(missing, np.inf, -keys if query.descending else keys)  # missing ones last
        return ids[np.argsort(keys, kind="stable")]

    def _read_texts(self) -> list[str]:
        """The searched texts of all items."""
        texts = []
        for item in self._project.items:
            about = self._describe_item(item)
            parts = [str(about[key]) for key in ("name", "text") if key in about]
            parts += map(str, about.get("columns", {}).values())
            texts.append(" ".join(parts)[:SEARCHED_TEXT].lower())
        return texts

    def _prepare_search(self) -> None:
        """Read the texts without the lock, so that lists do not wait for them."""
        texts = self._read_texts()
        with self._lock:
            self._texts = texts

    def _describe_item(self, item: int) -> JsonObject:
        try:
            return dict(self._project.items.describe(item))
        except LookupError:  # removed since
            return {}

    def _show_item_row(self, item: int, whole: bool) -> ItemRow:
        about = self._describe_item(item)
        skip = self._skipped.get(item)
        text, columns = about.get("text"), about.get("columns")
        characters, names = (None, None) if whole else (SHOWN_TEXT, SHOWN_COLUMNS)
        image = views.make_image_address(item) if self._project.kind == "images" else None
        label, prediction = int(self.label[item]), int(self.prediction[item])
        confidence = float(self.confidence[item])
        return ItemRow(
            id=item,
            name=about.get("name"),
            text=None if text is None else str(text)[:characters],
            columns=columns and views.shorten_floats(dict(islice(columns.items(), names))),
            image=image,
            status=STATUSES[self.status[item]],
            label=None if label < 0 else self.classes.values[label],
            by=list(self.votes.get(item, ())) or ([skip.by] if skip else []),
            reason=skip.reason if skip else None,
            prediction=None if prediction < 0 else self.classes.values[prediction],
            confidence=None if np.isnan(confidence) else round(confidence, 4),
            batch=int(self.batch[item]) or None,
            notes=[f"{by}: {text}" for by, text in self._notes.get(item, {}).items()],
            duplicates=self._list_duplicates(item),
        )

    def _list_duplicates(self, item: int) -> list[int]:
        if self.group[item] < 0:
            return []
        same = np.flatnonzero(self.group == self.group[item])
        return [int(other) for other in same[: MOST_DUPLICATES + 1] if other != item]


async def _find_item_table(request: Request) -> ItemTable:
    table: ItemTable = request.app.state.item_table
    return table


TheTable = Annotated[ItemTable, Depends(_find_item_table)]
Word = Annotated[str | None, Query(max_length=400)]
Numbers = Annotated[
    str,
    Query(pattern=r"^[0-9]{1,15}(,[0-9]{1,15}){0,99}$", description="Up to 100 ids, with commas."),
]


async def _read_item_query(
    search: Annotated[
        str, Query(max_length=400, description="Words that must all occur in the item.")
    ] = "",
    show: Annotated[
        Filter, Query(description="surprising: labelled differently from the prediction.")
    ] = "all",
    label: Word = None,
    prediction: Word = None,
    by: Annotated[str | None, Query(max_length=400, description="The first annotator.")] = None,
    batch: Annotated[int | None, Query(ge=1, le=bodies.LARGEST_NUMBER)] = None,
    ids: Numbers | None = None,
    sort: Order = "id",
    descending: bool = False,
) -> ItemQuery:
    numbers = tuple(map(int, ids.split(","))) if ids else ()
    return ItemQuery(search, show, label, prediction, by, batch, numbers, sort, descending)


TheQuery = Annotated[ItemQuery, Depends(_read_item_query)]


@reading.get("/items", summary="All items: search, filter and sort")
def get_items(
    table: TheTable,
    query: TheQuery,
    offset: Annotated[int, Query(ge=0, le=bodies.LARGEST_NUMBER)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 100,
) -> ItemPage:
    """One page of the list, and its length. Predictions are those of the last model."""
    return table.list_items(query, offset, limit)


class MapState(BaseModel):
    """The map of the pool; similar items are close to each other."""

    items: int = Field(description="Items on the map; 0 before it is ready.")
    version: str = Field(description="Changes with the places.")
    says: str = Field(description="Why it is missing or lacks the newest items; usually empty.")


@reading.get("/map", summary="Whether there is a map of the pool")
def get_map(table: TheTable) -> MapState:
    """The first call starts a process that computes the map and finds near-duplicates."""
    says, found = table.prepare_map(), table.map.read_map()
    if found is None:
        return MapState(items=0, version="", says=says)
    return MapState(items=len(found.places), version=str(found.version), says=says)


_BYTES: JsonObject = {"application/octet-stream": {}}


@reading.get(
    "/map/places",
    summary="The places of all items on the map",
    response_class=Response,
    responses={200: {"description": "x of all items, then y.", "content": _BYTES}},
)
def get_map_places(
    table: TheTable,
    version: Annotated[str, Query(max_length=30, description="For the browser's cache.")] = "",
) -> Response:
    """Unsigned 16-bit numbers, little-endian: the n values of x, then the n values of y."""
    found = table.map.read_map()
    if found is None:
        raise UnknownName("there is no map yet; GET /api/map starts its computation")
    headers = {"Cache-Control": "private, max-age=86400"} if version == str(found.version) else {}
    return _send_map_bytes(found.places.T.astype("<u2").tobytes(), headers)


@reading.get(
    "/map/marks",
    summary="Label, prediction and flags of all items",
    response_class=Response,
    responses={200: {"description": "Names, then three columns.", "content": _BYTES}},
)
def get_map_marks(table: TheTable, query: TheQuery) -> Response:
    """For all items, also those that the query does not find.

    Little-endian: the length of a JSON list of class names in bytes (32 bits), the list, padded
    with spaces to a multiple of 4; the number of each item's label (16 bits, 0 for none, 1 for the
    first name), of its prediction, and its flags (8 bits: 1 the query finds it, 2 it waits for a
    label).
    """
    marks = table.mark_items(query)
    names = json.dumps(marks.names).encode()
    names += b" " * (-len(names) % 4)
    columns = (marks.labels.astype("<u2"), marks.predictions.astype("<u2"), marks.flags)
    body = len(names).to_bytes(4, "little") + names
    return _send_map_bytes(body + b"".join(column.tobytes() for column in columns), {})


def _send_map_bytes(body: bytes, headers: dict[str, str]) -> Response:
    return Response(body, media_type="application/octet-stream", headers=headers)


FEWEST_RIGHT = 0.7
"""Accuracy from which on predictions may be preselected; worse ones mislead more than they help."""


class Suggestion(BaseModel):
    """A prediction that the page may preselect."""

    id: int
    label: int | float | str
    confidence: float


class Suggestions(BaseModel):
    """Predictions of some items, if the model is accurate enough."""

    allowed: bool
    says: str = Field(description="The accuracy, and what is needed.")
    suggestions: list[Suggestion]


@reading.get("/suggestions", summary="Predictions to confirm or correct")
def get_suggestions(site: TheSite, table: TheTable, ids: Numbers) -> Suggestions:
    """Predictions of these items; none for items that evaluate the model.

    Send a suggestion that was shown with the label (``suggested``): agreement with it is biased.
    """
    wanted = dict.fromkeys(map(int, ids.split(",")))
    allowed, says = site.record.look(judge_suggestions)
    settings = site.record.settings
    found = table.predict_items(wanted) if allowed else {}
    return Suggestions(
        allowed=allowed,
        says=says,
        suggestions=[
            Suggestion(id=item, label=label, confidence=confidence)
            for item, (label, confidence) in found.items()
            if settings.classes is None or label in settings.classes
        ],
    )


def judge_suggestions(ledger: Ledger) -> tuple[bool, str]:
    """Whether predictions may be preselected, and why (not)."""
    needed = (
        f"confirming needs an accuracy of {100 * FEWEST_RIGHT:.0f} % on {FEWEST_EVALUATED} "
        "held-out labels"
    )
    if not ledger.trainings:
        return False, f"there is no model yet; {needed}"
    evaluation = ModelEvaluation.from_training(ledger.trainings[-1])
    score = evaluation.score
    right = score is not None and score.metric == "accuracy" and score.value >= FEWEST_RIGHT
    return right, f"{evaluation.describe()}; {needed}"


@reading.get(
    "/predictions",
    summary="The predictions of all items as a CSV file",
    response_class=Response,
    responses={200: {"description": "A row per predicted item.", "content": {"text/csv": {}}}},
)
def get_predictions(site: TheSite, table: TheTable) -> Response:
    """Class and confidence, with the label if there is one; ``labelwise predict`` gives more."""
    rows = table.list_predictions(site.project.describe_item)
    export.restore_keys(rows, site.project.items)
    columns = ["id", "item", "label", "prediction", "confidence"]
    body = export.encode_table(".csv", columns, rows, spreadsheet=True)
    headers = {"Content-Disposition": 'attachment; filename="predictions.csv"'}
    return Response(body, media_type="text/csv; charset=utf-8", headers=headers)


class NoteBody(bodies.RequestBody):
    """A note about an item; an empty text removes it."""

    id: bodies.Id
    text: Annotated[str, Field(max_length=bodies.TEXT_LENGTH, pattern=bodies.NO_CONTROLS)]


@changing.post("/note", summary="Write a note about an item")
def post_note(site: TheSite, by: Annotator, body: NoteBody) -> bodies.Done:
    """One note per person and item; another one replaces it."""

    def make_events(ledger: Ledger, now: float) -> list[Event]:
        if body.id >= ledger.items:
            raise UnknownName(f"the campaign has no item {body.id}")
        text = body.text.strip()
        same = ledger.notes.get(body.id, {}).get(by, "") == text
        return [] if same else [Noted(now, body.id, text, by)]

    return site.commit_events(make_events)
