r"""When to stop labelling: four rules, each with what it saw and what that means.

**Budget.** Labels, money or hours are spent, or no item is left.

**Stable predictions.** Each model and the one before it are compared on the same items of the pool,
labelled or not. Stop when Cohen's kappa between them, averaged over the last three comparisons, is
0.99 or more: new labels no longer change what the model says.

**Flat accuracy.** The accuracy on items set aside no longer rises by two points over the models of
the last third of the labels, with 95 % certainty (`labelwise.campaign.plateau`).

**Spectrum.** The weighted labels stand for the pool in every direction of the features
(`labelwise.campaign.spectrum_rule`).

Cost: nothing to speak of; the spectrum takes one or two passes over the pool.

Reference: M. Bloodgood, K. Vijay-Shanker, "A Method for Stopping Active Learning Based on
Stabilizing Predictions and the Need for User-Adjustable Stopping", CoNLL 2009; X. Chen, E. Price,
"Active Regression via Linear-Sample Sparsification", COLT 2019.
"""

import math
from collections.abc import Sequence
from typing import Any

from labelwise.campaign.advice import BUDGET, FLAT, SPECTRUM, STABLE, Advice
from labelwise.campaign.costs import spent
from labelwise.campaign.plateau import flat_accuracy, flat_error_of, flat_of
from labelwise.campaign.spectrum_rule import labelled_spectrum, spectrum_advice, spectrum_summary
from labelwise.errors import BadInput

__all__ = [
    "BUDGET",
    "FLAT",
    "SPECTRUM",
    "STABLE",
    "Advice",
    "advise",
    "flat_accuracy",
    "labelled_spectrum",
    "should_stop",
    "spectrum_advice",
    "spectrum_summary",
    "stable_predictions",
]


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

    >>> from labelwise.record.ledger import Ledger
    >>> from labelwise.campaign.settings import Settings
    >>> [(one.rule, one.stop) for one in advise(Ledger(), Settings(budget_labels=10))]
    [('budget', False), ('stable', False), ('flat', False), ('spectrum', False)]
    """
    trainings = _grown(ledger.trainings)
    if spectrum is None and trainings:
        spectrum = trainings[-1].metrics.get("spectrum")
    regression = bool(settings.regression)
    curve = flat_error_of(trainings) if regression else flat_of(trainings, worth)
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
