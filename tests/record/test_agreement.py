"""Agreement against scikit-learn, published examples and slow twins."""

import re
from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from labelwise.errors import BadInput
from labelwise.record.agreement import (
    agreement,
    cohen_kappa,
    interval_alpha,
)
from labelwise.record.events import Asked, Started, Told
from labelwise.record.ledger import replay
from tests.record.crowds import crowd

# Thirty patients, six psychiatrists each, five diagnoses: Fleiss 1971, Table 1, kappa 0.430.
DIAGNOSES = (
    "444444 222555 233335 555555 222444 113333 333355 113334 114444 555555 "
    "144444 124444 222333 144444 224445 333335 111455 111112 224444 133555 "
    "555555 244444 224555 114444 144445 222224 111155 224444 133333 555555"
).split()


def ledger_of(votes, **settings):
    """A record in which these votes were told."""
    events = [Started(0.0, settings, 1000), Asked(1.0, 1, tuple(votes))]
    events += [Told(2.0, item, label, by) for item, v in votes.items() for by, label in v.items()]
    return replay(events)


@pytest.mark.parametrize("seed", range(5))
def test_cohens_kappa_is_that_of_scikit_learn(seed):
    generator = np.random.default_rng(seed)
    first = generator.integers(4, size=60)
    second = np.where(generator.random(60) < 0.6, first, generator.integers(5, size=60))
    assert cohen_kappa(first, second) == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1))
def test_cohens_kappa_is_symmetric_and_at_most_one(pairs):
    first, second = zip(*pairs, strict=True)
    there, back = cohen_kappa(first, second), cohen_kappa(second, first)
    if len(set(first) | set(second)) == 1:
        assert there is None and back is None
    else:
        assert there == pytest.approx(back) and -1 <= there <= 1
        assert (there == 1) == (first == second)


def test_labels_that_cannot_be_compared_are_refused():
    with pytest.raises(BadInput, match="3 labels cannot be compared with 2"):
        cohen_kappa([1, 2, 3], [1, 2])
    with pytest.raises(BadInput, match="no labels"):
        cohen_kappa([], [])
    with pytest.raises(BadInput, match="label 1 is NaN"):
        cohen_kappa([1.0, float("nan")], [1.0, 2.0])


# Agreement of several.


def fleiss(groups):
    """The agreement on items with these labels."""
    votes = {i: {f"p{j}": label for j, label in enumerate(g)} for i, g in enumerate(groups)}
    return agreement(ledger_of(votes)).kappa


def test_fleiss_kappa_of_the_published_example():
    table = [[row.count(label) for label in "12345"] for row in DIAGNOSES]
    assert np.sum(table, axis=0).tolist() == [26, 26, 30, 55, 43]  # the paper's margins
    assert fleiss(DIAGNOSES) == pytest.approx(0.430, abs=5e-4)


def slow_fleiss(groups):
    """Pairs within items against the squared shares of all labels."""
    within = [
        np.mean([a == b for a, b in permutations(group, 2)]) for group in groups if len(group) > 1
    ]
    every = [label for group in groups for label in group]
    chance = sum((count / len(every)) ** 2 for count in Counter(every).values())
    return (np.mean(within) - chance) / (1 - chance)


@pytest.mark.parametrize("seed", range(4))
def test_fleiss_kappa_of_uneven_rows_matches_the_pairs(seed):
    generator = np.random.default_rng(seed)
    groups = [generator.integers(3, size=generator.integers(2, 6)).tolist() for _ in range(40)]
    assert fleiss(groups) == pytest.approx(slow_fleiss(groups), abs=1e-12)


def test_one_label_only_has_no_kappa():
    assert fleiss([[0, 0, 0], [0, 0]]) is None


def test_alpha_of_the_published_example():
    # Krippendorff, "Computing Krippendorff's Alpha-Reliability", 2011: interval data, 0.849.
    observers = ["123321412   ", "1233224125 3", " 3332342251 ", "12332441251 "]
    units = [[float(x) for x in column if x != " "] for column in zip(*observers, strict=True)]
    assert interval_alpha(units) == pytest.approx(0.849, abs=5e-4)


def test_alpha_needs_two_different_numbers_on_common_items():
    assert interval_alpha([[1.0], [2.0]]) is None
    assert interval_alpha([[2.0, 2.0], [2.0, 2.0]]) is None
    with pytest.raises(BadInput, match="not finite"):
        interval_alpha([[1.0, np.inf]])


# The report.


def leave_one_out(values, measure):
    """The jackknife from its definition: all items but one, each in turn."""
    others = [measure([*values[:i], *values[i + 1 :]]) for i in range(len(values))]
    spread = np.sum((np.array(others) - np.mean(others)) ** 2)
    return np.sqrt((len(values) - 1) / len(values) * spread)


def test_the_interval_of_two_annotators_leaves_out_each_item_in_turn():
    votes, _ = crowd(50, [0.9, 0.8], 3, 2, seed=1)
    found = agreement(ledger_of(votes))
    pairs = [(v["p0"], v["p1"]) for v in votes.values()]
    error = leave_one_out(pairs, lambda rows: cohen_kappa_score(*zip(*rows, strict=True)))
    assert found.measure == "cohen"
    assert found.kappa == pytest.approx(cohen_kappa_score(*zip(*pairs, strict=True)))
    assert found.high == pytest.approx(min(found.kappa + 1.959964 * error, 1))
    assert found.low == pytest.approx(found.kappa - 1.959964 * error)


def test_the_interval_of_several_annotators_leaves_out_each_item_in_turn():
    votes, _ = crowd(40, [0.9, 0.8, 0.7, 0.9], 3, 3, seed=2)
    votes[40] = {"p1": 0, "p2": 2}  # rows need not be even
    found = agreement(ledger_of(votes))
    groups = [list(v.values()) for v in votes.values()]
    assert found.measure == "fleiss" and found.annotators == 4
    assert found.kappa == pytest.approx(slow_fleiss(groups))
    error = leave_one_out(groups, slow_fleiss)
    assert found.low == pytest.approx(found.kappa - 1.959964 * error)


def test_every_pair_of_annotators_is_compared_on_their_common_items():
    votes, _ = crowd(60, [0.9, 0.7, 0.6], 3, 2, seed=3)
    found = agreement(ledger_of(votes))
    assert [(p.first, p.second) for p in found.pairs] == list(combinations(["p0", "p1", "p2"], 2))
    for pair in found.pairs:
        both = [v for v in votes.values() if {pair.first, pair.second} <= set(v)]
        first, second = [v[pair.first] for v in both], [v[pair.second] for v in both]
        assert pair.items == len(both)
        assert pair.agreed == sum(a == b for a, b in zip(first, second, strict=True))
        assert pair.kappa == pytest.approx(cohen_kappa_score(first, second))


@pytest.mark.parametrize(
    "votes, words",
    [
        ({}, "no item has labels of two annotators"),
        ({1: {"ann": "a"}, 2: {"bob": "b"}}, "no item has labels of two annotators"),
        ({1: {"ann": "a", "bob": "a"}, 2: {"ann": "a", "bob": "a"}}, "only one label was used"),
        ({1: {"ann": "a", "bob": "b"}}, r"agree on 0 of 1 items \(kappa 0.00\): they disagree"),
    ],
)
def test_too_little_to_compare_is_said(votes, words):
    found = agreement(ledger_of(votes))
    assert re.search(words, found.says), found.says
    assert found.low is None


def test_numbers_are_compared_by_alpha():
    votes = {i: {"ann": float(i), "bob": i + 0.1 * (-1) ** i} for i in range(20)}
    found = agreement(ledger_of(votes, regression=True))
    assert found.measure == "alpha" and found.kappa > 0.99 and found.pairs == ()
    assert found.kappa == pytest.approx(interval_alpha([list(v.values()) for v in votes.values()]))


# Which label stands.
