"""Run the labelling server until it is told to end."""

import logging
import socket
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

import uvicorn

from labelwise.errors import BadInput
from labelwise.web.app import Application, create_app
from labelwise.web.connections import HEAD_BYTES, KEEP_ALIVE, Connection, allow_files

GRACE = 3
"""Seconds that running requests are given when the server ends."""


def serve(
    project: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 8600,
    token: str | None = None,
    allow_hosts: Iterable[str] = (),
    trains: bool = True,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve a campaign's labelling page until SIGINT or SIGTERM.

    Args:
        project: A `labelwise.campaign.Project`.
        host: The address to listen on; any but loopback needs a token.
        port: 0 for any free one.
        token: What opens the page.
        allow_hosts: Further names under which the server is reached, as behind a proxy.
        trains: Whether a background process trains and asks for the next batch.
        ready: Called with the page's address, token included, once it can be opened.
    """
    app = create_app(project, token=token, host=host, allow_hosts=allow_hosts, trains=trains)
    listener = listen(host, port)
    address = address_of(host, listener.getsockname()[1], token)
    config = server_config(app)
    with listener:
        _Server(config, app, lambda: ready(address) if ready else None).run([listener])


def address_of(host: str, port: int, token: str | None = None) -> str:
    """The page's address for a browser on this machine.

    >>> address_of("0.0.0.0", 8600, "open-sesame")
    'http://127.0.0.1:8600/?token=open-sesame'
    """
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")


def server_config(app: Any) -> uvicorn.Config:
    """How a server of ours runs an application: what it takes on, logs and tells of itself."""
    logging.getLogger("labelwise.web").addHandler(logging.StreamHandler())
    allow_files()
    return uvicorn.Config(
        app,
        access_log=False,  # addresses may hold a token, and names are nobody's business
        log_level="warning",
        proxy_headers=False,  # nobody may choose the address under which they are counted
        server_header=False,
        ws="none",
        http=Connection,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=KEEP_ALIVE,
        lifespan="on",
        timeout_graceful_shutdown=GRACE,
    )


class _Server(uvicorn.Server):
    """A server that says when it is ready, and lets waiting pages go when it ends."""

    def __init__(self, config: uvicorn.Config, app: Application, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._application, self._ready = app, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.site.watch.close()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound already, so that a port in use is an error before anything starts."""
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
