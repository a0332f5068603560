"""Which labels stand, against slow twins and simulated annotators."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.errors import BadInput
from labelwise.record.resolution import (
    estimate_reliability,
    resolve_weighted,
)
from labelwise.record.votes import majority_label
from tests.record.crowds import crowd


def test_the_majority_stands_and_a_tie_stays_open():
    assert majority_label({"a": 1, "b": 2, "c": 2}) == 2
    assert majority_label({"a": 1, "b": 2}) is None
    assert majority_label({}) is None


def test_numbers_take_the_median():
    assert majority_label({"a": 1.0, "b": 2.0, "c": 90.0}, regression=True) == 2.0
    assert majority_label({"a": 1, "b": 2}, regression=True) == 1.5


@pytest.mark.parametrize("seed", range(3))
def test_weighing_recovers_how_often_each_annotator_is_right(seed):
    accuracies = [0.95, 0.9, 0.8, 0.7, 0.45]
    votes, truth = crowd(1500, accuracies, 4, 3, seed)
    found = resolve_weighted(votes, sure=0.51)
    estimates = [found.reliability[f"p{person}"] for person in range(5)]
    np.testing.assert_allclose(estimates, accuracies, atol=0.05)
    right = np.mean([found.labels.get(i) == truth[i] for i in votes])
    by_majority = np.mean([majority_label(votes[i]) == truth[i] for i in votes])
    assert right > by_majority + 0.03


@pytest.mark.parametrize("seed", range(3))
def test_the_probabilities_are_those_that_come_true(seed):
    votes, truth = crowd(3000, [0.9, 0.8, 0.6, 0.55], 3, 2, seed)
    found = resolve_weighted(votes, sure=0.51)
    sure = {item: found.confidence[item] for item in found.labels}
    right = [found.labels[item] == truth[item] for item in sure]
    assert np.mean(right) == pytest.approx(np.mean(list(sure.values())), abs=0.03)


def slow_one_coin(votes, people, classes, rounds):
    """EM with a dense table of item and label, on items that all have several votes."""
    right = dict.fromkeys(people, 0.8)
    for _ in range(rounds):
        chances = {}
        for item, cast in votes.items():
            likelihood = np.ones(classes)
            for by, label in cast.items():
                floor = max(right[by], 1 / classes)
                for k in range(classes):
                    likelihood[k] *= floor if k == label else (1 - floor) / (classes - 1)
            chances[item] = likelihood / likelihood.sum()
        for by in people:
            mine = [chances[item][cast[by]] for item, cast in votes.items() if by in cast]
            right[by] = (4 + sum(mine)) / (5 + len(mine))
    return right, chances


def test_weighing_matches_the_slow_version():
    votes, _ = crowd(60, [0.9, 0.7, 0.5, 0.2], 3, 3, seed=4)
    found = resolve_weighted(votes, classes=3)
    right, chances = slow_one_coin(votes, ["p0", "p1", "p2", "p3"], 3, 400)
    assert found.reliability == pytest.approx(right, abs=1e-5)
    assert found.confidence == pytest.approx({i: c.max() for i, c in chances.items()}, abs=1e-5)


def test_items_of_one_annotator_stand_and_say_nothing_of_anybody():
    found = resolve_weighted({i: {"ann": i % 2} for i in range(50)})
    assert found.labels == {i: i % 2 for i in range(50)}
    assert found.reliability == {"ann": pytest.approx(0.8)}


def test_two_annotators_alone_settle_no_dispute():
    votes = {i: {"ann": 0, "bob": int(i < 5)} for i in range(100)}
    found = resolve_weighted(votes)
    assert sorted(set(votes) - set(found.labels)) == [0, 1, 2, 3, 4]
    assert found.reliability["ann"] == pytest.approx(found.reliability["bob"])


def test_whoever_is_worse_than_chance_counts_for_nothing_rather_than_the_contrary():
    votes = {i: {"ann": i % 2, "bob": i % 2, "cat": i % 2, "eve": 1 - i % 2} for i in range(40)}
    votes[40] = {"eve": 0}
    found = resolve_weighted(votes)
    assert found.reliability["eve"] < 0.2
    assert found.labels[40] == 0 and found.confidence[40] == pytest.approx(0.5)


def test_votes_like_chance_settle_hardly_anything():
    votes, _ = crowd(2000, [0.2] * 6, 5, 3, seed=0)
    found = resolve_weighted(votes)
    contested = {item for item, given in votes.items() if len(set(given.values())) > 1}
    assert len(contested & found.labels.keys()) < 0.02 * len(contested)
    # One alone may be taken for reliable: among useless votes nothing speaks against anybody.
    assert sorted(found.reliability.values())[-2] < 0.3


def test_one_class_and_no_votes_give_what_there_is():
    votes = {i: {"ann": "a", "bob": "a"} for i in range(5)}
    assert resolve_weighted(votes).labels == dict.fromkeys(range(5), "a")
    assert resolve_weighted({}).labels == {} and resolve_weighted({1: {}}).labels == {}


def test_bad_options_of_weighing_are_refused():
    with pytest.raises(BadInput, match="classes is 2"):
        resolve_weighted({1: {"a": 0, "b": 1, "c": 2}}, classes=2)
    with pytest.raises(BadInput, match="sure must be"):
        resolve_weighted({}, sure=0.5)


@given(
    st.dictionaries(
        st.integers(0, 20),
        st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz")),
    )
)
def test_every_label_is_one_that_someone_voted_for(votes):
    labels = resolve_weighted(votes).labels
    assert all(label in votes[item].values() for item, label in labels.items())
    alone = {i: next(iter(v.values())) for i, v in votes.items() if len(set(v.values())) == 1}
    assert alone.items() <= labels.items()


def test_reliability_from_counted_votes_is_that_of_all_votes():
    rng = np.random.default_rng(3)
    votes = {
        item: {by: int(rng.integers(3)) if rng.random() < 0.4 else item % 3 for by in "abcd"}
        for item in range(300)
    }
    counted = Counter(tuple(given.items()) for given in votes.values())
    found, expected = estimate_reliability(counted), resolve_weighted(votes).reliability
    assert found.keys() == expected.keys()
    assert list(found.values()) == pytest.approx(list(expected.values()), abs=1e-9)
