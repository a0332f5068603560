r"""Resolution of several votes on an item to one label, weighted by the annotators' reliability.

Annotator :math:`j` gives the correct one of :math:`K` labels with probability :math:`r_j` and each
other one with equal probability, so a vote has the weight :math:`\log (K-1) r_j / (1 - r_j)`, at
least 0. EM estimates :math:`r_j` from the items with two votes or more, with a prior of four
correct labels and one wrong one per annotator.

Cost: one pass over the votes. EM treats items with the same pattern of votes as one.

Reference: A. Dawid, A. Skene, "Maximum Likelihood Estimation of Observer Error-Rates Using the EM
Algorithm", Applied Statistics 28, 1979, with one parameter per annotator.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labelwise.arrays import Floats, Ids
from labelwise.errors import BadInput
from labelwise.record.events import Label

Votes = Mapping[int, Mapping[str, Label]]

_PRIOR = (4.0, 1.0)  # Prior counts of correct and wrong labels of every annotator

_MAX_ITERATIONS, _TOLERANCE = 1000, 1e-7
"""EM stops at this change of reliability; for votes at chance level it may not converge."""


class WeightedLabels(NamedTuple):
    """Labels by weighted votes."""

    labels: dict[int, Label]  # id to label, without items that stay open
    # id to the probability of its most likely label, including open items
    confidence: dict[int, float]
    reliability: dict[str, float]  # annotator to the estimated share of correct labels


def resolve_weighted(
    votes: Votes, *, classes: int | None = None, sure: float = 0.75
) -> WeightedLabels:
    """Resolve votes weighted by the estimated reliability of their annotators.

    Args:
        votes: id to annotator to label.
        classes: number of classes; the number of different labels if None.
        sure: minimum probability of the label of a disputed item; below it the item stays open.

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
    patterns = {item: _find_vote_pattern(given) for item, given in votes.items() if given}
    if not patterns:
        return WeightedLabels({}, {}, {})
    rows = _VotePatterns.from_counts(Counter(patterns.values()), max(2, len(seen)))
    reliability = rows.estimate_reliability()
    settled = {
        pattern: (by, chance, sides == 1 or chance >= sure)
        for pattern, by, chance, sides in rows.find_winners(reliability)
    }
    labels: dict[int, Label] = {}
    confidence: dict[int, float] = {}
    for item, pattern in patterns.items():
        by, confidence[item], clear = settled[pattern]
        if clear:
            labels[item] = votes[item][by]
    return WeightedLabels(
        labels, confidence, dict(zip(rows.people, reliability.tolist(), strict=True))
    )


def estimate_reliability(
    counted: Mapping[tuple[tuple[str, Label], ...], int],
) -> dict[str, float]:
    """Estimate the share of correct labels of each annotator, as `resolve_weighted` does.

    ``counted`` maps votes on an item, as (annotator, label) pairs, to the number of such items.

    >>> votes = {(("ann", 1), ("bob", 1), ("eve", 0)): 20, (("ann", 0), ("bob", 0), ("eve", 0)): 10}
    >>> found = estimate_reliability(votes)
    >>> found["ann"] > 0.9 > 0.5 > found["eve"]
    True
    """
    seen = {label for given in counted for _, label in given}
    patterns: Counter[_Pattern] = Counter()
    for given, times in counted.items():
        patterns[_find_vote_pattern(dict(given))] += times
    if not patterns:
        return {}
    rows = _VotePatterns.from_counts(patterns, max(2, len(seen)))
    return dict(zip(rows.people, rows.estimate_reliability().tolist(), strict=True))


_Pattern = tuple[tuple[str, ...], tuple[int, ...]]
"""Sorted annotators, and for each the index of its label among those of the item."""


def _find_vote_pattern(given: Mapping[str, Label]) -> _Pattern:
    """The pattern of agreement on an item.

    The model treats all labels alike, so EM needs only the pattern, and a million items have few
    patterns.
    """
    people, sides = tuple(sorted(given)), dict[Label, int]()
    return people, tuple(sides.setdefault(given[by], len(sides)) for by in people)


@dataclass(frozen=True)
class _VotePatterns:
    """All patterns as arrays; a cell is one label of one pattern."""

    patterns: list[_Pattern]  # ``u`` patterns
    people: list[str]  # ``a`` annotators
    classes: int  # number of classes, 2 or more
    times: Floats  # ``(u,)``, number of items with each pattern
    pattern: Ids  # ``(v,)``, pattern of each vote
    person: Ids  # ``(v,)``, annotator of each vote
    cell: Ids  # ``(v,)``, cell of each vote; the cells of a pattern are consecutive
    starts: Ids  # ``(u,)``, first cell of each pattern
    sides: Ids  # ``(u,)``, number of its cells

    @classmethod
    def from_counts(cls, counted: Counter[_Pattern], classes: int) -> "_VotePatterns":
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

    def cell_probabilities(self, reliability: Floats) -> Floats:
        """The probability that each cell is correct, ``(c,)``, for reliabilities ``(a,)``."""
        floor = np.maximum(reliability, 1.0 / self.classes)
        weight = np.log((self.classes - 1) * floor / (1.0 - floor))
        # The log odds of a label are the sum of its supporters' weights.
        scores = np.bincount(self.cell, weights=weight[self.person])
        top = np.maximum.reduceat(scores, self.starts)
        # A softmax over all K labels; those without a vote have the score 0.
        powers = np.exp(scores - np.repeat(top, self.sides))
        totals = np.add.reduceat(powers, self.starts) + (self.classes - self.sides) * np.exp(-top)
        return np.asarray(powers / np.repeat(totals, self.sides))

    def estimate_reliability(self) -> Floats:
        """The share of correct labels of each annotator, ``(a,)``, by EM."""
        right, wrong = _PRIOR
        several = np.bincount(self.pattern)[self.pattern] > 1
        times = np.where(several, self.times[self.pattern], 0.0)
        seen = np.bincount(self.person, weights=times)
        found = np.full(len(self.people), right / (right + wrong))
        for _ in range(_MAX_ITERATIONS):
            expected = np.bincount(
                self.person, weights=times * self.cell_probabilities(found)[self.cell]
            )
            better = (right + expected) / (right + wrong + seen)
            found, moved = better, float(np.abs(better - found).max())
            if moved < _TOLERANCE:
                break
        return found

    def find_winners(self, reliability: Floats) -> Iterable[tuple[_Pattern, str, float, int]]:
        """Each pattern with a supporter of its most likely cell, the probability, and its cells."""
        chances = self.cell_probabilities(reliability)
        for pattern, start, sides in zip(self.patterns, self.starts, self.sides, strict=True):
            side = int(np.argmax(chances[start : start + sides]))
            who, votes = pattern
            yield pattern, who[votes.index(side)], float(chances[start + side]), int(sides)
