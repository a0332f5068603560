"""The networks of a run: those that are measured, and the one that a strategy reads.

All strategies of a seed measure the same networks, trained alike from the same initial parameters.
Further representations come from learners that do not change that training:

=============================================  ====================================================
representation                                 source
=============================================  ====================================================
features, logits, probabilities, gradients     the measured network
member_probabilities                           draws from the Laplace posterior of its last layer
member_votes                                   the measured network at the ends of its later epochs
duals                                          a second network, trained under constraints; it is
                                               also measured for entrants with ``own_network``
=============================================  ====================================================

In protocols with a variational last layer the members are its draws; in protocols with several
networks the networks are the members.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array, to_numpy
from labelwise.benchmark.batched import (
    BatchableLearner,
    BestEpoch,
    LastLayerLearner,
    TrainingTask,
    fit_batched_tasks,
)
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.devices import Device, move_items_to_device
from labelwise.benchmark.networks import (
    AUGMENTATIONS,
    VARIANTS,
    make_linear_network,
    make_network,
    make_relu_head,
)
from labelwise.benchmark.protocol import Entrant, Options, Protocol
from labelwise.benchmark.splits import DataSplit, move_split_to_device
from labelwise.errors import BadInput
from labelwise.files import JsonObject
from labelwise.learners.committee import Committee
from labelwise.learners.inputs import Items, ItemSubset
from labelwise.learners.members import Members
from labelwise.learners.members.laplace import LaplaceMembers
from labelwise.learners.members.snapshots import SnapshotMembers
from labelwise.learners.members.variational import VariationalMembers
from labelwise.learners.primal_dual import PrimalDualLearner
from labelwise.learners.torch_learner import TorchLearner
from labelwise.pool.ids import Keys
from labelwise.pool.pool import Pool
from labelwise.rounds.default_strategies import BASELINE
from labelwise.strategies import get

DRAWS = {"variational": 100, "laplace": 50}  # Number of members
EPSILON = {True: 0.2, False: 0.1}
"""Bound of the losses for dual variables: for classes, for a regression."""


class ItemPool(Pool):
    """A pool of items on a device."""

    def take(self, keys: Keys) -> ItemSubset:
        """The given items, without a copy."""
        return ItemSubset(self.inputs, self.find_positions(keys))


class ModelSet:
    """The networks that a run measures, trained on the same labels."""

    def __init__(
        self,
        learners: Mapping[str, BatchableLearner],
        pools: Sequence[Items],
        tests: Sequence[Items],
    ) -> None:
        """Combine learners with the pool and test items that each of them reads."""
        self.learners = dict(learners)
        self._pools, self._tests = list(pools), list(tests)

    @property
    def pool(self) -> Items:
        """The pool, as the first network reads it."""
        return self._pools[0]

    @property
    def reader(self) -> TorchLearner | Committee:
        """The learner of representations: the only network, or all of them as a committee."""
        learners = list(self.learners.values())
        return learners[0] if len(learners) == 1 else Committee(learners, names=list(self.learners))

    def make_tasks(
        self, positions: NDArray[np.intp], targets: Array, weights: Array, seed: int
    ) -> list[TrainingTask]:
        """One training per network, on the items at ``positions`` of the pool."""
        seeds = draw_network_seeds(seed, len(self.learners))
        return [
            TrainingTask(learner, ItemSubset(pool, positions), targets, weights, own)
            for learner, pool, own in zip(self.learners.values(), self._pools, seeds, strict=True)
        ]

    def measure(self, targets: Arrays, metric: str, own: TorchLearner | None = None) -> list[float]:
        """Accuracy or mean squared error of every network, or of ``own``, on the test items."""
        found = []
        learners: list[TorchLearner] = [own] if own is not None else [*self.learners.values()]
        for learner, test in zip(learners, self._tests, strict=True):
            predicted = learner.predict(test)
            errors = np.square(predicted - targets) if metric == "mse" else predicted == targets
            found.append(float(errors.mean()))
        return found

    @property
    def best_epoch(self) -> float | None:
        """Mean test accuracy of the networks at their best epochs, if the protocol records it."""
        found = [learner.observer for learner in self.learners.values()]
        values = [own.accuracy for own in found if isinstance(own, BestEpoch)]
        return float(np.mean(values)) if values else None

    def freeze(self, options: Options, device: Device, lowest: Sequence[float]) -> "ModelSet":
        """Linear models on the present features of the networks.

        Args:
            options: of the learner. Without an optimizer the models are fitted exactly; with one
                they have a ReLU after the layer and are trained.
            device: where to train.
            lowest: smallest values of the pool by column.
        """
        learners: dict[str, BatchableLearner] = {}
        pools, tests = [], []
        for (name, learner), pool, test in zip(
            self.learners.items(), self._pools, self._tests, strict=True
        ):
            near, far = (
                np.asarray(to_numpy(learner.represent(items, ["features"])["features"]))
                for items in (pool, test)
            )
            width, outputs = near.shape[1], learner.head.out_features
            pools.append(move_items_to_device(near, device))
            tests.append(move_items_to_device(far, device))
            kind = "frozen", width, outputs
            learners[name] = (
                BatchableLearner(
                    partial(make_relu_head, width, lowest),
                    kind=kind,
                    head="0",
                    device=device,
                    **options,
                )
                if "optimizer" in options
                else LastLayerLearner(
                    partial(make_linear_network, width, outputs),
                    kind=kind,
                    device=device,
                    **options,
                )
            )
        return ModelSet(learners, pools, tests)


def make_benchmark_networks(
    protocol: Protocol,
    entrant: Entrant,
    split: DataSplit,
    device: Device,
    items: tuple[Items, Items] | None = None,
) -> ModelSet:
    """The untrained networks of a run."""
    options = make_learner_options(protocol, split, device)
    pool, test = items or move_split_to_device(split, device)
    recorded = protocol.settings.get("best_epoch", False)
    learners = {
        name: BatchableLearner(
            partial(make_network, name, split.shape, split.outputs),
            kind=(
                "variant" if name in VARIANTS else name,  # variants train as one batched model
                *(split.shape, split.outputs, protocol.name, protocol.scale),
            ),
            members=make_network_members(protocol, entrant, split),
            observer=BestEpoch(test, split.test_targets, device) if recorded else None,
            **options,
        )
        for name in protocol.networks
    }
    return ModelSet(learners, [pool] * len(learners), [test] * len(learners))


def train_on_first_labels(
    protocol: Protocol, split: DataSplit, device: Device, seed: int, targets: Array = None
) -> ModelSet:
    """The networks of a study, trained on the first labels; ``targets`` are those of the pool."""
    models = make_benchmark_networks(protocol, Entrant(BASELINE), split, device)
    places = split.find_positions(split.first)
    values = split.targets if targets is None else targets
    fit_batched_tasks(models.make_tasks(places, values[places], None, seed))
    return models


def make_picker_network(
    protocol: Protocol, entrant: Entrant, split: DataSplit, device: Device
) -> PrimalDualLearner | None:
    """The network that a strategy reads instead of the measured one, or None."""
    if "duals" not in get(entrant.strategy).needs:
        if entrant.learner or entrant.own_network:
            raise BadInput(
                f"{entrant.strategy} does not read a learner of its own, so none can be set"
            )
        return None
    if entrant.own_network and protocol.frozen:
        raise BadInput(f"{protocol.name} measures linear models; leave own_network out")
    if len(protocol.networks) > 1:
        raise BadInput(f"{entrant.strategy} reads one network; {protocol.name} has several")
    name = protocol.networks[0]
    options = make_learner_options(protocol, split, device)
    own = {"epsilon": EPSILON[split.classes is not None], **entrant.learner}
    make = partial(make_network, name, split.shape, split.outputs)
    return PrimalDualLearner(make, **options, **own)


def make_network_members(
    protocol: Protocol, entrant: Entrant, split: DataSplit, models: int | None = None
) -> Members | None:
    """The members of a network in an experiment, or None."""
    kind = protocol.learner.get("members")
    if kind == "variational":
        return VariationalMembers(count=DRAWS[kind])
    if kind is not None:
        raise BadInput(f"members of a protocol are variational or none; got {kind!r}")
    needs = get(entrant.strategy).needs
    if needs == ("member_votes",):
        return SnapshotMembers()
    several = (models or len(protocol.networks)) > 1
    gradients = "gradient_norms" in needs and split.classes is None
    if gradients or (not several and any(name.startswith("member_") for name in needs)):
        return LaplaceMembers(count=DRAWS["laplace"])
    return None


def make_learner_options(protocol: Protocol, split: DataSplit, device: Device) -> JsonObject:
    """Options of `TorchLearner` for all networks of an experiment."""
    options = {name: value for name, value in protocol.learner.items() if name != "members"}
    if split.classes is None:
        options.setdefault("loss", "mse")
    if options.get("patience") is not None:
        if split.validation is None:
            raise BadInput(f"{protocol.name} stops early but has no validation items")
        options["validation"] = split.validation
    if (name := options.get("augment")) is not None:
        options["augment"] = AUGMENTATIONS[name]
    batch = 4096 if device.type == "cuda" else 512
    return {"device": device, "represent_batch_size": batch, **options}


def draw_network_seeds(seed: int, count: int) -> list[int]:
    """The seeds of several networks; the first is the seed itself.

    >>> draw_network_seeds(5, 1)
    [5]
    """
    others = [
        int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
        for number in range(1, count)
    ]
    return [seed, *others]
