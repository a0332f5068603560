"""Labelling with people: campaigns, the record of what they did, and where it is kept.

Everything is imported when it is asked for: a page that serves labels needs no model.
"""

import importlib
from typing import Any

_HOMES = {
    "Campaign": "labelwise.campaign.campaign",
    "Desk": "labelwise.campaign.desk",
    "Project": "labelwise.campaign.project",
    "Settings": "labelwise.campaign.settings",
    "open_storage": "labelwise.record.storage",
}
"""The modules of this package by what they give."""

__all__ = ["Campaign", "Desk", "Project", "Settings", "open_storage"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"labelwise.campaign has no {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
