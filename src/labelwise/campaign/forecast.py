r"""Forecast of the next batch: a power law fitted to the learning curve.

The error with :math:`x` labels is modelled as falling towards a floor:

.. math:: e(x) = e_L \left( s + (1 - s) (x / L)^{-\beta} \right),

with :math:`L` the labels of the last model, :math:`e_L` its error and :math:`s` the share of it
that no label removes. The next :math:`b` labels gain :math:`e(L) - e(L + b)`. A few noisy
measurements do not determine three unknowns, so the forecast averages over a grid of
:math:`s \in [0, 1]` and :math:`\beta \in [0.05, 2]` (even in its logarithm), weighted by
likelihood; :math:`e_L` is linear and integrated in closed form. Gain and interval are quantiles of
this mixture.

Models are evaluated on the same holdout items, so they share part of the noise. If later models
were right wherever earlier ones were, errors :math:`e_s > e_t` on :math:`m_s \le m_t` nested items
would have the covariance :math:`e_t (1 - e_s) / m_t`; independent models would have none. The grid
contains mixtures of both, also with doubled noise for models that depend on their seed. A curve is
assumed to deviate from the law by at least two per cent of the error.

The start of a curve seldom follows the law, so models with less than a quarter of the last one's
labels are left out while four others remain.

Cost: some milliseconds.

Reference: C. Cortes, L. Jackel, S. Solla, V. Vapnik, J. Denker, "Learning Curves: Asymptotic Values
and Rate of Convergence", NIPS 1993; T. Viering, M. Loog, "The Shape of Learning Curves: A Review",
IEEE TPAMI 45, 2023.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from labelwise.arrays import Floats
from labelwise.campaign.evaluation import FEWEST_EVALUATED, ModelScore, learning_curve
from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput
from labelwise.record.ledger import Ledger

FEWEST = 3  # Evaluated models needed for a forecast

_FLOOR, _RATE = (
    grid.ravel()
    for grid in np.meshgrid(np.linspace(0.0, 1.0, 31), np.geomspace(0.05, 2.0, 31), indexing="ij")
)
"""The grid of laws: the floor s and the rate beta."""

_SHARED_NOISE = (0.0, 0.5, 0.8, 0.95)  # Shares of the noise that all models share
_NOISE_FACTORS = (1.0, 2.0)  # Noise relative to that of drawing the holdout items

_UNKNOWN_NOISE = tuple(np.geomspace(0.02, 0.5, 8))
"""Standard deviations to try, as shares of the error, where no interval is known."""

_DEVIATION = 0.02  # Deviation of a curve from any law, as a share of the error
_FIRST_SHARE = 0.25  # Models with a smaller share of the last one's labels are left out
_KEPT = 4  # The last models are always used

_NODES = np.array([NormalDist().inv_cdf((place + 0.5) / 9) for place in range(9)])
_NORMAL = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Forecast:
    """The expected gain of the next labels."""

    gain: float | None  # rise of the accuracy, or fall of the mean squared error; None if unknown
    low: float | None  # the lower end of its 90 % interval, or None
    high: float | None  # the upper end, or None
    labels: int  # number of further labels
    reaches: float | None  # the score of the last model plus the gain; None if unknown
    says: str  # the forecast in words


def forecast_gain(points: Sequence[ModelScore], labels: int | None = None) -> Forecast:
    """Forecast the gain of further labels from the models evaluated so far.

    Args:
        points: the learning curve in any order; entries that are not finite are ignored.
        labels: number of further labels; the difference of the last two models if None.

    >>> labels = (20, 40, 80, 160)
    >>> curve = [ModelScore(n, 0.95 - 2 / n, 0.93 - 2 / n, 0.97 - 2 / n) for n in labels]
    >>> found = forecast_gain(curve, 160)
    >>> found.low < 2 / 160 - 2 / 320 < found.high
    True
    >>> found.says
    '160 more labels should raise the accuracy by 0.8 points (0.5 to 1.4), to 94.5 %'
    """
    if labels is not None and labels < 1:
        raise BadInput(f"labels must be 1 or more; got {labels}")
    used = sorted(point for point in points if point.labels > 0 and math.isfinite(point.value))
    metrics = {point.metric for point in used}
    if len(metrics) > 1:
        raise BadInput(f"a curve has one metric; got {', '.join(sorted(metrics))}")
    sizes = sorted({point.labels for point in used})
    step = labels or (sizes[-1] - sizes[-2] if len(sizes) > 1 else 0)
    if len(sizes) < FEWEST:
        says = (
            f"forecast available after {FEWEST} models with {FEWEST_EVALUATED} held-out labels or "
            f"more ({len(sizes)} so far)"
        )
        return Forecast(None, None, None, step, None, says)
    last, squared = sizes[-1], "mse" in metrics
    begin = min(_FIRST_SHARE * last, sizes[-_KEPT] if len(sizes) >= _KEPT else 0)
    used = [point for point in used if point.labels >= begin]
    error = np.array([p.value if squared else 1.0 - p.value for p in used])
    gain, low, high = _fit_power_laws(used, error, squared).forecast_gain(step / last)
    # From the measured value of the last model, which people see: the fitted one may be lower.
    reaches = max(used[-1].value - gain, 0.0) if squared else min(used[-1].value + gain, 1.0)
    says = _describe_gain(step, gain, low, high, reaches, squared)
    return Forecast(gain, low, high, step, reaches, says)


def forecast_batch(ledger: Ledger, settings: Settings, labels: int | None = None) -> Forecast:
    """Forecast the gain of the next batch of a campaign, or of a number of further labels.

    >>> forecast_batch(Ledger(), Settings(batch=50)).says
    'forecast available after 3 models with 30 held-out labels or more (0 so far)'
    """
    points = tuple(point for point in learning_curve(ledger) if point.metric != "prequential")
    return _forecast_gain_cached(points, labels or settings.batch)


_forecast_gain_cached = lru_cache(maxsize=16)(forecast_gain)  # requested at every label


@dataclass(frozen=True)
class _LawMixture:
    """The laws of the grid and their likelihood, for ``c`` noise models and ``g`` laws."""

    weight: Floats  # ``(c g,)``, likelihood up to a factor
    level: Floats  # ``(c g,)``, most likely error of the last model
    spread: Floats  # ``(c g,)``, its standard deviation
    shape: Floats  # ``(t, g)``, each law at the evaluated models, 1 at the last

    @classmethod
    def fit(cls, x: Floats, error: Floats, covariances: Sequence[Floats]) -> "_LawMixture":
        """Compute the likelihood of all laws.

        Args:
            x: ``(t,)``, labels as a share of the last model's.
            error: ``(t,)``.
            covariances: ``(t, t)`` each, one per noise model.
        """
        shape = _FLOOR + (1 - _FLOOR) * x[:, None] ** -_RATE
        fits, levels, spreads = [], [], []
        for covariance in covariances:
            half = np.linalg.cholesky(covariance)
            both = np.linalg.solve(half, np.column_stack([error, shape]))
            target, shapes = both[:, :1], both[:, 1:]
            information = (shapes**2).sum(axis=0)
            level = (target * shapes).sum(axis=0) / information
            misfit = ((target - level * shapes) ** 2).sum(axis=0)
            # A flat prior on the level, integrated out of the Gaussian likelihood.
            fits.append(-np.log(np.diag(half)).sum() - 0.5 * misfit - 0.5 * np.log(information))
            levels.append(level)
            spreads.append(1.0 / np.sqrt(information))
        fit = np.concatenate(fits)
        return cls(np.exp(fit - fit.max()), np.concatenate(levels), np.concatenate(spreads), shape)

    def mean_curve(self) -> Floats:
        """The mean error at the evaluated models, ``(t,)``."""
        weight = (self.weight * self.level).reshape(-1, self.shape.shape[1]).sum(axis=0)
        return np.asarray(self.shape @ weight / self.weight.sum())

    def forecast_gain(self, step: float) -> tuple[float, float, float]:
        """Median gain of ``step`` (a share) more labels, and its 90 % interval."""
        nodes = np.clip(self.level[:, None] + _NODES * self.spread[:, None], 0.0, None)
        weight = np.repeat(self.weight, len(_NODES))
        part = np.tile((1 - _FLOOR) * (1 - (1 + step) ** -_RATE), len(self.level) // len(_FLOOR))
        gains = (nodes * part[:, None]).ravel()
        low, middle, high = _weighted_quantiles(gains, weight, (0.05, 0.5, 0.95))
        return middle, low, high


def _fit_power_laws(points: Sequence[ModelScore], error: Floats, squared: bool) -> _LawMixture:
    """Fit all laws under all noise models."""
    x = np.array([point.labels / points[-1].labels for point in points])
    counts = np.array([_estimate_holdout_size(point) for point in points])
    if squared or not np.isfinite(counts).all():
        level = max(float(np.median(error)), 1e-9)
        noises = [np.diag(np.full(len(error), (share * level) ** 2)) for share in _UNKNOWN_NOISE]
        return _LawMixture.fit(x, error, noises)
    # The noise depends on the true errors; measured ones would make lucky models look precise.
    expected = np.full(len(error), float(error.mean()))
    for shared in ((0.0,), _SHARED_NOISE):
        expected = np.clip(expected, 0.5 / counts.max(), 1 - 0.5 / counts.max())
        noises = [
            larger**2 * _compute_error_covariance(expected, counts, share)
            for share in shared
            for larger in _NOISE_FACTORS
        ]
        laws = _LawMixture.fit(x, error, noises)
        expected = laws.mean_curve()
    return laws


def _estimate_holdout_size(point: ModelScore) -> float:
    """The holdout size of a model, from its Wilson interval; NaN if it has none.

    The ends of the interval are the roots q of ``(p - q)^2 = k q (1 - q)``, ``k = z^2 / m``.
    """
    if point.low is None or point.high is None:
        return math.nan
    ends = (point.low, point.high, point.value)
    low, high, p = ends if point.value >= 0.5 else tuple(1 - end for end in ends)
    k = p * p / (low * high) - 1 if low * high > 0 else math.nan
    return _NORMAL**2 / k if k > 0 else math.nan


def _compute_error_covariance(error: Floats, counts: Floats, shared: float) -> Floats:
    """The covariance of measured errors, ``(t, t)``, for a share of common noise.

    Args:
        error: ``(t,)``, the true errors.
        counts: ``(t,)``, holdout sizes; smaller holdouts are part of larger ones.
        shared: from 0 (independent errors) to 1 (the better model is right where the worse is).
    """
    together = np.minimum.outer(error, error) - np.outer(error, error)
    common = together / np.maximum.outer(counts, counts)
    own = np.diag(error * (1 - error) / counts)
    return np.asarray(shared * common + (1 - shared) * own + np.diag((_DEVIATION * error) ** 2))


def _weighted_quantiles(values: Floats, weights: Floats, shares: Sequence[float]) -> list[float]:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    places = np.searchsorted(total, np.array(shares) * total[-1])
    return [float(value) for value in values[order][np.minimum(places, len(values) - 1)]]


def _describe_gain(
    step: int, gain: float, low: float, high: float, reaches: float, squared: bool
) -> str:
    more = f"{step:,} more labels" if step != 1 else "1 more label"
    if squared:
        between = f"{gain:.3g} ({low:.3g} to {high:.3g})"
        return f"{more} should lower the mean squared error by {between}, to {reaches:.3g}"
    between = f"{100 * gain:.1f} points ({100 * low:.1f} to {100 * high:.1f})"
    return f"{more} should raise the accuracy by {between}, to {100 * reaches:.1f} %"
