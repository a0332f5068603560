r"""What a simulation shows: how many labels every strategy would have saved, in numbers and words.

The target is what random reaches with all its labels. A strategy *saves*
:math:`1 - n_{strategy} / n_{random}`, with n the labels at which the mean curve first reaches the
target. Target and labels are found anew for every resample of the seeds
(`labelwise.benchmark.statistics`). Whether a strategy beats random is decided by the paired
differences of the whole curves, corrected for the number of strategies, as in every report.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from labelwise.arrays import Floats
from labelwise.benchmark.report.experiment import Experiment, experiments
from labelwise.benchmark.report.findings import analyse
from labelwise.benchmark.report.words import Unit
from labelwise.benchmark.results import Round
from labelwise.benchmark.statistics import Estimate, bootstrap, label_saving, labels_needed
from labelwise.errors import BadInput

BASELINE = "random"

CLEAR = ("better", "likely better")
"""The verdicts that count as beating random."""


@dataclass(frozen=True)
class Saving:
    """One strategy against random.

    Attributes:
        strategy: its name.
        needed: labels at which it reaches what random reaches with all; inf if it never does.
        baseline: labels at which random reaches it, on the mean curve.
        saved: the share of random's labels that it does without; -inf if it never gets there.
        target: what random reaches with all its labels.
        final: what the strategy reaches with all.
        most: all labels.
        verdict: better, likely better, unclear, likely worse, worse, or one seed.
        metric: what was measured.
    """

    strategy: str
    needed: Estimate
    baseline: float
    saved: Estimate
    target: float
    final: float
    most: int
    verdict: str
    metric: str

    @property
    def clear(self) -> bool:
        """Whether it beats random."""
        return self.verdict in CLEAR

    @property
    def cells(self) -> tuple[str, str]:
        """Labels needed and the share saved, for a table."""
        if not math.isfinite(self.needed.value):
            return f"over {self.most:,}", "not reached"
        return f"{self.needed.value:,.0f}", f"{100 * self.saved.value:.0f} %"

    @property
    def sentence(self) -> str:
        """What that means, plainly."""
        unit = Unit(self.metric)
        target = f"{unit.text(self.target)} {'% ' if unit.percent else ''}{self.metric}"
        if not math.isfinite(self.needed.value):
            return (
                f"{self.strategy} does not reach with {self.most:,} labels what random reaches "
                f"({target})"
            )
        text = (
            f"{self.strategy} needs {self.needed.value:,.0f} of the {self.baseline:,.0f} labels "
            f"that random needs for {target}: {share_text(self.saved)}"
        )
        if self.verdict == "one seed":
            return f"{text}; one seed shows nothing"
        return text if self.clear else f"{text}; {_DOUBTS.get(self.verdict, 'not clear')}"


_DOUBTS = {
    "unclear": "not clearly better over the whole curve",
    "likely worse": "behind random over the whole curve",
    "worse": "behind random over the whole curve",
}


def share_text(saved: Estimate) -> str:
    """A saving with its interval.

    Example:
        >>> share_text(Estimate(0.38, 0.2, 0.5))
        'saves 38 % (95 % interval 20 to 50 %)'
        >>> share_text(Estimate(-0.1, -np.inf, 0.05))
        'takes 10 % more (95 % interval of the saving: never there to 5 %)'
    """
    if saved.value < 0:
        text, about = f"takes {-100 * saved.value:.0f} % more", "95 % interval of the saving:"
    else:
        text, about = f"saves {100 * saved.value:.0f} %", "95 % interval"
    return text if math.isnan(saved.low) else f"{text} ({about} {interval_text(saved)})"


def interval_text(saved: Estimate) -> str:
    """The ends of a saving's interval; a low end may be a strategy that never gets there."""
    if math.isnan(saved.low):
        return ""
    low, high = (
        f"{100 * end:.0f}" if math.isfinite(end) else "never there"
        for end in (saved.low, saved.high)
    )
    return f"{low} to {high} %" if math.isfinite(saved.high) else low


def savings(rounds: Iterable[Round], *, baseline: str = BASELINE) -> tuple[Saving, ...]:
    """Compare all strategies of one simulation with random, the largest saving first.

    Args:
        rounds: the lines of one simulation.
        baseline: what to compare with.

    Example:
        >>> rounds = [
        ...     Round("simulate", "own", "x", "mlp", name, seed, at, 10 + 10 * at, "accuracy", y)
        ...     for name, gain in (("random", 0.0), ("margin", 0.2))
        ...     for seed in range(5)
        ...     for at, y in enumerate((0.5, 0.6 + gain, 0.7 + gain))
        ... ]
        >>> [found] = savings(rounds)
        >>> print(found.sentence)
        margin needs 17 of the 30 labels that random needs for 70.00 % accuracy: saves 44 % \
(95 % interval 44 to 44 %)
    """
    found = experiments(rounds)
    if len(found) != 1:
        raise BadInput(f"savings are of one simulation; got the lines of {len(found)}")
    (experiment,) = found
    if baseline not in experiment.strategies:
        raise BadInput(f"{baseline} was not run, so there is nothing to compare with")
    contrasts = analyse(experiment, (baseline,)).contrasts[baseline]
    made = [_saving(experiment, entry.strategy, baseline, entry.verdict) for entry in contrasts]
    return tuple(sorted(made, key=lambda entry: (-entry.saved.value, -entry.saved.low)))


def conclusion(found: Sequence[Saving], *, seeds: int) -> str:
    """The last sentence: what beats random, and whether so few seeds can show it."""
    if not found:
        return "Nothing was compared with random."
    names = [entry.strategy for entry in found if entry.clear]
    if not names:
        return "No strategy beats random clearly here."
    likely = any(entry.verdict == "likely better" for entry in found)
    how = f", as far as {seeds} seeds can show" if likely else ""
    return f"Better than random over the whole curve{how}: {', '.join(names)}."


def caveats(found: Sequence[Saving], *, seeds: int, tested: int) -> list[str]:
    """What to keep in mind with these numbers.

    Args:
        found: the savings.
        seeds: runs of each strategy.
        tested: test items.
    """
    notes = []
    if seeds < 2:
        notes.append("One seed gives no interval and no test; run 5 or more.")
    elif seeds < 5:
        notes.append(
            f"With {seeds} seeds an interval called 95 % covers at most "
            f"{100 * (1 - 2.0 ** (1 - seeds)):.0f} %; read it as a hint, and run 5 seeds or more."
        )
    elif seeds < 8:
        notes.append(f"With {seeds} seeds an interval called 95 % covers about 92 to 94 %.")
    if len(found) > 1:
        notes.append(
            f"The best of {len(found)} strategies looks better than it is: chance helped it to the "
            "top. To be sure, run it alone against random with more seeds."
        )
    if tested < 100:
        notes.append(
            f"Every measurement is on {tested} test items only; differences of a few points are "
            "a few items."
        )
    return notes


def _saving(experiment: Experiment, name: str, baseline: str, verdict: str) -> Saving:
    whole = experiment.whole(name) & experiment.whole(baseline)
    ours, theirs = experiment.curves(name)[whole], experiment.curves(baseline)[whole]
    higher = experiment.higher_is_better

    def needed(curves: Floats, shares: Floats) -> Floats:
        targets = shares @ theirs[:, -1]
        found: Floats = labels_needed(
            experiment.labels, shares @ curves, targets, higher_is_better=higher
        )
        return found

    seeds = len(ours)
    even = np.full((1, seeds), 1 / seeds)
    return Saving(
        name,
        bootstrap(lambda shares: needed(ours, shares), seeds),
        float(needed(theirs, even)[0]),
        bootstrap(lambda shares: label_saving(needed(ours, shares), needed(theirs, shares)), seeds),
        float(theirs[:, -1].mean()),
        float(ours[:, -1].mean()),
        int(experiment.labels[-1]),
        verdict,
        experiment.metric,
    )
