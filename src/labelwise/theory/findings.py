"""One function per diagnostic of a selection: from what is known to a value and its reading."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids, float64, row_noise, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.distance.factored import Factored, weighted_sum
from labelwise.kernels.linear.leverage import read_features
from labelwise.kernels.linear.lewis import LewisSettings, iterate_lewis_weights
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.selection.result import Selection
from labelwise.theory import reading
from labelwise.theory.agreement import dynamics_agreement
from labelwise.theory.alignment_bounds import generalisation_bound, generalisation_bounds
from labelwise.theory.coverage import model_coverage
from labelwise.theory.dynamics import (
    alignment,
    approximation_ratio,
    last_layer_kernel,
    one_hot,
)
from labelwise.theory.embedding import embedding_distortion
from labelwise.theory.imbalance import class_counts, imbalance_ratio
from labelwise.theory.mmd import pool_mmd, subset_mmd
from labelwise.theory.pool import Picks, Reader, check_picks, picked_rows
from labelwise.theory.spectrum import weighted_spectrum

PERCENTS = (1.0, 5.0, 10.0, 20.0, 50.0)
"""Where the coverage is measured."""

MOST_PICKS = 4000
"""The largest kernel that is factored or compared in random batches."""


@dataclass(frozen=True)
class Finding:
    """One diagnostic.

    Attributes:
        name: what it is called.
        values: its numbers by name; infinite or undefined ones are as Python has them.
        formula: how it is defined.
        reading: a plain sentence on what the numbers say.
    """

    name: str
    values: dict[str, Any]
    formula: str
    reading: str


@dataclass(frozen=True)
class Case:
    """What is explained, and what is known about it."""

    picks: Selection
    shards: Shards
    models: int
    p: float
    bias: bool
    rtol: float | None
    labels: Ids | None
    pool_labels: Ids | None
    classes: int | None
    labelled: Rows | None
    kernel: Floats | None
    seed: int

    @cached_property
    def chosen(self) -> Picks:
        """The picks' ids and weights."""
        return check_picks(self.picks, len(self.shards))

    @cached_property
    def features(self) -> Floats:
        """The picks' features in the first model, ``(b, d)``."""
        return picked_rows(self.shards, self.picks.ids, Reader(0))

    @cached_property
    def probabilities(self) -> Floats | None:
        """The picks' class probabilities, ``(b, K)``, where the pool has some."""
        return class_rows(self.shards.rows(self.picks.ids))


def class_rows(rows: Rows) -> Floats | None:
    """Class probabilities in float64 on the host, those of the first model, or None."""
    if "probabilities" not in rows:
        return None
    value = rows["probabilities"]
    value = value[0] if isinstance(value, list | tuple) else value
    return np.asarray(to_numpy(float64(value)))


def measure_size(case: Case) -> Finding:
    """How many equally weighted picks the weights leave."""
    weights = case.chosen.weights
    effective = float(weights.sum() ** 2 / (weights @ weights))
    values = {"effective_size": effective, "sum_of_weights": float(weights.sum())}
    values |= {"largest_share": float(weights.max() / weights.sum())}
    formula = "(sum w)^2 / sum w^2"
    return Finding("effective size", values, formula, reading.read_size(effective, len(weights)))


def measure_one_model(case: Case, model: int) -> list[Finding]:
    """The spectrum and the distortion in the features of one model."""
    suffix = f", model {model + 1}" if case.models > 1 else ""
    known: dict[str, Any] = {"model": model, "bias": case.bias, "rtol": case.rtol}
    spectrum = weighted_spectrum(case.picks, case.shards, **known)
    values = {
        "rank": spectrum.rank,
        "lowest": spectrum.lower,
        "highest": spectrum.upper,
        "inside": spectrum.inside,
        "unseen": spectrum.unseen,
    }
    formula = "eigenvalues of sum over picks of w v v^T, v white over the pool"
    said = reading.read_spectrum(spectrum, weighted=case.picks.weights is not None)
    found = [Finding(f"spectrum{suffix}", values, formula, said)]
    distortion = embedding_distortion(case.picks, case.shards, p=case.p, seed=case.seed, **known)
    values = {
        "p": distortion.p,
        "lowest": distortion.lower,
        "highest": distortion.upper,
        "exact": distortion.exact,
    }
    formula = "range over x of sum over picks of w |a.x|^p / sum over pool of |a.x|^p"
    text = reading.read_distortion(distortion)
    return [*found, Finding(f"embedding{suffix}", values, formula, text)]


def measure_shared(case: Case) -> list[Finding]:
    """Whether several models care about the same items."""
    if case.models < 2:
        return []
    settings = LewisSettings(p=case.p, tol=1e-4, rtol=case.rtol, double=True)
    every = [
        iterate_lewis_weights(case.shards, settings, Reader(model, case.bias)).weights
        for model in range(case.models)
    ]
    values = {f"{t:g}": model_coverage(every, t, ids=case.shards.ids) for t in PERCENTS}
    text = reading.read_coverage(10.0, values["10"], case.models)
    formula = "kappa(t) = mean over models of |top t % of the model and shared top t %| / |t %|"
    return [Finding("coverage", values, formula, text)]


def measure_discrepancies(case: Case) -> list[Finding]:
    """How far the picks are from the pool, and from what was labelled before."""
    found = []
    if np.count_nonzero(case.chosen.weights) > 1:
        near = pool_mmd(case.picks, case.shards)
        values = {"squared": near.squared, "value": near.value, "spread": near.spread}
        formula = "unbiased MMD of weighted picks and pool, kernel h . h'"
        text = reading.read_mmd(near, "the weighted picks and the pool")
        found.append(Finding("mmd", values, formula, text))
    if case.labelled is None or len(read_features(case.labelled, 0)) < 2:
        return found
    rows = _joint_rows(case.labelled, case.features)
    m, size = len(rows) - len(case.features), len(rows)
    given = case.kernel is not None and len(case.kernel) == size
    both = subset_mmd(case.kernel if given else last_layer_kernel(rows), m)
    formula = "unbiased MMD of the labelled items S and S with the picks, " + (
        "the given kernel" if given else "kernel h . h' + 1"
    )
    text = reading.read_mmd(both, "the labelled items before and after")
    values = {"squared": both.squared, "value": both.value}
    return [*found, Finding("mmd of the labelled items", values, formula, text)]


def _joint_rows(labelled: Rows, features: Floats) -> Floats:
    return np.concatenate([np.asarray(to_numpy(float64(read_features(labelled, 0)))), features])


def measure_classes(case: Case) -> list[Finding]:
    """How evenly the classes are picked, or the predicted ones where labels are not known."""
    predicted = case.labels is None
    labels, classes = case.labels, case.classes
    if case.probabilities is not None:
        classes = classes or case.probabilities.shape[1]
        labels = case.probabilities.argmax(axis=1) if predicted else labels
    if labels is None:
        return []
    pool = None
    if case.pool_labels is not None:
        classes = classes or int(case.pool_labels.max()) + 1
        pool = imbalance_ratio(case.pool_labels, classes)
    counts = class_counts(labels, classes)
    ratio, missing = imbalance_ratio(labels, classes), int(np.count_nonzero(counts == 0))
    values = {"ratio": ratio, "missing": missing, "counts": counts.tolist(), "pool_ratio": pool}
    formula = "largest class count / smallest" + (", of predicted classes" if predicted else "")
    text = reading.read_imbalance(ratio, missing, predicted, pool)
    return [Finding("class imbalance", values, formula, text)]


def measure_gradients(case: Case) -> list[Finding]:
    """What a batch gains, taken item by item and as a whole."""
    if case.probabilities is None:
        return []
    summed = None
    if case.labelled is not None and "labels" in case.labelled:
        known = class_rows(case.labelled)
        if known is not None:
            rows = np.asarray(to_numpy(float64(read_features(case.labelled, 0))))
            given = Factored(known - one_hot(case.labelled["labels"], known.shape[1]), rows)
            summed = weighted_sum(given, np.ones(len(given)))
    guesses = one_hot(case.probabilities.argmax(axis=1), case.probabilities.shape[1])
    gradients = Factored(case.probabilities - guesses, case.features)
    value = approximation_ratio(gradients, summed)
    formula = "R = sum over picks of (|g|^2 + 2 g.gS) / (|gQ|^2 + 2 gQ.gS), last layer"
    text = reading.read_ratio(value, summed is None)
    return [Finding("approximation ratio", {"ratio": value}, formula, text)]


def measure_kernels(case: Case) -> list[Finding]:
    """The alignment of the labels and the bound B."""
    if case.labels is None:
        return []
    b, targets = len(case.picks), one_hot(case.labels, case.classes)
    if case.kernel is not None:
        if len(case.kernel) < b:
            raise BadInput(f"the kernel has {len(case.kernel)} rows but there are {b} picks")
        theta: Any = case.kernel[-b:, -b:]
        top, name = float(np.linalg.eigvalsh(theta)[-1]), "the given kernel"
    else:
        rows = np.concatenate([case.features, np.ones((b, 1))], axis=1)
        theta = Factored(np.ones((b, 1)), rows)  # so that any number of picks will do
        top, name = float(np.linalg.norm(rows, 2)) ** 2, "kernel h . h' + 1"
    value = alignment(theta, targets)
    relative = value / (top * b) if top > 0 else 0.0
    formula = f"A = Tr(Y^T K Y), at most the largest eigenvalue times b; {name}"
    values = {"alignment": value, "relative": relative}
    found = Finding("alignment", values, formula, reading.read_alignment(value, relative))
    return [found, _bound(case, theta, targets, name)]


def _bound(case: Case, kernel: Any, targets: Floats, name: str) -> Finding:
    b = len(case.picks)
    values: dict[str, Any] = {"bound": math.nan, "singular": False}
    if b <= MOST_PICKS:
        theta = kernel if case.kernel is not None else last_layer_kernel(case.features)
        low, high = generalisation_bounds(theta, targets)
        singular = bool(np.linalg.matrix_rank(theta, hermitian=True) < b)
        values = {"bound": generalisation_bound(theta, targets), "singular": singular}
        values |= {"from_alignment": low, "at_most": high}
    text = reading.read_bound(values["bound"], values["singular"])
    return Finding("bound B", values, f"B = sqrt(2 Tr(Y^T K^-1 Y) / b); {name}", text)


def measure_batches(case: Case) -> list[Finding]:
    """Rank random batches of the pool, each as large as a quarter of the items compared."""
    n = len(case.shards)
    if case.pool_labels is None or case.probabilities is None or n < 8:
        return []
    ids = case.shards.ids
    few = np.argsort(row_noise(case.seed, ids, 0xA9))[: min(n, 1000)]
    rows = case.shards.rows(ids[few])
    outputs = class_rows(rows)
    assert outputs is not None
    features = np.asarray(to_numpy(float64(read_features(rows, 0))))
    targets = one_hot(case.pool_labels[few], outputs.shape[1])
    batch = max(2, len(few) // 4)
    found = dynamics_agreement(
        last_layer_kernel(features), outputs, targets, batch=batch, draws=100, seed=case.seed
    )
    values = {"kendall": found.correlation, "batch": batch, "draws": 100}
    formula = "Kendall's tau of G_MSE and A over random batches, kernel h . h' + 1"
    return [Finding("agreement", values, formula, reading.read_agreement(found.correlation))]
