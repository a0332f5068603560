"""Uncertainty of class probabilities and of votes.

One model: ``probabilities`` ``(n, K)``. Several models: a list of them, or
``member_probabilities`` ``(n, M, K)``; the scores of each model are scaled to [0, 1] over the pool
and averaged, so that every model counts equally.

Cost: ``O(n M K)``, one pass over the probabilities.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from labelwise.arrays import Array, Floats, HostArray, like, namespace, row_dots, to_numpy
from labelwise.kernels.float64_blocks import iterate_float64_chunks
from labelwise.pool.blocks import Shard
from labelwise.pool.rows import Rows, map_pieces, take_rows
from labelwise.strategy import Cost, Job, ScoreStrategy

SMALLEST_PROBABILITY = 1e-12  # Probabilities are at least this where their logarithm is taken
UNSURE = "The model is less sure about it than about most other items{doubt}."

Measure = Callable[[Array], Array]
"""From ``(n, K)`` probabilities in float64 to ``(n,)``, higher for less certain."""


def entropy(probabilities: Array) -> Array:
    """``-sum p log p`` over the last axis, in nats; a probability of 0 adds nothing."""
    xp = namespace(probabilities)
    is_numpy = isinstance(probabilities, np.ndarray)
    if is_numpy and probabilities.min(initial=1.0) >= SMALLEST_PROBABILITY:  # no clipping needed
        return -row_dots(probabilities, np.log(probabilities))
    logs = xp.maximum(probabilities, like(SMALLEST_PROBABILITY, probabilities))
    return -row_dots(probabilities, xp.log(logs, out=logs))


def vote_entropy(votes: HostArray) -> Floats:
    """The entropy in nats of the votes in every row of ``(n, M)``, for any kind of values.

    Cost ``O(n M log M)``, whatever the number of classes.

    >>> vote_entropy(np.array([[4, 4, 4, 4], [0, 1, 0, 1], [2, 2, 2, 0]])).round(4).tolist()
    [0.0, 0.6931, 0.5623]
    """
    size = votes.shape[1]
    ordered = np.sort(votes, axis=1)
    # A run of equal votes from column i to column j has j - i + 1 votes.
    columns = np.broadcast_to(np.arange(size), votes.shape)
    begins = np.ones(votes.shape, dtype=bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    ends = np.ones(votes.shape, dtype=bool)
    ends[:, :-1] = begins[:, 1:]
    started = np.maximum.accumulate(np.where(begins, columns, 0), axis=1)
    shares = np.where(ends, columns - started + 1, size) / size
    # Adding 0 turns -0.0 of a unanimous vote into 0.
    return np.asarray(-np.sum(shares * np.log(shares), axis=1) + 0.0)


def make_uncertainty_strategy(measure: Measure, **facts: Any) -> ScoreStrategy:
    """The strategy that picks the highest ``measure``, averaged over models."""

    def find_ranges(shard: Shard) -> tuple[Floats, Floats]:
        """The smallest and largest score of every model in a block; empty for one model."""
        if len(_list_probabilities(take_rows(shard.rows, np.arange(min(len(shard), 1))))) == 1:
            return np.empty(0), np.empty(0)
        scores = to_numpy(map_pieces(partial(_score_model_uncertainty, measure), shard.rows))
        return scores.min(axis=0, initial=np.inf), scores.max(axis=0, initial=-np.inf)

    def score(rows: Rows, labelled: Rows | None, ranges: list[tuple[Floats, Floats]]) -> Array:
        scores = map_pieces(partial(_score_model_uncertainty, measure), rows)
        count = scores.shape[1]
        if count == 1:
            return scores[:, 0]
        low = np.min([part[0] for part in ranges], axis=0)
        span = np.max([part[1] for part in ranges], axis=0) - low
        scaled = [
            (scores[:, model] - float(low[model])) / float(span[model])
            for model in range(count)
            if span[model] > 0
        ]
        return sum(scaled) / count if scaled else scores[:, 0] * 0

    return ScoreStrategy(
        **{"explain": UNSURE, **facts},
        needs=("probabilities",),
        or_needs=(("member_probabilities",),),
        several=True,
        score=score,
        summarise=find_ranges,
        cost=_estimate_uncertainty_cost,
    )


def _score_model_uncertainty(measure: Measure, rows: Rows) -> Array:
    """The measure of every model's probabilities, ``(n, M)``; in float64, some rows at a time."""
    scores = []
    for probabilities in _list_probabilities(rows):
        parts = [measure(chunk) for (chunk,) in iterate_float64_chunks(probabilities)]
        scores.append(namespace(probabilities).concat(parts))
    return namespace(*scores).stack(scores, axis=1)


def _list_probabilities(rows: Rows) -> list[Array]:
    """The ``(n, K)`` probabilities of every model."""
    if "member_probabilities" in rows:
        members = rows["member_probabilities"]
        return [members[:, member, :] for member in range(members.shape[1])]
    given = rows["probabilities"]
    return list(given) if isinstance(given, list | tuple) else [given]


def _estimate_uncertainty_cost(job: Job) -> Cost:
    """One pass, after one for the ranges of several models; only possible picks are kept."""
    members = job.shapes.get("member_probabilities", ((1,),))[0][0]
    passes = 1 if max(job.models, members) == 1 else 2
    return Cost(passes=(passes, passes), item_bytes=0.0, held_bytes=128.0 * job.budget)
