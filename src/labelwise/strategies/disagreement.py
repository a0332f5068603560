r"""DIAM: draw from the items whose predictions change most during the later half of training.

Every target model votes for a class at each of its later epochs. With :math:`v_{imt}` the vote of
model :math:`m` at epoch :math:`t`, items are ranked by

.. math::
    d_i^{(1)} = \#\{m : v_{im1}, \dots, v_{imT} \text{ are not all equal}\} , \qquad
    d_i^{(2)} = \sum_m H(v_{im1}, \dots, v_{imT}) ,

the number of models that change their vote, then the sum of their vote entropies. From the
:math:`5b` highest items, :math:`b` are drawn uniformly, which makes the batch more diverse.

Votes are classes: for a regression use ``committee``. Shapes: ``member_votes`` ``(n, T)``, or a
list of such arrays, one per model; T may differ.

Cost: one pass, ``O(n M T log T)``.

Reference: Y.-P. Tang, S.-J. Huang, "Active Learning for Multiple Target Models", NeurIPS 2022.
"""

import math
from typing import NamedTuple

import numpy as np

from labelwise.arrays import Array, Floats, comparable, row_noise, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.checks import check_integer
from labelwise.kernels.information.uncertainty import vote_entropy
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PassStrategy, PickFacts, read_reference

NOISE_STREAM = 21


class VoteChanges(NamedTuple):
    """The change of the votes for some items."""

    models: Floats  # ``(n,)``, number of models that change their vote
    entropy: Floats  # ``(n,)``, sum of the vote entropies of all models, in nats
    most: float  # largest possible sum
    given: int  # number of models


def choose_disagreement_batch(
    shards: Shards, labelled: Rows | None, budget: int, seed: int, *, candidates: int = 5
) -> Choice:
    """Draw the batch from the items whose votes change most; labelled items are not used.

    Options:
        candidates: the batch is drawn from this many times the budget (from all items if there are
            fewer); 1 takes the highest without a draw.
    """
    parts = shards.map(lambda shard: count_vote_changes(shard.rows["member_votes"], shard.ids))
    models = np.concatenate([part.models for part in parts])
    entropy = np.concatenate([part.entropy for part in parts])
    ids, count = shards.ids, min(int(candidates) * budget, len(shards))
    ranked = np.lexsort((ids, -comparable(entropy), -models))[:count]
    if candidates > 1:
        ranked = ranked[np.argsort(row_noise(seed, ids[ranked], NOISE_STREAM), kind="stable")]
    picks = ranked[:budget]
    # One number with the order of both: the integer part counts models, the rest is their entropy.
    scores = models[picks] + entropy[picks] / (1 + parts[0].most)
    info = {"candidates": count, "models": parts[0].given}
    return Choice(ids[picks], scores=scores, info=info)


def count_vote_changes(member_votes: Array | list[Array], ids: Array | None = None) -> VoteChanges:
    """Count the models that change their vote, and sum their vote entropies.

    ``member_votes`` is ``(n, T)`` classes that one model voted for, or a list, one per model.

    >>> one = np.array([[0, 0], [0, 1]])
    >>> other = np.array([[2, 2, 2], [2, 1, 2]])
    >>> count_vote_changes([one, other]).models.tolist()
    [0.0, 2.0]
    """
    several = member_votes if isinstance(member_votes, list | tuple) else [member_votes]
    n = len(several[0])
    models, entropy, most = np.zeros(n), np.zeros(n), 0.0
    for array in several:
        votes = np.asarray(to_numpy(array))
        _check_vote_classes(votes, np.arange(n) if ids is None else ids)
        models += (votes != votes[:, :1]).any(axis=1)
        entropy += vote_entropy(votes)
        most += math.log(votes.shape[1])
    return VoteChanges(models, entropy, most, len(several))


def _check_vote_classes(votes: Array, ids: Array) -> None:
    wrong = (votes != np.floor(votes)).any(axis=1)
    if wrong.any():
        item = int(np.flatnonzero(wrong)[0])
        value = votes[item][votes[item] != np.floor(votes[item])][0]
        raise BadInput(
            f"member_votes of item {ids[item]} contain {value:g}, which is not a class; give whole "
            "numbers, or use committee for a regression"
        )


def check_disagreement_job(job: Job) -> None:
    """Reject a number of candidates below 1, and votes of a single epoch."""
    check_integer("candidates", job.options["candidates"], 1)
    if any(shape[0] < 2 for shape in job.shapes["member_votes"]):
        raise BadInput(
            "disagreement needs every model's votes at two or more epochs; got one column of "
            "member_votes: give (n, T) per model"
        )


def estimate_disagreement_cost(job: Job) -> Cost:
    """One pass over the votes."""
    return Cost(passes=(1, 1), item_bytes=96.0)


def explain_disagreement_pick(facts: PickFacts) -> str:
    """Say how many models have votes that differ: the integer part of the score.

    The votes are those of training checkpoints or of other members; the batch does not record
    which.
    """
    changed = 0 if facts.score is None else int(facts.score)
    models = facts.info.get("models")
    if not isinstance(models, int) or not 1 <= changed <= models:
        return "It is among the items about which the votes of the models differ most."
    if models == 1:
        return "The model's votes about this item differ."
    return f"The votes about this item differ within {changed} of {models} models."


STRATEGY = PassStrategy(
    name="disagreement",
    needs=("member_votes",),
    several=True,
    draws=True,
    choose=choose_disagreement_batch,
    cost=estimate_disagreement_cost,
    check=check_disagreement_job,
    explain=explain_disagreement_pick,
    good_for="one batch for several models: items whose predictions change late in training",
    reference=read_reference(__doc__),
)
