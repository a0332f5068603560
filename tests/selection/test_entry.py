"""The public call: names, needs, options, ids."""

import json
from datetime import date
from pathlib import Path
from uuid import UUID

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


def test_a_pool_gives_the_picks_of_its_representations():
    features, probabilities = make_features(60, 4), make_probabilities(60, 3)
    given = {"features": features, "probabilities": probabilities}
    pool = labelwise.Pool(ids=np.arange(60) + 5, **given)
    for name in ("badge", "margin", "random"):
        expected = labelwise.select(name, 7, ids=np.arange(60) + 5, labelled=[9], seed=2, **given)
        found = labelwise.select(name, 7, pool=pool, labelled=[9], seed=2)
        assert found.ids.tolist() == expected.ids.tolist() and found.keys is None


def test_a_pool_of_inputs_alone_serves_strategies_without_needs():
    pool = labelwise.Pool(["a.png", "b.png", "c.png"], ids=["a", "b", "c"])
    assert sorted(labelwise.select("random", 3, pool=pool).keys) == ["a", "b", "c"]
    with pytest.raises(labelwise.BadInput, match=r"margin needs probabilities.*; got none"):
        labelwise.select("margin", 1, pool=pool)


def test_a_pool_and_representations_are_not_given_together():
    pool = labelwise.Pool(features=np.eye(3))
    for more in ({"features": np.eye(3)}, {"ids": [1, 2, 3]}):
        with pytest.raises(labelwise.BadInput, match="give either a pool or representations"):
            labelwise.select("k_center", 1, pool=pool, **more)
    with pytest.raises(labelwise.BadInput, match="pool has 2 inputs but features has 3 rows"):
        labelwise.select("k_center", 1, pool=labelwise.Pool(["a", "b"], features=np.eye(3)))


@pytest.mark.parametrize("name", ["random", "badge", "k_center", "margin", "lewis", "kmeans"])
def test_picks_by_text_keys_do_not_depend_on_the_order_of_the_rows(name):
    features, probabilities = make_features(80, 4), make_probabilities(80, 3)
    features[40:], probabilities[40:] = features[:40], probabilities[:40]  # ties
    keys = np.array([f"item-{number}" for number in range(80)])

    def pick(order):
        given = {"features": features[order], "probabilities": probabilities[order]}
        labelled = ["item-3", "item-50"]
        return labelwise.select(name, 9, **given, ids=keys[order], labelled=labelled, seed=4)

    first = pick(np.arange(80))
    assert not {"item-3", "item-50"} & set(first.keys)
    for seed in range(3):
        again = pick(np.random.default_rng(seed).permutation(80))
        assert again.keys == first.keys and again.ids.tolist() == first.ids.tolist()


def test_keys_are_named_in_errors_and_written_to_files(tmp_path):
    features, keys = make_features(6, 2), list("abcdef")
    with pytest.raises(labelwise.UnknownName, match="no item of the pool has id 'x'; check"):
        labelwise.select("k_center", 2, features=features, ids=keys, labelled=["x"])
    with pytest.raises(labelwise.BadInput, match="features of item 'c' is NaN or infinite"):
        broken = np.where(np.arange(6)[:, None] == 2, np.nan, features)
        labelwise.select("k_center", 2, features=broken, ids=keys)
    picks = labelwise.select("k_center", 2, features=features, ids=keys)
    assert picks.columns()["id"] == picks.keys
    for suffix in (".csv", ".jsonl"):
        picks.save(tmp_path / f"picks{suffix}")
        assert picks.keys[0] in (tmp_path / f"picks{suffix}").read_text()


def test_keys_of_any_type_are_saved_as_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    for keys in (["a", "b"], [UUID(int=1), UUID(int=2)], [date(2024, 5, 1), date(2024, 5, 2)]):
        picks = labelwise.select("random", 2, ids=keys)
        picks.save(tmp_path / "picks.parquet")
        found = parquet.read_table(tmp_path / "picks.parquet")["id"].to_pylist()
        assert [str(key) for key in found] == [str(key) for key in picks.keys]


def test_a_resumed_selection_has_its_keys(tmp_path):
    given = {"features": make_features(30, 3), "ids": [UUID(int=number) for number in range(30)]}
    expected = labelwise.select("k_center", 4, **given)
    found = labelwise.select("k_center", 4, **given, resume=tmp_path / "on")
    assert found.keys == expected.keys


def test_a_pool_that_is_an_array_is_refused_with_what_to_give():
    with pytest.raises(
        labelwise.BadInput, match=r"must be a labelwise\.Pool; got ndarray: give arrays as feat"
    ):
        labelwise.select("k_center", 1, pool=np.eye(3))
