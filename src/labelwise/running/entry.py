"""The public call: from arrays or files, by the name of a strategy, to a selection."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from labelwise.blocks import LocalShards, Progress, Rows, Shard, Shards
from labelwise.errors import BadInput
from labelwise.kernels.leverage import rank_tolerance
from labelwise.pool import check_ids
from labelwise.running import run
from labelwise.running.division import own_ids
from labelwise.running.shards import Sources, _labelled_ids, open_shards, open_sources
from labelwise.selection import Selection
from labelwise.strategies import get
from labelwise.strategy import Strategy


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
    **options: Any,
) -> Selection:
    """Pick the items of a pool that are worth labelling.

    Each representation is a NumPy array, a torch tensor (on any device), or the path of a .npy or
    .parquet file; a list of them is one per model. Give those that the strategy needs.

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
        **options: the strategy's own options, by name; an unknown one is an error.

    Returns:
        The picks in order, with weights where the method gives them.

    Example:
        >>> import numpy as np
        >>> features = np.arange(5.0)[:, None]  # 0 1 2 3 4 on a line
        >>> select("k_center", 3, features=features).ids
        array([4, 0, 2])
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
    needed = _needed(chosen, given)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise BadInput(f"seed must be a whole number; got {seed!r}")
    if actors is not None and not isinstance(on, str):
        raise BadInput(f"actors is {actors!r} but on names no cluster; give on='ray' too")
    if not needed and not given:
        shards, rows = _bare(chosen, ids, labelled, progress)
        return run.select(chosen, shards, budget, labelled=rows, seed=int(seed))
    values = {name: given[name] for name in needed or tuple(given)[:1]}
    sources = open_sources(values)
    chosen = _mind_precision(chosen, sources)
    with _opened(sources, values, ids, labelled, progress, on, actors) as (pool, known):
        if not needed:
            pool.map(_look)
        return run.select(chosen, pool, budget, labelled=known, seed=int(seed))


@contextmanager
def _opened(
    sources: Sources,
    values: dict[str, Any],
    ids: Any,
    labelled: Any,
    progress: Progress | None,
    on: Any,
    actors: int | None,
) -> Iterator[tuple[Shards, Rows | None]]:
    """The candidates, here or on a cluster, and the rows of the labelled items."""
    if on is None:
        yield open_shards(sources, ids=ids, labelled=labelled, progress=progress)
        return
    from labelwise.running.ray_shards import open_ray_shards

    first = next(iter(sources.values()))
    count = (first[0] if isinstance(first, list) else first).shape[0]
    known = {"ids": own_ids(ids, sources, count), "labelled": _labelled_ids(labelled)}
    with open_ray_shards(on, values, count, **known, actors=actors, progress=progress) as shards:
        yield shards, shards.labelled


def _needed(strategy: Strategy, given: dict[str, Any]) -> tuple[str, ...]:
    """The first set of representations that the strategy can work with and that is given."""
    sets = (strategy.needs, *strategy.or_needs)
    for names in sets:
        if all(name in given for name in names):
            break
    else:
        wanted = ", or ".join(" and ".join(names) for names in sets)
        got = " and ".join(given) or "none"
        raise BadInput(f"{strategy.name} needs {wanted}; got {got}")
    for name in names:
        if isinstance(given[name], list | tuple) and not strategy.several:
            raise BadInput(
                f"{strategy.name} takes one array of {name}; got a list of {len(given[name])}: "
                "concatenate their columns, or use a strategy for several models (lewis)"
            )
    return names


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
