r"""Randomized BSS: rows drawn so that the weighted Gram matrix stays between two barriers.

The rows are whitened first, :math:`\frac1n \sum_i v_i v_i^\top = I` in :math:`d` (the rank)
dimensions. From :math:`B = 0`, :math:`u = -l = 2d/\gamma`, every round draws a row from

.. math::
    D(i) = \frac{v_i^\top E v_i}{n \Phi} , \quad
    E = (uI - B)^{-1} + (B - lI)^{-1} , \quad \Phi = \operatorname{tr} E ,

adds :math:`s\, v v^\top` with :math:`s = \gamma / v^\top E v` to :math:`B`, and raises the barriers
by :math:`\gamma / (\Phi (1 - \gamma))` and :math:`\gamma / (\Phi (1 + \gamma))`. Then
:math:`l I \prec B \prec u I` always, and :math:`B` grows by :math:`(\gamma / \Phi) I` on average.
Divided by a normalizer, the scales :math:`s` are weights that preserve every quadratic form of the
features: weighted least squares on ``O(d / epsilon)`` draws is as good as on the whole pool up to
a relative error :math:`\epsilon`.

*Draws.* `Candidates` draws rows in proportion to :math:`|v_i|^2`, which does not change, so one
pass over the pool suffices for a whole run. A candidate is accepted with probability
:math:`v^\top E v / (a |v|^2)`, :math:`a \ge \lambda_{\max}(E)`. Accepted rows follow the law
above for any such bound; since the barriers keep :math:`E` close to a multiple of the identity,
two or three candidates are enough. `Barriers` holds :math:`B` as an eigendecomposition
:math:`Q \Lambda Q^\top`, recomputed every ``m`` rounds, plus the draws since then, so that
:math:`\operatorname{tr} E` and :math:`v^\top E v` come from :math:`m \times m` factors.

Cost: two passes for whitening, one for leverage, ``O(n d^2)``; then ``O(d m^2 + d^2)`` a round, and
``O(d^3)`` every ``m`` rounds with ``m`` about ``8 d^(1/3)``. Memory ``O(n + d^2)``.

References: X. Chen, E. Price, "Active Regression via Linear-Sample Sparsification", COLT 2019.
Y. T. Lee, H. Sun, "Constructing Linear-Sized Spectral Sparsification in Almost-Linear Time",
FOCS 2015.
"""

import warnings
from dataclasses import dataclass, field
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg.lapack import dpotrf, dtrtri

from labelwise.arrays import (
    Array,
    Floats,
    Ids,
    bring,
    comparable,
    float64,
    is_array,
    largest,
    like,
    namespace,
    row_noise,
    to_numpy,
    waiting_times,
)
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.files import JsonObject
from labelwise.kernels.linear.leverage import RowReader, compute_block_leverage, whiten
from labelwise.kernels.placement import find_placement
from labelwise.pool.blocks import ArrayOrShards, Shards, as_shards
from labelwise.pool.rows import read_features
from labelwise.threads import run_in_threads, split_range

WIDEST = 0.1165  # The largest gamma at which the theory's spectrum stays within [3/4, 5/4]
ROUNDS_PER_PICK = 20
"""Maximum rounds per pick of the budget; missing items are then filled up by leverage."""

FETCHED = 128  # Average number of candidates fetched at a time; fewer from a tiny pool
CHUNK = 1 << 16  # Items whose clocks are computed at a time, so that they stay in cache
SUMMED = 4096  # Rows that are transferred at a time to sum their outer products
TRIED = 4  # Candidates that are evaluated at a time
_ARRIVAL, _VERDICT = 0, 1

_PACE = 0.78  # measured ratio of the rounds of a full run to its normalizer


@dataclass(frozen=True)
class BssDraws:
    """Result of a run of randomized BSS."""

    ids: Ids  # ``(b,)``, distinct items in the order of their first draw
    weights: Floats  # ``(b,)``, number of pool items that each represents; the sum is about ``n``
    counts: Ids  # ``(b,)``, number of draws of each (0 for an item filled up)
    info: JsonObject  # diagnostics, see `randomized_bss`


def randomized_bss(
    V: ArrayOrShards,
    *,
    gamma: float | None = None,
    budget: int | None = None,
    distribution: ArrayLike | None = None,
    seed: int,
) -> tuple[Ids, Floats, JsonObject]:
    r"""Draw rows by randomized BSS.

    Exactly one of ``gamma`` and ``budget`` is given. With ``gamma`` the run ends when the
    barriers are :math:`8 d / \gamma` apart, as in the theory, and weights are divided by its
    normalizer :math:`2d(1-\gamma^2)/\gamma^2`. With ``budget`` it ends when that many distinct
    rows have been drawn, and weights are divided by :math:`\sum \gamma / \Phi` of its rounds.

    Args:
        V: ``(n, d)`` features (whitened here), or shards with ``features``.
        gamma: in (0, 1); `theory_gamma` gives that of an error ``epsilon``.
        budget: number of distinct rows, from the rank of ``V`` to ``n``.
        distribution: ``(n,)``, probabilities of the rows of an array ``V``; uniform if None.
            Otherwise :math:`\sum_i w_i x_i x_i^\top \approx n \sum_i D_i x_i x_i^\top`.
        seed: determines the draws, together with the items' ids.

    Returns:
        ids ``(b,)``, all different, in the order of their first draw;
        weights ``(b,)`` on the sum scale: the number of rows that each represents, so that
        :math:`\sum_i w_i x_i x_i^\top \approx X^\top X` and the weights sum to about ``n``;
        info: ``barriers`` (two lists, ``u`` and ``l``, before every round and at the end),
        ``betas`` and ``potentials`` (one per round), ``gamma``, ``rounds``, ``rank``,
        ``normaliser``, ``spectrum`` (eigenvalues of the weighted Gram matrix of whitened rows,
        smallest first; the pool's own are all 1) with ``spectrum_min``, ``spectrum_max`` and the
        ``spectrum_bounds`` that the barriers guarantee, ``condition`` (a bound on the largest
        ``beta_j K_j``), ``counts``, and ``filled`` (rows added without a draw; the spectrum
        includes them with weight 1).

    Example:
        >>> import numpy as np
        >>> V = np.random.default_rng(0).normal(size=(1000, 3))
        >>> ids, weights, info = randomized_bss(V, budget=200, seed=0)
        >>> len(ids), bool(0.75 < info["spectrum_min"] <= info["spectrum_max"] < 1.25)
        (200, True)
    """
    masses = None
    if distribution is not None:
        if not is_array(V):
            raise BadInput("distribution is one number per row of an array V; got shards")
        masses = scale_distribution(distribution, len(V))
        # Rows scaled by sqrt(n D) have plain sums that are those under D.
        V = np.asarray(to_numpy(V), dtype=np.float64) * np.sqrt(masses)[:, None]
    shards = as_shards(V, "V")
    if (gamma is None) == (budget is None):
        raise BadInput(f"give either gamma or budget; got gamma={gamma} and budget={budget}")
    whole = isinstance(budget, Integral) and not isinstance(budget, bool)
    if budget is not None and not (whole and 0 < budget <= len(shards)):
        raise BadInput(f"budget must be a whole number from 1 to {len(shards)}; got {budget!r}")
    transform = whiten(shards, read_features).transform
    if budget is None:
        assert gamma is not None
        draws = draw_bss_by_theory(shards, read_features, transform, gamma=gamma, seed=seed)
    else:
        warn_few_bss_labels(transform.shape[1], budget, len(shards))
        draws = draw_bss_by_budget(shards, read_features, transform, budget=budget, seed=seed)
    weights = draws.weights if masses is None else draws.weights * masses[draws.ids]
    return draws.ids, weights, {**draws.info, "counts": draws.counts.tolist()}


def scale_distribution(distribution: ArrayLike, n: int) -> Floats:
    """Probabilities ``(n,)`` of the rows of an array, scaled to mean 1."""
    masses = np.asarray(to_numpy(distribution), dtype=np.float64)
    if masses.shape != (n,):
        raise BadInput(f"distribution must be one number per row; got shape {masses.shape}")
    if not (np.isfinite(masses) & (masses >= 0)).all() or not masses.any():
        raise BadInput("distribution must be finite and not negative, with a positive number")
    return np.asarray(masses / masses.mean())


def theory_gamma(epsilon: float) -> float:
    """The gamma for a relative error of ``epsilon``, which is in (0, 1]."""
    if not (isinstance(epsilon, Real) and 0 < epsilon <= 1):
        raise BadInput(f"epsilon must be above 0 and at most 1; got {epsilon!r}")
    return float(min(np.sqrt(epsilon) / 3, WIDEST))


def warn_few_bss_labels(rank: int, budget: int, n: int) -> bool:
    """Warn of fewer than three labels per direction, unless they are the whole pool."""
    few = rank <= budget < min(3 * rank, n)
    if few:
        warnings.warn(
            f"budget is {budget} for {rank} directions, fewer than 3 labels for each; ask for "
            f"{min(3 * rank, n)} or more",
            LabelwiseWarning,
            stacklevel=3,
        )
    return few


def budget_gamma(rank: int, budget: int) -> float:
    """The gamma at which a run ends after about ``budget`` rounds."""
    return float(np.sqrt(2 * rank / (budget / _PACE + 2 * rank)))


def draw_bss_by_theory(
    shards: Shards,
    read: RowReader,
    transform: Floats,
    *,
    gamma: float,
    most: int | None = None,
    seed: int,
) -> BssDraws:
    """Run until the theory's guarantee holds; more than ``most`` rows are an error."""
    if not (isinstance(gamma, Real) and 0 < gamma < 1):
        raise BadInput(f"gamma must be between 0 and 1, without them; got {gamma!r}")
    rank = check_whitened_rank(transform)
    candidates = Candidates(shards, read, transform, seed)
    middle = 2 * rank * (1 - gamma**2) / gamma**2
    record = BssRun(Barriers(rank, gamma, find_placement(shards)))
    while np.subtract(*record.barriers.raised()) < 8 * rank / gamma:
        record.draw_row(candidates)
        if most is not None and len(record.scales) > most:
            raise BadInput(
                _explain_small_bss_budget(candidates.leverage, rank, _PACE * middle, gamma, most)
            )
        shards.progress("draws", record.rounds, max(record.rounds, round(_PACE * middle)))
    return record.to_draws(len(shards), middle)


def draw_bss_by_budget(
    shards: Shards, read: RowReader, transform: Floats, *, budget: int, seed: int
) -> BssDraws:
    """Run until ``budget`` distinct rows are drawn; a budget of all rows takes each once."""
    n, rank = len(shards), transform.shape[1]
    if budget == n:
        return _draw_whole_pool(shards.ids, rank)
    if budget < check_whitened_rank(transform):
        raise BadInput(
            f"budget is {budget} but the rows have rank {rank}; ask for at least {rank} or "
            "give fewer columns"
        )
    candidates = Candidates(shards, read, transform, seed)
    gamma = budget_gamma(rank, budget)
    record = BssRun(Barriers(rank, gamma, find_placement(shards)))
    reachable = min(budget, int(np.count_nonzero(candidates.leverage)))
    while len(record.scales) < reachable and record.rounds < ROUNDS_PER_PICK * budget:
        record.draw_row(candidates)
        shards.progress("draws", len(record.scales), budget)
    draws = record.to_draws(n, record.expected_growth())
    if len(draws.ids) == budget:
        return draws
    return _fill_up_by_leverage(draws, record.barriers.matrix(), candidates, shards.ids, budget)


def check_whitened_rank(transform: Floats) -> int:
    """The number of whitened directions, which must not be 0."""
    rank = int(transform.shape[1])
    if not rank:
        raise BadInput("all rows are zero, so there is no direction to keep; add a bias column")
    return rank


class Candidates:
    """An endless sequence of rows drawn independently in proportion to their leverage.

    Every item rings at the times of a Poisson process whose rate is its leverage; the items in
    the order in which they ring are the candidates. The times are a function of (seed, id), so
    the candidates depend neither on the order nor on the split of the rows.

    Attributes:
        leverage: ``(n,)``, in the order of ``shards.ids``; sums to ``r``.
    """

    def __init__(self, shards: Shards, read: RowReader, transform: Floats, seed: int) -> None:
        """Measure the leverage of every row; ``transform`` ``(d, r)`` whitens them."""
        self._shards, self._read, self._seed = shards, read, seed
        self._transform = transform
        self.leverage: Floats = np.concatenate(
            shards.map(
                compute_block_leverage, read, transform, True
            )  # float64: independent of the split into blocks
        )
        self._ids = shards.ids
        self._times = self._start_candidate_clocks()
        self._turn, self._end = 1, 0.0
        self._queue = self._fetch_candidates()

    def _start_candidate_clocks(self) -> Floats:
        """Time of every item's first ring, ``(n,)``; infinite without leverage."""
        times = np.empty(len(self._ids))

        def start_clocks(part: slice) -> None:
            ids, rates = self._ids[part], self.leverage[part]
            times[part] = waiting_times(self._seed, (_ARRIVAL, 0), rates, ids)

        run_in_threads(start_clocks, split_range(len(times), CHUNK))
        return times

    def _fetch_candidates(self) -> tuple[Ids, Floats, Floats]:
        """The next candidates: ids, noise for their acceptance, whitened rows ``(m, r)``."""
        self._end += min(FETCHED, 4 * len(self._ids)) / self._transform.shape[1]
        times, ids, noise = [], [], []
        while len(due := np.flatnonzero(self._times < self._end)):
            times.append(self._times[due])
            ids.append(self._ids[due])
            noise.append(row_noise(self._seed, self._ids[due], _VERDICT, self._turn))
            # The clocks of these items advance to their next ring.
            clock = (_ARRIVAL, self._turn)
            self._times[due] += waiting_times(self._seed, clock, self.leverage[due], ids[-1])
            self._turn += 1
        if not times:
            return self._fetch_candidates()
        order = np.lexsort((np.concatenate(ids), np.concatenate(times)))
        ordered = np.concatenate(ids)[order]
        return ordered, np.concatenate(noise)[order], self._whiten_rows(ordered)

    def _whiten_rows(self, ids: Ids) -> Floats:
        """``v_i``, with mean outer product ``I`` over the pool, ``(m, r)``."""
        different, back = np.unique(ids, return_inverse=True)
        rows = float64(self._read(self._shards.rows(different)))
        whitened = to_numpy(rows @ like(self._transform, rows)) * np.sqrt(len(self._ids))
        return np.asarray(whitened[back])

    def gram(self, ids: Ids) -> Floats:
        """The mean over the pool of ``v v^T`` for the given items alone, ``(r, r)``."""
        rank = self._transform.shape[1]
        total = np.zeros((rank, rank))
        for first in range(0, len(ids), SUMMED):
            rows = self._whiten_rows(ids[first : first + SUMMED])
            total += rows.T @ rows
        return np.asarray(total / len(self._ids))

    def draw(self, barriers: "Barriers") -> tuple[int, Floats, float]:
        """One row from the law of this round: its id, ``v`` and ``v^T E v``."""
        while True:
            ids, noise, rows = self._queue
            if not len(ids):
                self._queue = self._fetch_candidates()
                continue
            values, bounds = barriers.forms(rows[:TRIED])
            accepted = np.flatnonzero(noise[:TRIED] * bounds < values)
            # Candidates after the accepted one were not judged and stay in the queue.
            used = int(accepted[0]) + 1 if len(accepted) else len(values)
            self._queue = ids[used:], noise[used:], rows[used:]
            if len(accepted):
                return int(ids[used - 1]), rows[used - 1], float(values[used - 1])


class Barriers:
    """The matrix ``B`` between its barriers.

    Attributes:
        potential: ``tr E``.
    """

    def __init__(self, dimension: int, gamma: float, placement: Array | None = None) -> None:
        """Start from ``B = 0``, decomposed on the device of ``placement`` (the host if None)."""
        self.gamma = gamma
        self._placement = np.empty(0) if placement is None else placement
        self.upper = 2 * dimension / gamma
        self.lower = -self.upper
        self._capacity = max(2, round(8 * dimension ** (1 / 3)))
        self._decompose_barrier_matrix(np.zeros((dimension, dimension)))

    def _decompose_barrier_matrix(self, matrix: Floats) -> None:
        """Decompose ``B`` and start a new list of draws."""
        self._known = matrix
        here = bring(matrix, self._placement)
        self._values, self._vectors = map(to_numpy, namespace(here).linalg.eigh(here))
        self._draws = np.empty((self._capacity, len(matrix)))
        self._rotated = np.empty((self._capacity, len(matrix)))
        self._count = 0
        self._margin = (self._values[0] - self.lower) / 2
        self._update_barrier_factors()

    def matrix(self) -> Floats:
        """``B``, ``(r, r)``."""
        draws = self._draws[: self._count]
        return np.asarray(self._known + draws.T @ draws)

    def _update_barrier_factors(self) -> None:
        r"""Update ``E``: in the eigenbasis, a diagonal and two thin factors.

        With :math:`W` the draws since the last decomposition, :math:`D = (u - \Lambda)^{-1}` and
        :math:`R R^\top = I - W^\top D W`, Woodbury's identity gives
        :math:`(uI - B)^{-1} = D + P^\top P`, :math:`P = R^{-1} W^\top D`;
        the lower barrier likewise.
        """
        rotated = self._rotated[: self._count]
        above, below = 1 / (self.upper - self._values), 1 / (self._values - self.lower)
        self._diagonal = above + below
        self._above, self._below = ThinFactor(rotated, above, -1.0), ThinFactor(rotated, below, 1.0)
        traces = np.trace(self._above.gram) - np.trace(self._below.gram)
        self.potential = float(self._diagonal.sum() + traces)
        self._bound = self._bound_eigenvalues(float(above[-1]))

    def _bound_eigenvalues(self, above: float) -> float:
        """Upper bound on the largest eigenvalue of ``E``, which is at an extreme one of ``B``.

        ``B`` only grows, so its old smallest eigenvalue bounds the new one.
        """
        fourth = np.linalg.norm(self._above.gram @ self._above.gram)  # (trace of the 4th power)^1/2
        high, low = 1 / (above + float(np.sqrt(fourth))), float(self._values[0] - self.lower)
        width = self.upper - self.lower
        return max(width / (low * (width - low)), width / (high * (width - high)))

    def forms(self, rows: Floats) -> tuple[Floats, Floats]:
        """``v^T E v`` for every row of ``(m, r)``, and the bound ``a |v|^2`` on it."""
        rotated = rows @ self._vectors
        squares = rotated**2
        values = squares @ self._diagonal + self._above.forms(rotated) - self._below.forms(rotated)
        return values, self._bound * squares.sum(axis=1)

    def raised(self) -> tuple[float, float]:
        """The upper and the lower barrier after this round."""
        step = self.gamma / self.potential
        return self.upper + step / (1 - self.gamma), self.lower + step / (1 + self.gamma)

    def add(self, row: Floats, scale: float) -> None:
        """Add ``scale v v^T`` to ``B`` and raise the barriers."""
        self.upper, self.lower = self.raised()
        draw = np.sqrt(scale) * row
        self._draws[self._count] = draw
        self._rotated[self._count] = draw @ self._vectors
        self._count += 1
        # The factors need the lower barrier below the old eigenvalues: decompose in time.
        if self._count == self._capacity or self._values[0] - self.lower < self._margin:
            self._decompose_barrier_matrix(self.matrix())
        else:
            self._update_barrier_factors()


class ThinFactor:
    """``P = R^-1 W^T D`` with ``R R^T = I + sign W^T D W``, in factors.

    Attributes:
        gram: ``P P^T``, ``(m, m)``.
    """

    def __init__(self, rotated: Floats, diagonal: Floats, sign: float) -> None:
        """Factor ``rotated``, which is ``W^T``, ``(m, r)``."""
        self._scaled = rotated * diagonal
        inner = np.eye(len(rotated)) + sign * (self._scaled @ rotated.T)
        self._root = _invert_barrier_root(inner)
        self.gram: Floats = self._root @ (self._scaled @ self._scaled.T) @ self._root.T

    def forms(self, rows: Floats) -> Floats:
        """``|P z|^2`` for every row ``z``."""
        return np.asarray(((rows @ self._scaled.T @ self._root.T) ** 2).sum(axis=1))


def _invert_barrier_root(matrix: Floats) -> Floats:
    """``R^-1`` for ``R R^T`` a small matrix, three times faster than a general inverse."""
    factor, failed = dpotrf(matrix, lower=1, clean=1)
    if failed:
        raise np.linalg.LinAlgError("the barriers have been crossed")
    return np.asarray(dtrtri(factor, lower=1)[0]) if len(matrix) else np.asarray(matrix)


@dataclass
class BssRun:
    """The draws so far, by item, and the barriers before every round."""

    barriers: Barriers
    scales: dict[int, float] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    upper: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    potentials: list[float] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """Number of draws so far."""
        return len(self.potentials)

    def draw_row(self, candidates: Candidates) -> None:
        """Run one round."""
        item, row, form = candidates.draw(self.barriers)
        self.upper.append(self.barriers.upper)
        self.lower.append(self.barriers.lower)
        self.potentials.append(self.barriers.potential)
        scale = self.barriers.gamma / form
        self.scales[item] = self.scales.get(item, 0.0) + scale
        self.counts[item] = self.counts.get(item, 0) + 1
        self.barriers.add(row, scale)

    def expected_growth(self) -> float:
        """The expected growth of every eigenvalue of ``B``."""
        return float(np.sum(self.barriers.gamma / np.asarray(self.potentials)))

    def to_draws(self, n: int, normaliser: float) -> BssDraws:
        """The draws with weights ``n s / normaliser``."""
        barriers, gamma = self.barriers, self.barriers.gamma
        spectrum = np.asarray(np.linalg.eigvalsh(barriers.matrix()) / normaliser, dtype=np.float64)
        upper, lower = [*self.upper, barriers.upper], [*self.lower, barriers.lower]
        info = {
            "gamma": gamma,
            "rounds": self.rounds,
            "rank": len(spectrum),
            "normaliser": normaliser,
            "barriers": [upper, lower],
            "potentials": self.potentials,
            "betas": [gamma / (potential * normaliser) for potential in self.potentials],
            # the sup over rows of |v|^2 / v^T E v is at most (u - l) / 4
            "condition": gamma * (upper[-1] - lower[-1]) / (4 * normaliser),
            **_describe_bss_spectrum(spectrum, lower[-1] / normaliser, upper[-1] / normaliser),
            "filled": 0,
        }
        ids = np.fromiter(self.scales, dtype=np.int64)
        weights = np.fromiter(self.scales.values(), dtype=np.float64) * (n / normaliser)
        return BssDraws(ids, weights, np.fromiter(self.counts.values(), dtype=np.int64), info)


def _describe_bss_spectrum(values: Floats, lowest: float, highest: float) -> JsonObject:
    return {
        "spectrum": values.tolist(),
        "spectrum_min": float(np.min(values, initial=np.inf)),
        "spectrum_max": float(np.max(values, initial=-np.inf)),
        "spectrum_bounds": [lowest, highest],
    }


def _draw_whole_pool(ids: Ids, rank: int) -> BssDraws:
    """All rows, each with weight 1."""
    ones = np.ones(len(ids))
    info: JsonObject = {"gamma": None, "rounds": 0, "rank": rank, "normaliser": 1.0}
    info |= {"barriers": [[], []], "potentials": [], "betas": [], "condition": 0.0, "filled": 0}
    info |= _describe_bss_spectrum(np.ones(rank), 1.0, 1.0)
    return BssDraws(np.sort(ids), ones, ones.astype(np.int64), info)


def _explain_small_bss_budget(
    leverage: Floats, rank: int, rounds: float, gamma: float, most: int
) -> str:
    labels = float(np.sum(-np.expm1(rounds * np.log1p(-np.minimum(leverage / rank, 1 - 1e-12)))))
    return (
        f"the theory at gamma {gamma:.4g} asks for about {rounds:.0f} draws, {labels:.0f} "
        f"different items, but budget is {most}; raise budget or use mode='budget'"
    )


def _fill_up_by_leverage(
    draws: BssDraws, matrix: Floats, candidates: Candidates, ids: Ids, budget: int
) -> BssDraws:
    """Add the rows of highest leverage that were not drawn, with weight 1; ``matrix`` is ``B``."""
    missing = budget - len(draws.ids)
    scores = comparable(candidates.leverage)
    scores[np.isin(ids, draws.ids)] = -1.0
    added = ids[largest(scores, missing, ids)]
    warnings.warn(
        f"{draws.info['rounds']} rounds of bss drew {len(draws.ids)} different items of the "
        f"{budget} asked for; the {missing} of highest leverage among the rest were added with "
        "weight 1",
        LabelwiseWarning,
        stacklevel=2,
    )
    gram, (lowest, highest) = candidates.gram(added), draws.info["spectrum_bounds"]
    spectrum = np.linalg.eigvalsh(matrix / draws.info["normaliser"] + gram)
    highest += float(np.linalg.norm(gram, 2))  # upper bound on the growth of any eigenvalue
    return BssDraws(
        np.concatenate([draws.ids, added]),
        np.concatenate([draws.weights, np.ones(missing)]),
        np.concatenate([draws.counts, np.zeros(missing, dtype=np.int64)]),
        {**draws.info, "filled": missing, **_describe_bss_spectrum(spectrum, lowest, highest)},
    )
