"""Simulations on one's own data: paired runs, going on, and side by side."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from labelwise.benchmark.devices import find_device
from labelwise.benchmark.jobs import play_jobs
from labelwise.benchmark.results import read_results
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.simulate import make_plan, run_plan, simulate
from labelwise.simulate.own_data import check_own_data
from labelwise.simulate.own_splits import OwnDataJob, mark_data, split_own_data, store_data
from tests.benchmark.tiny_runs import without_time
from tests.simulate.digits import DATA, DIGITS, KINDS, TINY, texts


def plain(lines):
    return [without_time(line) for line in lines]


def test_a_simulation_replays_paired_runs_and_buys_every_item_once():
    found = simulate(
        DIGITS[:300], KINDS[:300], strategies=["margin"], seeds=2, device="cpu", **TINY
    )
    runs = {}
    for line in found.rounds:
        runs.setdefault((line.strategy, line.seed), []).append(line)
    assert list(runs) == [(s, n) for n in range(2) for s in ("random", "margin")]
    for (_, seed), lines in runs.items():
        assert [line.labels for line in lines] == [10, 20, 30]
        scene = split_own_data(found.data, found.plan, seed)
        bought = [*scene.first, *lines[0].picks, *lines[1].picks]
        assert len(set(bought)) == 30 and set(bought) <= set(scene.ids) and not lines[2].picks
    for seed in range(2):
        assert runs["random", seed][0].value == runs["margin", seed][0].value


def test_an_interrupted_simulation_goes_on_with_the_same_numbers(tmp_path):
    plan = make_plan(DATA, strategies=["margin"], **TINY)
    whole = run_plan(DATA, plan, tmp_path / "a.jsonl", seeds=2, device="cpu")
    lines = (tmp_path / "a.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "b.jsonl").write_text("".join(lines[:5]))
    told = []
    again = run_plan(
        DATA, plan, tmp_path / "b.jsonl", seeds=2, device="cpu", progress=lambda *n: told.append(n)
    )
    assert told[0] == ("rounds", 5, 12) and told[-1] == ("rounds", 12, 12) and len(told) == 8
    assert (
        plain(again)
        == plain(whole)
        == plain(sorted_like(whole, read_results(tmp_path / "b.jsonl")))
    )
    untouched = (tmp_path / "b.jsonl").read_bytes()
    run_plan(DATA, plan, tmp_path / "b.jsonl", seeds=2, device="cpu")
    assert (tmp_path / "b.jsonl").read_bytes() == untouched


def sorted_like(lines, others):
    place = {(line.key, line.round): n for n, line in enumerate(lines)}
    return sorted(others, key=lambda line: place[line.key, line.round])


def test_other_data_or_settings_are_not_mixed_into_a_results_file(tmp_path):
    path = tmp_path / "r.jsonl"
    options = {"strategies": ["random"], "rounds": 1, "batch": 10}
    run_plan(DATA, make_plan(DATA, epochs=2, **options), path, seeds=1, device="cpu")
    with pytest.raises(BadInput, match="other data or settings; choose another results file"):
        run_plan(DATA, make_plan(DATA, epochs=3, **options), path, seeds=1, device="cpu")
    other = check_own_data(DIGITS[:300], np.roll(KINDS[:300], 1), name="digits")
    with pytest.raises(BadInput, match="other data or settings"):
        run_plan(other, make_plan(other, epochs=2, **options), path, seeds=1, device="cpu")


def test_more_seeds_extend_a_results_file_and_more_rounds_need_another(tmp_path):
    path = tmp_path / "r.jsonl"
    options = {"strategies": ["margin"], "batch": 10, "epochs": 3}
    plan = make_plan(DATA, rounds=2, **options)
    first = run_plan(DATA, plan, path, seeds=1, device="cpu")
    longer = run_plan(DATA, plan, path, seeds=2, device="cpu")
    assert longer[: len(first)] == first and len(longer) == 12
    with pytest.raises(BadInput, match="that ended after 2 rounds; choose another results file"):
        run_plan(DATA, make_plan(DATA, rounds=3, **options), path, seeds=1, device="cpu")
    fewer = run_plan(DATA, make_plan(DATA, rounds=1, **options), path, seeds=1, device="cpu")
    assert fewer == [line for line in first if line.round < 2]
    with pytest.raises(BadInput, match="by another protocol"):
        run_plan(DATA, make_plan(DATA, **{**options, "batch": 5}), path, seeds=1, device="cpu")


@pytest.mark.usefixtures("one_thread")
def test_processes_side_by_side_give_what_one_gives(tmp_path):
    inputs, names = texts(60)
    data = check_own_data(inputs, names)
    plan = make_plan(data, strategies=["margin"], rounds=1, batch=5, epochs=3)
    alone = run_plan(data, plan, seeds=2, device="cpu")
    spread = run_plan(data, plan, seeds=2, device="cpu", workers=2)
    assert [line.picks for line in spread] == [line.picks for line in alone]
    assert [line.value for line in spread] == pytest.approx([line.value for line in alone])


def test_rounds_side_by_side_as_on_a_gpu_give_what_run_after_run_gives(tmp_path):
    plan = make_plan(DATA, strategies=["margin"], **TINY)
    alone = run_plan(DATA, plan, seeds=2, device="cpu")
    jobs = [OwnDataJob(plan, e, seed, tmp_path) for seed in (0, 1) for e in plan.entrants]
    store_data(DATA, tmp_path)
    known = {job.key: [line for line in alone if line.key == job.key][:1] for job in jobs}
    lines = play_jobs(jobs, jobs[0].make_splits(find_device("cpu"), keep=2), known)
    rest = [mark_data(line, plan) for line in lines]
    assert plain(sorted_like(alone, rest)) == plain([line for line in alone if line.round])


def test_texts_are_learnt():
    inputs, names = texts()
    found = simulate(inputs, names, strategies=["badge"], seeds=1, device="cpu", epochs=30)
    assert found.data.kind == "texts"
    assert min(line.value for line in found.rounds if line.round == 10) > 0.9


def test_a_regression_is_measured_in_units_of_its_variance():
    inputs, values = load_diabetes(return_X_y=True)
    found = simulate(
        inputs,
        values * 1000,
        regression=True,
        strategies=["k_center", "design", "bait", "typiclust", "lewis"],
        seeds=1,
        rounds=1,
        batch=100,
        device="cpu",
    )
    assert {line.metric for line in found.rounds} == {"mse"}
    assert not any(line.higher_is_better for line in found.rounds)
    last = [line.value for line in found.rounds if line.round == 1]
    assert len(last) == 6 and all(0.3 < value < 1.1 for value in last)


def test_a_strategy_that_cannot_run_is_said_once_and_left_out():
    inputs, values = load_diabetes(return_X_y=True)
    with pytest.warns(LabelwiseWarning, match="margin stopped in 2 of 2 seeds: margin needs"):
        found = simulate(
            inputs,
            values,
            regression=True,
            strategies=["margin", "k_center"],
            seeds=2,
            device="cpu",
            **TINY,
        )
    assert [entry.strategy for entry in found.savings] == ["k_center"]
