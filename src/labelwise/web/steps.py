"""What the background process should do next, from where the campaign stands.

A batch that is down to its tail is trained on while people label the tail; then the next batch is
chosen with the new model, so that nobody has to wait. When nothing more can be asked, the labels
of the last tail are trained on once more. A training that failed is tried again when someone asks
for it, or by itself once the whole batch is labelled, but never twice on the same labels.
"""

import os
import socket
import time
from pathlib import Path
from typing import Literal

from labelwise.campaign.costs import spent
from labelwise.campaign.settings import Settings
from labelwise.record.events import Training
from labelwise.record.ledger import Ledger

Step = Literal["ask", "train"]
LONGEST = 24 * 3600.0
"""Seconds after which a training of which nothing is known counts as lost."""


def next_step(
    ledger: Ledger,
    settings: Settings,
    *,
    left: int,
    busy: bool = False,
    failed_at: int | None = None,
) -> Step | None:
    """Ask, train, or wait (None).

    Args:
        ledger: Where the campaign stands.
        settings: Of the campaign.
        left: How many items may still be asked for, by the pool and the budget.
        busy: Whether someone trains already.
        failed_at: How many labels there were when a training last failed here.
    """
    if busy:
        return None
    if not ledger.batches:
        return "ask" if left else None
    last = ledger.batches[-1]
    if last.open > settings.tail * last.size:
        return None
    labels, before = len(ledger.labels), ledger.trainings[-1] if ledger.trainings else None
    stale = before is None or before.number == last.asked.model
    changed = labels > 0 and (before is None or labels != before.labels)
    # A model that someone trained early in the batch has missed more than a tail of labels.
    behind = before is not None and labels - before.labels > settings.tail * last.size
    finishing = not left and not ledger.open_batches
    if changed and (stale or behind or finishing):
        blocked = ledger.failure is not None and (
            failed_at == labels or (failed_at is not None and bool(ledger.open_batches))
        )
        return None if blocked else "train"
    return "ask" if left and (before is not None or not ledger.open_batches) else None


def left_to_ask(ledger: Ledger, settings: Settings) -> int:
    """How many items may still be asked for: of the pool, and of the budget in labels.

    A budget in money or hours that is spent leaves none.
    """
    share = spent(ledger, settings).share
    if share is not None and share >= 1:
        return 0
    left = ledger.items - len(ledger.asked_ids)
    if settings.budget_labels is not None:
        wanted = sum(batch.open for batch in ledger.open_batches) * settings.overlap
        left = min(left, (settings.budget_labels - ledger.told - wanted) // settings.overlap)
    return max(left, 0)


def signature(process: int) -> str:
    """How a process signs its trainings, so that others can tell whether it still lives."""
    return f"background process {process} on {socket.gethostname()}"


def is_lost(training: Training, now: float) -> bool:
    """Whether a training in the record will never end, because its process is gone.

    Of a process on this machine one can tell; a training by anyone else is given a day.
    """
    number = training.by.removeprefix("background process ").split(" ")[0]
    if number.isdecimal() and training.by == signature(int(number)):
        return not _lives(int(number), now - training.at)
    return now - training.at > LONGEST


def _lives(process: int, seconds: float) -> bool:
    """Whether a process is at work that was so already a given time ago.

    Its number may meanwhile be another's; in a container that was started again, as a rule, that
    of the very process that asks.
    """
    age = _age(process)
    if age is not None and age + 1.0 < seconds:
        return False
    if process == os.getpid():
        return True
    command = Path(f"/proc/{process}/cmdline")
    if Path("/proc/self/cmdline").exists():
        try:
            return b"labelwise" in command.read_bytes()
        except OSError:
            return False
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _age(process: int) -> float | None:
    """For how many seconds a process has been there; None where one cannot tell."""
    try:
        # The name, in brackets, may hold anything; the 22nd field is the time of the start.
        fields = (
            Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
        )
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError, AttributeError):
        return None
