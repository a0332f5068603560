"""Tell a project of Label Studio of the ML backend, with the token that it needs to call it."""

import base64
from typing import Any

from labelwise.label_studio.client import Client

USER = "labelwise"
"""The user's name in Basic authentication; the backend takes any."""


def basic_header(token: str) -> str:
    """The Authorization header with which Label Studio's webhooks come."""
    return "Basic " + base64.b64encode(f"{USER}:{token}".encode()).decode()


def connect(client: Client, project: int, address: str, token: str | None) -> str:
    """Tell Label Studio of the backend at an address, which must answer already.

    The webhook that Label Studio makes for a backend comes without its password; this one has it.

    Returns:
        What was done, in words.
    """
    address = address.rstrip("/")
    known = [one for one in client.get("/api/ml", project=project) if one.get("url") == address]
    body: dict[str, Any] = {"url": address, "project": project, "title": "labelwise"}
    if token is not None:
        body |= {"auth_method": "BASIC_AUTH", "basic_auth_user": USER, "basic_auth_pass": token}
    if known:
        client.patch(f"/api/ml/{known[0]['id']}", body)
    else:
        client.post("/api/ml", body)
    hook = {"url": f"{address}/webhook", "send_payload": True, "send_for_all_actions": True}
    hook["headers"] = {} if token is None else {"Authorization": basic_header(token)}
    hooks = client.get("/api/webhooks/", project=project)
    mine = [one for one in hooks if one.get("url") == hook["url"]]
    if mine:
        client.patch(f"/api/webhooks/{mine[0]['id']}/", hook)
    else:
        client.post("/api/webhooks/", {**hook, "project": project})
    return "connected again" if known else "connected"
