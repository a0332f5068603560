"""The public call: from arrays or files, by the name of a strategy, to a selection."""

from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labelwise.blocks import LocalShards, Progress, Shard, Shards
from labelwise.errors import BadInput
from labelwise.kernels.leverage import rank_tolerance
from labelwise.pool import check_ids
from labelwise.rows import Rows
from labelwise.running import run
from labelwise.running.checkpoint import recorded
from labelwise.running.fingerprint import describe, digest
from labelwise.running.memory import free_bytes
from labelwise.running.plan import check_memory, needed, plan_sources
from labelwise.running.seen_files import unchanged
from labelwise.running.shards import (
    BLOCK_BYTES,
    Sources,
    _labelled_ids,
    open_shards,
    open_sources,
    own_ids,
    tensor_device,
)
from labelwise.running.spill import Spill
from labelwise.selection import Selection
from labelwise.strategies import get
from labelwise.strategy import Strategy

LITTLE = 1 << 30
"""A selection that takes no more bytes than this is not held against what the machine has free."""


def select(
    strategy: str | Strategy,
    budget: int,
    *,
    features: Any = None,
    probabilities: Any = None,
    logits: Any = None,
    member_probabilities: Any = None,
    member_votes: Any = None,
    outputs: Any = None,
    gradient_norms: Any = None,
    gradient_products: Any = None,
    duals: Any = None,
    ids: Any = None,
    labelled: Any = None,
    seed: int = 0,
    progress: Progress | None = None,
    on: Any = None,
    actors: int | None = None,
    device: Any = None,
    memory: float | None = None,
    resume: Any = None,
    **options: Any,
) -> Selection:
    """Pick the items of a pool that are worth labelling.

    Each representation is a NumPy array, a torch tensor (on any device), or the path of a .npy or
    .parquet file, of a folder of them or a pattern (``"pool-*.npy"``); a list of them is one per
    model. Give those that the strategy needs. Tensors beside arrays or files: all are computed with
    where the tensors are.

    Args:
        strategy: a name from `labelwise.strategies`, or a strategy.
        budget: how many items to pick.
        features: ``(n, d)``, as a rule the last hidden layer.
        probabilities: ``(n, K)`` class probabilities.
        logits: ``(n, K)`` class scores before the softmax.
        member_probabilities: ``(n, m, K)`` from posterior draws, dropout, an ensemble or models.
        member_votes: ``(n, m)`` what each member predicts.
        outputs: ``(n, k)`` predicted values of a regression.
        gradient_norms: ``(n,)`` squared norms of the items' gradients over the whole network.
        gradient_products: ``(n,)`` their products with the sum of the labelled items' gradients.
        duals: ``(n,)`` predicted dual variables.
        ids: ``(n,)`` the items' ids; row numbers if None.
        labelled: ids of the items that are labelled already; context, never picked again.
        seed: decides every draw.
        progress: called as ``progress(stage, done, total)`` while the selection runs.
        on: where the rows are read: in this process if None; ``"ray"`` on a Ray cluster started
            here, ``"ray:HOST:PORT"`` or ``"ray://HOST:PORT"`` on one that runs, or
            `labelwise.running.ray_shards.RayActors` that are to serve several calls. The picks
            are the same.
        actors: how many processes of the cluster hold the rows; one per CPU if None.
        device: where rows of files and host arrays are computed with, such as ``"cuda"``: a block
            at a time is brought there. Where they are if None.
        memory: how many GiB the selection may take; what the machine has free if None. One that
            would take more is refused before it starts; before that, what is kept beside the rows
            goes to temporary files.
        resume: a folder in which to write down how far the selection has come, now and then. The
            same call goes on from there after an interruption; the folder goes at the end.
        **options: the strategy's own options, by name; an unknown one is an error.

    Returns:
        The picks in order, with weights where the method gives them.

    Example:
        >>> import numpy as np
        >>> features = np.arange(5.0)[:, None]  # 0 1 2 3 4 on a line
        >>> select("k_center", 3, features=features).ids
        array([0, 4, 2])
        >>> select("k_center", 2, features=features, labelled=[4]).ids
        array([0, 2])
    """
    chosen = get(strategy) if isinstance(strategy, str) else strategy
    given = {
        "features": features,
        "probabilities": probabilities,
        "logits": logits,
        "member_probabilities": member_probabilities,
        "member_votes": member_votes,
        "outputs": outputs,
        "gradient_norms": gradient_norms,
        "gradient_products": gradient_products,
        "duals": duals,
    }
    given = {name: value for name, value in given.items() if value is not None}
    chosen = chosen.with_options(**options)
    names = needed(chosen, given)
    run.check_count(budget)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise BadInput(f"seed must be a whole number; got {seed!r}")
    if actors is not None and not isinstance(on, str):
        raise BadInput(f"actors is {actors!r} but on names no cluster; give on='ray' too")
    if resume is not None and on is not None:
        raise BadInput("resume is for rows on this machine; Ray restores lost parts by itself")
    if not names and not given:
        shards, rows = _bare(chosen, ids, labelled, progress)
        return run.select(chosen, shards, budget, labelled=rows, seed=int(seed))
    values = {name: given[name] for name in names or tuple(given)[:1]}
    sources: Sources = open_sources(values)
    chosen = _mind_precision(chosen, sources)
    call = Call(chosen, budget, int(seed), ids, labelled, progress)
    if on is not None:
        if device is not None:
            raise BadInput(f"device is {device!r} but rows are on a cluster; give one of both")
        return call.on_cluster(sources, values, on, actors)
    folder = None if resume is None else Path(resume)
    facts = call.facts(values, sources, device) if folder is not None else {}
    spill = call.spill(sources, memory)
    place = tensor_device(sources) if device is None else device
    if place is not None:
        from labelwise.running.device_blocks import beside_tensors, on_device

        call = call._replace(ids=own_ids(ids, sources, _count(sources)))  # a file's, not a tensor's
        sources = (beside_tensors if device is None else on_device)(sources, place)
    with unchanged(values):
        return call.here(sources, spill, folder, facts)


def _count(sources: Sources) -> int:
    first = next(iter(sources.values()))
    return int((first[0] if isinstance(first, list) else first).shape[0])


class Call(NamedTuple):
    """What is asked of a pool whose rows may be anywhere."""

    strategy: Strategy
    budget: int
    seed: int
    ids: Any
    labelled: Any
    progress: Progress | None

    def spill(self, sources: Sources, memory: float | None) -> Spill | None:
        """Where states go that do not fit; a selection that would not fit at all is refused."""
        if memory is not None and not memory > 0:
            raise BadInput(f"memory must be a number of GiB above 0; got {memory!r}")
        found = plan_sources(self.strategy, sources, self.budget)
        if memory is None and found.memory <= LITTLE:
            return None
        limit = free_bytes() if memory is None else memory * 2**30
        check_memory(found, limit)
        return Spill(limit - found.least_memory)

    def facts(self, values: dict[str, Any], sources: Sources, device: Any) -> dict[str, Any]:
        """What makes this selection this one."""
        return {
            "version": version("labelwise"),
            "strategy": self.strategy.name,
            "options": run.plain(self.strategy.options),
            "budget": int(self.budget),
            "seed": self.seed,
            "pool": describe(values, sources),
            "ids": digest(self.ids),
            "labelled": digest(self.labelled),
            "device": None if device is None else str(device),
            "block": BLOCK_BYTES,
        }

    def here(
        self, sources: Sources, spill: Spill | None, folder: Path | None, facts: dict[str, Any]
    ) -> Selection:
        """Select from rows that this process reads."""
        shards, known = open_shards(
            sources, ids=self.ids, labelled=self.labelled, progress=self.progress, spill=spill
        )
        with recorded(shards, folder, facts) as pool:
            return self._select(pool, known)

    def on_cluster(
        self, sources: Sources, values: dict[str, Any], on: Any, actors: int | None
    ) -> Selection:
        """Select from rows that other processes read."""
        from labelwise.running.ray_shards import open_ray_shards

        count = _count(sources)
        known = {
            "ids": own_ids(self.ids, sources, count),
            "labelled": _labelled_ids(self.labelled),
        }
        with open_ray_shards(
            on, values, count, **known, actors=actors, progress=self.progress
        ) as shards:
            return self._select(shards, shards.labelled)

    def _select(self, pool: Shards, known: Rows | None) -> Selection:
        if not self.strategy.needs:
            pool.map(_look)
        return run.select(self.strategy, pool, self.budget, labelled=known, seed=self.seed)


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


def _look(shard: Shard) -> None:
    """Read a block for its checks alone: a broken pool is refused even if nothing else reads it."""
    for name in shard.rows:
        shard.rows[name]


def _bare(
    strategy: Strategy, ids: Any, labelled: Any, progress: Progress | None
) -> tuple[LocalShards, None]:
    """A pool of which nothing but the ids is known."""
    if ids is None:
        raise BadInput(f"{strategy.name} needs a pool: give features, or ids")
    item_ids = check_ids(ids, len(ids))
    everything = LocalShards([Shard(item_ids, {})])
    taken = np.empty(0, np.int64) if labelled is None else np.asarray(labelled, dtype=np.int64)
    everything.positions(taken)
    left = item_ids[~np.isin(item_ids, taken)]
    return LocalShards([Shard(left, {})], progress), None
