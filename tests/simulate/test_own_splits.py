"""How a user's own data is divided, scaled and read, seed by seed."""

import numpy as np
import pytest

from labelwise.encoders.tfidf import TfidfEncoder
from labelwise.errors import BadInput
from labelwise.simulate import make_plan
from labelwise.simulate.own_splits import draw_stratified, split_own_data
from tests.simulate.digits import DATA, TOPICS, texts


def test_test_items_have_every_class_in_its_share():
    classes = np.repeat([0, 1, 2], [700, 200, 100])
    for seed in range(5):
        test = draw_stratified(classes, 100, np.random.default_rng(seed))
        assert len(np.unique(test)) == 100
        np.testing.assert_allclose(np.bincount(classes[test]), [70, 20, 10], atol=1)
    seen = [draw_stratified(np.arange(60) // 3, 12, np.random.default_rng(s)) for s in range(200)]
    counts = np.bincount(np.concatenate(seen), minlength=60)
    assert counts.min() > 15 and counts.max() < 75  # 40 on average: no item is never tested


def test_test_items_of_a_regression_have_every_range_of_values():
    values = np.random.default_rng(1).exponential(size=(500, 1))
    test = draw_stratified(values, 100, np.random.default_rng(0))
    share = np.quantile(values, np.linspace(0, 1, 6))
    counts = np.histogram(values[test], share)[0]
    np.testing.assert_allclose(counts, 20, atol=1)


def test_a_split_has_no_item_twice_and_is_scaled_by_its_pool():
    split = split_own_data(DATA, make_plan(DATA), 0)
    rows = {tuple(row) for row in DATA.inputs[split.ids]}
    assert (len(split.ids), len(split.test_targets)) == (240, 60)
    pool = DATA.inputs[split.ids].astype(np.float64)
    spread = np.where(pool.std(axis=0) == 0, 1, pool.std(axis=0))
    np.testing.assert_allclose(split.inputs, (pool - pool.mean(axis=0)) / spread, atol=1e-5)
    np.testing.assert_array_equal(split.targets, DATA.targets[split.ids])
    back = split.test_inputs * spread + pool.mean(axis=0)
    assert not any(tuple(row) in rows for row in np.round(back).astype(np.float32))
    assert set(split.first) <= set(split.ids)


def test_seeds_differ_in_split_and_first_labels_and_repeat():
    plan = make_plan(DATA)
    first, second, again = (split_own_data(DATA, plan, seed) for seed in (0, 1, 0))
    assert first.ids.tolist() != second.ids.tolist()
    assert first.first.tolist() != second.first.tolist()
    np.testing.assert_array_equal(first.first, again.first)
    np.testing.assert_array_equal(first.inputs, again.inputs)


def test_texts_become_numbers_by_the_words_of_the_pool_alone():
    pool, names = texts()
    change = TfidfEncoder.fit(np.array(pool, dtype=object))
    rows = change(np.array(["rose soil seed", "pan oven salt", "unseen words"], dtype=object))
    assert rows.shape[1] <= 24 and rows.dtype == np.float32
    all_rows = change(np.array(pool, dtype=object))
    centres = [all_rows[[n == name for n in names]].mean(axis=0) for name in TOPICS]
    nearest = [int(np.argmin([np.square(row - c).sum() for c in centres])) for row in rows[:2]]
    assert nearest == [0, 1]
    np.testing.assert_allclose(rows[2], change(np.array(["nothing"], dtype=object))[0])
    with pytest.raises(BadInput, match="hold no words"):
        TfidfEncoder.fit(np.array(["!", "?"], dtype=object))
