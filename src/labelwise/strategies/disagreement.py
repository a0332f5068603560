r"""DIAM: pick among the items on which models waver during the later half of their training.

Every target model casts a hard vote (a class) at each of its later epochs. With
:math:`v_{imt}` the vote of model :math:`m` at epoch :math:`t`, an item is ranked by

.. math::
    d_i^{(1)} = \#\{m : v_{im1}, \dots, v_{imT} \text{ are not all equal}\} , \qquad
    d_i^{(2)} = \sum_m H(v_{im1}, \dots, v_{imT}) ,

how many models waver and the sum of their vote entropies, the first before the second. Of the
:math:`5b` highest items, :math:`b` are drawn uniformly, so that a batch is not all of one kind.

The votes of one model are ``member_votes`` ``(n, T)``; those of several models are a list of such
arrays, and T may differ. Votes are classes: for a regression use committee, which takes the
variance.

Cost: one pass, ``O(n M T log T)``.

Reference: Y.-P. Tang, S.-J. Huang, "Active Learning for Multiple Target Models", NeurIPS 2022.
"""

import math
from typing import NamedTuple

import numpy as np

from labelwise.arrays import Array, Floats, comparable, row_noise, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.checks import check_integer
from labelwise.kernels.information.votes import vote_entropy
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PassStrategy, PickFacts

DRAWS = 21
"""The stream of noise from which candidates are drawn."""


class Wavering(NamedTuple):
    """How much the models waver on some items.

    Attributes:
        models: ``(n,)``, how many models change their vote.
        entropy: ``(n,)``, the vote entropies of all models added up, in nats.
        most: the largest that sum can be.
    """

    models: Floats
    entropy: Floats
    most: float


def choose(
    shards: Shards, labelled: Rows | None, budget: int, seed: int, *, candidates: int = 5
) -> Choice:
    """Draw the batch from the items that make the models waver most; labels play no part.

    Options:
        candidates: the batch is drawn from so many times the budget (from all items where there
            are fewer); 1 takes the highest without a draw.
    """
    parts = shards.map(_wavering)
    models = np.concatenate([part.models for part in parts])
    entropy = np.concatenate([part.entropy for part in parts])
    ids, count = shards.ids, min(int(candidates) * budget, len(shards))
    ranked = np.lexsort((ids, -comparable(entropy), -models))[:count]
    if candidates > 1:
        ranked = ranked[np.argsort(row_noise(seed, ids[ranked], DRAWS), kind="stable")]
    picks = ranked[:budget]
    # One number with the order of both: the whole part counts models, the rest is their entropy.
    scores = models[picks] + entropy[picks] / (1 + parts[0].most)
    return Choice(ids[picks], scores=scores, info={"candidates": count})


def check_job(job: Job) -> None:
    """Reject a number of candidates below 1, and votes of a single epoch."""
    check_integer("candidates", job.options["candidates"], 1)
    if any(shape[0] < 2 for shape in job.shapes["member_votes"]):
        raise BadInput(
            "disagreement needs every model's votes at two or more epochs; got one column of "
            "member_votes: give (n, T) per model"
        )


def wavering(member_votes: Array | list[Array], ids: Array | None = None) -> Wavering:
    """Count the models that change their vote, and add up their vote entropies.

    Args:
        member_votes: ``(n, T)`` classes that one model voted for, or a list, one per model.
        ids: ``(n,)``, how to call the items in an error; row numbers if None.

    >>> one = np.array([[0, 0], [0, 1]])
    >>> other = np.array([[2, 2, 2], [2, 1, 2]])
    >>> wavering([one, other]).models.tolist()
    [0.0, 2.0]
    """
    several = member_votes if isinstance(member_votes, list | tuple) else [member_votes]
    count = len(several[0])
    models, entropy, most = np.zeros(count), np.zeros(count), 0.0
    for given in several:
        votes = np.asarray(to_numpy(given))
        _check(votes, np.arange(count) if ids is None else ids)
        models += (votes != votes[:, :1]).any(axis=1)
        entropy += vote_entropy(votes)
        most += math.log(votes.shape[1])
    return Wavering(models, entropy, most)


def _wavering(shard: Shard) -> Wavering:
    return wavering(shard.rows["member_votes"], shard.ids)


def _check(votes: Array, ids: Array) -> None:
    """Reject votes that are not classes."""
    wrong = (votes != np.floor(votes)).any(axis=1)
    if wrong.any():
        item = int(np.flatnonzero(wrong)[0])
        value = votes[item][votes[item] != np.floor(votes[item])][0]
        raise BadInput(
            f"member_votes of item {ids[item]} hold {value:g}, which is no class; give whole "
            "numbers, or use committee for a regression"
        )


def _cost(job: Job) -> Cost:
    """One pass over the votes."""
    return Cost(passes=(1, 1), item_bytes=96.0)


def explain_pick(facts: PickFacts) -> str:
    """Say why an item was picked."""
    return "The models changed their predictions for this item late in training."


STRATEGY = PassStrategy(
    name="disagreement",
    needs=("member_votes",),
    several=True,
    draws=True,
    choose=choose,
    good_for="one batch for several models: items on which they waver late in training",
    reference="Tang and Huang, Active Learning for Multiple Target Models, NeurIPS 2022",
    cost=_cost,
    check=check_job,
    explain=explain_pick,
)
