"""All diagnostics of a selection, each with its formula and a plain sentence.

The diagnostics depend on the inputs: features alone give the effective size, the spectrum, the
distortion of norms, the coverage of several models and the discrepancy; labels add the class
imbalance, the alignment and the generalisation bound; probabilities add the approximation ratio;
labels and probabilities of the whole pool add the agreement.

Cost: about four passes over the pool per model for p = 2, and 40 more for another p.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from labelwise.arrays import Array, Floats, Ids, float64, row_noise, to_numpy
from labelwise.errors import BadInput
from labelwise.files import to_json
from labelwise.kernels.distance.embedding import Factored, weighted_sum
from labelwise.kernels.linear.lewis import LewisSettings, iterate_lewis_weights
from labelwise.pool.blocks import Shards
from labelwise.pool.ids import IdIndex
from labelwise.pool.rows import Rows, read_features
from labelwise.selection.result import Selection
from labelwise.theory.alignment_bounds import generalisation_bound, generalisation_bounds
from labelwise.theory.coverage import (
    check_class_count,
    class_counts,
    imbalance_ratio,
    model_coverage,
)
from labelwise.theory.dynamics import (
    alignment,
    approximation_ratio,
    check_tangent_kernel,
    dynamics_agreement,
    last_layer_kernel,
    one_hot,
)
from labelwise.theory.mmd import Discrepancy, pool_mmd, subset_mmd
from labelwise.theory.pool import (
    Features,
    WeightedPicks,
    as_feature_shards,
    check_weighted_picks,
    count_models,
    make_model_reader,
    read_picked_rows,
)
from labelwise.theory.spectrum import (
    BAND,
    Distortion,
    Spectrum,
    embedding_distortion,
    weighted_spectrum,
)

PERCENTS = (1.0, 5.0, 10.0, 20.0, 50.0)  # Percentages of items at which the coverage is measured
MOST_PICKS = 4000  # Maximum number of picks whose kernel is factored


FindingValues = Mapping[str, Any]  # Numbers by name, which may be infinite, NaN or None


@dataclass(frozen=True)
class Finding:
    """One diagnostic.

    Attributes:
        name: of the diagnostic.
        values: its numbers by name.
        formula: its definition.
        reading: a plain sentence that interprets the numbers.
    """

    name: str
    values: FindingValues
    formula: str
    reading: str


@dataclass(frozen=True)
class ExplanationInputs:
    """The selection, its pool, and the options of `explain`."""

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
    def chosen(self) -> WeightedPicks:
        """The picks' ids and weights."""
        return check_weighted_picks(self.picks, len(self.shards))

    @cached_property
    def features(self) -> Floats:
        """The picks' features in the first model, ``(b, d)``."""
        return read_picked_rows(self.shards, self.picks.ids, make_model_reader(0))

    @cached_property
    def probabilities(self) -> Floats | None:
        """The picks' class probabilities, ``(b, K)``, if the pool has them."""
        return read_probabilities(self.shards.rows(self.picks.ids))


def read_probabilities(rows: Rows) -> Floats | None:
    """Class probabilities in float64 on the host, those of the first model, or None."""
    if "probabilities" not in rows:
        return None
    value = rows["probabilities"]
    value = value[0] if isinstance(value, list | tuple) else value
    return np.asarray(to_numpy(float64(value)))


def measure_effective_size(case: ExplanationInputs) -> Finding:
    """Number of equally weighted picks with the same variance."""
    weights = case.chosen.weights
    effective = float(weights.sum() ** 2 / (weights @ weights))
    values = {"effective_size": effective, "sum_of_weights": float(weights.sum())}
    values |= {"largest_share": float(weights.max() / weights.sum())}
    formula = "(sum w)^2 / sum w^2"
    return Finding("effective size", values, formula, describe_size(effective, len(weights)))


def measure_model_spectrum(case: ExplanationInputs, model: int) -> list[Finding]:
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
    said = describe_spectrum(spectrum, weighted=case.picks.weights is not None)
    found = [Finding(f"spectrum{suffix}", values, formula, said)]
    distortion = embedding_distortion(case.picks, case.shards, p=case.p, seed=case.seed, **known)
    values = {
        "p": distortion.p,
        "lowest": distortion.lower,
        "highest": distortion.upper,
        "exact": distortion.exact,
    }
    formula = "range over x of sum over picks of w |a.x|^p / sum over pool of |a.x|^p"
    text = describe_distortion(distortion)
    return [*found, Finding(f"embedding{suffix}", values, formula, text)]


def measure_coverage(case: ExplanationInputs) -> list[Finding]:
    """Whether several models agree on the important items."""
    if case.models < 2:
        return []
    settings = LewisSettings(p=case.p, tol=1e-4, rtol=case.rtol, double=True)
    every = [
        iterate_lewis_weights(case.shards, settings, make_model_reader(model, case.bias)).weights
        for model in range(case.models)
    ]
    values = {f"{t:g}": model_coverage(every, t, ids=case.shards.ids) for t in PERCENTS}
    text = describe_model_coverage(10.0, values["10"], case.models)
    formula = "kappa(t) = mean over models of |top t % of the model and shared top t %| / |t %|"
    return [Finding("coverage", values, formula, text)]


def measure_discrepancies(case: ExplanationInputs) -> list[Finding]:
    """Distance of the picks from the pool, and from the items labelled before."""
    found = []
    if np.count_nonzero(case.chosen.weights) > 1:
        near = pool_mmd(case.picks, case.shards)
        values = {"squared": near.squared, "value": near.value, "spread": near.spread}
        formula = "unbiased MMD of weighted picks and pool, kernel h . h'"
        text = describe_mmd(near, "the weighted picks and the pool")
        found.append(Finding("mmd", values, formula, text))
    if case.labelled is None or len(read_features(case.labelled, 0)) < 2:
        return found
    rows = np.concatenate([_read_host_features(case.labelled), case.features])
    m, size = len(rows) - len(case.features), len(rows)
    given = case.kernel is not None and len(case.kernel) == size
    both = subset_mmd(case.kernel if given else last_layer_kernel(rows), m)
    formula = "unbiased MMD of the labelled items S and S with the picks, " + (
        "the given kernel" if given else "kernel h . h' + 1"
    )
    text = describe_mmd(both, "the labelled items before and after")
    values = {"squared": both.squared, "value": both.value}
    return [*found, Finding("mmd of the labelled items", values, formula, text)]


def _read_host_features(rows: Rows) -> Floats:
    """The features of the first model, ``(n, d)``, in float64 on the host."""
    return np.asarray(to_numpy(float64(read_features(rows, 0))))


def measure_class_imbalance(case: ExplanationInputs) -> list[Finding]:
    """Balance of the picked classes; of predicted classes if labels are unknown."""
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
    text = describe_imbalance(ratio, missing, predicted, pool)
    return [Finding("class imbalance", values, formula, text)]


def measure_approximation_ratio(case: ExplanationInputs) -> list[Finding]:
    """Gain of the batch, item by item and as a whole."""
    if case.probabilities is None:
        return []
    summed = None
    if case.labelled is not None and "labels" in case.labelled:
        known = read_probabilities(case.labelled)
        if known is not None:
            rows = _read_host_features(case.labelled)
            given = Factored(known - one_hot(case.labelled["labels"], known.shape[1]), rows)
            summed = weighted_sum(given, np.ones(len(given)))
    guesses = one_hot(case.probabilities.argmax(axis=1), case.probabilities.shape[1])
    gradients = Factored(case.probabilities - guesses, case.features)
    value = approximation_ratio(gradients, summed)
    formula = "R = sum over picks of (|g|^2 + 2 g.gS) / (|gQ|^2 + 2 gQ.gS), last layer"
    text = describe_approximation_ratio(value, summed is None)
    return [Finding("approximation ratio", {"ratio": value}, formula, text)]


def measure_alignment(case: ExplanationInputs) -> list[Finding]:
    """The alignment of the labels and the bound B."""
    if case.labels is None:
        return []
    b, targets = len(case.picks), one_hot(case.labels, case.classes)
    if case.kernel is not None:
        if len(case.kernel) < b:
            raise BadInput(f"the kernel has {len(case.kernel)} rows but there are {b} picks")
        own = case.kernel[-b:, -b:]
        theta: Floats | Factored = own
        top, name = float(np.linalg.eigvalsh(own)[-1]), "the given kernel"
    else:
        rows = np.concatenate([case.features, np.ones((b, 1))], axis=1)
        theta = Factored(np.ones((b, 1)), rows)  # avoids the (b, b) kernel
        top, name = float(np.linalg.norm(rows, 2)) ** 2, "kernel h . h' + 1"
    value = alignment(theta, targets)
    relative = value / (top * b) if top > 0 else 0.0
    formula = f"A = Tr(Y^T K Y), at most the largest eigenvalue times b; {name}"
    values = {"alignment": value, "relative": relative}
    found = Finding("alignment", values, formula, describe_alignment(value, relative))
    return [found, _measure_bound(case, theta, targets, name)]


def _measure_bound(
    case: ExplanationInputs, kernel: Floats | Factored, targets: Floats, name: str
) -> Finding:
    b = len(case.picks)
    values: dict[str, Any] = {"bound": math.nan, "singular": False}
    if b <= MOST_PICKS:
        theta = last_layer_kernel(case.features) if isinstance(kernel, Factored) else kernel
        low, high = generalisation_bounds(theta, targets)
        singular = bool(np.linalg.matrix_rank(theta, hermitian=True) < b)
        values = {"bound": generalisation_bound(theta, targets), "singular": singular}
        values |= {"from_alignment": low, "at_most": high}
    text = describe_generalisation_bound(values["bound"], values["singular"])
    return Finding("bound B", values, f"B = sqrt(2 Tr(Y^T K^-1 Y) / b); {name}", text)


def measure_dynamics_agreement(case: ExplanationInputs) -> list[Finding]:
    """Rank random batches of the pool, each as large as a quarter of the items compared."""
    n = len(case.shards)
    if case.pool_labels is None or case.probabilities is None or n < 8:
        return []
    ids = case.shards.ids
    few = np.argsort(row_noise(case.seed, ids, 0xA9))[: min(n, 1000)]
    rows = case.shards.rows(ids[few])
    outputs = read_probabilities(rows)
    assert outputs is not None
    features = _read_host_features(rows)
    targets = one_hot(case.pool_labels[few], outputs.shape[1])
    batch = max(2, len(few) // 4)
    found = dynamics_agreement(
        last_layer_kernel(features), outputs, targets, batch=batch, draws=100, seed=case.seed
    )
    values = {"kendall": found.correlation, "batch": batch, "draws": 100}
    formula = "Kendall's tau of G_MSE and A over random batches, kernel h . h' + 1"
    return [Finding("agreement", values, formula, describe_agreement(found.correlation))]


@dataclass(frozen=True)
class Explanation:
    """All diagnostics of a selection, in reading order."""

    picks: int
    items: int
    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> FindingValues:
        """The values of the finding with that name."""
        for finding in self.findings:
            if finding.name == name:
                return finding.values
        raise KeyError(name)

    def to_dict(self) -> dict[str, object]:
        """JSON-compatible values; infinite and undefined numbers become None."""
        findings = [
            {
                "name": finding.name,
                "values": to_json(finding.values, non_finite=lambda value: None),
                "formula": finding.formula,
                "reading": finding.reading,
            }
            for finding in self.findings
        ]
        return {"picks": self.picks, "items": self.items, "findings": findings}


def explain(
    picks: Selection,
    features: Features,
    *,
    probabilities: Array | None = None,
    labels: Array | None = None,
    labelled: Rows | None = None,
    kernel: Array | None = None,
    classes: int | None = None,
    p: float = 2.0,
    bias: bool = False,
    rtol: float | None = None,
    seed: int = 0,
) -> Explanation:
    """Compute all diagnostics of a selection that the inputs allow.

    Args:
        picks: the result of `labelwise.select`.
        features: ``(n, d)`` of the pool it was picked from, a list of such arrays (one per model),
            or shards that hold ``features`` and, if known, ``probabilities``.
        probabilities: ``(n, K)`` of the first model, where features are arrays.
        labels: the picks' classes ``(b,)`` in their order, or those of the whole pool ``(n,)``.
        labelled: rows of the items that were labelled before (``features``, and if known
            ``probabilities`` and ``labels``).
        kernel: ``(b, b)`` tangent kernel of the picks, or ``(m + b, m + b)`` of the labelled items
            and the picks; the kernel of the last layer, ``h . h' + 1``, if None.
        classes: number of classes; by default from the probabilities or the labels.
        p: the norm of the loss, 1 or more.
        bias: whether the linear model has a constant column.
        rtol: relative rank tolerance, as in `labelwise.kernels`.
        seed: of the random directions and batches.

    >>> import numpy as np
    >>> import labelwise
    >>> features = np.random.default_rng(0).normal(size=(500, 4))
    >>> found = explain(labelwise.select("bss", 300, features=features), features)
    >>> [finding.name for finding in found.findings]
    ['effective size', 'spectrum', 'embedding', 'mmd']
    >>> found["spectrum"]["inside"]
    True
    """
    check_class_count(classes)
    shards = as_feature_shards(features, probabilities=probabilities)
    if labelled is not None and not len(read_features(labelled, 0)):
        labelled = None
    own, whole = _split_pool_labels(picks, shards, labels)
    case = ExplanationInputs(
        picks,
        shards,
        count_models(shards),
        p,
        bias,
        rtol,
        own,
        whole,
        classes,
        labelled,
        None if kernel is None else check_tangent_kernel(kernel),
        seed,
    )
    findings = [measure_effective_size(case)]
    for model in range(case.models):
        findings += measure_model_spectrum(case, model)
        shards.progress("models", model + 1, case.models)
    findings += (
        measure_coverage(case)
        + measure_discrepancies(case)
        + measure_class_imbalance(case)
        + measure_approximation_ratio(case)
    )
    findings += measure_alignment(case) + measure_dynamics_agreement(case)
    return Explanation(len(picks), len(shards), tuple(findings))


def _split_pool_labels(
    picks: Selection, shards: Shards, labels: Array | None
) -> tuple[Ids | None, Ids | None]:
    """The labels of the picks and of the whole pool; None where unknown."""
    if labels is None:
        return None, None
    given = np.asarray(to_numpy(labels) if hasattr(labels, "shape") else labels)
    class_counts(given)  # rejects anything but a list of classes
    given = given.astype(np.int64)
    if len(given) == len(shards):
        return given[IdIndex(shards.ids).find_positions(picks.ids)], given
    if len(given) == len(picks):
        return given, None
    raise BadInput(
        f"there are {len(given)} labels; give {len(shards)}, one per item of the pool, or "
        f"{len(picks)}, one per pick in the order of the picks"
    )


def describe_size(effective: float, picks: int) -> str:
    """Sentence on the effective size.

    >>> describe_size(50.0, 100)
    'the weights make 100 picks worth 50 equally weighted ones (50 %): they are uneven'
    """
    share = effective / picks
    text = f"the weights make {picks} picks worth {effective:.0f} equally weighted ones "
    text += f"({100 * share:.0f} %): "
    if share >= 0.8:
        return text + "they are nearly even"
    if share >= 0.3:
        return text + "they are uneven"
    return text + "a few picks carry almost all weight, expect noisy training"


def describe_spectrum(found: Spectrum, weighted: bool = False) -> str:
    """Sentence on the eigenvalues of the picks; ``weighted``: whether the picks have weights."""
    text = (
        f"the picks cover between {found.lower:.2f} and {found.upper:.2f} of the pool's variance "
    )
    text += f"over its {found.rank} directions"
    if found.unseen:
        return (
            text + f"; {found.unseen} of them are not covered at all, a linear fit is undetermined"
        )
    if found.inside:
        return text + ": all within [3/4, 5/4], a weighted least-squares fit is close to the pool's"
    low = found.lower < BAND[0]
    side = "some directions are covered too little" if low else "some count too much"
    remedy = "pick more" if weighted else "pick more, or use bss or lewis, whose picks have weights"
    return text + f": not all within [3/4, 5/4], {side}; {remedy}"


def describe_distortion(found: Distortion) -> str:
    """Sentence on the distortion of norms."""
    sure = "exactly" if found.exact else "at least (found by search)"
    text = f"the l{found.p:g} loss of a linear prediction, estimated from the picks, is between "
    text += f"{found.lower:.2f} and {found.upper:.2f} times that on the pool, {sure}"
    fine = BAND[0] <= found.lower and found.upper <= BAND[1]
    return text + (": good" if fine else ": too wide, the picks do not represent the pool")


def describe_model_coverage(percent: float, value: float, models: int) -> str:
    """Sentence on the coverage of several models."""
    text = (
        f"of the top {percent:g} % of items for one model, {100 * value:.0f} % are in the shared "
    )
    text += f"top {percent:g} %"
    disjoint = 1 / models  # what models with nothing in common have
    common = (value - disjoint) / (1 - disjoint)
    if common >= 0.6:
        return text + ": the models agree on what matters, one selection serves them all"
    if common >= 0.1:
        return text + ": the models partly agree, a shared selection still saves labels"
    return text + ": different items matter to the models, a shared selection saves little"


def describe_imbalance(ratio: float, missing: int, predicted: bool, pool: float | None) -> str:
    """Sentence on the class-imbalance ratio."""
    kind = "predicted classes" if predicted else "classes"
    if missing:
        return f"{missing} of the {kind} have no pick: a classifier cannot learn them"
    text = f"the most common of the {kind} is picked {ratio:.1f} times as often as the rarest"
    if pool is not None:
        text += " (in the pool: " + (f"{pool:.1f})" if math.isfinite(pool) else "one is missing)")
    if ratio <= 2 or (pool is not None and ratio <= 1.2 * pool):
        return text + ": balanced enough"
    return text + ": check that rare classes matter, or weigh them"


def describe_approximation_ratio(value: float, converged: bool) -> str:
    """Sentence on the approximation ratio."""
    if math.isnan(value):
        return "the batch as a whole gains nothing, so the ratio is undefined; train further first"
    text = f"the gains of the single items add up to {value:.2f} times the gain of the batch"
    if converged:
        text += " (after training, when the labelled gradient is zero)"
    if 0.8 <= value <= 1.25:
        return text + ": the picks hardly overlap"
    if value < 0.8:
        return text + ": some picks are redundant"
    return text + ": the picks pull against each other"


def describe_alignment(value: float, relative: float) -> str:
    """Sentence on the alignment, relative to the largest possible."""
    text = f"the labels use {100 * relative:.0f} % of the alignment that these items allow at most"
    if relative >= 0.3:
        return f"{text}: they lie along the main directions of the kernel and train fast"
    return f"{text}: part of them lies along weak directions and trains slowly"


def describe_generalisation_bound(value: float, singular: bool) -> str:
    """Sentence on the generalisation bound B; NaN where it was not computed."""
    if math.isnan(value):
        return "not computed: there are too many picks to factor their kernel"
    if singular:
        return (
            "the kernel has fewer directions than picks, so its inverse, and with it B, is set by "
            "the jitter: give the tangent kernel of the whole network"
        )
    side = (
        "below 1, the bound is informative"
        if value < 1
        else "1 or more, the bound is not informative"
    )
    return (
        f"the leading term of the bound on the test error is {value:.3g}: {side}; smaller is better"
    )


def describe_mmd(found: Discrepancy, what: str) -> str:
    """Sentence on a maximum mean discrepancy."""
    relative = found.value / math.sqrt(found.scale) if found.scale > 0 else 0.0
    text = (
        f"the mean features of {what} differ by {100 * relative:.1f} % of a typical item's length"
    )
    if found.spread is None:
        return text + ": " + ("close" if relative < 0.1 else "the laws differ, expect a shift")
    times = found.squared / found.spread if found.spread > 0 else 0.0
    if times < 2:
        return text + ", not more than for random picks"
    return text + f", {times:.0f} times the spread of random picks: the picks are shifted"


def describe_agreement(value: float) -> str:
    """Sentence on Kendall's correlation."""
    if math.isnan(value):
        return "all random batches have the same dynamics or alignment, so they cannot be ranked"
    text = f"training dynamics and alignment rank random batches with a correlation of {value:.2f}"
    if value >= 0.5:
        return text + ": picking by dynamics also picks by alignment"
    if value >= 0.2:
        return text + ": they agree in part"
    return text + ": they disagree on this model, one does not replace the other"
