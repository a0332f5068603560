"""An ML backend for Label Studio: answers at once, and leaves the work to a background process.

Label Studio asks for ``/health`` and ``/setup`` (and waits 1 and 3 seconds), sends what happens to
``/webhook``, asks ``/predict`` for scores, and ``/versions`` for the names of models. None of these
loads a model: scores come from the order that the last sync wrote, guesses from the record. What a
webhook tells is taken as a hint only: the process then asks Label Studio itself what is the case,
so that a hint that was lost, sent twice or made up does no harm.

Whoever calls must know the token, as the password of *Basic* authentication (which Label Studio
offers), or as ``Authorization: Bearer``; without a token only this machine can reach the backend.
"""

import base64
import binascii
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import anyio.to_thread
from fastapi import Body, FastAPI
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from labelwise.campaign.folder.items import MANIFEST
from labelwise.campaign.project import Project
from labelwise.errors import BadInput, LabelwiseError
from labelwise.label_studio.bridge import guesses_of
from labelwise.label_studio.formats import Layout, read_layout, region
from labelwise.label_studio.order import ORDER, Order
from labelwise.label_studio.tasks import Tasks
from labelwise.label_studio.visit import Places, tasks_folder
from labelwise.web.access import Hosts, check_token
from labelwise.web.errors import add_error_handlers
from labelwise.web.security import Guard, Policy, refuse
from labelwise.web.supervisor import Progress

BODY_BYTES = 64 << 20
"""The longest body: a hundred tasks may hold their pictures as data: addresses."""

NEWS = frozenset(
    {
        "ANNOTATION_CREATED",
        "ANNOTATIONS_CREATED",
        "ANNOTATION_UPDATED",
        "ANNOTATIONS_UPDATED",
        "ANNOTATION_DELETED",
        "ANNOTATIONS_DELETED",
        "TASK_CREATED",
        "TASKS_CREATED",
        "TASK_DELETED",
        "TASKS_DELETED",
        "PROJECT_UPDATED",
        "START_TRAINING",
    }
)
"""What makes the process look; deletions come in two spellings."""

MOST_TASKS = 200
"""Of more tasks than so many, all are looked at."""


class Backend:
    """What the handlers share.

    Args:
        home: The campaign's folder, which `label_studio.sync` made.
        tell: Passes an order on to the background process.
        progress: What the process last said.
        guesses: Whether to give the model's guesses, for annotators to see.
    """

    def __init__(
        self,
        home: Path,
        *,
        tell: Callable[[str], Any],
        progress: Callable[[], Progress] = Progress,
        guesses: bool = False,
    ) -> None:
        self._project = Project.open(home)
        self.tasks = Tasks.open(tasks_folder(self._project.home))
        self._desk = self._project.desk()
        self._tell, self._progress, self._guesses = tell, progress, guesses
        self._lock = threading.Lock()
        self._order: tuple[Any, Order] = (None, Order())
        self._places: tuple[Any, Places] = (None, Places((), {}))

    @property
    def order(self) -> Order:
        """The order that the last sync wrote; read again when it changes."""
        with self._lock:
            stamp = _stamp(self.tasks.folder / ORDER)
            if stamp != self._order[0]:
                self._order = (stamp, Order.read(self.tasks.folder))
            return self._order[1]

    @property
    def places(self) -> Places:
        """Which item is which task; read again when there are more."""
        with self._lock:
            stamp = _stamp(self._project.home / MANIFEST)
            if stamp != self._places[0]:
                self._project.__dict__.pop("items", None)
                self._places = (stamp, Places.of(self.tasks, self._project))
            return self._places[1]

    def health(self) -> dict[str, Any]:
        """That the backend is there, and what its process is doing; nothing is read for it."""
        said = self._progress()
        about = {"stage": said.stage, "error": said.error}
        told = {name: words for name, words in about.items() if words}
        return {"status": "UP", "model_class": "labelwise", **told}

    def check_project(self, given: Any) -> None:
        """Refuse calls about another project: its number, also as ``NUMBER.TIME``."""
        number = given.get("id") if isinstance(given, dict) else str(given).partition(".")[0]
        if str(number) != str(self.tasks.facts.project):
            raise BadInput(
                f"this backend is for project {self.tasks.facts.project}, not {str(number)[:20]!r}"
            )

    def hear(self, body: dict[str, Any]) -> bool:
        """Pass on a hint that something happened; False if it does not matter."""
        if str(body.get("action")) not in NEWS:
            return False
        if body.get("project") is not None:
            self.check_project(body["project"])
        tasks = _tasks_of(body)
        few = 0 < len(tasks) <= MOST_TASKS
        self._tell(f"tasks {' '.join(map(str, tasks))}" if few else "look")
        return True

    def predict(self, tasks: Sequence[Any], layout: Layout | None) -> list[dict[str, Any]]:
        """A score for every task, and a guess where that is wanted and there is one."""
        order, places = self.order, self.places
        numbers = [_number(task) for task in tasks]
        found: dict[int, tuple[Any, float]] = {}
        if self._guesses and layout is not None:
            items = [places.items[number] for number in numbers if number in places.items]
            found = self._desk.look(lambda ledger: guesses_of(ledger, items))
        answers = []
        for number in numbers:
            guess = found.get(places.items.get(number, -1))
            result = [region(layout, *guess)] if guess and layout is not None else []
            score = order.score(number, None if guess is None else guess[1])
            answers.append({"result": result, "score": score, "model_version": order.version})
        return answers

    def close(self) -> None:
        """Let go of the record."""
        self._desk.storage.close()


def create_backend(
    backend: Backend,
    *,
    token: str | None = None,
    host: str = "127.0.0.1",
    allow_hosts: Iterable[str] = (),
    start: Callable[[], None] | None = None,
    stop: Callable[[], None] | None = None,
) -> "BackendGuard":
    """The ML backend of a campaign, as an ASGI application.

    Args:
        backend: The campaign, and how to reach its background process.
        token: What callers must know; needed unless ``host`` is loopback.
        host: The address it will listen on.
        allow_hosts: Further names under which it is reached.
        start: Called when the server starts.
        stop: Called when it ends.
    """
    check_token(host, token)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if start is not None:
            start()
        yield
        if stop is not None:
            await anyio.to_thread.run_sync(stop)
        backend.close()

    app = FastAPI(
        title="labelwise ML backend",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    add_error_handlers(app)
    _add_routes(app, backend)
    policy = Policy(
        key=b"",
        token=token,
        hosts=Hosts.of(host, allow_hosts),
        body_bytes=BODY_BYTES,
    )
    return BackendGuard(app, policy)


Given = Annotated[dict[str, Any], Body()]


def _add_routes(app: FastAPI, backend: Backend) -> None:
    @app.get("/")
    @app.get("/health")
    async def health() -> dict[str, Any]:
        return backend.health()

    @app.post("/setup")
    def setup(body: Given) -> dict[str, Any]:
        backend.check_project(body.get("project"))
        return {"model_version": backend.order.version}

    @app.post("/predict")
    def predict(body: Given) -> dict[str, Any]:
        tasks = body.get("tasks")
        if not isinstance(tasks, list):
            raise BadInput("tasks must be a list of tasks, each with its id")
        if body.get("project") is not None:
            backend.check_project(body["project"])
        answers = backend.predict(tasks, _layout(body.get("label_config")))
        return {"results": answers, "model_version": backend.order.version}

    @app.post("/webhook")
    def webhook(body: Given) -> dict[str, Any]:
        return {"status": "taken" if backend.hear(body) else "ignored"}

    @app.post("/train")
    def train(body: Given) -> dict[str, Any]:
        backend.hear({**body, "action": "START_TRAINING"})
        return {"status": "taken"}

    @app.get("/versions")
    def versions() -> dict[str, Any]:
        order = backend.order
        named = [f"labelwise-{number}" for number in range(order.number, 0, -1)]
        return {"versions": named, "model_version": order.version}


class BackendGuard(Guard):
    """The guard of the labelling page, for callers that are programs: no cookies, no pages."""

    def _refuse_stranger(self, scope: Scope, headers: Headers) -> Response | None:
        if self._policy.token is None:
            return None
        ask = {"WWW-Authenticate": 'Basic realm="labelwise"'}
        given = password_in(headers.get("authorization", ""))
        if not given:
            return refuse(401, "this backend needs its token, as the password of Basic Auth", ask)
        return self._refuse_token(scope, given, refuse(401, "the token is wrong", ask))

    def _refuse_origin(self, scope: Scope, headers: Headers) -> Response | None:
        """No page in any browser has business here."""
        if headers.get("origin") or headers.get("sec-fetch-site", "none") != "none":
            return refuse(403, "this backend answers Label Studio, and no page in a browser")
        return None


def password_in(header: str) -> str:
    """The password or token in an Authorization header; empty if there is none.

    Example:
        >>> password_in("Basic bGFiZWx3aXNlOnNlc2FtZQ=="), password_in("Bearer sesame")
        ('sesame', 'sesame')
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


def _layout(config: Any) -> Layout | None:
    """The layout that a call brings along; without one there are no guesses."""
    try:
        return read_layout(config) if isinstance(config, str) and config else None
    except LabelwiseError:
        return None


def _number(task: Any) -> int:
    number = task.get("id") if isinstance(task, dict) else None
    if isinstance(number, bool) or not isinstance(number, int):
        raise BadInput("every task must have its number as id")
    return number


def _tasks_of(body: dict[str, Any]) -> list[int]:
    """The tasks that an event is about; none where it does not say, as when one is deleted."""
    found: dict[int, None] = {}
    annotations = body.get("annotation")
    for one in annotations if isinstance(annotations, list) else [annotations]:
        number = one.get("task") if isinstance(one, dict) else None
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            found[number] = None
    return list(found) if str(body.get("action")).startswith("ANNOTATION") else []


def _stamp(path: Path) -> Any:
    try:
        held = path.stat()
    except OSError:
        return None
    return (held.st_mtime_ns, held.st_size, held.st_ino)
