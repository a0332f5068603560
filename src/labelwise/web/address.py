"""Addresses of the page, for this machine and for others."""

import socket
from urllib.parse import quote


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
