"""The demo's simulation: buy labels for handwritten digits by several strategies.

It is `labelwise.simulate` with a linear model on the pixels. Strategies that read gradients or dual
variables read a small network trained on the same labels. The data come with scikit-learn, and
every number is computed on the spot.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from labelwise.benchmark.frozen_run import MakeHead, make_batch_chooser
from labelwise.benchmark.labelling_run import BatchChooser, LabelledPool
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.errors import MissingDependency, require_extra
from labelwise.learner import Label, Learner
from labelwise.learners.linear_probe import LinearProbe
from labelwise.pool.blocks import Progress
from labelwise.rounds import Round
from labelwise.rounds.default_strategies import DEMONSTRATED
from labelwise.selection.result import Selection
from labelwise.simulate import make_simulation_plan, run_simulation_plan
from labelwise.simulate.own_data import check_own_data
from labelwise.strategies import get

BATCH, TEST_SHARE = 10, 1 / 3
TRAINING: dict[str, Any] = {"epochs": 60, "lr": 0.01, "weight_decay": 1e-3, "batch_size": 256}
"""Of the networks that some strategies read; all labels fit in one batch."""


def list_demo_strategies() -> tuple[str, ...]:
    """The strategies of the demo, without torch only those that read no network."""
    found = []
    for name in DEMONSTRATED:
        with suppress(MissingDependency):
            _find_network_reader(name)
            found.append(name)
    return tuple(found)


def make_demo_plan(strategies: Sequence[str], labels: int) -> Protocol:
    """The protocol: batches of 10 up to a number of labels; a third of the images is held out."""
    digits = check_own_data(*load_digits(return_X_y=True), name="digits")
    plan = make_simulation_plan(
        digits,
        strategies=strategies,
        batch=BATCH,
        budget=labels,
        test_share=TEST_SHARE,
        weights="mean",
    )
    return replace(plan, name="demo", learner={"head": "linear"})


def run_demo(
    plan: Protocol, *, seeds: int, workers: int | None = 1, progress: Progress | None = None
) -> list[RoundResult]:
    """Run every strategy under every seed; one result per batch."""
    for entrant in plan.entrants:
        _find_network_reader(entrant.strategy)  # fails before the work if torch is missing
    images, digits = load_digits(return_X_y=True)
    pixels = (images / 16).astype(np.float32)
    ids = np.arange(len(pixels))
    pool = LabelledPool(ids, pixels, digits, pixels[:0], digits[:0], 10)
    return run_simulation_plan(
        pool,
        plan,
        seeds=seeds,
        workers=workers,
        progress=progress,
        make_chooser=make_demo_chooser,
    )


def make_demo_chooser(
    protocol: Protocol, entrant: Entrant, pool: LabelledPool, make_learner: MakeHead
) -> BatchChooser:
    """The chooser of an entrant's batches, with a network if its strategy reads one."""
    chooser = make_batch_chooser(protocol, entrant, pool, make_learner)
    make_reader = _find_network_reader(entrant.strategy)
    return chooser if make_reader is None else NetworkReaderChooser(make_reader, chooser)


@dataclass(frozen=True)
class NetworkReaderChooser:
    """Trains a learner of its own on the labels, which only the strategy reads."""

    make_reader: Callable[[], Learner]
    choose: BatchChooser

    def __call__(
        self, round_: Round, labels: Mapping[int, Label], budget: int, *, seed: int
    ) -> Selection:
        """The batch that the strategy picks by the other learner."""
        read = Round(round_.pool, self.make_reader())
        if labels:
            read.fit(labels, seed=seed)
        return self.choose(read, labels, budget, seed=seed)


def _find_network_reader(strategy: str) -> Callable[[], Learner] | None:
    """A network for a strategy that reads gradients or dual variables; None for the others."""
    needs = set(get(strategy).needs)
    if needs <= set(LinearProbe().offered()):
        return None
    words = f"{strategy} reads a network and needs torch (choose others with --strategy)"
    with require_extra(words, "torch"):
        from labelwise.learners.default_network import Perceptron
        from labelwise.learners.primal_dual import PrimalDualLearner
        from labelwise.learners.torch_learner import TorchLearner
    make_network = partial(Perceptron, 64, 64, 10)
    if "duals" in needs:
        return partial(PrimalDualLearner, make_network, epsilon=0.2, **TRAINING)
    return partial(TorchLearner, make_network, **TRAINING)
