"""The calls of Label Studio's API that the bridge needs."""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes, urlencode, urlsplit

from labelwise.errors import BadInput, UnknownName
from labelwise.label_studio.http import SECONDS, SECONDS_BULK, Answered, Line, short

PAGE = 1000
"""So many tasks are asked for at a time."""

MOST_BYTES = 64 << 20
"""The longest picture that is fetched."""

_STORED = ("s3", "gs", "azure-blob")


class Client:
    """A Label Studio server, for one user.

    Args:
        url: The server's address, as a browser shows it.
        token: The user's; see *Account & Settings* there.
        source: Where the token came from, for messages.

    Example:
        >>> Client("http://localhost:8080/", "0123456789abcdef").url
        'http://localhost:8080'
    """

    def __init__(self, url: str, token: str, *, source: str = "the token") -> None:
        self._line = Line(url, token, source=source)

    @property
    def url(self) -> str:
        """The server's address."""
        return self._line.url

    @property
    def seconds(self) -> float:
        """How long the server has been at work for this client, in calls of the API."""
        return self._line.seconds

    def get(self, path: str, *, seconds: float = SECONDS, **query: Any) -> Any:
        """What the server holds at a path."""
        return self._call("GET", path, query=query, seconds=seconds)

    def post(self, path: str, body: Any, *, seconds: float = SECONDS, **query: Any) -> Any:
        """Have the server make something."""
        return self._call("POST", path, body, query, seconds)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Have the server change something."""
        return self._call("PATCH", path, body)

    def delete(self, path: str, body: Any = None) -> Any:
        """Have the server remove something."""
        return self._call("DELETE", path, body, seconds=SECONDS_BULK)

    def project(self, number: int) -> dict[str, Any]:
        """All that is known of a project."""
        try:
            found = self.get(f"/api/projects/{number}/")
        except Answered as error:
            if error.status == 404:
                raise UnknownName(
                    f"{self.url} has no project {number}, or not for this user; "
                    "its number is in the address of its page: /projects/NUMBER"
                ) from None
            raise
        if not isinstance(found, dict) or "label_config" not in found:
            raise self._line.stranger()
        return found

    def annotated(self, project: int, tasks: Sequence[int] | None = None) -> list[dict[str, Any]]:
        """Tasks with all their annotations, those that were cancelled too.

        Args:
            project: Its number.
            tasks: Only these, with or without annotations; all that have some if None.
        """
        path, shared = f"/api/projects/{project}/export", {"exportType": "JSON"}
        if tasks is None:
            return self._listed(self.get(path, seconds=SECONDS_BULK, **shared))
        found: list[dict[str, Any]] = []
        for first in range(0, len(tasks), 200):  # they are part of the address
            query = {**shared, "download_all_tasks": "true", "ids[]": tasks[first : first + 200]}
            found += self._listed(self.get(path, seconds=SECONDS_BULK, **query))
        return found

    def tasks_after(self, project: int, after: int, *, data: bool = True) -> Iterator[Any]:
        """The tasks with numbers above ``after``, in order, with their data or without."""
        while True:
            above = {"operator": "greater", "value": after, "type": "Number"}
            items = [{"filter": "filter:tasks:id", **above}]
            wanted = {"filters": {"conjunction": "and", "items": items}, "ordering": ["tasks:id"]}
            found = self.get(
                "/api/tasks",
                project=project,
                page_size=PAGE,
                include="id,data" if data else "id",
                resolve_uri="false",
                query=json.dumps(wanted),
            )
            tasks = self._listed(found.get("tasks") if isinstance(found, dict) else None)
            yield from tasks
            if not tasks:
                return
            after = max(int(task["id"]) for task in tasks)

    def _listed(self, found: Any) -> list[dict[str, Any]]:
        if not isinstance(found, list):
            raise self._line.stranger()
        return found

    def people(self) -> dict[int, str]:
        """The names of all users, by number: their e-mail addresses."""
        users = self.get("/api/users/")
        found = users.get("results", []) if isinstance(users, dict) else users
        return {int(user["id"]): str(user.get("email") or user["id"]) for user in found}

    def versions(self, project: int) -> dict[str, int]:
        """How many predictions there are of each model version."""
        found = self.get(f"/api/projects/{project}/model-versions/")
        return {str(name): int(count) for name, count in dict(found or {}).items()}

    def add_predictions(
        self, project: int, predictions: Sequence[Mapping[str, Any]], *, at_once: int = 5000
    ) -> None:
        """Write predictions, thousands in a call."""
        for first in range(0, len(predictions), at_once):
            part = list(predictions[first : first + at_once])
            path = f"/api/projects/{project}/import/predictions"
            self.post(path, part, seconds=SECONDS_BULK)

    def fetch(self, address: str, *, task: int | None = None, most: int = MOST_BYTES) -> bytes:
        """The bytes behind an address in a task's data.

        Args:
            address: ``data:``, a path on the server as of an upload, ``http(s)://``, or a file in
                a cloud storage that the server knows.
            task: Whose data it is, for cloud storages.
            most: How many bytes it may be.

        Raises:
            BadInput: There is no such file, or it is too long.
        """
        if address[:5].lower() == "data:":
            return decoded(address, most)
        parts = urlsplit(address)
        if parts.scheme in _STORED and task is not None:
            code = base64.urlsafe_b64encode(address.encode()).decode()
            return self._line.fetch(f"{self.url}/tasks/{task}/resolve/?fileuri={code}", most)
        if parts.scheme in ("http", "https") and parts.hostname:
            return self._line.fetch(address, most)
        if not parts.scheme and not parts.netloc and address.startswith("/"):
            own = urlsplit(self.url).path  # a server below a path has it in its addresses, or not
            return self._line.fetch(self.url + (address.removeprefix(own) or "/"), most)
        raise BadInput(f"cannot fetch {short(address)!r}; give an upload, a URL or a data: address")

    def _call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        seconds: float = SECONDS,
    ) -> Any:
        address = self.url + path + (f"?{urlencode(query, doseq=True)}" if query else "")
        return self._line.call(method, address, body, seconds)


def decoded(address: str, most: int = MOST_BYTES) -> bytes:
    """The bytes of a ``data:`` address.

    Example:
        >>> decoded("data:text/plain;base64,aGVsbG8="), decoded("data:,a%20rose")
        (b'hello', b'a rose')
    """
    head, comma, rest = address.partition(",")
    if not comma or len(rest) > 4 * most:
        raise BadInput(f"{short(address)!r} is no data: address, or too long")
    if not head.lower().endswith(";base64"):
        return unquote_to_bytes(rest)
    try:
        return base64.b64decode(unquote_to_bytes(rest), validate=True)
    except binascii.Error:
        raise BadInput(f"{short(address)!r} is no base64") from None
