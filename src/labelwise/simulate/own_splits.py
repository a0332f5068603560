"""Splits of a user's own data by seed, and jobs on it in one process or several."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelwise.benchmark.datasets.entries import Arrays, as_text_array
from labelwise.benchmark.devices import Device
from labelwise.benchmark.jobs import BenchmarkJob, JobFailure
from labelwise.benchmark.protocol import Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.splits import SPLIT, DataSplit, SplitCache
from labelwise.encoders.tfidf import TfidfEncoder
from labelwise.files import read_json, write_json
from labelwise.learners.embedding import Standardizer
from labelwise.simulate.own_data import OwnData

PREPARE: Mapping[str, Callable[[Arrays], Callable[[Arrays], Arrays]]] = {
    "images": Standardizer.fit,
    "numbers": Standardizer.fit,
    "texts": TfidfEncoder.fit,
}
"""By kind: fits the function that converts inputs to numbers, on the pool's inputs."""


def split_own_data(data: OwnData, plan: Protocol, seed: int) -> DataSplit:
    """Split data by a seed; ids are the rows of the data."""
    rng = np.random.default_rng([seed, SPLIT])
    assert plan.test is not None
    test = draw_stratified(data.targets, plan.test, rng)
    rest = np.setdiff1d(np.arange(len(data)), test)
    taken = rng.permutation(rest)[: plan.pool]
    rows = np.sort(taken)
    inputs = PREPARE[data.kind](data.inputs[rows])
    targets = (lambda values: values) if data.classes else Standardizer.fit(data.targets[rows])
    return DataSplit(
        rows,
        inputs(data.inputs[rows]),
        targets(data.targets[rows]),
        taken[: plan.start],
        inputs(data.inputs[test]),
        targets(data.targets[test]),
        None,
        len(data.classes) if data.classes else None,
    )


def draw_stratified(targets: Arrays, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw items, ascending, with every class or range of values in proportion.

    Example:
        >>> classes = np.repeat([0, 1], [90, 10])
        >>> test = draw_stratified(classes, 20, np.random.default_rng(0))
        >>> np.bincount(classes[test]).tolist()
        [18, 2]
    """
    order = rng.permutation(len(targets))
    if targets.ndim == 1:  # in random order of classes, so that rounding favours none
        targets = rng.permutation(int(targets.max()) + 1)[targets]
    by_stratum = order[np.argsort(targets.reshape(len(targets))[order], kind="stable")]
    places = (np.arange(count) + 0.5) * len(targets) / count
    return np.sort(by_stratum[places.astype(np.intp)])


@dataclass(frozen=True, eq=False)
class OwnDataJob(BenchmarkJob):
    """A run on data that `store_data` has stored under a folder."""

    home: Path

    def make_splits(self, device: Device, keep: int = 1) -> SplitCache:
        """The splits of the user's data."""
        return SplitCache(self.protocol, device, keep, self._split_stored)

    def _split_stored(self, plan: Protocol, seed: int) -> DataSplit:
        return split_own_data(load_data(self.home), plan, seed)


def mark_data(line: RoundResult | JobFailure, plan: Protocol) -> RoundResult | JobFailure:
    """A line with the fingerprint of data and settings among its versions."""
    if isinstance(line, JobFailure):
        return line
    return replace(line, versions={**line.versions, "data": plan.settings["data"]})


def store_data(data: OwnData, home: Path) -> None:
    """Write data to a folder, without pickles, for jobs in this and other processes."""
    if data.kind == "texts":
        write_json(home / "inputs.json", {"texts": data.inputs})
    else:
        np.save(home / "inputs.npy", data.inputs)
    np.save(home / "targets.npy", data.targets)
    write_json(home / "facts.json", {"name": data.name, "kind": data.kind, "classes": data.classes})


@lru_cache(maxsize=1)
def load_data(home: Path) -> OwnData:
    """The data stored in a folder."""
    facts = read_json(home / "facts.json")
    if facts["kind"] == "texts":
        inputs = as_text_array(read_json(home / "inputs.json")["texts"])
    else:
        inputs = np.load(home / "inputs.npy")
    classes = None if facts["classes"] is None else tuple(facts["classes"])
    return OwnData(facts["name"], facts["kind"], inputs, np.load(home / "targets.npy"), classes)
