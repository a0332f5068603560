r"""Costs of labelling so far, and the remaining budget in labels, money or hours.

The time per label is the **median** of the measured times, and each time counts for at most ten
medians, so that a page left open during a break hardly counts. With
:math:`t_i` the measured times and :math:`\tilde t` their median, the time worked is

.. math:: \sum_i \min(t_i, 10 \, \tilde t) + (\text{labels without a time}) \cdot \tilde t ,

and the money is the price of every label plus the hourly rate of that time. Labels of several
annotators for one item count separately.

Cost: one pass over the times.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from labelwise.campaign.settings import Settings
from labelwise.record.ledger import Ledger
from labelwise.record.votes import RECENT

MAX_MEDIANS = 10.0  # Longest time of a label that counts, in medians


@dataclass(frozen=True)
class LabelTimes:
    """Labelling times."""

    measured: int  # number of labels with a time
    typical: float | None  # median time in seconds, or None
    mean: float | None  # mean time in seconds, with times cut at ten medians, or None

    @property
    def worked_seconds(self) -> float:
        """Total seconds, with long times cut."""
        return self.measured * self.mean if self.mean is not None else 0.0


@dataclass(frozen=True)
class CampaignCost:
    """The cost of a campaign so far, and its remaining budget."""

    labels: int  # number of current labels, of all annotators
    # their cost; None without a price, or with an hourly rate and no measured time
    money: float | None
    hours: float | None  # their labelling time; None if no time was measured
    seconds_per_label: float | None  # the median, or None
    left: int | None  # number of labels left in the budget; None if unknown
    share: float | None  # spent share of the budget, the largest of several; None if unknown
    says: str  # the cost in words


def summarize_label_times(seconds: Sequence[float]) -> LabelTimes:
    """Summarize labelling times robustly.

    >>> found = summarize_label_times([2.0, 3.0, 4.0, 3600.0])
    >>> found.measured, found.typical, found.worked_seconds
    (4, 3.5, 44.0)
    """
    if not seconds:
        return LabelTimes(0, None, None)
    typical = statistics.median(seconds)
    # Do not cut if most times are 0, as after labelling many items at once.
    longest = MAX_MEDIANS * typical if typical > 0 else math.inf
    mean = statistics.fmean(min(value, longest) for value in seconds)
    return LabelTimes(len(seconds), typical, mean)


def campaign_cost(ledger: Ledger, settings: Settings) -> CampaignCost:
    """Compute the cost of a campaign so far.

    The ledger keeps only the last times; earlier labels count with the mean of these.

    >>> ledger = Ledger()
    >>> ledger.vote_count = 90
    >>> ledger.recent_seconds.extend([4.0] * 90)
    >>> campaign_cost(ledger, Settings(price=0.1, budget_money=10.0)).says
    '90 labels in 0.1 hours (4.0 s each), 9.00 of 10.00 in money; 90 % is spent, 10 labels are left'
    """
    found = summarize_label_times(ledger.recent_seconds)
    return compute_label_cost(ledger.vote_count, found, settings, more=found.measured >= RECENT)


def compute_label_cost(
    labels: int, found: LabelTimes, settings: Settings, *, more: bool = False
) -> CampaignCost:
    """Compute the cost of labels.

    With ``more``, the times cover only some of the labels, and their mean counts for all.

    >>> found = summarize_label_times([36.0] * 100)
    >>> cost = compute_label_cost(100, found, Settings(hourly=20.0, budget_hours=4.0))
    >>> cost.hours, cost.money, cost.left, cost.share
    (1.0, 20.0, 300, 0.25)
    """
    hours = _compute_label_hours(labels, found, more)
    money, each = _compute_label_money(labels, hours, found, settings)
    seconds = found.typical
    budgets = [
        (settings.budget_labels, float(labels), 1.0),
        (settings.budget_money, money, each),
        (settings.budget_hours, hours, None if seconds is None else seconds / 3600.0),
    ]
    known = [(limit, used, unit) for limit, used, unit in budgets if limit is not None]
    shares = [used / limit if limit > 0 else 1.0 for limit, used, _ in known if used is not None]
    reach = [
        _count_labels_left(limit, used, unit) for limit, used, unit in known if used is not None
    ]
    known_counts = [count for count in reach if count is not None]
    left, share = min(known_counts, default=None), max(shares, default=None)
    says = _describe_cost(labels, money, hours, seconds, settings, left, share)
    return CampaignCost(labels, money, hours, seconds, left, share, says)


def _compute_label_hours(labels: int, found: LabelTimes, more: bool) -> float | None:
    if found.mean is None or found.typical is None:
        return 0.0 if labels == 0 else None
    if more:
        return labels * found.mean / 3600.0
    # Changed labels have several times, so there may be more times than labels.
    return (found.worked_seconds + max(labels - found.measured, 0) * found.typical) / 3600.0


def _compute_label_money(
    labels: int, hours: float | None, found: LabelTimes, settings: Settings
) -> tuple[float | None, float | None]:
    """The cost of the labels, and of the next one."""
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


def _count_labels_left(limit: float, used: float, each: float | None) -> int | None:
    """Number of labels left in a budget; None if a label costs nothing or the cost is unknown."""
    if used >= limit:
        return 0
    if not each:
        return None
    # The margin keeps a budget for exactly ten labels from becoming nine by rounding.
    return math.floor((limit - used) / each * (1 + 1e-9))


def _describe_cost(
    labels: int,
    money: float | None,
    hours: float | None,
    seconds: float | None,
    settings: Settings,
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
        parts += ", without measured times"
    if share is None:
        return parts
    rest = "" if left is None else f", {left:,} label{' is' if left == 1 else 's are'} left"
    # 100 % is shown only when the budget is spent.
    part = min(round(100 * share), 99) if share < 1 else round(100 * share)
    return f"{parts}; {part} % is spent{rest}"
