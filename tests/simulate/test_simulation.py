"""Simulations on one's own data: paired runs, continuing, and parallel processes."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from labelwise.benchmark.frozen_run import draw_frozen_pool
from labelwise.benchmark.results import read_results
from labelwise.errors import LabelwiseWarning
from labelwise.simulate import encode_own_data, make_simulation_plan, run_simulation_plan, simulate
from labelwise.simulate.own_data import check_own_data
from tests.benchmark.tiny_runs import without_time
from tests.simulate.digits import DATA, DIGITS, KINDS, TINY, texts


def plain(lines):
    return [without_time(line) for line in lines]


def test_a_simulation_replays_paired_runs_and_buys_every_item_once():
    found = simulate(DIGITS[:300], KINDS[:300], strategies=["margin"], seeds=2, **TINY)
    runs = {}
    for line in found.rounds:
        runs.setdefault((line.strategy, line.seed), []).append(line)
    assert list(runs) == [(s, n) for n in range(2) for s in ("random", "margin")]
    items = encode_own_data(found.data, "")
    for (_, seed), lines in runs.items():
        assert [line.labels for line in lines] == [10, 20, 30]
        pool = draw_frozen_pool(found.plan, seed, items)
        bought = [pick for line in lines for pick in line.picks]
        assert len(set(bought)) == 30 and set(bought) <= set(pool.ids.tolist())
    for seed in range(2):  # margin needs a model, so its first batch is that of random
        assert runs["random", seed][0].value == runs["margin", seed][0].value


def test_a_simulation_extended_interrupted_and_shortened_has_the_same_numbers(tmp_path):
    plan = make_simulation_plan(DATA, strategies=["margin"], **TINY)
    first = run_simulation_plan(DATA, plan, tmp_path / "a.jsonl", seeds=1)
    whole = run_simulation_plan(DATA, plan, tmp_path / "a.jsonl", seeds=2)
    assert whole[: len(first)] == first and len(whole) == 12
    shorter = make_simulation_plan(DATA, strategies=["margin"], rounds=2, batch=10)
    fewer = run_simulation_plan(DATA, shorter, tmp_path / "a.jsonl", seeds=1)
    assert fewer == [line for line in first if line.round < 2]
    lines = (tmp_path / "a.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "b.jsonl").write_text("".join(lines[:6]))
    calls = []
    again = run_simulation_plan(
        DATA, plan, tmp_path / "b.jsonl", seeds=2, progress=lambda *call: calls.append(call)
    )
    assert calls == [("runs", 0, 2), ("runs", 1, 2), ("runs", 2, 2)]
    assert plain(again) == plain(whole)
    assert len(read_results(tmp_path / "b.jsonl")) == 12
    untouched = (tmp_path / "b.jsonl").read_bytes()
    run_simulation_plan(DATA, plan, tmp_path / "b.jsonl", seeds=2)
    assert (tmp_path / "b.jsonl").read_bytes() == untouched


def test_parallel_processes_give_what_one_gives():
    inputs, names = texts(60)
    data = check_own_data(inputs, names)
    plan = make_simulation_plan(data, strategies=["margin"], rounds=2, batch=5, encoder="tfidf")
    alone = run_simulation_plan(data, plan, seeds=2)
    spread = run_simulation_plan(data, plan, seeds=2, workers=2)
    assert [line.picks for line in spread] == [line.picks for line in alone]
    assert [line.value for line in spread] == pytest.approx([line.value for line in alone])


def test_values_of_a_regression_have_deviation_one():
    inputs, values = load_diabetes(return_X_y=True)
    data = check_own_data(inputs, values * 1000, regression=True)
    items = encode_own_data(data, "")
    assert items.classes is None and items.targets.std() == pytest.approx(1)
    found = run_simulation_plan(
        data, make_simulation_plan(data, strategies=["k_center"], rounds=1, batch=20), seeds=1
    )
    assert {line.metric for line in found} == {"rmse"}
    assert not any(line.higher_is_better for line in found)
    assert all(set(line.measures) == {"rmse", "mae", "error_95", "error_max"} for line in found)


def test_a_strategy_that_cannot_run_is_reported_once_and_left_out():
    inputs, values = load_diabetes(return_X_y=True)
    given = {"regression": True, "strategies": ["margin", "k_center"], "seeds": 2}
    with pytest.warns(LabelwiseWarning, match="margin stopped in 2 runs: margin needs"):
        found = simulate(inputs, values, **given, rounds=2, batch=10)
    assert [entry.strategy for entry in found.savings] == ["k_center"]


def test_pictures_are_encoded_like_those_of_a_campaign():
    images = np.random.default_rng(0).integers(0, 256, size=(30, 1, 8, 8), dtype=np.uint8)
    items = encode_own_data(check_own_data(images, ["a", "b"] * 15), "auto")
    assert items.inputs.shape == (30, 1280) and items.inputs.dtype == np.float32
