"""ALBL: the law of the arms, and that an arm chooses what it would choose alone."""

import json

import numpy as np
import pytest
from scipy import stats

import labelwise
from labelwise.errors import BadInput, UnknownName
from labelwise.kernels.bandit import arm_probabilities
from tests.conftest import make_features, make_probabilities

FEATURES, PROBABILITIES = make_features(50, 5), make_probabilities(50, 3)
ROUNDS = [
    {"arm": "confidence", "probability": 0.5, "reward": 4.0},
    {"arm": "confidence", "probability": 0.55, "reward": 9.0},
    {"arm": "k_center", "probability": 0.4, "reward": 1.0},
]


def choose(budget=6, **arguments):
    given = {"features": FEATURES, "probabilities": PROBABILITIES, "labelled": [3, 30]}
    return labelwise.select("bandit", budget, **(given | arguments))


@pytest.mark.parametrize("seed", range(6))
def test_the_drawn_arm_chooses_as_it_would_alone(seed):
    picks = choose(seed=seed)
    arm = picks.info["arm"]
    given = {"features": FEATURES} if arm == "k_center" else {"probabilities": PROBABILITIES}
    alone = labelwise.select(arm, 6, **given, labelled=[3, 30], seed=seed)
    assert picks.ids.tolist() == alone.ids.tolist()
    np.testing.assert_array_equal(picks.scores, alone.scores)


def test_tells_the_arm_and_the_probabilities_of_all():
    picks = choose(rounds=ROUNDS)
    law = arm_probabilities(ROUNDS, ["k_center", "confidence"])
    assert list(picks.info["probabilities"]) == ["k_center", "confidence"]
    np.testing.assert_allclose(list(picks.info["probabilities"].values()), law, rtol=1e-15)
    assert picks.info["probability"] == picks.info["probabilities"][picks.info["arm"]]
    json.dumps(dict(picks.info), allow_nan=False)


def test_arms_are_drawn_by_their_probabilities():
    arms = ("k_center", "confidence", "random")
    law = arm_probabilities(ROUNDS, arms, p_min=0.2, delta=0.1)
    drawn = [choose(1, arms=arms, rounds=ROUNDS, p_min=0.2, seed=s).info["arm"] for s in range(300)]
    counts = [drawn.count(arm) for arm in arms]
    assert stats.chisquare(counts, 300 * law).pvalue > 1e-3
    assert stats.chisquare(counts).pvalue < 1e-3  # the past matters


def test_the_draw_depends_on_the_seed_and_the_number_of_rounds_alone():
    even = [{"arm": arm, "probability": 0.5, "reward": 1.0} for arm in ("k_center", "confidence")]
    for seed in range(20):
        forward, backward = (
            choose(1, rounds=even, seed=seed),
            choose(1, rounds=even[::-1], seed=seed),
        )
        assert forward.info["arm"] == backward.info["arm"]
    by_length = {
        tuple(choose(1, rounds=even * n, seed=s).info["arm"] for s in range(12)) for n in range(4)
    }
    assert len(by_length) == 4


def test_an_arm_that_is_rewarded_is_drawn_more_often():
    rounds, drawn = [], []
    for number in range(150):
        picks = choose(1, rounds=rounds, p_min=0.2, seed=number)
        drawn.append(picks.info["arm"] == "confidence")
        reward = (1.0 if drawn[-1] else 0.2) / picks.info["probability"]
        rounds.append(
            {"arm": picks.info["arm"], "probability": picks.info["probability"], "reward": reward}
        )
    assert picks.info["probabilities"]["confidence"] > 0.75
    assert np.mean(drawn[-50:]) > np.mean(drawn[:20])


def test_other_arms_read_what_they_need():
    entropy = labelwise.select("bandit", 4, probabilities=PROBABILITIES, arms=("entropy", "margin"))
    assert entropy.info["arm"] in ("entropy", "margin")
    picks = labelwise.select("bandit", 5, features=FEATURES, arms={"lewis": {"p": 1.0}})
    alone = labelwise.select("lewis", 5, features=FEATURES, p=1.0)
    assert picks.ids.tolist() == alone.ids.tolist()
    np.testing.assert_array_equal(picks.weights, alone.weights)
    assert picks.info["arm_info"].keys() <= alone.info.keys()


def test_what_an_arm_needs_must_be_given():
    with pytest.raises(BadInput, match="bandit needs features and member_probabilities; got"):
        choose(arms=("k_center", "bald"))
    strategy = labelwise.strategies()["bandit"].with_options(arms=("k_center", "bald"))
    assert strategy.needs == ("features", "member_probabilities") and not strategy.or_needs


@pytest.mark.parametrize("broken", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["features", "probabilities"])
def test_rows_that_the_drawn_arm_does_not_read_are_checked_too(name, broken):
    rows = {"features": FEATURES, "probabilities": PROBABILITIES}[name].copy()
    rows[23, 1] = broken
    assert len({choose(1, seed=seed).info["arm"] for seed in range(6)}) == 2
    for seed in range(6):
        with pytest.raises(BadInput, match=f"{name} of item 23"):
            choose(seed=seed, **{name: rows})


def test_arms_and_rounds_may_be_texts_of_the_command_line():
    rounds = json.dumps([entry | {"arm": "badge"} for entry in ROUNDS[:1]])
    picks = choose(arms="badge, random", rounds=rounds)
    law = arm_probabilities(json.loads(rounds), ["badge", "random"])
    assert list(picks.info["probabilities"].values()) == pytest.approx(law)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"arms": ("k_center", "bandit")}, BadInput, "bandit cannot be an arm of itself"),
        ({"arms": ()}, BadInput, "bandit needs one arm or more"),
        ({"arms": ("random", "random")}, BadInput, "every arm can be given once"),
        ({"arms": ("bagde",)}, UnknownName, "no strategy is called 'bagde'"),
        ({"arms": {"badge": {"q": 1}}}, UnknownName, "badge has no option 'q'"),
        ({"rounds": 3}, BadInput, "rounds must be a list of past rounds; got 3"),
        ({"rounds": "[{]"}, BadInput, "rounds is not readable as JSON"),
        ({"rounds": [{"arm": "badge"}]}, BadInput, "round 0 must hold arm, probability, reward"),
        ({"p_min": 0.7}, BadInput, "p_min must be from 0 to 1/2"),
        ({"delta": 0.0}, BadInput, "delta must be above 0 and below 1"),
        ({"p_min": "x"}, BadInput, "p_min must be from 0 to 1/2 for 2 arms; got 'x'"),
        ({"delta": "x"}, BadInput, "delta must be above 0 and below 1; got 'x'"),
    ],
)
def test_refuses_options_that_make_no_sense(options, error, words):
    with pytest.raises(error, match=words):
        choose(**options)
