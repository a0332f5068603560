"""A selection from what is asked to its picks: opened, planned, checked, then done.

`Asked` holds the arguments. `Call` has looked at them and opened the files; it can say what the
selection will take. `Ready` has passed every check that needs no look at the candidates' rows, so
that whoever wants only to know whether a selection can run stops there.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labelwise.errors import BadInput
from labelwise.kernels.linear.leverage import rank_tolerance
from labelwise.pool.blocks import LocalShards, Progress, Shard, Shards
from labelwise.pool.change_guard import unchanged
from labelwise.pool.division import Division
from labelwise.pool.ids import RowNumbers, check_ids, encode_labelled
from labelwise.pool.representations import count_rows, find_tensor_device, open_sources
from labelwise.pool.rows import Rows
from labelwise.pool.shards import BLOCK_BYTES, find_item_ids, open_shards
from labelwise.pool.sources import Sources
from labelwise.pool.spill import Spill
from labelwise.selection import run
from labelwise.selection.checkpoint import check_folder, finished, recorded
from labelwise.selection.fingerprint import describe, digest
from labelwise.selection.memory import free_bytes
from labelwise.selection.plan import Plan, check_memory, needed, plan_sources, row_shapes
from labelwise.selection.result import Selection
from labelwise.strategy import Job, Strategy

LITTLE = 1 << 30
"""A selection that takes no more bytes than this is not held against what the machine has free."""


class Asked(NamedTuple):
    """The arguments of `labelwise.select`, which explains them.

    Attributes:
        strategy: with its options.
        given: the representations by name.
    """

    strategy: Strategy
    budget: int
    given: Mapping[str, Any]
    ids: Any = None
    labelled: Any = None
    seed: int = 0
    progress: Progress | None = None
    on: Any = None
    actors: int | None = None
    device: Any = None
    memory: float | None = None
    resume: Any = None

    def open(self) -> "Call":
        """Refuse arguments that do not go together, and open the files that are needed."""
        names = needed(self.strategy, self.given)
        self._check()
        values = {name: self.given[name] for name in names or tuple(self.given)[:1]}
        sources: Sources = open_sources(values) if values else {}
        return Call(
            self._replace(strategy=_mind_precision(self.strategy, sources), seed=int(self.seed)),
            values,
            sources,
        )

    def _check(self) -> None:
        run.check_count(self.budget)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer):
            raise BadInput(f"seed must be a whole number; got {self.seed!r}")
        if self.memory is not None and not self.memory > 0:
            raise BadInput(f"memory must be a number of GiB above 0; got {self.memory!r}")
        if self.resume == "":
            raise BadInput("resume: '' is no folder; give its name")
        if self.actors is not None and not isinstance(self.on, str):
            raise BadInput(f"actors is {self.actors!r} but on names no cluster; give on='ray' too")
        if self.on is not None and self.resume is not None:
            raise BadInput("resume is for rows on this machine; Ray restores lost parts by itself")
        if self.on is not None and self.device is not None:
            raise BadInput(f"device is {self.device!r} but rows are on a cluster; give one of both")


class Ready(NamedTuple):
    """A selection that may begin.

    Attributes:
        asked: what is asked.
        left: how many candidates there are.
        labelled: the rows of the labelled items, as far as they are on this machine.
        picks: makes the picks, and once the caller has saved them forgets what it took to go on.
    """

    asked: Asked
    left: int
    labelled: Rows | None
    picks: Callable[[], AbstractContextManager[Selection]]


class Call(NamedTuple):
    """A selection whose arguments go together.

    Attributes:
        asked: what is asked.
        values: the representations that are needed, as given.
        sources: the same, opened; empty if nothing is known of the items but their ids.
    """

    asked: Asked
    values: dict[str, Any]
    sources: Sources

    def plan(self, *, timed: bool = False) -> Plan | None:
        """What it will take; None where nothing is read."""
        if not self.sources:
            return None
        return plan_sources(self.asked.strategy, self.sources, self.asked.budget, timed=timed)

    @property
    def limit(self) -> float:
        """How many bytes it may take."""
        return free_bytes() if self.asked.memory is None else self.asked.memory * 2**30

    def ready(self) -> Ready:
        """Refuse what cannot be done with this pool, before anything is done."""
        if not self.sources:
            ready = self._bare()
        else:
            ready = self._here() if self.asked.on is None else self._on_cluster()
        run.check_budget(self.asked.budget, ready.left)
        if self.asked.budget:
            self.asked.strategy.check(self._job(ready.left))
        return ready

    def _job(self, left: int) -> Job:
        """The job with ``left`` candidates, for the strategy's own checks."""
        labelled = count_rows(self.sources) - left if self.sources else 0
        shapes = row_shapes(self.sources)
        options = self.asked.strategy.options
        return Job(left, self.asked.budget, shapes, options, labelled=labelled)

    def _bare(self) -> Ready:
        """From a pool of which nothing but the ids is known."""
        shards = _without_rows(self.asked)
        return Ready(self.asked, len(shards), None, partial(_picked, self.asked, shards, None))

    def _here(self) -> Ready:
        """From rows that this process reads."""
        asked, sources, ids = self.asked, self.sources, self.asked.ids
        folder = None if asked.resume is None else Path(asked.resume)
        facts = {} if folder is None else self._facts()
        if folder is not None:
            check_folder(folder, facts)
        spill = self._spill()
        place = find_tensor_device(sources) if asked.device is None else asked.device
        if place is not None:
            from labelwise.pool.device_blocks import beside_tensors, on_device

            ids = find_item_ids(ids, sources, count_rows(sources))  # a file's, not a tensor's
            sources = (beside_tensors if asked.device is None else on_device)(sources, place)
        shards, known = open_shards(
            sources, ids=ids, labelled=asked.labelled, progress=asked.progress, spill=spill
        )
        picks = partial(_recorded, asked, shards, known, self.values, folder, facts)
        return Ready(asked, len(shards), known, picks)

    def _on_cluster(self) -> Ready:
        """From rows that other processes read."""
        count = count_rows(self.sources)
        ids = find_item_ids(self.asked.ids, self.sources, count)
        known: dict[str, Any] = {
            "ids": None if isinstance(ids, RowNumbers) and not ids.first else ids,
            "labelled": encode_labelled(self.asked.labelled),
        }
        picks = partial(_gathered, self.asked, self.values, count, known)
        return Ready(self.asked, len(Division(count, 1, **known)), None, picks)

    def _spill(self) -> Spill | None:
        """Where states go that do not fit; a selection that would not fit at all is refused."""
        found, limit = self.plan(), self.limit
        if found is None or (self.asked.memory is None and found.memory <= LITTLE):
            return None
        check_memory(found, limit, self.asked.given)
        return Spill(limit - found.least_memory)

    def _facts(self) -> dict[str, Any]:
        """What makes this selection this one."""
        asked = self.asked
        return {
            "version": version("labelwise"),
            "strategy": asked.strategy.name,
            "options": run.plain(asked.strategy.options),
            "budget": int(asked.budget),
            "seed": asked.seed,
            "pool": describe(self.values, self.sources),
            "ids": digest(asked.ids),
            "labelled": digest(asked.labelled),
            "device": None if asked.device is None else str(asked.device),
            "block": BLOCK_BYTES,
        }


@contextmanager
def _picked(asked: Asked, pool: Shards, known: Rows | None) -> Iterator[Selection]:
    yield _select(asked, pool, known)


@contextmanager
def _recorded(
    asked: Asked,
    shards: LocalShards,
    known: Rows | None,
    values: dict[str, Any],
    folder: Path | None,
    facts: dict[str, Any],
) -> Iterator[Selection]:
    with recorded(shards, folder, facts) as pool:
        with unchanged(values):
            picks = finished(folder, lambda: _select(asked, pool, known))
        yield picks


@contextmanager
def _gathered(
    asked: Asked, values: dict[str, Any], count: int, known: dict[str, Any]
) -> Iterator[Selection]:
    from labelwise.pool.ray.shards import open_ray_shards

    with open_ray_shards(
        asked.on, values, count, **known, actors=asked.actors, progress=asked.progress
    ) as shards:
        picks = _select(asked, shards, shards.labelled)
    yield picks


def _select(asked: Asked, pool: Shards, known: Rows | None) -> Selection:
    if asked.given and not asked.strategy.needs:
        pool.map(_look)
    return run.select(asked.strategy, pool, asked.budget, labelled=known, seed=asked.seed)


def _look(shard: Shard) -> None:
    """Read a block for its checks alone: a broken pool is refused even if nothing else reads it."""
    for name in shard.rows:
        shard.rows[name]


def _mind_precision(strategy: Strategy, sources: Sources) -> Strategy:
    """Tell a strategy that judges the rank of features if they were stored in half precision.

    Rows are computed with in float32 or float64, in which the rounding of float16 would count as
    independent directions.
    """
    features = sources.get("features", [])
    parts = features if isinstance(features, list) else [features]
    coarsest = max((source.precision for source in parts), default=0.0)
    if coarsest < 1e-5 or strategy.options.get("rtol", 0.0) is not None:
        return strategy
    return strategy.with_options(rtol=rank_tolerance(coarsest, 1, 1))


def _without_rows(asked: Asked) -> LocalShards:
    if asked.ids is None:
        raise BadInput(f"{asked.strategy.name} needs a pool: give features, or ids")
    item_ids, _ = check_ids(asked.ids, len(asked.ids))
    everything = LocalShards([Shard(item_ids, {})])
    taken = encode_labelled(asked.labelled)
    everything.positions(taken)
    left = item_ids[~np.isin(item_ids, taken)]
    return LocalShards([Shard(left, {})], asked.progress)
