"""What an experiment shows: areas, labels needed, differences, wins, seconds, imbalance.

Every comparison is paired: it uses the seeds whose runs are whole in both strategies. The
differences of all strategies to one baseline are one family for Holm's correction.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from labelwise.arrays import Floats
from labelwise.benchmark.report.experiment import Experiment
from labelwise.benchmark.report.labels_needed import (
    labels_for_final,
    labels_for_share,
    saving,
    share_target,
)
from labelwise.benchmark.report.papers import PaperTable, paper_table
from labelwise.benchmark.results import Round
from labelwise.benchmark.statistics import (
    Difference,
    Estimate,
    Ranks,
    holm,
    mean_estimate,
    mean_ranks,
    paired_difference,
    win_matrix,
)

LEVEL = 0.05
"""Of the tests that a verdict goes by, after correction."""


@dataclass(frozen=True)
class Summary:
    """One strategy by itself; estimates are None where no run is whole.

    Attributes:
        strategy: its name.
        runs: whole runs.
        area: mean area under the curve, in the metric's unit.
        area_deviation: its standard deviation over seeds, nan for one.
        final: mean of the last measurement.
        needed: labels to reach the share of the best final mean.
        saved: label saving against the best other baseline, or None without one.
        needed_random: labels to reach what the first baseline reaches with all its labels.
    """

    strategy: str
    runs: int
    area: Estimate | None = None
    area_deviation: float = float("nan")
    final: Estimate | None = None
    needed: Estimate | None = None
    saved: Estimate | None = None
    needed_random: Estimate | None = None


@dataclass(frozen=True)
class Contrast:
    """One strategy against a baseline; ``area`` decides, ``final`` is told beside it.

    Attributes:
        strategy: its name.
        baseline: the other's.
        area: differences of areas.
        final: differences of the last measurements.
        p_flip: of the area's sign-flip test, corrected.
        p_t: of its t test, corrected.
        family: how many comparisons the correction counts.
    """

    strategy: str
    baseline: str
    area: Difference
    final: Difference
    p_flip: float
    p_t: float
    family: int

    @property
    def verdict(self) -> str:
        """Better, likely better, unclear, likely worse, worse, or "one seed".

        Likely: the t test finds it, and the sign-flip test cannot with so few seeds.
        """
        gain, seeds = self.area.gain, self.area.seeds
        if seeds < 2:
            return "one seed"
        side = "better" if gain.value > 0 else "worse"
        if self.p_flip <= LEVEL:
            return side
        powerless = 2.0 ** (1 - seeds) * self.family > LEVEL
        return f"likely {side}" if powerless and self.p_t <= LEVEL else "unclear"


@dataclass(frozen=True)
class Costs:
    """What a strategy took, means over seeds; nan where nothing was noted.

    Attributes:
        strategy: its name.
        first: seconds to represent and select for the first batch.
        batch: the same, over all batches.
        train: seconds of training, per round.
        megabytes: the largest peak.
        imbalance: largest over smallest class count with all labels.
        effective: effective size of a batch, or of all picks in one shot up to it, as a share;
            nan without weights.
        spread: standard deviation over the models with all labels; nan for one model.
    """

    strategy: str
    first: float
    batch: float
    train: float
    megabytes: float
    imbalance: float
    effective: float
    spread: float


@dataclass(frozen=True)
class Findings:
    """All that one section of the report says.

    Attributes:
        experiment: the runs.
        summaries: per strategy, the best area first.
        baselines: those of the wanted baselines that were run.
        contrasts: per baseline, in the order of the summaries.
        wins: ``(k, k)``, in the order of the summaries.
        costs: in the order of the summaries.
        target: what 97 % of the best final mean is; nan if that means nothing.
    """

    experiment: Experiment
    summaries: tuple[Summary, ...]
    baselines: tuple[str, ...]
    contrasts: dict[str, tuple[Contrast, ...]]
    wins: Floats
    costs: tuple[Costs, ...]
    target: float

    @property
    def names(self) -> tuple[str, ...]:
        """The strategies, the best area first."""
        return tuple(summary.strategy for summary in self.summaries)

    def untested(self, baseline: str) -> tuple[str, ...]:
        """Strategies that no seed compares with a baseline, so that no correction counts them."""
        tested = {contrast.strategy for contrast in self.contrasts[baseline]}
        return tuple(name for name in self.names if name != baseline and name not in tested)

    def printed(self, quantity: str) -> PaperTable | None:
        """What the paper prints for this experiment; ``final`` is of the metric, whatever it is."""
        if quantity == "final" and self.experiment.metric in ("seconds", "imbalance"):
            quantity = self.experiment.metric
        found = paper_table(self.experiment.name, self.experiment.dataset, quantity)
        known = found and set(found.values) & {plain(name) for name in self.names}
        return found if known else None


def analyse(experiment: Experiment, baselines: Sequence[str] = ("random", "badge")) -> Findings:
    """Compute all that the report says about an experiment.

    Args:
        experiment: the runs.
        baselines: what to compare with, the first of them for the plain sentences.
    """
    there = tuple(name for name in baselines if name in experiment.strategies)
    summaries = [_summary(experiment, name, there) for name in experiment.strategies]
    summaries.sort(key=lambda entry: -experiment.sign * entry.area.value if entry.area else np.inf)
    names = tuple(entry.strategy for entry in summaries)
    later = {name: experiment.sign * experiment.curves(name)[:, 1:] for name in names}
    return Findings(
        experiment,
        tuple(summaries),
        there,
        {baseline: _contrasts(experiment, names, baseline) for baseline in there},
        win_matrix([later], names),
        tuple(_costs(experiment, name) for name in names),
        share_target(experiment),
    )


@dataclass(frozen=True)
class Overall:
    """What several experiments show together.

    Attributes:
        names: the strategies that any experiment has, the best mean rank first where there is one.
        wins: ``(k, k)``, the mean over experiments.
        ranks: of the strategies that all experiments have; None if there are too few.
        left_out: strategies that have no whole run in some experiment.
    """

    names: tuple[str, ...]
    wins: Floats
    ranks: Ranks | None
    left_out: tuple[str, ...]


def overall(findings: Sequence[Findings]) -> Overall:
    """Put experiments together: mean ranks of the areas, and the mean of the win matrices."""
    every = tuple(dict.fromkeys(name for entry in findings for name in entry.names))
    areas = [
        {
            summary.strategy: entry.experiment.sign * summary.area.value
            for summary in entry.summaries
            if summary.area
        }
        for entry in findings
    ]
    common = [name for name in every if all(name in part for part in areas)]
    ranks = None
    if len(findings) > 1 and len(common) > 1:
        ranks = mean_ranks([[part[name] for name in common] for part in areas], common)
    first = ranks.names if ranks else ()
    names = (*first, *(name for name in every if name not in first))
    curves = [
        {name: entry.experiment.sign * entry.experiment.curves(name)[:, 1:] for name in entry.names}
        for entry in findings
    ]
    left_out = tuple(name for name in every if name not in common)
    return Overall(names, win_matrix(curves, names), ranks, left_out)


def plain(name: str) -> str:
    """A strategy's name without its options."""
    return name.partition(" (")[0]


def _summary(experiment: Experiment, name: str, baselines: Sequence[str]) -> Summary:
    areas, finals = experiment.areas(name), experiment.finals(name)
    whole = np.isfinite(areas)
    runs = int(whole.sum())
    if not runs:
        return Summary(name, 0)
    return Summary(
        name,
        runs,
        mean_estimate(areas[whole]),
        float(areas[whole].std(ddof=1)) if runs > 1 else float("nan"),
        mean_estimate(finals[whole]),
        labels_for_share(experiment, name),
        saving(experiment, name, baselines),
        labels_for_final(experiment, name, baselines[0]) if baselines else None,
    )


def _contrasts(experiment: Experiment, names: Sequence[str], baseline: str) -> tuple[Contrast, ...]:
    pairs = {}
    for name in names:
        shared = experiment.whole(name) & experiment.whole(baseline)
        if name == baseline or not shared.any():
            continue
        areas = experiment.areas(name, beside=baseline), experiment.areas(baseline, beside=name)
        finals = experiment.finals(name), experiment.finals(baseline)
        pairs[name] = tuple(
            paired_difference(
                ours[shared], theirs[shared], higher_is_better=experiment.higher_is_better
            )
            for ours, theirs in (areas, finals)
        )
    flips = holm([area.p_flip if area.seeds > 1 else np.nan for area, _ in pairs.values()])
    scores = holm([area.p_t for area, _ in pairs.values()])
    family = int(np.isfinite(scores).sum())
    return tuple(
        Contrast(name, baseline, area, final, float(flip), float(score), family)
        for (name, (area, final)), flip, score in zip(pairs.items(), flips, scores, strict=True)
    )


def _costs(experiment: Experiment, name: str) -> Costs:
    rounds = experiment.rounds[name]
    bought = [entry for entry in rounds if entry.picks]
    most = int(experiment.labels[-1])
    return Costs(
        name,
        _mean(_query_seconds(entry) for entry in bought if entry.round == 0),
        _mean(_query_seconds(entry) for entry in bought),
        _mean(entry.seconds.get("train", np.nan) for entry in rounds),
        max((entry.peak_megabytes for entry in rounds if entry.peak_megabytes), default=np.nan),
        _mean(
            np.nan if entry.imbalance is None else entry.imbalance
            for entry in rounds
            if entry.labels == most
        ),
        _mean(_effective_shares(bought)),
        _mean(
            float(np.std(entry.values))
            for entry in rounds
            if entry.labels == most and len(entry.values) > 1
        ),
    )


def _effective_shares(bought: Sequence[Round]) -> Iterator[float]:
    """The effective size of what each round's weights are of, as a share of it.

    That is a batch; but a strategy that picks in one shot weighs all its picks up to now anew.
    """
    picks: dict[int, int] = {}
    for entry in bought:
        before = picks.get(entry.seed, 0) if entry.options.get("one_shot") else 0
        picks[entry.seed] = before + len(entry.picks)
        if entry.effective_size is not None:
            yield entry.effective_size / picks[entry.seed]


def _query_seconds(entry: Round) -> float:
    """Of representing and selecting together; nan if neither was noted."""
    parts = [entry.seconds[name] for name in ("represent", "select") if name in entry.seconds]
    return sum(parts) if parts else float("nan")


def _mean(values: Iterable[float]) -> float:
    """The mean of what is not nan; nan if nothing is left."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")
