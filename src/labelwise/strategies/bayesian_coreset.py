r"""Bayesian coreset (ACS-FW): few weighted items whose log-likelihood approximates the pool's.

Each item is a vector over :math:`J` posterior draws (members), its expected log-likelihood under
the mean prediction :math:`\bar p_n`,

.. math:: L_{nj} = J^{-1/2} \Big( \sum_y \bar p_n(y) \log p(y \mid x_n, \theta_j)
          + \gamma H(\bar p_n) \Big) .

Frank-Wolfe brings :math:`L_w = \sum_n w_n L_n` close to :math:`L = \sum_n L_n`: with
:math:`\sigma_n = (|L_n|^2 + 10^{-6})^{1/2}` and :math:`\sigma = \sum_n \sigma_n`, it steps to the
item :math:`f` with the highest :math:`\langle L - L_w, L_n \rangle / \sigma_n`, as far towards
:math:`(\sigma / \sigma_f) L_f` as brings it closest to :math:`L`, until ``b`` different items were
stepped on. The weight :math:`w_n` is the number of pool items that a pick represents.

If nothing is left to approximate, or after more than ``2 b + 100`` steps on picked items, steps go
to the best of the items not picked yet, even with weight 0, with a warning.

Cost: one pass to compute the vectors, ``O(n J K)``, kept as ``n x J`` float64; then one product
with them per step, ``O(n J)``.

Reference: R. Pinsler, J. Gordon, E. Nalisnick, J. M. Hernández-Lobato, "Bayesian Batch Active
Learning as Sparse Subset Approximation", NeurIPS 2019.
"""

import math
import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array, Floats, Ids, comparable, largest, like, namespace, to_numpy
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.kernels.checks import is_number
from labelwise.kernels.float64_blocks import iterate_float64_chunks
from labelwise.kernels.information.uncertainty import entropy
from labelwise.kernels.scaling import binary_exponent
from labelwise.pool.blocks import Shard, Shards, drop_state
from labelwise.pool.rows import Rows
from labelwise.strategy import Choice, Cost, Job, PassStrategy, read_reference

KEY = "bayesian_coreset"
NEGLIGIBLE = 1e-8  # Relative residual below which nothing is left to approximate
LARGEST_WEIGHT = 1e100  # Squares of a larger entropy weight would overflow
BITS = 31  # Of each of the two integers that represent a number in a sum


def choose_coreset_batch(
    shards: Shards, labelled: Rows | None, budget: int, seed: int, *, entropy_weight: float = 0.0
) -> Choice:
    """Step until ``budget`` items are picked.

    Options:
        entropy_weight: of the mean prediction's entropy (gamma above).
    """
    # Sums of integers are the same for any split into blocks.
    grid = IntegerGrid.of(entropy_weight)
    vectors, sizes = shards.sum(_keep_likelihood_vectors, entropy_weight, grid)
    total, sigma = grid.to_floats(vectors), grid.to_floats(sizes)
    reached, picked, forced, repeats = np.zeros_like(total), CoresetPicks(), 0, 0
    while len(picked.ids) < budget:
        left = total - reached
        arrived = np.linalg.norm(left) <= NEGLIGIBLE * np.linalg.norm(total)
        force = arrived or repeats > 2 * budget + 100
        taken = np.sort(np.array(picked.ids, dtype=np.int64)) if force else None
        best = _find_best_aligned(shards, None if arrived else left, taken)
        if best in picked.vectors:
            repeats += 1
        else:
            forced += force
            picked.append(best, _compute_likelihood_vector(shards, best, entropy_weight))
            shards.progress("bayesian_coreset", len(picked.ids), budget)
        if not arrived:
            reached = picked.step(best, float(sigma), reached, left)
    shards.map(drop_state, KEY)
    return _make_coreset_choice(picked, len(shards), total - reached, total, forced, repeats)


def check_coreset_job(job: Job) -> None:
    """Reject an entropy weight out of range."""
    weight = job.options["entropy_weight"]
    if not is_number(weight) or not abs(weight) <= LARGEST_WEIGHT:
        raise BadInput(
            f"entropy_weight must be a finite number, {LARGEST_WEIGHT:g} at most; got {weight!r}"
        )


class IntegerGrid(NamedTuple):
    """Integers in place of floats: ``high`` steps, and ``low`` ones that are 2^31 times finer.

    Values are at most ``2^31`` steps, so that sums over fewer than ``2^32`` items are exact in
    int64, and the truncation is below the rounding of a sum in float64.
    """

    step: float

    @classmethod
    def of(cls, entropy_weight: float) -> "IntegerGrid":
        """The grid for the longest possible vectors: probabilities are at least 1e-12."""
        return cls(2.0 ** (binary_exponent(64.0 * (1 + abs(entropy_weight))) - BITS))

    def sum_on_grid(self, values: Array) -> NDArray[np.int64]:
        """The sum over items of ``(n, ...)`` values, high and low: ``(2, ...)``."""
        xp = namespace(values)
        high = xp.round(values / self.step)
        low = xp.round((values - high * self.step) / (self.step * 2.0**-BITS))
        both = xp.astype(xp.stack([high, low]), xp.int64)
        return np.asarray(to_numpy(xp.sum(both, axis=1)))

    def to_floats(self, whole: NDArray[np.int64]) -> Floats:
        """The sums as floats."""
        return np.asarray((whole[0] + whole[1] * 2.0**-BITS) * self.step)


class CoresetPicks:
    """The picks, their vectors and their weights."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.vectors: dict[int, Floats] = {}
        self.weights = np.empty(0)

    def append(self, item: int, vector: Floats) -> None:
        """One more pick, of weight 0."""
        self.ids.append(item)
        self.vectors[item] = vector
        self.weights = np.append(self.weights, 0.0)

    def step(self, item: int, sigma: float, reached: Floats, left: Floats) -> Floats:
        """Move weight to a pick; returns the new weighted sum of vectors."""
        vector = self.vectors[item]
        scale = sigma / math.sqrt(float(vector @ vector) + 1e-6)
        way = scale * vector - reached
        length = float(way @ way)
        share = min(max(float(way @ left) / length, 0.0), 1.0) if length > 0 else 0.0
        self.weights *= 1 - share
        self.weights[self.ids.index(item)] += share * scale
        return reached + share * way


def _compute_likelihood_vectors(members: Array, entropy_weight: float) -> Array:
    """Expected log-likelihoods, ``(n, J, K)`` to ``(n, J)`` in float64."""
    xp = namespace(members)
    parts = []
    for (chunk,) in iterate_float64_chunks(members):
        mean = xp.mean(chunk, axis=1)
        expected = xp.sum(xp.log(xp.clip(chunk, 1e-12, None)) * mean[:, None, :], axis=2)
        parts.append(expected + entropy_weight * entropy(mean)[:, None])
    return xp.concat(parts) / math.sqrt(members.shape[1])


def _keep_likelihood_vectors(
    shard: Shard, entropy_weight: float, grid: IntegerGrid
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Keep the block's vectors and their sizes; returns the sums of both on the grid."""
    vectors = _compute_likelihood_vectors(shard.rows["member_probabilities"], entropy_weight)
    xp = namespace(vectors)
    sizes = xp.sqrt(xp.sum(vectors * vectors, axis=1) + 1e-6)
    shard.state[KEY] = (vectors, np.asarray(to_numpy(sizes), dtype=np.float64))
    return grid.sum_on_grid(vectors), grid.sum_on_grid(sizes)


def _compute_likelihood_vector(shards: Shards, item: int, entropy_weight: float) -> Floats:
    rows = shards.rows(np.array([item], dtype=np.int64))
    vector = to_numpy(_compute_likelihood_vectors(rows["member_probabilities"], entropy_weight))[0]
    return np.asarray(vector, dtype=np.float64)


def _find_best_aligned(shards: Shards, left: Floats | None, taken: Ids | None) -> int:
    """The item best aligned with the residual, or the largest; not one of those taken."""
    found = [
        best for best in shards.map(_find_best_aligned_of_block, left, taken) if best is not None
    ]
    return min((-score, item) for score, item in found)[1]


def _find_best_aligned_of_block(
    shard: Shard, left: Floats | None, taken: Ids | None
) -> tuple[float, int] | None:
    vectors, scores = shard.state[KEY]
    if left is not None:
        scores = to_numpy(namespace(vectors).matmul(vectors, like(left, vectors))) / scores
    open_still = np.ones(len(scores), bool) if taken is None else ~np.isin(shard.ids, taken)
    if not open_still.any():
        return None
    ids, scores = shard.ids[open_still], comparable(scores[open_still])
    best = largest(scores, 1, ids)[0]
    return float(scores[best]), int(ids[best])


def _make_coreset_choice(
    picked: CoresetPicks, n: int, left: Floats, total: Floats, forced: int, repeats: int
) -> Choice:
    if forced:
        warnings.warn(
            f"{forced} of {len(picked.ids)} picks have little or no weight: the others represent "
            "the whole pool, ask for fewer items or give more members",
            LabelwiseWarning,
            stacklevel=3,
        )
    whole = float(np.linalg.norm(total))
    weights = (
        picked.weights if picked.weights.any() else np.full(len(picked.ids), n / len(picked.ids))
    )
    info = {
        "steps": len(picked.ids) + repeats,
        "picks_without_need": forced,
        "relative_error": float(np.linalg.norm(left)) / whole if whole else 0.0,
    }
    return Choice(np.array(picked.ids, dtype=np.int64), weights, info=info)


def estimate_coreset_cost(job: Job) -> Cost:
    """One pass; the vectors are kept."""
    members = sum(shape[0] for shape in job.shapes.get("member_probabilities", ()))
    return Cost(
        passes=(1, 1),
        columns=2 * job.budget,
        item_bytes=40.0 + 8 * members,
        state_bytes=8.0 * members,
        holds=f"a vector of {members} numbers per item, one per member",
    )


STRATEGY = PassStrategy(
    name="bayesian_coreset",
    needs=("member_probabilities",),
    weighted=True,
    choose=choose_coreset_batch,
    good_for="posterior draws; a batch that represents the whole pool, with weights",
    reference=read_reference(__doc__),
    cost=estimate_coreset_cost,
    check=check_coreset_job,
    explain="It belongs to a batch that represents the whole pool{weight}.",
)
