"""Tables of the frozen feature experiments, computed from their committed lines; see `update.py`.

A learning curve is summarised by its means over the first, middle and last third of the rounds, and
by the labels at which its mean over seeds reaches what random reaches with half and with all of its
labels. Differences are paired by seed and tested by Student's t, corrected by Holm's method for all
strategies of an experiment; ``*`` marks p of at most 0.05
with three seeds or more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from labelwise.benchmark.labelling_run import ORACLE
from labelwise.benchmark.report.experiment import ExperimentRuns
from labelwise.benchmark.report.findings import find_shared_seeds
from labelwise.benchmark.statistics import (
    LEVEL,
    correct_holm,
    labels_needed,
    paired_difference,
)
from labelwise.rounds.default_strategies import BASELINE, COVERING, DEFAULT, FROZEN_BASELINES

FEWEST_TESTED = 3  # Number of pairs from which a difference may be called significant
SHOWN = 12
"""Number of strategies in the table of an experiment."""

THIRDS = ("first", "middle", "last")


@dataclass(frozen=True)
class PairedGain:
    """A mean difference in the metric, positive if better, and its corrected p-value."""

    value: float
    p: float
    seeds: int

    def format(self, scale: float) -> str:
        """The gain with its sign, and a star if it is significant."""
        significant = self.p <= LEVEL and self.seeds >= FEWEST_TESTED
        return f"{scale * self.value:+.2f}{'*' if significant else ''}"


@dataclass(frozen=True)
class CurveSummary:
    """One strategy of an experiment."""

    strategy: str
    seeds: int
    thirds: tuple[float, float, float]  # means over the thirds of the rounds
    # Labels to match random with half and with all labels, on shared seeds; inf if never
    needed: tuple[float, float]
    measures: dict[str, float]
    gains: dict[str, PairedGain]  # over random and other strategies, whole curve
    first_gain: PairedGain | None  # over random, first third
    oracle_share: float  # gain over random as a share of the oracle's; nan without an oracle


def summarise_curves(
    experiment: ExperimentRuns, against: Sequence[str] = (BASELINE,)
) -> list[CurveSummary]:
    """Summaries of all strategies with a complete run, compared with those in ``against``."""
    names = [name for name in experiment.strategies if experiment.is_complete(name).any()]
    known = [name for name in against if name in names]
    gains = {other: _compare_all(experiment, names, other, slice(None)) for other in known}
    first = _compare_all(experiment, names, BASELINE, _third(experiment, 0))
    found = []
    for name in names:
        curves = experiment.curves(name)[experiment.is_complete(name)]
        low, middle, high = (float(curves[:, _third(experiment, part)].mean()) for part in range(3))
        found.append(
            CurveSummary(
                name,
                len(curves),
                (low, middle, high),
                _match_baseline(experiment, name),
                _mean_measures(experiment, name),
                {other: gains[other][name] for other in known if name in gains[other]},
                first.get(name),
                _share_of_oracle(experiment, name),
            )
        )
    return found


def format_experiment(experiment: ExperimentRuns, against: Sequence[str] = FROZEN_BASELINES) -> str:
    """The table of one experiment: the `SHOWN` best strategies and those in ``against``."""
    summaries = summarise_curves(experiment, against)
    accuracy = experiment.higher_is_better
    scale, digits = (100, 1) if accuracy else (1, 3)
    half, last = _targets(experiment)
    measures = [
        name for name in (summaries[0].measures if summaries else {}) if name != experiment.metric
    ]
    head = [
        "strategy",
        "seeds",
        *(f"{third} third" for third in THIRDS),
        f"labels for {BASELINE}'s {half}",
        f"for its {last}",
        *(name.replace("_", " ") for name in measures),
        *(f"over {name}" for name in against if name in experiment.strategies),
        *(["of the oracle's gain"] if ORACLE in experiment.strategies else []),
    ]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    order = sorted(summaries, key=lambda entry: -experiment.sign * sum(entry.thirds))
    always = {ORACLE, DEFAULT[False], *against}
    for entry in [
        own for place, own in enumerate(order) if place < SHOWN or own.strategy in always
    ]:
        cells = [
            f"`{entry.strategy}`",
            str(entry.seeds),
            *(f"{scale * value:.{digits}f}" for value in entry.thirds),
            *(_format_labels(value, last) for value in entry.needed),
            *(f"{scale * entry.measures[name]:.{digits}f}" for name in measures),
            *(
                entry.gains[name].format(_gain_scale(experiment)) if name in entry.gains else ""
                for name in against
                if name in experiment.strategies
            ),
        ]
        if ORACLE in experiment.strategies:
            share = entry.oracle_share
            cells.append("" if np.isnan(share) else f"{100 * share:.0f} %")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def format_overview(experiments: Sequence[ExperimentRuns]) -> str:
    """Gains over random, strategies by experiments: first third and, in brackets, whole curve.

    Points of accuracy, or per cent of the error of a regression. The strategy with the largest mean
    gain comes first.
    """
    found = [{entry.strategy: entry for entry in summarise_curves(own)} for own in experiments]
    every = dict.fromkeys(name for own in experiments for name in own.strategies)
    gains = {}
    for name in every:
        measured = [
            _gain_scale(own) * entries[name].gains[BASELINE].value
            for own, entries in zip(experiments, found, strict=True)
            if name in entries and BASELINE in entries[name].gains
        ]
        if measured:
            gains[name] = float(np.mean(measured))
    heads = [own.name.removeprefix("frozen-") for own in experiments]
    lines = [f"| strategy | seeds | {' | '.join(heads)} |", f"|---|---|{'---|' * len(heads)}"]
    for name in sorted(gains, key=lambda name: -gains[name]):
        cells, seeds = [], set()
        for own, entries in zip(experiments, found, strict=True):
            entry = entries.get(name)
            if entry is None or entry.first_gain is None:
                cells.append("")
                continue
            scale = _gain_scale(own)
            cells.append(
                f"{entry.first_gain.format(scale)} ({entry.gains[BASELINE].format(scale)})"
            )
            seeds.add(entry.seeds)
        lines.append(f"| `{name}` | {_format_range(seeds)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def format_variants(experiments: Sequence[ExperimentRuns]) -> str:
    """Mean differences to the default strategy over the whole curve, in points of accuracy.

    Runs are paired by seed; in brackets, the number of pairs.
    """
    default = DEFAULT[False]
    heads = [own.name.removeprefix("frozen-") for own in experiments]
    lines = [f"| variant | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for name in dict.fromkeys(name for own in experiments for name in own.strategies):
        cells = []
        for own in experiments:
            if name == default or name not in own.strategies:
                cells.append("")
                continue
            shared = find_shared_seeds(own, name, default)
            mine, theirs = (own.curves(each)[shared].mean() for each in (name, default))
            cells.append(f"{100 * (mine - theirs):+.2f} ({shared.sum()})" if shared.any() else "")
        if any(cells):
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def format_needed(experiments: Sequence[ExperimentRuns]) -> str:
    """Labels that strategies need for what random reaches with all of its labels."""
    shown = (*FROZEN_BASELINES[1:], DEFAULT[False])
    heads = [f"`{name}`" for name in shown[:-1]]
    lines = [f"| | seeds | {BASELINE} | {' | '.join(heads)} | labelwise default |"]
    lines.append(f"|---|---|---|{'---|' * len(shown)}")
    for own in experiments:
        found = {entry.strategy: entry for entry in summarise_curves(own)}
        last = _targets(own)[1]
        cells = [_format_labels(found[name].needed[1], last) for name in shown]
        cells[-1] = f"**{cells[-1]}**"
        name = own.name.removeprefix("frozen-")
        lines.append(f"| {name} | {found[BASELINE].seeds} | {last} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def format_oracle(experiments: Sequence[ExperimentRuns]) -> str:
    """Gains over random of the oracle and of strategies, on the oracle's seeds, with shares.

    Points of accuracy over the whole curve; in brackets, per cent of the oracle's gain. The last
    row has the means of the gains and their ratio.
    """
    shown = (DEFAULT[False], *COVERING, *FROZEN_BASELINES[:0:-1])
    lines = [
        f"| data | seeds | `{ORACLE}` | {' | '.join(f'`{name}`' for name in shown)} |",
        f"|---|---|---|{'---|' * len(shown)}",
    ]
    rows = []
    for own in experiments:
        present = [name for name in (BASELINE, ORACLE, *shown) if name in own.strategies]
        shared = find_shared_seeds(own, *present)
        means = {name: 100 * float(own.curves(name)[shared].mean()) for name in present}
        gains = [means.get(name, np.nan) - means[BASELINE] for name in (ORACLE, *shown)]
        rows.append(gains)
        name = own.name.removeprefix("frozen-")
        lines.append(f"| {name} | {shared.sum()} | {_format_shares(gains)} |")
    if len(rows) > 1:
        lines.append(f"| mean | | {_format_shares(np.mean(rows, axis=0).tolist())} |")
    return "\n".join(lines) + "\n"


def _format_shares(gains: Sequence[float]) -> str:
    """Gains of the oracle and of others, these with their shares of the oracle's."""
    best, *others = gains
    cells = [
        "" if np.isnan(gain) else f"{gain:+.2f} ({100 * gain / best:.0f} %)" for gain in others
    ]
    return " | ".join([f"{best:+.2f}", *cells])


def _format_range(numbers: set[int]) -> str:
    """``5``, or ``3 to 5``."""
    least, most = min(numbers), max(numbers)
    return str(most) if least == most else f"{least} to {most}"


MIXED = ("lcmd (members=True, random_share=0.5)", "lcmd (random_share=0.5)")
"""`mixed_lcmd` on forests, by the predictions of the trees, and on networks, by the last layer."""


def format_summary(experiments: Sequence[ExperimentRuns]) -> str:
    """How the default strategy does on a group of experiments, against random, margin and badge."""
    regression = not experiments[0].higher_is_better
    found = []
    for own in experiments:
        summaries = {entry.strategy: entry for entry in summarise_curves(own, FROZEN_BASELINES)}
        names = MIXED if regression else (DEFAULT[False],)
        found.append(next(summaries[name] for name in names if name in summaries))

    def count(other: str, sign: int) -> set[int]:
        return {
            place
            for place, entry in enumerate(found)
            if sign * entry.gains[other].value > 0 and "*" in entry.gains[other].format(1)
        }

    rows = [
        ("significantly better than random", f"{len(count(BASELINE, 1))} of {len(found)}"),
        ("significantly worse than random", f"{len(count(BASELINE, -1))} of {len(found)}"),
    ]
    if regression:
        logs = [
            np.log(_mean_shared(own, entry.strategy) / _mean_shared(own, BASELINE, entry.strategy))
            for own, entry in zip(experiments, found, strict=True)
        ]
        change = 100 * (np.exp(np.mean(logs)) - 1)
        rows.insert(0, ("geometric mean of the errors, over random's", f"{change:+.1f} %"))
    else:
        gains = [entry.first_gain.value for entry in found if entry.first_gain is not None]
        rows.insert(0, ("mean gain, first third", f"{100 * np.mean(gains):+.1f} points"))
        both = set.intersection(*(count(other, 1) for other in FROZEN_BASELINES[1:]))
        rows.append(("significantly better than margin and badge", f"{len(both)} of {len(found)}"))
    lines = ["| | |", "|---|---|", *(f"| {text} | {value} |" for text, value in rows)]
    return "\n".join(lines) + "\n"


def _mean_shared(experiment: ExperimentRuns, name: str, other: str = BASELINE) -> float:
    """Mean of a strategy's curves on the seeds that it shares with another."""
    return float(experiment.curves(name)[find_shared_seeds(experiment, name, other)].mean())


def _gain_scale(experiment: ExperimentRuns) -> float:
    """Turns gains into points of accuracy, or per cent of random's mean error."""
    if experiment.higher_is_better:
        return 100.0
    return 100 / float(np.nanmean(experiment.curves(BASELINE)))


def _third(experiment: ExperimentRuns, part: int) -> slice:
    """The rounds of the first, middle or last third."""
    ends = np.linspace(0, len(experiment.labels), 4).round().astype(int)
    return slice(int(ends[part]), int(ends[part + 1]))


def _targets(experiment: ExperimentRuns) -> tuple[int, int]:
    """Half and all labels of a curve, as measured."""
    last = int(experiment.labels[-1])
    half = int(experiment.labels[np.searchsorted(experiment.labels, last / 2)])
    return half, last


def _match_baseline(experiment: ExperimentRuns, name: str) -> tuple[float, float]:
    if BASELINE not in experiment.strategies:
        return np.nan, np.nan
    shared = find_shared_seeds(experiment, name, BASELINE)
    if not shared.any():
        return np.nan, np.nan
    base = experiment.curves(BASELINE)[shared].mean(axis=0)
    own = experiment.curves(name)[shared].mean(axis=0)
    places = np.searchsorted(experiment.labels, _targets(experiment))
    half, whole = labels_needed(
        experiment.labels,
        np.stack([own, own]),
        base[places],
        higher_is_better=experiment.higher_is_better,
    )
    return float(half), float(whole)


def _compare_all(
    experiment: ExperimentRuns, names: Sequence[str], other: str, rounds: slice
) -> dict[str, PairedGain]:
    """Gains of all strategies over one, corrected for their number."""
    pairs = {}
    if other not in experiment.strategies:
        return {}
    for name in names:
        shared = find_shared_seeds(experiment, name, other)
        if name == other or name == ORACLE or not shared.any():
            continue
        own, base = (
            experiment.curves(each)[shared][:, rounds].mean(axis=1) for each in (name, other)
        )
        higher = experiment.higher_is_better
        pairs[name] = paired_difference(own, base, higher_is_better=higher)
    corrected = correct_holm([pair.p_t for pair in pairs.values()])
    return {
        name: PairedGain(pair.gain.value, float(p), pair.seeds)
        for (name, pair), p in zip(pairs.items(), corrected, strict=True)
    }


def _share_of_oracle(experiment: ExperimentRuns, name: str) -> float:
    """Gain over random divided by the oracle's, on seeds that all three have."""
    if name == BASELINE or not {ORACLE, BASELINE} <= set(experiment.strategies):
        return np.nan
    shared = find_shared_seeds(experiment, name, BASELINE, ORACLE)
    if not shared.any():
        return np.nan
    means = [experiment.curves(each)[shared].mean() for each in (name, BASELINE, ORACLE)]
    return float((means[0] - means[1]) / (means[2] - means[1]))


def _mean_measures(experiment: ExperimentRuns, name: str) -> dict[str, float]:
    complete = {
        seed
        for seed, whole in zip(experiment.seeds, experiment.is_complete(name), strict=True)
        if whole
    }
    lines = [line for line in experiment.rounds[name] if line.seed in complete]
    names = lines[0].measures if lines else {}
    return {key: float(np.mean([line.measures[key] for line in lines])) for key in names}


def _format_labels(value: float, last: int) -> str:
    if np.isnan(value):
        return ""
    return f"{value:.0f}" if np.isfinite(value) else f"over {last}"
