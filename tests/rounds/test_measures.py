"""Intervals and agreement, against their definitions."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix, f1_score

from labelwise.rounds import (
    count_confusions,
    measure_agreement,
    measure_baseline,
    measure_classes,
    measure_out_of_fold,
    measure_predictions,
    rank_suspicious_labels,
    wilson_interval,
)


@pytest.mark.parametrize("count", [1, 7, 50, 1000])
def test_wilsons_interval_is_scipys(count):
    for hits in {0, 1, count // 3, count - 1, count}:
        expected = binomtest(hits, count).proportion_ci(method="wilson")
        found = wilson_interval(hits, count)
        assert found == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_interval_of_a_squared_error_is_that_of_a_mean():
    generator = np.random.default_rng(0)
    errors = generator.normal(size=400) ** 2
    found = measure_predictions((errors**0.5).tolist(), [0.0] * 400, regression=True)
    half = 1.959964 * errors.std(ddof=1) / 20
    assert found["mse"] == pytest.approx(errors.mean())
    assert found["interval"] == pytest.approx([errors.mean() - half, errors.mean() + half])
    assert measure_predictions([1.0], [3.0], regression=True) == {"mse": 4.0}


def test_agreement_is_the_share_of_equal_classes_or_of_common_variance():
    assert measure_agreement(["a", "b", "a", "c"], ["a", "b", "b", "c"]) == 0.75
    old, new = [0.0, 1.0, 2.0], [0.0, 1.0, 2.0 + 1.5]
    found = measure_agreement(old, new, regression=True)
    assert found == pytest.approx(1 - (1.5**2 / 3) / np.var(new))
    assert measure_agreement([5.0, -9.0], [1.0, 2.0], regression=True) == 0.0
    assert measure_agreement([1.0, 1.0], [1.0, 1.0], regression=True) == 1.0
    assert measure_agreement([2.0, 1.0], [1.0, 1.0], regression=True) == 0.0


def test_out_of_fold_values_are_compared_with_their_mean():
    found = measure_out_of_fold([[1.0], [2.0]], [[1.0], [3.0]], regression=True)
    assert found == {"mse": 0.5, "baseline": 1.0, "r2": 0.5, "labels": 2}
    assert measure_out_of_fold([[2.0, 1.0], [0.0, 1.0]], [0, 0])["accuracy"] == 0.5
    assert measure_baseline([2.0, 2.0], 2.0, 0.1) == {}


@pytest.mark.parametrize("seed", range(3))
def test_class_measures_are_those_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    labels, predicted = rng.choice([0, 1, 3], 40), rng.choice([0, 1, 4], 40)
    counts = count_confusions(predicted, labels, 6)
    assert counts.tolist() == confusion_matrix(labels, predicted, labels=range(6)).tolist()
    found = measure_classes(counts)
    recalls = [np.mean(predicted[labels == one] == one) for one in (0, 1, 3)]
    assert found["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    assert found["macro_f1"] == pytest.approx(f1_score(labels, predicted, average="macro"))


def test_suspicious_labels_are_the_least_probable_ones_that_differ_from_the_prediction():
    rng = np.random.default_rng(3)
    logits, targets = rng.normal(size=(50, 4)), rng.integers(4, size=50)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = sorted(
        (chances[row, targets[row]], row, int(chances[row].argmax()))
        for row in range(50)
        if chances[row].argmax() != targets[row]
    )
    found = rank_suspicious_labels(logits, targets, 10)
    assert [(one.row, one.predicted) for one in found] == [entry[1:] for entry in expected[:10]]
    assert [one.probability for one in found] == pytest.approx([one[0] for one in expected[:10]])
