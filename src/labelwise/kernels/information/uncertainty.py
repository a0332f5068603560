"""How undecided class probabilities are; shared by confidence, margin and entropy.

One model: ``probabilities`` is ``(n, K)``. Several models: a list of them, or
``member_probabilities`` ``(n, M, K)``; each model's score is scaled to [0, 1] over the whole pool
(smallest 0, largest 1) and the scores are averaged, so that no model drowns the others.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from labelwise.arrays import Array, Floats, like, namespace, row_dots, to_numpy
from labelwise.kernels.float64_blocks import iterate_float64_chunks
from labelwise.pool.blocks import Shard
from labelwise.pool.pieces import in_pieces
from labelwise.pool.rows import Rows, take_rows
from labelwise.strategy import Cost, Job, ScoreStrategy

LEAST = 1e-12
"""What a probability counts as at least where its logarithm is taken."""

Measure = Callable[[Array], Array]
"""From ``(n, K)`` probabilities in float64 to ``(n,)``, higher for less certain."""


def confidence(probabilities: Array) -> Array:
    """One minus the highest probability."""
    return 1 - namespace(probabilities).max(probabilities, axis=1)


def margin(probabilities: Array) -> Array:
    """The second highest probability minus the highest; 0 when they are level."""
    if probabilities.shape[1] == 1:
        return -probabilities[:, 0]
    ordered = namespace(probabilities).sort(probabilities, axis=1)
    return ordered[:, -2] - ordered[:, -1]


def entropy(probabilities: Array) -> Array:
    """``-sum p log p`` in nats; a probability of 0 adds nothing."""
    xp = namespace(probabilities)
    on_host = isinstance(probabilities, np.ndarray)
    if on_host and probabilities.min(initial=1.0) >= LEAST:  # to look is quicker than to cut off
        return -row_dots(probabilities, np.log(probabilities))
    logs = xp.maximum(probabilities, like(LEAST, probabilities))
    return -row_dots(probabilities, xp.log(logs, out=logs))


def measured(measure: Measure, rows: Rows) -> Array:
    """The measure of every model's probabilities, a few rows in float64 at a time, ``(n, M)``."""
    scores = []
    for probabilities in models(rows):
        parts = [measure(chunk) for (chunk,) in iterate_float64_chunks(probabilities)]
        scores.append(namespace(probabilities).concat(parts))
    return namespace(*scores).stack(scores, axis=1)


def models(rows: Rows) -> list[Array]:
    """The ``(n, K)`` probabilities of every model."""
    if "member_probabilities" in rows:
        members = rows["member_probabilities"]
        return [members[:, member, :] for member in range(members.shape[1])]
    given = rows["probabilities"]
    return list(given) if isinstance(given, list | tuple) else [given]


def uncertainty_strategy(measure: Measure, **facts: Any) -> ScoreStrategy:
    """The strategy that picks the highest ``measure``, averaged over models."""

    def summarise(shard: Shard) -> tuple[Floats, Floats]:
        """The smallest and largest score of every model in a block; nothing for one model."""
        if len(models(take_rows(shard.rows, np.arange(min(len(shard), 1))))) == 1:
            return np.empty(0), np.empty(0)
        scores = to_numpy(in_pieces(partial(measured, measure), shard.rows))
        return scores.min(axis=0, initial=np.inf), scores.max(axis=0, initial=-np.inf)

    def score(rows: Rows, labelled: Rows | None, summary: list[tuple[Floats, Floats]]) -> Array:
        scores = in_pieces(partial(measured, measure), rows)
        count = scores.shape[1]
        if count == 1:
            return scores[:, 0]
        low = np.min([part[0] for part in summary], axis=0)
        span = np.max([part[1] for part in summary], axis=0) - low
        scaled = [
            (scores[:, model] - float(low[model])) / float(span[model])
            for model in range(count)
            if span[model] > 0
        ]
        return sum(scaled) / count if scaled else scores[:, 0] * 0

    return ScoreStrategy(
        needs=("probabilities",),
        or_needs=(("member_probabilities",),),
        several=True,
        score=score,
        summarise=summarise,
        cost=_cost,
        **facts,
    )


def _cost(job: Job) -> Cost:
    """One pass, after one for the scales of several models; no more is kept than can be picked."""
    members = job.shapes.get("member_probabilities", ((1,),))[0][0]
    passes = 1 if max(job.models, members) == 1 else 2
    return Cost(passes=(passes, passes), item_bytes=0.0, held_bytes=128.0 * job.budget)
