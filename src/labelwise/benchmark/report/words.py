"""Numbers and findings in words: units, intervals, and plain sentences on what beat what."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from labelwise.benchmark.report.experiment import Experiment
from labelwise.benchmark.report.findings import LEVEL, Contrast, Findings, Overall
from labelwise.benchmark.statistics import Estimate

_SHARES = ("accuracy", "f1", "auroc", "recall", "precision")


@dataclass(frozen=True)
class Unit:
    """How a metric is written: shares in %, their differences in points, all else as it is.

    Example:
        >>> Unit("accuracy").text(0.9124), Unit("mse").text(0.9124)
        ('91.24', '0.9124')
    """

    metric: str

    @property
    def percent(self) -> bool:
        """Whether the metric is a share."""
        return any(word in self.metric.lower() for word in _SHARES)

    @property
    def scale(self) -> float:
        """What a value is multiplied by to be written."""
        return 100.0 if self.percent else 1.0

    @property
    def name(self) -> str:
        """For heads and axes."""
        metric = self.metric.replace("_", " ")
        return f"{metric}, %" if self.percent else metric

    @property
    def difference(self) -> str:
        """What differences are counted in."""
        return "points" if self.percent else self.metric.replace("_", " ")

    def text(self, value: float, sign: str = "") -> str:
        """A value, or with sign "+" a difference."""
        if math.isnan(value):
            return "–"
        return f"{self.scale * value:{sign}.2f}" if self.percent else f"{value:{sign}.4g}"

    def gain(self, estimate: Estimate) -> str:
        """A difference with its interval, as part of a sentence."""
        text = f"{self.text(estimate.value, '+')} {self.difference}"
        if math.isnan(estimate.low):
            return text
        low, high = self.text(estimate.low, "+"), self.text(estimate.high, "+")
        return f"{text}, 95 % interval {low} to {high}"


def p_text(value: float) -> str:
    """A p-value: two digits that count, and nothing below 0.0001."""
    if math.isnan(value):
        return "–"
    return "<0.0001" if value < 1e-4 else f"{min(value, 1.0):.2g}"


def labels_text(value: float, limit: int) -> str:
    """A number of labels; "over 640" if it was not reached with all of them."""
    return f"{value:,.0f}" if math.isfinite(value) else f"over {limit:,}"


def saving_text(value: float) -> str:
    """A share of labels saved, in %; words where one side never got there."""
    if math.isnan(value):
        return "neither reached it"
    if value in (1, math.inf):  # the baseline never got there
        return "unbounded"
    return "not reached" if value == -math.inf else f"{100 * value:+.0f} %"


def seconds_text(value: float) -> str:
    """Seconds, in three digits."""
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def sentence(contrast: Contrast, unit: Unit) -> str:
    """What one comparison shows, plainly."""
    name, other, gain = contrast.strategy, contrast.baseline, unit.gain(contrast.area.gain)
    seeds, ahead = contrast.area.seeds, contrast.area.ahead
    verdict = contrast.verdict
    flip, score = p_text(contrast.p_flip), p_text(contrast.p_t)
    if verdict == "one seed":
        return f"One seed shows nothing about {name} and {other}: {gain}."
    if verdict == "better":
        return f"{name} beats {other}: {gain}, ahead in {ahead} of {seeds} seeds (p {flip})."
    if verdict == "worse":
        return (
            f"{name} is worse than {other}: {gain}, ahead in {ahead} of {seeds} seeds (p {flip})."
        )
    if verdict.startswith("likely"):
        side = "ahead of" if verdict.endswith("better") else "behind"
        count = ahead if verdict.endswith("better") else seeds - ahead
        return f"{name} is {side} {other} in {count} of {seeds} seeds: {gain} (t test, p {score})."
    text = f"No evidence that {name} beats {other} here: {gain}."
    if contrast.area.gain.low > 0:
        text = text[:-1] + f"; the interval excludes 0, but not after correction (p {score})."
    elif contrast.area.gain.high < 0:
        text = text[:-1] + f"; if anything it is behind (p {score} after correction)."
    return text


def lede(findings: Findings) -> str:
    """The first sentences of a section."""
    experiment = findings.experiment
    if not findings.baselines:
        return "No baseline was run, so nothing is compared here."
    baseline = findings.baselines[0]
    contrasts = findings.contrasts[baseline]
    if not contrasts:
        return f"No strategy has a whole run under the same seed as {baseline}."
    kinds = {kind: [c.strategy for c in contrasts if c.verdict == kind] for kind in _KINDS}
    parts = [
        f"{_KINDS[kind]} {_and(names)}".replace("BASE", baseline)
        for kind, names in kinds.items()
        if names
    ]
    unit = Unit(experiment.metric)
    best = findings.summaries[0]
    text = "; ".join(parts)
    if best.area is not None and not math.isnan(best.area.value):
        text += f". The best area is that of {best.strategy}, {unit.text(best.area.value)}"
    return text[0].upper() + text[1:] + "."


_KINDS = {
    "better": "better than BASE:",
    "likely better": "ahead of BASE, as far as these few seeds can show:",
    "unclear": "no evidence of beating BASE:",
    "likely worse": "behind BASE, as far as these few seeds can show:",
    "worse": "worse than BASE:",
    "one seed": "only one seed to compare with BASE:",
}


def caveats(experiment: Experiment, contrasts: Sequence[Contrast]) -> list[str]:
    """What the number of seeds does to intervals and tests."""
    seeds = min((contrast.area.seeds for contrast in contrasts), default=len(experiment.seeds))
    if seeds < 2:
        return ["With one seed there is no interval and no test."]
    notes = []
    if seeds < 5:
        notes.append(
            f"With {seeds} seeds a bootstrap interval covers at most "
            f"{100 * (1 - 2.0 ** (1 - seeds)):.0f} %, not 95 %, since it cannot leave the range of "
            "the seeds: read it as a hint."
        )
    elif seeds < 8:
        notes.append(
            f"With {seeds} seeds an interval called 95 % covers about 92 to 94 % (normal "
            "differences; less for skewed ones)."
        )
    family = max((contrast.family for contrast in contrasts), default=0)
    least = 2.0 ** (1 - seeds)
    if least * family > LEVEL:
        notes.append(
            f"With {seeds} seeds the sign-flip test cannot give a p-value below {least:.3g}, or "
            f"{min(1.0, least * family):.3g} after correction for {family} comparisons. So the t "
            "test decides between “ahead” and “no evidence”; it takes the differences to be normal."
        )
    return notes


def untested_text(findings: Findings, baseline: str) -> str:
    """What the correction for many comparisons leaves out; empty if nothing."""
    names, contrasts = findings.untested(baseline), findings.contrasts[baseline]
    count = max((contrast.family for contrast in contrasts), default=0)
    if not names or not count:
        return ""
    experiment = findings.experiment
    verb, them = ("has", "it is") if len(names) == 1 else ("have", "they are")
    tests = f"{count} comparison{'s' if count != 1 else ''} with {baseline}"
    return (
        f"{_and(names)} {verb} no run up to {experiment.labels[-1]:,} {experiment.axis} under a "
        f"seed of {baseline}: {them} not tested, and not among the {tests} that the p-values are "
        "corrected for."
    )


def mixed_text(experiment: Experiment) -> str:
    """Which versions of the code made the lines, where there are several; empty if not."""
    lines = [entry for entries in experiment.rounds.values() for entry in entries]
    counts = Counter(entry.code or "not noted" for entry in lines)
    if len(counts) < 2:
        return ""
    parts = [f"{code} ({count:,} lines)" for code, count in sorted(counts.items())]
    return f"These lines were made by {len(counts)} versions of the code: {_and(parts)}."


def ranks_text(found: Overall) -> str:
    """What the ranks over data sets show."""
    ranks = found.ranks
    if ranks is None:
        return "Mean ranks need two data sets with two strategies in common."
    text = (
        f"Mean rank of the area over {ranks.data_sets} experiments, 1 is best. "
        f"{ranks.names[0]} has the best, {ranks.ranks[0]:.2f}. "
    )
    if not math.isnan(ranks.p_value):
        alike = "differ" if ranks.p_value <= LEVEL else "cannot be told apart"
        text += f"Friedman's test: the strategies {alike} (p {p_text(ranks.p_value)}). "
    text += (
        f"By Nemenyi's test two strategies differ if their ranks are more than "
        f"{ranks.critical_difference:.2f} apart; a bar joins those that do not."
    )
    if ranks.data_sets < 5:
        text += " With so few experiments only very large differences can show."
    return text


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
