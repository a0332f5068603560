"""Which Ray cluster a user means, and whether anything listens there.

A cluster is joined by a process of one of its nodes (``HOST:PORT``, that of its head) or from
outside (``ray://HOST:PORT``, that of the server for Ray's client). Nothing here imports ray.
"""

import os
import socket
from importlib.util import find_spec
from typing import NamedTuple

from labelwise.errors import BadInput, MissingDependency
from labelwise.pool.ray.parts import ClusterFailed

CLIENT = "ray://"
LISTEN_SECONDS = 5.0
"""How long a machine may take to accept a connection."""


def wanted(on: str) -> str:
    """The address that a user means; empty where Ray is to be started here.

    Example:
        >>> wanted("ray:node:6379"), wanted("ray://node:10001")
        ('node:6379', 'ray://node:10001')
    """
    if on != "ray" and not on.startswith("ray:"):
        raise BadInput(f"on must be ray, ray:HOST:PORT or ray://HOST:PORT; got {on!r}")
    address = on if on.startswith(CLIENT) else on[4:]
    if address not in ("", "auto") and Place.of(address) is None:
        raise BadInput(f"the address of a Ray cluster is HOST:PORT; got {address!r}")
    return address or os.environ.get("RAY_ADDRESS", "")


class Place(NamedTuple):
    """A host and a port where a cluster is joined, and whether from outside."""

    host: str
    port: int
    outside: bool

    @classmethod
    def of(cls, address: str) -> "Place | None":
        """The place that an address names; None where it names none, as ``auto`` does."""
        host, _, port = address.removeprefix(CLIENT).rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            return None
        return cls(host.strip("[]"), int(port), address.startswith(CLIENT))

    def listens(self) -> bool:
        """Whether anything accepts connections there."""
        try:
            socket.create_connection((self.host, self.port), timeout=LISTEN_SECONDS).close()
        except OSError:
            return False
        return True

    def is_same(self, other: "Place") -> bool:
        """Whether this place is another one, which may be given by another name of its host."""
        hosts = _resolved(other.host), "127.0.0.1"
        return self[1:] == other[1:] and _resolved(self.host) in hosts


def _resolved(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def check_joined(address: str, joined: str) -> None:
    """Refuse another cluster than the one that this process has joined."""
    there, here = Place.of(address), Place.of(joined)
    if there is not None and here is not None and not there.is_same(here):
        raise BadInput(
            f"this process has joined the Ray cluster at {joined}; call ray.shutdown() before it "
            f"joins the one at {address}"
        )


def check_listens(address: str) -> None:
    """Refuse an address where nothing listens, or which cannot be joined from this machine."""
    if address.startswith(CLIENT) and find_spec("grpc") is None:
        raise MissingDependency(
            f"joining {address} needs grpcio, for Ray's client; run pip install 'labelwise[ray]'"
        )
    place = Place.of(address)
    if place is not None and not place.listens():
        raise ClusterFailed(f"no Ray cluster answers at {address}; check the address and the port")
