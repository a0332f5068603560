r"""MaxHerding: cover the pool with items that resemble many others.

With :math:`m_j` the similarity of target :math:`j` to the most similar labelled or picked item, the
next pick is

.. math:: \arg\max_c \; \frac1T \sum_j \max(0, k(c, j) - m_j) .

The similarity :math:`k` is the cosine of centered features, negative ones being 0 (the default,
made for embeddings), a Gaussian :math:`\exp(-|x - y|^2 / \sigma^2)` (for standardised tables), or 1
up to a distance and 0 beyond (ProbCover). Targets are all candidates of a pool of moderate size
(``n n d`` up to 5e10: 11,000 items of 384 features); of a larger pool 3,000, or ten per pick,
chosen by a hash of their ids. Deterministic; needs neither labels nor a model; the first picks of a
batch are the batch of a smaller budget with as many targets.

Cost: one product of candidates and targets, ``n T d`` (`kernels.distance.coverage`).

Reference: W. Bae, J. Noh, D. Sutherland, "Generalized Coverage for More Robust Low-Budget Active
Learning", ECCV 2024; O. Yehuda, A. Dekel, G. Hacohen, D. Weinshall, "Active Learning Through a
Covering Lens", NeurIPS 2022.
"""

from labelwise.kernels.distance.coverage import (
    cover_greedily,
    estimate_coverage_cost,
    explain_coverage,
)
from labelwise.kernels.distance.similarity import check_kernel, fit_kernel
from labelwise.pool.blocks import Shards
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, PassStrategy, read_reference


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
) -> Choice:
    """Pick items that cover the candidates.

    Options:
        kernel: "cosine", "gaussian" or "tophat".
        sigma: width of the Gaussian; None for the median distance between items.
        radius: up to which items resemble each other; needed for "tophat".
        power: of the cosine; above 1, items resemble only closer ones. "auto" raises it as labels
            come, so that labelled items cover a typical item by half.
    """
    width = radius if kernel == "tophat" else sigma
    similarity = fit_kernel(shards, labelled, kernel, width, power)
    return cover_greedily(shards, labelled, budget, similarity)


STRATEGY = PassStrategy(
    name="max_herding",
    needs=("features",),
    choose=choose_batch,
    good_for="the first labels: items that represent many others; needs no model",
    reference=read_reference(__doc__),
    cost=estimate_coverage_cost,
    check=check_kernel,
    explain=explain_coverage,
)
