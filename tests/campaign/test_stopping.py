"""The stopping rules: when they stop, when they do not, and when they say they cannot tell."""

import math
import re
from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from labelwise.blocks import LocalShards, Shard
from labelwise.campaign import stopping
from labelwise.campaign.agreement import cohen_kappa
from labelwise.campaign.events import Asked, Skipped, Started, Told, Trained
from labelwise.campaign.ledger import Ledger, replay
from labelwise.campaign.settings import Settings
from labelwise.campaign.stopping import (
    Advice,
    advise,
    flat_accuracy,
    labelled_spectrum,
    should_stop,
    spectrum_advice,
    spectrum_summary,
    stable_predictions,
)
from labelwise.errors import BadInput
from tests.conftest import make_features
from tests.theory.doctests import run_examples

LABELS = [400, 440, 480, 520, 560, 600]


def test_examples_run():
    run_examples(stopping)


def trained(*metrics, **settings):
    """A ledger with one training per entry, (labels, metrics)."""
    events = [Started(0.0, settings, 10_000)]
    events += [Trained(1.0, i, n, 0.1, m) for i, (n, m) in enumerate(metrics, start=1)]
    return replay(events)


def rule(advice, name):
    (found,) = [one for one in advice if one.rule == name]
    return found


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
    assert not found.stop and not found.judged and "2 of the last 3" in found.says


def test_a_user_may_be_content_with_less():
    kappas = [0.96, 0.97, 0.98]
    assert stable_predictions(kappas, least=0.95).stop and not stable_predictions(kappas).stop
    with pytest.raises(BadInput, match="least must be"):
        stable_predictions(kappas, least=1.5)


def test_a_record_is_judged_by_kappa_where_it_has_it():
    calm = [(n, {"agreement": 0.999, "kappa": 0.5}) for n in LABELS]
    found = rule(advise(trained(*calm), Settings()), "stable")
    assert not found.stop and "mean kappa of 0.500, below 0.99" in found.says
    by_share = [(n, {"agreement": 0.999}) for n in LABELS]
    found = rule(advise(trained(*by_share), Settings()), "stable")
    assert found.stop and "share of equal predictions of 0.999" in found.says


def test_training_again_on_the_same_labels_is_no_news():
    again = [(400, {"kappa": 1.0})] * 6
    assert not rule(advise(trained(*again), Settings()), "stable").judged


# Flat accuracy.


def simulate(error, sizes, items, flips, generator):
    """Accuracies and agreements of models measured on the same items.

    A model errs on the items that are too hard for it, and on a share of others at random.
    """
    hard = generator.uniform(size=items)
    right, accuracy, agreement = None, [], []
    for labels in sizes:
        now = (hard >= error(labels)) ^ (generator.random(items) < flips)
        agreement.append(None if right is None else float(np.mean(now == right)))
        accuracy.append(float(now.mean()))
        right = now
    return accuracy, agreement


def stops(error, items, flips, runs=120):
    """How often the rule stops, and how often a plain one would that sees no new best in three."""
    generator = np.random.default_rng(11)
    ours, plain = [], []
    for _ in range(runs):
        accuracy, agreement = simulate(error, LABELS, items, flips, generator)
        ours.append(flat_accuracy(LABELS, accuracy, [items] * 6, agreement).stop)
        plain.append(max(accuracy[-3:]) <= max(accuracy[:-3]))
    return np.mean(ours), np.mean(plain)


@pytest.mark.parametrize("items", [40, 200, 1000])
@pytest.mark.parametrize("flips", [0.02, 0.1])
def test_noise_does_not_stop_a_curve_that_rises(items, flips):
    # Over the window the accuracy truly rises by three points, more than is worth going on for.
    ours, plain = stops(lambda n: 0.25 - 0.03 * (n - 400) / 200, items, flips)
    assert ours <= 0.07
    if items == 40:
        assert plain > 0.2  # the noise is such that looking for a new best would stop


@pytest.mark.parametrize("items", [200, 1000])
def test_a_rise_that_is_just_worth_it_is_called_flat_once_in_twenty(items):
    ours, _ = stops(lambda n: 0.25 - 0.02 * math.log(n / 400) / math.log(1.5), items, 0.0, runs=400)
    assert ours <= 0.08


def test_a_flat_curve_measured_well_stops():
    ours, _ = stops(lambda n: 0.15, 3000, 0.01, runs=60)
    assert ours > 0.9


def test_a_flat_curve_measured_badly_cannot_be_told_from_a_rising_one():
    found = flat_accuracy(LABELS, [0.8, 0.825, 0.775, 0.8, 0.825, 0.8], [40] * 6, [0.95] * 6)
    assert not found.stop and not found.judged
    assert "on 40 items set aside: too noisy to tell" in found.says


def test_the_same_accuracy_on_a_few_items_is_no_proof():
    found = flat_accuracy(LABELS, [0.9] * 6, [20] * 6, [1.0] * 6)
    assert not found.stop and not found.judged


def test_a_set_without_a_miss_is_not_without_noise():
    assert not flat_accuracy(LABELS, [1.0] * 6, [10] * 6, [1.0] * 6).stop
    assert flat_accuracy(LABELS, [1.0] * 6, [5000] * 6, [1.0] * 6).stop


def test_a_fall_is_called_one_and_stops():
    found = flat_accuracy(LABELS, [0.9, 0.9, 0.899, 0.898, 0.898, 0.897], [9000] * 6, [0.999] * 6)
    assert found.stop and "accuracy fell by 0.3 points (rose by at most" in found.says


def test_a_clear_rise_is_called_one():
    found = flat_accuracy(LABELS, [0.70, 0.72, 0.74, 0.76, 0.78, 0.80], [2000] * 6, [0.95] * 6)
    assert found.judged and not found.stop and "rose by 9.9 points" in found.says


def highest(advice):
    """The rise that is just possible, from the sentence."""
    return float(re.search(r"(?:at most|to) (-?[\d.]+)(?:\)| fits)", advice.says)[1])


def test_an_unknown_agreement_leaves_as_much_open_as_any():
    accuracy = [0.900, 0.902, 0.901, 0.900, 0.901, 0.902]
    known = [flat_accuracy(LABELS, accuracy, [900] * 6, [s] * 6) for s in (1.0, 0.98, 0.9, 0.0)]
    unknown = flat_accuracy(LABELS, accuracy, [900] * 6)
    assert highest(unknown) == max(highest(one) for one in known) > highest(known[0])


def test_the_noise_is_that_of_nested_sets():
    # Twice as many items at the end, the first among them: what they share cancels.
    generator = np.random.default_rng(3)
    accuracy = []
    for _ in range(4000):
        right = generator.random(200) < 0.8
        accuracy.append([right[:100].mean(), right[:150].mean(), right.mean()])
    counts = np.array([100.0, 150.0, 200.0])
    noise = stopping._noise(np.full(3, 0.8), counts, -1.0)  # nothing of its own
    np.testing.assert_allclose(noise, np.cov(np.array(accuracy).T), rtol=0.1)


def test_the_line_is_that_of_generalised_least_squares():
    generator = np.random.default_rng(4)
    x, y = np.sort(generator.random(6)), generator.random(6)
    root = generator.normal(size=(6, 6))
    noise = 100 * (root @ root.T + np.eye(6))  # so large that no scatter exceeds it
    whiten = np.linalg.inv(np.linalg.cholesky(noise))
    design = np.column_stack([np.ones(6), x])
    (_, slope), *_ = np.linalg.lstsq(whiten @ design, whiten @ y)
    error = math.sqrt(np.linalg.inv(design.T @ np.linalg.inv(noise) @ design)[1, 1])
    found = stopping._rise(x, y, noise)
    np.testing.assert_allclose(found, np.array([slope, error]) * (x[-1] - x[0]), rtol=1e-8)


@pytest.mark.parametrize("count", range(4))
def test_fewer_than_four_models_are_too_few(count):
    found = flat_accuracy(LABELS[:count], [0.9] * count, [1000] * count)
    assert not found.stop and not found.judged and "4 are needed" in found.says


def test_entries_that_are_not_finite_or_measured_are_left_out():
    found = flat_accuracy(LABELS, [0.9, math.nan, 0.9, 0.9, 0.9, 0.9], [9, 9, 9, 0, 9, 0])
    assert "3 models were measured" in found.says


def test_models_without_new_labels_are_refused_and_nonsense_too():
    with pytest.raises(BadInput, match="labels must rise"):
        flat_accuracy([100, 100], [0.9, 0.9], [50, 50])
    with pytest.raises(BadInput, match="worth is a rise"):
        flat_accuracy([], [], [], worth=2.0)


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


def picked(ids, weights=None, items=400, validation=()):
    ids = tuple(int(i) for i in ids)
    events = [Started(0.0, {}, items), Asked(1.0, 1, ids, weights, validation=validation)]
    return replay(events + [Told(2.0, i, "a") for i in ids])


def slow_spectrum(features, ids, weights):
    pool = features.T @ features
    chosen = features[ids].T @ np.diag(weights) @ features[ids]
    return np.sort(np.linalg.eigvals(np.linalg.solve(pool, chosen)).real)


def test_the_labelled_items_are_compared_with_the_pool():
    features = make_features(400, 5, 0)
    generator = np.random.default_rng(0)
    ids = generator.choice(400, 60, replace=False)
    weights = generator.uniform(1, 9, 60)
    found = labelled_spectrum(picked(ids, tuple(weights.tolist())), features)
    expected = slow_spectrum(features, ids, weights * 400 / weights.sum())
    np.testing.assert_allclose(found.values, expected, rtol=1e-9)


def test_items_for_measuring_are_not_learned_from_and_do_not_count():
    features = make_features(400, 5, 0)
    found = labelled_spectrum(picked(range(50), validation=(3, 7)), features)
    ids = np.array([i for i in range(50) if i not in (3, 7)])
    expected = slow_spectrum(features, ids, np.full(48, 400 / 48))
    np.testing.assert_allclose(found.values, expected, rtol=1e-9)


def test_ids_need_not_be_row_numbers():
    features = make_features(400, 5, 0)
    shards = LocalShards([Shard(np.arange(400) + 1000, {"features": features})])
    found = labelled_spectrum(picked(range(1000, 1040)), shards)
    expected = slow_spectrum(features, np.arange(40), np.full(40, 10.0))
    np.testing.assert_allclose(found.values, expected, rtol=1e-9)


def test_many_random_labels_are_enough_and_few_are_not():
    features = np.random.default_rng(1).normal(size=(400, 2))
    few, many = picked(range(8)), picked(range(390))
    advice = [advise(one, Settings(), labelled_spectrum(one, features)) for one in (few, many)]
    assert [rule(one, "spectrum").stop for one in advice] == [False, True]
    assert all(rule(one, "spectrum").judged for one in advice)


def test_directions_that_no_label_has_are_counted():
    features = np.eye(4).repeat(100, axis=0)
    found = spectrum_advice(labelled_spectrum(picked(range(150)), features))
    assert not found.stop and found.says.endswith("and nothing of 2 of them")


def test_no_label_and_no_direction_cannot_be_judged():
    assert labelled_spectrum(Ledger(), np.eye(2)) is None
    assert not spectrum_advice(None).judged
    flat = labelled_spectrum(picked(range(3)), np.zeros((400, 2)))
    assert not spectrum_advice(flat).judged
    broken = {"lower": math.nan, "upper": 1.0, "rank": 2, "unseen": 0}
    assert not spectrum_advice(broken).judged


def test_a_spectrum_kept_in_the_record_is_read():
    features = np.random.default_rng(1).normal(size=(400, 2))
    kept = spectrum_summary(labelled_spectrum(picked(range(390)), features))
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
