"""The networks of a run: those that are measured, and the one that a strategy reads.

All strategies of a seed measure the same networks, trained alike from the same first parameters;
what a strategy needs beyond them does not change their training:

=============================================  ====================================================
a strategy that reads                          gets it from
=============================================  ====================================================
features, logits, probabilities, gradients     the measured network
member_probabilities                           draws from the Laplace posterior of its last layer
member_votes                                   the measured network at the ends of its later epochs
duals                                          a second network, trained under constraints
=============================================  ====================================================

Where a protocol has a variational last layer, the members are its draws. Where it has several
networks, they are the members.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import to_numpy
from labelwise.benchmark.batched import Task, Trainee
from labelwise.benchmark.devices import Device, on_device
from labelwise.benchmark.last_layer import LastLayer
from labelwise.benchmark.networks import AUGMENTATIONS, linear, make
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.scenes import Scene
from labelwise.errors import BadInput
from labelwise.learners.committee import Committee
from labelwise.learners.inputs import Items, ItemSubset
from labelwise.learners.members import Members
from labelwise.learners.members.laplace import LaplaceMembers
from labelwise.learners.members.snapshots import SnapshotMembers
from labelwise.learners.members.variational import VariationalMembers
from labelwise.learners.primal_dual import PrimalDualLearner
from labelwise.learners.torch_learner import TorchLearner
from labelwise.strategies import get

DRAWS = {"variational": 100, "laplace": 50}
"""How many members are drawn."""

EPSILON = {True: 0.2, False: 0.1}
"""The bound of the losses for dual variables: of classes, of a regression."""


class Models:
    """The networks that a run measures, trained on the same labels.

    Attributes:
        learners: by the names of the architectures.
    """

    def __init__(
        self,
        learners: Mapping[str, Trainee],
        pools: Sequence[Items],
        tests: Sequence[Items],
    ) -> None:
        """Put learners together with what each sees of the pool and of the test items."""
        self.learners = dict(learners)
        self._pools, self._tests = list(pools), list(tests)

    @property
    def pool(self) -> Items:
        """The pool, as the first network sees it."""
        return self._pools[0]

    @property
    def reader(self) -> TorchLearner | Committee:
        """What gives representations: the only network, or all of them as a committee."""
        learners = list(self.learners.values())
        return learners[0] if len(learners) == 1 else Committee(learners, names=list(self.learners))

    def tasks(
        self, positions: NDArray[np.intp], targets: Any, weights: Any, seed: int
    ) -> list[Task]:
        """What is to be trained: every network on the items at ``positions`` of the pool."""
        seeds = network_seeds(seed, len(self.learners))
        return [
            Task(learner, ItemSubset(pool, positions), targets, weights, own)
            for learner, pool, own in zip(self.learners.values(), self._pools, seeds, strict=True)
        ]

    def errors(self, targets: NDArray[Any], metric: str) -> list[float]:
        """Every network's accuracy or mean squared error on the test items."""
        found = []
        for learner, test in zip(self.learners.values(), self._tests, strict=True):
            answers = learner.predict(test)
            if metric == "mse":
                found.append(float(np.square(answers - targets).mean()))
            else:
                found.append(float((answers == targets).mean()))
        return found

    def frozen(self, options: Mapping[str, Any], device: Device) -> "Models":
        """Linear models on the features that the networks give now, fitted exactly."""
        learners: dict[str, Trainee] = {}
        pools, tests = [], []
        for (name, learner), pool, test in zip(
            self.learners.items(), self._pools, self._tests, strict=True
        ):
            rows = [_features(learner, items) for items in (pool, test)]
            width, outputs = rows[0].shape[1], learner.head.out_features
            pools.append(on_device(rows[0], device))
            tests.append(on_device(rows[1], device))
            learners[name] = LastLayer(
                partial(linear, width, outputs),
                kind=("frozen", width, outputs),
                device=device,
                **options,
            )
        return Models(learners, pools, tests)


def make_models(
    protocol: Protocol,
    entrant: Entrant,
    scene: Scene,
    device: Device,
    items: tuple[Items, Items] | None = None,
) -> Models:
    """The networks of a run, not yet trained.

    Args:
        protocol: the experiment.
        entrant: the strategy, which may read members.
        scene: the data of the seed.
        device: where to train.
        items: the scene's pool and test items on the device, if they are there already.
    """
    options = learner_options(protocol, scene, device)
    learners = {}
    for name in protocol.networks:
        learners[name] = Trainee(
            partial(make, name, scene.shape, scene.outputs),
            kind=(name, scene.shape, scene.outputs, protocol.name, protocol.scale),
            members=make_members(protocol, entrant, scene),
            **options,
        )
    pool, test = items or near_items(scene, device)
    count = len(learners)
    return Models(learners, [pool] * count, [test] * count)


def near_items(scene: Scene, device: Device) -> tuple[Items, Items]:
    """A scene's pool and test items, on the device."""
    return on_device(scene.inputs, device), on_device(scene.test_inputs, device)


def make_picker(
    protocol: Protocol, entrant: Entrant, scene: Scene, device: Device
) -> PrimalDualLearner | None:
    """The network that a strategy reads in place of the measured one, or None."""
    if "duals" not in get(entrant.strategy).needs:
        if entrant.learner:
            raise BadInput(f"{entrant.strategy} has no learner of its own to set options of")
        return None
    if len(protocol.networks) > 1:
        raise BadInput(f"{entrant.strategy} reads one network; {protocol.name} has several")
    name = protocol.networks[0]
    options = learner_options(protocol, scene, device)
    own = {"epsilon": EPSILON[scene.classes is not None], **entrant.learner}
    return PrimalDualLearner(partial(make, name, scene.shape, scene.outputs), **options, **own)


def make_members(protocol: Protocol, entrant: Entrant, scene: Scene) -> Members | None:
    """What gives a network's members in an experiment, or None."""
    kind = protocol.learner.get("members")
    if kind == "variational":
        return VariationalMembers(count=DRAWS[kind])
    if kind is not None:
        raise BadInput(f"members of a protocol are variational or none; got {kind!r}")
    needs = get(entrant.strategy).needs
    if needs == ("member_votes",):
        return SnapshotMembers()
    several = len(protocol.networks) > 1
    gradients = "gradient_norms" in needs and scene.classes is None
    if gradients or (not several and any(name.startswith("member_") for name in needs)):
        return LaplaceMembers(count=DRAWS["laplace"])
    return None


def learner_options(protocol: Protocol, scene: Scene, device: Device) -> dict[str, Any]:
    """Options of `TorchLearner` for all networks of an experiment."""
    options = {name: value for name, value in protocol.learner.items() if name != "members"}
    if scene.classes is None:
        options.setdefault("loss", "mse")
    if options.get("patience") is not None:
        if scene.validation is None:
            raise BadInput(f"{protocol.name} stops early but sets no validation items apart")
        options["validation"] = scene.validation
    if (name := options.get("augment")) is not None:
        options["augment"] = AUGMENTATIONS[name]
    batch = 4096 if device.type == "cuda" else 512
    return {"device": device, "represent_batch_size": batch, **options}


def network_seeds(seed: int, count: int) -> list[int]:
    """The seeds of several networks; the first one's is the seed itself.

    >>> network_seeds(5, 1)
    [5]
    """
    others = [
        int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
        for number in range(1, count)
    ]
    return [seed, *others]


def _features(learner: TorchLearner, items: Items) -> NDArray[Any]:
    return np.asarray(to_numpy(learner.represent(items, ["features"])["features"]))
