"""The API under ``/api``: what the page does, as JSON.

Every call that changes something appends to the record and answers when it is on disk. Handlers
are plain functions on a pool of threads; what many of them write at once is committed together.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi import Path as InPath
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from labelwise.campaign import operations
from labelwise.errors import BadInput, UnknownName
from labelwise.record.events import Event
from labelwise.record.ledger import Ledger
from labelwise.web import bodies, views
from labelwise.web.loans import Visitor
from labelwise.web.pictures import picture
from labelwise.web.security import CSRF_HEADER
from labelwise.web.site import Site

LONGEST_WAIT = 25.0
"""Seconds that a page may wait for news."""

_SAID = {
    400: "The campaign does not allow it: no such class, no name, nothing to train with.",
    401: "The token is missing or wrong.",
    403: "The call comes from another site, or without X-Labelwise-Csrf.",
    404: "There is no such item, or nothing is known of it.",
    408: "The body took too long to arrive.",
    409: "Someone else wrote to the record in the meantime; try again.",
    413: "The body is too long.",
    421: "The server is not called so; see --allow-host.",
    422: "The request does not fit this description.",
    429: "Too many wrong tokens; wait.",
    503: "The record cannot be read or written at the moment, or there are too many connections; "
    "nothing was lost.",
}


def _errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": bodies.Error, "description": _SAID[code]} for code in codes}


async def _site(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


async def _annotator(
    x_annotator: Annotated[
        str,
        Header(
            min_length=1,
            max_length=720,
            pattern=r"^(?:[ -$&-~]|%[0-9A-Fa-f]{2})+$",
            description="Who labels: a name of 1 to 80 letters, percent-encoded UTF-8.",
        ),
    ],
) -> str:
    return bodies.header_name(x_annotator)


async def _maybe_annotator(
    x_annotator: Annotated[
        str | None, Header(max_length=720, description="Who looks, percent-encoded.")
    ] = None,
) -> str | None:
    return bodies.header_name(x_annotator) if x_annotator else None


async def _visitor(
    name: Annotated[str, Depends(_annotator)],
    x_labelwise_page: Annotated[
        str,
        Header(
            max_length=40,
            pattern=r"^[A-Za-z0-9-]*$",
            description="A random word of the page's own, which /api/leave names again.",
        ),
    ] = "",
) -> Visitor:
    return Visitor(name, x_labelwise_page)


async def _csrf(
    code: Annotated[str, Header(alias=CSRF_HEADER, description="From GET /api/session.")],
) -> None:
    """Only for the description: the guard has checked it before."""


TheSite = Annotated[Site, Depends(_site)]
Annotator = Annotated[str, Depends(_annotator)]
APage = Annotated[Visitor, Depends(_visitor)]
MaybeAnnotator = Annotated[str | None, Depends(_maybe_annotator)]
ItemId = Annotated[int, InPath(ge=0, le=bodies.LARGEST_NUMBER, description="An item's id.")]

reading = APIRouter(prefix="/api", responses=_errors(400, 401, 403, 404, 421, 422, 429, 503))
changing = APIRouter(
    prefix="/api",
    dependencies=[Depends(_csrf)],
    responses=_errors(400, 401, 403, 404, 408, 409, 413, 421, 422, 429, 503),
)


@reading.get("/session", summary="Begin: the campaign, its classes, and the code for changes")
def session(
    site: TheSite, name: Annotated[str | None, Query(max_length=400)] = None
) -> bodies.Session:
    """Check a name and say what a page needs to know once. Nothing is recorded."""
    from importlib import metadata

    clean = bodies.clean_name(name) if name else None
    settings, shown, items = site.desk.look(
        lambda ledger: (
            (settings := site.desk.settings_of(ledger)),
            views.choices(ledger, settings),
            ledger.items,
        )
    )
    return bodies.Session(
        csrf=site.policy.csrf(),
        name=clean,
        campaign=site.project.name,
        id=site.policy.campaign_id(),
        kind=site.project.kind,
        classes=shown,
        free=settings.classes is None and not settings.regression,
        regression=settings.regression,
        items=items,
        overlap=settings.overlap,
        batch=settings.batch,
        lend_seconds=settings.lend_seconds,
        strategy=settings.strategy,
        trains=site.supervisor is not None,
        version=metadata.version("labelwise"),
    )


@reading.get(
    "/state",
    summary="How far the campaign has come",
    response_model=bodies.State,
    responses={304: {"description": "Nothing changed since If-None-Match.", "content": {}}},
)
async def state(
    request: Request,
    site: TheSite,
    by: MaybeAnnotator,
    since: Annotated[
        str | None,
        Query(
            pattern=r"^\d{1,18}(\.\d{1,18})?$",
            description="The version (or length) already known: wait for another.",
        ),
    ] = None,
    wait: Annotated[
        float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for news.")
    ] = 10.0,
) -> Response:
    """The state now; with ``since``, as soon as it is another, or after ``wait`` seconds.

    ``If-None-Match`` with the ETag of the last answer gives 304 while nothing changed.
    """
    if since is not None:
        await site.watch.wait(since, wait)
    async with site.looking:
        version = await run_in_threadpool(site.version)
    tag = f'"{site.boot}-{version}-{hashlib.sha256((by or "").encode()).hexdigest()[:8]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "X-Annotator"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    async with site.looking:
        found = await run_in_threadpool(site.state, by)
    return Response(found.model_dump_json(), media_type="application/json", headers=headers)


@changing.post("/lend", summary="Borrow items to label")
def lend(site: TheSite, by: APage, body: bodies.LendBody) -> bodies.Items:
    """Items for this annotator; nobody else gets them until the loan lapses.

    What the annotator holds already comes first. Fewer, or none, where no more items wait.
    """
    places = site.desk.commit(site.loans.lend(by, body.count))
    return bodies.Items(items=site.show_lent(by, places))


@changing.post("/labels", summary="Give labels and borrow the next items, in one step")
def labels(site: TheSite, by: APage, body: bodies.LabelsBody) -> bodies.Accepted:
    """Record labels, all or none; another label by the same annotator replaces their last.

    A call whose answer was lost can be repeated: what stands already is not recorded again.
    """
    told = {one.id: one.label for one in body.labels}
    if len(told) < len(body.labels):
        raise BadInput("an item is given two labels in one call; give one")
    took = {one.id: one.seconds for one in body.labels if one.seconds is not None}

    def answer(ledger: Ledger, now: float) -> Sequence[Event]:
        settings = site.desk.settings_of(ledger)
        return operations.label_events(
            ledger, settings, told, by=by.name, seconds=took, anything=False, now=now
        )

    return _accept(site, by, body.lend, told, answer)


@changing.post("/skip", summary="Leave an item out, and say why")
def skip(site: TheSite, by: APage, body: bodies.SkipBody) -> bodies.Accepted:
    """The item wants no label any more, until someone labels it or the skip is undone."""

    def answer(ledger: Ledger, now: float) -> Sequence[Event]:
        return operations.skip_events(ledger, [body.id], reason=body.reason, by=by.name, now=now)

    return _accept(site, by, body.lend, [body.id], answer)


def _accept(
    site: Site,
    by: Visitor,
    count: int,
    ids: Collection[int],
    answer: Callable[[Ledger, float], Sequence[Event]],
) -> bodies.Accepted:
    """Record someone's answers to some items, and lend the next ones."""
    lending = site.loans.lend(by, count, answered=ids)

    def decide(ledger: Ledger, now: float) -> tuple[Sequence[Event], tuple[int, list[views.Place]]]:
        new = answer(ledger, now)
        loans, places = lending(ledger, now)
        return [*new, *loans], (ledger.length + len(new) + len(loans), places)

    length, places = site.desk.commit(decide)
    items = site.show_lent(by, places) if count else []
    return bodies.Accepted(accepted=len(ids), length=length, items=items)


@changing.post("/undo", summary="Take back your last label or skip")
def undo(site: TheSite, by: APage, body: bodies.EmptyBody) -> bodies.Undone:
    """The item is lent to the annotator again, and answered; null if there is nothing left."""
    place = site.desk.commit(site.loans.undo(by))
    return bodies.Undone(item=None if place is None else site.show([place])[0])


@changing.post("/return", summary="Give lent items back unlabelled")
def give_back(site: TheSite, by: APage, body: bodies.ReturnBody) -> bodies.Done:
    """Let others have them at once."""
    return bodies.Done(length=site.desk.commit(site.loans.give_back(by, body.ids)))


@changing.post("/leave", summary="Say that a page is left: what it borrowed goes back")
def leave(site: TheSite, by: APage, body: bodies.LeaveBody) -> bodies.Done:
    """Let others have at once what this page (``X-Labelwise-Page``) was lent and did not answer.

    What another page of the same annotator holds too stays lent. The page borrows nothing any
    more, also by calls that are on their way; answers on their way count.
    """
    if not by.page:
        raise BadInput("X-Labelwise-Page is missing; send the word that came with what was lent")
    return bodies.Done(length=site.desk.commit(site.loans.leave(by, body.ids, body.answered)))


@reading.get(
    "/items/{id}/image",
    summary="An item's picture",
    response_class=Response,
    responses={
        200: {"description": "The file as it is.", "content": {"image/*": {}}},
        304: {"description": "It is still the same as If-None-Match says.", "content": {}},
    },
)
def image(site: TheSite, request: Request, id: ItemId) -> Response:
    """The original file, from the campaign's own folder and from nowhere else."""
    if site.project.kind != "images":
        raise UnknownName(f"the items of {site.project.name!r} have no pictures")
    try:
        path: Path = site.project.items.path(id)
    except (BadInput, UnknownName):  # their words may hold the folder's place: nobody's business
        raise UnknownName(f"item {id} has no picture in the campaign's folder") from None
    return picture(path, request.headers.get("if-none-match"))


@reading.get("/items/{id}/guess", summary="What the model thought of an item")
def guess(site: TheSite, id: ItemId) -> bodies.Guess:
    """Only for who asks: seeing it first changes how people label. 404 if there is none."""
    found = views.guess_of(site.desk.look(lambda ledger: views.place_of(ledger, id)))
    if found is None:
        raise UnknownName(f"the model has no guess for item {id}")
    return found


@reading.get("/disagreements", summary="Items on which people differ")
def disagreements(
    site: TheSite, limit: Annotated[int, Query(ge=1, le=500)] = 100
) -> list[bodies.DisagreementOut]:
    """Those that nobody settled yet, oldest first."""
    open_ones = site.desk.look(
        lambda ledger: [
            (one.id, dict(one.votes), views.place_of(ledger, one.id))
            for one in ledger.disagreements()[:limit]
        ]
    )
    return [
        bodies.DisagreementOut(
            id=item,
            votes=[bodies.Vote(by=by, label=label) for by, label in votes.items()],
            item=site.show([place])[0],
        )
        for item, votes, place in open_ones
    ]


@changing.post("/resolve", summary="Settle a disagreement")
def resolve(site: TheSite, by: Annotator, body: bodies.ResolveBody) -> bodies.Done:
    """This label counts from now on, whatever was voted."""
    site.desk.resolve({body.id: body.label}, by=by)
    return bodies.Done(length=site.desk.look(lambda ledger: ledger.length))


@changing.post("/train", summary="Train now, or try again after a failure", status_code=202)
def train(site: TheSite, by: Annotator, body: bodies.EmptyBody) -> bodies.Started:
    """The background process trains on the labels so far; /api/state says how it goes."""
    return bodies.Started(asked=site.ask_for_training())


@reading.get("/history", summary="The last events of the record, newest first")
def history(
    site: TheSite, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> list[bodies.HistoryLine]:
    """What happened, by whom and when."""
    storage, name = site.desk.storage, site.desk.name
    start = max(0, storage.length(name) - limit)
    events = storage.read(name, start)
    shown = [views.show_event(start + place, event) for place, event in enumerate(events)]
    return shown[::-1][:limit]


@reading.get(
    "/export",
    summary="All labels as a file",
    response_class=Response,
    responses={
        200: {
            "description": "A row per labelled item, with weights.",
            "content": {"text/csv": {}, "application/x-ndjson": {}},
        }
    },
)
def export(
    site: TheSite,
    format: bodies.ExportFormat = "csv",
    spreadsheet: Annotated[
        bool, Query(description="For csv: an apostrophe before what spreadsheets would compute.")
    ] = False,
) -> Response:
    """The labels that stand now, texts as they are; ``labelwise export`` writes more formats."""
    if spreadsheet and format != "csv":
        raise BadInput(f"spreadsheet is for csv; {format} needs no such care")
    kind = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}[format]
    headers = {"Content-Disposition": f'attachment; filename="labels.{format}"'}
    return Response(site.export(format, spreadsheet=spreadsheet), media_type=kind, headers=headers)
