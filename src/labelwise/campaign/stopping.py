r"""When to stop labelling: four rules, each with what it saw and what that means.

**Budget.** Labels, money or hours are spent, or no item is left.

**Stable predictions.** Each model and the one before it are compared on the same items of the pool,
labelled or not. Stop when Cohen's kappa between them, averaged over the last three comparisons, is
0.99 or more: new labels no longer change what the model says.

**Flat accuracy.** Over the models of the last third of the labels (four at least), the accuracy
:math:`a_t` on items set aside is fitted by a line in :math:`\log` labels. Stop when its rise over
these models is below two points *with 95 % certainty*; say that nobody can tell while the noise
leaves both open. The noise: :math:`m_t` items give a variance of :math:`\bar a (1 - \bar a) / m_t`;
models measured on the same items share most of it, but for the mean share :math:`d` of items on
which two in a row differ,

.. math:: C_{st} = \frac{\bar a (1 - \bar a)}{\max(m_s, m_t)}
    \prod_{u = s + 1}^{t} \left(1 - \frac{d + 1 / m_u}{2 \bar a (1 - \bar a)}\right)_+ ,

and the line is fitted by generalised least squares under :math:`C`, scaled up if the models scatter
more than that. One item's worth in :math:`d` keeps small sets from looking exact, and where
:math:`d` is unknown the one that leaves most open is taken. A mean squared error is judged by its
logarithm and its scatter alone, and five per cent.

**Spectrum.** The weighted labels stand for the pool in every direction of the features: all
eigenvalues of `labelwise.theory.spectrum` are in [3/4, 5/4].

Cost: nothing to speak of; the spectrum takes one or two passes over the pool.

Reference: M. Bloodgood, K. Vijay-Shanker, "A Method for Stopping Active Learning Based on
Stabilizing Predictions and the Need for User-Adjustable Stopping", CoNLL 2009; X. Chen, E. Price,
"Active Regression via Linear-Sample Sparsification", COLT 2019.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from labelwise.arrays import Floats
from labelwise.campaign.costs import spent
from labelwise.errors import BadInput

BUDGET, STABLE, FLAT, SPECTRUM = "budget", "stable", "flat", "spectrum"

_SURE = 1.644854
"""Standard deviations above which a normal number is found 5 times in 100."""

_BAND = (0.75, 1.25)

_UNKNOWN = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 1.0)
"""Shares of items on which successive models may differ; the one that leaves most open counts."""


@dataclass(frozen=True)
class Advice:
    """What one rule says.

    Attributes:
        rule: ``budget``, ``stable``, ``flat`` or ``spectrum``.
        stop: whether it would stop; False also where it cannot judge.
        says: what was seen and what it means.
        judged: whether there was enough to judge by.
    """

    rule: str
    stop: bool
    says: str
    judged: bool = True


def advise(
    ledger: Any,
    settings: Any,
    spectrum: Any = None,
    *,
    least: float = 0.99,
    worth: float = 0.02,
) -> list[Advice]:
    """What each rule says about a campaign now.

    Args:
        ledger: the campaign's.
        settings: the campaign's.
        spectrum: of the labelled items, from `labelled_spectrum`; what the last training recorded
            as its ``spectrum`` if None.
        least: the agreement of successive models that counts as stable.
        worth: the rise in accuracy that would be worth going on for.

    >>> from labelwise.campaign.ledger import Ledger
    >>> from labelwise.campaign.settings import Settings
    >>> [(one.rule, one.stop) for one in advise(Ledger(), Settings(budget_labels=10))]
    [('budget', False), ('stable', False), ('flat', False), ('spectrum', False)]
    """
    trainings = _grown(ledger.trainings)
    if spectrum is None and trainings:
        spectrum = trainings[-1].metrics.get("spectrum")
    regression = bool(settings.regression)
    curve = _flat_error(trainings) if regression else _flat(trainings, worth)
    return [
        _budget(ledger, settings),
        _stable(trainings, least, regression),
        curve,
        spectrum_advice(spectrum),
    ]


def should_stop(advice: Sequence[Advice]) -> bool:
    """Whether to stop, all things considered.

    Stop when the budget is spent; or when every rule that looks at the model and could judge says
    so. The spectrum knows the features only, and decides where neither of these could judge.

    >>> stable, flat = Advice("stable", True, "..."), Advice("flat", False, "...")
    >>> should_stop([stable]), should_stop([stable, flat])
    (True, False)
    """
    said = {one.rule: one.stop for one in advice if one.judged}
    if said.get(BUDGET, False):
        return True
    model = [said[rule] for rule in (STABLE, FLAT) if rule in said]
    return all(model) if model else said.get(SPECTRUM, False)


def stable_predictions(
    kappas: Sequence[float | None], *, least: float = 0.99, window: int = 3, of: str = "kappa"
) -> Advice:
    """Whether successive models still differ.

    Args:
        kappas: Cohen's kappa of each model with the one before, oldest first; None or NaN where it
            is not defined, as between models that know one class only.
        least: what the mean of the last ones must reach.
        window: how many.
        of: what is compared, for the sentence.

    >>> stable_predictions([0.8, 0.992, 0.995, 0.991]).says
    'the last 3 models agree with the ones before by a mean kappa of 0.993, at least 0.99: new \
labels no longer change what they say'
    >>> stable_predictions([0.8, 0.992]).stop
    False
    """
    if not 0 < least <= 1 or window < 1:
        raise BadInput(f"least must be in (0, 1] and window 1 or more; got {least} and {window}")
    last = list(kappas)[-window:]
    known = [kappa for kappa in last if kappa is not None and math.isfinite(kappa)]
    if len(known) < window:
        seen = f"{len(known)} of the last {window} comparisons of models can be judged"
        return Advice(STABLE, False, f"{seen}: too few to tell whether they settle", judged=False)
    mean = sum(known) / window
    seen = f"the last {window} models agree with the ones before by a mean {of} of {mean:.3f}"
    if mean >= least:
        says = f"{seen}, at least {least:g}: new labels no longer change what they say"
    else:
        says = f"{seen}, below {least:g}: new labels still change what they say"
    return Advice(STABLE, mean >= least, says)


def flat_accuracy(
    labels: Sequence[int],
    accuracy: Sequence[float],
    measured: Sequence[int],
    agreement: Sequence[float | None] | None = None,
    *,
    worth: float = 0.02,
) -> Advice:
    """Whether the accuracy on items set aside still rises, judged against its noise.

    Args:
        labels: ``(t,)``, how many each model was trained on, rising.
        accuracy: ``(t,)``.
        measured: ``(t,)``, on how many items; those of earlier models are among those of later.
        agreement: ``(t,)``, the share of items on which each model agrees with the one before, or
            Cohen's kappa, which is never larger; None where it is not known.
        worth: the rise that would be worth going on for.

    >>> labels = [400, 450, 500, 550, 600]
    >>> still = flat_accuracy(labels, [0.900, 0.902, 0.901, 0.900, 0.902], [3000] * 5, [0.99] * 5)
    >>> still.stop, flat_accuracy(labels, [0.90, 0.92, 0.91, 0.90, 0.92], [50] * 5).judged
    (True, False)
    """
    if not 0 < worth < 1:
        raise BadInput(f"worth is a rise in accuracy from 0 to 1; got {worth}")
    x, a, m = (np.asarray(values, dtype=np.float64) for values in (labels, accuracy, measured))
    same = [None] * len(x) if agreement is None else list(agreement)
    if (np.diff(x) <= 0).any():
        raise BadInput("labels must rise from model to model; leave out models without new labels")
    good = np.isfinite(a) & (m >= 1) & (x >= 1)
    x, a, m = x[good], a[good], m[good]
    differ = np.array([_differ(s) for s, keep in zip(same, good, strict=True) if keep])
    if len(x) < 4:
        return _too_few(len(x), 4)
    window = _window(x)
    x, a, m, differ = x[window], a[window], m[window], differ[window]
    # One share for all steps: where it were smaller, a smaller step would count for more.
    known = differ[1:][np.isfinite(differ[1:])]
    guesses = _UNKNOWN if len(known) < len(differ) - 1 else (float(known.mean()),)
    lines = [_rise(np.log(x), a, _noise(a, m, share)) for share in guesses]
    rise, error = max(lines, key=lambda line: line[0] + _SURE * line[1])
    return _judge_rise(rise, error, worth, x, int(m[-1]))


def spectrum_advice(spectrum: Any) -> Advice:
    """Whether the labelled items stand for the pool in every direction of the features.

    Args:
        spectrum: a `labelwise.theory.spectrum.Spectrum`, what `spectrum_summary` made of one, or
            None.

    >>> spectrum_advice({"lower": 0.8, "upper": 1.2, "rank": 12, "unseen": 0}).stop
    True
    """
    if spectrum is None:
        return Advice(
            SPECTRUM, False, "the spectrum of the labelled items was not measured", judged=False
        )
    found = spectrum if isinstance(spectrum, Mapping) else spectrum_summary(spectrum)
    lower, upper, rank = float(found["lower"]), float(found["upper"]), int(found["rank"])
    if not (math.isfinite(lower) and math.isfinite(upper)) or rank < 1:
        return Advice(
            SPECTRUM, False, "the features have no direction to judge the labels by", judged=False
        )
    seen = f"the labelled items see between {100 * lower:.0f} and {100 * upper:.0f} % of the "
    seen += f"pool in each of {rank} directions of the features"
    if _BAND[0] <= lower and upper <= _BAND[1]:
        return Advice(SPECTRUM, True, f"{seen}, all within 75 to 125: they stand for all of it")
    if found["unseen"]:
        return Advice(SPECTRUM, False, f"{seen}, and nothing of {found['unseen']} of them")
    side = "too little of some" if lower < _BAND[0] else "too much of some"
    return Advice(SPECTRUM, False, f"{seen}, where 75 to 125 are wanted: {side}")


def spectrum_summary(spectrum: Any) -> dict[str, Any]:
    """What the rule reads of a spectrum, as plain values that a record can hold.

    >>> import numpy as np
    >>> from labelwise import Selection
    >>> from labelwise.theory.spectrum import weighted_spectrum
    >>> found = weighted_spectrum(Selection(np.array([0])), np.eye(2))
    >>> spectrum_summary(found)
    {'lower': 0.0, 'upper': 2.0, 'rank': 2, 'unseen': 1}
    """
    return {
        "lower": float(spectrum.lower),
        "upper": float(spectrum.upper),
        "rank": int(spectrum.rank),
        "unseen": int(spectrum.unseen),
    }


def labelled_spectrum(ledger: Any, features: Any) -> Any:
    """The spectrum of what a model is trained on, against the pool.

    Weights are those of training: of mean 1 in every batch, and 1 where a batch has none.

    Args:
        ledger: the campaign's.
        features: ``(n, d)`` of the whole pool with ids 0, 1, ..., or shards with their own ids.

    Returns:
        A `labelwise.theory.spectrum.Spectrum`, or None where nothing is labelled.

    >>> import numpy as np
    >>> from labelwise.campaign.events import Asked, Started, Told
    >>> from labelwise.campaign.ledger import replay
    >>> events = [Started(0.0, {}, 4), Asked(1.0, 1, (0, 2)), Told(2.0, 0, "a"), Told(3.0, 2, "b")]
    >>> pool = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> found = labelled_spectrum(replay(events), pool)
    >>> found.rank, round(found.lower, 6), round(found.upper, 6)
    (2, 1.0, 1.0)
    """
    from labelwise.campaign.training import batch_weights
    from labelwise.selection import Selection
    from labelwise.theory.spectrum import weighted_spectrum

    ids = np.array([item for item in sorted(ledger.labels) if item not in ledger.validation])
    if not len(ids):
        return None
    given = batch_weights(ledger)
    weights = np.array([given.get(int(item), 1.0) for item in ids])
    # Relative to one another they are right; together they stand for the whole pool.
    scaled = weights * (ledger.items / weights.sum()) if weights.sum() > 0 else None
    return weighted_spectrum(Selection(ids.astype(np.int64), scaled), features)


def _grown(trainings: Sequence[Any]) -> list[Any]:
    """The models with more labels than any before: others have no news for any rule."""
    kept: list[Any] = []
    for training in trainings:
        if not kept or training.labels > kept[-1].labels:
            kept.append(training)
    return kept


def _budget(ledger: Any, settings: Any) -> Advice:
    done = len(ledger.labels) + sum(item not in ledger.labels for item in ledger.skipped)
    if ledger.items and done >= ledger.items:
        return Advice(BUDGET, True, f"all {ledger.items:,} items are labelled or skipped")
    cost = spent(ledger, settings)
    names = [f"budget_{name}" for name in ("labels", "money", "hours")]
    if cost.share is not None:
        return Advice(BUDGET, cost.share >= 1, cost.says)
    if any(getattr(settings, name) is not None for name in names):
        return Advice(BUDGET, False, f"{cost.says}, so the budget cannot be judged", judged=False)
    return Advice(BUDGET, False, f"{cost.says}, and no budget is set", judged=False)


def _stable(trainings: Sequence[Any], least: float, regression: bool) -> Advice:
    """By kappa where the record has it, by the share of equal predictions where it has not."""
    later = [training.metrics for training in trainings[1:]]
    name = "kappa" if any("kappa" in metrics for metrics in later) else "agreement"
    words = {"kappa": "kappa", "agreement": "share of equal predictions"}
    of = "share of variance in common" if regression else words[name]
    return stable_predictions([metrics.get(name) for metrics in later], least=least, of=of)


def _flat(trainings: Sequence[Any], worth: float) -> Advice:
    known = [one for one in trainings if isinstance(one.metrics.get("accuracy"), int | float)]
    return _flat_once(
        tuple(one.labels for one in known),
        tuple(one.metrics["accuracy"] for one in known),
        tuple(int(one.metrics.get("validation_labels") or 0) for one in known),
        tuple(one.metrics.get("agreement") for one in known),
        worth=worth,
    )


_flat_once = lru_cache(maxsize=16)(flat_accuracy)
"""The same, worked out once per training: a page asks for it with every label."""


def _flat_error(trainings: Sequence[Any], worth: float = 0.05) -> Advice:
    """The same for a mean squared error: does its logarithm still fall, against its scatter?"""
    from scipy.special import stdtrit

    pairs = [(one.labels, one.metrics.get("mse")) for one in trainings]
    good = [(n, mse) for n, mse in pairs if isinstance(mse, int | float) and 0 < mse < math.inf]
    if len(good) < 5:
        return _too_few(len(good), 5)
    x, mse = np.array(good, dtype=np.float64).T
    window = _window(x, fewest=5)
    x, fall = np.log(x[window]), -np.log(mse[window])
    slope, base = np.polyfit(x, fall, 1)
    left = fall - slope * x - base
    variance = left @ left / (len(x) - 2) / ((x - x.mean()) ** 2).sum()
    error = math.sqrt(variance) * (x[-1] - x[0]) * float(stdtrit(len(x) - 2, 0.95)) / _SURE
    rise = float(slope * (x[-1] - x[0]))
    return _judge_rise(rise, error, worth, np.exp(x), None)


def _differ(same: float | None) -> float:
    """The share of items on which a model differs from the one before; NaN where nobody knows."""
    if same is None or not math.isfinite(same):
        return math.nan
    return min(max(1.0 - same, 0.0), 1.0)


def _window(x: Floats, fewest: int = 4) -> slice:
    """The models of the last third of the labels, and so many at least."""
    first = int(np.searchsorted(x, x[-1] * 2 / 3))
    return slice(min(first, len(x) - fewest), len(x))


def _noise(accuracy: Floats, measured: Floats, differ: float) -> Floats:
    """The covariance of the measured accuracies, ``(t, t)``, as above."""
    # A hit and a miss more, so that a set without a miss is not without noise.
    hits, total = accuracy @ measured + 1, measured.sum() + 2
    variance = hits / total * (1 - hits / total)
    kept = 1 - (differ + 1 / measured) / (2 * variance)
    kept = np.clip(kept[1:], 0.0, 1 - 1e-9)
    common = np.eye(len(accuracy))
    for first in range(len(accuracy)):
        for later in range(first + 1, len(accuracy)):
            common[first, later] = common[later, first] = np.prod(kept[first:later])
    return np.asarray(variance * common / np.maximum.outer(measured, measured))


def _rise(x: Floats, y: Floats, noise: Floats) -> tuple[float, float]:
    """The rise of a fitted line from the first to the last model, and its standard error."""
    design = np.column_stack([np.ones_like(x), (x - x[0]) / (x[-1] - x[0])])
    weighed = np.linalg.solve(noise, np.column_stack([design, y]))
    covariance = np.linalg.inv(design.T @ weighed[:, :2])
    level, rise = covariance @ design.T @ weighed[:, 2]
    left = y - level - rise * design[:, 1]
    scatter = float(left @ np.linalg.solve(noise, left)) / (len(x) - 2)
    return float(rise), math.sqrt(max(scatter, 1.0) * covariance[1, 1])


def _judge_rise(rise: float, error: float, worth: float, x: Floats, measured: int | None) -> Advice:
    """Flat, rising, or too noisy to tell; ``measured`` is None for a squared error."""
    low, high = rise - _SURE * error, rise + _SURE * error
    window = f"over the last {len(x)} models ({x[0]:,.0f} to {x[-1]:,.0f} labels)"
    if measured is None:
        what, better, worse, unit = "the mean squared error", "fell", "rose", "%"
        found = [100 * (1 - math.exp(-value)) for value in (rise, low, high)]
    else:
        what, better, worse, unit = "accuracy", "rose", "fell", "points"
        found = [100 * value for value in (rise, low, high)]
    seen = f"{window} {what} {better if rise >= 0 else worse} by {abs(found[0]):.1f} {unit}"
    limit = "" if rise >= 0 else f"{better} by "
    if high < worth:
        return Advice(FLAT, True, f"{seen} ({limit}at most {found[2]:.1f}): it is flat")
    if low > 0:
        return Advice(FLAT, False, f"{seen} (at least {found[1]:.1f}): it still improves")
    on = f" on {measured:,} items set aside" if measured is not None else ""
    says = f"{seen}, but any change for the better from {found[1]:.1f} to {found[2]:.1f} fits{on}"
    return Advice(FLAT, False, f"{says}: too noisy to tell", judged=False)


def _too_few(models: int, wanted: int) -> Advice:
    seen = {0: "no model was", 1: "1 model was"}.get(models, f"{models} models were")
    says = f"{seen} measured on items set aside; {wanted} are needed to tell whether it still rises"
    return Advice(FLAT, False, says, judged=False)
