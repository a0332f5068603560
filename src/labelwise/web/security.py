"""Who may speak to the labelling server: host, token, origin, body size, and response headers.

A :class:`Guard` stands before the application and answers for it when a request is refused. The
rules, in the order in which they are asked:

* **Host**: the name in the request must be one of the server's own. A page whose name was pointed
  at this machine after it was loaded (DNS rebinding) sends its own name, and gets nothing.
* **Token**, where there is one: once as ``?token=``, which is answered with a cookie and an address
  without the token; or as ``Authorization: Bearer``. Tokens are compared in constant time, and an
  address that sends too many wrong ones has to wait. The cookie holds no token, only a code made
  with the server's key, which nobody can guess; so it is not counted.
* **Origin**: the API answers no other site, and a call that changes something must also carry the
  code that only a page of this server could read (``X-Labelwise-Csrf``).
* **Body**: at most so many bytes and seconds, whatever the length that the headers promise.
"""

import asyncio
import hashlib
import hmac
from collections import deque
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from labelwise.web.access import Attempts, Hosts, check_token

__all__ = [
    "ALWAYS",
    "CSRF_HEADER",
    "SAFE_METHODS",
    "Guard",
    "Hosts",
    "Policy",
    "check_token",
    "refuse",
]

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_HEADER = "X-Labelwise-Csrf"
YEAR = 365 * 24 * 3600

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""What a page of this server may load: its own files, and no inline script."""

ALWAYS = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every response that does not set its own."""


@dataclass(frozen=True)
class Policy:
    """What the guard asks of a request.

    Args:
        key: The server's secret, from which cookies and codes are made.
        token: What opens the server; None for a server that only this machine can reach.
        hosts: The names under which the server answers.
        body_bytes: The longest body.
        body_seconds: How long a body may take to arrive.
        wrong_tokens: How many wrong tokens an address may send in a minute.
        cookie: The cookie's name, different for every campaign: ports share cookies.
    """

    key: bytes = field(repr=False)
    token: str | None = field(default=None, repr=False)
    hosts: Hosts = field(default_factory=lambda: Hosts.of("127.0.0.1"))
    body_bytes: int = 1 << 20
    body_seconds: float = 30.0
    wrong_tokens: int = 10
    cookie: str = "labelwise"

    def csrf(self) -> str:
        """The code that a call which changes something has to carry."""
        return self._code("csrf")

    def pass_code(self) -> str:
        """What the cookie of someone who gave the token holds."""
        return self._code("pass")

    def campaign_id(self) -> str:
        """Tells campaigns of one name apart; no secret, and the same whatever the token."""
        return hmac.new(self.key, b"campaign", hashlib.sha256).hexdigest()[:16]

    def _code(self, use: str) -> str:
        message = f"{use}:{self.token or ''}".encode()
        return hmac.new(self.key, message, hashlib.sha256).hexdigest()


class Guard:
    """Stands before an ASGI application and refuses what the policy does not allow."""

    def __init__(self, app: ASGIApp, policy: Policy) -> None:
        self._app, self._policy = app, policy
        self._attempts = Attempts(policy.wrong_tokens)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request, or pass it on with its body in hand."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":  # no part of the server speaks over websockets
            return await send({"type": "websocket.close", "code": 1008})
        send = _with_headers(send)
        headers = Headers(scope=scope)
        refusal = (
            self._refuse_host(headers)
            or self._refuse_stranger(scope, headers)
            or self._refuse_origin(scope, headers)
        )
        if refusal is None and scope["method"] not in SAFE_METHODS:
            refusal, receive = await self._take_body(headers, receive)
        return await (refusal or self._app)(scope, receive, send)

    def _refuse_host(self, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if self._policy.hosts.allow(host):
            return None
        return refuse(
            421,
            f"this server is not called {host[:100]!r}; use the address that it printed, "
            "or start it with --allow-host",
        )

    def _refuse_stranger(self, scope: Scope, headers: Headers) -> Response | None:
        token = self._policy.token
        if token is None:
            return None
        asked = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token")
        if self._has_pass(headers):
            return self._let_in(scope) if asked else None
        bearer = headers.get("authorization", "")
        given = bearer[7:].strip() if bearer[:7].lower() == "bearer " else asked
        if not given:
            return _unknown(
                scope, "this server needs its token; open the address with ?token= in it"
            )
        wrong = _unknown(scope, "the token is wrong; open the address that the server printed")
        refusal = self._refuse_token(scope, given, wrong)
        return refusal or (self._let_in(scope) if given is asked else None)

    def _refuse_token(self, scope: Scope, given: str, wrong: Response) -> Response | None:
        """What a token is answered with: ``wrong``, or that there were too many; None if right."""
        address = scope["client"][0] if scope.get("client") else ""
        wait = self._attempts.wait(address)
        if wait > 0:
            after = {"Retry-After": str(int(wait) + 1)}
            return refuse(429, f"too many wrong tokens; try again in {int(wait) + 1} s", after)
        if hmac.compare_digest(given.encode(), (self._policy.token or "").encode()):
            return None
        self._attempts.wrong(address)
        return wrong

    def _has_pass(self, headers: Headers) -> bool:
        given = cookie_parser(headers.get("cookie", "")).get(self._policy.cookie, "")
        return hmac.compare_digest(given.encode(), self._policy.pass_code().encode())

    def _let_in(self, scope: Scope) -> Response | None:
        """Give the cookie, and send the browser to the same address without the token."""
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
            self._policy.pass_code(),
            max_age=YEAR,
            httponly=True,
            samesite="lax",  # strict would turn away who follows a link from a mail or a chat
            secure=scope.get("scheme") == "https",
        )
        return answer

    def _refuse_origin(self, scope: Scope, headers: Headers) -> Response | None:
        if not scope["path"].startswith("/api") and scope["method"] in SAFE_METHODS:
            return None  # the page itself may be opened from a link anywhere
        changes = scope["method"] not in SAFE_METHODS
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
        if changes and not hmac.compare_digest(
            headers.get(CSRF_HEADER, "").encode(), self._policy.csrf().encode()
        ):
            return refuse(403, f"{CSRF_HEADER} is missing or old; get it from /api/session")
        return None

    async def _take_body(
        self, headers: Headers, receive: Receive
    ) -> tuple[Response | None, Receive]:
        """Read the body here, so that nothing behind the guard ever sees one that is too long."""
        limit = self._policy.body_bytes
        too_long = refuse(413, f"the body is longer than {limit:,} bytes; send less at a time")
        promised = headers.get("content-length", "0")
        if promised.isdecimal() and int(promised) > limit:
            return too_long, receive
        parts: list[bytes] = []
        length = 0
        try:
            async with asyncio.timeout(self._policy.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":  # half a body must not pass for all
                        return refuse(400, "the body broke off; send it again"), receive
                    parts.append(message.get("body", b""))
                    length += len(parts[-1])
                    if length > limit:
                        return too_long, receive
                    if not message.get("more_body", False):
                        return None, _replay(b"".join(parts), receive)
        except TimeoutError:
            return refuse(408, "the body took too long to arrive; send it again"), receive


def refuse(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """An error in the form that all errors of the API have."""
    return JSONResponse({"error": message}, status_code=status, headers=headers)


def _unknown(scope: Scope, message: str) -> Response:
    ask = {"WWW-Authenticate": "Bearer"}
    if scope["path"].startswith("/api"):
        return refuse(401, message, ask)
    return PlainTextResponse(message + "\n", status_code=401, headers=ask)


def _replay(body: bytes, receive: Receive) -> Receive:
    waiting = deque([{"type": "http.request", "body": body, "more_body": False}])

    async def again() -> Message:
        return waiting.popleft() if waiting else await receive()

    return again


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in ALWAYS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
