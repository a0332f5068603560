r"""BatchBALD: pick the batch whose labels jointly tell most about the members of a committee.

Greedy on the mutual information of the members and all labels of the batch. With
:math:`y_A` the labels of the picks so far, the next pick has the highest gain

.. math:: I(y_i; m \mid y_A) = I(y_A, y_i; m) - I(y_A; m) .

All label configurations of the picks are listed while there are at most ``configurations`` of
them, :math:`K^{|A|}`; after that, as many are drawn from the members, the same for all candidates.

Merging configurations into a few hundred groups gives an upper bound of every gain, by Jensen's
inequality. Only candidates whose bound reaches the best gain are computed in full, in float32;
those within rounding are computed again in float64. Equal gains are ordered by BALD, then by id.

No batch tells more than :math:`\log M` nats. Once a pick adds less than a ten-thousandth of the
first gain, the rest of the batch is picked by BALD, with a warning.

Cost: per pick ``O(n M K)`` times the number of groups (256), and times ``configurations`` for the
few candidates computed in full. Memory: two tables of ``configurations`` by ``M``.

Reference: A. Kirsch, J. van Amersfoort, Y. Gal, "BatchBALD: Efficient and Diverse Batch
Acquisition for Deep Bayesian Active Learning", NeurIPS 2019.
"""

import warnings
from collections.abc import Iterator

import numpy as np

from labelwise.arrays import Array, Floats, Ids, comparable, float64, largest, take, to_numpy
from labelwise.errors import LabelwiseWarning
from labelwise.files import JsonObject
from labelwise.kernels.checks import check_integer
from labelwise.kernels.information.mutual_information import (
    Outcomes,
    PickedLabels,
    float32_error,
    group_outcomes,
    information_gains,
    information_gains_above,
    join_outcomes,
    prior_outcome,
)
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows
from labelwise.strategies.bald import DISAGREEMENT
from labelwise.strategy import Choice, Cost, Job, PassStrategy, PickFacts, read_reference

MEMBERS = "member_probabilities"
GROUPS = 256  # Groups of configurations for the bounds
PARTS = 8  # Steps in which groups are replaced by the configurations themselves
COMPUTED_FIRST = 32  # Candidates with the highest bounds that are computed first
COPIED_NUMBERS = 1 << 22  # Numbers of rows copied at a time
LARGE_BATCH = 100  # Larger batches give a warning
NEGLIGIBLE = 1e-4  # Share of the first gain up to which a gain counts as zero


def choose_batchbald_batch(
    shards: Shards, labelled: Rows | None, budget: int, seed: int, *, configurations: int = 10_000
) -> Choice:
    """Pick the batch; its scores are the gains in nats, and their sum is the joint information.

    Options:
        configurations: listed at most, and drawn approximately (a whole number per member).
    """
    if budget > LARGE_BATCH:
        warnings.warn(
            f"budget is {budget}; batchbald tells candidates apart poorly in batches above "
            f"{LARGE_BATCH}, ask for smaller ones",
            LabelwiseWarning,
            stacklevel=2,
        )
    ids = shards.ids
    members = _read_members(shards, ids[:1])
    labels = PickedLabels(len(members), int(configurations), seed)
    # Without picks the gain of an item is its BALD score.
    bald = np.concatenate(shards.map(_score_block_gains, prior_outcome(len(members)), None, True))
    picked = [int(largest(comparable(bald), 1, ids)[0])]
    gains, drawn = [float(bald[picked[0]])], 0
    while len(picked) < budget and gains[-1] > NEGLIGIBLE * gains[0]:
        shards.progress("batchbald", len(picked), budget)
        labels.add(_read_members(shards, ids[picked[-1:]]))
        drawn += not labels.exact
        position, gain = _find_most_informative(
            shards, labels.outcomes, picked, bald, float32_error(members.shape)
        )
        picked.append(position)
        gains.append(gain)
    info: JsonObject = {
        "joint_information": sum(gains),
        "picks_from_all_configurations": len(picked) - drawn,
        "picks_from_drawn_configurations": drawn,
        "picks_by_bald": budget - len(picked),
    }
    if len(picked) < budget:
        picked += _pick_by_bald(bald, picked, budget, ids)
    scores = np.zeros(budget)
    scores[: len(gains)] = gains
    return Choice(ids[picked], scores=scores, info=info)


def check_batchbald_job(job: Job) -> None:
    """Reject a number of configurations below 1."""
    check_integer("configurations", job.options["configurations"], 1)


def _read_members(shards: Shards, ids: Ids) -> Floats:
    """The ``(M, K)`` class probabilities of one item, in float64 on the host."""
    rows = shards.rows(ids)[MEMBERS]
    return np.asarray(to_numpy(float64(rows))[0], dtype=np.float64)


def _find_most_informative(
    shards: Shards, outcomes: Outcomes, picked: list[int], bald: Floats, error: float
) -> tuple[int, float]:
    """Position and gain of the candidate with the highest gain."""
    ids = shards.ids
    if len(ids) <= GROUPS or len(outcomes.weights) <= 2 * GROUPS:  # grouping would cost more
        gains = np.concatenate(shards.map(_score_block_gains, outcomes, None, False))
        gains[picked] = -np.inf
    else:
        # Upper bounds of all gains, from merged configurations.
        parts = group_outcomes(outcomes, GROUPS, PARTS)
        coarse = join_outcomes([groups for _, groups in parts])
        bounds = np.concatenate(shards.map(_score_block_gains, coarse, None, False))
        bounds[picked] = -np.inf
        gains = np.full_like(bounds, -np.inf)
        # A high gain first, against which most of the others are never computed.
        first = np.sort(largest(bounds, min(COMPUTED_FIRST, len(ids) - len(picked)), ids))
        gains[first] = _information_gains(shards, outcomes, ids[first], False)
        least = float(gains.max()) - 2 * error
        hopeful = (bounds >= least) & np.isneginf(gains)
        gains[hopeful] = np.concatenate(
            shards.map(_score_gains_above, parts, np.sort(ids[hopeful]), least)
        )
    # What float32 cannot tell apart is decided in float64, then by BALD, then by id.
    finalists = np.flatnonzero(gains >= gains.max() - 2 * error)
    exact = _information_gains(shards, outcomes, ids[finalists], True)
    order = np.lexsort((ids[finalists], -comparable(bald[finalists]), -comparable(exact)))
    return int(finalists[order[0]]), float(exact[order[0]])


def _information_gains(shards: Shards, outcomes: Outcomes, ids: Ids, precise: bool) -> Floats:
    """The gains of some items; ``ids`` in the order of the blocks."""
    return np.concatenate(shards.map(_score_block_gains, outcomes, np.sort(ids), precise))


def _score_block_gains(
    shard: Shard, outcomes: Outcomes, wanted: Ids | None, precise: bool
) -> Floats:
    """The gains of some items of a block (None for all), in the order of its rows."""
    if wanted is None:
        return information_gains(shard.rows[MEMBERS], outcomes, precise=precise)
    parts = [
        information_gains(rows, outcomes, precise=precise)
        for rows in _take_member_rows(shard, wanted)
    ]
    return np.concatenate([np.empty(0), *parts])


def _score_gains_above(
    shard: Shard, parts: list[tuple[Outcomes, Outcomes]], wanted: Ids, least: float
) -> Floats:
    """The gains of some items of a block; minus infinity for those below ``least``."""
    return np.concatenate(
        [
            np.empty(0),
            *(information_gains_above(r, parts, least) for r in _take_member_rows(shard, wanted)),
        ]
    )


def _take_member_rows(shard: Shard, wanted: Ids) -> Iterator[Array]:
    """The wanted rows of a block, in pieces; ``wanted`` is sorted."""
    members = shard.rows[MEMBERS]
    positions = np.flatnonzero(np.isin(shard.ids, wanted))
    step = max(COPIED_NUMBERS // (members.shape[1] * members.shape[2]), 1)
    for first in range(0, len(positions), step):
        yield take(members, positions[first : first + step])


def _pick_by_bald(bald: Floats, picked: list[int], budget: int, ids: Ids) -> list[int]:
    """The rest of the batch, when no label tells more about the members."""
    warnings.warn(
        f"after {len(picked)} of {budget} picks no label tells more about the members; the rest "
        "is picked by bald, use more members or smaller batches",
        LabelwiseWarning,
        stacklevel=3,
    )
    rest = comparable(bald)
    rest[picked] = -np.inf
    return [int(position) for position in largest(rest, budget - len(picked), ids)]


def estimate_batchbald_cost(job: Job) -> Cost:
    """A few passes per pick over all configurations."""
    members = max((shape[0] for shape in job.shapes.get(MEMBERS, ())), default=1)
    configurations = job.options["configurations"]
    return Cost(
        passes=(1, 4 * job.budget + 1),
        usual=3 * job.budget,
        columns=job.budget * configurations / 8,
        item_bytes=64.0,
        held_bytes=16 * 8.0 * configurations * members,
    )


def explain_batchbald_pick(facts: PickFacts) -> str:
    """Say why an item was picked."""
    if facts.rank >= facts.batch_size - facts.info.get("picks_by_bald", 0):
        return DISAGREEMENT
    return "The models disagree about it, in another way than about the other picks of this batch."


STRATEGY = PassStrategy(
    name="batchbald",
    needs=("member_probabilities",),
    choose=choose_batchbald_batch,
    draws=True,
    good_for="posterior draws, dropout or ensembles; batches without repetition",
    reference=read_reference(__doc__),
    cost=estimate_batchbald_cost,
    check=check_batchbald_job,
    explain=explain_batchbald_pick,
)
