"""Client of Label Studio's HTTP API.

The token is sent only to the server that it was given for: API calls follow no redirects, and
files on other servers are downloaded without it. Messages contain neither token nor password.

Label Studio has two kinds of tokens: a personal access token, which is exchanged for one that is
valid for some minutes, and a legacy token, which is sent as it is.
"""

import base64
import binascii
import json
import os
import re
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import unquote_to_bytes, urljoin, urlsplit, urlunsplit

from labelwise.errors import (
    BadInput,
    LabelwiseError,
    LabelwiseWarning,
    UnknownName,
    first_line,
    require_extra,
)
from labelwise.files import Json, JsonObject

with require_extra("Label Studio needs httpx and starlette", "web"):
    import httpx

    from labelwise.web.security import is_loopback

ATTEMPTS, PAUSE = 3, 1.0
"""Number of attempts for a call that only reads, and the seconds before the second one."""

TIMEOUT, BULK_TIMEOUT = 60.0, 900.0  # Seconds to wait for an answer, and for one with all tasks

TASKS_PER_PAGE = 1000
MAX_FILE_BYTES = 64 << 20
MAX_REDIRECTS = 5

_RETRIED = (429, 500, 502, 503, 504)
_REDIRECTS = (301, 302, 303, 307, 308)
_WEB_SCHEMES, _CLOUD_SCHEMES = ("http", "https"), ("s3", "gs", "azure-blob")


class LabelStudioFailed(LabelwiseError):
    """Label Studio could not be reached, or rejected a call; no label was lost."""


class ErrorResponse(LabelStudioFailed):
    """A response with an error status."""

    def __init__(self, status: int, body: bytes, location: str) -> None:
        super().__init__(f"Label Studio answers {status}")
        self.status, self.body, self.location = status, body, location


class ServerUnreachable(LabelStudioFailed):
    """A server, here Label Studio or one with files, did not answer."""

    def __init__(self, server: httpx.URL, error: Exception) -> None:
        self.origin = f"{server.scheme}://{server.netloc.decode()}"
        super().__init__(
            f"cannot reach {self.origin} ({first_line(error)}); check the address, and that "
            "Label Studio runs there"
        )


class LabelStudioToken(httpx.Auth):
    """Adds the token to requests; a personal access token is exchanged first."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._access: str | None = None

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send a request with the token, again with a new one if it has expired."""
        if self._token.count(".") != 2:
            request.headers["Authorization"] = f"Token {self._token}"
            yield request
            return
        if self._access is not None:
            request.headers["Authorization"] = f"Bearer {self._access}"
            if (yield request).status_code != 401:
                return
        refresh = {"refresh": self._token}
        answer = yield httpx.Request("POST", f"{self._url}/api/token/refresh/", json=refresh)
        if answer.status_code >= 300:
            raise ErrorResponse(answer.status_code, b"", "")
        self._access = str(json.loads(answer.read())["access"])
        request.headers["Authorization"] = f"Bearer {self._access}"
        yield request


class LabelStudioClient:
    """A Label Studio server, for one user.

    ``source`` says where the token came from, for messages.

    Attributes:
        url: Address of the server.
        seconds: Total time that the server needed for API calls.

    Example:
        >>> LabelStudioClient("http://localhost:8080/", "0123456789abcdef").url
        'http://localhost:8080'
    """

    def __init__(self, url: str, token: str, *, source: str = "the token") -> None:
        self.url = normalize_url(url)
        self.seconds = 0.0
        token, self._source = token.strip(), source
        if not token:
            raise BadInput(f"{source} is empty; copy the token from Account & Settings there")
        if not token.isascii() or not token.isprintable() or " " in token:
            raise BadInput(f"{source} is not a token: it has blanks or special characters")
        self._token = LabelStudioToken(self.url, token)
        parts = urlsplit(self.url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            warnings.warn(
                f"the token goes to {parts.hostname} without encryption; use https if possible",
                LabelwiseWarning,
                stacklevel=3,
            )

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        timeout: float = TIMEOUT,
        **query: object,
    ) -> Json:
        """Call the API and return the JSON answer; calls that only read are retried."""
        pauses = [PAUSE * 2**attempt for attempt in range(ATTEMPTS - 1)] if method == "GET" else []
        for pause in [*pauses, None]:
            began = time.monotonic()
            try:
                found = self._send_request(
                    method, self.url + path, params=query, json=body, timeout=timeout
                )
                return json.loads(found) if found else None
            except (ValueError, KeyError, TypeError):
                raise self._make_unknown_server_error() from None
            except ErrorResponse as error:
                if error.status not in _RETRIED or pause is None:
                    raise self._explain_response(error) from None
            except LabelStudioFailed:
                if pause is None:
                    raise
            finally:
                self.seconds += time.monotonic() - began
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def read_project(self, number: int) -> JsonObject:
        """Read the settings of a project."""
        try:
            found = self.request("GET", f"/api/projects/{number}/")
        except ErrorResponse as error:
            if error.status == 404:
                raise UnknownName(
                    f"{self.url} has no project {number}, or this user cannot see it; "
                    "its number is in the address of its page: /projects/NUMBER"
                ) from None
            raise
        if not isinstance(found, dict) or "label_config" not in found:
            raise self._make_unknown_server_error()
        return found

    def export_tasks(self, project: int, tasks: Sequence[int] | None = None) -> list[JsonObject]:
        """Export tasks with all their annotations, including cancelled ones.

        Given ``tasks`` come with or without annotations; None exports all that have some.
        """
        path, shared = f"/api/projects/{project}/export", {"exportType": "JSON"}
        if tasks is None:
            return self._check_list(self.request("GET", path, timeout=BULK_TIMEOUT, **shared))
        found: list[JsonObject] = []
        for first in range(0, len(tasks), 200):  # the numbers are part of the address
            query = {**shared, "download_all_tasks": "true", "ids[]": tasks[first : first + 200]}
            found += self._check_list(self.request("GET", path, timeout=BULK_TIMEOUT, **query))
        return found

    def list_tasks_after(
        self, project: int, after: int, *, data: bool = True
    ) -> Iterator[JsonObject]:
        """List the tasks with numbers above ``after``, in order, with or without their data."""
        while True:
            above = {"operator": "greater", "value": after, "type": "Number"}
            items = [{"filter": "filter:tasks:id", **above}]
            wanted = {"filters": {"conjunction": "and", "items": items}, "ordering": ["tasks:id"]}
            found = self.request(
                "GET",
                "/api/tasks",
                project=project,
                page_size=TASKS_PER_PAGE,
                include="id,data" if data else "id",
                resolve_uri="false",
                query=json.dumps(wanted),
            )
            tasks = self._check_list(found.get("tasks") if isinstance(found, dict) else None)
            yield from tasks
            if not tasks:
                return
            after = max(int(task["id"]) for task in tasks)

    def list_users(self) -> dict[int, str]:
        """List the e-mail addresses of all users, by number."""
        users = self.request("GET", "/api/users/")
        found = users.get("results", []) if isinstance(users, dict) else users
        return {int(user["id"]): str(user.get("email") or user["id"]) for user in found}

    def count_predictions(self, project: int) -> dict[str, int]:
        """Count the predictions of each model version."""
        found = self.request("GET", f"/api/projects/{project}/model-versions/")
        return {str(name): int(count) for name, count in dict(found or {}).items()}

    def add_predictions(self, project: int, predictions: Sequence[JsonObject]) -> None:
        """Write predictions, thousands in a call."""
        path = f"/api/projects/{project}/import/predictions"
        for first in range(0, len(predictions), 5000):
            part = list(predictions[first : first + 5000])
            self.request("POST", path, part, timeout=BULK_TIMEOUT)

    def download(
        self, address: str, *, task: int | None = None, limit: int = MAX_FILE_BYTES
    ) -> bytes:
        """Download the file behind an address in the data of a task.

        Args:
            address: ``data:``, a path on the server such as an upload, ``http(s)://``, or a file
                in a cloud storage that the server can read.
            task: Number of the task, for cloud storages.
            limit: Maximum number of bytes.

        Raises:
            BadInput: The file is missing or too long, or another server cannot be reached.
        """
        if address[:5].lower() == "data:":
            return decode_data_url(address, limit)
        parts = urlsplit(address)
        if parts.scheme in _CLOUD_SCHEMES and task is not None:
            code = base64.urlsafe_b64encode(address.encode()).decode()
            return self._download_address(f"{self.url}/tasks/{task}/resolve/?fileuri={code}", limit)
        if parts.scheme in _WEB_SCHEMES and parts.hostname:
            return self._download_address(address, limit)
        if not parts.scheme and not parts.netloc and address.startswith("/"):
            prefix = urlsplit(self.url).path  # a server below a path may repeat it in addresses
            return self._download_address(self.url + (address.removeprefix(prefix) or "/"), limit)
        raise BadInput(
            f"cannot fetch {shorten_foreign(address)!r}; give an upload, a URL or a data: address"
        )

    def _download_address(self, address: str, limit: int) -> bytes:
        """Download a file; redirects are followed, without the token to other servers."""
        target = address
        for _ in range(MAX_REDIRECTS + 1):
            try:
                body = self._send_request("GET", target, limit=limit)
            except ErrorResponse as error:
                target = urljoin(target, error.location)
                web = error.location and urlsplit(target).scheme in _WEB_SCHEMES
                if error.status not in _REDIRECTS or not web:
                    raise BadInput(f"{shorten_foreign(address)} answers {error.status}") from None
            except ServerUnreachable as error:
                if error.origin == self._origin:
                    raise
                raise BadInput(str(error).partition(";")[0]) from None
            else:
                if len(body) > limit:
                    raise BadInput(f"{shorten_foreign(address)} is longer than {limit:,} bytes")
                return body
        raise BadInput(f"{shorten_foreign(address)} redirects more than {MAX_REDIRECTS} times")

    @cached_property
    def _http(self) -> httpx.Client:
        """A connection pool with the proxies of the system, except for this machine."""
        direct: dict[str, httpx.BaseTransport | None] = {
            f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")
        }
        limits = httpx.Limits(max_keepalive_connections=0)  # an idle one may break a later POST
        return httpx.Client(mounts=direct, limits=limits)  # it follows no redirects

    def _send_request(
        self,
        method: str,
        address: str,
        *,
        limit: int | None = None,
        timeout: float = TIMEOUT,
        **request: Any,
    ) -> bytes:
        """Send a request and return the body, cut off after ``limit`` bytes and one chunk."""
        own = address.startswith(f"{self._origin}/")
        target = httpx.URL(self.url)
        try:
            target = httpx.URL(address)
            with self._http.stream(
                method, target, auth=self._token if own else None, timeout=timeout, **request
            ) as response:
                body = bytearray()
                most = limit if response.status_code < 300 else 2000
                for chunk in response.iter_bytes():
                    body += chunk
                    if most is not None and len(body) > most:
                        break
                if response.status_code >= 300:
                    location = response.headers.get("Location", "")
                    raise ErrorResponse(response.status_code, bytes(body[:2000]), location)
                return bytes(body)
        except httpx.RequestError as error:
            raise ServerUnreachable(error.request.url, error) from None
        except (httpx.InvalidURL, httpx.HTTPError, ImportError, OSError) as error:
            raise ServerUnreachable(target, error) from None

    def _check_list(self, found: object) -> list[JsonObject]:
        if not isinstance(found, list):
            raise self._make_unknown_server_error()
        return found

    def _make_unknown_server_error(self) -> LabelStudioFailed:
        return LabelStudioFailed(
            f"{self.url} answers, but not as Label Studio does; check the address"
        )

    def _explain_response(self, error: ErrorResponse) -> LabelwiseError:
        """Make the error that names the cause of an error status."""
        if error.status in (401, 403):
            return LabelStudioFailed(
                f"{self.url} refuses the token in {self._source}; copy a new one from Account & "
                "Settings there (a legacy token works only where it is enabled)"
            )
        if 300 <= error.status < 400:
            to = shorten_foreign(error.location or "elsewhere")
            return LabelStudioFailed(f"{self.url} redirects to {to}; give that address instead")
        if error.status == 404:
            return error
        reason = " ".join(error.body.decode("utf-8", "replace").split())[:300]
        if not reason or reason.startswith("<"):
            reason = "no reason given"
        return LabelStudioFailed(f"{self.url} answers {error.status}: {reason}")


def read_label_studio_token(variable: str) -> str:
    """Read a token from an environment variable."""
    token = os.environ.get(variable, "").strip()
    if not token:
        raise BadInput(
            f"there is no token in the variable {variable}; copy yours from Account & Settings in "
            f"Label Studio, and run: export {variable}=..."
        )
    return token


def normalize_url(url: str) -> str:
    """Reduce the address of a page of Label Studio to that of the server.

    Example:
        >>> normalize_url("https://labels.example.org/studio/projects/5")
        'https://labels.example.org/studio'
    """
    try:
        parts = urlsplit(url.strip())
        valid = parts.scheme in _WEB_SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise BadInput(
            "Label Studio's address is written http://HOST:PORT or https://HOST; "
            f"got {shorten_foreign(url)!r}"
        )
    if parts.username is not None or parts.password is not None:
        raise BadInput("leave name and password out of the address; the token is enough")
    path = re.sub(r"/(projects|api|user)(/.*)?$", "", parts.path.rstrip("/"))
    return urlunsplit((parts.scheme, parts.netloc.lower(), path, "", ""))


def decode_data_url(address: str, limit: int = MAX_FILE_BYTES) -> bytes:
    """Decode a ``data:`` address.

    Example:
        >>> decode_data_url("data:text/plain;base64,aGVsbG8="), decode_data_url("data:,a%20rose")
        (b'hello', b'a rose')
    """
    head, comma, rest = address.partition(",")
    if not comma or len(rest) > 4 * limit:
        raise BadInput(f"{shorten_foreign(address)!r} is not a data: address, or too long")
    if not head.lower().endswith(";base64"):
        return unquote_to_bytes(rest)
    try:
        return base64.b64decode(unquote_to_bytes(rest), validate=True)
    except binascii.Error:
        raise BadInput(f"{shorten_foreign(address)!r} is not base64") from None


def shorten_foreign(text: str) -> str:
    """Shorten a foreign text to one line, without what follows ``?``, which may be a secret."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text.split("?")[0])
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
