"""Small learners, pools and clocks for the tests of campaigns."""

import json
from pathlib import Path

import numpy as np

import labelwise
from labelwise.campaign.campaign import Campaign
from labelwise.learner import FitReport, check_names

IDS = np.array([9_000_000_011, 17, 4_000_000_003, 250, 1_000_003, 88], dtype=np.int64)
"""Ids that are no positions: large, and in no order."""


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


class Nearest:
    """Weighted class means; the probability of a class falls with the distance to its mean.

    Keeps all that it was trained with in `calls`. Like scikit-learn's estimators it has columns
    only for the classes it has seen.
    """

    def __init__(self, fails=()):
        self.calls = []
        self.fails = list(fails)  # errors to raise, one per training, None for none

    def fit(self, inputs, targets, weights=None, *, seed):
        self.calls.append({"inputs": inputs, "targets": targets, "weights": weights, "seed": seed})
        error = self.fails.pop(0) if self.fails else None
        if error is not None:
            raise error
        rows = np.asarray(inputs, dtype=np.float64)
        weights = np.ones(len(rows)) if weights is None else weights
        self.classes = np.unique(targets)
        noise = np.random.default_rng(seed).normal(size=(len(self.classes), rows.shape[1]))
        self.means = 1e-3 * noise + [
            np.average(rows[targets == c], axis=0, weights=weights[targets == c])
            for c in self.classes
        ]
        return FitReport(0.5, 1, True, 0.0)

    def represent(self, inputs, names):
        check_names(names, ["features", "probabilities"], "a nearest mean")
        rows = np.asarray(inputs, dtype=np.float64)
        powers = np.exp(-((rows[:, None] - self.means[None]) ** 2).sum(axis=2))
        found = {"features": rows, "probabilities": powers / powers.sum(axis=1, keepdims=True)}
        return {name: found[name] for name in names}


class Interrupted(Nearest):
    """Something else happens, once, while it represents the pool."""

    def __init__(self, meanwhile):
        super().__init__()
        self.meanwhile = meanwhile

    def represent(self, inputs, names):
        if len(names) == 2 and len(inputs) > 1 and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return super().represent(inputs, names)


class SavingNearest(Nearest):
    """The same with checkpoints."""

    def save(self, folder):
        Path(folder).mkdir(parents=True)
        facts = {"classes": self.classes.tolist(), "means": np.asarray(self.means).tolist()}
        (Path(folder) / "model.json").write_text(json.dumps(facts))

    def load(self, folder):
        try:
            facts = json.loads((Path(folder) / "model.json").read_text())
        except ValueError as error:
            raise labelwise.BadInput("the model is not JSON") from error
        self.classes, self.means = np.array(facts["classes"]), np.array(facts["means"])


class Line:
    """Least squares on values."""

    def fit(self, inputs, targets, weights=None, *, seed):
        rows = np.column_stack([inputs, np.ones(len(inputs))])
        self.slope = np.linalg.lstsq(rows, targets, rcond=None)[0]
        return FitReport(float("nan"), 0, True, 0.0)

    def represent(self, inputs, names):
        check_names(names, ["features", "outputs"], "a line")
        rows = np.column_stack([inputs, np.ones(len(inputs))])
        found = {"features": rows, "outputs": (rows @ self.slope)[:, None]}
        return {name: found[name] for name in names}


def make_pool(n=60, seed=0, classes=3):
    """A pool under shuffled large ids, and the class of every item by id."""
    generator = np.random.default_rng(seed)
    kinds = generator.integers(classes, size=n)
    inputs = 3 * np.eye(max(classes, 2), 4)[kinds] + generator.normal(size=(n, 4))
    ids = generator.choice(10**12, size=n, replace=False)
    truth = dict(zip(ids.tolist(), kinds.tolist(), strict=True))
    return labelwise.Pool(inputs, ids), truth


def make_campaign(storage, n=60, *, name="toys", learner=None, **settings):
    """A campaign over a pool of three clusters, and the right answers by id."""
    pool, truth = make_pool(n)
    learner = Nearest() if learner is None else learner
    return Campaign(name, pool, learner, storage, **{"batch": 8, **settings}), truth


def answer(campaign, truth, ids=None, by=""):
    """Tell the right labels of some items, or of all that wait."""
    ids = list(campaign.ledger().waiting) if ids is None else ids
    return campaign.tell({int(item): truth[int(item)] for item in ids}, by=by)
