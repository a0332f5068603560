"""Checks of requests (host, token, origin, body size) and the response headers.

A `RequestGuard` wraps the application. It checks, in this order:

* **Host**: the request must name this server. A page that points its own name at this machine
  after it was loaded (DNS rebinding) sends that name, and is refused.
* **Token**, if there is one: as ``?token=``, which is answered with a cookie and a redirect to the
  address without the token, or as ``Authorization: Bearer``. Tokens are compared in constant time,
  and after many wrong ones each answer takes a second, so that guessing is slow but the right token
  still opens the page. The cookie is a code made with the server's key, which cannot be guessed.
  The owner has a token and a code of their own, made with the key as well
  (`AccessPolicy.is_owner`).
* **Origin**: the API does not answer other sites, and a request that changes something must carry
  a code that only a page of this server can read (``X-Labelwise-Csrf``).
* **Body**: size and duration are limited, regardless of the Content-Length header.
"""

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import socket
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from labelwise.errors import BadInput
from labelwise.pages import render_page

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_HEADER = "X-Labelwise-Csrf"
UPLOAD = "/api/upload"
YEAR = 365 * 24 * 3600
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{8,200}")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#\[\]@]+))(?::\d{1,5})?")

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: the page loads only its own files, and no inline scripts."""

SECURITY_HEADERS = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every response that does not set its own."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on ``host``.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    address = _parse_ip_address(host)
    return host == "localhost" if address is None else address.is_loopback


def check_server_token(host: str, token: str | None) -> None:
    """Reject a public address without a token, and a token that is easy to guess.

    >>> check_server_token("127.0.0.1", None)
    """
    if token is None and not is_loopback(host):
        raise BadInput(
            f"other machines can reach {host}, so a token is needed; add --token "
            f"{secrets.token_urlsafe(16)} (or one of your own), or listen on 127.0.0.1"
        )
    if token is not None and not _TOKEN.fullmatch(token):
        raise BadInput(
            f"the token has {len(token)} characters; use 8 to 200 letters, digits or . _ ~ + / = -"
        )


@dataclass(frozen=True)
class AllowedHosts:
    """The names under which a server answers.

    >>> hosts = AllowedHosts.for_server("127.0.0.1")
    >>> hosts.allows_host("localhost:8600"), hosts.allows_host("evil.example")
    (True, False)
    """

    names: frozenset[str]  # Lower case, without port
    # Whether every IP address is allowed, as for a server that listens on all of them; unlike a
    # name, an address cannot be pointed elsewhere
    any_address: bool = False

    @classmethod
    def for_server(cls, host: str, also: Iterable[str] = ()) -> "AllowedHosts":
        """The names of a server that listens on ``host``, and others that lead to it."""
        names = {host.lower(), *(name.lower() for name in also)}
        address = _parse_ip_address(host)
        wildcard = address is not None and address.is_unspecified
        if is_loopback(host) or wildcard:
            names |= {"localhost", "127.0.0.1", "::1"}
        if wildcard:
            names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        return cls(frozenset(names), wildcard)

    def allows_host(self, host: str) -> bool:
        """Whether a Host header, with or without a port, names this server."""
        found = _HOST.fullmatch(host)
        name = (found[1] or found[2]).lower() if found else ""
        return name in self.names or (self.any_address and _parse_ip_address(name) is not None)


def _parse_ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def make_page_address(host: str, port: int, token: str | None = None) -> str:
    """The page's address for a browser; for a server on all addresses, one that others can open.

    >>> make_page_address("127.0.0.1", 8600, "open-sesame")
    'http://127.0.0.1:8600/?token=open-sesame'
    """
    name = find_network_address(host) if host in ("0.0.0.0", "::") else host
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")


def find_network_address(wildcard: str) -> str:
    """The address of this machine in its network; loopback without a network."""
    family, elsewhere, loopback = (
        (socket.AF_INET6, "2001:db8::1", "::1")
        if ":" in wildcard
        else (socket.AF_INET, "192.0.2.1", "127.0.0.1")
    )
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 9))  # chooses a route; nothing is sent
            return str(probe.getsockname()[0])
    except OSError:
        return loopback


LONG_TOKEN = 20  # A token of this many characters cannot be guessed: it is accepted without a delay
MOST_DELAYED = 3  # Tokens that wait at the same time; this limits the guesses per second


def read_server_key(home: Path) -> bytes:
    """The campaign's secret, made at the first call; cookies stay valid after a restart."""
    path = home / "web.key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        for _ in range(50):  # another server may be writing it
            if len(key := path.read_bytes()) == 32:
                return key
            time.sleep(0.02)
        raise BadInput(f"{path} does not hold 32 bytes; delete it to make a new one") from None
    except OSError:  # a folder without write access: valid until the server ends
        return secrets.token_bytes(32)
    with os.fdopen(descriptor, "wb") as file:
        key = secrets.token_bytes(32)
        file.write(key)
    return key


def make_cookie_name(home: Path) -> str:
    """A cookie name for this campaign, since one browser may label several on one machine."""
    return "labelwise_" + hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class AccessPolicy:
    """The settings of the guard."""

    key: bytes = field(repr=False)  # The server's secret, from which cookies and codes are made
    # Opens the server; None if only this machine can reach it
    token: str | None = field(default=None, repr=False)
    # The names under which the server answers
    hosts: AllowedHosts = field(default_factory=lambda: AllowedHosts.for_server("127.0.0.1"))
    body_bytes: int = 1 << 20  # The longest body
    upload_bytes: int = 64 << 20  # The longest file with new items
    body_seconds: float = 30.0  # How long a body may take to arrive
    wrong_tokens: int = 10  # How many wrong tokens a minute are answered without delay
    token_seconds: float = 1.0  # The delay of further tokens
    # The name of the cookie, different for every campaign: ports share cookies
    cookie: str = "labelwise"

    @cached_property
    def csrf_code(self) -> str:
        """The code that a request which changes something must carry."""
        return self._sign_text(f"csrf:{self.token or ''}")

    @cached_property
    def pass_code(self) -> str:
        """The value of the cookie of a visitor who gave the token."""
        return self._sign_text(f"pass:{self.token or ''}")

    @cached_property
    def owner_token(self) -> str:
        """Opens the server like the token, and lets the visitor change settings."""
        return self._sign_text(f"owner:{self.token or ''}")[:32]

    @cached_property
    def owner_code(self) -> str:
        """The value of the cookie of a visitor who gave the owner's token."""
        return self._sign_text(f"pass:{self.owner_token}")

    @cached_property
    def campaign_id(self) -> str:
        """Distinguishes campaigns of the same name; not a secret, and independent of the token."""
        return self._sign_text("campaign")[:16]

    def find_pass(self, headers: Headers) -> str | None:
        """The cookie of a visitor who gave a token before: `pass_code` or `owner_code`."""
        cookie = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        codes = (self.pass_code, self.owner_code)
        return next((code for code in codes if _are_secrets_equal(cookie, code)), None)

    def is_owner(self, headers: Headers, client: str, server: str) -> bool:
        """Whether a request may change settings.

        With a token, only the owner's link allows it: behind a proxy everyone has its address.
        Without one, every user of the server's own machine may, but no request of a proxy.
        """
        if self.token is None:
            return (is_loopback(client) or client == server) and "x-forwarded-for" not in headers
        given = _read_bearer_token(headers) or ""
        return self.find_pass(headers) == self.owner_code or _are_secrets_equal(
            given, self.owner_token
        )

    def _sign_text(self, text: str) -> str:
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()


class RequestGuard:
    """Wraps an ASGI application and refuses requests that the policy does not allow."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        self._app, self._policy = app, policy
        self._wrong_tokens: deque[float] = deque(maxlen=policy.wrong_tokens)  # their times
        self._token_delays = asyncio.Semaphore(MOST_DELAYED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on with its whole body."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":  # the server has no websockets
            return await send({"type": "websocket.close", "code": 1008})

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                response = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    response.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        host = headers.get("host", "")
        refusal: Response | None
        if self._policy.hosts.allows_host(host):
            needs_token = self._policy.token is not None
            refusal = await self._check_visitor(scope, headers) if needs_token else None
            refusal = refusal or self._check_origin(scope, headers)
        else:
            refusal = refuse(
                421,
                f"this server is not called {host[:100]!r}; use the address that it printed, "
                "or start it with --allow-host",
            )
        if refusal is None and scope["method"] not in SAFE_METHODS:
            upload = scope["path"] == UPLOAD
            limit = self._policy.upload_bytes if upload else self._policy.body_bytes
            refusal, receive = await self._read_body(headers, receive, limit)
        return await (refusal or self._app)(scope, receive, send_with_headers)

    async def _check_visitor(self, scope: Scope, headers: Headers) -> Response | None:
        asked = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token")
        known = self._policy.find_pass(headers)
        code = known or self._policy.pass_code
        if asked and _are_secrets_equal(asked, self._policy.owner_token):
            code = self._policy.owner_code
        if known is not None:
            return self._give_cookie(scope, code) if asked else None
        given = _read_bearer_token(headers) or asked
        if not given:
            return _refuse_visitor(
                scope, "this server needs its token; open the address with ?token= in it"
            )
        wrong = _refuse_visitor(
            scope, "the token is wrong; open the address that the server printed"
        )
        refusal = await self._check_token(given, wrong)
        return refusal or (self._give_cookie(scope, code) if given is asked else None)

    async def _check_token(self, given: str, wrong: Response) -> Response | None:
        """The response to a token: ``wrong``, or that there were too many; None if it is right."""
        tokens = (self._policy.token or "", self._policy.owner_token)
        right = any([_are_secrets_equal(given, token) for token in tokens])
        if right and len(given) >= LONG_TOKEN:
            return None
        times, now = self._wrong_tokens, time.monotonic()
        if len(times) == times.maxlen and now - times[0] < 60:
            if self._token_delays.locked():
                return refuse(429, "too many wrong tokens; try again", {"Retry-After": "1"})
            async with self._token_delays:
                await asyncio.sleep(self._policy.token_seconds)
        if right:
            return None
        times.append(now)
        return wrong

    def _give_cookie(self, scope: Scope, code: str) -> Response | None:
        """Set the cookie to a code; redirect the browser to the address without the token."""
        if scope["method"] not in SAFE_METHODS:
            return None
        rest = [
            pair
            for pair in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            if pair[0] != "token"
        ]
        # One slash only: "//other.example" would lead away from this server.
        path = "/" + quote(scope["path"].lstrip("/\\"))
        answer = RedirectResponse(f"{path}?{urlencode(rest)}" if rest else path, status_code=303)
        answer.set_cookie(
            self._policy.cookie,
            code,
            max_age=YEAR,
            httponly=True,
            samesite="lax",  # strict would reject visitors from a link in a mail or chat
            secure=scope.get("scheme") == "https",
        )
        return answer

    def _check_origin(self, scope: Scope, headers: Headers) -> Response | None:
        changes = scope["method"] not in SAFE_METHODS
        if not scope["path"].startswith("/api") and not changes:
            return None  # the page itself may be opened from any link
        site = headers.get("sec-fetch-site", "same-origin")
        if site not in ({"same-origin"} if changes else {"same-origin", "none"}):
            return refuse(
                403, f"the call comes from another site ({site[:20]!r}); open the page here"
            )
        origin, host = headers.get("origin"), headers["host"].lower()
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            return refuse(
                403, f"the call comes from {origin[:100]!r}; open the page on this server"
            )
        given = headers.get(CSRF_HEADER, "")
        if changes and not _are_secrets_equal(given, self._policy.csrf_code):
            return refuse(403, f"{CSRF_HEADER} is missing or old; get it from /api/session")
        return None

    async def _read_body(
        self, headers: Headers, receive: Receive, limit: int
    ) -> tuple[Response | None, Receive]:
        """Read the body here, so that the application never sees one that is too long."""
        too_long = f"the body is longer than {limit:,} bytes; send less at a time"
        announced = headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > limit:
            return refuse(413, too_long), receive
        body, more = b"", True
        try:
            async with asyncio.timeout(self._policy.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":  # the body is incomplete
                        return refuse(400, "the body broke off; send it again"), receive
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > limit:
                        return refuse(413, too_long), receive
        except TimeoutError:
            return refuse(408, "the body took too long to arrive; send it again"), receive
        waiting = deque([{"type": "http.request", "body": body, "more_body": False}])

        async def replay_body() -> Message:
            return waiting.popleft() if waiting else await receive()

        return None, replay_body


def _are_secrets_equal(given: str, secret: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(), secret.encode())


def _read_bearer_token(headers: Headers) -> str | None:
    """The token of the Authorization header, or None."""
    given = headers.get("authorization", "")
    return given[7:].strip() if given[:7].lower() == "bearer " else None


def refuse(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """An error in the form that all errors of the API have."""
    return JSONResponse({"error": message}, status_code=status, headers=headers)


def _refuse_visitor(scope: Scope, message: str) -> Response:
    ask = {"WWW-Authenticate": "Bearer"}
    if scope["path"].startswith("/api"):
        return refuse(401, message, ask)
    page = render_page("locked.html", message=message[:1].upper() + message[1:] + ".")
    style = page.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )
    return HTMLResponse(page, status_code=401, headers={**ask, "Content-Security-Policy": policy})
