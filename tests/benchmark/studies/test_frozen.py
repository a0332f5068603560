"""The frozen feature experiments: pools of a seed, and lines that continue."""

from dataclasses import replace

import numpy as np
import pytest

from labelwise.benchmark.frozen_run import (
    draw_frozen_pool,
    draw_stratified_items,
    halve_test_items,
    make_frozen_head,
    thin_class_sizes,
)
from labelwise.benchmark.labelling_run import ORACLE
from labelwise.benchmark.protocols import get_experiment, read_experiments
from labelwise.benchmark.results import append_result
from labelwise.benchmark.runs import run_experiment
from labelwise.benchmark.studies.frozen import load_frozen_items
from labelwise.errors import BadInput
from labelwise.strategies import get as get_strategy
from tests.benchmark.tiny_runs import plain

FROZEN = [entry for entry in read_experiments().values() if entry.study == "frozen"]
DIGITS = replace(get_experiment("frozen-digits"), rounds=2)


def draw(protocol, seed):
    return draw_frozen_pool(protocol, seed, load_frozen_items(protocol))


@pytest.mark.parametrize("protocol", FROZEN, ids=lambda entry: entry.name)
def test_an_experiment_names_strategies_that_exist(protocol):
    names = {entrant.strategy for entrant in protocol.entrants} - {ORACLE}
    proposers = protocol.settings["oracle"]["proposers"]
    for name in (*names, *proposers):
        get_strategy(name)
    assert protocol.start == protocol.batch and "random" in names


def test_ten_sets_or_more_have_classes_and_six_have_values():
    sets = {(entry.dataset, entry.metric) for entry in FROZEN}
    assert sum(metric == "accuracy" for _, metric in sets) >= 10
    assert sum(metric == "rmse" for _, metric in sets) >= 6


def test_the_pool_of_a_seed_is_a_share_of_the_items_and_depends_on_the_seed():
    first, second = draw(DIGITS, 0), draw(DIGITS, 1)
    assert len(first.ids) == round(0.8 * 1437) == len(second.ids)
    assert (np.diff(first.ids) > 0).all() and set(first.ids) != set(second.ids)
    assert np.array_equal(first.test_inputs, second.test_inputs)
    assert np.array_equal(draw(DIGITS, 0).inputs, first.inputs)


def test_copies_repeat_every_item_under_other_ids():
    single, copied = draw(DIGITS, 0), draw(replace(DIGITS, copies=3), 0)
    assert len(set(copied.ids)) == len(copied.ids) == 3 * len(single.ids)
    assert np.array_equal(copied.inputs.reshape(3, *single.inputs.shape)[2], single.inputs)
    assert np.array_equal(copied.targets, np.tile(single.targets, 3))


def test_new_test_items_for_every_seed_leave_the_pool():
    protocol = get_experiment("frozen-diabetes")
    first, second = draw(protocol, 0), draw(protocol, 1)
    assert not np.array_equal(first.test_inputs, second.test_inputs)
    rows = {row.tobytes() for row in first.inputs}
    assert not rows & {row.tobytes() for row in first.test_inputs}
    assert len(first.ids) == round(0.8 * 354) and len(first.test_targets) == 88


def test_a_long_tail_has_the_wanted_ratio_and_keeps_every_class():
    targets = np.repeat(np.arange(5), 100)
    kept = thin_class_sizes(targets, np.arange(500), 50, np.random.default_rng(0))
    counts = np.sort(np.bincount(targets[kept], minlength=5))
    assert counts.tolist() == [2, 5, 14, 38, 100]
    assert len(set(kept.tolist())) == len(kept)


def test_an_unseen_oracle_chooses_and_is_measured_on_different_test_items():
    pool = draw(DIGITS, 3)
    seen, unseen = halve_test_items(pool, 3)
    both = np.concatenate([seen.test_inputs, unseen.test_inputs])
    assert len(seen.test_targets) + len(unseen.test_targets) == len(pool.test_targets)
    assert sorted(map(bytes, both)) == sorted(map(bytes, pool.test_inputs))
    assert (seen.ids == pool.ids).all() and (unseen.targets == pool.targets).all()


def test_a_head_with_duals_predicts_like_the_plain_head():
    pool = draw(DIGITS, 0)
    plain_head, head = (make_frozen_head({"head": name}, pool) for name in ("linear", "duals"))
    for each in (plain_head, head):
        each.fit(pool.inputs[:40], pool.targets[:40], seed=3)
    rows = head.represent(pool.inputs[:100], ["features", "duals"])
    assert rows["duals"].shape == (100,) and np.ptp(rows["duals"]) > 0
    assert np.array_equal(head.predict(pool.test_inputs), plain_head.predict(pool.test_inputs))


def test_lines_continue_after_an_interruption(tmp_path):
    lines = run_experiment(DIGITS, tmp_path / "r.jsonl", strategies=["margin", "badge"], seeds=1)
    assert [line.labels for line in lines] == [10, 20, 30] * 2
    assert all(line.value == line.measures["accuracy"] for line in lines)
    assert all(len(line.picks) == 10 for line in lines)
    part = tmp_path / "part.jsonl"
    for line in lines[:4]:
        append_result(part, line)
    again = run_experiment(DIGITS, part, strategies=["margin", "badge"], seeds=1)
    assert plain(again) == plain(lines)


def test_more_labels_than_items_are_refused():
    with pytest.raises(BadInput, match="buys 2,010 labels from a pool of 1,150"):
        draw(replace(DIGITS, rounds=200), 0)


def test_test_items_have_every_class_in_its_share():
    classes = np.repeat([0, 1, 2], [700, 200, 100])
    for seed in range(5):
        test = draw_stratified_items(classes, 100, np.random.default_rng(seed))
        assert len(np.unique(test)) == 100
        np.testing.assert_allclose(np.bincount(classes[test]), [70, 20, 10], atol=1)
    seen = [
        draw_stratified_items(np.arange(60) // 3, 12, np.random.default_rng(s)) for s in range(200)
    ]
    counts = np.bincount(np.concatenate(seen), minlength=60)
    assert counts.min() > 15 and counts.max() < 75  # 40 on average: no item is never tested


def test_test_items_of_a_regression_have_every_range_of_values():
    values = np.random.default_rng(1).exponential(size=500)
    test = draw_stratified_items(values, 100, np.random.default_rng(0))
    share = np.quantile(values, np.linspace(0, 1, 6))
    counts = np.histogram(values[test], share)[0]
    np.testing.assert_allclose(counts, 20, atol=1)
