"""All diagnostics of a selection at once, each with its formula and a sentence on how to read it.

What is measured depends on what is given: features alone are enough for the effective size, the
spectrum, the distortion of norms, the coverage of several models and the discrepancy; labels add
the class imbalance, the alignment and the generalisation bound; probabilities add the
approximation ratio; labels and probabilities of the whole pool add the agreement.

Cost: about four passes over the pool per model for p = 2, and 40 more for another p.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelwise.arrays import to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.linear.leverage import read_features
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.selection.result import Selection
from labelwise.theory.dynamics import check_kernel
from labelwise.theory.findings import (
    Case,
    Finding,
    measure_batches,
    measure_classes,
    measure_discrepancies,
    measure_gradients,
    measure_kernels,
    measure_one_model,
    measure_shared,
    measure_size,
)
from labelwise.theory.imbalance import check_classes, class_counts
from labelwise.theory.pool import as_pool, count_models


@dataclass(frozen=True)
class Explanation:
    """All diagnostics of a selection, in the order in which they are best read."""

    picks: int
    items: int
    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> dict[str, Any]:
        """The values of the finding with that name."""
        for finding in self.findings:
            if finding.name == name:
                return finding.values
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON; infinite and undefined numbers become None."""
        findings = [
            {
                "name": finding.name,
                "values": {name: _plain(value) for name, value in finding.values.items()},
                "formula": finding.formula,
                "reading": finding.reading,
            }
            for finding in self.findings
        ]
        return {"picks": self.picks, "items": self.items, "findings": findings}


def explain(
    picks: Selection,
    features: Any,
    *,
    probabilities: Any = None,
    labels: Any = None,
    labelled: Rows | None = None,
    kernel: Any = None,
    classes: int | None = None,
    p: float = 2.0,
    bias: bool = False,
    rtol: float | None = None,
    seed: int = 0,
) -> Explanation:
    """Measure everything that can be said about a selection.

    Args:
        picks: what `labelwise.select` returned.
        features: ``(n, d)`` of the pool it was picked from, a list of such arrays (one per model),
            or shards that hold ``features`` and, if known, ``probabilities``.
        probabilities: ``(n, K)`` of the first model, where features are arrays.
        labels: the picks' classes ``(b,)`` in their order, or those of the whole pool ``(n,)``.
        labelled: rows of the items that were labelled before (``features``, and if known
            ``probabilities`` and ``labels``).
        kernel: ``(b, b)`` tangent kernel of the picks, or ``(m + b, m + b)`` of the labelled items
            and the picks; the kernel of the last layer, ``h . h' + 1``, if None.
        classes: how many there are; by default what the probabilities or the labels say.
        p: the norm of the loss, 1 or more.
        bias: whether the linear model has a constant column.
        rtol: what counts as zero when the rank is judged, as in `labelwise.kernels`.
        seed: decides the directions and batches that are tried.

    >>> import numpy as np
    >>> import labelwise
    >>> features = np.random.default_rng(0).normal(size=(500, 4))
    >>> found = explain(labelwise.select("bss", 300, features=features), features)
    >>> [finding.name for finding in found.findings]
    ['effective size', 'spectrum', 'embedding', 'mmd']
    >>> found["spectrum"]["inside"]
    True
    """
    check_classes(classes)
    shards = as_pool(features, probabilities=probabilities)
    if labelled is not None and not len(read_features(labelled, 0)):
        labelled = None
    own, whole = _labels_of(picks, shards, labels)
    case = Case(
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
        None if kernel is None else check_kernel(kernel),
        seed,
    )
    findings = [measure_size(case)]
    for model in range(case.models):
        findings += measure_one_model(case, model)
        shards.progress("models", model + 1, case.models)
    findings += (
        measure_shared(case)
        + measure_discrepancies(case)
        + measure_classes(case)
        + measure_gradients(case)
    )
    findings += measure_kernels(case) + measure_batches(case)
    return Explanation(len(picks), len(shards), tuple(findings))


def _labels_of(picks: Selection, shards: Shards, labels: Any) -> tuple[Any, Any]:
    """The labels of the picks, and of the whole pool, each where known."""
    if labels is None:
        return None, None
    given = np.asarray(to_numpy(labels) if hasattr(labels, "shape") else labels)
    class_counts(given)  # refuses what is no list of classes
    given = given.astype(np.int64)
    ids = shards.ids
    if len(given) == len(ids):
        order = np.argsort(ids, kind="stable")
        found = order[np.minimum(np.searchsorted(ids, picks.ids, sorter=order), len(ids) - 1)]
        return given[found], given
    if len(given) == len(picks):
        return given, None
    raise BadInput(
        f"there are {len(given)} labels; give {len(ids)}, one per item of the pool, or "
        f"{len(picks)}, one per pick in the order of the picks"
    )


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
