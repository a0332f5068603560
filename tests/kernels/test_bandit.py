"""Arm probabilities by hand, step by step, and over many simulated rounds."""

import math

import numpy as np
import pytest

from labelwise.errors import BadInput
from labelwise.kernels.bandit import arm_probabilities, importance_weighted_accuracy


def past(arm, probability, reward):
    return {"arm": arm, "probability": probability, "reward": reward}


def slow_probabilities(rounds, arms, p_min, delta):
    """The multiplicative update as it is written down."""
    count = len(arms)
    weights = dict.fromkeys(arms, 1.0)
    for entry in rounds:
        bound = math.sqrt(math.log(count / delta) / count) / entry["probability"]
        weights[entry["arm"]] *= math.exp(p_min / 2 * (entry["reward"] + bound))
    total = sum(weights.values())
    return [(1 - count * p_min) * weights[arm] / total + p_min for arm in arms]


def test_all_arms_are_alike_at_first():
    np.testing.assert_allclose(arm_probabilities((), ["a", "b", "c", "d"]), 0.25, rtol=1e-15)


def test_two_rounds_worked_by_hand():
    # N = 2, p_min = 1/20, sqrt(ln 20 / 2) = 1.2238734153404083.
    first = arm_probabilities([past("a", 0.5, 0.8)], ["a", "b"])
    grown = math.exp(0.025 * (0.8 + 1.2238734153404083 / 0.5))  # exp(0.0811937)
    assert grown == pytest.approx(1.0845809, abs=1e-6)
    np.testing.assert_allclose(first, [0.9 * grown / (1 + grown) + 0.05, 0.9 / (1 + grown) + 0.05])
    rounds = [past("a", 0.5, 0.8), past("b", first[1], 0.3)]
    other = math.exp(0.025 * (0.3 + 1.2238734153404083 / first[1]))
    expected = 0.9 * np.array([grown, other]) / (grown + other) + 0.05
    np.testing.assert_allclose(arm_probabilities(rounds, ["a", "b"]), expected, rtol=1e-12)


def test_many_rounds_follow_the_rule():
    generator = np.random.default_rng(0)
    arms = ["a", "b", "c"]
    rounds = [
        past(arms[generator.integers(3)], generator.uniform(0.1, 1), generator.uniform(0, 3))
        for _ in range(60)
    ]
    expected = slow_probabilities(rounds, arms, 0.05, 0.2)
    found = arm_probabilities(rounds, arms, p_min=0.05, delta=0.2)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found.sum() == pytest.approx(1, abs=1e-14)


def test_thousands_of_rounds_do_not_overflow():
    rounds = [past("a", 0.05, 20.0)] * 5000
    np.testing.assert_allclose(arm_probabilities(rounds, ["a", "b"]), [0.95, 0.05], rtol=1e-12)


def test_the_better_arm_gains_over_simulated_rounds():
    generator = np.random.default_rng(1)
    arms, rounds, chances = ["good", "bad"], [], []
    for _ in range(400):
        law = arm_probabilities(rounds, arms)
        chances.append(law[0])
        arm = int(generator.random() >= law[0])
        hits = generator.random(200) < (0.9, 0.3)[arm]
        reward = importance_weighted_accuracy(hits, np.full(200, law[arm]))
        rounds.append(past(arms[arm], float(law[arm]), reward))
    assert chances[0] == 0.5
    assert np.mean(chances[-100:]) > 0.8


def test_no_arm_falls_below_the_least_probability():
    rounds = [past("a", 0.9, 5.0)] * 1000
    assert arm_probabilities(rounds, ["a", "b", "c"], p_min=0.02)[1] == pytest.approx(0.02)
    assert arm_probabilities(rounds, ["a", "b"], p_min=0.5).tolist() == [0.5, 0.5]


def test_a_single_arm_is_certain():
    assert arm_probabilities([past("a", 1.0, 0.4)], ["a"]) == pytest.approx([1.0])


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        ([{"arm": "a"}], "round 0 must hold arm, probability, reward and no more"),
        (["a"], "round 0 must hold"),
        ([past("z", 0.5, 1.0)], "round 0 drew 'z', no arm of a, b"),
        ([past("a", 0.5, 1.0), past("a", 0.0, 1.0)], "probability of round 1 must be above 0"),
        ([past("a", 1.5, 1.0)], "probability of round 0 must be above 0 and at most 1; got 1.5"),
        ([past("a", 0.5, math.nan)], "reward of round 0 must be 0 or more; got nan"),
        ([past("a", 0.5, -1.0)], "reward of round 0 must be 0 or more; got -1"),
        ([past("a", 0.5, None)], "reward of round 0 must be a number; got None"),
    ],
)
def test_refuses_a_past_that_cannot_be(rounds, words):
    with pytest.raises(BadInput, match=words):
        arm_probabilities(rounds, ["a", "b"])


@pytest.mark.parametrize("p_min", [-0.1, 0.6, math.nan])
def test_refuses_an_impossible_least_probability(p_min):
    with pytest.raises(BadInput, match="p_min must be from 0 to 1/2 for 2 arms"):
        arm_probabilities((), ["a", "b"], p_min=p_min)


@pytest.mark.parametrize("delta", [0, 1, 2.0, math.nan])
def test_refuses_an_impossible_delta(delta):
    with pytest.raises(BadInput, match="delta must be above 0 and below 1"):
        arm_probabilities((), ["a", "b"], delta=delta)


def test_an_item_counts_more_the_less_likely_its_arm_was():
    assert importance_weighted_accuracy([1, 0, 1], [1, 1, 0.25]) == pytest.approx((1 + 0 + 4) / 3)
    assert importance_weighted_accuracy(np.array([True, False]), np.ones(2)) == 0.5


@pytest.mark.parametrize(
    ("correct", "probabilities", "words"),
    [
        ([1, 0], [1.0], "give one probability per labelled item"),
        ([], [], "give one probability per labelled item"),
        ([0.5], [1.0], "correct must say true or false"),
        ([1], [0.0], "probabilities must be above 0 and at most 1; got 0"),
        ([1], [math.nan], "probabilities must be above 0 and at most 1; got nan"),
    ],
)
def test_refuses_an_impossible_accuracy(correct, probabilities, words):
    with pytest.raises(BadInput, match=words):
        importance_weighted_accuracy(correct, probabilities)
