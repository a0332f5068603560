"""Random: every set of ``budget`` items is equally likely. The baseline to beat.

Each item gets noise that is a function of (seed, id); the highest are picked.

Cost: ``O(n)``; no row is read.

Reference: D. Lewis, W. Gale, "A Sequential Algorithm for Training Text Classifiers", SIGIR 1994.
"""

import numpy as np

from labelwise.arrays import Floats, Ids, largest, row_noise
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PassStrategy, PickFacts, read_reference


def choose_random_batch(shards: Shards, labelled: Rows | None, budget: int, seed: int) -> Choice:
    """Pick uniformly."""
    parts = shards.map(_find_highest_noise, budget, seed)
    ids, noise = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Choice(ids[largest(noise, budget, ids)])


def _find_highest_noise(shard: Shard, budget: int, seed: int) -> tuple[Ids, Floats]:
    noise = row_noise(seed, shard.ids)
    best = largest(noise, min(budget, len(noise)), shard.ids)
    return shard.ids[best], noise[best]


def estimate_random_cost(job: Job) -> Cost:
    """Only ids are used; the rows are read once, to check them."""
    return Cost(passes=(1, 1), item_bytes=0.0)


def explain_random_pick(facts: PickFacts) -> str:
    """Say that the draw was uniform, or that there was no model to do better."""
    if not facts.trained:
        return "Drawn at random: there is no trained model yet."
    return "Drawn at random: every remaining item had the same chance."


STRATEGY = PassStrategy(
    name="random",
    needs=(),
    choose=choose_random_batch,
    draws=True,
    cost=estimate_random_cost,
    explain=explain_random_pick,
    good_for="the baseline to beat; the first labels when there is no model yet",
    reference=read_reference(__doc__),
)
