"""Variants of `uherding` in the frozen feature experiments; `frozen_jobs.py` runs them.

A variant changes the weights of the targets, the kernel or the candidates, and is otherwise the
strategy itself, with the same kernels. With ``u`` the uncertainty of a target:

==============  ====================================================================================
variant         change
==============  ====================================================================================
plain           `uherding` without ``label_counts``; called uherding in the committed lines
half            weights ``(1 + u) / 2``
trust           weights ``e + (1 - e) u``; ``e`` is the share of wrong predictions out of fold
balanced        as half, divided by the square root of the number of labels of the target's class
balanced u      the same with weights ``u`` instead of half
typical         weights times the squared mean similarity of a target to its 20 nearest targets
typical 1       the same without the square; likewise the powers 4 and 8, and 4 with power 2
typical half    weights of half instead of ``u`` times the square
narrow          the power of the cosine rises until labelled items cover a typical target by half
power 2         the cosine is squared
refined         candidates are what ten strategies pick from random halves, four times in a row
==============  ====================================================================================
"""

from dataclasses import replace
from functools import partial

import numpy as np

from labelwise.benchmark.frozen_run import run_frozen_experiment
from labelwise.benchmark.labelling_run import StrategyChooser
from labelwise.benchmark.protocol import Entrant
from labelwise.benchmark.studies.frozen import load_frozen_items
from labelwise.kernels.calibration import softmax
from labelwise.kernels.distance.coverage import cover_greedily
from labelwise.kernels.distance.similarity import fit_kernel
from labelwise.rounds import adapt_options
from labelwise.strategies import get
from labelwise.strategies.uherding import measure_uncertainty

NEIGHBOURS = 20
PROPOSERS = (
    *("random", "margin", "badge", "typiclust", "max_herding"),
    *("uherding", "k_center", "kmeans", "entropy", "lewis"),
)
LEVELS = 4  # Levels of `refined`, each from the candidates that the one before left


def weigh_half(rows, uncertainty, chooser):
    """A sure target counts half as much as an unsure one."""
    return (1 + uncertainty) / 2


def weigh_by_trust(rows, uncertainty, chooser):
    """A sure target counts as much as the model errs."""
    found = chooser.history.evaluate_out_of_fold() if chooser.history else None
    if found is None:
        return np.ones_like(uncertainty)
    logits, targets = found
    error = float((logits.argmax(axis=1) != targets).mean())
    return error + (1 - error) * uncertainty


def measure_balance(rows, chooser):
    """How few labels the classes of the targets have, ``(T,)``; about 1 for equal numbers."""
    if "logits" not in rows:
        return np.ones(len(rows["features"]))
    chances = softmax(np.asarray(rows["logits"], dtype=np.float64))
    counts = np.bincount(list(chooser.labels.values()), minlength=chances.shape[1]) + 1.0
    return chances @ np.sqrt(counts.mean() / counts)


def weigh_balanced(rows, uncertainty, chooser):
    """Targets of classes with few labels count more."""
    return uncertainty * measure_balance(rows, chooser)


def weigh_balanced_half(rows, uncertainty, chooser):
    """The same, and a sure target counts half as much as an unsure one."""
    return weigh_half(rows, uncertainty, chooser) * measure_balance(rows, chooser)


def measure_density(rows):
    """Mean cosine of every target with its nearest targets, ``(T,)``."""
    features = np.asarray(rows["features"], dtype=np.float32)
    features = features - features.mean(axis=0)
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    similar = features @ features.T
    np.fill_diagonal(similar, 0)
    nearest = np.partition(similar, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS:]
    return np.maximum(nearest, 0).mean(axis=1)


def weigh_typical(rows, uncertainty, chooser, exponent=2):
    """Targets in dense regions count more."""
    return uncertainty * measure_density(rows) ** exponent


def weigh_typical_half(rows, uncertainty, chooser):
    """The same, and a sure target counts half as much as an unsure one."""
    return weigh_typical(rows, 1 + uncertainty, chooser)


def keep_weights(rows, uncertainty, chooser):
    """The weights of the strategy."""
    return uncertainty


VARIANTS = {
    "plain": (keep_weights, 1.0),
    "half": (weigh_half, 1.0),
    "trust": (weigh_by_trust, 1.0),
    "balanced": (weigh_balanced_half, 1.0),
    "balanced u": (weigh_balanced, 1.0),
    "typical": (weigh_typical, 1.0),
    "typical 1": (partial(weigh_typical, exponent=1), 1.0),
    "typical 4": (partial(weigh_typical, exponent=4), 1.0),
    "typical 8": (partial(weigh_typical, exponent=8), 1.0),
    "typical 4 power 2": (partial(weigh_typical, exponent=4), 2.0),
    "typical half": (weigh_typical_half, 1.0),
    "narrow": (keep_weights, "auto"),
    "power 2": (keep_weights, 2.0),
    "refined": (keep_weights, 1.0),
}


class VariantChooser:
    """Picks batches by a variant of `uherding`."""

    def __init__(self, name):
        self._weigh, power = VARIANTS[name]
        self._refine = name == "refined"
        self._strategy = replace(get("uherding"), choose=self._choose).with_options(power=power)
        self._past, self.labels, self.history = [], {}, None

    def __call__(self, round_, labels, budget, *, seed):
        """The next batch."""
        self.labels, options = labels, {}
        if round_.trained:
            self.history = round_.make_history(self._past, labels)
            options = adapt_options(get("uherding"), {"label_counts": None}, self.history)
        candidates = self._propose(round_, labels, budget, seed) if self._refine else None
        return round_.select_batch(
            self._strategy,
            budget,
            candidates=candidates,
            labelled=list(labels),
            options=options,
            seed=seed,
        )

    def _choose(  # the options of `uherding`
        self,
        shards,
        labelled,
        budget,
        seed,
        *,
        kernel="cosine",
        sigma=None,
        radius=None,
        power=1.0,
        temperature=1.0,
        label_counts=None,
    ):
        similarity = fit_kernel(shards, labelled, kernel, sigma, power)

        def weigh(rows):
            return self._weigh(rows, measure_uncertainty(rows, temperature), self)

        return cover_greedily(shards, labelled, budget, similarity, weigh)

    def _propose(self, round_, labels, budget, seed):
        """Which items are left after `LEVELS` rounds of proposals, ``(n,)``."""
        rng = np.random.default_rng(seed)
        left = np.ones(len(round_.pool.ids), dtype=bool)
        for _ in range(LEVELS):
            found = []
            for name in PROPOSERS:
                half = left & (rng.random(len(left)) < 0.5)
                if half.sum() <= 2 * budget:
                    continue
                own = int(rng.integers(2**31))
                picked = StrategyChooser(Entrant(name))(
                    round_, labels, 2 * budget, seed=own, candidates=half
                )
                found.append(picked.ids)
            if not found:
                break
            left = np.zeros_like(left)
            left[round_.pool.find_positions(np.unique(np.concatenate(found)))] = True
        return left


def play_variant(protocol, entrant, seed):
    """Rounds of buying labels with a variant; the strategy of the entrant is its name."""
    yield from run_frozen_experiment(
        protocol,
        entrant,
        seed,
        load_frozen_items(protocol),
        make_chooser=lambda *given: VariantChooser(entrant.strategy),
    )
