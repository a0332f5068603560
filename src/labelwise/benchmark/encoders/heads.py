"""Linear models on frozen encoders, as the several models of one selection.

The items of such an experiment are the features of all its encoders side by side, each encoder's
centred and scaled to mean square 1 (one scale for all of its columns, so that a direction of small
spread stays small). A model is a linear layer on the columns of its encoder. All else is as in any
other run: `labelwise.benchmark.rounds`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from labelwise.arrays import Ids
from labelwise.benchmark.batched import Trainee
from labelwise.benchmark.datasets import load
from labelwise.benchmark.devices import Device
from labelwise.benchmark.encoders.catalogue import CATALOGUE
from labelwise.benchmark.encoders.features import read_features, standardize_features
from labelwise.benchmark.models import Models, learner_options, near_items
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.rounds import Run, Stage
from labelwise.benchmark.scenes import SPLIT, Scene
from labelwise.errors import BadInput
from labelwise.learners.inputs import Items
from labelwise.learners.members.snapshots import SnapshotMembers
from labelwise.strategies import get

SUFFIX = "_encoded"
"""What the name of a data set ends in where its items are features of encoders."""


class Together(NamedTuple):
    """A data set by several encoders.

    Attributes:
        rows: ``(n,)``, rows of the items in the data set.
        inputs: ``(n, sum of the widths)``.
        targets: ``(n,)`` classes.
        test_inputs: the same for the test items.
        test_targets: the same for the test items.
        classes: how many there are.
        ends: where the columns of each encoder end.
    """

    rows: Ids
    inputs: NDArray[Any]
    targets: NDArray[Any]
    test_inputs: NDArray[Any]
    test_targets: NDArray[Any]
    classes: int
    ends: tuple[int, ...]

    def columns(self, number: int) -> slice:
        """Those of an encoder."""
        return slice(self.ends[number - 1] if number else 0, self.ends[number])


@lru_cache(maxsize=1)
def together(
    dataset: str,
    encoders: tuple[str, ...],
    components: int | None = None,
    counts: tuple[int, int] | None = None,
) -> Together:
    """Features that were computed before, side by side.

    Args:
        dataset: whose items were encoded.
        encoders: names, in the order of the columns.
        components: keep so many directions of largest spread of every encoder; None keeps all.
        counts: how many training and test items were encoded; the usual ones if None.
    """
    found = [read_features(CATALOGUE[name], dataset, counts=counts) for name in encoders]
    first = found[0]
    for name, other in zip(encoders, found, strict=True):
        if not np.array_equal(other.rows, first.rows):
            raise BadInput(f"{name} encoded other items of {dataset} than {encoders[0]}")
    pairs = [
        standardize_features(*_directions(own.features, own.test_features, components))
        for own in found
    ]
    data = load(dataset)
    if data.classes is None:
        raise BadInput(f"{dataset} is a regression; heads on encoders are for classes")
    return Together(
        first.rows,
        np.concatenate([near for near, _ in pairs], axis=1),
        data.targets[first.rows],
        np.concatenate([far for _, far in pairs], axis=1),
        data.test_targets[first.test_rows],
        data.classes,
        tuple(accumulate(near.shape[1] for near, _ in pairs)),
    )


def _directions(
    near: NDArray[Any], far: NDArray[Any], count: int | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both along the directions of largest spread of the first."""
    if count is None or count >= near.shape[1]:
        return near, far
    centre = near.mean(axis=0)
    moved = near - centre
    _, vectors = np.linalg.eigh((moved.T @ moved).astype(np.float64))  # ascending
    kept = vectors[:, : -count - 1 : -1].astype(np.float32)
    return moved @ kept, (far - centre) @ kept


def of_protocol(protocol: Protocol) -> Together:
    """The data of an experiment."""
    name = protocol.dataset.removesuffix(SUFFIX)
    encoders = tuple(protocol.settings["encoders"])
    return together(name, encoders, protocol.settings.get("components"))


def scene_of(protocol: Protocol, seed: int) -> Scene:
    """Divide the items as a seed says: pool and first labels; the test items are the same."""
    data = of_protocol(protocol)
    order = np.random.default_rng([seed, SPLIT]).permutation(len(data.rows))
    taken = order if protocol.pool is None else order[: protocol.pool]
    bought = protocol.start + protocol.rounds * protocol.batch
    if bought > len(taken):
        raise BadInput(f"{protocol.name} buys {bought} labels from a pool of {len(taken)}")
    rows = np.sort(taken)
    return Scene(
        data.rows[rows],
        data.inputs[rows],
        data.targets[rows],
        data.rows[taken[: protocol.start]],
        data.test_inputs,
        data.test_targets,
        None,
        data.classes,
    )


class Columns(nn.Module):
    """Some columns of the inputs."""

    def __init__(self, begin: int, end: int) -> None:
        """From ``begin`` to before ``end``."""
        super().__init__()
        self.begin, self.end = begin, end

    def forward(self, inputs: Tensor) -> Tensor:
        """``(b, d)`` to ``(b, end - begin)``."""
        return inputs[:, self.begin : self.end]


def head(begin: int, end: int, outputs: int) -> nn.Module:
    """A linear layer on some columns.

    >>> head(2, 5, 4)[1]
    Linear(in_features=3, out_features=4, bias=True)
    """
    return nn.Sequential(Columns(begin, end), nn.Linear(end - begin, outputs))


@dataclass
class HeadStage(Stage):
    """The scenes of an experiment on encoders."""

    def scene(self, seed: int) -> tuple[Scene, tuple[Items, Items]]:
        """The data of a seed."""
        if seed not in self._scenes:
            self._scenes.clear()
            scene = scene_of(self.protocol, seed)
            self._scenes[seed] = scene, near_items(scene, self.device)
        return self._scenes[seed]


class HeadRun(Run):
    """One strategy under one seed, with a linear layer per encoder as models."""

    def __init__(self, stage: Stage, entrant: Entrant, seed: int) -> None:
        """Begin with the first labels."""
        super().__init__(stage, entrant, seed)
        scene, items = stage.scene(seed)
        self._models = head_models(stage.protocol, entrant, scene, stage.device, items)


def head_models(
    protocol: Protocol,
    entrant: Entrant,
    scene: Scene,
    device: Device,
    items: tuple[Items, Items],
) -> Models:
    """A linear layer for every encoder, not yet trained."""
    names: Sequence[str] = protocol.settings["encoders"]
    data = of_protocol(protocol)
    votes = get(entrant.strategy).needs == ("member_votes",)
    learners = {}
    for number, name in enumerate(names):
        place = data.columns(number)
        learners[name] = Trainee(
            partial(head, place.start, place.stop, scene.outputs),
            kind=("head", name, protocol.name, protocol.scale),
            members=SnapshotMembers() if votes else None,
            **learner_options(protocol, scene, device),
        )
    return Models(learners, [items[0]] * len(names), [items[1]] * len(names))
