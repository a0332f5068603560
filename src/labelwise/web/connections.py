"""How many connections the server has at once, and how long it waits for one to say something.

Beyond `MOST` connections, a new one is told 503 and closed, while those that are there go on: who
labels keeps labelling, and a page that is turned away keeps its labels and tries again. Beyond
`MOST` and `TURNED_AWAY`, new ones are closed without a word, so that files never run out. A
connection that does not get a request's head together within `HEAD_SECONDS` is closed too, or
silent ones would fill the server for ever; bodies have a time of their own (`Policy`).
"""

import asyncio
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from labelwise.web.errors import log

MOST = 512
"""Connections that are served: a browser opens up to 6, so more than 50 annotators need."""
TURNED_AWAY = 128
"""Further connections that are told 503 at the same time."""
HEAD_SECONDS = 20.0
"""In which the head of a request has to arrive."""
HEAD_BYTES = 32 * 1024
"""The longest head of a request; longer ones are answered 400."""
KEEP_ALIVE = 10
"""Seconds after which a connection without a further request is closed."""
ONCE_IN = 60.0
"""Seconds in which a flood is noted once."""

_BUSY = b'{"error":"too many connections at the moment; try again in a second"}'
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    b"Cache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
) % (len(_BUSY), _BUSY)


class Connection(H11Protocol):
    """One connection; the server makes one per client that comes.

    The class attributes are the limits, so that a test can have a class with smaller ones.
    """

    most, turned_away, head_seconds = MOST, TURNED_AWAY, HEAD_SECONDS
    refused: set["Connection"] = set()  # noqa: RUF012 (of the one server of this process)
    noted = -ONCE_IN

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection in, or turn it away."""
        if len(self.connections) < self.most:
            super().connection_made(transport)
            return self._expect_head(self.head_seconds)
        self._note()
        self.transport = transport
        if len(self.refused) >= self.turned_away:
            return transport.abort()
        self.refused.add(self)
        return self._expect_head(self.head_seconds / 4)

    def data_received(self, data: bytes) -> None:
        """Pass on what came; who is turned away hears so once there is a request to answer."""
        if self in self.refused:
            if not self.transport.is_closing():
                self.transport.write(BUSY)
                self.transport.close()
            return
        super().data_received(data)
        if self._is_busy():
            self._stop_timer()

    def on_response_complete(self) -> None:
        """Expect the next request."""
        super().on_response_complete()
        if not self._is_busy():
            self._expect_head(self.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._stop_timer()
        if self in self.refused:
            self.refused.discard(self)
        elif self in self.connections:
            super().connection_lost(exc)

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_head(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        if not self._is_busy():
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _note(self) -> None:
        now = time.monotonic()
        if now - Connection.noted >= ONCE_IN:
            Connection.noted = now
            log.warning(
                "more than %d connections at once: further ones are turned away (503)", self.most
            )


def allow_files(wanted: int = MOST + TURNED_AWAY + 256) -> None:
    """Let this process have so many open files, a connection being one, if the system allows it."""
    try:
        import resource
    except ImportError:  # Windows knows no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (ValueError, OSError):  # it works with fewer, until there are too many connections
        log.warning("this process may open only %d files; ask for more with ulimit -n", soft)
