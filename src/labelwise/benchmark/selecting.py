"""Choosing a batch inside a run: the rows that a strategy gets, and what its options depend on.

A strategy for one model that has to serve several networks gets their features side by side, each
network's scaled to mean square 1, and their mean probabilities. The sparse approximations get the
temperature that is best on the validation items (`labelwise.kernels.calibrate_temperature`); where
nothing is set apart they smooth the labels instead, since a network's own probabilities have no
expected gradient. The bandit gets its past rounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids, namespace, to_numpy
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.scenes import Scene
from labelwise.errors import BadInput
from labelwise.kernels import calibrate_temperature, importance_weighted_accuracy
from labelwise.learners.committee import Committee
from labelwise.selection.entry import select
from labelwise.selection.result import Selection
from labelwise.strategies import get
from labelwise.strategy import Strategy

SMOOTHED = {"label_law": "label_smoothing", "rho": 0.1}
"""Options of the sparse approximations where no temperature can be found."""

Rows = Mapping[str, Any]


@dataclass
class Memory:
    """What a bandit must know of its past.

    Attributes:
        rounds: what it drew and what came of it.
        chances: for every labelled item, the probability of the arm that chose it.
    """

    rounds: list[dict[str, Any]] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)


def calibrates(protocol: Protocol, entrant: Entrant) -> bool:
    """Whether a strategy spends the labels of the validation items on a temperature."""
    return (
        entrant.strategy in ("sparse_greedy", "sparse_iht")
        and protocol.validation > 0
        and protocol.learner.get("members") is None
        and entrant.options.get("label_law", "calibrated") == "calibrated"
        and "temperature" not in entrant.options
    )


def represent(
    protocol: Protocol, entrant: Entrant, scene: Scene, reader: Any, pool: Any
) -> dict[str, Any]:
    """The rows of the whole pool that a strategy reads; none for one that reads nothing.

    Args:
        protocol: the experiment.
        entrant: the strategy.
        scene: the data of the seed.
        reader: the trained learner or committee.
        pool: the pool's inputs, as the reader takes them.
    """
    strategy = get(entrant.strategy).with_options(**options_of(protocol, entrant))
    if not strategy.needs:
        return {}
    names = wanted(strategy, offered(reader, scene), protocol.learner.get("members") is not None)
    rows = reader.represent(pool, names)
    if isinstance(reader, Committee) and not strategy.several:
        rows = {name: merged(name, value) for name, value in rows.items()}
    return dict(rows)


def choose(
    protocol: Protocol,
    entrant: Entrant,
    scene: Scene,
    rows: Rows,
    labelled: Ids,
    budget: int,
    *,
    seed: int,
    reader: Any = None,
    memory: Memory | None = None,
) -> Selection:
    """Pick a batch.

    Args:
        protocol: the experiment.
        entrant: the strategy.
        scene: the data of the seed.
        rows: what `represent` gave.
        labelled: ids of the labelled items.
        budget: how many to pick.
        seed: decides all draws.
        reader: the trained learner, for calibration and rewards.
        memory: of a bandit; the choice is added to it.
    """
    options = options_of(protocol, entrant)
    if calibrates(protocol, entrant):
        options["temperature"] = temperature(reader, scene)
    if memory is not None:
        _reward(memory, reader, scene, labelled)
        options["rounds"] = [dict(past) for past in memory.rounds]
    picked = select(
        entrant.strategy,
        budget,
        **rows,
        ids=scene.ids,
        labelled=labelled,
        seed=seed,
        **options,
    )
    if memory is not None:
        drawn = {name: picked.info[name] for name in ("arm", "probability")}
        memory.rounds.append(drawn)
        memory.chances += [float(picked.info["probability"])] * len(picked)
    return picked


def options_of(protocol: Protocol, entrant: Entrant) -> dict[str, Any]:
    """A strategy's options before those that depend on the round."""
    options = dict(entrant.options)
    sparse = entrant.strategy in ("sparse_greedy", "sparse_iht")
    bayesian = protocol.learner.get("members") is not None
    if sparse and not bayesian and not protocol.validation and "label_law" not in options:
        options = {**SMOOTHED, **options}
    return options


def temperature(reader: Any, scene: Scene) -> float:
    """The temperature of the networks that is best on the validation items."""
    if scene.validation is None:
        raise BadInput("a temperature needs validation items, and none are set apart")
    inputs, targets = scene.validation
    logits = reader.represent(inputs, ["logits"])["logits"]
    if isinstance(logits, list):
        logits = merged("logits", logits)
    return float(calibrate_temperature(np.asarray(to_numpy(logits)), targets))


def offered(reader: Any, scene: Scene) -> list[str]:
    """The representations that a reader can give."""
    if not isinstance(reader, Committee):
        return list(reader.offered())
    if scene.classes is None:
        return ["features", "outputs", "member_votes"]
    members = ["member_probabilities", "member_votes", "gradient_norms", "gradient_products"]
    return ["features", "logits", "probabilities", *members]


def wanted(strategy: Strategy, given: Sequence[str], bayesian: bool) -> tuple[str, ...]:
    """The first set of representations that a strategy takes and a reader gives.

    With a Bayesian network, those by its members come first.
    """
    sets = [strategy.needs, *strategy.or_needs]
    if bayesian:
        sets.sort(key=lambda names: not any(name.startswith("member_") for name in names))
    for names in sets:
        if set(names) <= set(given):
            return names
    sets_in_words = ", or ".join(" and ".join(names) for names in sets)
    raise BadInput(f"{strategy.name} needs {sets_in_words}; this experiment gives {given}")


def merged(name: str, parts: list[Any]) -> Any:
    """What several networks give as one array, for a strategy that serves one model."""
    if not isinstance(parts, list):
        return parts
    xp = namespace(*parts)
    if name == "features":
        scaled = [part / xp.sqrt(xp.mean(part * part) + 1e-12) for part in parts]
        return xp.concat(scaled, axis=1)
    stacked = xp.stack(parts)
    if name == "logits":
        shifted = stacked - xp.max(stacked, axis=2, keepdims=True)
        chances = xp.exp(shifted)
        chances = chances / xp.sum(chances, axis=2, keepdims=True)
        return xp.log(xp.mean(chances, axis=0) + 1e-12)
    return xp.mean(stacked, axis=0)


def _reward(memory: Memory, reader: Any, scene: Scene, labelled: Ids) -> None:
    """Say how well the last arm did: the importance-weighted accuracy on all labelled items."""
    if not memory.rounds or "reward" in memory.rounds[-1]:
        return
    places = scene.positions(labelled)
    answers = reader.represent(scene.inputs[places], ["probabilities"])["probabilities"]
    hits = np.asarray(to_numpy(answers)).argmax(axis=1) == scene.targets[places]
    before = len(labelled) - len(memory.chances)
    chances: Floats = np.concatenate([np.ones(before), memory.chances])
    memory.rounds[-1]["reward"] = importance_weighted_accuracy(hits, chances)
