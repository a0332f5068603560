"""Pools and picks of the diagnostics: features of one or several models, and checked weights."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, cast

import numpy as np

from labelwise.arrays import Array, Floats, Ids, float64, is_array, namespace, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.linear.leverage import RowReader
from labelwise.kernels.linear.row_chunks import iterate_row_chunks
from labelwise.pool.blocks import LocalShards, Shard, Shards
from labelwise.pool.rows import read_features
from labelwise.selection.result import Selection

Features = Array | Sequence[Array] | Shards
"""``(n, d)`` features of a pool, a list of such arrays (one per model), or shards of them."""


def make_model_reader(model: int = 0, bias: bool = False) -> RowReader:
    """A reader of the ``(n, d)`` features of one model, optionally with a constant column."""
    return partial(read_features, model=model, bias=bias)


def as_feature_shards(features: Features, **others: Array) -> Shards:
    """Blocks of an array, or of one per model, with ``others``; blocks are returned as they are."""
    if hasattr(features, "map") and hasattr(features, "sum") and not is_array(features):
        return cast(Shards, features)
    several: list[Array] = list(features) if isinstance(features, list | tuple) else [features]
    if not several:
        raise BadInput("features is an empty list; give one array per model")
    for array in several:
        if not is_array(array) or array.ndim != 2:
            shape = tuple(array.shape) if is_array(array) else type(array).__name__
            raise BadInput(f"features must be arrays with two axes (items, columns); got {shape}")
    extra = {name: value for name, value in others.items() if value is not None}
    lengths = {int(array.shape[0]) for array in several} | {len(value) for value in extra.values()}
    if len(lengths) > 1:
        raise BadInput(f"the arrays have {sorted(lengths)} rows; give one row per item in each")
    given = several if isinstance(features, list | tuple) else several[0]
    return LocalShards.of(features=given, **extra)


def count_models(shards: Shards) -> int:
    """Number of models whose features the pool holds."""
    if not len(shards):
        raise BadInput("the pool has no items; give features with at least one row")
    features = shards.rows(shards.ids[:1])["features"]
    return len(features) if isinstance(features, list | tuple) else 1


class WeightedPicks(NamedTuple):
    """Picks with their weights; unweighted picks get n / b each."""

    ids: Ids
    weights: Floats
    weighted: bool


def check_weighted_picks(picks: Selection, n: int) -> WeightedPicks:
    """The ids and weights of a selection from ``n`` items; invalid weights are rejected."""
    if not len(picks):
        raise BadInput("the selection is empty; there is nothing to explain")
    if picks.weights is None:
        return WeightedPicks(picks.ids, np.full(len(picks), n / len(picks)), False)
    weights = np.asarray(picks.weights, dtype=np.float64)
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        item = picks.ids[wrong][0]
        raise BadInput(f"the weight of pick {item} is {weights[wrong][0]}; give 0 or more")
    if not weights.sum() > 0:
        raise BadInput("all weights of the selection are zero; there is nothing to explain")
    return WeightedPicks(picks.ids, weights, True)


def read_picked_rows(shards: Shards, ids: Ids, read: RowReader) -> Floats:
    """The rows of some items, ``(b, d)``, in float64 on the host."""
    return np.asarray(to_numpy(float64(read(shards.rows(ids)))))


class PoolMoments(NamedTuple):
    """Sums over the pool: of the rows ``(d,)``, of their squared lengths, and ``A^T A``."""

    total: Floats
    squares: float
    gram: Floats


def sum_pool_moments(shards: Shards, read: RowReader) -> PoolMoments:
    """Sum the moments of the pool in one pass, in float64."""
    found: tuple[Floats, Floats] = shards.sum(_sum_block_moments, read)
    return PoolMoments(found[0], float(np.trace(found[1])), found[1])


def _sum_block_moments(shard: Shard, read: RowReader) -> tuple[Floats, Floats]:
    rows = read(shard.rows)
    total, gram = np.zeros(rows.shape[1]), np.zeros((rows.shape[1], rows.shape[1]))
    for _, chunk in iterate_row_chunks(rows, double=True):
        xp = namespace(chunk)
        total += to_numpy(xp.sum(chunk, axis=0))
        gram += to_numpy(xp.matrix_transpose(chunk) @ chunk)
    return total, gram
