"""Texts of the report: formatted numbers, and sentences about the findings."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from labelwise.benchmark.report.experiment import ExperimentRuns
from labelwise.benchmark.report.findings import (
    CombinedFindings,
    ExperimentFindings,
    StrategyComparison,
)
from labelwise.benchmark.statistics import LEVEL, Estimate

_PERCENT_METRICS = ("accuracy", "f1", "auroc", "recall", "precision")


@dataclass(frozen=True)
class MetricUnit:
    """Formats a metric: proportions in %, their differences in points, others unchanged.

    >>> MetricUnit("accuracy").format(0.9124), MetricUnit("mse").format(0.9124)
    ('91.24', '0.9124')
    """

    metric: str

    @property
    def percent(self) -> bool:
        """Whether the metric is a proportion."""
        return any(word in self.metric.lower() for word in _PERCENT_METRICS)

    @property
    def scale(self) -> float:
        """Factor between a value and its printed form."""
        return 100.0 if self.percent else 1.0

    @property
    def name(self) -> str:
        """Name for table heads and axes."""
        metric = self.metric.replace("_", " ")
        return f"{metric}, %" if self.percent else metric

    @property
    def difference(self) -> str:
        """Unit of differences."""
        return "points" if self.percent else self.metric.replace("_", " ")

    def format(self, value: float, sign: str = "") -> str:
        """A value, or with sign "+" a difference."""
        if math.isnan(value):
            return "–"
        return f"{self.scale * value:{sign}.2f}" if self.percent else f"{value:{sign}.4g}"

    def format_gain(self, estimate: Estimate) -> str:
        """A difference with its interval, as part of a sentence."""
        text = f"{self.format(estimate.value, '+')} {self.difference}"
        if math.isnan(estimate.low):
            return text
        low, high = self.format(estimate.low, "+"), self.format(estimate.high, "+")
        return f"{text}, 95 % interval {low} to {high}"


def format_p_value(value: float) -> str:
    """A p-value with two significant digits, not below 0.0001."""
    if math.isnan(value):
        return "–"
    return "<0.0001" if value < 1e-4 else f"{min(value, 1.0):.2g}"


def format_labels_needed(value: float, limit: int) -> str:
    """A number of labels; "over 640" if the target was not reached."""
    return f"{value:,.0f}" if math.isfinite(value) else f"over {limit:,}"


def format_saving_share(value: float) -> str:
    """A share of labels saved, in %; words where a target was not reached."""
    if math.isnan(value):
        return "neither reached it"
    if value in (1, math.inf):  # the baseline never reached the target
        return "unbounded"
    return "not reached" if value == -math.inf else f"{100 * value:+.0f} %"


def format_report_seconds(value: float) -> str:
    """Seconds, in three digits."""
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def describe_comparison(comparison: StrategyComparison, unit: MetricUnit) -> str:
    """One sentence about a comparison."""
    name, other, verdict = comparison.strategy, comparison.baseline, comparison.verdict
    gain = unit.format_gain(comparison.area.gain)
    seeds, ahead = comparison.area.seeds, comparison.area.ahead
    p_flip, p_t = format_p_value(comparison.p_flip), format_p_value(comparison.p_t)
    if verdict == "one seed":
        return f"One seed is not enough to compare {name} and {other}: {gain}."
    if verdict in ("better", "worse"):
        start = f"{name} {'beats' if verdict == 'better' else 'is worse than'} {other}"
        return f"{start}: {gain}, ahead in {ahead} of {seeds} seeds (p {p_flip})."
    if verdict.startswith("likely"):
        better = verdict.endswith("better")
        side, count = ("ahead of", ahead) if better else ("behind", seeds - ahead)
        return f"{name} is {side} {other} in {count} of {seeds} seeds: {gain} (t test, p {p_t})."
    text = f"No evidence that {name} beats {other} here: {gain}"
    if comparison.area.gain.low > 0:
        return f"{text}; the interval excludes 0, but not after correction (p {p_t})."
    if comparison.area.gain.high < 0:
        return f"{text}; if anything it is behind (p {p_t} after correction)."
    return f"{text}."


_VERDICT_PHRASES = {
    "better": "better than BASE:",
    "likely better": "ahead of BASE, as far as these few seeds can show:",
    "unclear": "no evidence of beating BASE:",
    "likely worse": "behind BASE, as far as these few seeds can show:",
    "worse": "worse than BASE:",
    "one seed": "only one seed to compare with BASE:",
}


def summarise_findings(findings: ExperimentFindings) -> str:
    """The first sentences of a section."""
    baseline = findings.baseline
    if baseline is None:
        return "No baseline was run, so nothing is compared here."
    comparisons = findings.comparisons[baseline]
    if not comparisons:
        return f"No strategy has a complete run under the same seed as {baseline}."
    parts = []
    for verdict, phrase in _VERDICT_PHRASES.items():
        names = [entry.strategy for entry in comparisons if entry.verdict == verdict]
        if names:
            parts.append(f"{phrase} {join_strategy_names(names)}".replace("BASE", baseline))
    text = "; ".join(parts)
    best = findings.summaries[0]
    if best.area is not None and not math.isnan(best.area.value):
        value = MetricUnit(findings.experiment.metric).format(best.area.value)
        text += f". {best.strategy} has the best area, {value}"
    return text[0].upper() + text[1:] + "."


def describe_interval_coverage(seeds: int) -> list[str]:
    """A note on the coverage of intervals over few seeds."""
    if seeds < 2:
        return ["With one seed there is no interval and no test."]
    if seeds < 5:
        most = f"{100 * (1 - 2.0 ** (1 - seeds)):.0f} %"
        return [
            f"With {seeds} seeds a bootstrap interval covers at most {most}, not 95 %, since it "
            "stays within the range of the seeds; treat it as a hint."
        ]
    if seeds < 8:
        return [
            f"With {seeds} seeds a nominal 95 % interval covers about 92 to 94 % (normal "
            "differences; less for skewed ones)."
        ]
    return []


def describe_seed_caveats(
    experiment: ExperimentRuns, comparisons: Sequence[StrategyComparison]
) -> list[str]:
    """Consequences of the number of seeds for intervals and tests."""
    seeds = min((entry.area.seeds for entry in comparisons), default=len(experiment.seeds))
    notes = describe_interval_coverage(seeds)
    if seeds < 2:
        return notes
    family = max((entry.family for entry in comparisons), default=0)
    least = 2.0 ** (1 - seeds)
    if least * family > LEVEL:
        notes.append(
            f"With {seeds} seeds the sign-flip test cannot give a p-value below {least:.3g}, or "
            f"{min(1.0, least * family):.3g} after correction for {family} comparisons. So the t "
            "test decides between “ahead” and “no evidence”; it assumes normal differences."
        )
    return notes


def describe_untested_strategies(findings: ExperimentFindings, baseline: str) -> str:
    """Strategies that the tests leave out; empty if there are none."""
    names, comparisons = findings.untested(baseline), findings.comparisons[baseline]
    count = max((comparison.family for comparison in comparisons), default=0)
    if not names or not count:
        return ""
    experiment = findings.experiment
    verb, pronoun = ("has", "it is") if len(names) == 1 else ("have", "they are")
    tests = f"{count} comparison{'s' if count != 1 else ''} with {baseline}"
    last = f"{experiment.labels[-1]:,} {experiment.axis}"
    return (
        f"{join_strategy_names(names)} {verb} no run up to {last} under a seed of {baseline}: "
        f"{pronoun} not tested, and not among the {tests} that the p-values are corrected for."
    )


def describe_code_versions(experiment: ExperimentRuns) -> str:
    """The versions of the code that produced the results; empty if there is one."""
    lines = [entry for entries in experiment.rounds.values() for entry in entries]
    counts = Counter(entry.code or "not recorded" for entry in lines)
    if len(counts) < 2:
        return ""
    parts = [f"{code} ({count:,} lines)" for code, count in sorted(counts.items())]
    return (
        f"These results come from {len(counts)} versions of the code: {join_strategy_names(parts)}."
    )


def describe_mean_ranks(found: CombinedFindings) -> str:
    """Sentences about the ranks over data sets."""
    ranks = found.ranks
    if ranks is None:
        return "Mean ranks need two data sets with two strategies in common."
    text = (
        f"Mean rank of the area over {ranks.data_sets} experiments, 1 is best. "
        f"{ranks.names[0]} has the best, {ranks.ranks[0]:.2f}. "
    )
    if not math.isnan(ranks.p_value):
        result = "differ" if ranks.p_value <= LEVEL else "cannot be distinguished"
        text += f"Friedman's test: the strategies {result} (p {format_p_value(ranks.p_value)}). "
    text += (
        f"By Nemenyi's test two strategies differ if their ranks are more than "
        f"{ranks.critical_difference:.2f} apart; a bar joins those that do not."
    )
    if ranks.data_sets < 5:
        text += " With this few experiments only very large differences are significant."
    return text


def join_strategy_names(names: Sequence[str]) -> str:
    """Names joined by commas and "and"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
