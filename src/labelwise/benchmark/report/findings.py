"""Results of the analysis of an experiment: areas, labels needed, differences, wins, costs.

Every comparison is paired: it uses the seeds whose runs are complete for both strategies. The
differences of all strategies to one baseline are one family for Holm's correction.

Numbers of labels come from mean curves over seeds. Their targets (the best final mean, or a
baseline's) depend on the runs too, so they are recomputed in every bootstrap resample.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Floats
from labelwise.benchmark.report.experiment import ExperimentRuns
from labelwise.benchmark.report.papers import PaperTable, find_paper_table
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.statistics import (
    LEVEL,
    Estimate,
    MeanRanks,
    PairedDifference,
    bootstrap,
    bootstrap_mean,
    correct_holm,
    label_saving,
    labels_needed,
    mean_ranks,
    paired_difference,
    saving_target,
    win_matrix,
)
from labelwise.rounds.default_strategies import REPORTED

SHARE = 0.97  # Share of the best final mean: the target of the ally paper


@dataclass(frozen=True)
class StrategySummary:
    """Measures of one strategy; estimates are None without a complete run."""

    strategy: str
    runs: int
    area: Estimate | None = None  # mean area under the curve, in the unit of the metric
    area_deviation: float = float("nan")  # its standard deviation over seeds, nan for one
    final: Estimate | None = None
    needed: Estimate | None = None  # labels to reach the share of the best final mean
    # Label saving against the best other baseline, or None without one
    saved: Estimate | None = None
    needed_baseline: Estimate | None = None  # labels to reach the final value of the first baseline


@dataclass(frozen=True)
class StrategyComparison:
    """One strategy against a baseline; the area decides the verdict."""

    strategy: str
    baseline: str
    area: PairedDifference
    final: PairedDifference
    p_flip: float  # corrected p-value of the area's sign-flip test
    p_t: float  # corrected p-value of the area's t test
    family: int  # number of comparisons that the correction counts

    @property
    def verdict(self) -> str:
        """Better, likely better, unclear, likely worse, worse, or "one seed".

        Likely: significant by the t test, and too few seeds for the sign-flip test.
        """
        gain, seeds = self.area.gain, self.area.seeds
        if seeds < 2:
            return "one seed"
        side = "better" if gain.value > 0 else "worse"
        if self.p_flip <= LEVEL:
            return side
        powerless = 2.0 ** (1 - seeds) * self.family > LEVEL
        return f"likely {side}" if powerless and self.p_t <= LEVEL else "unclear"

    @property
    def significant(self) -> bool:
        """Whether a test supports the difference."""
        return self.verdict not in ("unclear", "one seed")


@dataclass(frozen=True)
class StrategyCosts:
    """Costs of a strategy, means over seeds; nan where nothing was recorded."""

    strategy: str
    first: float  # seconds to represent and select for the first batch
    batch: float  # seconds to represent and select, mean over all batches
    train: float
    megabytes: float
    imbalance: float  # largest over smallest class count with all labels
    effective: float  # effective size of the weights as a share of the picks; nan without weights
    spread: float  # standard deviation over the models with all labels; nan for one model


@dataclass(frozen=True)
class ExperimentFindings:
    """Everything that one section of the report contains."""

    experiment: ExperimentRuns
    summaries: tuple[StrategySummary, ...]
    baselines: tuple[str, ...]  # the requested baselines that were run
    comparisons: dict[str, tuple[StrategyComparison, ...]]
    wins: Floats  # ``(k, k)``, in the order of the summaries
    costs: tuple[StrategyCosts, ...]
    target: float  # 97 % of the best final mean; nan where that is meaningless

    @property
    def names(self) -> tuple[str, ...]:
        """The strategies, the best area first."""
        return tuple(summary.strategy for summary in self.summaries)

    @property
    def baseline(self) -> str | None:
        """The first baseline that was run."""
        return self.baselines[0] if self.baselines else None

    def untested(self, baseline: str) -> tuple[str, ...]:
        """Strategies without a seed in common with a baseline."""
        tested = {comparison.strategy for comparison in self.comparisons[baseline]}
        return tuple(name for name in self.names if name != baseline and name not in tested)

    def printed(self, quantity: str) -> PaperTable | None:
        """The paper's values for this experiment; ``final`` means the metric."""
        if quantity == "final" and self.experiment.metric in ("seconds", "imbalance"):
            quantity = self.experiment.metric
        found = find_paper_table(self.experiment.name, self.experiment.dataset, quantity)
        known = found and set(found.values) & {strip_strategy_options(name) for name in self.names}
        return found if known else None


@dataclass(frozen=True)
class CombinedFindings:
    """Results over several experiments."""

    names: tuple[str, ...]
    wins: Floats  # ``(k, k)``, mean over experiments
    # Of the strategies that all experiments have; None if there are too few
    ranks: MeanRanks | None
    left_out: tuple[str, ...]  # strategies without a complete run in some experiment


def analyse_experiment(
    experiment: ExperimentRuns, baselines: Sequence[str] = REPORTED
) -> ExperimentFindings:
    """Compute all results of an experiment; the first baseline is used in the summary."""
    run = tuple(name for name in baselines if name in experiment.strategies)
    summaries = [_summarise_strategy(experiment, name, run) for name in experiment.strategies]
    summaries.sort(key=lambda entry: -experiment.sign * entry.area.value if entry.area else np.inf)
    names = tuple(entry.strategy for entry in summaries)
    return ExperimentFindings(
        experiment,
        tuple(summaries),
        run,
        {baseline: _compare_with_baseline(experiment, names, baseline) for baseline in run},
        win_matrix([_take_later_curves(experiment, names)], names),
        tuple(_collect_strategy_costs(experiment, name) for name in names),
        _compute_share_target(experiment),
    )


def combine_findings(findings: Sequence[ExperimentFindings]) -> CombinedFindings:
    """Mean ranks of the areas and mean of the win matrices over experiments."""
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
    curves = [_take_later_curves(entry.experiment, entry.names) for entry in findings]
    left_out = tuple(name for name in every if name not in common)
    return CombinedFindings(names, win_matrix(curves, names), ranks, left_out)


def strip_strategy_options(name: str) -> str:
    """A strategy's name without its options."""
    return name.partition(" (")[0]


def _take_later_curves(experiment: ExperimentRuns, names: Sequence[str]) -> dict[str, Floats]:
    """Curves after the first round, higher is better."""
    return {name: experiment.sign * experiment.curves(name)[:, 1:] for name in names}


def _summarise_strategy(
    experiment: ExperimentRuns, name: str, baselines: Sequence[str]
) -> StrategySummary:
    areas, finals = experiment.areas(name), experiment.finals(name)
    complete = np.isfinite(areas)
    runs = int(complete.sum())
    if not runs:
        return StrategySummary(name, 0)
    return StrategySummary(
        name,
        runs,
        bootstrap_mean(areas[complete]),
        float(areas[complete].std(ddof=1)) if runs > 1 else float("nan"),
        bootstrap_mean(finals[complete]),
        _estimate_labels_needed(experiment, name),
        _estimate_label_saving(experiment, name, baselines),
        estimate_needed_for_baseline(experiment, name, baselines[0]) if baselines else None,
    )


def _compare_with_baseline(
    experiment: ExperimentRuns, names: Sequence[str], baseline: str
) -> tuple[StrategyComparison, ...]:
    higher = experiment.higher_is_better
    pairs = {}
    for name in names:
        shared = find_shared_seeds(experiment, name, baseline)
        if name == baseline or not shared.any():
            continue
        areas = (
            experiment.areas(name, common_with=baseline),
            experiment.areas(baseline, common_with=name),
        )
        finals = experiment.finals(name), experiment.finals(baseline)
        pairs[name] = tuple(
            paired_difference(ours[shared], theirs[shared], higher_is_better=higher)
            for ours, theirs in (areas, finals)
        )
    flips = correct_holm([area.p_flip if area.seeds > 1 else np.nan for area, _ in pairs.values()])
    scores = correct_holm([area.p_t for area, _ in pairs.values()])
    family = int(np.isfinite(scores).sum())
    return tuple(
        StrategyComparison(name, baseline, area, final, float(flip), float(score), family)
        for (name, (area, final)), flip, score in zip(pairs.items(), flips, scores, strict=True)
    )


# Labels needed.

SeedMask = NDArray[np.bool_]


def estimate_needed_for_baseline(
    experiment: ExperimentRuns, name: str, baseline: str
) -> Estimate | None:
    """Labels to reach a baseline's final value; None without a shared seed."""
    seeds = find_shared_seeds(experiment, name, baseline)
    if not seeds.any():
        return None
    finals = experiment.finals(baseline)[seeds]
    return bootstrap(
        lambda shares: mean_labels_needed(experiment, name, seeds, shares, shares @ finals),
        int(seeds.sum()),
    )


def _compute_share_target(experiment: ExperimentRuns) -> float:
    """The share of the best final mean; nan where that is meaningless."""
    seeds = np.ones(len(experiment.seeds), dtype=bool)
    shares = np.full((1, len(seeds)), 1 / len(seeds))
    return float(_resample_share_targets(experiment, seeds, shares)[0])


def _estimate_labels_needed(experiment: ExperimentRuns, name: str) -> Estimate | None:
    """Labels to reach the share of the best final mean; None without complete runs or target."""
    seeds = experiment.is_complete(name)
    if not seeds.any() or not np.isfinite(_compute_share_target(experiment)):
        return None

    def resample_labels_needed(shares: Floats) -> Floats:
        targets = _resample_share_targets(experiment, seeds, shares)
        return mean_labels_needed(experiment, name, seeds, shares, targets)

    return bootstrap(resample_labels_needed, int(seeds.sum()))


def _estimate_label_saving(
    experiment: ExperimentRuns, name: str, baselines: Sequence[str]
) -> Estimate | None:
    """Label saving against the best of the other baselines; None without pairs."""
    others = [other for other in baselines if other != name and experiment.is_complete(other).any()]
    seeds = find_shared_seeds(experiment, name, *others)
    if not others or not seeds.any() or not np.isfinite(_compute_share_target(experiment)):
        return None

    def resample_label_saving(shares: Floats) -> Floats:
        targets = _resample_share_targets(experiment, seeds, shares)
        ours = mean_labels_needed(experiment, name, seeds, shares, targets)
        theirs = [mean_labels_needed(experiment, other, seeds, shares, targets) for other in others]
        found: Floats = label_saving(ours, np.min(theirs, axis=0))
        return found

    return bootstrap(resample_label_saving, int(seeds.sum()))


def find_shared_seeds(experiment: ExperimentRuns, *names: str) -> SeedMask:
    """Seeds with complete runs of all these strategies."""
    return np.asarray(np.all([experiment.is_complete(name) for name in names], axis=0))


def mean_labels_needed(
    experiment: ExperimentRuns, name: str, seeds: SeedMask, shares: Floats, targets: Floats
) -> Floats:
    """Labels at which the mean curve under every row of shares reaches its target: ``(m,)``."""
    curves = experiment.curves(name)[seeds]
    measured = np.isfinite(curves).all(axis=0)
    found: Floats = labels_needed(
        experiment.labels[measured],
        shares @ curves[:, measured],
        targets,
        higher_is_better=experiment.higher_is_better,
    )
    return found


def _resample_share_targets(experiment: ExperimentRuns, seeds: SeedMask, shares: Floats) -> Floats:
    """The target under every row of shares, ``(m,)``, from complete runs."""
    finals = np.stack([experiment.finals(name)[seeds] for name in experiment.strategies])
    measured = np.isfinite(finals)
    weights = shares @ measured.T
    sums = shares @ np.where(measured, finals, 0.0).T
    means = np.full(sums.shape, np.nan)
    np.divide(sums, weights, out=means, where=weights > 0)
    known = ~np.isnan(means).all(axis=1)
    targets = np.full(len(shares), np.nan)
    targets[known] = saving_target(
        means[known].T, share=SHARE, higher_is_better=experiment.higher_is_better
    )
    return targets


# Costs.


def _collect_strategy_costs(experiment: ExperimentRuns, name: str) -> StrategyCosts:
    rounds = experiment.rounds[name]
    bought = [entry for entry in rounds if entry.picks]
    last = [entry for entry in rounds if entry.labels == int(experiment.labels[-1])]
    return StrategyCosts(
        name,
        _mean_of_known(_sum_query_seconds(entry) for entry in bought if entry.round == 0),
        _mean_of_known(_sum_query_seconds(entry) for entry in bought),
        _mean_of_known(entry.seconds.get("train", np.nan) for entry in rounds),
        max((entry.peak_megabytes for entry in rounds if entry.peak_megabytes), default=np.nan),
        _mean_of_known(np.nan if entry.imbalance is None else entry.imbalance for entry in last),
        _mean_of_known(_iterate_effective_shares(bought)),
        _mean_of_known(float(np.std(entry.values)) for entry in last if len(entry.values) > 1),
    )


def _iterate_effective_shares(bought: Sequence[RoundResult]) -> Iterator[float]:
    """Effective size of weights as a share of the weighted picks, in one-shot runs all so far."""
    picks: dict[int, int] = {}
    for entry in bought:
        before = picks.get(entry.seed, 0) if entry.options.get("one_shot") else 0
        picks[entry.seed] = before + len(entry.picks)
        if entry.effective_size is not None:
            yield entry.effective_size / picks[entry.seed]


def _sum_query_seconds(entry: RoundResult) -> float:
    """Seconds of representing and selecting; nan if neither was recorded."""
    parts = [entry.seconds[name] for name in ("represent", "select") if name in entry.seconds]
    return sum(parts) if parts else float("nan")


def _mean_of_known(values: Iterable[float]) -> float:
    """The mean of the values that are not nan; nan if there are none."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")
