"""The proposals of all blocks of rows, from which a block of greedy picks is settled.

What a row of a block may score at most is known (`kernels.loop.greedy_blocks`). Picks are made
for as long as the best row is certain to beat every row that was not proposed.
"""

from typing import Any

import numpy as np

from labelwise.arrays import Floats
from labelwise.kernels.loop.greedy_blocks import Proposal, checked_scores, put_state, take_state
from labelwise.pool.rows import GrowingRows, Rows, join_rows, take_rows
from labelwise.strategy import GreedyStrategy

HOT, IN = 256, 32
"""How many of the proposals count every pick at once: so many, or one in so many of all."""


class Window:
    """The proposals of all blocks, from which picks are made.

    The hot rows, those with the highest bounds, count every pick at once; ``cold`` bounds the
    others, of which row ``i`` has counted the first ``seen[i]`` picks.
    """

    def __init__(self, parts: list[Proposal], strategy: GreedyStrategy, plan: Any) -> None:
        """Join the proposals."""
        self._outside = max(part.outside for part in parts)
        parts = [part for part in parts if len(part.ids)] or parts[:1]
        self.ids = np.concatenate([part.ids for part in parts])
        self.rows = join_rows([part.rows for part in parts])
        states = [part.state._asdict() for part in parts]
        self._get_state = type(parts[0].state)(**join_rows(states))
        slack = np.concatenate([part.slack for part in parts])
        self._upper = np.concatenate([part.scores for part in parts]) + slack
        self._seen = np.zeros(len(self.ids), dtype=np.int64)
        self._picked = GrowingRows()
        self._strategy, self._size = strategy, max(HOT, len(self.ids) // IN)
        self._hot_state: Any = None
        self._heat(plan)

    def contenders(self, plan: Any) -> tuple[Any, Floats] | None:
        """The rows that may be best, and their scores; None if a row outside may be better."""
        while True:
            bar = (self._scores - self._slack).max(initial=-np.inf)
            if bar == self._cold == -np.inf:
                return None
            if bar <= self._cold:
                self._cool()
                if not self._heat(plan):  # more ties than hot rows: look at more
                    self._size *= 2
                    self._heat(plan)
            elif bar <= self._outside:
                return None
            else:
                ties = np.flatnonzero(self._scores + self._slack >= bar)
                return self._hot[ties], self._scores[ties]

    def pick(self, winner: int) -> dict[str, Any]:
        """Take a row out of the race; its representations are returned."""
        self._upper[winner] = -np.inf
        return take_rows(self.rows, np.array([winner]))

    def count(self, row: Rows, plan: Any) -> None:
        """Count a pick in all hot rows."""
        self._picked.append(row)
        self._hot_state = self._strategy.add(self._hot_state, self._hot_rows, row, plan)
        self._measure(plan)

    def _measure(self, plan: Any) -> None:
        scores, self._slack = checked_scores(
            self._strategy, self._hot_state, plan, lambda: self.ids[self._hot]
        )
        self._scores = np.where(self._upper[self._hot] == -np.inf, -np.inf, scores)

    def _heat(self, plan: Any) -> bool:
        """Choose the hot rows anew; whether any of them had to be brought up to date."""
        self._hot, self._cold = np.arange(len(self.ids)), -np.inf
        if self._size < len(self.ids):
            order = np.argpartition(-self._upper, self._size)
            self._hot, self._cold = order[: self._size], float(self._upper[order[self._size]])
        self._hot = self._hot[self._upper[self._hot] > -np.inf]
        self._hot_rows = take_rows(self.rows, self._hot)
        self._hot_state = take_state(self._get_state, self._hot)
        first = int(self._seen[self._hot].min(initial=len(self._picked)))
        stale = first < len(self._picked)
        if stale:
            new = self._picked.since(first)
            self._hot_state = self._strategy.add(self._hot_state, self._hot_rows, new, plan)
        self._measure(plan)
        return stale

    def _cool(self) -> None:
        """Write what the hot rows have counted back among the others."""
        put_state(self._get_state, self._hot, self._hot_state)
        taken = self._upper[self._hot] == -np.inf
        self._upper[self._hot] = np.where(taken, -np.inf, self._scores + self._slack)
        self._seen[self._hot] = len(self._picked)
