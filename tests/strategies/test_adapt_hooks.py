"""Options that follow from the history of a campaign or of a benchmark run."""

import numpy as np
import pytest

import labelwise
from labelwise.kernels.bandit import importance_weighted_accuracy
from labelwise.kernels.calibration import calibrate_temperature
from labelwise.strategies import get
from labelwise.strategy import History, PastBatch

SPARSE = ["sparse_greedy", "sparse_iht"]
UNFITTED = {"temperature": 1.1}
HITS = [True, True, False, True, True]


def draw(ids, arm, probability, **options):
    return PastBatch("bandit", options, ids, {"arm": arm, "probability": probability})


def bandit_history(*batches, **more):
    labelled = (1, 2, 3, 4, 5)
    return History(
        trained=True, batches=batches, labelled=labelled, evaluate_labelled=lambda: HITS, **more
    )


def holdout(count):
    generator = np.random.default_rng(count)
    return generator.normal(size=(count, 3)) * 4, generator.integers(3, size=count)


@pytest.mark.parametrize("name", labelwise.strategies())
def test_without_a_model_no_option_is_set(name):
    assert get(name).adapt(History()) == {}


def test_a_bandit_starts_without_rounds():
    first = PastBatch("random", {}, (1, 2), {})
    assert get("bandit").adapt(bandit_history(first)) == {"rounds": []}
    assert get("bandit").adapt(bandit_history()) == {"rounds": []}


def test_the_reward_of_a_round_weighs_items_by_the_arm_that_picked_them():
    first = PastBatch("random", {}, (1, 2), {})
    past = draw((3, 4), "k_center", 0.25)
    (latest,) = get("bandit").adapt(bandit_history(first, past))["rounds"]
    reward = importance_weighted_accuracy(HITS, [1, 1, 0.25, 0.25, 1])
    assert latest == {"arm": "k_center", "probability": 0.25, "reward": pytest.approx(reward)}


def test_a_round_is_added_to_those_that_the_last_batch_was_drawn_with():
    before = [{"arm": "confidence", "probability": 0.5, "reward": 0.7}]
    batches = (draw((1, 2), "confidence", 0.5), draw((3, 4), "k_center", 0.6, rounds=before))
    rounds = get("bandit").adapt(bandit_history(*batches))["rounds"]
    assert rounds[:1] == before and [past["arm"] for past in rounds] == ["confidence", "k_center"]
    reward = importance_weighted_accuracy(HITS, [0.5, 0.5, 0.6, 0.6, 1])
    assert rounds[1]["reward"] == pytest.approx(reward)


def test_a_bandit_forgets_its_rounds_if_the_model_cannot_predict():
    history = History(trained=True, batches=(draw((1,), "k_center", 0.5),), labelled=(1,))
    assert get("bandit").adapt(history) == {"rounds": []}


def test_rounds_given_by_the_user_are_left_alone():
    history = bandit_history(draw((1, 2), "k_center", 0.5), options={"rounds": []})
    assert get("bandit").adapt(history) == {}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_strategies_fit_a_temperature_to_20_held_out_items(name):
    history = History(trained=True, evaluate_holdout=lambda: holdout(20))
    assert get(name).adapt(history) == {"temperature": calibrate_temperature(*holdout(20))}


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("found", [None, holdout(19)])
def test_sparse_strategies_take_a_fixed_temperature_without_enough_held_out_items(name, found):
    assert get(name).adapt(History(trained=True, evaluate_holdout=lambda: found)) == UNFITTED


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("given", [{"temperature": 2.0}, {"rho": 0.3}, {"label_law": "calibrated"}])
def test_a_label_law_given_by_the_user_is_left_alone(name, given):
    history = History(options=given, trained=True, evaluate_holdout=lambda: holdout(50))
    assert get(name).adapt(history) == {}
