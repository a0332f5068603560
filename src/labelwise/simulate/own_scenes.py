"""A user's own data, divided as each seed says, and runs on it in one process or several.

The data is held in this process; for others it is written under a folder, without pickling.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.benchmark.datasets.entries import Arrays, as_text_array
from labelwise.benchmark.jobs import Job
from labelwise.benchmark.models import near_items
from labelwise.benchmark.protocol import Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.rounds import Run, Stage, play
from labelwise.benchmark.scenes import SPLIT, Scene
from labelwise.learners.embedding import Standardizer, TfidfEmbedding
from labelwise.learners.inputs import Items
from labelwise.simulate.own_data import OwnData


def own_scene(data: OwnData, plan: Protocol, seed: int) -> Scene:
    """Divide the items as a seed says; ids are the rows of the user's data."""
    rng = np.random.default_rng([seed, SPLIT])
    assert plan.test is not None
    test = stratified(data.targets, plan.test, rng)
    rest = np.setdiff1d(np.arange(len(data)), test)
    taken = rng.permutation(rest)[: plan.pool]
    rows = np.sort(taken)
    inputs = PREPARE[data.kind](data.inputs[rows])
    targets = (lambda values: values) if data.classes else standard(data.targets[rows])
    return Scene(
        rows,
        inputs(data.inputs[rows]),
        targets(data.targets[rows]),
        taken[: plan.start],
        inputs(data.inputs[test]),
        targets(data.targets[test]),
        None,
        len(data.classes) if data.classes else None,
    )


def stratified(targets: Arrays, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """So many items, ascending, with every class or range of values in its share.

    Example:
        >>> classes = np.repeat([0, 1], [90, 10])
        >>> test = stratified(classes, 20, np.random.default_rng(0))
        >>> np.bincount(classes[test]).tolist()
        [18, 2]
    """
    order = rng.permutation(len(targets))
    if targets.ndim == 1:  # classes in any order, so that none is always cut short
        targets = rng.permutation(int(targets.max()) + 1)[targets]
    by_stratum = order[np.argsort(targets.reshape(len(targets))[order], kind="stable")]
    places = (np.arange(count) + 0.5) * len(targets) / count
    return np.sort(by_stratum[places.astype(np.intp)])


standard, text_rows = Standardizer.fit, TfidfEmbedding.fit

PREPARE: Mapping[str, Callable[[Arrays], Callable[[Arrays], Arrays]]] = {
    "images": standard,
    "numbers": standard,
    "texts": text_rows,
}
"""By kind: takes the pool's inputs, gives what turns inputs into numbers for a network."""


@dataclass(frozen=True, eq=False)
class OwnJob(Job):
    """A run on data that `keep` has put under a folder's name."""

    home: Path

    def lines(self, stage: Stage, known: Sequence[RoundResult]) -> Iterator[RoundResult]:
        """The lines that are not there yet; the given stage only says on which device."""
        own = held.get("stage")
        if own is None or own.home != self.home or own.device != stage.device:
            own = held["stage"] = OwnStage(self.protocol, stage.device, home=self.home)
        run = Run(own, self.entrant, self.seed)
        for line in play([run], {self.key: known}):
            yield marked(line, self.protocol)


@dataclass
class OwnStage(Stage):
    """The scenes of a user's own data."""

    home: Path = Path()

    def scene(self, seed: int) -> tuple[Scene, tuple[Items, Items]]:
        """The data of a seed."""
        if seed not in self._scenes:
            while len(self._scenes) >= self.keep:
                del self._scenes[next(iter(self._scenes))]
            scene = own_scene(_kept(self.home), self.protocol, seed)
            self._scenes[seed] = scene, near_items(scene, self.device)
        return self._scenes[seed]


held: dict[str, Any] = {}
"""In this process: the data with the folder it is kept under, and the stage of the last run."""


def keep(data: OwnData, home: Path, *, written: bool) -> None:
    """Hold data for this process, and if asked also write it for others."""
    held.clear()
    held["home"], held["data"] = home, data
    if not written:
        return
    if data.kind == "texts":
        (home / "inputs.json").write_text(json.dumps(data.inputs.tolist()), encoding="utf-8")
    else:
        np.save(home / "inputs.npy", data.inputs)
    np.save(home / "targets.npy", data.targets)
    facts = {"name": data.name, "kind": data.kind, "classes": data.classes}
    (home / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


def _kept(home: Path) -> OwnData:
    if held.get("home") != home:
        facts = json.loads((home / "facts.json").read_text(encoding="utf-8"))
        if facts["kind"] == "texts":
            inputs = as_text_array(json.loads((home / "inputs.json").read_text(encoding="utf-8")))
        else:
            inputs = np.load(home / "inputs.npy")
        classes = None if facts["classes"] is None else tuple(facts["classes"])
        targets = np.load(home / "targets.npy")
        held["data"] = OwnData(facts["name"], facts["kind"], inputs, targets, classes)
        held["home"] = home
    data: OwnData = held["data"]
    return data


def marked(line: RoundResult, plan: Protocol) -> RoundResult:
    """A line with the fingerprint of data and settings among its versions."""
    return replace(line, versions={**line.versions, "data": plan.settings["data"]})
