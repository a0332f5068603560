"""Rounds as arrays: one experiment, strategies by seeds by label counts, and what is missing."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Floats, Ids
from labelwise.benchmark.results import Round
from labelwise.benchmark.statistics import area
from labelwise.errors import BadInput

_AXES = {"lewis_total": "models", "approximation_ratio": "epochs"}
"""Metrics of studies whose lines count something else than labels."""


@dataclass(frozen=True)
class Experiment:
    """All runs of one experiment at one scale.

    Attributes:
        name: of the protocol.
        scale: small, medium or full.
        dataset: its name.
        network: its name.
        metric: what was measured.
        higher_is_better: whether a larger value is better.
        strategies: ``k`` names, with their options where a strategy was run with several.
        seeds: ``s`` of them.
        labels: ``(r,)``, every number of labels at which something was measured.
        values: ``(k, s, r)``; nan where nothing was measured, or no finite number.
        rounds: the lines it was made from, by strategy.
        notes: what is missing, in sentences.
    """

    name: str
    scale: str
    dataset: str
    network: str
    metric: str
    higher_is_better: bool
    strategies: tuple[str, ...]
    seeds: tuple[int, ...]
    labels: Ids
    values: Floats
    rounds: dict[str, list[Round]]
    notes: tuple[str, ...]

    @property
    def axis(self) -> str:
        """What ``labels`` counts: labels, but in some studies models or epochs."""
        return _AXES.get(self.metric, "labels")

    @property
    def sign(self) -> int:
        """1 if higher is better, else -1."""
        return 1 if self.higher_is_better else -1

    def curves(self, strategy: str) -> Floats:
        """``(s, r)``, with nan where something is missing."""
        curves: Floats = self.values[self.strategies.index(strategy)]
        return curves

    def whole(self, strategy: str) -> NDArray[np.bool_]:
        """``(s,)``: which runs lack nothing, from the first to the last number of labels.

        A run has to have all that any run of its strategy has, so a strategy that buys its labels
        in one go is whole with fewer measurements.
        """
        there = np.isfinite(self.curves(strategy))
        wanted = np.asarray(there.any(axis=0))
        wanted[[0, -1]] = True
        return np.asarray(there[:, wanted].all(axis=1))

    def areas(self, strategy: str, *, beside: str | None = None) -> Floats:
        """``(s,)``, nan for runs that are not whole.

        Args:
            strategy: its name.
            beside: only at numbers of labels at which this strategy was measured too. Fewer lines
                lie lower under a curve that bends, so areas are compared over the same ones.
        """
        curves, whole = self.curves(strategy), self.whole(strategy)
        measured = np.isfinite(curves).any(axis=0)
        if beside is not None:
            measured &= np.isfinite(self.curves(beside)).any(axis=0)
        areas = np.full(len(curves), np.nan)
        if whole.any():
            areas[whole] = area(self.labels[measured], curves[whole][:, measured])
        return areas

    def finals(self, strategy: str) -> Floats:
        """``(s,)``, the last measurement; nan for runs that are not whole."""
        return np.where(self.whole(strategy), self.curves(strategy)[:, -1], np.nan)


def experiments(rounds: Iterable[Round], *, up_to: int | None = None) -> list[Experiment]:
    """Sort rounds into experiments.

    Args:
        rounds: lines of results files.
        up_to: leave out what was measured with more labels.
    """
    groups: dict[tuple[str, ...], list[Round]] = {}
    for entry in rounds:
        if up_to is None or entry.labels <= up_to:
            key = (entry.experiment, entry.scale, entry.dataset, entry.network, entry.metric)
            groups.setdefault(key, []).append(entry)
    if not groups:
        limit = "" if up_to is None else f" with {up_to} labels or fewer"
        raise BadInput(f"there are no rounds{limit} to report on")
    return [_experiment(group) for group in groups.values()]


def _experiment(group: Sequence[Round]) -> Experiment:
    first = group[0]
    if len({entry.higher_is_better for entry in group}) > 1:
        raise BadInput(f"{first.experiment}: {first.metric} is called better both high and low")
    names = _names(group)
    by_strategy: dict[str, list[Round]] = {}
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
    found = Experiment(
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
    notes += [note for name in found.strategies for note in _missing(found, name)]
    return Experiment(**{**vars(found), "notes": tuple(notes)})


def _names(group: Sequence[Round]) -> dict[tuple[str, str], str]:
    """What each strategy with its options is called: by its name alone where that is enough."""
    kinds = dict.fromkeys((entry.strategy, entry.key.options) for entry in group)
    names = {}
    for strategy, options in kinds:
        several = sum(strategy == other for other, _ in kinds) > 1
        chosen = ", ".join(f"{name}={value}" for name, value in json.loads(options).items())
        names[strategy, options] = f"{strategy} ({chosen})" if several and chosen else strategy
    return names


def _missing(found: Experiment, name: str) -> list[str]:
    """What the runs of one strategy lack, in sentences."""
    there = np.isfinite(found.curves(name))
    schedule = np.asarray(there.any(axis=0))
    notes = []
    absent = [seed for seed, run in zip(found.seeds, there, strict=True) if not run.any()]
    if absent:
        notes.append(f"{name}: there is no run of seed {_list(absent)}.")
    for seed, run, whole in zip(found.seeds, there, found.whole(name), strict=True):
        if not run.any() or whole:
            continue
        last = int(np.flatnonzero(run)[-1])
        holes = found.labels[: last + 1][(schedule & ~run)[: last + 1]].tolist()
        what = []
        if holes:
            what.append(f"has no number at {_list(holes)} {found.axis}")
        if not schedule[0]:
            what.append(f"does not begin at {found.labels[0]} {found.axis}")
        if last < len(found.labels) - 1:
            what.append(f"stops at {found.labels[last]} of {found.labels[-1]} {found.axis}")
        notes.append(f"{name}, seed {seed}: {', '.join(what)}; drawn, but not in areas and tests.")
    if there.any() and schedule.sum() < len(found.labels):
        notes.append(
            f"{name} was measured at {schedule.sum()} of the {len(found.labels)} numbers of "
            f"{found.axis}, so its area is a coarser one; differences to it are taken at these."
        )
    return notes


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)
