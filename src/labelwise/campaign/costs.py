r"""What labelling has cost so far, and how far a budget in labels, money or hours still reaches.

The time per label is the **median** of the measured times, and no label counts for more than ten
medians: whoever went for lunch with the page open did not label for an hour. With :math:`t_i` the
measured times and :math:`\tilde t` their median, the time worked is

.. math:: \sum_i \min(t_i, 10 \, \tilde t) + (\text{labels without a time}) \cdot \tilde t ,

and the money is the price of every label plus the hourly rate of that time. Every person's label of
an item is a label.

Cost: one pass over the times.
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from labelwise.errors import BadInput

LONGEST = 10.0
"""No label counts for more than so many medians."""


@dataclass(frozen=True)
class Times:
    """How long labels took.

    Attributes:
        measured: how many labels have a time.
        typical: the median time in seconds, or None where none was measured.
        mean: the mean in seconds with long ones cut at ten medians, or None.
    """

    measured: int
    typical: float | None
    mean: float | None

    @property
    def worked(self) -> float:
        """The seconds of the measured labels together, with long ones cut."""
        return self.measured * self.mean if self.mean is not None else 0.0


@dataclass(frozen=True)
class Spent:
    """What a campaign has cost so far, and how far its budget still reaches.

    Attributes:
        labels: how many labels stand, counting each person's.
        money: what they cost; None where there is neither price nor hourly rate, or no time yet to
            pay by the hour.
        hours: how long they took; None where no time was measured.
        seconds_per_label: the median, or None.
        left: how many more labels the budget pays for; None without a budget, or where it cannot be
            told.
        share: the share of the budget that is spent, the largest where there are several; None
            without a budget, or where it cannot be told.
        says: all this in a sentence.
    """

    labels: int
    money: float | None
    hours: float | None
    seconds_per_label: float | None
    left: int | None
    share: float | None
    says: str


def times(seconds: Iterable[float | None]) -> Times:
    """How long labels took, told robustly.

    Args:
        seconds: the time of each label; None, NaN and infinity are left out.

    >>> found = times([2.0, 3.0, 4.0, None, 3600.0])
    >>> found.measured, found.typical, found.worked
    (4, 3.5, 44.0)
    """
    known = [value for value in seconds if value is not None and math.isfinite(value)]
    if any(value < 0 for value in known):
        raise BadInput(f"a label cannot take {min(known)} seconds; give 0 or more, or None")
    if not known:
        return Times(0, None, None)
    typical = statistics.median(known)
    # Where most times are 0, as after choosing many at once, nothing says what is too long.
    longest = LONGEST * typical if typical > 0 else math.inf
    mean = statistics.fmean(min(value, longest) for value in known)
    return Times(len(known), typical, mean)


def spent(ledger: Any, settings: Any) -> Spent:
    """What a campaign has cost so far.

    The ledger keeps the last times only; where there were more, the labels before are taken to have
    cost as much as these on average.

    Args:
        ledger: anything with ``told`` (labels that stand) and ``recent_seconds`` (their times).
        settings: anything with ``price``, ``hourly`` and the three budgets.

    >>> from types import SimpleNamespace
    >>> from labelwise.campaign.settings import Settings
    >>> ledger = SimpleNamespace(told=90, recent_seconds=[4.0] * 90)
    >>> spent(ledger, Settings(price=0.1, budget_money=10.0)).says
    '90 labels in 0.1 hours (4.0 s each), 9.00 of 10.00 in money; 90 % is spent, 10 labels are left'
    """
    found = times(ledger.recent_seconds)
    kept = getattr(ledger.recent_seconds, "maxlen", None)
    return reckon(ledger.told, found, settings, more=kept is not None and found.measured >= kept)


def reckon(labels: int, found: Times, settings: Any, *, more: bool = False) -> Spent:
    """What labels cost, by the settings of a campaign.

    Args:
        labels: how many.
        found: how long they took.
        settings: anything with ``price``, ``hourly`` and the three budgets.
        more: whether ``found`` is only a part of the times, so that its mean stands for all.

    >>> from labelwise.campaign.settings import Settings
    >>> cost = reckon(100, times([36.0] * 100), Settings(hourly=20.0, budget_hours=4.0))
    >>> cost.hours, cost.money, cost.left, cost.share
    (1.0, 20.0, 300, 0.25)
    """
    hours = _hours(labels, found, more)
    money, each = _money(labels, hours, found, settings)
    seconds = found.typical
    budgets = [
        (settings.budget_labels, float(labels), 1.0),
        (settings.budget_money, money, each),
        (settings.budget_hours, hours, None if seconds is None else seconds / 3600.0),
    ]
    known = [(limit, used, unit) for limit, used, unit in budgets if limit is not None]
    shares = [_share(limit, used) for limit, used, _ in known if used is not None]
    reach = [_left(limit, used, unit) for limit, used, unit in known if used is not None]
    told = [count for count in reach if count is not None]
    left, share = min(told, default=None), max(shares, default=None)
    says = _says(labels, money, hours, seconds, settings, left, share)
    return Spent(labels, money, hours, seconds, left, share, says)


def _hours(labels: int, found: Times, more: bool) -> float | None:
    if found.mean is None or found.typical is None:
        return 0.0 if labels == 0 else None
    if more:
        return labels * found.mean / 3600.0
    # A label that was changed took its time twice, so there may be more times than labels.
    return (found.worked + max(labels - found.measured, 0) * found.typical) / 3600.0


def _money(
    labels: int, hours: float | None, found: Times, settings: Any
) -> tuple[float | None, float | None]:
    """What the labels cost, and what the next one will."""
    price, hourly = settings.price, settings.hourly
    if price is None and hourly is None:
        return None, None
    total, each = (price or 0.0) * labels, price or 0.0
    if not hourly:
        return total, each
    if hours is None:
        return None, None
    per_label = None if found.typical is None else each + hourly * found.typical / 3600.0
    return total + hourly * hours, per_label


def _share(limit: float, used: float) -> float:
    return used / limit if limit > 0 else 1.0


def _left(limit: float, used: float, each: float | None) -> int | None:
    """How many more labels a budget pays for; None where a label costs nothing, or nobody knows."""
    if used >= limit:
        return 0
    if not each:
        return None
    # A hair more, so that a budget for exactly ten labels is not one for nine after rounding.
    return math.floor((limit - used) / each * (1 + 1e-9))


def _says(
    labels: int,
    money: float | None,
    hours: float | None,
    seconds: float | None,
    settings: Any,
    left: int | None,
    share: float | None,
) -> str:
    of_labels = "" if settings.budget_labels is None else f" of {settings.budget_labels:,}"
    parts = f"{labels:,}{of_labels} label{'' if labels == 1 and not of_labels else 's'}"
    if seconds is not None and hours is not None:
        limit = "" if settings.budget_hours is None else f" of {settings.budget_hours:g}"
        parts += f" in {hours:.1f}{limit} hours ({seconds:.1f} s each)"
    if money is not None:
        limit = "" if settings.budget_money is None else f" of {settings.budget_money:,.2f}"
        parts += f", {money:,.2f}{limit} in money"
    timed = settings.budget_hours is not None or settings.hourly is not None
    if timed and hours is None:
        parts += ", whose times were not measured"
    if share is None:
        return parts
    rest = "" if left is None else f", {left:,} label{' is' if left == 1 else 's are'} left"
    # A budget is never called wholly spent before it is.
    part = min(round(100 * share), 99) if share < 1 else round(100 * share)
    return f"{parts}; {part} % is spent{rest}"
