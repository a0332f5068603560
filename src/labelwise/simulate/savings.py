r"""Labels that every strategy saves in a simulation, as numbers and sentences.

The target is the final value of random. A strategy saves :math:`1 - n / n_{random}`, with n the
labels at which the mean curve first reaches the target. Target and labels are recomputed in every
bootstrap resample of the seeds. Whether a strategy beats random is decided by the paired
differences of the whole curves, corrected for the number of strategies, as in every report.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from labelwise.arrays import Floats
from labelwise.benchmark.report.experiment import group_experiments
from labelwise.benchmark.report.findings import (
    ExperimentFindings,
    StrategyComparison,
    analyse_experiment,
    find_shared_seeds,
    mean_labels_needed,
)
from labelwise.benchmark.report.texts import MetricUnit, describe_interval_coverage
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.statistics import Estimate, bootstrap, label_saving
from labelwise.errors import BadInput
from labelwise.rounds.default_strategies import BASELINE


@dataclass(frozen=True)
class LabelSaving:
    """One strategy against random."""

    strategy: str
    needed: Estimate  # labels at which it reaches the final value of random; inf if it never does
    baseline: float  # labels at which random reaches it, on the mean curve
    saved: Estimate  # share of random's labels that it saves; -inf if it never reaches the target
    target: float  # final value of random
    final: float
    most: int
    verdict: str  # better, likely better, unclear, likely worse, worse, or one seed
    metric: str

    @property
    def clear(self) -> bool:
        """Whether it beats random."""
        return self.verdict in ("better", "likely better")

    @property
    def cells(self) -> tuple[str, str]:
        """Labels needed and the share saved, for a table."""
        if not math.isfinite(self.needed.value):
            return f"over {self.most:,}", "not reached"
        return f"{self.needed.value:,.0f}", f"{100 * self.saved.value:.0f} %"

    @property
    def sentence(self) -> str:
        """One sentence about the saving."""
        unit = MetricUnit(self.metric)
        target = f"{unit.format(self.target)} {'% ' if unit.percent else ''}{self.metric}"
        if not math.isfinite(self.needed.value):
            return (
                f"{self.strategy} does not reach the final value of random ({target}) with "
                f"{self.most:,} labels"
            )
        text = (
            f"{self.strategy} needs {self.needed.value:,.0f} of the {self.baseline:,.0f} labels "
            f"that random needs for {target}: {describe_saving_share(self.saved)}"
        )
        return text if self.clear else f"{text}; {_DOUBTS[self.verdict]}"


_DOUBTS = {
    "one seed": "one seed is not enough to tell",
    "unclear": "not clearly better over the whole curve",
    "likely worse": "behind random over the whole curve",
    "worse": "behind random over the whole curve",
}


def describe_saving_share(saved: Estimate) -> str:
    """A saving with its interval.

    >>> describe_saving_share(Estimate(0.38, 0.2, 0.5))
    'saves 38 % (95 % interval 20 to 50 %)'
    >>> describe_saving_share(Estimate(-0.1, -math.inf, 0.05))
    'takes 10 % more (95 % interval of the saving: never there to 5 %)'
    """
    if saved.value < 0:
        text, about = f"takes {-100 * saved.value:.0f} % more", "95 % interval of the saving:"
    else:
        text, about = f"saves {100 * saved.value:.0f} %", "95 % interval"
    return text if math.isnan(saved.low) else f"{text} ({about} {format_saving_interval(saved)})"


def format_saving_interval(saved: Estimate) -> str:
    """The ends of a saving's interval; infinite where the target is never reached."""
    if math.isnan(saved.low):
        return ""
    low, high = (
        f"{100 * end:.0f}" if math.isfinite(end) else "never there"
        for end in (saved.low, saved.high)
    )
    return f"{low} to {high} %" if math.isfinite(saved.high) else low


def make_saving_rows(found: Sequence[LabelSaving]) -> list[tuple[str, ...]]:
    """A table of the savings, its head first; then random and the strategies."""
    if not found:
        return []
    first, unit = found[0], MetricUnit(found[0].metric)
    head = ("strategy", "labels needed", "saved", "95 % interval", f"last {unit.name}", "verdict")
    rows = [(BASELINE, f"{first.baseline:,.0f}", "", "", unit.format(first.target), "")]
    for entry in found:
        verdict = entry.verdict.replace("unclear", "no evidence")
        cells = (
            *entry.cells,
            format_saving_interval(entry.saved),
            unit.format(entry.final),
            verdict,
        )
        rows.append((entry.strategy, *cells))
    return [head, *rows]


def compute_savings(rounds: Iterable[RoundResult]) -> tuple[LabelSaving, ...]:
    """Compare all strategies of one simulation with the baseline, the largest saving first."""
    found = group_experiments(rounds)
    if len(found) != 1:
        raise BadInput(f"give the results of one simulation; got those of {len(found)}")
    if BASELINE not in found[0].strategies:
        raise BadInput(f"{BASELINE} was not run, so there is nothing to compare with")
    findings = analyse_experiment(found[0], (BASELINE,))
    made = [_compute_strategy_saving(findings, entry) for entry in findings.comparisons[BASELINE]]
    return tuple(sorted(made, key=lambda entry: (-entry.saved.value, -entry.saved.low)))


def _compute_strategy_saving(
    findings: ExperimentFindings, comparison: StrategyComparison
) -> LabelSaving:
    experiment, pair = findings.experiment, (comparison.strategy, comparison.baseline)
    seeds = find_shared_seeds(experiment, *pair)
    finals = experiment.finals(comparison.baseline)[seeds]

    def resample_labels_needed(name: str, shares: Floats) -> Floats:
        return mean_labels_needed(experiment, name, seeds, shares, shares @ finals)

    def resample_label_saving(shares: Floats) -> Floats:
        share: Floats = label_saving(*(resample_labels_needed(name, shares) for name in pair))
        return share

    count = int(seeds.sum())
    ours, theirs = (
        bootstrap(lambda shares, name=name: resample_labels_needed(name, shares), count)  # type: ignore[misc]
        for name in pair
    )
    return LabelSaving(
        comparison.strategy,
        ours,
        theirs.value,
        bootstrap(resample_label_saving, count),
        float(finals.mean()),
        float(experiment.finals(comparison.strategy)[seeds].mean()),
        int(experiment.labels[-1]),
        comparison.verdict,
        experiment.metric,
    )


def describe_default_saving(found: Sequence[LabelSaving], default: str) -> str:
    """One sentence on the default strategy for anybody; empty if it was not run.

    >>> sure = Estimate(0.55, 0.5, 0.6)
    >>> needed = Estimate(90, 80, 100)
    >>> entry = LabelSaving("d", needed, 200, sure, 0.7, 0.8, 200, "better", "accuracy")
    >>> describe_default_saving([entry], "d")
    'The default (d) needs 90 labels to reach what random reaches with 200.'
    """
    entry = next((own for own in found if own.strategy == default), None)
    if entry is None:
        return ""
    if not math.isfinite(entry.needed.value):
        return (
            f"The default ({default}) does not reach with {entry.most:,} labels what {BASELINE} "
            f"reaches with {entry.baseline:,.0f}."
        )
    doubt = "" if entry.clear else f" ({_DOUBTS[entry.verdict]})"
    return (
        f"The default ({default}) needs {entry.needed.value:,.0f} labels to reach what {BASELINE} "
        f"reaches with {entry.baseline:,.0f}{doubt}."
    )


def describe_saving_conclusion(found: Sequence[LabelSaving], *, seeds: int) -> str:
    """The strategies that beat random, and whether the number of seeds suffices."""
    if not found:
        return "Nothing was compared with random."
    names = [entry.strategy for entry in found if entry.clear]
    if not names:
        return "No strategy beats random clearly here."
    likely = any(entry.verdict == "likely better" for entry in found)
    how = f", as far as {seeds} seeds can show" if likely else ""
    return f"Better than random over the whole curve{how}: {', '.join(names)}."


def list_saving_caveats(found: Sequence[LabelSaving], *, seeds: int, tested: int) -> list[str]:
    """Caveats for a number of seeds and of test items."""
    notes = describe_interval_coverage(seeds)
    if len(found) > 1:
        notes.append(
            f"The best of {len(found)} strategies looks better than it is, because chance helped "
            "it to the top. To be sure, compare it alone with random with more seeds."
        )
    if tested < 100:
        notes.append(
            f"Every measurement uses only {tested} test items; differences of a few points are a "
            "few items."
        )
    return notes
