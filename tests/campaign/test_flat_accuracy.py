"""Whether the accuracy is flat: on simulated curves, and against the definitions."""

import math
import re

import numpy as np
import pytest

from labelwise.campaign import stopping
from labelwise.campaign.stopping import (
    flat_accuracy,
)
from labelwise.errors import BadInput

LABELS = [400, 440, 480, 520, 560, 600]


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
    assert "on 40 held-out labels: too noisy to tell" in found.says


def test_the_same_accuracy_on_a_few_items_is_no_proof():
    found = flat_accuracy(LABELS, [0.9] * 6, [20] * 6, [1.0] * 6)
    assert not found.stop and not found.judged


def test_a_set_without_a_miss_is_not_without_noise():
    assert not flat_accuracy(LABELS, [1.0] * 6, [10] * 6, [1.0] * 6).stop
    assert flat_accuracy(LABELS, [1.0] * 6, [5000] * 6, [1.0] * 6).stop


def test_a_large_fall_is_not_flat():
    labels, counts = [100, 120, 140, 160, 180], [40] * 5
    fallen = flat_accuracy(labels, [0.90, 0.80, 0.68, 0.56, 0.48], counts, [0.8] * 5)
    assert fallen.judged and not fallen.stop
    assert "accuracy fell by" in fallen.says and "it got worse" in fallen.says
    unclear = flat_accuracy(labels, [0.90, 0.82, 0.91, 0.80, 0.84], counts, [0.8] * 5)
    assert not unclear.stop and not unclear.judged


def test_a_small_fall_is_called_one_and_stops():
    found = flat_accuracy(LABELS, [0.9, 0.9, 0.899, 0.898, 0.898, 0.897], [9000] * 6, [0.999] * 6)
    assert found.stop and "accuracy fell by 0.3 points over" in found.says


def test_a_clear_rise_is_called_one():
    found = flat_accuracy(LABELS, [0.70, 0.72, 0.74, 0.76, 0.78, 0.80], [2000] * 6, [0.95] * 6)
    assert found.judged and not found.stop and "rose by 9.9 points" in found.says


def highest(advice):
    """The rise that is just possible, from the sentence."""
    return float(re.search(r"(?:at most|interval from \S+ to) (-?[\d.]+)", advice.says)[1])


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
    noise = stopping._holdout_covariance(np.full(3, 0.8), counts, -1.0)  # nothing of its own
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
    found = stopping._fit_accuracy_rise(x, y, noise)
    np.testing.assert_allclose(found, np.array([slope, error]) * (x[-1] - x[0]), rtol=1e-8)


@pytest.mark.parametrize("count", range(4))
def test_fewer_than_four_models_are_too_few(count):
    found = flat_accuracy(LABELS[:count], [0.9] * count, [1000] * count)
    assert not found.stop and not found.judged and "of the 4 models" in found.says


def test_entries_that_are_not_finite_or_measured_are_left_out():
    found = flat_accuracy(LABELS, [0.9, math.nan, 0.9, 0.9, 0.9, 0.9], [9, 9, 9, 0, 9, 0])
    assert "3 of the 4 models needed were evaluated" in found.says


def test_models_without_new_labels_are_refused_and_nonsense_too():
    with pytest.raises(BadInput, match="labels must rise"):
        flat_accuracy([100, 100], [0.9, 0.9], [50, 50])
    with pytest.raises(BadInput, match="worth is a rise"):
        flat_accuracy([], [], [], worth=2.0)
