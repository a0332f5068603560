"""The same selection through labelwise and through its peers, one small function for each.

Every function takes the same NumPy arrays and returns item numbers in the order of the picks. What
a peer needs beside them (tensors, a model that hands the arrays through) is made inside, since a
user would have to make it too. Peers are imported inside as well: those that are not installed do
not hinder the others.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Job:
    """What is to be done: the pool's arrays (None where it has none), how many picks, the seed."""

    features: Any
    probabilities: Any
    members: Any
    budget: int
    seed: int


@dataclass(frozen=True)
class Answer:
    """The picks, and what else is worth a place in the line."""

    ids: Any
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Implementation:
    """A way to do the job.

    Attributes:
        call: does it.
        package: the distribution that is measured, for its version.
        options: what was set beside the defaults.
        floor: does only the matrix products that the job needs, given the answer.
    """

    call: Callable[[Job], Answer]
    package: str
    options: dict[str, Any] = field(default_factory=dict)
    floor: Callable[[Job, Answer], None] | None = None


# --- labelwise

A_ROUND_PER_PICK = ("sparse_greedy", "herding", "design")
"""The strategies that go over all rows for every pick."""


def with_labelwise(strategy: str, options: dict[str, Any], job: Job) -> Answer:
    """`labelwise.select` with all that the pool has."""
    import labelwise

    given = {
        "features": job.features,
        "probabilities": job.probabilities,
        "member_probabilities": job.members,
    }
    given = {name: rows for name, rows in given.items() if rows is not None}
    selection = labelwise.select(strategy, job.budget, seed=job.seed, **given, **options)
    if strategy in A_ROUND_PER_PICK:
        return Answer(selection.ids, {"rounds": job.budget})
    rounds = selection.info.get("rounds")
    return Answer(selection.ids, {"rounds": rounds} if rounds else {})


def leverage(job: Job) -> Answer:
    """The kernel alone, without a draw; the picks are the highest scores."""
    from labelwise.kernels.linear.leverage import leverage_scores

    return Answer(_highest(leverage_scores(job.features), job.budget))


def lewis(p: float, job: Job) -> Answer:
    """The kernel alone, as `labelwise.kernels.lewis_weights` runs it, with its rounds."""
    from labelwise.kernels.linear.lewis import LewisSettings, iterate_lewis_weights

    found = iterate_lewis_weights(job.features, LewisSettings(p=p))
    return Answer(_highest(found.weights, job.budget), {"rounds": found.iterations})


def _highest(scores: Any, count: int) -> Any:
    return np.argsort(-scores, kind="stable")[:count]


def leverage_products(job: Job, answer: Answer) -> None:
    """The Gram matrix in float64 and one product in float32, over the same pieces."""
    gram(job.features)
    transform = np.eye(job.features.shape[1], dtype=np.float32)
    for rows in pieces(job.features):
        rows @ transform


def lewis_products(job: Job, answer: Answer) -> None:
    """The Gram matrix in float64, then a product and a Gram matrix in float32 per round."""
    gram(job.features)
    transform = np.eye(job.features.shape[1], dtype=np.float32)
    for _ in range(answer.facts["rounds"]):
        for rows in pieces(job.features):
            moved = rows @ transform
            moved.T @ moved


def gram(features: Any) -> Any:
    """The Gram matrix, ``(d, d)``, of rows that are brought to float64 piece by piece."""
    total = np.zeros((features.shape[1], features.shape[1]))
    for rows in pieces(features):
        part = rows.astype(np.float64, copy=False)
        total += part.T @ part
    return total


def pieces(features: Any) -> Any:
    """Views of as many rows as labelwise's kernels work on at a time."""
    from labelwise.kernels.linear.row_chunks import CHUNK

    size = max(1024, CHUNK // features.shape[1])
    return (features[start : start + size] for start in range(0, len(features), size))


# --- BADGE


def residuals(probabilities: Any) -> Any:
    """Derivatives of the loss by the logits at the predicted label, ``(n, K)``."""
    out = probabilities.copy()
    out[np.arange(len(out)), probabilities.argmax(axis=1)] -= 1
    return out


def badge_bmdal(job: Job) -> Answer:
    """k-means++ under the product of two linear kernels, that of residuals and that of features.

    The first pick is uniform, not the largest gradient; there is no option for it.
    """
    import torch
    from bmdal_reg.bmdal.feature_data import ListFeatureData, TensorFeatureData
    from bmdal_reg.bmdal.feature_maps import IdentityFeatureMap, ProductFeatureMap
    from bmdal_reg.bmdal.features import Features
    from bmdal_reg.bmdal.selection import KmeansppSelectionMethod

    tensors = [torch.from_numpy(residuals(job.probabilities)), torch.from_numpy(job.features)]
    kernel = ProductFeatureMap([IdentityFeatureMap(rows.shape[1]) for rows in tensors])
    data = ListFeatureData([TensorFeatureData(rows) for rows in tensors])
    return _bmdal(KmeansppSelectionMethod, Features(kernel, data).precompute(), job)


def _bmdal(method: Any, pool: Any, job: Job) -> Answer:
    import torch

    np.random.seed(job.seed)
    torch.manual_seed(job.seed)
    # bmdal_reg 3.0.2 still says np.Inf, which NumPy 2 no longer has.
    np.Inf = np.inf  # type: ignore[attr-defined]
    selection = method(pool, pool[:1], sel_with_train=False, verbosity=0)
    ids = selection.select(job.budget).numpy()
    status = selection.get_status()
    return Answer(ids, {"note": status} if status else {})


def badge_skactiveml(job: Job) -> Answer:
    """`skactiveml.pool.Badge` with a classifier that already knows its answers."""
    from skactiveml.base import SkactivemlClassifier
    from skactiveml.pool import Badge

    class Given(SkactivemlClassifier):
        def fit(self, X, y, sample_weight=None):
            return self

        def predict_proba(self, X):
            return job.probabilities, job.features

    classifier = Given(classes=list(range(job.probabilities.shape[1])))
    labels = np.full(len(job.features), np.nan)
    strategy = Badge(random_state=job.seed)
    ids = strategy.query(job.features, labels, classifier, fit_clf=False, batch_size=job.budget)
    return Answer(np.asarray(ids))


def badge_distil(job: Job) -> Answer:
    """DISTIL's BADGE with a network that hands features and logits through."""
    from distil.active_learning_strategies.badge import BADGE

    np.random.seed(job.seed)
    return Answer(np.asarray(distil_strategy(BADGE, job).select(job.budget)))


def distil_strategy(strategy: Any, job: Job) -> Any:
    """A DISTIL strategy over rows of features and log-probabilities, side by side."""
    import torch

    d, classes = job.features.shape[1], job.probabilities.shape[1]

    class Given(torch.nn.Module):
        def get_embedding_dim(self):
            return d

        def forward(self, rows, last=False):
            return (rows[:, d:], rows[:, :d]) if last else rows[:, d:]

    class Handler(torch.utils.data.Dataset):
        def __init__(self, rows):
            self.rows = rows

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return self.rows[index], index

    logits = np.log(np.maximum(job.probabilities, np.finfo(np.float32).tiny))
    rows = np.concatenate([job.features, logits], axis=1)
    settings = {"batch_size": 1000, "device": "cpu"}
    none = np.empty((0, d))
    return strategy(none, none, rows, Given(), Handler, classes, settings)


# --- k-center: all start from the item with the largest norm, as labelwise and bmdal_reg do


def k_center_bmdal(job: Job) -> Answer:
    """Largest distance under the linear kernel."""
    import torch
    from bmdal_reg.bmdal.feature_data import TensorFeatureData
    from bmdal_reg.bmdal.feature_maps import IdentityFeatureMap
    from bmdal_reg.bmdal.features import Features
    from bmdal_reg.bmdal.selection import MaxDistSelectionMethod

    data = TensorFeatureData(torch.from_numpy(job.features))
    pool = Features(IdentityFeatureMap(job.features.shape[1]), data).precompute()
    return _bmdal(MaxDistSelectionMethod, pool, job)


def k_center_skactiveml(job: Job) -> Answer:
    """`skactiveml.pool.CoreSet`, whose first pick would be random: it is given as labelled."""
    from skactiveml.pool import CoreSet

    first = _longest(job.features)
    labels = np.full(len(job.features), np.nan)
    labels[first] = 0
    strategy = CoreSet(random_state=job.seed)
    ids = strategy.query(job.features, labels, batch_size=job.budget - 1)
    return Answer(np.concatenate([[first], ids]))


def k_center_mundig(job: Job) -> Answer:
    """Lightly's selection with nothing but its diversifying strategy, from a given first pick."""
    from lightly_mundig import Selection

    begin = time.perf_counter()
    selection = Selection()
    selection.add_diversifying_strategy(job.features, 1.0)
    handed_over = time.perf_counter()
    ids = selection.run_selection([_longest(job.features)], len(job.features), job.budget)
    return Answer(np.asarray(ids), {"seconds_to_hand_over": handed_over - begin})


def _longest(features: Any) -> int:
    return int(np.vecdot(features, features).argmax())


# --- BatchBALD


def batchbald_redux(job: Job) -> Answer:
    """As many configurations as labelwise lists or draws, in float64 as its authors do."""
    import torch
    from batchbald_redux.batchbald import get_batchbald_batch

    torch.manual_seed(job.seed)
    rows = torch.from_numpy(job.members).double().log()
    found = get_batchbald_batch(rows, job.budget, num_samples=10_000, dtype=torch.double)
    return Answer(np.asarray(found.indices), {"scores": found.scores})


def _labelwise(strategy: str, **options: Any) -> dict[str, Implementation]:
    call = partial(with_labelwise, strategy, options)
    return {"labelwise": Implementation(call, "labelwise", options)}


def _kernel(call: Any, floor: Any) -> dict[str, Implementation]:
    return {"labelwise": Implementation(call, "labelwise", floor=floor)}


IMPLEMENTATIONS: dict[str, dict[str, Implementation]] = {
    "badge": {
        **_labelwise("badge"),
        "bmdal_reg": Implementation(badge_bmdal, "bmdal_reg"),
        "scikit-activeml": Implementation(badge_skactiveml, "scikit-activeml"),
        "distil": Implementation(badge_distil, "decile-distil"),
    },
    "k_center": {
        **_labelwise("k_center"),
        "bmdal_reg": Implementation(k_center_bmdal, "bmdal_reg"),
        "scikit-activeml": Implementation(k_center_skactiveml, "scikit-activeml"),
        "lightly-mundig": Implementation(k_center_mundig, "lightly-mundig"),
    },
    "batchbald": {
        **_labelwise("batchbald"),
        "batchbald_redux": Implementation(batchbald_redux, "batchbald-redux"),
    },
    "leverage": _kernel(leverage, leverage_products),
    "lewis_1": _kernel(partial(lewis, 1.0), lewis_products),
    "lewis_1.5": _kernel(partial(lewis, 1.5), lewis_products),
    "lewis_3": _kernel(partial(lewis, 3.0), lewis_products),
    "lewis": _labelwise("lewis"),
    # At temperature 1 the gradients vanish and there is nothing to approximate.
    "sparse_greedy": _labelwise("sparse_greedy", temperature=1.5),
    "sparse_iht": _labelwise("sparse_iht", temperature=1.5),
    "bss": _labelwise("bss"),
    "herding": _labelwise("herding"),
    "design": _labelwise("design"),
    "kmeans": _labelwise("kmeans"),
    "entropy": _labelwise("entropy"),
}
"""By strategy and implementation; labelwise comes first."""
