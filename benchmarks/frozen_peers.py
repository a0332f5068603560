"""Strategies of scikit-activeml in the frozen feature experiments; `frozen_jobs.py` runs them.

They see the rows scaled to length 1, as in their papers, and all classes for ProbCover's clusters.
"""

import numpy as np

from labelwise.benchmark.frozen_run import run_frozen_experiment
from labelwise.benchmark.studies.frozen import load_frozen_items
from labelwise.selection.result import Selection


def make_typiclust(pool, seed):
    """TypiClust with its defaults."""
    from skactiveml.pool import TypiClust

    return TypiClust(random_state=seed)


def make_prob_cover(pool, seed):
    """ProbCover with its defaults; it chooses the radius by the purity of clusters."""
    from skactiveml.pool import ProbCover

    return ProbCover(n_classes=pool.classes, random_state=seed)


PEERS = {
    "TypiClust of scikit-activeml": make_typiclust,
    "ProbCover of scikit-activeml": make_prob_cover,
}


class PeerChooser:
    """Picks batches by a query strategy of scikit-activeml."""

    def __init__(self, make_strategy, pool):
        self._make, self._pool, self._strategy = make_strategy, pool, None
        rows = pool.inputs / np.maximum(np.linalg.norm(pool.inputs, axis=1, keepdims=True), 1e-12)
        self._rows = rows.astype(np.float64)

    def __call__(self, round_, labels, budget, *, seed):
        """The next batch; the strategy keeps its state from batch to batch."""
        self._strategy = self._strategy or self._make(self._pool, seed % 2**31)
        known = np.full(len(self._rows), np.nan)
        places = np.searchsorted(self._pool.ids, list(labels))
        known[places] = list(labels.values())
        picked = self._strategy.query(self._rows, known, batch_size=budget)
        return Selection(self._pool.ids[picked])


def play_peer(protocol, entrant, seed):
    """Rounds of buying labels with a strategy of a peer."""
    make = PEERS[entrant.strategy]
    yield from run_frozen_experiment(
        protocol,
        entrant,
        seed,
        load_frozen_items(protocol),
        make_chooser=lambda *given: PeerChooser(make, given[2]),
    )
