"""How Label Studio is spoken to, with nothing but the standard library.

The token goes to the server that it was given for, and nowhere else: calls of the API follow no
redirects, and files from other addresses are fetched without it. Neither the token nor a password
is ever part of a message.

A token is either of Label Studio's two kinds: a personal access token, which is exchanged for one
that is good for some minutes, or a legacy token, which is sent as it is.
"""

import ipaddress
import json
import os
import re
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator, Mapping
from email.message import Message
from http.client import HTTPException
from typing import IO, Any
from urllib.parse import urlsplit, urlunsplit

from labelwise.errors import BadInput, LabelwiseError, LabelwiseWarning

TRIES, PAUSE = 3, 1.0
"""How often a call that reads is tried, and the seconds before the second time."""

SECONDS, SECONDS_BULK = 60.0, 900.0
"""How long an answer may take; one with all tasks may take longer."""

_BUSY = (429, 500, 502, 503, 504)


class LabelStudioFailed(LabelwiseError):
    """Label Studio could not be reached, or refused a call; nothing was lost."""


class Answered(LabelStudioFailed):
    """An answer that is an error."""

    def __init__(self, status: int, body: bytes, headers: Message) -> None:
        super().__init__(f"Label Studio answers {status}")
        self.status, self.body, self.headers = status, body, headers


class Line:
    """The line to a Label Studio server, for one user.

    Args:
        url: The server's address, as a browser shows it.
        token: The user's; see *Account & Settings* there.
        source: Where the token came from, for messages.

    Attributes:
        url: The server's address.
        seconds: How long the server has been at work for this line.
    """

    def __init__(self, url: str, token: str, *, source: str = "the token") -> None:
        self.url = clean_url(url)
        self._token, self._source = token.strip(), source
        self._access: str | None = None
        self.seconds = 0.0
        if not self._token:
            raise BadInput(f"{source} is empty; copy the token from Account & Settings there")
        if not self._token.isascii() or not self._token.isprintable() or " " in self._token:
            raise BadInput(f"{source} holds no token: it has blanks or odd letters in it")
        parts = urlsplit(self.url)
        self._origin = (parts.scheme, parts.netloc)
        if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
            warnings.warn(
                f"the token goes to {parts.hostname} without encryption; use https if it has it",
                LabelwiseWarning,
                stacklevel=4,
            )

    def call(self, method: str, address: str, body: Any = None, seconds: float = SECONDS) -> Any:
        """The answer to a call of the API, as JSON; what only reads is tried several times."""
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        for wait in _tries(method):
            began = time.monotonic()
            try:
                found = self._with_token(method, address, data, seconds)
            except Answered as error:
                if error.status not in _BUSY or not wait:
                    raise self._explained(error) from None
            except LabelStudioFailed:
                if not wait:
                    raise
            else:
                return self._parsed(found)
            finally:
                self.seconds += time.monotonic() - began
            time.sleep(wait)
        raise AssertionError("the last try returns or raises")

    def fetch(self, address: str, most: int) -> bytes:
        """A file, from this server with the token, from any other without.

        Raises:
            BadInput: There is none, it is too long, or the other server cannot be reached.
        """
        ours = urlsplit(address)[:2] == self._origin
        try:
            if ours:
                body = self._with_token("GET", address, None, SECONDS, most, follow=True)
            else:
                body = self._read("GET", address, None, {}, SECONDS, most, follow=True)
        except Answered as error:
            raise BadInput(f"{short(address)} answers {error.status}") from None
        except LabelStudioFailed as error:
            if ours:
                raise
            raise BadInput(str(error).partition(";")[0]) from None
        if len(body) > most:
            raise BadInput(f"{short(address)} is longer than {most:,} bytes")
        return body

    def stranger(self) -> LabelStudioFailed:
        """What to say of an answer that cannot be Label Studio's."""
        return LabelStudioFailed(
            f"{self.url} answers, but not as Label Studio does; check the address"
        )

    def _with_token(
        self,
        method: str,
        address: str,
        data: bytes | None,
        seconds: float,
        most: int | None = None,
        follow: bool = False,
    ) -> bytes:
        try:
            return self._read(method, address, data, self._headers(), seconds, most, follow)
        except Answered as error:
            if error.status != 401 or self._access is None:
                raise
        self._access = None  # it was good for some minutes only
        return self._read(method, address, data, self._headers(), seconds, most, follow)

    def _headers(self) -> dict[str, str]:
        if self._token.count(".") != 2:
            return {"Authorization": f"Token {self._token}"}
        if self._access is None:
            self._access = self._exchanged()
        return {"Authorization": f"Bearer {self._access}"}

    def _exchanged(self) -> str:
        """A token for some minutes in exchange for a personal access token."""
        data = json.dumps({"refresh": self._token}).encode()
        address = self.url + "/api/token/refresh/"
        try:
            return str(self._parsed(self._read("POST", address, data, {}, SECONDS))["access"])
        except Answered as error:
            raise self._explained(error) from None
        except (KeyError, TypeError):
            raise self.stranger() from None

    def _read(
        self,
        method: str,
        address: str,
        data: bytes | None,
        headers: Mapping[str, str],
        seconds: float,
        most: int | None = None,
        follow: bool = False,
    ) -> bytes:
        """The body of an answer, one byte more than ``most`` at most."""
        request = urllib.request.Request(address, data, dict(headers), method=method)
        request.add_header("Accept", "*/*" if follow else "application/json")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        handlers: list[Any] = [_Redirects(self._origin) if follow else _NoRedirects()]
        if _is_loopback(urlsplit(address).hostname or ""):
            handlers.append(urllib.request.ProxyHandler({}))
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=seconds) as answer:
                body: bytes = answer.read() if most is None else answer.read(most + 1)
                return body
        except urllib.error.HTTPError as error:
            with error:
                raise Answered(error.code, error.read(2000), error.headers) from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise LabelStudioFailed(
                f"cannot reach {_host(address)} ({reason}); check the address, and that "
                "Label Studio runs there"
            ) from None

    def _parsed(self, body: bytes) -> Any:
        try:
            return json.loads(body) if body else None
        except ValueError:
            raise self.stranger() from None

    def _explained(self, error: Answered) -> LabelwiseError:
        """What an answer that is an error means."""
        if error.status in (401, 403):
            return LabelStudioFailed(
                f"{self.url} refuses the token in {self._source}; copy a new one from Account & "
                "Settings there (a legacy token works only where it is enabled)"
            )
        if 300 <= error.status < 400:
            to = short(error.headers.get("Location", "elsewhere"))
            return LabelStudioFailed(f"{self.url} redirects to {to}; give that address instead")
        if error.status == 404:
            return error
        said = " ".join(error.body.decode("utf-8", "replace").split())[:300]
        if said.startswith("<"):
            said = "no reason that could be read"
        return LabelStudioFailed(f"{self.url} answers {error.status}: {said or 'no reason given'}")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error: a token must not follow it, and a POST would become a GET."""

    def redirect_request(self, *args: Any, **named: Any) -> None:
        return None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects over http and https, and leaves the token behind at another server."""

    def __init__(self, origin: tuple[str, str]) -> None:
        self._home = origin

    def redirect_request(
        self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        found = super().redirect_request(req, fp, code, msg, headers, newurl)
        parts = urlsplit(newurl)
        if found is None or parts.scheme not in ("http", "https"):
            return None
        if parts[:2] != self._home:
            found.remove_header("Authorization")
        return found


def token_from(variable: str) -> str:
    """The token in a variable of the environment."""
    token = os.environ.get(variable, "").strip()
    if not token:
        raise BadInput(
            f"there is no token in the variable {variable}; copy yours from Account & Settings in "
            f"Label Studio, and run: export {variable}=..."
        )
    return token


def clean_url(url: str) -> str:
    """A server's address without what does not belong to it.

    Example:
        >>> clean_url("https://labels.example.org/studio/")
        'https://labels.example.org/studio'
    """
    try:
        parts = urlsplit(url.strip())
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise BadInput(
            "Label Studio's address is written http://HOST:PORT or https://HOST; "
            f"got {short(url)!r}"
        )
    if parts.username is not None or parts.password is not None:
        raise BadInput("leave name and password out of the address; the token is enough")
    # As copied from the browser, or from a page about the API.
    path = re.sub(r"/(projects|api|user)(/.*)?$", "", parts.path.rstrip("/"))
    return urlunsplit((parts.scheme, parts.netloc.lower(), path, "", ""))


def _tries(method: str) -> Iterator[float]:
    """The seconds to wait after each try; 0 after the last. Only what reads is repeated."""
    for number in range(TRIES - 1 if method == "GET" else 0):
        yield PAUSE * 2**number
    yield 0.0


def _host(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def short(text: str, longest: int = 80) -> str:
    """A text from outside on one line, cut short; without what follows ``?``, often a secret."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text.split("?")[0])
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
