"""ML backend for Label Studio: answers at once, and leaves the work to a background process.

Label Studio asks for ``/health`` and ``/setup`` (and waits 1 and 3 seconds), sends events to
``/webhook``, and asks ``/predict`` for scores and ``/versions`` for model versions. None of these
loads a model: scores come from the order that the last sync wrote, guesses from the record. An
event is only a hint: the process then reads the state from Label Studio itself, so that an event
that is lost, repeated or forged does no harm.

Callers need the token, as the password of *Basic* authentication (which Label Studio offers), or
as ``Authorization: Bearer``; without a token only this machine can reach the backend.
"""

import base64
import binascii
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import anyio.to_thread
from fastapi import Body, FastAPI
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from labelwise.campaign.folder.items import MANIFEST
from labelwise.campaign.project import Project
from labelwise.errors import BadInput, LabelwiseError
from labelwise.files import FileStamp, JsonObject, read_file_stamp
from labelwise.label_studio.client import LabelStudioClient, read_label_studio_token
from labelwise.label_studio.formats import ProjectLayout, make_region, read_layout
from labelwise.label_studio.sync import find_task_guesses, make_task_folder_path
from labelwise.label_studio.tasks import ORDER, VERSION_PREFIX, ServingOrder, TaskFolder, TaskIndex
from labelwise.learner import Label
from labelwise.web.background import BackgroundProcess, WorkerReport
from labelwise.web.errors import add_error_handlers
from labelwise.web.security import (
    AccessPolicy,
    AllowedHosts,
    RequestGuard,
    check_server_token,
    make_page_address,
    refuse,
)
from labelwise.web.serve import AnnouncingServer, open_listener

USER = "labelwise"  # User name in Basic authentication; the backend accepts any

MAX_BODY_BYTES = 64 << 20
"""Maximum size of a request: a hundred tasks may contain their images as data: addresses."""

MAX_LISTED_TASKS = 200  # If an event lists more tasks, all are read

EVENTS = re.compile(r"(ANNOTATION|TASK)S?_(CREATED|UPDATED|DELETED)|PROJECT_UPDATED|START_TRAINING")
"""Events that start a sync; Label Studio uses both spellings."""


class LabelStudioBackend:
    """State that the request handlers share."""

    def __init__(
        self,
        home: Path,
        *,
        send: Callable[[str], object],
        get_progress: Callable[[], WorkerReport] = WorkerReport,
        guesses: bool = False,
    ) -> None:
        self._project = Project.open(home)
        self.tasks = TaskFolder.open(make_task_folder_path(self._project.home))
        self._record = self._project.open_record()
        self._send, self._get_progress, self._guesses = send, get_progress, guesses

    @property
    def order(self) -> ServingOrder:
        """The order that the last sync wrote; read again when the file changes."""
        folder = self.tasks.folder
        return _load_serving_order(folder, read_file_stamp(folder / ORDER))

    @property
    def index(self) -> TaskIndex:
        """Tasks and items; read again when there are more."""
        home = self._project.home
        return _index_stored_tasks(home, read_file_stamp(home / MANIFEST))

    def describe_health(self) -> JsonObject:
        """Describe the background process, without reading any file."""
        reported = self._get_progress()
        about = {"stage": reported.stage, "error": reported.error}
        shown = {name: words for name, words in about.items() if words}
        return {"status": "UP", "model_class": "labelwise", **shown}

    def check_project(self, given: object) -> None:
        """Reject calls about another project: its number, also as ``NUMBER.TIME``."""
        number = given.get("id") if isinstance(given, dict) else str(given).partition(".")[0]
        own = self.tasks.facts.project
        if str(number) != str(own):
            raise BadInput(f"this backend is for project {own}, not {str(number)[:20]!r}")

    def handle_event(self, body: JsonObject) -> bool:
        """Start a sync after an event; return False if the event does not matter."""
        if not EVENTS.fullmatch(str(body.get("action"))):
            return False
        if body.get("project") is not None:
            self.check_project(body["project"])
        tasks = _list_event_tasks(body)
        few = 0 < len(tasks) <= MAX_LISTED_TASKS
        self._send(f"tasks {' '.join(map(str, tasks))}" if few else "look")
        return True

    def predict(self, tasks: Sequence[object], layout: ProjectLayout | None) -> list[JsonObject]:
        """Predict a score for every task, and a label if guesses are shown and there is one."""
        order, index = self.order, self.index
        numbers = [_get_task_number(task) for task in tasks]
        found: dict[int, tuple[Label, float]] = {}
        if self._guesses and layout is not None:
            items = [index.items[number] for number in numbers if number in index.items]
            found = self._record.look(lambda ledger: find_task_guesses(ledger, items))
        answers = []
        for number in numbers:
            guess = found.get(index.items.get(number, -1))
            result = [make_region(layout, *guess)] if guess and layout is not None else []
            score = order.score_task(number, None if guess is None else guess[1])
            answers.append({"result": result, "score": score, "model_version": order.version})
        return answers

    def close(self) -> None:
        """Close the record."""
        self._record.storage.close()


@lru_cache(maxsize=1)
def _load_serving_order(folder: Path, stamp: FileStamp | None) -> ServingOrder:
    """The order in a folder, whose file has this stamp."""
    return ServingOrder.load(folder)


@lru_cache(maxsize=1)
def _index_stored_tasks(home: Path, stamp: FileStamp | None) -> TaskIndex:
    """The tasks of the items in a campaign's folder, whose list has this stamp."""
    return TaskFolder.open(make_task_folder_path(home)).index_tasks(Project.open(home).items)


def create_backend_app(
    backend: LabelStudioBackend,
    *,
    token: str | None = None,
    host: str = "127.0.0.1",
    allow_hosts: Iterable[str] = (),
    process: BackgroundProcess | None = None,
) -> "BackendGuard":
    """Create the ASGI application of the ML backend.

    Callers need the ``token``, which is required unless ``host`` is loopback. The ``process`` runs
    as long as the server.
    """
    check_server_token(host, token)

    @asynccontextmanager
    async def run_process(app: FastAPI) -> AsyncIterator[None]:
        if process is not None:
            process.start()
        yield
        if process is not None:
            await anyio.to_thread.run_sync(process.stop)
        backend.close()

    app = FastAPI(
        title="labelwise ML backend",
        lifespan=run_process,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    add_error_handlers(app)
    _add_backend_routes(app, backend)
    hosts = AllowedHosts.for_server(host, allow_hosts)
    return BackendGuard(
        app, AccessPolicy(key=b"", token=token, hosts=hosts, body_bytes=MAX_BODY_BYTES)
    )


RequestBody = Annotated[JsonObject, Body()]


def _add_backend_routes(app: FastAPI, backend: LabelStudioBackend) -> None:
    @app.get("/")
    @app.get("/health")
    async def get_health() -> JsonObject:
        return backend.describe_health()

    @app.post("/setup")
    def set_up(body: RequestBody) -> JsonObject:
        backend.check_project(body.get("project"))
        return {"model_version": backend.order.version}

    @app.post("/predict")
    def predict(body: RequestBody) -> JsonObject:
        tasks = body.get("tasks")
        if not isinstance(tasks, list):
            raise BadInput("tasks must be a list of tasks, each with its id")
        if body.get("project") is not None:
            backend.check_project(body["project"])
        answers = backend.predict(tasks, _read_given_layout(body.get("label_config")))
        return {"results": answers, "model_version": backend.order.version}

    @app.post("/webhook")
    def receive_event(body: RequestBody) -> JsonObject:
        return {"status": "taken" if backend.handle_event(body) else "ignored"}

    @app.post("/train")
    def start_training(body: RequestBody) -> JsonObject:
        backend.handle_event({**body, "action": "START_TRAINING"})
        return {"status": "taken"}

    @app.get("/versions")
    def list_versions() -> JsonObject:
        order = backend.order
        names = [f"{VERSION_PREFIX}{number}" for number in range(order.number, 0, -1)]
        return {"versions": names, "model_version": order.version}


class BackendGuard(RequestGuard):
    """The guard of the labelling page, for programs as callers: without cookies and pages."""

    async def _check_visitor(self, scope: Scope, headers: Headers) -> Response | None:
        ask = {"WWW-Authenticate": 'Basic realm="labelwise"'}
        given = find_backend_token(headers.get("authorization", ""))
        if not given:
            return refuse(401, "this backend needs its token, as the password of Basic Auth", ask)
        return await self._check_token(given, refuse(401, "the token is wrong", ask))

    def _check_origin(self, scope: Scope, headers: Headers) -> Response | None:
        if headers.get("origin") or headers.get("sec-fetch-site", "none") != "none":
            return refuse(403, "this backend answers Label Studio, not pages in a browser")
        return None


def find_backend_token(header: str) -> str:
    """Find the password or token in an Authorization header; empty if there is none.

    Example:
        >>> find_backend_token("Basic bGFiZWx3aXNlOnNlc2FtZQ==")
        'sesame'
    """
    kind, _, rest = header.partition(" ")
    if kind.lower() in ("bearer", "token"):
        return rest.strip()
    if kind.lower() != "basic":
        return ""
    try:
        pair = base64.b64decode(rest.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return pair.partition(":")[2]


def _read_given_layout(config: object) -> ProjectLayout | None:
    """Read the layout in a request; without one there are no guesses."""
    try:
        return read_layout(config) if isinstance(config, str) and config else None
    except LabelwiseError:
        return None


def _get_task_number(task: object) -> int:
    number = task.get("id") if isinstance(task, dict) else None
    if isinstance(number, bool) or not isinstance(number, int):
        raise BadInput("every task must have its number as id")
    return number


def _list_event_tasks(body: JsonObject) -> list[int]:
    """List the tasks of an event; a deletion does not name them."""
    found: dict[int, None] = {}
    annotations = body.get("annotation")
    for one in annotations if isinstance(annotations, list) else [annotations]:
        number = one.get("task") if isinstance(one, dict) else None
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            found[number] = None
    return list(found) if str(body.get("action")).startswith("ANNOTATION") else []


def make_basic_header(token: str) -> str:
    """Make the Authorization header of Label Studio's webhooks."""
    return "Basic " + base64.b64encode(f"{USER}:{token}".encode()).decode()


def connect_backend(
    client: LabelStudioClient, project: int, address: str, token: str | None
) -> str:
    """Register a running backend in a project of Label Studio.

    The webhook that Label Studio creates for a backend has no password; it is added here.

    Returns:
        ``"connected"`` or ``"connected again"``.
    """
    address = address.rstrip("/")
    body: JsonObject = {"url": address, "project": project, "title": "labelwise"}
    if token is not None:
        body |= {"auth_method": "BASIC_AUTH", "basic_auth_user": USER, "basic_auth_pass": token}
    known = _register_address(client, "/api/ml", "/api/ml/{}", body)
    hook: JsonObject = {"url": f"{address}/webhook", "project": project, "send_payload": True}
    hook["send_for_all_actions"] = True
    hook["headers"] = {} if token is None else {"Authorization": make_basic_header(token)}
    _register_address(client, "/api/webhooks/", "/api/webhooks/{}/", hook)
    return "connected again" if known else "connected"


def _register_address(client: LabelStudioClient, path: str, entry: str, body: JsonObject) -> bool:
    """Create or update what Label Studio calls at an address; whether it was there already."""
    found = client.request("GET", path, project=body["project"])
    known = [one["id"] for one in found if one.get("url") == body["url"]]
    if known:
        client.request("PATCH", entry.format(known[0]), body)
    else:
        client.request("POST", path, body)
    return bool(known)


def serve_backend(
    home: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 9090,
    token: str | None = None,
    variable: str = "LABEL_STUDIO_TOKEN",
    allow_hosts: Iterable[str] = (),
    guesses: bool = False,
    public_address: str | None = None,
    on_ready: Callable[[str], None] = lambda address: None,
    on_connected: Callable[[str], None] = lambda words: None,
) -> None:
    """Serve the ML backend of a campaign until SIGINT or SIGTERM.

    ``variable`` names the environment variable with the token of Label Studio. ``public_address``
    is registered in the project: empty for the one it listens on, None to register nothing.
    """
    key = read_label_studio_token(variable)
    command = [sys.executable, "-m", "labelwise.label_studio.worker", str(home), variable]
    worker = BackgroundProcess([*command, *(["--guesses"] if guesses else [])])

    def send(line: str) -> None:
        if not worker.send_order(line):
            worker.start()  # a new process begins with a full sync

    backend = LabelStudioBackend(
        home, send=send, get_progress=lambda: worker.report, guesses=guesses
    )
    facts = backend.tasks.facts
    client = LabelStudioClient(facts.url, key, source=variable)
    app = create_backend_app(
        backend, token=token, host=host, allow_hosts=allow_hosts, process=worker
    )
    listener = open_listener(host, port)
    address = make_page_address(host, listener.getsockname()[1])

    def register() -> None:
        try:
            words = connect_backend(client, facts.project, public_address or address, token)
        except LabelwiseError as error:
            words = f"could not be connected: {error}"
        on_connected(words)

    def announce() -> None:
        on_ready(address)
        if public_address is not None:  # Label Studio calls back, so the server must be free
            threading.Thread(target=register, daemon=True).start()

    with listener:
        AnnouncingServer(app, on_ready=announce).run([listener])
