r"""What will the next batch bring? A power law through the learning curve.

The error with :math:`x` labels is taken to fall towards a rest that more labels do not help:

.. math:: e(x) = e_L \left( s + (1 - s) (x / L)^{-\beta} \right),

with :math:`L` the labels of the last model, :math:`e_L` its error and :math:`s` the share of it
that would remain for ever. The next :math:`b` labels then bring :math:`e(L) - e(L + b)`. Three
unknowns on a handful of noisy measurements have no one answer, so all are kept: a grid of
:math:`s \in [0, 1]` and :math:`\beta \in [0.05, 2]` (even in its logarithm), each weighed by how
well it fits; :math:`e_L` is linear and integrated in closed form. Gain and interval are quantiles
of this mixture. The interval is wide while the curve is short, and never reaches below nothing,
since a law that falls cannot.

Models are measured on the same items, so part of their noise is shared. If later models were right
wherever earlier ones were, errors :math:`e_s > e_t` measured on :math:`m_s \le m_t` items, the
first among the second, would have the covariance :math:`e_t (1 - e_s) / m_t`; if they had nothing
in common, none. The grid holds mixtures of both, also with doubled noise for models that
depend on their seed, and the scatter of the curve decides among them. No curve is expected to keep
to a law more closely than to two parts in a hundred.

The start of a curve seldom keeps to the law, so models with less than a quarter of the last one's
labels are left out while four others remain.

Cost: some milliseconds.

Reference: C. Cortes, L. Jackel, S. Solla, V. Vapnik, J. Denker, "Learning Curves: Asymptotic Values
and Rate of Convergence", NIPS 1993; T. Viering, M. Loog, "The Shape of Learning Curves: A Review",
IEEE TPAMI 45, 2023.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from labelwise.arrays import Floats
from labelwise.errors import BadInput

FEWEST = 3
"""Models that must have been measured before anything is said."""

_REST, _RATE = (
    grid.ravel()
    for grid in np.meshgrid(np.linspace(0.0, 1.0, 31), np.geomspace(0.05, 2.0, 31), indexing="ij")
)
"""The laws: the share of the error that remains for ever, and how fast the rest falls."""

_SHARED = (0.0, 0.5, 0.8, 0.95)
"""Shares of the noise that all models have in common."""

_LARGER = (1.0, 2.0)
"""How much larger the noise is than that of drawing the items alone."""

_UNKNOWN = tuple(np.geomspace(0.02, 0.5, 8))
"""Standard deviations, as shares of the error, where no interval tells them."""

_BEND = 0.02
"""How far, as a share of the error, a curve strays from any law."""

_START = 0.25
"""Models with a smaller share of the last one's labels are left out,"""
_AT_LEAST = 4
"""but for so many of the last."""

_NODES = np.array([NormalDist().inv_cdf((place + 0.5) / 9) for place in range(9)])
_NORMAL = NormalDist().inv_cdf(0.975)


class Point(NamedTuple):
    """How good a model was on the items set aside for measuring.

    Attributes:
        labels: how many labels it was trained on.
        accuracy: its accuracy, or its mean squared error if ``metric`` says so.
        low: the lower end of the 95 % interval, or None where it is not known.
        high: the upper end, or None.
        metric: ``accuracy`` or ``mse``; ``prequential`` is the accuracy on each batch before it was
            trained on, for want of items set aside.
    """

    labels: int
    accuracy: float
    low: float | None = None
    high: float | None = None
    metric: str = "accuracy"


@dataclass(frozen=True)
class Forecast:
    """What the next labels will bring.

    Attributes:
        gain: how much the accuracy rises, or the mean squared error falls; None where too little is
            known.
        low: the lower end of its 90 % interval, or None.
        high: the upper end, or None.
        labels: how many further labels that is for.
        reaches: the accuracy, or error, expected then; None where too little is known.
        says: all this in a sentence.
    """

    gain: float | None
    low: float | None
    high: float | None
    labels: int
    reaches: float | None
    says: str


def next_batch(points: Sequence[Point], labels: int | None = None) -> Forecast:
    """What the next labels will bring, from the models measured so far.

    Args:
        points: the learning curve in any order; entries that are not finite are left out.
        labels: how many more labels; as many as lay between the last two models if None.

    >>> curve = [Point(n, 1 - 0.05 - 2 / n, 0.93 - 2 / n, 0.97 - 2 / n) for n in (20, 40, 80, 160)]
    >>> found = next_batch(curve, 160)
    >>> found.low < 2 / 160 - 2 / 320 < found.high
    True
    >>> found.says
    '160 more labels should raise the accuracy by 0.8 points (0.5 to 1.4), to 94.6 %'
    """
    if labels is not None and labels < 1:
        raise BadInput(f"labels must be 1 or more; got {labels}")
    used = sorted(point for point in points if _usable(point))
    metrics = {point.metric for point in used}
    if len(metrics) > 1:
        raise BadInput(f"a curve has one metric; got {', '.join(sorted(metrics))}")
    sizes = sorted({point.labels for point in used})
    step = labels or (sizes[-1] - sizes[-2] if len(sizes) > 1 else 0)
    if len(sizes) < FEWEST:
        return _unknown(step, len(sizes))
    last, squared = sizes[-1], "mse" in metrics
    begin = min(_START * last, sizes[-_AT_LEAST] if len(sizes) >= _AT_LEAST else 0)
    used = [point for point in used if point.labels >= begin]
    error = np.array([p.accuracy if squared else 1.0 - p.accuracy for p in used])
    gain, low, high, now = _fit(used, error, squared).gain(step / last)
    reaches = now - gain if squared else 1.0 - (now - gain)
    says = _says(step, gain, low, high, reaches, squared)
    return Forecast(gain, low, high, step, reaches, says)


def curve(ledger: Any) -> list[Point]:
    """The learning curve of a campaign: one entry for each number of labels, the last model of it.

    Where no model was measured on items set aside, the accuracy on each batch before it was trained
    on stands in; picks are harder than the pool, so no advice is drawn from it.

    Args:
        ledger: anything with ``trainings``, each with ``labels`` and ``metrics``, and ``settings``.

    >>> from types import SimpleNamespace
    >>> one = SimpleNamespace(labels=50, metrics={"accuracy": 0.8, "interval": [0.7, 0.9]})
    >>> curve(SimpleNamespace(trainings=[one], settings={}))
    [Point(labels=50, accuracy=0.8, low=0.7, high=0.9, metric='accuracy')]
    """
    squared = bool(ledger.settings.get("regression", False))
    for metric in ("mse",) if squared else ("accuracy", "prequential"):
        points = {point.labels: point for point in _read(ledger.trainings, metric)}
        if points:
            return [points[labels] for labels in sorted(points)]
    return []


def forecast(ledger: Any, settings: Any) -> Forecast:
    """What the next batch of a campaign will bring.

    Args:
        ledger: anything with ``trainings``.
        settings: anything with ``batch``.

    >>> from types import SimpleNamespace
    >>> nothing = SimpleNamespace(trainings=[], settings={})
    >>> forecast(nothing, SimpleNamespace(batch=50)).says
    'no model has been measured on items set aside; a forecast needs 3'
    """
    points = [point for point in curve(ledger) if point.metric != "prequential"]
    return next_batch(points, settings.batch)


def _read(trainings: Iterable[Any], metric: str) -> Iterable[Point]:
    for training in trainings:
        value = training.metrics.get(metric)
        if not isinstance(value, int | float) or not math.isfinite(value):
            continue
        low, high = None, None
        # The record's interval is that of the accuracy; a batch's own accuracy has none.
        if metric != "prequential":
            low, high = training.metrics.get("interval") or (None, None)
        yield Point(int(training.labels), float(value), low, high, metric)


def _usable(point: Point) -> bool:
    return point.labels > 0 and math.isfinite(point.accuracy)


@dataclass(frozen=True)
class _Laws:
    """The laws of the grid with how well each fits; ``c`` ways the noise may be, ``g`` laws.

    Attributes:
        weight: ``(c g,)``, up to a factor.
        level: ``(c g,)``, the likeliest error now.
        spread: ``(c g,)``, its standard deviation.
        shape: ``(t, g)``, each law at the models measured, 1 at the last.
    """

    weight: Floats
    level: Floats
    spread: Floats
    shape: Floats

    @classmethod
    def fit(cls, x: Floats, error: Floats, covariances: Sequence[Floats]) -> "_Laws":
        """Weigh all laws.

        Args:
            x: ``(t,)``, labels as a share of the last model's.
            error: ``(t,)``.
            covariances: ``(t, t)`` each, what the noise may be like.
        """
        shape = _REST + (1 - _REST) * x[:, None] ** -_RATE
        fits, levels, spreads = [], [], []
        for covariance in covariances:
            half = np.linalg.cholesky(covariance)
            both = np.linalg.solve(half, np.column_stack([error, shape]))
            target, shapes = both[:, :1], both[:, 1:]
            information = (shapes**2).sum(axis=0)
            level = (target * shapes).sum(axis=0) / information
            misfit = ((target - level * shapes) ** 2).sum(axis=0)
            # Flat prior on the error now: what is left after integrating it out of the Gaussian.
            fits.append(-np.log(np.diag(half)).sum() - 0.5 * misfit - 0.5 * np.log(information))
            levels.append(level)
            spreads.append(1.0 / np.sqrt(information))
        fit = np.concatenate(fits)
        return cls(np.exp(fit - fit.max()), np.concatenate(levels), np.concatenate(spreads), shape)

    def curve(self) -> Floats:
        """The mean error at the models measured, ``(t,)``."""
        weight = (self.weight * self.level).reshape(-1, self.shape.shape[1]).sum(axis=0)
        return np.asarray(self.shape @ weight / self.weight.sum())

    def gain(self, step: float) -> tuple[float, float, float, float]:
        """Median gain of further labels, a share of those now; its 90 % interval; the error now."""
        nodes = np.clip(self.level[:, None] + _NODES * self.spread[:, None], 0.0, None)
        weight = np.repeat(self.weight, len(_NODES))
        part = np.tile((1 - _REST) * (1 - (1 + step) ** -_RATE), len(self.level) // len(_REST))
        gains = (nodes * part[:, None]).ravel()
        low, middle, high = _quantiles(gains, weight, (0.05, 0.5, 0.95))
        return middle, low, high, float(self.curve()[-1])


def _fit(points: Sequence[Point], error: Floats, squared: bool) -> _Laws:
    """Fit all laws under all that the noise may be like."""
    x = np.array([point.labels / points[-1].labels for point in points])
    counts = np.array([_measured_on(point) for point in points])
    if squared or not np.isfinite(counts).all():
        level = max(float(np.median(error)), 1e-9)
        noises = [np.diag(np.full(len(error), (share * level) ** 2)) for share in _UNKNOWN]
        return _Laws.fit(x, error, noises)
    # The noise follows from the true errors; the measured ones would call lucky models precise.
    expected = np.full(len(error), float(error.mean()))
    for shared in ((0.0,), _SHARED):
        expected = np.clip(expected, 0.5 / counts.max(), 1 - 0.5 / counts.max())
        noises = [
            larger**2 * _covariance(expected, counts, share)
            for share in shared
            for larger in _LARGER
        ]
        laws = _Laws.fit(x, error, noises)
        expected = laws.curve()
    return laws


def _measured_on(point: Point) -> float:
    """How many items a model was measured on, from its Wilson interval; NaN where it has none.

    The ends of the interval are the roots q of ``(p - q)^2 = k q (1 - q)``, ``k = z^2 / m``.
    """
    if point.low is None or point.high is None:
        return math.nan
    ends = (point.low, point.high, point.accuracy)
    low, high, p = ends if point.accuracy >= 0.5 else tuple(1 - end for end in ends)
    k = p * p / (low * high) - 1 if low * high > 0 else math.nan
    return _NORMAL**2 / k if k > 0 else math.nan


def _covariance(error: Floats, counts: Floats, shared: float) -> Floats:
    """The covariance of measured errors, ``(t, t)``, for a share of noise in common.

    Args:
        error: ``(t,)``, the true errors.
        counts: ``(t,)``, how many items each was measured on; the fewer are among the more.
        shared: from 0 (models err independently) to 1 (the better is right wherever the worse is).
    """
    together = np.minimum.outer(error, error) - np.outer(error, error)
    common = together / np.maximum.outer(counts, counts)
    own = np.diag(error * (1 - error) / counts)
    return np.asarray(shared * common + (1 - shared) * own + np.diag((_BEND * error) ** 2))


def _quantiles(values: Floats, weights: Floats, shares: Sequence[float]) -> list[float]:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    places = np.searchsorted(total, np.array(shares) * total[-1])
    return [float(value) for value in values[order][np.minimum(places, len(values) - 1)]]


def _unknown(step: int, models: int) -> Forecast:
    seen = {0: "no model has", 1: "only 1 model has"}.get(models, f"only {models} models have")
    says = f"{seen} been measured on items set aside; a forecast needs {FEWEST}"
    return Forecast(None, None, None, step, None, says)


def _says(step: int, gain: float, low: float, high: float, reaches: float, squared: bool) -> str:
    more = f"{step:,} more labels" if step != 1 else "1 more label"
    if squared:
        between = f"{gain:.3g} ({low:.3g} to {high:.3g})"
        return f"{more} should lower the mean squared error by {between}, to {reaches:.3g}"
    between = f"{100 * gain:.1f} points ({100 * low:.1f} to {100 * high:.1f})"
    return f"{more} should raise the accuracy by {between}, to {100 * reaches:.1f} %"
