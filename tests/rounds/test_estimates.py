"""Accuracy from few labels and many predictions, against its definition and by simulation."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import binomtest, norm

from labelwise.errors import BadInput
from labelwise.rounds import estimate_accuracy


def draw_items(rng, count, ease=(6.0, 2.0)):
    """Whether predictions are right, and confidences that are related but not calibrated."""
    chance = rng.beta(*ease, size=count)
    return rng.random(count) < chance, chance**1.5


@pytest.mark.parametrize("seed", range(5))
def test_the_estimate_has_the_smallest_variance_and_a_score_interval(seed):
    rng = np.random.default_rng(seed)
    correct, confidence = draw_items(rng, 60)
    others = draw_items(rng, 300)[1]
    found = estimate_accuracy(correct, confidence, others)

    def variance(power):
        residual = [c - power * p for c, p in zip(correct, confidence, strict=True)]
        return np.var(residual) / 60 + power**2 * np.var(confidence) / 300

    power = minimize_scalar(variance, bounds=(0, 1), method="bounded").x
    assert found.power == pytest.approx(power, abs=1e-4) and 0 < power < 1
    value = np.mean(correct) + found.power * (np.mean(others) - np.mean(confidence))
    assert found.value == pytest.approx(value)
    error = np.var(correct - found.power * confidence) * 59 / 58 / 60
    error += found.power**2 * np.var(others) / 300
    assert found.effective_labels == pytest.approx(np.var(correct) / error)
    # Both ends are 1.96 standard deviations, as if they were the truth, from the estimate.
    for end in (found.low, found.high):
        deviation = np.sqrt(end * (1 - end) / found.effective_labels)
        assert abs(end - value) == pytest.approx(norm.ppf(0.975) * deviation)


@pytest.mark.parametrize(
    ("correct", "confidence", "others"),
    [
        ([1, 1, 0, 1, 0], [0.9, 0.8, 0.4, 0.7, 0.5], []),
        ([1] * 20, np.linspace(0.5, 1, 20), [0.9] * 100),
        ([0] * 5, np.linspace(0.5, 1, 5), [0.9] * 100),
        ([1, 0, 1, 1], [0.5] * 4, [0.9] * 100),
        ([1, 0, 0, 1], [0.2, 0.9, 0.8, 0.3], [0.9] * 100),  # confidence misleads
        ([1, 0], [0.9, 0.5], [0.9] * 100),
    ],
)
def test_without_useful_predictions_it_is_wilsons_interval(correct, confidence, others):
    found = estimate_accuracy(correct, confidence, others)
    expected = binomtest(sum(correct), len(correct)).proportion_ci(method="wilson")
    assert found.value == sum(correct) / len(correct)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert (found.labels, found.effective_labels, found.power) == (len(correct), len(correct), 0)


@pytest.mark.parametrize("count", [20, 60])
@pytest.mark.parametrize("ease", [(6.0, 2.0), (9.5, 0.5)])
def test_95_percent_intervals_contain_the_truth_and_are_narrower(count, ease):
    rng, truth = np.random.default_rng(7), ease[0] / sum(ease)
    with_predictions, alone = [], []
    for _ in range(600):
        correct, confidence = draw_items(rng, count, ease)
        with_predictions.append(
            estimate_accuracy(correct, confidence, draw_items(rng, 500, ease)[1])
        )
        alone.append(estimate_accuracy(correct, confidence))
    covered = np.mean([one.low <= truth <= one.high for one in with_predictions])
    assert covered > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 600)
    widths = [[one.high - one.low for one in group] for group in (with_predictions, alone)]
    assert np.mean(widths[0]) < np.mean(widths[1])


def test_labels_and_confidences_must_match():
    with pytest.raises(BadInput, match="3 labels and 2 confidences"):
        estimate_accuracy([1, 0, 1], [0.5, 0.6])
    with pytest.raises(BadInput, match="0 labels"):
        estimate_accuracy([], [])
