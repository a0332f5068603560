"""Plain sentences that interpret the value of each diagnostic."""

import math

from labelwise.theory.budgets import whole
from labelwise.theory.embedding import Distortion
from labelwise.theory.mmd import Discrepancy
from labelwise.theory.planning import Plan
from labelwise.theory.spectrum import BAND, Spectrum


def read_size(effective: float, picks: int) -> str:
    """Sentence on the effective size.

    >>> read_size(50.0, 100)
    'the weights make 100 picks worth 50 equally weighted ones (50 %): they are uneven'
    """
    share = effective / picks
    text = f"the weights make {picks} picks worth {effective:.0f} equally weighted ones "
    text += f"({share:.0%}): ".replace("%", " %")
    if share >= 0.8:
        return text + "they are nearly even"
    if share >= 0.3:
        return text + "they are uneven"
    return text + "a few picks carry almost all weight, expect noisy training"


def read_spectrum(found: Spectrum, weighted: bool = False) -> str:
    """Sentence on the eigenvalues of the picks; ``weighted``: whether the picks have weights."""
    text = (
        f"the picks cover between {found.lower:.2f} and {found.upper:.2f} of the pool's variance "
    )
    text += f"over its {found.rank} directions"
    if found.unseen:
        return (
            text + f"; {found.unseen} of them are not covered at all, a linear fit is undetermined"
        )
    if found.inside:
        return text + ": all within [3/4, 5/4], a weighted least-squares fit is close to the pool's"
    low = found.lower < BAND[0]
    side = "some directions are covered too little" if low else "some count too much"
    remedy = "pick more" if weighted else "pick more, or use bss or lewis, whose picks have weights"
    return text + f": not all within [3/4, 5/4], {side}; {remedy}"


def read_distortion(found: Distortion) -> str:
    """Sentence on the distortion of norms."""
    sure = "exactly" if found.exact else "at least (found by search)"
    text = f"the l{found.p:g} loss of a linear prediction, estimated from the picks, is between "
    text += f"{found.lower:.2f} and {found.upper:.2f} times that on the pool, {sure}"
    fine = BAND[0] <= found.lower and found.upper <= BAND[1]
    return text + (": good" if fine else ": too wide, the picks do not represent the pool")


def read_coverage(percent: float, value: float, models: int) -> str:
    """Sentence on the coverage of several models."""
    text = f"of the top {percent:g} % of items for one model, {value:.0%} are in the shared top "
    text = text.replace(f"{value:.0%}", f"{100 * value:.0f} %") + f"{percent:g} %"
    disjoint = 1 / models  # what models with nothing in common have
    common = (value - disjoint) / (1 - disjoint)
    if common >= 0.6:
        return text + ": the models agree on what matters, one selection serves them all"
    if common >= 0.1:
        return text + ": the models partly agree, a shared selection still saves labels"
    return text + ": different items matter to the models, a shared selection saves little"


def read_imbalance(ratio: float, missing: int, predicted: bool, pool: float | None) -> str:
    """Sentence on the class-imbalance ratio."""
    kind = "predicted classes" if predicted else "classes"
    if missing:
        return f"{missing} of the {kind} have no pick: a classifier cannot learn them"
    text = f"the most common of the {kind} is picked {ratio:.1f} times as often as the rarest"
    if pool is not None:
        text += " (in the pool: " + (f"{pool:.1f})" if math.isfinite(pool) else "one is missing)")
    if ratio <= 2 or (pool is not None and ratio <= 1.2 * pool):
        return text + ": balanced enough"
    return text + ": check that rare classes matter, or weigh them"


def read_ratio(value: float, converged: bool) -> str:
    """Sentence on the approximation ratio."""
    if math.isnan(value):
        return "the batch as a whole gains nothing, so the ratio is undefined; train further first"
    text = f"the gains of the single items add up to {value:.2f} times the gain of the batch"
    if converged:
        text += " (after training, when the labelled gradient is zero)"
    if 0.8 <= value <= 1.25:
        return text + ": the picks hardly overlap"
    if value < 0.8:
        return text + ": some picks are redundant"
    return text + ": the picks pull against each other"


def read_alignment(value: float, relative: float) -> str:
    """Sentence on the alignment, relative to the largest possible."""
    text = f"the labels use {100 * relative:.0f} % of the alignment that these items allow at most"
    if relative >= 0.3:
        return f"{text}: they lie along the main directions of the kernel and train fast"
    return f"{text}: part of them lies along weak directions and trains slowly"


def read_bound(value: float, singular: bool) -> str:
    """Sentence on the generalisation bound B; NaN where it was not computed."""
    if math.isnan(value):
        return "not computed: there are too many picks to factor their kernel"
    if singular:
        return (
            "the kernel has fewer directions than picks, so its inverse, and with it B, is set by "
            "the jitter: give the tangent kernel of the whole network"
        )
    side = (
        "below 1, the bound is informative"
        if value < 1
        else "1 or more, the bound is not informative"
    )
    return (
        f"the leading term of the bound on the test error is {value:.3g}: {side}; smaller is better"
    )


def read_mmd(found: Discrepancy, what: str) -> str:
    """Sentence on a maximum mean discrepancy."""
    relative = found.value / math.sqrt(found.scale) if found.scale > 0 else 0.0
    text = (
        f"the mean features of {what} differ by {100 * relative:.1f} % of a typical item's length"
    )
    if found.spread is None:
        return text + ": " + ("close" if relative < 0.1 else "the laws differ, expect a shift")
    times = found.squared / found.spread if found.spread > 0 else 0.0
    if times < 2:
        return text + ", not more than for random picks"
    return text + f", {times:.0f} times the spread of random picks: the picks are shifted"


def read_agreement(value: float) -> str:
    """Sentence on Kendall's correlation."""
    if math.isnan(value):
        return "all random batches have the same dynamics or alignment, so they cannot be ranked"
    text = f"training dynamics and alignment rank random batches with a correlation of {value:.2f}"
    if value >= 0.5:
        return text + ": picking by dynamics also picks by alignment"
    if value >= 0.2:
        return text + ": they agree in part"
    return text + ": they disagree on this model, one does not replace the other"


def read_plan(plan: Plan) -> list[str]:
    """Plain sentences on a plan, from the features to the labels.

    >>> import numpy as np
    >>> from labelwise.theory import plan
    >>> lines = read_plan(plan(np.random.default_rng(0).normal(size=(3000, 4))))
    >>> lines[0]
    'all 4 features are independent; 4.0 directions matter at the stated ridge'
    """
    lines = [*_read_features(plan), _read_leverage(plan)]
    if len(plan.models) > 1:
        lines.append(_read_total(plan))
    lines += [_read_labels(plan), _read_pool(plan)]
    return lines


def _read_features(plan: Plan) -> list[str]:
    texts = []
    for number, model in enumerate(plan.models, 1):
        name = f"model {number}: " if len(plan.models) > 1 else ""
        full = model.rank == model.columns
        whole = f"all {model.columns}" if full else f"{model.rank} of {model.columns}"
        texts.append(
            f"{name}{whole} features are independent; {model.effective_dimension:.1f} directions "
            "matter at the stated ridge"
        )
    return texts


def _read_leverage(plan: Plan) -> str:
    worst = max(plan.models, key=lambda model: model.max_over_mean)
    text = f"the top 1 % of items hold {100 * worst.top_1:.0f} % of the leverage, and one item has "
    text += f"{worst.max_over_mean:.1f} times the mean"
    if worst.max_over_mean < 4:
        return text + ": items are similar, random picks lose little"
    if worst.top_1 < 0.2:
        return text + ": somewhat uneven, weighted picking helps"
    return text + ": a few items carry whole directions that random picks would miss"


def _read_total(plan: Plan) -> str:
    least = max(model.rank for model in plan.models)  # T of models that need the same items
    room = plan.bound - least
    share = (plan.total - least) / room if room > 0 else 1.0
    text = f"T = {plan.total:.1f} for {len(plan.models)} models, {100 * max(share, 0):.0f} % of "
    text += f"the way from the largest rank {least} to the bound {plan.bound:.0f}"
    if share < 0.5:
        return text + ": the models need the same items, one selection serves them all"
    return text + ": the models need different items, sharing a selection saves little"


def _read_labels(plan: Plan) -> str:
    text = f"for an error of {plan.error:g}, start with about {whole(plan.budgets[0].labels):,} "
    sure = [budget for budget in plan.budgets if budget.known and whole(budget.labels) < plan.items]
    if not sure:
        return text + "labels; the bounds ask for the whole pool or more, which is not unusual"
    best = min(sure, key=lambda budget: budget.labels)
    return text + f"labels; {whole(best.labels):,} with {best.method} are enough by its bound"


def _read_pool(plan: Plan) -> str:
    if plan.items >= plan.pool_proved:
        return f"{plan.items:,} items are provably enough to represent their distribution"
    if plan.items >= plan.pool_printed:
        return (
            f"{plan.items:,} items are as many as the bound asks for "
            f"({whole(plan.pool_printed):,}), with its constants taken as 1"
        )
    return (
        f"the bound asks for {whole(plan.pool_printed):,} items but there are "
        f"{plan.items:,}: rare directions may be missing, add unlabelled items"
    )
