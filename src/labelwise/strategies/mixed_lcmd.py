"""LCMD with half of every batch drawn at random: the default for values.

`lcmd` alone is sometimes far ahead of random and sometimes behind it, when distances say little
about the values. The random half keeps a batch from being worse; drawn items count as centers, so
the other half goes where they left gaps. Distances are between the members' predictions
(`gradient_sketch`) where the learner has members, else between features.

Cost: that of `lcmd` (`labelwise.strategies.lcmd`).

Reference: D. Holzmueller, V. Zaverkin, J. Kaestner, I. Steinwart, "A Framework and Benchmark for
Deep Batch Active Learning for Regression", JMLR 24, 2023; the random half is ours.
"""

from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.strategies import lcmd
from labelwise.strategy import Choice, PassStrategy, PickFacts, read_reference


def choose_mixed_lcmd_batch(
    shards: Shards, labelled: Rows | None, budget: int, seed: int, *, random_share: float = 0.5
) -> Choice:
    """Draw a share of the batch, then pick the farthest item of the heaviest cluster.

    Options:
        random_share: share of the batch, its first picks, that is drawn at random.
    """
    return lcmd.choose_lcmd_batch(shards, labelled, budget, seed, random_share=random_share)


def explain_mixed_lcmd_pick(facts: PickFacts) -> str:
    """Say whether an item was drawn or is far from all others; only the latter have a score."""
    if not facts.score:
        return "Drawn at random, so that the labels stay representative."
    return lcmd.STRATEGY.explain_pick(facts)


STRATEGY = PassStrategy(
    name="mixed_lcmd",
    needs=("gradient_sketch",),
    or_needs=(("features",),),
    choose=choose_mixed_lcmd_batch,
    draws=True,
    good_for="regression: half at random, half where labels cover the pool worst",
    reference=read_reference(__doc__),
    cost=lcmd.estimate_lcmd_cost,
    check=lcmd.check_lcmd_job,
    explain=explain_mixed_lcmd_pick,
)
