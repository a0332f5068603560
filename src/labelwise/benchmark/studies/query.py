"""Study of the first query: seconds to represent a pool and to select the first batch from it.

All strategies of a seed read the same network, so it is trained once, and one pass over the pool
computes all representations. The seconds of that pass count for every strategy that reads any; the
training is not counted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from labelwise.benchmark.benchmark_run import BatchSelector
from labelwise.benchmark.devices import Device, DeviceClock, make_study_line
from labelwise.benchmark.labelling_run import PICKING, TRAINING, mix_run_seed
from labelwise.benchmark.models import train_on_first_labels
from labelwise.benchmark.processes import keep_last_result
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.splits import DataSplit, split_dataset
from labelwise.learner import Learner
from labelwise.learners.inputs import Items
from labelwise.pool.rows import Rows
from labelwise.selection.result import Selection
from labelwise.strategies import get

NAMES = ("features", "logits", "probabilities")
"""Representations of the one pass."""


class RepresentedPool(NamedTuple):
    """A trained network and its representations of the pool."""

    split: DataSplit
    items: Items
    reader: Learner
    rows: Rows
    seconds: Mapping[str, float]


def study_first_query(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[RoundResult]:
    """Seconds to represent the pool and select the first batch, without the training."""
    picked, seconds = query_first_batch(protocol, entrant, seed, device)
    value = seconds["represent"] + seconds["select"]
    found = make_study_line(protocol, entrant, seed, device, 0, protocol.start, value, 0.0)
    yield replace(
        found,
        seconds={name: round(value, 6) for name, value in seconds.items()},
        picks=tuple(picked.ids.tolist()),
    )


def query_first_batch(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> tuple[Selection, dict[str, float]]:
    """The first batch, and the seconds of training, representing and selecting."""
    pool = _represent_query_pool(protocol, seed, device)
    strategy = get(entrant.strategy).with_options(**entrant.options)
    names = strategy.match_needs(dict.fromkeys(NAMES)) if strategy.needs else ()
    rows = {name: pool.rows[name] for name in names}
    clock = DeviceClock(device)
    picked = BatchSelector(protocol, entrant, pool.split, pool.items).select(
        pool.reader, rows, pool.split.first, protocol.batch, seed=mix_run_seed(seed, 0, PICKING)
    )
    represent = pool.seconds["represent"] if names else 0.0
    return picked, {**pool.seconds, "represent": represent, "select": clock.lap()}


@keep_last_result
def _represent_query_pool(protocol: Protocol, seed: int, device: Device) -> RepresentedPool:
    split = split_dataset(protocol, seed)
    clock = DeviceClock(device)
    models = train_on_first_labels(protocol, split, device, mix_run_seed(seed, 0, TRAINING))
    seconds = {"train": clock.lap()}
    rows = models.reader.represent(models.pool, list(NAMES))
    seconds["represent"] = clock.lap()
    return RepresentedPool(split, models.pool, models.reader, rows, seconds)
