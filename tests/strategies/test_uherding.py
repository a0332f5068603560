"""UHerding: coverage weighted by the uncertainty of the model."""

import numpy as np
import pytest

import labelwise
from labelwise.kernels.calibration import calibrate_temperature, softmax
from labelwise.strategies import get
from labelwise.strategies.uherding import measure_uncertainty
from labelwise.strategy import History, PickFacts
from tests.conftest import make_features, make_probabilities
from tests.kernels.coverage_reference import cover


def slow_uncertainty(probabilities):
    ordered = np.sort(probabilities, axis=1)
    return 1 - (ordered[:, -1] - ordered[:, -2])


def make_logits(n, k=3, seed=0):
    return 4 * np.random.default_rng(seed).normal(size=(n, k))


@pytest.mark.parametrize("seed", range(3))
def test_matches_the_slow_version(seed):
    features, logits = make_features(200, 5, seed), make_logits(200, seed=seed)
    weights = slow_uncertainty(softmax(logits, 2.5))
    expected, gains = cover(features, 25, weights, (7, 90))
    given = {"features": features, "logits": logits, "labelled": [7, 90], "temperature": 2.5}
    found = labelwise.select("uherding", 25, **given)
    assert found.ids.tolist() == expected
    np.testing.assert_allclose(found.scores, gains, rtol=0, atol=1e-13)


def test_probabilities_are_sharpened_and_flattened_like_logits():
    logits = make_logits(50)
    for temperature in (0.5, 1.0, 7.0):
        from_logits = measure_uncertainty({"logits": logits}, temperature)
        from_chances = measure_uncertainty({"probabilities": softmax(logits)}, temperature)
        np.testing.assert_allclose(from_chances, from_logits, rtol=1e-9)
        np.testing.assert_allclose(from_logits, slow_uncertainty(softmax(logits, temperature)))


def test_a_probability_of_0_is_no_error():
    chances = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    assert measure_uncertainty({"probabilities": chances}, 3.0).tolist() == [0.0, 1.0]


def test_without_predictions_or_with_one_class_it_is_max_herding():
    features = make_features(100, 4)
    expected = labelwise.select("max_herding", 10, features=features).ids.tolist()
    assert labelwise.select("uherding", 10, features=features).ids.tolist() == expected
    one = {"features": features, "logits": np.zeros((100, 1))}
    assert labelwise.select("uherding", 10, **one).ids.tolist() == expected


def test_items_that_the_model_is_sure_about_need_no_cover():
    features = np.repeat(np.eye(2), [60, 20], axis=0)
    features += 0.01 * np.random.default_rng(0).normal(size=features.shape)
    chances = np.repeat([[1.0, 0.0], [0.5, 0.5]], [60, 20], axis=0)
    picks = labelwise.select("uherding", 1, features=features, probabilities=chances).ids
    assert picks[0] >= 60


def test_five_copies_of_every_item_give_the_picks_of_one():
    features, chances = make_features(80, 4), make_probabilities(80, 3)
    once = labelwise.select("uherding", 9, features=features, probabilities=chances).ids
    five = {"features": np.tile(features, (5, 1)), "probabilities": np.tile(chances, (5, 1))}
    assert labelwise.select("uherding", 9, **five).ids.tolist() == once.tolist()


def trained(**more):
    return History(trained=True, **more)


def test_the_temperature_is_fitted_out_of_fold():
    logits, targets = make_logits(12), np.arange(12) % 3
    history = trained(evaluate_out_of_fold=lambda: (logits, targets))
    fitted = calibrate_temperature(logits, targets)
    assert get("uherding").adapt(history)["temperature"] == min(max(fitted, 1.0), 20.0)


def test_the_temperature_is_at_least_1():
    logits, targets = 0.1 * np.eye(3)[np.arange(12) % 3], np.arange(12) % 3
    history = trained(evaluate_out_of_fold=lambda: (logits, targets))
    assert get("uherding").adapt(history)["temperature"] == 1.0


def test_the_holdout_serves_without_predictions_out_of_fold():
    logits, targets = make_logits(6), np.arange(6) % 3
    history = trained(evaluate_holdout=lambda: (logits, targets))
    fitted = calibrate_temperature(logits, targets)
    assert get("uherding").adapt(history) == {"temperature": min(max(fitted, 1.0), 20.0)}


@pytest.mark.parametrize("found", [None, (make_logits(5), np.arange(5) % 3)])
def test_with_fewer_than_two_labels_a_class_weights_are_even(found):
    history = trained(evaluate_out_of_fold=lambda: found, evaluate_holdout=lambda: found)
    assert get("uherding").adapt(history)["temperature"] == 20.0


def test_labels_of_classes_are_counted_out_of_fold():
    logits, targets = make_logits(5), np.array([2, 0, 2, 2, 0])
    history = trained(evaluate_out_of_fold=lambda: (logits, targets))
    assert get("uherding").adapt(history)["label_counts"] == [2, 0, 3]
    mine = trained(evaluate_out_of_fold=lambda: (logits, targets), options={"label_counts": None})
    assert "label_counts" not in get("uherding").adapt(mine)
    holdout = trained(evaluate_holdout=lambda: (logits, targets))
    assert "label_counts" not in get("uherding").adapt(holdout)


@pytest.mark.parametrize("name", ["logits", "probabilities"])
def test_classes_with_few_labels_weigh_more(name):
    features, logits, counts = make_features(200, 5), make_logits(200), [30, 0, 3]
    chances = softmax(logits)
    need = [
        sum(p * np.sqrt((np.mean(counts) + 1) / (c + 1)) for p, c in zip(row, counts, strict=True))
        for row in chances
    ]
    expected, gains = cover(features, 25, slow_uncertainty(chances) * need, (7, 90))
    given = {"features": features, name: chances if name == "probabilities" else logits}
    found = labelwise.select("uherding", 25, **given, labelled=[7, 90], label_counts=counts)
    assert found.ids.tolist() == expected
    np.testing.assert_allclose(found.scores, gains, rtol=0, atol=1e-12)


def test_equal_numbers_of_labels_change_nothing():
    given = {"features": make_features(100, 4), "logits": make_logits(100)}
    plain, equal = (
        labelwise.select("uherding", 9, **given, label_counts=counts).ids.tolist()
        for counts in (None, [4, 4, 4])
    )
    assert plain == equal


@pytest.mark.parametrize(
    ("counts", "message"),
    [([1, 2], "label_counts has 2 numbers"), ([1, -1, 0], "must be numbers of labels")],
)
def test_bad_numbers_of_labels_are_refused(counts, message):
    given = {"features": make_features(20, 4), "logits": make_logits(20)}
    with pytest.raises(labelwise.BadInput, match=message):
        labelwise.select("uherding", 3, **given, label_counts=counts)


def test_a_temperature_of_the_user_is_left_alone():
    assert get("uherding").adapt(trained(options={"temperature": 3.0})) == {}


def test_says_that_the_items_it_represents_are_uncertain():
    facts = PickFacts(0, 4, trained=True, score=0.01, info={"candidates": 900, "mean_weight": 0.3})
    assert "about 9 uncertain unlabelled items" in get("uherding").explain_pick(facts)


def test_a_temperature_of_0_is_refused():
    with pytest.raises(labelwise.BadInput, match="temperature must be a number above 0; got 0"):
        labelwise.select("uherding", 1, features=np.eye(3), temperature=0)
