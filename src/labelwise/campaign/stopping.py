r"""Four stopping rules that judge whether further labels are worth their cost.

**Budget.** Labels, money or hours are spent, or no item is left.

**Stable predictions.** Successive models are compared on the same items of the pool. Stop when
Cohen's kappa between them, averaged over the last three comparisons, is 0.99 or more: new labels no
longer change the predictions.

**Flat accuracy.** A line in :math:`\log` labels is fitted to the holdout accuracies :math:`a_t` of
the models in the last third of the labels (at least four). Stop when its rise over these models is
below two points with 95 % certainty, and it did not fall by two points either; the rule does not
judge while the noise leaves both open. A holdout of :math:`m_t` items gives a variance of
:math:`\bar a (1 - \bar a) / m_t`. Models evaluated on the same items share most of this noise,
except for the mean share :math:`d` of items on which two successive models differ:

.. math:: C_{st} = \frac{\bar a (1 - \bar a)}{\max(m_s, m_t)}
    \prod_{u = s + 1}^{t} \left(1 - \frac{d + 1 / m_u}{2 \bar a (1 - \bar a)}\right)_+ .

The line is fitted by generalised least squares under :math:`C`, scaled up if the models scatter
more than that. A mean squared error is judged by its logarithm and its scatter, and five per cent.

**Spectrum.** The weighted labels represent the pool in every direction of the features: all
eigenvalues of `labelwise.theory.spectrum` are in [3/4, 5/4].

Cost: negligible; the spectrum takes one or two passes over the pool.

Reference: M. Bloodgood, K. Vijay-Shanker, "A Method for Stopping Active Learning Based on
Stabilizing Predictions and the Need for User-Adjustable Stopping", CoNLL 2009; A. C. Aitken, "On
Least Squares and Linear Combinations of Observations", Proceedings of the Royal Society of
Edinburgh 55, 1936; X. Chen, E. Price, "Active Regression via Linear-Sample Sparsification", COLT
2019.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from labelwise.arrays import Floats
from labelwise.campaign.costs import campaign_cost
from labelwise.campaign.evaluation import ModelEvaluation, find_confused_classes
from labelwise.campaign.forecast import Forecast, forecast_batch
from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput
from labelwise.files import JsonObject
from labelwise.record.events import Trained
from labelwise.record.ledger import Ledger

BUDGET, STABLE, FLAT, SPECTRUM = "budget", "stable", "flat", "spectrum"

_WINDOW = 3  # Comparisons of successive models that are averaged
_Z_95 = 1.644854  # One-sided 95 % quantile of the normal distribution

_DIFFERENCES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 1.0)
"""Shares :math:`d` to try where it is unknown; the one with the largest possible rise counts."""

_SPECTRUM_RANGE = (0.75, 1.25)


@dataclass(frozen=True)
class Advice:
    """The advice of one rule."""

    rule: str  # ``budget``, ``stable``, ``flat`` or ``spectrum``
    stop: bool  # whether to stop; False also where the rule cannot judge
    says: str  # the observation and its meaning
    judged: bool = True  # whether there was enough data to judge


def advise(ledger: Ledger, settings: Settings) -> list[Advice]:
    """The advice of every rule about a campaign now.

    >>> from labelwise.record.ledger import Ledger
    >>> from labelwise.campaign.settings import Settings
    >>> [(one.rule, one.stop) for one in advise(Ledger(), Settings(budget_labels=10))]
    [('budget', False), ('stable', False), ('flat', False), ('spectrum', False)]
    """
    trainings: list[Trained] = []
    for training in ledger.trainings:  # a model with the same number of labels adds no information
        if not trainings or training.labels > trainings[-1].labels:
            trainings.append(training)
    return [
        _judge_budget(ledger, settings),
        _judge_stability(_join_model_agreements(trainings, settings), settings.regression),
        _judge_error(trainings) if settings.regression else _judge_accuracy(trainings),
        _judge_spectrum(trainings[-1].metrics.get("spectrum") if trainings else None),
    ]


def should_stop(advice: Sequence[Advice]) -> bool:
    """Combine the rules.

    Stop when the budget is spent, or when every rule about the model that could judge says so. The
    spectrum knows only the features, and decides where neither of these could judge.

    >>> stable, flat = Advice("stable", True, "..."), Advice("flat", False, "...")
    >>> should_stop([stable]), should_stop([stable, flat])
    (True, False)
    """
    judged = {one.rule: one.stop for one in advice if one.judged}
    if judged.get(BUDGET, False):
        return True
    model = [judged[rule] for rule in (STABLE, FLAT) if rule in judged]
    return all(model) if model else judged.get(SPECTRUM, False)


class CampaignAdvice(NamedTuple):
    """Whether to go on with a campaign."""

    says: str  # the advice in one sentence
    stop: bool  # whether it is to stop
    rules: list[Advice]  # the advice of every rule
    forecast: Forecast  # of the next batch


LITTLE_GAIN = {False: 0.025, True: 0.05}
"""Rise of the accuracy, or share of the squared error (in a regression), below which labels help
little: if not even the upper end of the forecast for twice the labels is above it."""


def advise_campaign(ledger: Ledger, settings: Settings) -> CampaignAdvice:
    """One sentence on whether to go on, with the rules and the forecast that it is based on.

    A goal that is reached ends a campaign, and so does a spent budget; otherwise `should_stop`
    decides.

    >>> advise_campaign(Ledger(), Settings()).says
    'Keep labelling: there is no model yet.'
    """
    rules, expected = advise(ledger, settings), forecast_batch(ledger, settings)
    stop, score = should_stop(rules), None
    if ledger.trainings:
        score = ModelEvaluation.from_training(ledger.trainings[-1]).score
    if rules[0].judged and rules[0].stop:
        says = f"You can stop: {rules[0].says}."
    elif settings.goal is not None and score is not None and score.value >= settings.goal:
        goal = f"{100 * settings.goal:.0f} %"
        stop, says = True, f"You can stop: {goal} reached ({score.format_value()})."
    elif stop:
        judged = [one.says for one in select_shown(rules) if one.stop]
        says = f"You can stop: {judged[-1]}{_advise_instructions(ledger)}."
    elif not ledger.trainings:
        says = "Keep labelling: there is no model yet."
    elif expected.gain is None:
        says = "Keep labelling: it is too early to say what more labels would add."
    else:
        says = _describe_prospect(ledger, settings, expected)
    return CampaignAdvice(says, stop, rules, expected)


def _describe_prospect(ledger: Ledger, settings: Settings, expected: Forecast) -> str:
    """The gain of the next labels, or of as many labels again if that is small."""
    unit = _find_error_unit(expected, settings.regression)
    gained = round((expected.gain or 0.0) / unit)
    if gained >= 1:
        return f"Keep labelling: {_describe_gain(expected, gained, settings, 'should', 'about')}."
    wide = forecast_batch(ledger, settings, max(ledger.trainings[-1].labels, 1))
    if (wide.high or 0.0) < 100 * unit * LITTLE_GAIN[settings.regression]:
        return f"More labels will help little{_advise_instructions(ledger)}."
    most = round((wide.high or 0.0) / unit)
    return f"Keep labelling: {_describe_gain(wide, most, settings, 'may', 'up to')}."


def _find_error_unit(expected: Forecast, regression: bool) -> float:
    """A point of accuracy, or a per cent of the squared error."""
    error = (expected.gain or 0.0) + (expected.reaches or 0.0) if regression else 1.0
    return max(error, 1e-12) / 100


def _describe_gain(found: Forecast, gained: int, settings: Settings, verb: str, how: str) -> str:
    more = f"{found.labels:,} more label{'s' if found.labels != 1 else ''} {verb}"
    if settings.regression:
        return f"{more} lower the squared error by {how} {gained} %"
    return f"{more} add {how} {gained} point{'s' if gained != 1 else ''}"


def _advise_instructions(ledger: Ledger) -> str:
    """An alternative to more labels, if two classes are often confused."""
    pair = find_confused_classes(ledger)
    if pair is None:
        return ""
    return f": {pair[0]} and {pair[1]} are often confused, clearer instructions may help"


def select_shown(advice: Sequence[Advice]) -> list[Advice]:
    """The rules to show people: those that could judge, the spectrum only where it decides.

    >>> flat, spectrum = Advice("flat", False, "..."), Advice("spectrum", True, "...")
    >>> [one.rule for one in select_shown([flat, spectrum])], len(select_shown([spectrum]))
    (['flat'], 1)
    """
    model = any(one.judged and one.rule in (STABLE, FLAT) for one in advice)
    return [one for one in advice if one.judged and not (one.rule == SPECTRUM and model)]


# Budget


def _judge_budget(ledger: Ledger, settings: Settings) -> Advice:
    done = len(ledger.labels) + sum(item not in ledger.labels for item in ledger.skipped)
    if ledger.items and done >= ledger.items:
        return Advice(BUDGET, True, f"all {ledger.items:,} items are labelled or skipped")
    cost = campaign_cost(ledger, settings)
    if cost.share is not None:
        return Advice(BUDGET, cost.share >= 1, cost.says)
    budgets = (settings.budget_labels, settings.budget_money, settings.budget_hours)
    if any(budget is not None for budget in budgets):
        return Advice(BUDGET, False, f"{cost.says}, so the budget cannot be judged", judged=False)
    return Advice(BUDGET, False, f"{cost.says}, and no budget is set", judged=False)


# Stable predictions


def _join_model_agreements(trainings: Sequence[Trained], settings: Settings) -> list[JsonObject]:
    """The measures of successive models that are about a batch apart.

    Rolling batches train after a few labels, and such models hardly differ. Disagreements add up
    at most, so models further apart agree at least by 1 less the sum of their disagreements.
    """
    step = (1 - settings.tail) * settings.batch if settings.rolling else 0.0
    joined: list[JsonObject] = []
    last, lost = trainings[0].labels if trainings else 0, {"kappa": 0.0, "agreement": 0.0}
    for training in trainings[1:]:
        for name in lost:
            value = training.metrics.get(name)
            lost[name] += math.nan if value is None else 1 - value
        if training.labels - last >= step:
            known = {name: 1 - value for name, value in lost.items() if math.isfinite(value)}
            joined.append(known)
            last, lost = training.labels, {"kappa": 0.0, "agreement": 0.0}
    return joined


def _judge_stability(later: Sequence[JsonObject], regression: bool) -> Advice:
    """Use kappa where it was recorded, otherwise the share of equal predictions."""
    name = "kappa" if any("kappa" in metrics for metrics in later) else "agreement"
    words = {"kappa": "kappa", "agreement": "share of equal predictions"}
    of = "share of common variance" if regression else words[name]
    return stable_predictions([metrics.get(name) for metrics in later], of=of)


def stable_predictions(
    kappas: Sequence[float | None], *, least: float = 0.99, of: str = "kappa"
) -> Advice:
    """Judge whether successive models still differ.

    Args:
        kappas: Cohen's kappa of each model with the previous one, oldest first; None or NaN where
            it is undefined, as for models that know only one class.
        least: minimum mean of the last comparisons.
        of: name of the measure, for the message.

    >>> stable_predictions([0.8, 0.992, 0.995, 0.991]).says
    'the last 3 models agree with their predecessors (mean kappa 0.993, at least 0.99): new \
labels no longer change the predictions'
    >>> stable_predictions([0.8, 0.992]).stop
    False
    """
    if not 0 < least <= 1:
        raise BadInput(f"least must be in (0, 1]; got {least}")
    last = list(kappas)[-_WINDOW:]
    known = [kappa for kappa in last if kappa is not None and math.isfinite(kappa)]
    if len(known) < _WINDOW:
        says = f"{len(known)} of the {_WINDOW} comparisons of models needed are available"
        return Advice(STABLE, False, says, judged=False)
    mean = sum(known) / _WINDOW
    if mean >= least:
        says = (
            f"the last {_WINDOW} models agree with their predecessors (mean {of} {mean:.3f}, at "
            f"least {least:g}): new labels no longer change the predictions"
        )
    else:
        says = (
            f"the last {_WINDOW} models differ from their predecessors (mean {of} {mean:.3f}, "
            f"below {least:g}): new labels still change the predictions"
        )
    return Advice(STABLE, mean >= least, says)


# Flat accuracy


def flat_accuracy(
    labels: Sequence[int],
    accuracy: Sequence[float],
    measured: Sequence[int],
    agreement: Sequence[float | None] | None = None,
    *,
    worth: float = 0.02,
) -> Advice:
    """Judge whether the holdout accuracy still rises, given its noise.

    Args:
        labels: ``(t,)``, training labels of each model, rising.
        accuracy: ``(t,)``, holdout accuracy.
        measured: ``(t,)``, holdout size; holdouts of earlier models are part of later ones.
        agreement: ``(t,)``, share of items on which each model agrees with the previous one, or
            Cohen's kappa, which is never larger; None where it is unknown.
        worth: the rise that is worth more labels.

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
    differ = 1.0 - np.array([np.nan if s is None else s for s in same], dtype=np.float64)[good]
    if len(x) < 4:
        return _need_more_models(len(x), 4)
    # Only the recent part of the curve tells whether it is flat now.
    window = _select_last_third(x)
    x, a, m, differ = x[window], a[window], m[window], differ[window]
    differ = np.where(np.isfinite(differ), np.clip(differ, 0.0, 1.0), np.nan)
    # One share d for all steps: with one per step, models that barely differ would dominate.
    known = differ[1:][np.isfinite(differ[1:])]
    shares = _DIFFERENCES if len(known) < len(differ) - 1 else (float(known.mean()),)
    lines = [_fit_accuracy_rise(np.log(x), a, _holdout_covariance(a, m, share)) for share in shares]
    rise, error = max(lines, key=lambda line: line[0] + _Z_95 * line[1])
    return _judge_accuracy_rise(rise, error, worth, x, int(m[-1]))


_flat_accuracy_cached = lru_cache(maxsize=16)(flat_accuracy)  # requested at every label


def _judge_accuracy(trainings: Sequence[Trained]) -> Advice:
    known = [one for one in trainings if isinstance(one.metrics.get("accuracy"), int | float)]
    return _flat_accuracy_cached(
        tuple(one.labels for one in known),
        tuple(one.metrics["accuracy"] for one in known),
        tuple(int(one.metrics.get("validation_labels") or 0) for one in known),
        tuple(one.metrics.get("agreement") for one in known),
    )


def _judge_error(trainings: Sequence[Trained]) -> Advice:
    """Judge whether the logarithm of the mean squared error still falls, given its scatter."""
    from scipy.special import stdtrit

    pairs = [(one.labels, one.metrics.get("mse")) for one in trainings]
    good = [(n, mse) for n, mse in pairs if isinstance(mse, int | float) and 0 < mse < math.inf]
    if len(good) < 5:
        return _need_more_models(len(good), 5)
    x, mse = np.array(good, dtype=np.float64).T
    window = _select_last_third(x, fewest=5)
    x, fall = np.log(x[window]), -np.log(mse[window])
    # A line in log labels, and the standard error of its rise by its own scatter.
    slope, base = np.polyfit(x, fall, 1)
    residual = fall - slope * x - base
    variance = residual @ residual / (len(x) - 2) / ((x - x.mean()) ** 2).sum()
    # Student's t instead of the normal quantile that _judge_accuracy_rise multiplies by.
    error = math.sqrt(variance) * (x[-1] - x[0]) * float(stdtrit(len(x) - 2, 0.95)) / _Z_95
    return _judge_accuracy_rise(float(slope * (x[-1] - x[0])), error, 0.05, np.exp(x), None)


def _select_last_third(x: Floats, fewest: int = 4) -> slice:
    """The models of the last third of the labels, at least ``fewest``."""
    first = int(np.searchsorted(x, x[-1] * 2 / 3))
    return slice(min(first, len(x) - fewest), len(x))


def _holdout_covariance(accuracy: Floats, measured: Floats, differ: float) -> Floats:
    """The covariance :math:`C` of the accuracies, ``(t, t)``."""
    # One more hit and one more miss, so that a holdout without a miss still has noise.
    hits, total = accuracy @ measured + 1, measured.sum() + 2
    variance = hits / total * (1 - hits / total)
    kept = 1 - (differ + 1 / measured) / (2 * variance)
    kept = np.clip(kept[1:], 0.0, 1 - 1e-9)
    common = np.eye(len(accuracy))
    for first in range(len(accuracy)):
        for later in range(first + 1, len(accuracy)):
            common[first, later] = common[later, first] = np.prod(kept[first:later])
    return np.asarray(variance * common / np.maximum.outer(measured, measured))


def _fit_accuracy_rise(x: Floats, y: Floats, noise: Floats) -> tuple[float, float]:
    """The rise of the fitted line from the first to the last model, and its standard error."""
    design = np.column_stack([np.ones_like(x), (x - x[0]) / (x[-1] - x[0])])
    # Generalised least squares: the normal equations under the covariance of the noise.
    whitened = np.linalg.solve(noise, np.column_stack([design, y]))
    covariance = np.linalg.inv(design.T @ whitened[:, :2])
    level, rise = covariance @ design.T @ whitened[:, 2]
    residual = y - level - rise * design[:, 1]
    scatter = float(residual @ np.linalg.solve(noise, residual)) / (len(x) - 2)
    return float(rise), math.sqrt(max(scatter, 1.0) * covariance[1, 1])


def _judge_accuracy_rise(
    rise: float, error: float, worth: float, x: Floats, measured: int | None
) -> Advice:
    """Flat, rising, or too noisy to tell; ``measured`` is None for a squared error."""
    low, high = rise - _Z_95 * error, rise + _Z_95 * error
    if measured is None:
        what, better, worse, unit = "the mean squared error", "fell", "rose", "%"
        found = [100 * (1 - math.exp(-value)) for value in (rise, low, high)]
    else:
        what, better, worse, unit = "accuracy", "rose", "fell", "points"
        found = [100 * value for value in (rise, low, high)]
    change = f"{better if rise >= 0 else worse} by {abs(found[0]):.1f} {unit}"
    says = f"{what} {change} over the last {len(x)} models ({x[0]:,.0f} to {x[-1]:,.0f} labels)"
    if high < worth and rise > -worth:
        return Advice(FLAT, True, f"{says}, at most {found[2]:.1f} {unit} better: it is flat")
    if high < 0:
        return Advice(FLAT, False, f"{says}: it got worse, so check the latest labels")
    if low > 0:
        return Advice(FLAT, False, f"{says}, at least {found[1]:.1f} {unit} better: it improves")
    on = f" on {measured:,} held-out labels" if measured is not None else ""
    says = f"{says}, with an interval from {found[1]:.1f} to {found[2]:.1f}{on}: too noisy to tell"
    return Advice(FLAT, False, says, judged=False)


def _need_more_models(models: int, wanted: int) -> Advice:
    says = f"{models} of the {wanted} models needed were evaluated on held-out labels"
    return Advice(FLAT, False, says, judged=False)


# Spectrum


def _judge_spectrum(found: JsonObject | None) -> Advice:
    """Judge whether the labels represent the pool, by ``lower``, ``upper``, ``rank``, ``unseen``.

    >>> _judge_spectrum({"lower": 0.8, "upper": 1.2, "rank": 12, "unseen": 0}).stop
    True
    """
    if found is None:
        says = "the variety of the labelled items was not measured"
        return Advice(SPECTRUM, False, says, judged=False)
    lower, upper, rank = float(found["lower"]), float(found["upper"]), int(found["rank"])
    if not (math.isfinite(lower) and math.isfinite(upper)) or rank < 1:
        says = "the features are constant, so the variety of the labels cannot be judged"
        return Advice(SPECTRUM, False, says, judged=False)
    unseen, (least, most) = int(found["unseen"]), _SPECTRUM_RANGE
    if unseen:
        says = "your labels do not cover the variety of the pool yet"
        says += f" ({rank - unseen} of {rank} directions)"
    elif lower < least:
        says = f"your labels cover all {rank} directions of the pool, but some of them too thinly"
    elif upper > most:
        says = f"your labels cover all {rank} directions of the pool, but some of them too heavily"
    else:
        says = f"your labels cover the variety of the pool ({rank} of {rank} directions)"
    return Advice(SPECTRUM, not unseen and least <= lower and upper <= most, says)
