"""The application: the page, its files and the API, behind a guard."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from labelwise.campaign.project import Project
from labelwise.web import api, owner  # noqa: F401 (owner adds its calls to the API)
from labelwise.web.errors import add_error_handlers
from labelwise.web.items import ItemTable
from labelwise.web.security import (
    AccessPolicy,
    AllowedHosts,
    RequestGuard,
    check_server_token,
    make_cookie_name,
    read_server_key,
)
from labelwise.web.site import CampaignSite

PAGE = Path(__file__).parent / "page"
THREADS = 120
"""Maximum number of concurrent handlers: two for each of 50 annotators, plus a reserve."""

_ABOUT = """The calls of the labelling page, for programs too.

Calls that change something need `X-Labelwise-Csrf` (from `GET /api/session`) and `X-Annotator`.
A server with a token also needs `Authorization: Bearer TOKEN`. Errors are `{"error": "..."}`.
"""


class LabellingApp(RequestGuard):
    """The guarded application; ``site`` is its campaign and ``api`` the application inside."""

    def __init__(self, app: FastAPI, site: CampaignSite) -> None:
        super().__init__(app, site.policy)
        self.api, self.site = app, site


def create_app(
    project: Project,
    *,
    token: str | None = None,
    host: str = "127.0.0.1",
    allow_hosts: Iterable[str] = (),
    trains: bool = True,
) -> LabellingApp:
    """The labelling server of a campaign, as an ASGI application.

    A ``token`` is needed unless ``host`` is loopback. ``allow_hosts`` are further names under which
    the server is reached, as behind a proxy.
    """
    check_server_token(host, token)
    policy = AccessPolicy(
        key=read_server_key(project.home),
        token=token,
        hosts=AllowedHosts.for_server(host, allow_hosts),
        cookie=make_cookie_name(project.home),
    )
    site = CampaignSite(project, policy, trains=trains)
    app = FastAPI(
        title="labelwise",
        summary="Label the items that matter",
        description=_ABOUT,
        version="1",
        openapi_url="/api/openapi.json",
        docs_url=None,  # they would load scripts from other servers
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_run_campaign_site,
    )
    app.state.site = site
    app.state.item_table = ItemTable(project, site.record.look)
    add_error_handlers(app)
    # Only documents the token in OpenAPI; the guard checks it.
    asks = [] if token is None else [Depends(HTTPBearer(auto_error=False))]
    app.include_router(api.reading, dependencies=asks)
    app.include_router(api.changing, dependencies=asks)
    app.add_api_route("/", _send_page, include_in_schema=False)
    app.mount("/static", _PageFiles(directory=PAGE), name="static")
    return LabellingApp(app, site)


@asynccontextmanager
async def _run_campaign_site(app: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    site: CampaignSite = app.state.site
    site.start()
    yield
    app.state.item_table.map.stop()
    await anyio.to_thread.run_sync(site.stop)


async def _send_page() -> Response:
    return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})


class _PageFiles(StaticFiles):
    """The page's files; browsers revalidate them at every visit."""

    def file_response(self, *args: Any, **named: Any) -> Response:
        answer = super().file_response(*args, **named)
        answer.headers["Cache-Control"] = "no-cache"
        return answer
