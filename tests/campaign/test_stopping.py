"""The stopping rules: when they stop, when they do not, and when they say they cannot tell."""

import math
from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from labelwise.campaign.settings import Settings
from labelwise.campaign.stopping import (
    Advice,
    advise,
    should_stop,
    stable_predictions,
)
from labelwise.campaign.training import SPECTRUM_MEASURES
from labelwise.errors import BadInput
from labelwise.record.agreement import cohen_kappa
from labelwise.record.events import Asked, Skipped, Started, Told, Trained
from labelwise.record.ledger import Ledger, replay
from labelwise.selection.result import Selection
from labelwise.theory.spectrum import weighted_spectrum
from tests.campaign.advising import rule

LABELS = [400, 440, 480, 520, 560, 600]


def trained(*metrics, **settings):
    """A ledger with one training per entry, (labels, metrics)."""
    events = [Started(0.0, settings, 10_000)]
    events += [Trained(1.0, i, n, 0.1, m) for i, (n, m) in enumerate(metrics, start=1)]
    return replay(events)


# Budget.


def told(count, items=1000):
    events = [Started(0.0, {}, items), Asked(1.0, 1, tuple(range(items)))]
    return replay(events + [Told(2.0, i, "a", "ann", 6.0) for i in range(count)])


def test_a_spent_budget_stops():
    before = rule(advise(told(99), Settings(budget_labels=100)), "budget")
    after = rule(advise(told(100), Settings(budget_labels=100)), "budget")
    assert (before.stop, after.stop) == (False, True)
    assert after.says == (
        "100 of 100 labels in 0.2 hours (6.0 s each); 100 % is spent, 0 labels are left"
    )


def test_without_a_budget_there_is_nothing_to_judge():
    found = rule(advise(told(10), Settings()), "budget")
    assert not found.stop and not found.judged and found.says.endswith("no budget is set")


def test_a_budget_in_hours_without_times_cannot_be_judged():
    ledger = replay([Started(0.0, {}, 9), Asked(1.0, 1, (0, 1)), Told(2.0, 0, "a")])
    found = rule(advise(ledger, Settings(budget_hours=1.0)), "budget")
    assert not found.stop and not found.judged and "cannot be judged" in found.says


def test_an_exhausted_pool_stops_without_a_budget():
    ledger = told(7, items=9)
    ledger.extend([Skipped(3.0, 7, "ann"), Skipped(3.0, 8, "ann")])
    found = rule(advise(ledger, Settings()), "budget")
    assert found.stop and found.says == "all 9 items are labelled or skipped"


# Stable predictions.


def slow_stop(kappas, least, window):
    """The first model at which the mean of the last comparisons reaches the threshold."""
    for end in range(window, len(kappas) + 1):
        if np.mean(kappas[end - window : end]) >= least:
            return end
    return None


def successive_models(seed, models=25, items=2000, classes=3):
    """Predictions that change less and less, and the kappas between them."""
    generator = np.random.default_rng(seed)
    predictions = [generator.integers(classes, size=items)]
    for number in range(1, models):
        moved = generator.random(items) < 0.6 * 0.75**number
        drawn = generator.integers(classes, size=items)
        predictions.append(np.where(moved, drawn, predictions[-1]))
    return predictions


@pytest.mark.parametrize("seed", range(3))
def test_it_stops_where_the_mean_kappa_of_scikit_learn_reaches_the_threshold(seed):
    models = successive_models(seed)
    pairs = list(pairwise(models))
    kappas = [cohen_kappa(a, b) for a, b in pairs]
    stops = [stable_predictions(kappas[:end]).stop for end in range(len(kappas) + 1)]
    expected = slow_stop([cohen_kappa_score(a, b) for a, b in pairs], 0.99, 3)
    assert expected is not None and expected > 5
    assert stops.index(True) == expected and all(stops[expected:])


def test_one_calm_comparison_is_not_enough():
    assert not stable_predictions([0.7, 0.7, 1.0]).stop
    assert not stable_predictions([1.0, 1.0]).judged


@pytest.mark.parametrize("unknown", [None, math.nan])
def test_models_that_know_one_class_only_cannot_be_compared(unknown):
    found = stable_predictions([0.999, unknown, 0.999])
    assert not found.stop and not found.judged and "2 of the 3 comparisons" in found.says


def test_a_user_may_be_content_with_less():
    kappas = [0.96, 0.97, 0.98]
    assert stable_predictions(kappas, least=0.95).stop and not stable_predictions(kappas).stop
    with pytest.raises(BadInput, match="least must be"):
        stable_predictions(kappas, least=1.5)


def test_a_record_is_judged_by_kappa_where_it_has_it():
    calm = [(n, {"agreement": 0.999, "kappa": 0.5}) for n in LABELS]
    found = rule(advise(trained(*calm), Settings()), "stable")
    assert not found.stop and "mean kappa 0.500, below 0.99" in found.says
    by_share = [(n, {"agreement": 0.999}) for n in LABELS]
    found = rule(advise(trained(*by_share), Settings()), "stable")
    assert found.stop and "share of equal predictions 0.999" in found.says


def test_training_again_on_the_same_labels_is_no_news():
    again = [(400, {"kappa": 1.0})] * 6
    assert not rule(advise(trained(*again), Settings()), "stable").judged


# Flat accuracy.


def test_a_record_with_items_set_aside_is_judged():
    metrics = {"accuracy": 0.9, "validation_labels": 5000, "agreement": 0.999}
    found = rule(advise(trained(*[(n, metrics) for n in LABELS]), Settings()), "flat")
    assert found.stop and "over the last 6 models (400 to 600 labels)" in found.says


@pytest.mark.parametrize("rate, stop", [(0.0, True), (1.0, False)])
def test_squared_errors_are_judged_by_their_scatter(rate, stop):
    generator = np.random.default_rng(0)
    metrics = [
        (n, {"mse": 7.0 * (n / 600) ** -rate * math.exp(0.005 * generator.normal())})
        for n in LABELS
    ]
    found = rule(advise(trained(*metrics), Settings(regression=True)), "flat")
    assert found.judged and found.stop is stop and "the mean squared error fell by" in found.says
    if not stop:
        assert f"fell by {100 * (1 - 400 / 600):.0f}" in found.says


def test_scattered_squared_errors_cannot_be_judged():
    metrics = [(n, {"mse": mse}) for n, mse in zip(LABELS, (5, 9, 6, 8, 5, 7), strict=True)]
    found = rule(advise(trained(*metrics), Settings(regression=True)), "flat")
    assert not found.stop and not found.judged


# Spectrum.


def test_a_spectrum_kept_in_the_record_is_read():
    features = np.random.default_rng(1).normal(size=(400, 2))
    found = weighted_spectrum(Selection(np.arange(390)), features)
    kept = {name: getattr(found, name) for name in SPECTRUM_MEASURES}
    ledger = trained((390, {"spectrum": kept}))
    assert rule(advise(ledger, Settings()), "spectrum").stop


# All together.


@pytest.mark.parametrize(
    "said, expected",
    [
        ({}, False),
        ({"budget": True, "stable": False}, True),
        ({"budget": False, "stable": True}, True),
        ({"stable": True, "flat": None}, True),
        ({"stable": True, "flat": False}, False),
        ({"stable": False, "flat": True, "spectrum": True}, False),
        ({"stable": True, "flat": True, "spectrum": False}, True),
        ({"stable": None, "flat": None, "spectrum": True}, True),
        ({"budget": None, "stable": None, "flat": None, "spectrum": None}, False),
    ],
)
def test_all_that_judge_the_model_must_agree_and_the_budget_overrules(said, expected):
    advice = [Advice(name, bool(stop), "...", stop is not None) for name, stop in said.items()]
    assert should_stop(advice) is expected


def test_an_empty_campaign_gets_four_sentences_and_goes_on():
    found = advise(Ledger(), Settings())
    assert [one.rule for one in found] == ["budget", "stable", "flat", "spectrum"]
    assert not should_stop(found) and not any(one.judged or one.stop for one in found)
    assert all(one.says and "\n" not in one.says and one.says[-1] != "." for one in found)
