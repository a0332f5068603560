r"""UHerding: cover the items that the model is unsure about.

With :math:`m_j` the similarity of target :math:`j` to the most similar labelled or picked item, the
next pick is

.. math:: \arg\max_c \; \frac1T \sum_j u_j \max(0, k(c, j) - m_j) , \qquad
    u_j = 1 - (p_{j(1)} - p_{j(2)}) ,

with the two highest class probabilities :math:`\operatorname{softmax}(z_j / T)`. Similarities and
targets are those of `max_herding`, which this is while there are only features. The temperature
:math:`T \ge 1` keeps the weights even while the model knows little: rounds fit it to predictions of
labelled items by models that were not trained on them.

Rounds also set the number of labels :math:`c_k` of every class. Weights are then multiplied by
:math:`\sum_k p_{jk} \sqrt{(\bar c + 1) / (c_k + 1)}`, so that rare classes get their labels; with
equal numbers this changes nothing.

Cost: one product of candidates and targets, ``n T d`` (`kernels.distance.coverage`).

Reference: W. Bae, D. Sutherland, G. Oliveira, "Uncertainty Herding: One Active Learning Method for
All Label Budgets", ICLR 2025.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from labelwise.arrays import Floats, Ids, float64, to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.calibration import calibrate_temperature, softmax
from labelwise.kernels.checks import check_positive, is_number
from labelwise.kernels.distance.coverage import (
    cover_greedily,
    estimate_coverage_cost,
    explain_coverage,
)
from labelwise.kernels.distance.similarity import check_kernel, fit_kernel
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, History, Job, PassStrategy, read_reference

UNKNOWING = 20.0
"""Temperature of a model that has seen fewer than `LABELS_PER_CLASS` labels a class."""
LABELS_PER_CLASS = 2


def choose_batch(
    shards: Shards,
    labelled: Rows | None,
    budget: int,
    seed: int,
    *,
    kernel: str = "cosine",
    sigma: float | None = None,
    radius: float | None = None,
    power: float | str = 1.0,
    temperature: float = 1.0,
    label_counts: Sequence[int] | None = None,
) -> Choice:
    """Pick items that cover the candidates, uncertain ones first.

    Options:
        kernel: "cosine", "gaussian" or "tophat".
        sigma: width of the Gaussian; None for the median distance between items.
        radius: up to which items resemble each other; needed for "tophat".
        power: of the cosine; above 1, items resemble only closer ones. "auto" raises it as labels
            come, so that labelled items cover a typical item by half.
        temperature: that logits are divided by; rounds fit it.
        label_counts: labels of each class so far, by column of the logits; rounds count them. Items
            of classes with few labels weigh more. None for equal weights.
    """
    width = radius if kernel == "tophat" else sigma
    similarity = fit_kernel(shards, labelled, kernel, width, power)
    weigh = partial(measure_uncertainty, temperature=temperature, label_counts=label_counts)
    choice = cover_greedily(shards, labelled, budget, similarity, weigh)
    return choice._replace(info={**choice.info, "temperature": temperature})


def measure_uncertainty(
    rows: Rows, temperature: float, label_counts: Sequence[int] | None = None
) -> Floats:
    """One minus the margin of the two highest probabilities, ``(n,)``; 1 without predictions."""
    if "logits" in rows:
        logits = to_numpy(float64(rows["logits"]))
    elif "probabilities" in rows:
        with np.errstate(divide="ignore"):
            logits = np.log(np.maximum(to_numpy(float64(rows["probabilities"])), 0))
    else:
        return np.ones(len(rows["features"]))
    if logits.shape[1] < 2:
        return np.ones(len(logits))
    highest = np.sort(softmax(logits, temperature), axis=1)[:, -2:]
    uncertainty = np.asarray(1 - (highest[:, 1] - highest[:, 0]))
    if label_counts is None:
        return uncertainty
    return uncertainty * measure_class_need(softmax(logits), label_counts)


def measure_class_need(probabilities: Floats, label_counts: Sequence[int]) -> Floats:
    """How few labels the classes of items have, ``(n,)``: 1 if all classes have as many.

    >>> chances = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> measure_class_need(chances, [29, 9]).round(3).tolist()
    [0.816, 1.414]
    """
    counts = np.asarray(label_counts, dtype=np.float64) + 1
    if len(counts) != probabilities.shape[1]:
        raise BadInput(
            f"label_counts has {len(counts)} numbers, and the predictions have "
            f"{probabilities.shape[1]} classes; give one number per class"
        )
    return np.asarray(probabilities @ np.sqrt(counts.mean() / counts))


def check_uherding_job(job: Job) -> None:
    """Reject options out of range."""
    check_kernel(job)
    check_positive("temperature", job.options["temperature"])
    counts = job.options["label_counts"]
    if counts is not None and not all(is_number(count) and count >= 0 for count in counts):
        raise BadInput(f"label_counts must be numbers of labels, 0 or more; got {counts}")


def adapt_uherding(history: History) -> dict[str, Any]:
    """Temperature and numbers of labels, from predictions out of fold, else of the holdout.

    The temperature is high without enough labels. The holdout does not tell the numbers of labels.
    """
    if not history.trained:
        return {}
    adapted: dict[str, Any] = {"temperature": UNKNOWING}
    found = history.evaluate_out_of_fold()
    if found is not None:
        logits, targets = found
        adapted["label_counts"] = np.bincount(targets, minlength=logits.shape[1]).tolist()
    if "temperature" not in history.options:
        held_out = found if _has_enough_labels(found) else history.evaluate_holdout()
        if held_out is not None and _has_enough_labels(held_out):
            adapted["temperature"] = min(max(calibrate_temperature(*held_out), 1.0), UNKNOWING)
    return {name: value for name, value in adapted.items() if name not in history.options}


def _has_enough_labels(held_out: tuple[Floats, Ids] | None) -> bool:
    """Whether there are logits ``(m, K)`` of enough items to fit a temperature."""
    return held_out is not None and len(held_out[1]) >= LABELS_PER_CLASS * held_out[0].shape[1]


STRATEGY = PassStrategy(
    name="uherding",
    needs=("features", "logits"),
    or_needs=(("features", "probabilities"), ("features",)),
    choose=choose_batch,
    good_for="any number of labels: represents the items that the model is unsure about",
    reference=read_reference(__doc__),
    cost=estimate_coverage_cost,
    check=check_uherding_job,
    adapt=adapt_uherding,
    explain=explain_coverage,
)
