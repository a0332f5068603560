"""The runs of one experiment as arrays: strategies by seeds by label counts."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Floats, Ids
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.statistics import curve_area
from labelwise.errors import BadInput

_AXES = {
    "lewis_total": "models",
    "shared_share": "percent",
    "approximation_ratio": "epochs",
    "generated_quantity": "steps",
}
"""Metrics of studies whose results count something other than labels."""


@dataclass(frozen=True)
class ExperimentRuns:
    """All runs of one experiment at one scale."""

    name: str
    scale: str
    dataset: str
    network: str
    metric: str
    higher_is_better: bool
    strategies: tuple[str, ...]  # ``k`` names, with options where a strategy was run with several
    seeds: tuple[int, ...]  # ``s`` seeds
    labels: Ids  # ``(r,)``, all measured numbers of labels
    values: Floats  # ``(k, s, r)``; nan where there is no finite measurement
    rounds: dict[str, list[RoundResult]]
    notes: tuple[str, ...]  # sentences about missing or odd results

    @property
    def axis(self) -> str:
        """The unit of ``labels``: labels, but models or epochs in some studies."""
        return _AXES.get(self.metric, "labels")

    @property
    def sign(self) -> int:
        """1 if higher is better, else -1."""
        return 1 if self.higher_is_better else -1

    def curves(self, strategy: str) -> Floats:
        """``(s, r)``, with nan where something is missing."""
        curves: Floats = self.values[self.strategies.index(strategy)]
        return curves

    def is_complete(self, strategy: str) -> NDArray[np.bool_]:
        """``(s,)``: runs with the first, the last and all measurements of the strategy."""
        measured = np.isfinite(self.curves(strategy))
        required = np.asarray(measured.any(axis=0))
        required[[0, -1]] = True
        return np.asarray(measured[:, required].all(axis=1))

    def areas(self, strategy: str, *, common_with: str | None = None) -> Floats:
        """``(s,)``, nan for incomplete runs.

        ``common_with`` uses only label counts at which that strategy was measured too, since the
        trapezoid under a concave curve is lower with fewer points.
        """
        curves, complete = self.curves(strategy), self.is_complete(strategy)
        measured = np.isfinite(curves).any(axis=0)
        if common_with is not None:
            measured &= np.isfinite(self.curves(common_with)).any(axis=0)
        areas = np.full(len(curves), np.nan)
        if complete.any():
            areas[complete] = curve_area(self.labels[measured], curves[complete][:, measured])
        return areas

    def finals(self, strategy: str) -> Floats:
        """``(s,)``, the last measurement; nan for incomplete runs."""
        return np.where(self.is_complete(strategy), self.curves(strategy)[:, -1], np.nan)


def group_experiments(
    rounds: Iterable[RoundResult], *, up_to: int | None = None
) -> list[ExperimentRuns]:
    """Group results by experiment; ``up_to`` leaves out results with more labels."""
    groups: dict[tuple[str, ...], list[RoundResult]] = {}
    for entry in rounds:
        if up_to is None or entry.labels <= up_to:
            key = (entry.experiment, entry.scale, entry.dataset, entry.network, entry.metric)
            groups.setdefault(key, []).append(entry)
    if not groups:
        limit = "" if up_to is None else f" with {up_to} labels or fewer"
        raise BadInput(f"there are no rounds{limit} to report on")
    return [_collect_experiment_runs(group) for group in groups.values()]


def _collect_experiment_runs(group: Sequence[RoundResult]) -> ExperimentRuns:
    first = group[0]
    if len({entry.higher_is_better for entry in group}) > 1:
        raise BadInput(f"{first.experiment}: {first.metric} is better both high and low")
    names = _name_experiment_strategies(group)
    by_strategy: dict[str, list[RoundResult]] = {}
    for entry in sorted(group, key=lambda entry: (entry.seed, entry.round)):
        by_strategy.setdefault(names[entry.strategy, entry.key.options], []).append(entry)
    ordered = {name: by_strategy[name] for name in dict.fromkeys(names.values())}
    seeds = sorted({entry.seed for entry in group})
    labels = np.array(sorted({entry.labels for entry in group}), dtype=np.int64)
    values = np.full((len(ordered), len(seeds), len(labels)), np.nan)
    notes = []
    for place, (name, entries) in enumerate(ordered.items()):
        for entry in entries:
            where = place, seeds.index(entry.seed), int(np.searchsorted(labels, entry.labels))
            if np.isfinite(values[where]):
                notes.append(
                    f"{name}, seed {entry.seed}: two rounds have {entry.labels} labels; "
                    "the later one counts."
                )
            values[where] = entry.value if np.isfinite(entry.value) else np.nan
    found = ExperimentRuns(
        first.experiment,
        first.scale,
        first.dataset,
        first.network,
        first.metric,
        first.higher_is_better,
        tuple(ordered),
        tuple(seeds),
        labels,
        values,
        ordered,
        (),
    )
    notes += [note for name in found.strategies for note in _describe_missing_results(found, name)]
    return replace(found, notes=tuple(notes))


def _name_experiment_strategies(group: Sequence[RoundResult]) -> dict[tuple[str, str], str]:
    """Display names by strategy and options; with options only where they are ambiguous."""
    kinds = dict.fromkeys((entry.strategy, entry.key.options) for entry in group)
    names = {}
    for strategy, options in kinds:
        several = sum(strategy == other for other, _ in kinds) > 1
        chosen = ", ".join(f"{name}={value}" for name, value in json.loads(options).items())
        names[strategy, options] = f"{strategy} ({chosen})" if several and chosen else strategy
    return names


def _describe_missing_results(found: ExperimentRuns, name: str) -> list[str]:
    """Sentences about missing results of one strategy."""
    measured = np.isfinite(found.curves(name))
    schedule = np.asarray(measured.any(axis=0))
    notes = []
    absent = [seed for seed, run in zip(found.seeds, measured, strict=True) if not run.any()]
    if absent:
        notes.append(f"{name}: there is no run of seed {_join_seed_numbers(absent)}.")
    complete = found.is_complete(name)
    for seed, run, whole in zip(found.seeds, measured, complete, strict=True):
        if not run.any() or whole:
            continue
        last = int(np.flatnonzero(run)[-1])
        holes = found.labels[: last + 1][(schedule & ~run)[: last + 1]].tolist()
        parts = []
        if holes:
            parts.append(f"has no number at {_join_seed_numbers(holes)} {found.axis}")
        if not schedule[0]:
            parts.append(f"does not begin at {found.labels[0]} {found.axis}")
        if last < len(found.labels) - 1:
            parts.append(f"stops at {found.labels[last]} of {found.labels[-1]} {found.axis}")
        text = f"{name}, seed {seed}: {', '.join(parts)}"
        notes.append(f"{text}; shown in figures, but not in areas and tests.")
    if measured.any() and schedule.sum() < len(found.labels):
        notes.append(
            f"{name} was measured at {schedule.sum()} of the {len(found.labels)} numbers of "
            f"{found.axis}, so its area is less precise; differences to it use only these."
        )
    return notes


def _join_seed_numbers(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)
