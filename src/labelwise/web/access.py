"""Names, tokens and keys: under which name a server answers, and who has to wait at its door."""

import hashlib
import ipaddress
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from labelwise.errors import BadInput

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{8,200}")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on ``host``.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def check_token(host: str, token: str | None) -> None:
    """Refuse an address that others can reach without a token, and a token that is easily guessed.

    >>> check_token("127.0.0.1", None)
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
class Hosts:
    """The names under which the server answers.

    Args:
        names: Lower case, without port.
        any_address: Whether any IP address will do, as for a server that listens on all of them;
            an address, unlike a name, cannot be pointed elsewhere.

    >>> Hosts.of("127.0.0.1").allow("localhost:8600"), Hosts.of("127.0.0.1").allow("evil.example")
    (True, False)
    """

    names: frozenset[str]
    any_address: bool = False

    @classmethod
    def of(cls, host: str, also: Iterable[str] = ()) -> "Hosts":
        """The names of a server that listens on ``host``, and others that lead to it."""
        names = {host.lower(), *(name.lower() for name in also)}
        address = _address(host)
        wildcard = address is not None and address.is_unspecified
        if is_loopback(host) or wildcard:
            names |= {"localhost", "127.0.0.1", "::1"}
        if wildcard:
            import socket

            names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        return cls(frozenset(names), wildcard)

    def allow(self, host: str) -> bool:
        """Whether a Host header, with or without a port, names this server."""
        name = _host_name(host)
        return name in self.names or (self.any_address and _address(name) is not None)


class Attempts:
    """The wrong tokens of the last minute, and who has to wait.

    Args:
        each: How many an address may send.
        together: How many all addresses may send together; this also bounds the memory.
        seconds: For how long a wrong token counts.
        clock: Seconds that never go back.

    >>> attempts = Attempts(1, clock=lambda: 0.0)
    >>> attempts.wrong("10.0.0.9")
    >>> attempts.wait("10.0.0.9"), attempts.wait("10.0.0.8")
    (60.0, 0.0)
    """

    def __init__(
        self,
        each: int,
        *,
        together: int = 200,
        seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._each, self._stack_parts = each, max(together, each)
        self._seconds, self._clock = seconds, clock
        self._wrong: deque[tuple[float, str]] = deque(maxlen=self._stack_parts)

    def wrong(self, address: str) -> None:
        """Remember a wrong token."""
        self._wrong.append((self._clock(), _neighbourhood(address)))

    def wait(self, address: str) -> float:
        """The seconds until this address may try again; 0 if it may now."""
        now = self._clock()
        while self._wrong and self._wrong[0][0] + self._seconds <= now:
            self._wrong.popleft()
        own = [at for at, by in self._wrong if by == _neighbourhood(address)]
        if len(own) >= self._each:
            return own[-self._each] + self._seconds - now
        if len(self._wrong) >= self._stack_parts:
            return self._wrong[0][0] + self._seconds - now
        return 0.0


def server_key(home: Path) -> bytes:
    """The campaign's secret, made at the first call: cookies stay good when the server restarts."""
    path = home / "web.key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        for _ in range(50):  # another server may be about to write it
            if len(key := path.read_bytes()) == 32:
                return key
            time.sleep(0.02)
        raise BadInput(f"{path} does not hold 32 bytes; delete it to make a new one") from None
    except OSError:  # a folder that cannot be written to: good until the server ends
        return secrets.token_bytes(32)
    with os.fdopen(descriptor, "wb") as file:
        key = secrets.token_bytes(32)
        file.write(key)
    return key


def cookie_name(home: Path) -> str:
    """A cookie for this campaign alone, as one browser may label several on one machine."""
    return "labelwise_" + hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _host_name(host: str) -> str:
    """The name in a Host header: ``[::1]:8600`` is ``::1``; empty if it is none."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#\[\]@]+))(?::\d{1,5})?", host)
    return (found[1] or found[2]).lower() if found else ""


def _neighbourhood(address: str) -> str:
    """An IPv6 address counts with its /64, which one machine has to itself."""
    parsed = _address(address)
    if not isinstance(parsed, ipaddress.IPv6Address):
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))
