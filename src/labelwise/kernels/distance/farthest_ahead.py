r"""Farthest-first picks made ahead (`labelwise.strategy.AheadPicker`).

All rows are measured against the last block of picks with one matrix product. The rows of largest
distance are then measured in float64, against all centres and against each other, and picks are
made from them: each caps the distances of the others. They are certain for as long as the farthest
is farther than every row left out, and than the second farthest by more than rounding.

Cost of a block: :math:`n k d` multiplications for its ``k`` picks, and :math:`w^2 d` in float64 for
a window of ``w`` rows.
"""

from typing import Any

import numpy as np

from labelwise.arrays import Ids, device, float64, namespace, take, to_numpy
from labelwise.kernels.distance.factored import concat, squared_distances
from labelwise.kernels.loop.block_scores import KEY, BlockScores, Proposal, update_block
from labelwise.kernels.loop.scan import Arrays, Scan, count_certain
from labelwise.pool.blocks import Shard, Shards
from labelwise.pool.rows import Rows, each, take_rows
from labelwise.strategy import CertainPicks, GreedyStrategy

WIDTH, WIDEST, FEW = 4096, 8192, 16
"""How many rows picks are made from, at first and at most; twice as many after few picks."""
STEPS, LOOK = 16, 4
"""How many picks are recorded together, and after how many of such rounds the host looks."""


class FarthestAhead:
    """Makes farthest-first picks ahead."""

    def __init__(self, strategy: GreedyStrategy, shards: Shards, labelled: Rows | None) -> None:
        """Nothing is read yet."""
        self._strategy, self._shards, self._labelled = strategy, shards, labelled
        self._width, self._scan = WIDTH, Scan(_step, STEPS)
        self._blocks = len(shards.map(len))

    def pick_ahead(self, plan: Any, new: Rows, new_ids: Ids, most: int) -> CertainPicks:
        """Picks from one window, for as long as they are certain."""
        width = -(-self._width // self._blocks)
        given = (self._strategy, plan, self._labelled, new, new_ids, width)
        parts = [part for part in self._shards.map(_propose, *given) if len(part.ids)]
        ids = np.concatenate([part.ids for part in parts])
        rows = concat([part.state for part in parts])
        xp = namespace(parts[0].scores)
        scores: Any = xp.concat([part.scores for part in parts])
        slack, outside = max(float(p.slack) for p in parts), max(part.outside for part in parts)
        places, lowest = xp.arange(len(ids), device=device(scores)), xp.full_like(scores, -xp.inf)
        constants, state = (squared_distances(rows, rows), places, lowest), (scores,)
        picks: list[Any] = []
        while sum(map(len, picks)) < most:
            state, out = self._scan(constants, state, LOOK)
            where, best, second = map(to_numpy, out)
            certain = (best - slack > outside) & (best - slack > second + slack)
            count = count_certain(certain)
            picks.append(np.stack([where, best], axis=1)[:count])
            if count < len(certain):
                break
        made = np.concatenate(picks)[:most]
        if len(made) < FEW:
            self._width = min(2 * self._width, WIDEST)
        return CertainPicks(ids[made[:, 0].astype(np.int64)], made[:, 1].astype(np.float64))


def _propose(
    shard: Shard,
    strategy: GreedyStrategy,
    plan: Any,
    labelled: Rows | None,
    new: Rows,
    new_ids: Ids,
    width: int,
) -> Proposal:
    """Count new picks in all rows; the farthest rows, measured again in float64."""
    update_block(shard, strategy, plan, new, new_ids)
    part: BlockScores = shard.state[KEY]
    top, outside = np.arange(len(shard)), -np.inf
    if width < len(shard):
        order = np.argpartition(-part.bounds, width)
        top, outside = order[:width], float(part.bounds[order[width]])
    rows = _double(take_rows(shard.rows, top))
    state = strategy.start(rows, None if labelled is None else _double(labelled), plan)
    state = strategy.add(state, rows, _double(part.picked.since(0)), plan)
    assert strategy.slack is not None
    scores, slack = strategy.score(state, plan), strategy.slack(state)
    xp = namespace(scores)
    scores = xp.where(take(part.taken, top), xp.full_like(scores, -xp.inf), scores)
    largest = to_numpy(xp.max(slack)) if len(top) else np.zeros(())
    return Proposal(shard.ids[top], {}, plan(rows), scores, largest, outside)


def _double(rows: Rows) -> dict[str, Any]:
    return {name: each(rows[name], float64) for name in rows}


def _step(constants: Arrays, state: Arrays) -> tuple[Arrays, Arrays]:
    """One pick: where, its distance, and the second largest distance."""
    (caps, places, lowest), (scores,) = constants, state
    xp = namespace(scores)
    best, where = xp.max(scores), xp.argmax(scores)
    others = xp.where(places == where, lowest, scores)
    cap = caps[xp.reshape(where, (1,))][0, :]
    return (xp.minimum(others, cap),), (where, best, xp.max(others))
