"""Run the labelling server, with a limit on connections and a timeout for request headers.

Beyond `MOST_CONNECTIONS`, new connections are closed: existing pages continue, and a refused page
keeps its labels and retries. A connection that does not send the header of a request within
`HEADER_SECONDS` is closed; the body of a request has its own timeout (`AccessPolicy`).
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from labelwise.campaign.project import Project
from labelwise.errors import BadInput
from labelwise.web.app import create_app
from labelwise.web.errors import log
from labelwise.web.security import make_page_address

SHUTDOWN_SECONDS = 3  # Seconds for running requests to finish when the server ends
MOST_CONNECTIONS = 512
"""Connections that are served: a browser opens up to 6, so this serves over 50 annotators."""
HEADER_SECONDS = 20.0  # Time for the header of a request to arrive
HEADER_BYTES = 32 * 1024  # The longest header of a request; longer ones are refused
KEEP_ALIVE = 10  # Seconds after which a connection without a further request is closed


def serve(
    project: Project,
    *,
    host: str = "127.0.0.1",
    port: int = 8600,
    token: str | None = None,
    allow_hosts: Iterable[str] = (),
    trains: bool = True,
    ready: Callable[[str, str], None] | None = None,
) -> None:
    """Serve a campaign's labelling page until SIGINT or SIGTERM.

    ``ready`` is called with the addresses of the page for annotators and for the owner, tokens
    included, once it can be opened; without a token they are equal. See `create_app` for the other
    arguments.
    """
    app = create_app(project, token=token, host=host, allow_hosts=allow_hosts, trains=trains)
    listener = open_listener(host, port)
    owner_token = None if token is None else app.site.policy.owner_token
    port = listener.getsockname()[1]
    addresses = [make_page_address(host, port, one) for one in (token, owner_token)]
    server = AnnouncingServer(
        app,
        on_ready=lambda: ready(*addresses) if ready else None,
        on_shutdown=app.site.watch.close,  # releases waiting requests
    )
    with listener:
        server.run([listener])


def make_server_config(app: ASGIApp) -> uvicorn.Config:
    """The settings of a server: limits, logs and headers."""
    logging.getLogger("labelwise.web").addHandler(logging.StreamHandler())
    raise_file_limit()
    return uvicorn.Config(
        app,
        access_log=False,  # addresses may contain a token or a name
        log_level="warning",
        proxy_headers=False,  # a client must not choose the address under which it is counted
        server_header=False,
        ws="none",
        http=LimitedConnection,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=KEEP_ALIVE,
        lifespan="on",
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


class AnnouncingServer(uvicorn.Server):
    """A server that calls functions when it is ready and when it ends."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        on_ready: Callable[[], None],
        on_shutdown: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(make_server_config(app))
        self._on_ready, self._on_shutdown = on_ready, on_shutdown

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        if not self.should_exit:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening."""
        self._on_shutdown()
        await super().shutdown(sockets)


class LimitedConnection(H11Protocol):
    """One connection, of a limited number, with a timeout for the header of each request.

    The limits are class attributes, so that a test can set smaller ones.
    """

    most, header_seconds = MOST_CONNECTIONS, HEADER_SECONDS

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or close it if there are too many."""
        if len(self.connections) >= self.most:
            log.warning("more than %d connections at once: a new one was closed", self.most)
            return transport.abort()
        super().connection_made(transport)
        self._start_header_timer()

    def data_received(self, data: bytes) -> None:
        """Pass on data; the header has arrived once a request is served."""
        super().data_received(data)
        if self._is_serving():
            self._stop_header_timer()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self._is_serving():
            self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection, unless it was refused."""
        self._stop_header_timer()
        if self in self.connections:
            super().connection_lost(exc)

    def _is_serving(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_header_timer(self) -> None:
        self._stop_header_timer()
        self._header_timer = self.loop.call_later(self.header_seconds, self.transport.close)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def raise_file_limit(wanted: int = MOST_CONNECTIONS + 256) -> None:
    """Raise this process's limit of open files, if the system allows it."""
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def open_listener(host: str, port: int) -> socket.socket:
    """A bound socket, so that a port in use is an error before anything starts."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise BadInput(f"cannot listen on {host!r}: {error}; try --host 127.0.0.1") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
    except OSError as error:
        listener.close()
        raise BadInput(
            f"cannot listen on {host} port {port}: {error.strerror}; try --port 0 for a free one"
        ) from None
    return listener
