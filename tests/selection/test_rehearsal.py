"""What a selection refuses before it reads a row is refused in the same words without any rows."""

import doctest
import warnings

import numpy as np
import pytest

import labelwise
from labelwise.errors import LabelwiseError
from labelwise.selection import rehearsal
from labelwise.selection.rehearsal import Closed, Looked, rehearse
from tests.strategies.test_contract import make_inputs

STRATEGIES = labelwise.strategies()


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_strategy_is_refused_with_its_own_options(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rehearse(STRATEGIES[name], 60, 9, None, 0)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lewis", {"p": -1.0}),
        ("lewis", {"sampling": "x"}),
        ("bss", {"basis": "x"}),
        ("kmeans", {"rounds": -1}),
        ("typiclust", {"clusters": 0}),
        ("ally", {"diversity": "x"}),
        ("dynamics", {"gamma": -1.0}),
        ("design", {"regularisation": -1.0}),
        ("herding", {"bandwidth": -1.0}),
        ("sparse_iht", {"step": "x"}),
    ],
)
def test_options_are_refused_in_the_words_of_the_strategy(name, options):
    strategy = STRATEGIES[name].with_options(**options)
    with pytest.raises(LabelwiseError) as before:
        rehearse(strategy, 60, 9, None, 0)
    with pytest.raises(LabelwiseError) as then:
        labelwise.select(strategy, 9, **make_inputs(STRATEGIES[name]))
    assert str(before.value) == str(then.value) and type(before.value) is type(then.value)


@pytest.mark.parametrize("budget", [61, -1])
def test_a_budget_is_refused_in_the_words_of_the_selection(budget):
    with pytest.raises(LabelwiseError) as before:
        rehearse(STRATEGIES["k_center"], 60, budget, None, 0)
    with pytest.raises(LabelwiseError) as then:
        labelwise.select("k_center", budget, features=np.ones((60, 2)))
    assert str(before.value) == str(then.value)


@pytest.mark.parametrize(
    "look",
    [
        lambda pool: pool.ids,
        lambda pool: pool.rows(np.array([0])),
        lambda pool: pool.map(lambda shard: shard.rows["features"]),
        lambda pool: pool.sum(lambda shard: "features" in shard.rows),
        lambda pool: pool.map(lambda shard: dict(shard.rows)),
        lambda pool: pool.map(lambda shard: shard.numbers),
    ],
)
def test_nothing_of_a_closed_pool_can_be_seen(look):
    with pytest.raises(Looked):
        look(Closed(5))


def test_the_size_of_a_closed_pool_is_known():
    assert len(Closed(5)) == 5
    assert Closed(5).map(len) == [5] and Closed(5).sum(len) == 5


def test_the_examples_hold():
    assert doctest.testmod(rehearsal).failed == 0
