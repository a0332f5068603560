"""Actions of the owner of a campaign on the page: settings, classes, and an invitation."""

import sys
from typing import Annotated
from urllib.parse import quote

from fastapi import Query, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from labelwise.campaign.defaults import check_campaign_strategy
from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput, LabelwiseError
from labelwise.record.events import Changed, Event, Renamed
from labelwise.strategies import strategies
from labelwise.web import bodies
from labelwise.web.api import Annotator, TheSite, changing, is_owner, reading
from labelwise.web.security import is_loopback, make_page_address

MOST = 1_000_000
ZIP = "application/zip"
ClassName = Annotated[str, Field(min_length=1, max_length=200, pattern=bodies.NO_CONTROLS)]
Description = Annotated[str, Field(max_length=bodies.TEXT_LENGTH)]


class StrategyChoice(BaseModel):
    """A selection strategy that this campaign can use."""

    name: str
    says: str = Field(description="What it picks, in one sentence.")


class SettingsOut(BaseModel):
    """The settings that the page can change."""

    batch: int
    overlap: int
    budget_labels: int | None
    goal: float | None
    strategy: str
    strategies: list[StrategyChoice]


class SettingsBody(bodies.RequestBody):
    """Settings to change; those that are left out stay."""

    batch: Annotated[int, Field(ge=1, le=MOST, strict=True), bodies.WHOLE] | None = None
    overlap: Annotated[int, Field(ge=1, le=100, strict=True), bodies.WHOLE] | None = None
    budget_labels: Annotated[int, Field(ge=1, le=MOST, strict=True), bodies.WHOLE] | None = Field(
        default=None, description="null for no limit."
    )
    goal: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="The accuracy to reach; null for no goal."
    )
    strategy: Annotated[str, Field(max_length=100)] | None = None


class ClassBody(bodies.RequestBody):
    """A class to add or describe, or to rename; an existing new name merges both classes."""

    name: ClassName
    description: Description | None = None
    rename: ClassName | None = None


class Invitation(BaseModel):
    """Addresses of the page for other people."""

    addresses: list[str] = Field(description="With the token; empty if only this machine can.")
    says: str


def _check_campaign_owner(request: Request) -> None:
    if not is_owner(request):
        raise BadInput(
            "only the owner can do this: open the owner's link that labelwise label printed, or, "
            "if there is none, the page on the machine that runs the server"
        )


@reading.get("/settings", summary="The settings that the page can change")
def get_settings(site: TheSite) -> SettingsOut:
    """The settings, and the strategies that the campaign's model can serve."""
    settings = site.record.settings
    return SettingsOut(
        batch=settings.batch,
        overlap=settings.overlap,
        budget_labels=settings.budget_labels,
        goal=settings.goal,
        strategy=settings.strategy,
        strategies=list_strategies(settings),
    )


def list_strategies(settings: Settings) -> list[StrategyChoice]:
    """The strategies that the campaign's model can serve, and the current one."""
    found = []
    for name in sorted(strategies()):
        try:
            if name != settings.strategy:
                check_campaign_strategy(settings.replace_settings(strategy=name))
        except LabelwiseError:
            continue
        found.append(StrategyChoice(name=name, says=_summarize_strategy_module(name)))
    return found


def _summarize_strategy_module(name: str) -> str:
    """The first sentence about a strategy, from the docstring of its module."""
    module = sys.modules.get(f"labelwise.strategies.{name}")
    first = ((module.__doc__ if module else "") or name).split("\n\n")[0]
    return " ".join(first.replace("``", "").split()).rstrip(".")


@changing.post("/settings", summary="Change settings")
def post_settings(
    request: Request, site: TheSite, by: Annotator, body: SettingsBody
) -> bodies.Done:
    """Only the owner can. Existing batches stay as they are."""
    _check_campaign_owner(request)
    values = {name: getattr(body, name) for name in body.model_fields_set}
    for name in ("batch", "overlap", "strategy"):
        if values.get(name, 0) is None:
            del values[name]
    if "strategy" in values:
        check_campaign_strategy(site.record.settings.replace_settings(strategy=values["strategy"]))
    site.record.change(by=by, **values)
    return bodies.Done(length=site.record.look(lambda ledger: ledger.length))


@changing.post("/classes", summary="Add, describe, rename or merge a class")
def post_classes(request: Request, site: TheSite, by: Annotator, body: ClassBody) -> bodies.Done:
    """Anyone can add a class; the owner can also describe, rename and merge them."""
    settings = site.record.settings
    known = {str(one) for one in settings.classes or ()}
    if body.rename is not None or body.description is not None or body.name in known:
        _check_campaign_owner(request)
    return site.commit_events(
        lambda ledger, now: make_class_events(site.record.settings_of(ledger), body, by, now)
    )


def make_class_events(settings: Settings, body: ClassBody, by: str, now: float) -> list[Event]:
    """Events that add, describe, rename or merge a class; its labels get the new name."""
    if settings.regression:
        raise BadInput("a regression has no classes")
    old, new = body.name.strip(), (body.rename or body.name).strip()
    if not old or not new:
        raise BadInput("a class needs a name")
    classes = None if settings.classes is None else list(settings.classes)
    if classes is not None:
        if any(not isinstance(one, str) for one in classes) and new != old:
            raise BadInput("classes that are numbers cannot be renamed")
        names = [str(one) for one in classes]
        if old not in names and body.rename is not None:
            raise BadInput(f"there is no class {old!r} to rename; choose from {', '.join(names)}")
        if old not in names:
            classes.append(old)
        elif new in names and new != old:
            classes.pop(names.index(old))
        else:
            classes[names.index(old)] = new if new != old else classes[names.index(old)]
    texts = dict(settings.descriptions)
    before_text = texts.pop(old, "")
    texts[new] = before_text if body.description is None else body.description
    after = settings.replace_settings(classes=classes, descriptions=texts).to_dict()
    before = settings.to_dict()
    different = {name: value for name, value in after.items() if before[name] != value}
    events: list[Event] = [Changed(now, different, by)] if different else []
    return [*events, Renamed(now, old, new, by)] if new != old else events


class PersonBody(bodies.RequestBody):
    """Remove an annotator, or let them in again."""

    name: Annotated[str, Field(min_length=1, max_length=bodies.NAME_LENGTH)]
    removed: bool


@changing.post("/people", summary="Remove an annotator, or let them in again")
def post_people(request: Request, site: TheSite, by: Annotator, body: PersonBody) -> bodies.Done:
    """Their leases are returned and their labels stay. Only the owner can."""
    _check_campaign_owner(request)
    act = site.record.remove_annotator if body.removed else site.record.admit_annotator
    act(body.name, by=by)
    return bodies.Done(length=site.record.look(lambda ledger: ledger.length))


class AddedItems(BaseModel):
    """The result of an upload."""

    items: int = Field(description="Items in the file; 0 for an image that is there already.")


@changing.post("/upload", summary="Add a file with new items")
async def post_upload(
    request: Request,
    site: TheSite,
    by: Annotator,
    name: Annotated[str, Query(min_length=1, max_length=200)],
) -> AddedItems:
    """The body is the file: an image, or a table with the campaign's columns. Only the owner can.

    The background process then encodes the new items; /api/state shows its progress.
    """
    _check_campaign_owner(request)
    content = await request.body()
    return AddedItems(items=await run_in_threadpool(site.add_upload, name, content))


@reading.get(
    "/model",
    summary="The trained model as a .zip file",
    response_class=Response,
    responses={200: {"description": "For labelwise.load_model.", "content": {ZIP: {}}}},
)
def get_model(site: TheSite) -> Response:
    """Encoder reference, head and classes, as ``labelwise train --save`` writes them."""
    from labelwise.campaign.trained_model import (
        zip_trained_model,
    )  # the page starts without learners

    headers = {"Content-Disposition": 'attachment; filename="model.zip"'}
    return Response(zip_trained_model(site.project), media_type=ZIP, headers=headers)


@reading.get("/invitation", summary="Addresses of the page for other people")
def get_invitation(request: Request, site: TheSite) -> Invitation:
    """The addresses contain the token, which the caller has shown already."""
    token, name = site.policy.token, request.url.hostname or ""
    if token is None or (is_loopback(name) and not site.policy.hosts.any_address):
        return Invitation(
            addresses=[],
            says="Only this machine can open the page. Start it with labelwise label "
            "--host 0.0.0.0 --token WORD to invite others.",
        )
    if is_loopback(name):
        address = make_page_address("0.0.0.0", request.url.port or 80, token)
    else:  # under the name by which it was reached, as behind a proxy
        address = f"http://{request.headers['host']}/?token={quote(token, safe='')}"
    return Invitation(addresses=[address], says="Everyone who has this link can label.")
