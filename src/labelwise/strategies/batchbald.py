r"""BatchBALD: pick the batch whose labels together tell most about the members of a committee.

Greedy on the mutual information of the members and all labels of the batch. With
:math:`y_A` the labels of the picks so far, the next pick has the highest gain

.. math:: I(y_i; m \mid y_A) = I(y_A, y_i; m) - I(y_A; m) .

All ways in which the labels of the picks may turn out are listed while there are at most
``configurations`` of them, :math:`K^{|A|}`; after that, as many are drawn from the members, and
the gain is an estimate (`information.mutual_information`, which also says how its noise is kept
down). All candidates are measured against the same draws.

A gain costs :math:`M K` products and :math:`K` logarithms per configuration, but most candidates
never need theirs: by Jensen's inequality, merging configurations into a few hundred groups gives
an upper bound, for listed and drawn configurations alike. Only candidates whose bound reaches the
best gain are measured in full, in float32, and given up as soon as the part measured and the bound
of the rest fall short of it; those that rounding cannot tell apart are measured once more in
float64. The pick is that of measuring all of them; equal gains are settled by BALD, then by id.
(Earlier gains would be bounds too, as the mutual information is submodular, but only while all
configurations are listed, and looser ones.)

No batch tells more than :math:`\log M` nats. Once a pick adds less than a ten-thousandth of what
the first did, the rest of the batch is picked by BALD, with a warning.

Cost: per pick ``O(n M K)`` times the number of groups (256), and times ``configurations`` for the
few candidates measured in full (all of them where all candidates are alike). Memory: two tables
of ``configurations`` by ``M``.

Reference: A. Kirsch, J. van Amersfoort, Y. Gal, "BatchBALD: Efficient and Diverse Batch
Acquisition for Deep Bayesian Active Learning", NeurIPS 2019.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from labelwise.arrays import Array, Floats, Ids, comparable, float64, largest, take, to_numpy
from labelwise.errors import LabelwiseWarning
from labelwise.kernels.checks import check_integer
from labelwise.kernels.information.mutual_information import (
    Outcomes,
    PickedLabels,
    float32_error,
    gains_above,
    grouped,
    information_gains,
    joined,
    no_picks,
)
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PassStrategy, PickFacts

NAME = "member_probabilities"
GROUPS = 256
"""Into how many groups configurations are merged for the bounds."""
PARTS = 8
"""In how many steps the groups give way to the configurations themselves."""
FIRST = 32
"""How many candidates with the highest bounds are measured before others are ruled out."""
COPIED = 1 << 22
"""How many numbers of rows are copied at a time."""
LARGE = 100
"""Batches above are warned of."""
NOTHING = 1e-4
"""The share of the first gain at and below which a gain counts as none."""


def choose(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    configurations: int = 10_000,
) -> Choice:
    """Pick the batch; its scores are the gains in nats, and their sum is the joint information.

    Args:
        shards: ``member_probabilities`` is ``(n, M, K)``.
        labelled: not used.
        budget: how many items.
        seed: decides the configurations that are drawn.
        configurations: the most that are listed, and about how many are drawn (a whole number
            per member, at least one).
    """
    if budget > LARGE:
        warnings.warn(
            f"budget is {budget}; batchbald tells candidates apart poorly in batches above "
            f"{LARGE}, ask for smaller ones",
            LabelwiseWarning,
            stacklevel=2,
        )
    ids = shards.ids
    members = _members(shards, ids[:1])
    labels = PickedLabels(len(members), int(configurations), seed)
    bald = np.concatenate(shards.map(_measure, no_picks(len(members)), None, True))
    picked = [int(largest(comparable(bald), 1, ids)[0])]
    gains, drawn = [float(bald[picked[0]])], 0
    while len(picked) < budget and gains[-1] > NOTHING * gains[0]:
        shards.progress("batchbald", len(picked), budget)
        labels.add(_members(shards, ids[picked[-1:]]))
        drawn += not labels.exact
        position, gain = _next(shards, labels.outcomes, picked, bald, float32_error(members.shape))
        picked.append(position)
        gains.append(gain)
    info: dict[str, Any] = {
        "joint_information": sum(gains),
        "picks_from_all_configurations": len(picked) - drawn,
        "picks_from_drawn_configurations": drawn,
        "picks_by_bald": budget - len(picked),
    }
    if len(picked) < budget:
        picked += _by_bald(bald, picked, budget, ids)
    scores = np.zeros(budget)
    scores[: len(gains)] = gains
    return Choice(ids[picked], scores=scores, info=info)


def check_job(job: Job) -> None:
    """Reject a number of configurations below 1."""
    check_integer("configurations", job.options["configurations"], 1)


def _members(shards: Shards, ids: Ids) -> Floats:
    """The ``(M, K)`` class probabilities of one item, in float64 on the host."""
    rows = shards.rows(ids)[NAME]
    return np.asarray(to_numpy(float64(rows))[0], dtype=np.float64)


def _next(
    shards: Shards, outcomes: Outcomes, picked: list[int], bald: Floats, error: float
) -> tuple[int, float]:
    """Where the candidate with the highest gain stands among all rows, and its gain."""
    ids = shards.ids
    if len(ids) <= GROUPS or len(outcomes.weights) <= 2 * GROUPS:  # grouping would cost more
        gains = np.concatenate(shards.map(_measure, outcomes, None, False))
        gains[picked] = -np.inf
    else:
        parts = grouped(outcomes, GROUPS, PARTS)
        coarse = joined([groups for _, groups in parts])
        bounds = np.concatenate(shards.map(_measure, coarse, None, False))
        bounds[picked] = -np.inf
        gains = np.full_like(bounds, -np.inf)
        first = np.sort(largest(bounds, min(FIRST, len(ids) - len(picked)), ids))
        gains[first] = _some(shards, outcomes, ids[first], False)
        least = float(gains.max()) - 2 * error
        hopeful = (bounds >= least) & np.isneginf(gains)
        gains[hopeful] = np.concatenate(shards.map(_above, parts, np.sort(ids[hopeful]), least))
    finalists = np.flatnonzero(gains >= gains.max() - 2 * error)
    exact = _some(shards, outcomes, ids[finalists], True)
    order = np.lexsort((ids[finalists], -comparable(bald[finalists]), -comparable(exact)))
    return int(finalists[order[0]]), float(exact[order[0]])


def _some(shards: Shards, outcomes: Outcomes, ids: Ids, precise: bool) -> Floats:
    """The gains of some items; ``ids`` in the order in which the blocks hold them."""
    return np.concatenate(shards.map(_measure, outcomes, np.sort(ids), precise))


def _measure(shard: Shard, outcomes: Outcomes, wanted: Ids | None, precise: bool) -> Floats:
    """The gains of the wanted items of a block (None for all), in the order of its rows."""
    if wanted is None:
        return information_gains(shard.rows[NAME], outcomes, precise=precise)
    parts = [information_gains(rows, outcomes, precise=precise) for rows in _take(shard, wanted)]
    return np.concatenate([np.empty(0), *parts])


def _above(
    shard: Shard, parts: list[tuple[Outcomes, Outcomes]], wanted: Ids, least: float
) -> Floats:
    """The gains of the wanted items of a block, or minus infinity where they are below."""
    return np.concatenate(
        [np.empty(0), *(gains_above(r, parts, least) for r in _take(shard, wanted))]
    )


def _take(shard: Shard, wanted: Ids) -> Iterator[Array]:
    """The wanted rows of a block, some at a time; ``wanted`` is sorted."""
    members = shard.rows[NAME]
    positions = np.flatnonzero(np.isin(shard.ids, wanted))
    step = max(COPIED // (members.shape[1] * members.shape[2]), 1)
    for first in range(0, len(positions), step):
        yield take(members, positions[first : first + step])


def _by_bald(bald: Floats, picked: list[int], budget: int, ids: Ids) -> list[int]:
    """The rest of the batch, once no label tells any more about the members."""
    warnings.warn(
        f"after {len(picked)} of {budget} picks no label would tell the members apart any "
        "further; the rest are picked by bald, use more members or smaller batches",
        LabelwiseWarning,
        stacklevel=3,
    )
    rest = comparable(bald)
    rest[picked] = -np.inf
    return [int(position) for position in largest(rest, budget - len(picked), ids)]


def _cost(job: Job) -> Cost:
    """A few passes per pick over all configurations of the picks' labels."""
    members = max((shape[0] for shape in job.shapes.get(NAME, ())), default=1)
    configurations = job.options["configurations"]
    return Cost(
        passes=(1, 4 * job.budget + 1),
        usual=3 * job.budget,
        columns=job.budget * configurations / 8,
        item_bytes=64.0,
        held_bytes=16 * 8.0 * configurations * members,
    )


def explain_pick(facts: PickFacts) -> str:
    """Say why an item was picked."""
    by_bald = facts.info.get("picks_by_bald", 0)
    if facts.rank >= facts.batch_size - by_bald:
        return "The models disagree about this item more than about most others."
    return "The models disagree about it, in another way than about the other picks of this batch."


STRATEGY = PassStrategy(
    name="batchbald",
    needs=("member_probabilities",),
    choose=choose,
    draws=True,
    good_for="posterior draws, dropout or ensembles; batches without repetition",
    reference="Kirsch, van Amersfoort and Gal, BatchBALD: Efficient and Diverse Batch Acquisition "
    "for Deep Bayesian Active Learning, NeurIPS 2019",
    cost=_cost,
    check=check_job,
    explain=explain_pick,
)
