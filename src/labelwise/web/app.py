"""The application: the page, its files, the API, and the guard before them."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from labelwise.web import api
from labelwise.web.access import Hosts, check_token, cookie_name, server_key
from labelwise.web.errors import add_error_handlers
from labelwise.web.security import Guard, Policy
from labelwise.web.site import Site

PAGE = Path(__file__).parent / "page"
THREADS = 120
"""Handlers at work at once: two for each of 50 annotators, and some to spare."""

_ABOUT = """What the labelling page does, for programs too.

Calls that change something need `X-Labelwise-Csrf` (from `GET /api/session`) and `X-Annotator`.
A server with a token wants `Authorization: Bearer TOKEN` too. Errors are `{"error": "..."}`.
"""


class Application(Guard):
    """The guarded application; ``site`` is the campaign behind it and ``api`` what is guarded."""

    def __init__(self, app: FastAPI, site: Site) -> None:
        super().__init__(app, site.policy)
        self.api, self.site = app, site


def create_app(
    project: Any,
    *,
    token: str | None = None,
    host: str = "127.0.0.1",
    allow_hosts: Iterable[str] = (),
    trains: bool = True,
) -> Application:
    """The labelling server of a campaign, as an ASGI application.

    Args:
        project: A `labelwise.campaign.Project`.
        token: What opens the server; needed unless ``host`` is loopback.
        host: The address it will listen on.
        allow_hosts: Further names under which it is reached, as behind a proxy.
        trains: Whether a background process trains and asks for the next batch.
    """
    check_token(host, token)
    policy = Policy(
        key=server_key(project.home),
        token=token,
        hosts=Hosts.of(host, allow_hosts),
        cookie=cookie_name(project.home),
    )
    site = Site(project, policy, trains=trains)
    app = FastAPI(
        title="labelwise",
        summary="Label the items that matter",
        description=_ABOUT,
        version="1",
        openapi_url="/api/openapi.json",
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.site = site
    add_error_handlers(app)
    # The guard has checked the token before; this is for the description.
    asks = [] if token is None else [Depends(HTTPBearer(auto_error=False))]
    app.include_router(api.reading, dependencies=asks)
    app.include_router(api.changing, dependencies=asks)
    app.add_api_route("/", _page, include_in_schema=False)
    app.mount("/static", _Files(directory=PAGE), name="static")
    return Application(app, site)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    site: Site = app.state.site
    site.start()
    yield
    await anyio.to_thread.run_sync(site.stop)


async def _page() -> Response:
    return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})


class _Files(StaticFiles):
    """The page's files, asked for anew at every visit and sent only if they changed."""

    def file_response(self, *args: Any, **named: Any) -> Response:
        answer = super().file_response(*args, **named)
        answer.headers["Cache-Control"] = "no-cache"
        return answer
