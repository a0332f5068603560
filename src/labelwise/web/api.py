"""The API under ``/api``: everything that the page does, as JSON.

A change is acknowledged after its events are on disk. Handlers are plain functions on a thread
pool; concurrent changes share a group commit.
"""

import time
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi import Path as InPath
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response

from labelwise.campaign import operations
from labelwise.campaign.history import describe_event
from labelwise.errors import BadInput, UnknownName
from labelwise.files import JsonObject
from labelwise.record.events import Event, read_event_kind
from labelwise.record.ledger import Ledger
from labelwise.web import bodies, views
from labelwise.web.leases import Visitor
from labelwise.web.security import CSRF_HEADER, AccessPolicy
from labelwise.web.site import CampaignSite

LONGEST_WAIT = 25.0  # Longest wait for a change, in seconds

IMAGE_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".avif": "image/avif",
    ".svg": "image/svg+xml",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
}

_ERRORS = {
    400: "The campaign does not allow it: unknown class, no name, nothing to train with.",
    401: "The token is missing or wrong.",
    403: "The call comes from another site, or without X-Labelwise-Csrf.",
    404: "The item does not exist, or has no such information.",
    408: "The body took too long to arrive.",
    409: "Another process wrote to the record at the same time; try again.",
    413: "The body is too long.",
    421: "The server has another name; see --allow-host.",
    422: "The request does not fit this description.",
    429: "Too many wrong tokens; wait.",
    503: "The record cannot be read or written at the moment; nothing was lost.",
}


def _describe_error_statuses(*codes: int) -> dict[int | str, JsonObject]:
    return {code: {"model": bodies.Error, "description": _ERRORS[code]} for code in codes}


async def _find_campaign_site(request: Request) -> CampaignSite:
    site: CampaignSite = request.app.state.site
    return site


NameHeader = Annotated[
    str,
    Header(
        min_length=1,
        max_length=720,
        pattern=r"^(?:[ -$&-~]|%[0-9A-Fa-f]{2})+$",
        description="The annotator: a name of 1 to 80 letters, percent-encoded UTF-8.",
    ),
]


async def _read_visitor(
    x_annotator: NameHeader,
    x_labelwise_page: Annotated[
        str,
        Header(
            max_length=40,
            pattern=r"^[A-Za-z0-9-]*$",
            description="A random word that identifies the page, sent to /api/leave again.",
        ),
    ] = "",
) -> Visitor:
    return Visitor(bodies.clean_annotator_name(unquote(x_annotator)), x_labelwise_page)


async def _read_annotator(x_annotator: NameHeader) -> str:
    return bodies.clean_annotator_name(unquote(x_annotator))


async def _read_optional_annotator(
    x_annotator: Annotated[
        str | None, Header(max_length=720, description="The annotator, percent-encoded.")
    ] = None,
) -> str | None:
    return bodies.clean_annotator_name(unquote(x_annotator)) if x_annotator else None


async def _document_csrf(
    code: Annotated[str, Header(alias=CSRF_HEADER, description="From GET /api/session.")],
) -> None:
    """Document the CSRF header in OpenAPI; the guard checks it."""


TheSite = Annotated[CampaignSite, Depends(_find_campaign_site)]
Annotator = Annotated[str, Depends(_read_annotator)]
PageVisitor = Annotated[Visitor, Depends(_read_visitor)]
OptionalAnnotator = Annotated[str | None, Depends(_read_optional_annotator)]
ItemId = Annotated[int, InPath(ge=0, le=bodies.LARGEST_NUMBER, description="An item's id.")]

reading = APIRouter(
    prefix="/api", responses=_describe_error_statuses(400, 401, 403, 404, 421, 422, 429, 503)
)
changing = APIRouter(
    prefix="/api",
    dependencies=[Depends(_document_csrf)],
    responses=_describe_error_statuses(400, 401, 403, 404, 408, 409, 413, 421, 422, 429, 503),
)


def is_owner(request: Request) -> bool:
    """Whether a request may change settings: see `AccessPolicy.is_owner`."""
    client = request.client.host if request.client else ""
    server = (request.scope.get("server") or ("",))[0]
    policy: AccessPolicy = request.app.state.site.policy
    return policy.is_owner(request.headers, client, server)


@reading.get("/session", summary="The campaign, its classes, and the code for changes")
def get_session(
    request: Request, site: TheSite, name: Annotated[str | None, Query(max_length=400)] = None
) -> bodies.Session:
    """Check the annotator's name and return the session data. Nothing is recorded."""
    clean = bodies.clean_annotator_name(name) if name else None
    settings = site.record.settings

    def read(ledger: Ledger) -> tuple[list[bodies.ClassChoice], int]:
        operations.check_annotator(clean or "", ledger)
        return views.list_class_choices(ledger, settings), ledger.items

    shown, items = site.record.look(read)
    return bodies.Session(
        csrf=site.policy.csrf_code,
        name=clean,
        campaign=site.project.name,
        id=site.policy.campaign_id,
        kind=site.project.kind,
        classes=shown,
        free=settings.classes is None and not settings.regression,
        regression=settings.regression,
        items=items,
        overlap=settings.overlap,
        batch=settings.batch,
        lend_seconds=settings.lend_seconds,
        strategy=settings.strategy,
        trains=site.background is not None,
        owner=is_owner(request),
        version=metadata.version("labelwise"),
    )


@reading.get("/state", summary="The progress of the campaign")
async def get_state(
    site: TheSite,
    by: OptionalAnnotator,
    since: Annotated[
        str | None,
        Query(
            pattern=r"^\d{1,18}(\.\d{1,18})?$",
            description="The version (or length) that the page has: wait for another.",
        ),
    ] = None,
    wait: Annotated[
        float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for a change.")
    ] = 10.0,
) -> bodies.State:
    """The current state; with ``since``, as soon as it changes, or after ``wait`` seconds."""
    if since is not None:
        await site.watch.wait_for_change(since, wait)
    async with site.state_requests:
        return await run_in_threadpool(site.read_state, by)


@reading.get("/quality", summary="Confusion matrix and calibration of the last model")
def get_quality(site: TheSite) -> bodies.QualityState:
    """Measured on labels that the model was not trained on; empty before the first model."""
    return site.record.look(views.show_quality)


@changing.post("/lend", summary="Lease items to label")
def post_lend(site: TheSite, by: PageVisitor, body: bodies.LendBody) -> bodies.LeasedItems:
    """Items for this annotator; nobody else gets them until the lease expires.

    Items that the annotator holds already come first. There are fewer, or none, if no more wait;
    a large request gets at most half of the waiting items.
    """
    accepted = site.accept_answers(by, (), body.count)
    if accepted.items:
        return bodies.LeasedItems(items=accepted.items)
    held = site.record.look(lambda ledger: views.count_held_items(ledger, by.name, time.time()))
    return bodies.LeasedItems(items=[], held=held)


@changing.post("/labels", summary="Give labels and lease the next items, in one step")
def post_labels(site: TheSite, by: PageVisitor, body: bodies.LabelsBody) -> bodies.Accepted:
    """Record labels, all or none; another label by the same annotator replaces their last.

    A call whose answer was lost can be repeated: labels that stand are not recorded again.
    """
    given = {one.id: one.label for one in body.labels}
    if len(given) < len(body.labels):
        raise BadInput("an item is given two labels in one call; give one")
    seconds = {one.id: one.seconds for one in body.labels if one.seconds is not None}
    suggested = {one.id: one.suggested for one in body.labels if one.suggested is not None}
    tell = partial(
        operations.make_label_events,
        labels=given,
        by=by.name,
        seconds=seconds,
        anything=body.anything,
        suggested=suggested,
    )
    return site.accept_answers(by, given, body.lend, tell)


@changing.post("/skip", summary="Skip an item, with a reason")
def post_skip(site: TheSite, by: PageVisitor, body: bodies.SkipBody) -> bodies.Accepted:
    """The item needs no label until someone labels it or the skip is undone."""
    return site.accept_answers(
        by,
        [body.id],
        body.lend,
        lambda ledger, settings, now: operations.make_skip_events(
            ledger, [body.id], reason=body.reason, by=by.name, now=now
        ),
    )


@changing.post("/undo", summary="Withdraw your last label or skip")
def post_undo(site: TheSite, by: PageVisitor, body: bodies.EmptyBody) -> bodies.Undone:
    """Return the item and lease it again; null if there is nothing to undo."""

    def decide(ledger: Ledger, now: float) -> tuple[Sequence[Event], views.LeasedItem | None]:
        events, item = site.leases.undo_action(ledger, site.record.settings_of(ledger), by, now)
        return events, None if item is None else (item, ledger.pick_of(item))

    found = site.record.commit(decide)
    return bodies.Undone(item=None if found is None else views.show_item(site.project, *found))


@changing.post("/return", summary="Return leased items without a label")
def post_return(site: TheSite, by: PageVisitor, body: bodies.ReturnBody) -> bodies.Done:
    """Other annotators can lease them at once."""
    return site.commit_events(
        lambda ledger, now: site.leases.return_items(ledger, by, body.ids, now)
    )


@changing.post("/leave", summary="Report that a page is closed: its leases are returned")
def post_leave(site: TheSite, by: PageVisitor, body: bodies.LeaveBody) -> bodies.Done:
    """Return what this page (``X-Labelwise-Page``) has leased and not answered.

    Items that another page of the same annotator holds stay leased. The page leases nothing any
    more, also not by calls that are on their way; answers on their way count.
    """
    if not by.page:
        raise BadInput("X-Labelwise-Page is missing; send the word with which items were leased")
    return site.commit_events(
        lambda ledger, now: site.leases.leave_page(ledger, by, body.ids, body.answered, now)
    )


@reading.get(
    "/items/{id}/image",
    summary="An item's picture",
    response_class=Response,
    responses={
        200: {"description": "The original file.", "content": {"image/*": {}}},
        304: {"description": "It has not changed since If-None-Match.", "content": {}},
    },
)
def get_image(site: TheSite, request: Request, id: ItemId) -> Response:
    """The original file; it must be in the campaign's folder."""
    if site.project.kind != "images":
        raise UnknownName(f"the items of {site.project.name!r} have no pictures")
    try:
        path: Path = site.project.items.path(id)
        facts = path.stat()
    except (BadInput, UnknownName, OSError):  # their messages may contain the path of the folder
        raise UnknownName(f"item {id} has no picture in the campaign's folder") from None
    kind = IMAGE_TYPES.get(path.suffix.lower())
    if kind is None:
        raise UnknownName(f"{path.name!r} is not an image that a browser shows")
    policy = "default-src 'none'; style-src 'unsafe-inline'; sandbox"  # no scripts in SVG files
    headers = {"Cache-Control": "private, max-age=3600", "Content-Security-Policy": policy}
    answer = FileResponse(path, headers=headers, media_type=kind, stat_result=facts)
    if answer.headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers={**headers, "ETag": answer.headers["etag"]})
    return answer


@reading.get("/items/{id}/guess", summary="The model's prediction for an item")
def get_guess(site: TheSite, id: ItemId) -> bodies.Guess:
    """Shown only on request, since it biases annotators. 404 if there is none."""
    pick = site.record.look(lambda ledger: ledger.pick_of(id))
    found = pick and pick.entry(pick.asked.guesses)
    if found is None:
        raise UnknownName(f"the model has no prediction for item {id}")
    return bodies.Guess(label=found[0], confidence=found[1])


@reading.get("/disagreements", summary="Items that people label differently")
def get_disagreements(
    site: TheSite, limit: Annotated[int, Query(ge=1, le=500)] = 100
) -> list[bodies.DisagreementOut]:
    """Open disagreements, oldest first."""
    open_ones = site.record.look(
        lambda ledger: [
            (one.id, dict(one.votes), ledger.pick_of(one.id))
            for one in ledger.disagreements()[:limit]
        ]
    )
    return [
        bodies.DisagreementOut(
            id=item,
            votes=[bodies.Vote(by=by, label=label) for by, label in votes.items()],
            item=views.show_item(site.project, item, pick),
        )
        for item, votes, pick in open_ones
    ]


@changing.post("/resolve", summary="Resolve a disagreement")
def post_resolve(site: TheSite, by: Annotator, body: bodies.ResolveBody) -> bodies.Done:
    """This label overrides all votes."""
    site.record.resolve({body.id: body.label}, by=by)
    return bodies.Done(length=site.record.look(lambda ledger: ledger.length))


@changing.post("/train", summary="Train now, or again after a failure", status_code=202)
def post_train(site: TheSite, by: Annotator, body: bodies.EmptyBody) -> bodies.OrderedTraining:
    """The background process trains on the labels so far; /api/state shows its progress."""
    return bodies.OrderedTraining(asked=site.order_training())


@reading.get("/history", summary="The last events of the record, newest first")
def get_history(
    site: TheSite, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> list[bodies.HistoryLine]:
    """Event, annotator and time."""
    storage, name = site.record.storage, site.record.name
    start = max(0, storage.length(name) - limit)
    events = storage.read(name, start)
    shown = [
        bodies.HistoryLine(
            number=number,
            kind=read_event_kind(event),
            at=event.at,
            by=getattr(event, "by", None) or None,
            says=describe_event(event),
        )
        for number, event in enumerate(events, start)
    ]
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
def get_export(
    site: TheSite,
    format: bodies.ExportFormat = "csv",
    spreadsheet: Annotated[
        bool, Query(description="For csv: an apostrophe before text that a spreadsheet would run.")
    ] = False,
) -> Response:
    """The current labels; ``labelwise export`` writes more formats."""
    if spreadsheet and format != "csv":
        raise BadInput(f"spreadsheet applies to csv only; leave it out for {format}")
    kind = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}[format]
    headers = {"Content-Disposition": f'attachment; filename="labels.{format}"'}
    return Response(
        site.export_labels(format, spreadsheet=spreadsheet), media_type=kind, headers=headers
    )
