"""Run the ML backend for Label Studio until it is told to end."""

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import uvicorn

from labelwise.errors import LabelwiseError
from labelwise.label_studio.backend import Backend, create_backend
from labelwise.label_studio.client import Client
from labelwise.label_studio.connect import connect
from labelwise.label_studio.http import token_from
from labelwise.web.serve import address_of, listen, server_config
from labelwise.web.supervisor import Supervisor


def serve(
    home: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 9090,
    token: str | None = None,
    variable: str = "LABEL_STUDIO_TOKEN",
    allow_hosts: Iterable[str] = (),
    guesses: bool = False,
    reach: str | None = None,
    ready: Callable[[str], None] | None = None,
    connected: Callable[[str], None] | None = None,
) -> None:
    """Serve the ML backend of a campaign until SIGINT or SIGTERM.

    Args:
        home: The campaign's folder, which a sync made.
        host: The address to listen on; any but loopback needs a token.
        port: 0 for any free one.
        token: What callers must know.
        variable: Of the environment, that holds the token of Label Studio.
        allow_hosts: Further names under which the backend is reached.
        guesses: Whether annotators are to see the model's guesses.
        reach: The address under which Label Studio reaches the backend, if the project there is to
            be told of it; empty for the one it listens on.
        ready: Called with the address once it can be called.
        connected: Called with what came of telling Label Studio, in words.
    """
    key = token_from(variable)
    command = [sys.executable, "-m", "labelwise.label_studio.worker", str(home), variable]
    worker = Supervisor([*command, *(["--guesses"] if guesses else [])])

    def tell(order: str) -> None:
        if not worker.ask(order):
            worker.start()  # it begins with a look at everything

    backend = Backend(home, tell=tell, progress=lambda: worker.progress, guesses=guesses)
    facts = backend.tasks.facts
    client = Client(facts.url, key, source=variable)
    app = create_backend(
        backend,
        token=token,
        host=host,
        allow_hosts=allow_hosts,
        start=worker.start,
        stop=worker.stop,
    )
    listener = listen(host, port)
    address = address_of(host, listener.getsockname()[1])

    def introduce() -> None:
        try:
            words = connect(client, facts.project, reach or address, token)
        except LabelwiseError as error:
            words = f"could not be connected: {error}"
        if connected is not None:
            connected(words)

    def begin() -> None:
        if ready is not None:
            ready(address)
        if reach is not None:  # Label Studio calls back at once, so this thread must be free
            threading.Thread(target=introduce, daemon=True).start()

    config = server_config(app)
    with listener:
        _Server(config, begin).run([listener])


class _Server(uvicorn.Server):
    """A server that says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if not self.should_exit:
            self._ready()
