r"""Do the annotators agree? `labelwise.record.resolution` finds the labels that stand.

Agreement beyond chance, with :math:`p_o` the share of pairs of labels that agree and
:math:`p_e` the share that would agree if everyone drew labels blindly from their usual ones:

.. math:: \kappa = \frac{p_o - p_e}{1 - p_e} .

Cohen's has :math:`p_e = \sum_k r_k c_k` from the two annotators' own shares of label :math:`k`.
Fleiss' takes any number of annotators, with :math:`p_o` the mean over items of
:math:`\sum_k n_{ik}(n_{ik}-1) / n_i(n_i-1)` and :math:`p_e = \sum_k \bar p_k^2`. Numbers are
compared by Krippendorff's alpha with squared differences, :math:`1 - D_o / D_e`. Intervals are
95 %, by the jackknife over items.

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
from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import Floats
from labelwise.errors import BadInput
from labelwise.record.events import Label
from labelwise.record.resolution import reliabilities

_NORMAL = 1.959964


def cohen_kappa(first: Sequence[Label], second: Sequence[Label]) -> float | None:
    """Agreement of two annotators, or two models, beyond chance.

    Args:
        first: ``(n,)`` labels.
        second: ``(n,)`` labels of the same items in the same order.

    Returns:
        At most 1; 0 is what chance gives; None where both gave one and the same label to all, since
        chance alone would then agree too.

    >>> cohen_kappa(["cat", "cat", "dog", "dog"], ["cat", "cat", "dog", "cat"])
    0.5
    """
    if len(first) != len(second):
        raise BadInput(
            f"{len(first)} labels cannot be compared with {len(second)}; give both for each item"
        )
    if not len(first):
        raise BadInput("there are no labels to compare; give at least one item")
    pairs = Counter(zip(_plain(first), _plain(second), strict=True))
    return _cohen(pairs)[0]


def fleiss_kappa(table: Any) -> float | None:
    """Agreement of several annotators beyond chance.

    Args:
        table: ``(n, K)``, how many annotators gave item i the label k; two or more in every row,
            not necessarily as many in each.

    Returns:
        At most 1; 0 is what chance gives; None where only one label was ever given.

    >>> fleiss_kappa([[3, 0], [0, 3], [3, 0]])
    1.0
    """
    counts = np.asarray(table, dtype=np.float64)
    if counts.ndim != 2 or not counts.size:
        raise BadInput(f"the table must be (items, labels) with items in it; got {counts.shape}")
    if not (np.isfinite(counts).all() and (counts >= 0).all() and (counts == counts.round()).all()):
        raise BadInput("the table must hold how many annotators gave each label: 0, 1, 2, ...")
    few = np.flatnonzero(counts.sum(axis=1) < 2)
    if len(few):
        raise BadInput(f"row {few[0]} of the table has fewer than 2 labels; leave that item out")
    return _fleiss(counts, np.ones(len(counts)))[0]


def interval_alpha(values: Iterable[Sequence[float]]) -> float | None:
    """Krippendorff's alpha of numbers: 1 for equal numbers, 0 for what chance gives.

    Args:
        values: the numbers that each item was given; those with fewer than two are left out.

    Returns:
        None where no item has two numbers, or where all numbers are the same.

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


class Pair(NamedTuple):
    """Two annotators: how many items both labelled, on how many they agree, Cohen's kappa."""

    first: str
    second: str
    items: int
    agreed: int
    kappa: float | None


@dataclass(frozen=True)
class Agreement:
    """How far the annotators agree.

    Attributes:
        items: how many items have labels of two annotators or more.
        annotators: how many people gave them.
        disputed: how many of these items were given different labels.
        measure: ``cohen``, ``fleiss`` or ``alpha``, whichever `kappa` is.
        kappa: agreement beyond chance, or None where it cannot be told.
        low: the lower end of its 95 % interval, or None.
        high: the upper end, or None.
        pairs: every two annotators with common items; none for numbers.
        reliability: annotator to the estimated share of right labels; empty for numbers.
        says: all this in a sentence.
    """

    items: int
    annotators: int
    disputed: int
    measure: str
    kappa: float | None
    low: float | None
    high: float | None
    pairs: tuple[Pair, ...]
    reliability: dict[str, float]
    says: str


def agreement(ledger: Any, *, regression: bool | None = None) -> Agreement:
    """How far the annotators of a campaign agree; reads all votes.

    Args:
        ledger: anything with ``votes`` (id to annotator to label) and ``settings``.
        regression: whether labels are numbers; what the settings say if None.

    >>> from types import SimpleNamespace
    >>> votes = {1: {"ann": "a", "bob": "a"}, 2: {"ann": "b", "bob": "b"}, 3: {"ann": "a"}}
    >>> agreement(SimpleNamespace(votes=votes, settings={})).says
    'ann and bob agree on 2 of 2 items (kappa 1.00): they agree well'
    """
    if regression is None:
        regression = bool(ledger.settings.get("regression", False))
    shared = Counter(tuple(given.items()) for given in ledger.votes.values() if len(given) > 1)
    items = shared.total()
    people = sorted({by for given in shared for by, _ in given})
    disputed = sum(
        times for given, times in shared.items() if len({label for _, label in given}) > 1
    )
    if regression:
        alpha = interval_alpha([[float(x) for _, x in given] for given in shared.elements()])
        found = _Measured("alpha", alpha, None, None)
        pairs: tuple[Pair, ...] = ()
        reliability: dict[str, float] = {}
    else:
        tables = _pair_tables(shared)
        pairs = tuple(
            Pair(*by, table.total(), sum(n for (a, b), n in table.items() if a == b), kappa)
            for by, table in sorted(tables.items())
            for kappa in [_cohen(table)[0]]
        )
        found = _measure(shared, tables)
        reliability = reliabilities(shared)
    says = _says(items, people, disputed, found)
    return Agreement(
        items, len(people), disputed, *found, pairs=pairs, reliability=reliability, says=says
    )


class _Measured(NamedTuple):
    measure: str
    kappa: float | None
    low: float | None
    high: float | None


Shared = Counter[tuple[tuple[str, Label], ...]]
"""Who said what of an item, and of how many items that was said: few differ among many."""


def _pair_tables(shared: Shared) -> dict[tuple[str, str], Counter[tuple[Label, Label]]]:
    """For every two annotators, how often they gave each pair of labels."""
    tables: dict[tuple[str, str], Counter[tuple[Label, Label]]] = {}
    for given, times in shared.items():
        for (first, label), (second, other) in combinations(sorted(given, key=itemgetter(0)), 2):
            tables.setdefault((first, second), Counter())[label, other] += times
    return tables


def _measure(shared: Shared, tables: dict[tuple[str, str], Counter[Any]]) -> _Measured:
    """Cohen's kappa for two annotators, Fleiss' for more."""
    if not shared:
        return _Measured("cohen", None, None, None)
    if len(tables) == 1:
        (table,) = tables.values()
        return _interval("cohen", *_cohen(table))
    codes: dict[Label, int] = {}
    patterns: Counter[tuple[int, ...]] = Counter()
    for given, count in shared.items():
        row = sorted(codes.setdefault(label, len(codes)) for _, label in given)
        patterns[tuple(row)] += count
    counts = np.stack([np.bincount(row, minlength=len(codes)) for row in patterns])
    times = np.array(list(patterns.values()), dtype=np.float64)
    return _interval("fleiss", *_fleiss(counts.astype(np.float64), times))


def _interval(measure: str, kappa: float | None, error: float | None) -> _Measured:
    if kappa is None or error is None:
        return _Measured(measure, kappa, None, None)
    low, high = max(-1.0, kappa - _NORMAL * error), min(1.0, kappa + _NORMAL * error)
    return _Measured(measure, kappa, low, high)


def _cohen(table: Counter[tuple[Label, Label]]) -> tuple[float | None, float | None]:
    """Cohen's kappa and its standard error, from how often each pair of labels was given."""
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
    # Whole numbers up to the division, so that agreement by chance alone is seen as exactly that.
    agreed, chance = times @ same, rows @ columns
    without_chance = chance - columns[a] - rows[b] + same
    kappa = _beyond_chance(np.array(agreed / n), np.array(chance / n**2))
    if n < 2:
        return _number(kappa), None
    others = _beyond_chance((agreed - same) / (n - 1), without_chance / (n - 1) ** 2)
    return _number(kappa), _jackknife(others, times)


def _fleiss(counts: Floats, times: Floats) -> tuple[float | None, float | None]:
    """Fleiss' kappa and its standard error for rows ``(u, K)`` that occur ``(u,)`` times."""
    sizes = counts.sum(axis=1)
    alike = (counts * (counts - 1)).sum(axis=1) / (sizes * (sizes - 1))
    n, votes, totals = times.sum(), times @ sizes, times @ counts
    squares = totals @ totals
    kappa = _beyond_chance(np.array(times @ alike / n), np.array(squares / votes**2))
    if n < 2:
        return _number(kappa), None
    without = squares - 2 * counts @ totals + (counts * counts).sum(axis=1)
    others = _beyond_chance((times @ alike - alike) / (n - 1), without / (votes - sizes) ** 2)
    return _number(kappa), _jackknife(others, times)


def _beyond_chance(observed: Floats, chance: Floats) -> Floats:
    """Kappa, NaN where chance agrees always."""
    chance = np.where(chance >= 1.0, np.nan, chance)
    return np.asarray((observed - chance) / (1.0 - chance))


def _jackknife(others: Floats, times: Floats) -> float | None:
    """The standard error from the values without one item, each of which occurs ``times``."""
    n = times.sum()
    variance = (n - 1) / n * float(times @ (others - times @ others / n) ** 2)
    return math.sqrt(variance) if math.isfinite(variance) else None


def _number(value: Floats) -> float | None:
    return float(value) if np.isfinite(value) else None


def _plain(labels: Sequence[Label]) -> list[Label]:
    """The labels as Python values, refused where one is NaN, which equals nothing."""
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    for place, value in enumerate(values):
        if isinstance(value, float) and math.isnan(value):
            raise BadInput(f"label {place} is NaN; leave that item out of both")
    return values


def _says(items: int, people: Sequence[str], disputed: int, found: _Measured) -> str:
    if not items:
        return "no item has labels of two annotators yet, so agreement cannot be told"
    who = " and ".join(people) if len(people) == 2 else f"{len(people)} annotators"
    start = f"{who} agree on {items - disputed} of {items} items"
    if found.kappa is None:
        return f"{start}, but only one label was given, so chance would agree as well"
    name = "alpha" if found.measure == "alpha" else "kappa"
    between = "" if found.low is None else f", {found.low:.2f} to {found.high:.2f}"
    between = "" if found.low == found.high else between
    return f"{start} ({name} {found.kappa:.2f}{between}): {_meaning(found.kappa)}"


def _meaning(kappa: float) -> str:
    if kappa >= 0.8:
        return "they agree well"
    if kappa >= 0.6:
        return "they agree mostly, and the disputed items are worth a look"
    return "they disagree often, so make the instructions clearer before labelling more"
