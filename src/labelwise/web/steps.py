"""Old names of `labelwise.campaign.runner`, for callers that are still to be moved."""

from dataclasses import replace

from labelwise.campaign.runner import count_left as left_to_ask
from labelwise.campaign.runner import is_training_lost as is_lost
from labelwise.campaign.runner import read_schedule
from labelwise.campaign.runner import sign_process as signature
from labelwise.campaign.settings import Settings
from labelwise.record.ledger import Ledger
from labelwise.rounds.schedule import Step, advance

__all__ = ["Step", "is_lost", "left_to_ask", "next_step", "signature"]


def next_step(
    ledger: Ledger,
    settings: Settings,
    *,
    left: int,
    busy: bool = False,
    failed_at: int | None = None,
) -> Step | None:
    """Ask, train, or wait (None)."""
    state = read_schedule(ledger, settings)
    return advance(replace(state, left=left, training=busy, failed_labels=failed_at))
