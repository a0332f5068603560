"""A selection request: validated when it is made, planned, checked against the pool, then run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.errors import BadInput, LabelwiseError
from labelwise.files import to_json
from labelwise.kernels.linear.leverage import rank_tolerance
from labelwise.pool.blocks import LocalShards, Progress, Shard, Shards
from labelwise.pool.change_guard import guard_files
from labelwise.pool.ids import IdIndex, RowNumbers, encode_keys, encode_labelled
from labelwise.pool.pool import Pool
from labelwise.pool.representations import find_tensor_device
from labelwise.pool.rows import Rows
from labelwise.pool.shards import BLOCK_BYTES, open_shards
from labelwise.pool.sources import Sources
from labelwise.pool.spill import Spill
from labelwise.selection import run
from labelwise.selection.checkpoint import (
    check_folder,
    describe_ids,
    describe_pool,
    load_or_select,
    record_calls,
)
from labelwise.selection.plan import (
    SelectionPlan,
    check_memory,
    check_needs,
    find_free_memory,
    plan_sources,
    row_shapes,
)
from labelwise.selection.result import Selection
from labelwise.strategy import Job, Strategy

SMALL = 1 << 30
"""A selection that needs at most this many bytes is not compared with the free memory."""


@dataclass
class SelectionRequest:
    """The arguments of `labelwise.select`, which explains them, and the state of the request.

    Making it rejects arguments that do not fit together and opens the files. `prepare` makes every
    check that does not read a candidate's row. `run` picks.

    Attributes:
        strategy: with its options.
        pool: ids and representations.
    """

    strategy: Strategy
    budget: int
    pool: Pool
    labelled: Any = None
    seed: int = 0
    progress: Progress | None = None
    on: Any = None
    actors: int | None = None
    device: Any = None
    memory: float | None = None
    resume: Any = None

    def __post_init__(self) -> None:
        given = self.pool.representations
        names = check_needs(self.strategy, given) or tuple(given)[:1]
        run.check_budget(self.budget)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer):
            raise BadInput(f"seed must be a whole number; got {self.seed!r}")
        if self.memory is not None and not self.memory > 0:
            raise BadInput(f"memory must be a number of GiB above 0; got {self.memory!r}")
        if self.resume == "":
            raise BadInput("resume: '' is not a folder; give its name")
        if self.actors is not None and not isinstance(self.on, str):
            raise BadInput(f"actors is {self.actors!r} but on names no cluster; give on='ray' too")
        if self.on is not None and self.resume is not None:
            raise BadInput("resume is for rows on this machine; Ray restores lost parts by itself")
        if self.on is not None and self.device is not None:
            raise BadInput(
                f"device is {self.device!r} but the rows are on a cluster; give one of the two"
            )
        self.seed = int(self.seed)
        self.values = {name: given[name] for name in names}
        self.sources: Sources = self.pool.open_sources(names) if names else {}
        self.strategy = _fit_tolerance(self.strategy, self.sources)
        self._index: IdIndex | None = None
        self._keys: list[Any] | None = None
        self._taken = np.empty(0, dtype=np.int64)
        self._shards: LocalShards | None = None
        self._known: Rows | None = None

    def plan(self, *, timed: bool = False) -> SelectionPlan | None:
        """The cost of the selection; None if no rows are read."""
        if not self.sources:
            return None
        return plan_sources(self.strategy, self.sources, self.budget, timed=timed)

    @property
    def memory_limit(self) -> float:
        """Bytes that the selection may use."""
        return find_free_memory() if self.memory is None else self.memory * 2**30

    def prepare(self) -> int:
        """Make every check that does not read a candidate's row.

        Returns:
            The number of candidates.
        """
        if not self.sources and not self.pool.has_ids:
            raise BadInput(f"{self.strategy.name} needs a pool: give features, or ids")
        ids, self._keys = self.pool.resolve_ids(self.sources)
        self._index, self._taken = IdIndex(ids), encode_labelled(self.labelled)
        try:
            return self._check_pool(self._index)
        except LabelwiseError as error:
            raise self._name_keys(error) from error

    def _check_pool(self, index: IdIndex) -> int:
        """Check the labelled items, the budget, the options and the memory; open the blocks."""
        rows = index.find_positions(self._taken)
        left = len(index) - len(self._taken)
        run.check_budget(self.budget, left)
        if self.budget:
            shapes, options = row_shapes(self.sources), self.strategy.options
            self.strategy.check(Job(left, self.budget, shapes, options, labelled=len(self._taken)))
        if not self.sources:
            ids = index.ids.to_array() if isinstance(index.ids, RowNumbers) else index.ids
            self._shards = LocalShards([Shard(np.delete(ids, rows), {})], self.progress)
        elif self.on is None:
            self._open_blocks(index)
        return left

    def _open_blocks(self, index: IdIndex) -> None:
        """Check memory and the folder to resume from, and open the rows in this process."""
        if self.resume is not None:
            check_folder(Path(self.resume), self._describe())
        plan = plan_sources(self.strategy, self.sources, self.budget)
        spill = None
        if self.memory is not None or plan.memory > SMALL:
            limit = self.memory_limit
            check_memory(plan, limit, self.pool.representations)
            spill = Spill(limit - plan.least_memory)
        sources = self.sources
        place = find_tensor_device(sources) if self.device is None else self.device
        if place is not None:
            from labelwise.pool.device_blocks import join_tensors, move_to_device

            sources = (join_tensors if self.device is None else move_to_device)(sources, place)
        self._shards, self._known = open_shards(
            sources, ids=index, labelled=self._taken, progress=self.progress, spill=spill
        )

    @contextmanager
    def run(self) -> Iterator[Selection]:
        """Pick; once the caller has saved the picks, the folder to resume from is removed."""
        if self._index is None:
            self.prepare()
        try:
            if self.on is not None:
                picks = self._run_on_ray()
            elif self.resume is None:
                assert self._shards is not None
                with guard_files(self.values):
                    picks = self._pick(self._shards, self._known)
            else:
                assert self._shards is not None
                folder = Path(self.resume)
                with record_calls(self._shards, folder, self._describe()) as pool:
                    with guard_files(self.values):
                        picks = load_or_select(folder, lambda: self._pick(pool, self._known))
                    yield self._add_keys(picks)
                return
        except LabelwiseError as error:
            raise self._name_keys(error) from error
        yield self._add_keys(picks)

    def _run_on_ray(self) -> Selection:
        from labelwise.pool.ray.shards import open_ray_shards

        assert self._index is not None
        ids = self._index.ids
        if isinstance(ids, RowNumbers) and ids.first:
            ids = ids.to_array()
        with open_ray_shards(
            self.on,
            self.values,
            len(ids),
            ids=None if isinstance(ids, RowNumbers) else ids,
            labelled=self._taken,
            actors=self.actors,
            progress=self.progress,
        ) as shards:
            return self._pick(shards, shards.labelled)

    def _pick(self, shards: Shards, labelled: Rows | None) -> Selection:
        if self.sources and not self.strategy.needs:
            shards.map(_read_rows)  # invalid rows are rejected even if the strategy reads none
        return run.select(self.strategy, shards, self.budget, labelled=labelled, seed=self.seed)

    def _add_keys(self, picks: Selection) -> Selection:
        """Attach the original keys of a pool whose keys are not integers."""
        if self._keys is None or self._index is None:
            return picks
        rows = self._index.find_positions(picks.ids)
        return replace(picks, keys=[self._keys[row] for row in rows.tolist()])

    def _name_keys(self, error: LabelwiseError) -> LabelwiseError:
        """The same error with keys in place of the hashes of keys."""
        if self._keys is None or self._index is None:
            return error
        ids, keys = encode_keys([] if self.labelled is None else self.labelled)
        hashes = dict(zip(ids.tolist(), keys or [], strict=False))
        text = str(error)
        for word in set(text.replace(";", " ").replace(",", " ").split()):
            if not word.isdecimal() or len(word) < 10:
                continue
            if self._index.contains([int(word)])[0]:
                row = int(self._index.find_positions([int(word)])[0])
                hashes[int(word)] = self._keys[row]
            if int(word) in hashes:
                text = text.replace(word, repr(hashes[int(word)]))
        return type(error)(text)

    def _describe(self) -> dict[str, Any]:
        """Describe the identity of this selection for the folder to resume from."""
        ids = self._index.ids if self._index is not None else None
        return {
            "version": version("labelwise"),
            "strategy": self.strategy.name,
            "options": to_json(self.strategy.options),
            "budget": int(self.budget),
            "seed": self.seed,
            "pool": describe_pool(self.values, self.sources),
            "ids": None if isinstance(ids, RowNumbers) else describe_ids(ids),
            "labelled": describe_ids(self._taken) if len(self._taken) else None,
            "device": None if self.device is None else str(self.device),
            "block": BLOCK_BYTES,
        }


def _read_rows(shard: Shard) -> None:
    for name in shard.rows:
        shard.rows[name]


def _fit_tolerance(strategy: Strategy, sources: Sources) -> Strategy:
    """Set the rank tolerance of a strategy that has one if features have half precision.

    Rows are computed with in float32 or float64, in which the rounding of float16 would count as
    independent directions.
    """
    features = sources.get("features", [])
    parts = features if isinstance(features, list) else [features]
    coarsest = max((source.precision for source in parts), default=0.0)
    if coarsest < 1e-5 or strategy.options.get("rtol", 0.0) is not None:
        return strategy
    return strategy.with_options(rtol=rank_tolerance(coarsest, 1, 1))
