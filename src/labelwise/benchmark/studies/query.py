"""The first query: seconds to represent a pool and to pick the first batch from it.

All strategies of a seed read the same network, so it is trained once, and one pass over the pool
gives what any of them reads. The seconds of that pass count for every strategy that reads anything;
the training is not counted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from labelwise.benchmark import selecting
from labelwise.benchmark.batched import fit_together
from labelwise.benchmark.devices import Clock, Device
from labelwise.benchmark.models import make_models
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.rounds import PICKING, TRAINING, seed_of
from labelwise.benchmark.scenes import Scene, prepare
from labelwise.benchmark.studies.lines import line
from labelwise.selection.result import Selection
from labelwise.strategies import get

NAMES = ("features", "logits", "probabilities")
"""What the one pass gives."""

_kept: dict[str, Any] = {}
"""The represented pool and what it was made for."""


class Represented(NamedTuple):
    """A trained network and what it makes of the pool.

    Attributes:
        scene: the data of the seed.
        reader: the network.
        rows: representations by name.
        seconds: of the training, and of the pass over the pool.
    """

    scene: Scene
    reader: Any
    rows: Mapping[str, Any]
    seconds: Mapping[str, float]


def first_query(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[RoundResult]:
    """Seconds to represent the pool and pick the first batch; the training is not counted."""
    picked, seconds = query(protocol, entrant, seed, device)
    value = seconds["represent"] + seconds["select"]
    found = line(protocol, entrant, seed, device, 0, protocol.start, value, 0.0)
    yield replace(
        found,
        seconds={name: round(passed, 6) for name, passed in seconds.items()},
        picks=tuple(picked.ids.tolist()),
    )


def query(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> tuple[Selection, dict[str, float]]:
    """The first batch, and the seconds of training, representing and selecting."""
    made_for = protocol, seed, device
    if _kept.get("made for") != made_for:
        _kept.clear()  # the old pool's memory goes before the new one's comes
        _kept["pool"] = _represented(protocol, seed, device)
        _kept["made for"] = made_for
    pool: Represented = _kept["pool"]
    strategy = get(entrant.strategy).with_options(**selecting.options_of(protocol, entrant))
    names = selecting.wanted(strategy, NAMES, bayesian=False) if strategy.needs else ()
    clock = Clock(device)
    picked = selecting.choose(
        protocol,
        entrant,
        pool.scene,
        {name: pool.rows[name] for name in names},
        pool.scene.first,
        protocol.batch,
        seed=seed_of(seed, 0, PICKING),
        reader=pool.reader,
    )
    passed = pool.seconds["represent"] if names else 0.0
    return picked, {**pool.seconds, "represent": passed, "select": clock.lap()}


def _represented(protocol: Protocol, seed: int, device: Device) -> Represented:
    scene = prepare(protocol, seed)
    models = make_models(protocol, Entrant("random"), scene, device)
    places = scene.positions(scene.first)
    clock = Clock(device)
    fit_together(models.tasks(places, scene.targets[places], None, seed_of(seed, 0, TRAINING)))
    seconds = {"train": clock.lap()}
    rows = models.reader.represent(models.pool, list(NAMES))
    seconds["represent"] = clock.lap()
    return Represented(scene, models.reader, rows, seconds)
