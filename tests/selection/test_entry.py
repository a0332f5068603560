"""The public call: names, needs, options, ids."""

import json
from pathlib import Path

import numpy as np
import pytest

import labelwise
from labelwise.strategy import Choice
from tests.conftest import make_features, make_probabilities


def test_an_unknown_strategy_is_an_error_that_lists_the_known():
    with pytest.raises(labelwise.UnknownName, match=r"no strategy is called 'bagde'; .*badge"):
        labelwise.select("bagde", 1, features=np.eye(3))


def test_a_missing_representation_is_named():
    with pytest.raises(
        labelwise.BadInput, match="badge needs features and probabilities; got features"
    ):
        labelwise.select("badge", 1, features=np.eye(3))


def test_a_list_goes_only_to_strategies_for_several_models():
    with pytest.raises(
        labelwise.BadInput, match="k_center takes one array of features; got a list"
    ):
        labelwise.select("k_center", 1, features=[np.eye(3), np.eye(3)])


def test_own_ids_come_back_and_labelled_speaks_of_them():
    features = make_features(50, 3)
    ids = np.random.default_rng(0).permutation(50) * 10 - 100
    plain = labelwise.select("k_center", 8, features=features, labelled=[4])
    own = labelwise.select("k_center", 8, features=features, ids=ids, labelled=[ids[4]])
    assert own.ids.tolist() == ids[plain.ids].tolist()


def test_representations_that_are_not_needed_are_not_read(tmp_path):
    probabilities = make_probabilities(30, 3)
    broken = np.full((30, 2), np.nan)
    picks = labelwise.select("margin", 3, probabilities=probabilities, features=broken)
    assert len(picks) == 3


@pytest.mark.parametrize("budget", [-1, 2.5, True, "3"])
def test_a_budget_is_a_whole_number(budget):
    with pytest.raises(labelwise.BadInput, match="budget must be a whole number of items"):
        labelwise.select("k_center", budget, features=np.eye(3))


def test_a_seed_is_a_whole_number():
    with pytest.raises(labelwise.BadInput, match=r"seed must be a whole number; got 0\.5"):
        labelwise.select("random", 1, features=np.eye(3), seed=0.5)


def test_the_selection_says_how_it_was_made():
    info = labelwise.select("typiclust", 2, features=np.eye(5), seed=4, clusters=7).info
    assert (info["strategy"], info["seed"], info["options"]["clusters"]) == ("typiclust", 4, 7)


def test_what_the_selection_says_is_strict_json():
    norms = np.abs(make_features(30, 1)[:, 0])
    given = {"gradient_norms": norms, "gradient_products": norms}
    info = labelwise.select("dynamics", 2, **given, gamma=np.inf).info
    said = json.loads(json.dumps(info, allow_nan=False))
    assert said == info
    assert said["options"]["gamma"] == "inf" and float(said["options"]["gamma"]) == np.inf


def test_whatever_a_strategy_says_becomes_json():
    own = labelwise.PassStrategy(
        name="says_much",
        needs=("features",),
        good_for="",
        reference="",
        choose=lambda shards, labelled, budget, seed: Choice(
            shards.ids[:budget],
            info={
                "array": np.array([[1.0, -np.inf], [np.nan, 2.0]]),
                "numbers": (np.float32(0.5), np.int64(3), np.bool_(True), None, "x"),
                "by_model": {0: np.float64("nan")},
                "path": Path("rows.npy"),
            },
        ),
    )
    info = labelwise.select(own, 1, features=np.eye(3)).info
    assert json.loads(json.dumps(info, allow_nan=False)) == info
    assert info["array"] == [[1.0, "-inf"], ["nan", 2.0]]
    assert info["numbers"] == [0.5, 3, True, None, "x"]
    assert info["by_model"] == {"0": "nan"} and info["path"] == "rows.npy"


def test_progress_is_reported_to_the_end():
    calls = []
    features = make_features(40, 3)
    labelwise.select("k_center", 5, features=features, progress=lambda *call: calls.append(call))
    assert calls[-1] == ("k_center", 5, 5)
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)


def test_a_strategy_of_ones_own_is_taken_as_it_is():
    own = labelwise.ScoreStrategy(
        name="first_column",
        needs=("features",),
        good_for="",
        reference="",
        score=lambda rows, labelled: rows["features"][:, 0],
    )
    features = make_features(20, 2)
    picks = labelwise.select(own, 4, features=features)
    assert picks.ids.tolist() == np.argsort(-features[:, 0])[:4].tolist()


def test_a_nan_score_is_refused():
    own = labelwise.ScoreStrategy(
        name="roots",
        needs=("features",),
        good_for="",
        reference="",
        score=lambda rows, labelled: np.where(rows["features"][:, 0] < 0, np.nan, 1.0),
    )
    with pytest.raises(labelwise.BadInput, match="'roots' scored item 2 as NaN"):
        labelwise.select(own, 1, features=np.array([[1.0], [2.0], [-1.0]]))


def test_every_file_in_strategies_holds_the_strategy_of_its_name():
    assert all(name == strategy.name for name, strategy in labelwise.strategies().items())


@pytest.mark.parametrize("strategy", ["lewis", "bss"])
def test_rounding_to_half_precision_adds_no_rank(strategy, tmp_path):
    generator = np.random.default_rng(0)
    low = generator.normal(size=(400, 5)) @ generator.normal(size=(5, 30))
    halves = low.astype(np.float16)
    np.save(tmp_path / "halves.npy", halves)
    for value in (halves, tmp_path / "halves.npy"):
        info = labelwise.select(strategy, 60, features=value).info
        rank = info["ranks"][0] if strategy == "lewis" else info["rank"] - 1  # less the bias
        assert rank == 5
