"""Campaigns: rounds of labelling and training on a record.

Names are imported on first use, so that labelling does not import the model.
"""

import importlib
from typing import Any

_HOMES = {
    "Campaign": "labelwise.campaign.campaign",
    "CampaignRecord": "labelwise.campaign.campaign_record",
    "Project": "labelwise.campaign.project",
    "Settings": "labelwise.campaign.settings",
    "open_storage": "labelwise.record",
}
"""The module of each public name."""

__all__ = ["Campaign", "CampaignRecord", "Project", "Settings", "open_storage"]


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"labelwise.campaign has no {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
