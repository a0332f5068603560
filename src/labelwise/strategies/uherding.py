r"""UHerding: cover the items that the model is unsure about.

With :math:`m_j` the similarity of target :math:`j` to the most similar labelled or picked item, the
next pick is

.. math:: \arg\max_c \; \frac1T \sum_j u_j \max(0, k(c, j) - m_j) , \qquad
    u_j = 1 - (p_{j(1)} - p_{j(2)}) ,

with the two highest class probabilities :math:`\operatorname{softmax}(z_j / T)`. Similarities and
targets are those of `max_herding`, which this is while there are only features. The temperature
:math:`T \ge 1` keeps the weights even while the model knows little: rounds fit it to predictions of
labelled items by models that were not trained on them.

Cost: one product of candidates and targets, ``n T d`` (`kernels.distance.coverage`).

Reference: W. Bae, D. Sutherland, G. Oliveira, "Uncertainty Herding: One Active Learning Method for
All Label Budgets", ICLR 2025.
"""

from functools import partial
from typing import Any

import numpy as np

from labelwise.arrays import Floats, float64, to_numpy
from labelwise.kernels.calibration import calibrate_temperature, softmax
from labelwise.kernels.checks import check_positive
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
) -> Choice:
    """Pick items that cover the candidates, uncertain ones first.

    Options:
        kernel: "cosine", "gaussian" or "tophat".
        sigma: width of the Gaussian; None for the median distance between items.
        radius: up to which items resemble each other; needed for "tophat".
        power: of the cosine; above 1, items resemble only closer ones. "auto" raises it as labels
            come, so that labelled items cover a typical item by half.
        temperature: that logits are divided by; rounds fit it.
    """
    width = radius if kernel == "tophat" else sigma
    similarity = fit_kernel(shards, labelled, kernel, width, power)
    weigh = partial(measure_uncertainty, temperature=temperature)
    choice = cover_greedily(shards, labelled, budget, similarity, weigh)
    return choice._replace(info={**choice.info, "temperature": temperature})


def measure_uncertainty(rows: Rows, temperature: float) -> Floats:
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
    return np.asarray(1 - (highest[:, 1] - highest[:, 0]))


def check_job(job: Job) -> None:
    """Reject options out of range."""
    check_kernel(job)
    check_positive("temperature", job.options["temperature"])


def adapt_temperature(history: History) -> dict[str, Any]:
    """The temperature of logits out of fold, else of the holdout; high without enough labels."""
    if not history.trained or "temperature" in history.options:
        return {}
    for evaluate in (history.evaluate_out_of_fold, history.evaluate_holdout):
        found = evaluate()
        if found is None:
            continue
        logits, targets = found
        if len(targets) >= LABELS_PER_CLASS * logits.shape[1]:
            fitted = calibrate_temperature(logits, targets)
            return {"temperature": min(max(fitted, 1.0), UNKNOWING)}
    return {"temperature": UNKNOWING}


STRATEGY = PassStrategy(
    name="uherding",
    needs=("features", "logits"),
    or_needs=(("features", "probabilities"), ("features",)),
    choose=choose_batch,
    good_for="any number of labels: represents the items that the model is unsure about",
    reference=read_reference(__doc__),
    cost=estimate_coverage_cost,
    check=check_job,
    adapt=adapt_temperature,
    explain=explain_coverage,
)
