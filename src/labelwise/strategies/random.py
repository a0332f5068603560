"""Random: every set of ``budget`` items is equally likely. The baseline to beat.

Each item gets noise that is a function of (seed, id); the highest are picked. Cost: ``O(n)``.

Reference: D. Lewis, W. Gale, "A Sequential Algorithm for Training Text Classifiers", SIGIR 1994
(where random picks are the baseline).
"""

import numpy as np

from labelwise.arrays import Floats, Ids, largest, row_noise
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PassStrategy, PickFacts


def choose(shards: Shards, labelled: Rows | None, budget: int, seed: int) -> Choice:
    """Pick uniformly."""
    parts = shards.map(_highest, budget, seed)
    ids = np.concatenate([part[0] for part in parts])
    noise = np.concatenate([part[1] for part in parts])
    return Choice(ids[largest(noise, budget, ids)])


def _highest(shard: Shard, budget: int, seed: int) -> tuple[Ids, Floats]:
    noise = row_noise(seed, shard.ids)
    best = largest(noise, min(budget, len(noise)), shard.ids)
    return shard.ids[best], noise[best]


def _cost(job: Job) -> Cost:
    """Ids alone decide."""
    return Cost(passes=(0, 0), item_bytes=0.0)


def explain_pick(facts: PickFacts) -> str:
    """Say why an item was picked."""
    if not facts.trained:
        return "Drawn at random: there is no trained model yet."
    return "Drawn at random: every remaining item had the same chance."


STRATEGY = PassStrategy(
    name="random",
    needs=(),
    choose=choose,
    draws=True,
    good_for="the baseline to beat; the first labels when there is no model yet",
    reference="Lewis and Gale, A Sequential Algorithm for Training Text Classifiers, SIGIR 1994",
    cost=_cost,
    explain=explain_pick,
)
