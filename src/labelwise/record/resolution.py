r"""Which label stands where several people labelled an item?

By majority, the label with the most votes stands; a tie stays open. By weight, annotator :math:`j`
gives the right one of :math:`K` labels with probability :math:`r_j` and any other alike, so that a
vote counts :math:`\log (K-1) r_j / (1 - r_j)`, but never less than nothing. EM finds the
:math:`r_j` from the items with two votes or more, each annotator beginning with four imagined right
labels and one wrong. Numbers take the median under either rule.

Cost: one pass over the votes. Items on which the same people took the same sides are one to EM.

Reference: A. Dawid, A. Skene, "Maximum Likelihood Estimation of Observer Error-Rates Using the EM
Algorithm", Applied Statistics 28, 1979, with one number per annotator.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labelwise.arrays import Floats, Ids
from labelwise.errors import BadInput, UnknownName
from labelwise.record.events import Label

Votes = Mapping[int, Mapping[str, Label]]

RULES = ("majority", "weighted")

_IMAGINED = (4.0, 1.0)
"""Right and wrong labels that every annotator is given before any is seen."""

_ROUNDS, _TOLERANCE = 1000, 1e-7
"""EM ends when nobody's reliability moves any more; where votes are like chance it creeps for ever,
towards nothing that matters, and is ended."""


class Resolution(NamedTuple):
    """The labels that stand, how sure each is, and how often each annotator is right.

    Attributes:
        labels: id to label, without the items that stay open.
        confidence: id to the probability of its likeliest label, open items too.
        reliability: annotator to the estimated share of right labels.
    """

    labels: dict[int, Label]
    confidence: dict[int, float]
    reliability: dict[str, float]


def resolve(
    votes: Votes, rule: str = "majority", *, classes: int | None = None, regression: bool = False
) -> dict[int, Label]:
    """The label that stands for each item; items without a clear one are left out.

    Args:
        votes: id to annotator to label.
        rule: ``majority`` or ``weighted``.
        classes: how many labels there are to choose from; as many as were seen if None.
        regression: whether labels are numbers, whose median then stands under either rule.

    >>> resolve({7: {"ann": "cat", "bob": "cat", "eve": "dog"}, 8: {"ann": "cat", "bob": "dog"}})
    {7: 'cat'}
    """
    if rule not in RULES:
        raise UnknownName(f"no resolution is called {rule!r}; choose from {', '.join(RULES)}")
    if regression:
        return {
            item: statistics.median(float(value) for value in given.values())
            for item, given in votes.items()
            if given
        }
    if rule == "weighted":
        return resolve_weighted(votes, classes=classes).labels
    found = ((item, resolve_majority(given)) for item, given in votes.items())
    return {item: label for item, label in found if label is not None}


def resolve_majority(votes: Mapping[str, Label]) -> Label | None:
    """The label with more votes than any other, or None where two are level.

    >>> resolve_majority({"ann": 3, "bob": 3, "eve": 5})
    3
    >>> resolve_majority({"ann": 3, "bob": 5}) is None
    True
    """
    if len(set(votes.values())) == 1:
        return next(iter(votes.values()))
    leading = Counter(votes.values()).most_common(2)
    if not leading or (len(leading) > 1 and leading[0][1] == leading[1][1]):
        return None
    return leading[0][0]


def resolve_weighted(votes: Votes, *, classes: int | None = None, sure: float = 0.75) -> Resolution:
    """Weigh every vote by how often its annotator is right, as found from all votes.

    Args:
        votes: id to annotator to label.
        classes: how many labels there are to choose from; as many as were seen if None.
        sure: a contested item stays open unless its likeliest label has this probability.

    >>> votes = {i: {"ann": i % 3, "bob": i % 3, "eve": 0} for i in range(30)}
    >>> votes[30] = {"ann": 2, "eve": 0}
    >>> found = resolve_weighted(votes)
    >>> found.labels[30], found.reliability["ann"] > 0.95 > 0.5 > found.reliability["eve"]
    (2, True)
    """
    if not 0.5 < sure <= 1:
        raise BadInput(f"sure must be above 0.5 and at most 1; got {sure}")
    seen = {label for given in votes.values() for label in given.values()}
    if classes is not None and classes < len(seen):
        raise BadInput(f"there are {len(seen)} labels among the votes; classes is {classes}")
    patterns = {item: _pattern(given) for item, given in votes.items() if given}
    if not patterns:
        return Resolution({}, {}, {})
    rows = _Rows.of(Counter(patterns.values()), max(2, classes or len(seen)))
    reliability = rows.reliability()
    settled = {
        pattern: (by, chance, sides == 1 or chance >= sure)
        for pattern, by, chance, sides in rows.winners(reliability)
    }
    labels: dict[int, Label] = {}
    confidence: dict[int, float] = {}
    for item, pattern in patterns.items():
        by, confidence[item], clear = settled[pattern]
        if clear:
            labels[item] = votes[item][by]
    return Resolution(labels, confidence, dict(zip(rows.people, reliability.tolist(), strict=True)))


def reliabilities(
    counted: Mapping[tuple[tuple[str, Label], ...], int], *, classes: int | None = None
) -> dict[str, float]:
    """How often each annotator is right, as `resolve_weighted` finds it.

    Args:
        counted: what people said of an item, as (annotator, label) pairs, to the number of items.
        classes: how many labels there are to choose from; as many as were seen if None.

    >>> said = {(("ann", 1), ("bob", 1), ("eve", 0)): 20, (("ann", 0), ("bob", 0), ("eve", 0)): 10}
    >>> found = reliabilities(said)
    >>> found["ann"] > 0.9 > 0.5 > found["eve"]
    True
    """
    seen = {label for given in counted for _, label in given}
    patterns: Counter[_Pattern] = Counter()
    for given, times in counted.items():
        patterns[_pattern(dict(given))] += times
    if not patterns:
        return {}
    rows = _Rows.of(patterns, max(2, classes or len(seen)))
    return dict(zip(rows.people, rows.reliability().tolist(), strict=True))


_Pattern = tuple[tuple[str, ...], tuple[int, ...]]
"""Who voted, and who with whom: annotators in order, and the number of the label of each."""


def _pattern(given: Mapping[str, Label]) -> _Pattern:
    """The sides that people took on an item.

    Annotators err alike on all labels, so that nothing else of an item matters to EM, and a million
    items have a handful of patterns.
    """
    people, sides = tuple(sorted(given)), dict[Label, int]()
    return people, tuple(sides.setdefault(given[by], len(sides)) for by in people)


@dataclass(frozen=True)
class _Rows:
    """All patterns as arrays; a cell is one side of one pattern.

    Attributes:
        patterns: ``u`` of them.
        people: ``a`` of them.
        classes: how many labels there are to choose from, 2 or more.
        times: ``(u,)``, how many items have each pattern.
        pattern: ``(v,)``, of each vote.
        person: ``(v,)``, whose vote it is.
        cell: ``(v,)``, the side that it takes; cells of a pattern follow one another.
        starts: ``(u,)``, the first cell of each pattern.
        sides: ``(u,)``, how many cells it has.
    """

    patterns: list[_Pattern]
    people: list[str]
    classes: int
    times: Floats
    pattern: Ids
    person: Ids
    cell: Ids
    starts: Ids
    sides: Ids

    @classmethod
    def of(cls, counted: Counter[_Pattern], classes: int) -> "_Rows":
        patterns = list(counted)
        people = sorted({by for who, _ in patterns for by in who})
        number = {by: place for place, by in enumerate(people)}
        sides = np.array([max(votes) + 1 for _, votes in patterns])
        starts = np.cumsum(sides) - sides
        pattern = np.repeat(np.arange(len(patterns)), [len(who) for who, _ in patterns])
        side = np.array([one for _, votes in patterns for one in votes])
        return cls(
            patterns=patterns,
            people=people,
            classes=classes,
            times=np.array([counted[one] for one in patterns], dtype=np.float64),
            pattern=pattern,
            person=np.array([number[by] for who, _ in patterns for by in who]),
            cell=starts[pattern] + side,
            starts=starts,
            sides=sides,
        )

    def chances(self, reliability: Floats) -> Floats:
        """The probability that each cell is right, ``(c,)``, for reliabilities ``(a,)``."""
        floor = np.maximum(reliability, 1.0 / self.classes)
        worth = np.log((self.classes - 1) * floor / (1.0 - floor))
        scores = np.bincount(self.cell, weights=worth[self.person])
        top = np.maximum.reduceat(scores, self.starts)
        powers = np.exp(scores - np.repeat(top, self.sides))
        totals = np.add.reduceat(powers, self.starts) + (self.classes - self.sides) * np.exp(-top)
        return np.asarray(powers / np.repeat(totals, self.sides))

    def reliability(self) -> Floats:
        """How often each annotator is right, ``(a,)``, by EM over the items with several votes."""
        right, wrong = _IMAGINED
        several = np.bincount(self.pattern)[self.pattern] > 1
        times = np.where(several, self.times[self.pattern], 0.0)
        seen = np.bincount(self.person, weights=times)
        found = np.full(len(self.people), right / (right + wrong))
        for _ in range(_ROUNDS):
            expected = np.bincount(self.person, weights=times * self.chances(found)[self.cell])
            better = (right + expected) / (right + wrong + seen)
            found, moved = better, float(np.abs(better - found).max())
            if moved < _TOLERANCE:
                break
        return found

    def winners(self, reliability: Floats) -> Iterable[tuple[_Pattern, str, float, int]]:
        """Each pattern with someone on its likeliest side, the side's chance, and its sides."""
        chances = self.chances(reliability)
        for pattern, start, sides in zip(self.patterns, self.starts, self.sides, strict=True):
            side = int(np.argmax(chances[start : start + sides]))
            who, votes = pattern
            yield pattern, who[votes.index(side)], float(chances[start + side]), int(sides)
