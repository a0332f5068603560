r"""Agreement of annotators beyond chance.

With :math:`p_o` the share of equal pairs of labels and :math:`p_e` the share expected if everyone
drew labels at random from their own distribution:

.. math:: \kappa = \frac{p_o - p_e}{1 - p_e} .

Cohen's kappa, for two annotators, has :math:`p_e = \sum_k r_k c_k` from their shares of label
:math:`k`. Fleiss' kappa, for any number of annotators, has :math:`p_o` the mean over items of
:math:`\sum_k n_{ik}(n_{ik}-1) / n_i(n_i-1)` and :math:`p_e = \sum_k \bar p_k^2`. Numbers are
compared by Krippendorff's alpha with squared differences, :math:`1 - D_o / D_e`. Intervals are
95 %, by the jackknife over items, which is why both kappas are computed here from counts.

Cost: one pass over the votes.

Reference: J. Cohen, "A Coefficient of Agreement for Nominal Scales", Educational and Psychological
Measurement 20, 1960; J. Fleiss, "Measuring Nominal Scale Agreement among Many Raters",
Psychological Bulletin 76, 1971; K. Krippendorff, "Content Analysis", 2004, chapter 11.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from labelwise.arrays import Floats
from labelwise.errors import BadInput
from labelwise.record.events import Label
from labelwise.record.ledger import Ledger
from labelwise.record.resolution import estimate_reliability

_Z_95 = 1.959964


def cohen_kappa(first: Sequence[Label], second: Sequence[Label]) -> float | None:
    """Cohen's kappa of two annotators or models, ``(n,)`` labels each.

    Returns:
        At most 1; 0 for chance; None if both gave the same single label to all items.

    >>> cohen_kappa(["cat", "cat", "dog", "dog"], ["cat", "cat", "dog", "cat"])
    0.5
    """
    if len(first) != len(second):
        raise BadInput(
            f"{len(first)} labels cannot be compared with {len(second)}; give both for each item"
        )
    if not len(first):
        raise BadInput("there are no labels to compare; give at least one item")
    pairs = Counter(zip(_check_compared_labels(first), _check_compared_labels(second), strict=True))
    return _estimate_cohen_kappa(pairs)[0]


def interval_alpha(values: Iterable[Sequence[float]]) -> float | None:
    """Krippendorff's alpha of numbers: 1 for equal numbers, 0 for chance.

    Args:
        values: the numbers of each item; items with fewer than two are ignored.

    Returns:
        None if no item has two numbers, or all numbers are equal.

    >>> interval_alpha([[1.0, 1.0], [5.0, 5.0], [9.0, 9.0]])
    1.0
    """
    groups = [np.asarray(group, dtype=np.float64) for group in values if len(group) > 1]
    if not groups:
        return None
    every = np.concatenate(groups)
    if not np.isfinite(every).all():
        raise BadInput("a number among the labels is not finite; withdraw it first")
    # The mean squared difference of ordered pairs is twice the variance over n - 1.
    expected = 2.0 * float(every.var(ddof=1))
    if not expected > 0:
        return None
    observed = sum(2.0 * len(group) * float(group.var(ddof=1)) for group in groups) / len(every)
    return float(1.0 - observed / expected)


class AnnotatorPair(NamedTuple):
    """Two annotators: common items, items with equal labels, and Cohen's kappa."""

    first: str
    second: str
    items: int
    agreed: int
    kappa: float | None


@dataclass(frozen=True)
class AnnotatorAgreement:
    """The agreement of all annotators."""

    items: int  # number of items with labels of two annotators or more
    annotators: int  # number of their annotators
    disputed: int  # number of these items with different labels
    measure: str  # ``cohen``, ``fleiss`` or ``alpha``
    kappa: float | None  # agreement beyond chance, or None if undefined
    low: float | None  # the lower end of its 95 % interval, or None
    high: float | None  # the upper end, or None
    pairs: tuple[AnnotatorPair, ...]  # pairs of annotators with common items; empty for numbers
    # annotator to the estimated share of correct labels; empty for numbers
    reliability: dict[str, float]
    says: str  # the agreement in words


def agreement(ledger: Ledger) -> AnnotatorAgreement:
    """The agreement of the annotators of a campaign; reads all votes.

    >>> ledger = Ledger()
    >>> ledger.votes = {1: {"ann": "a", "bob": "a"}, 2: {"ann": "b", "bob": "b"}, 3: {"ann": "a"}}
    >>> agreement(ledger).says
    'ann and bob agree on 2 of 2 items (kappa 1.00): they agree well'
    """
    shared = Counter(tuple(given.items()) for given in ledger.votes.values() if len(given) > 1)
    items = shared.total()
    people = sorted({by for given in shared for by, _ in given})
    disputed = sum(
        times for given, times in shared.items() if len({label for _, label in given}) > 1
    )
    if ledger.settings.get("regression", False):
        alpha = interval_alpha([[float(x) for _, x in given] for given in shared.elements()])
        found = _KappaEstimate("alpha", alpha, None, None)
        pairs: tuple[AnnotatorPair, ...] = ()
        reliability: dict[str, float] = {}
    else:
        tables = _count_label_pairs(shared)
        pairs = tuple(
            AnnotatorPair(
                *by, table.total(), sum(n for (a, b), n in table.items() if a == b), kappa
            )
            for by, table in sorted(tables.items())
            for kappa in [_estimate_cohen_kappa(table)[0]]
        )
        found = _estimate_agreement(shared, tables)
        reliability = estimate_reliability(shared)
    says = _describe_agreement(items, people, disputed, found)
    return AnnotatorAgreement(
        items, len(people), disputed, *found, pairs=pairs, reliability=reliability, says=says
    )


class _KappaEstimate(NamedTuple):
    measure: str
    kappa: float | None
    low: float | None
    high: float | None


Shared = Counter[tuple[tuple[str, Label], ...]]
"""The votes on an item, and the number of items with these votes: few patterns, many items."""


def _count_label_pairs(shared: Shared) -> dict[tuple[str, str], Counter[tuple[Label, Label]]]:
    """For every two annotators, the number of items with each pair of labels."""
    tables: dict[tuple[str, str], Counter[tuple[Label, Label]]] = {}
    for given, times in shared.items():
        for (first, label), (second, other) in combinations(sorted(given, key=itemgetter(0)), 2):
            tables.setdefault((first, second), Counter())[label, other] += times
    return tables


def _estimate_agreement(
    shared: Shared, tables: dict[tuple[str, str], Counter[tuple[Label, Label]]]
) -> _KappaEstimate:
    """Cohen's kappa for two annotators, Fleiss' for more."""
    if not shared:
        return _KappaEstimate("cohen", None, None, None)
    if len(tables) == 1:
        (table,) = tables.values()
        return _add_kappa_interval("cohen", *_estimate_cohen_kappa(table))
    codes: dict[Label, int] = {}
    patterns: Counter[tuple[int, ...]] = Counter()
    for given, count in shared.items():
        row = sorted(codes.setdefault(label, len(codes)) for _, label in given)
        patterns[tuple(row)] += count
    counts = np.stack([np.bincount(row, minlength=len(codes)) for row in patterns])
    times = np.array(list(patterns.values()), dtype=np.float64)
    return _add_kappa_interval("fleiss", *_estimate_fleiss_kappa(counts.astype(np.float64), times))


def _add_kappa_interval(measure: str, kappa: float | None, error: float | None) -> _KappaEstimate:
    if kappa is None or error is None:
        return _KappaEstimate(measure, kappa, None, None)
    low, high = max(-1.0, kappa - _Z_95 * error), min(1.0, kappa + _Z_95 * error)
    return _KappaEstimate(measure, kappa, low, high)


def _estimate_cohen_kappa(table: Counter[tuple[Label, Label]]) -> tuple[float | None, float | None]:
    """Cohen's kappa and its standard error, from the counts of label pairs."""
    codes: dict[Label, int] = {}
    for pair in table:
        for label in pair:
            codes.setdefault(label, len(codes))
    a = np.array([codes[pair[0]] for pair in table])
    b = np.array([codes[pair[1]] for pair in table])
    times = np.array(list(table.values()), dtype=np.float64)
    n, same = times.sum(), (a == b).astype(np.float64)
    rows = np.bincount(a, weights=times, minlength=len(codes))
    columns = np.bincount(b, weights=times, minlength=len(codes))
    # Integers until the division, so that a chance agreement of 1 is exact.
    agreed, chance = times @ same, rows @ columns
    without_chance = chance - columns[a] - rows[b] + same
    kappa = _compute_kappa(np.array(agreed / n), np.array(chance / n**2))
    if n < 2:
        return _convert_kappa(kappa), None
    others = _compute_kappa((agreed - same) / (n - 1), without_chance / (n - 1) ** 2)
    return _convert_kappa(kappa), _jackknife_kappa_error(others, times)


def _estimate_fleiss_kappa(counts: Floats, times: Floats) -> tuple[float | None, float | None]:
    """Fleiss' kappa and its standard error for rows ``(u, K)`` that occur ``(u,)`` times."""
    sizes = counts.sum(axis=1)
    # The share of equal pairs of votes on every item.
    alike = (counts * (counts - 1)).sum(axis=1) / (sizes * (sizes - 1))
    n, votes, totals = times.sum(), times @ sizes, times @ counts
    squares = totals @ totals
    kappa = _compute_kappa(np.array(times @ alike / n), np.array(squares / votes**2))
    if n < 2:
        return _convert_kappa(kappa), None
    # The sum of squared totals after leaving out one item at a time.
    without = squares - 2 * counts @ totals + (counts * counts).sum(axis=1)
    others = _compute_kappa((times @ alike - alike) / (n - 1), without / (votes - sizes) ** 2)
    return _convert_kappa(kappa), _jackknife_kappa_error(others, times)


def _compute_kappa(observed: Floats, chance: Floats) -> Floats:
    """Kappa; NaN where the chance agreement is 1."""
    chance = np.where(chance >= 1.0, np.nan, chance)
    return np.asarray((observed - chance) / (1.0 - chance))


def _jackknife_kappa_error(others: Floats, times: Floats) -> float | None:
    """The standard error from leave-one-out values, each of which occurs ``times``."""
    n = times.sum()
    variance = (n - 1) / n * float(times @ (others - times @ others / n) ** 2)
    return math.sqrt(variance) if math.isfinite(variance) else None


def _convert_kappa(value: Floats) -> float | None:
    return float(value) if np.isfinite(value) else None


def _check_compared_labels(labels: Sequence[Label]) -> list[Label]:
    """Convert labels to Python values; reject NaN, which equals nothing."""
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    for place, value in enumerate(values):
        if isinstance(value, float) and math.isnan(value):
            raise BadInput(f"label {place} is NaN; leave that item out of both")
    return values


def _describe_agreement(
    items: int, people: Sequence[str], disputed: int, found: _KappaEstimate
) -> str:
    if not items:
        return "no item has labels of two annotators yet, so agreement is unknown"
    who = " and ".join(people) if len(people) == 2 else f"{len(people)} annotators"
    start = f"{who} agree on {items - disputed} of {items} items"
    if found.kappa is None:
        return f"{start}, but only one label was used, so chance would agree as well"
    name = "alpha" if found.measure == "alpha" else "kappa"
    between = "" if found.low is None else f", {found.low:.2f} to {found.high:.2f}"
    between = "" if found.low == found.high else between
    return f"{start} ({name} {found.kappa:.2f}{between}): {_interpret_kappa(found.kappa)}"


def _interpret_kappa(kappa: float) -> str:
    if kappa >= 0.8:
        return "they agree well"
    if kappa >= 0.6:
        return "they agree mostly, and the disputed items are worth a look"
    return "they disagree often, so make the instructions clearer before labelling more"
