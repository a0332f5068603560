"""Run the labelling server, with limits on connections and a timeout for request headers.

Above `MOST_CONNECTIONS`, a new connection is answered 503 and closed: existing pages continue, and
a refused page keeps its labels and retries. Above another
`MOST_REFUSED`, new connections are closed without an answer, so that the process never runs out of
file descriptors. A connection that does not send the header of a request within `HEADER_SECONDS`
is closed; the body of a request has its own timeout (`AccessPolicy`).
"""

import asyncio
import json
import logging
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from labelwise.campaign.project import Project
from labelwise.errors import BadInput
from labelwise.web.address import make_address
from labelwise.web.app import create_app
from labelwise.web.errors import log

SHUTDOWN_SECONDS = 3  # Seconds for running requests to finish when the server ends
MOST_CONNECTIONS = 512
"""Connections that are served: a browser opens up to 6, so this serves over 50 annotators."""
MOST_REFUSED = 128  # Further connections that are answered 503 at the same time
HEADER_SECONDS = 20.0  # Time for the header of a request to arrive
HEADER_BYTES = 32 * 1024  # The longest header of a request; longer ones are answered 431
KEEP_ALIVE = 10  # Seconds after which a connection without a further request is closed
WARNING_INTERVAL = 60.0  # Seconds between two warnings about too many connections
LINGER = 2.0  # Seconds in which the sender of a long header can read the answer


def compose_refusal(status: str, error: str) -> bytes:
    """A whole response, for connections that do not get as far as the application."""
    body = json.dumps({"error": error}).encode()
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        f"Cache-Control: no-store\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


BUSY = compose_refusal(
    "503 Service Unavailable", "too many connections at the moment; try again in a second"
)
LONG_HEADER = compose_refusal(
    "431 Request Header Fields Too Large",
    f"the header of the request is longer than {HEADER_BYTES:,} bytes; shorten the address, or "
    "delete cookies of this address",
)


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
    addresses = [make_address(host, port, one) for one in (token, owner_token)]
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

    most, most_refused, header_seconds = MOST_CONNECTIONS, MOST_REFUSED, HEADER_SECONDS
    refused: set["LimitedConnection"] = set()  # noqa: RUF012 (of the one server of this process)
    warned = -WARNING_INTERVAL

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._timer: asyncio.TimerHandle | None = None
        self._rejected = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it."""
        if len(self.connections) < self.most:
            super().connection_made(transport)
            return self._start_timer(self.header_seconds)
        if time.monotonic() - LimitedConnection.warned >= WARNING_INTERVAL:
            LimitedConnection.warned = time.monotonic()
            log.warning("more than %d connections at once: new ones get 503", self.most)
        self.transport = transport
        if len(self.refused) >= self.most_refused:
            return transport.abort()
        self.refused.add(self)
        return self._start_timer(self.header_seconds / 4)

    def data_received(self, data: bytes) -> None:
        """Pass on data; a refused connection is answered at its first request."""
        if self in self.refused:
            if not self.transport.is_closing():
                self.transport.write(BUSY)
                self.transport.close()
            return
        if self._rejected:  # the rest of a long header
            return
        super().data_received(data)
        if self._is_busy():
            self._stop_timer()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that cannot be read.

        The rest of a long header is read before the connection is closed; a connection that is
        closed before its data are read is reset, and the sender loses the answer.
        """
        if len(self.conn.trailing_data[0]) <= (self.config.h11_max_incomplete_event_size or 0):
            return super().send_400_response(msg)
        self._rejected = True
        self.transport.write(LONG_HEADER)
        self.transport.write_eof()
        self._start_timer(LINGER)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self._is_busy():
            self._start_timer(self.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._stop_timer()
        if self in self.refused:
            self.refused.discard(self)
        elif self in self.connections:
            super().connection_lost(exc)

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._close_idle)

    def _close_idle(self) -> None:
        if not self._is_busy():
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def raise_file_limit(wanted: int = MOST_CONNECTIONS + MOST_REFUSED + 256) -> None:
    """Raise this process's limit of open files, if the system allows it."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (ValueError, OSError):  # a lower limit only matters with many connections
        log.warning("this process may open only %d files; ask for more with ulimit -n", soft)


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
