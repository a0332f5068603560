"""The bss strategy: its options, its fallbacks, and that it keeps what it promises."""

import json

import numpy as np
import pytest
import torch

import labelwise
from labelwise.errors import BadInput, LabelwiseWarning, UnknownName
from labelwise.kernels.linear.bss import randomized_bss
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.selection.run import select
from labelwise.strategies.bss import STRATEGY


def make_pool(n, d, seed=0):
    return np.random.default_rng(seed).standard_t(3, (n, d))


def pick(features, budget, seed=0, **options):
    return select(
        STRATEGY.with_options(**options), LocalShards.of(features=features), budget, seed=seed
    )


def test_picks_are_those_of_the_kernel_on_features_and_bias():
    pool = make_pool(200, 4)
    ids, weights, info = randomized_bss(np.c_[pool, np.ones(200)], budget=40, seed=3)
    selection = pick(pool, 40, seed=3)
    assert selection.ids.tolist() == ids.tolist()
    np.testing.assert_allclose(selection.weights, weights, rtol=1e-8)
    assert selection.counts.tolist() == info["counts"]
    assert selection.info["rank"] == 5
    assert selection.info["rounds"] == selection.counts.sum() == info["rounds"]


def test_without_bias_the_features_are_taken_as_they_are():
    pool = make_pool(150, 4)
    ids, _, _ = randomized_bss(pool, budget=30, seed=1)
    assert pick(pool, 30, seed=1, bias=False).ids.tolist() == ids.tolist()


def test_weights_add_up_to_about_the_pool():
    totals = [pick(make_pool(500, 5), 80, seed=seed).weights.sum() for seed in range(10)]
    assert np.mean(totals) == pytest.approx(500, rel=0.05)


def test_weighted_least_squares_beats_plain_draws_on_heavy_tails():
    rng = np.random.default_rng(0)
    ours, plain = [], []
    for seed in range(25):
        pool = rng.standard_t(2, (600, 8))
        target = pool @ rng.standard_normal(8) + rng.standard_normal(600)
        design = np.c_[pool, np.ones(600)]
        best = np.linalg.lstsq(design, target)[0]
        least = np.mean((design @ best - target) ** 2)
        selection = pick(pool, 45, seed=seed)
        random = rng.choice(600, 45, replace=False)
        for errors, ids, weights in (
            (ours, selection.ids, selection.weights),
            (plain, random, np.ones(45)),
        ):
            root = np.sqrt(weights)
            found = np.linalg.lstsq(design[ids] * root[:, None], target[ids] * root)[0]
            errors.append(np.mean((design @ (found - best)) ** 2) / least)
    assert np.mean(ours) < 0.5 * np.mean(plain)


@pytest.mark.parametrize("basis", ["features", "polynomial", "fourier"])
def test_picks_depend_neither_on_blocks_nor_on_order_nor_on_the_library(basis):
    pool = make_pool(300, 3, seed=2).astype(np.float32)
    strategy = STRATEGY.with_options(basis=basis, frequencies=12)
    expected = select(strategy, LocalShards.of(features=pool), 50, seed=7)
    for parts, convert in ((3, np.asarray), (7, np.asarray), (2, torch.asarray)):
        order = np.random.default_rng(parts).permutation(300)
        blocks = np.array_split(order, parts)
        shards = LocalShards(Shard(ids, {"features": convert(pool[ids])}) for ids in blocks)
        selection = select(strategy, shards, 50, seed=7)
        assert selection.ids.tolist() == expected.ids.tolist()
        np.testing.assert_allclose(selection.weights, expected.weights, rtol=1e-4)


def test_several_models_are_put_side_by_side():
    first, second = make_pool(120, 2, 0), make_pool(120, 3, 1)
    joined = pick(np.c_[first, second], 30)
    several = pick([first, second], 30)
    assert several.ids.tolist() == joined.ids.tolist()
    assert several.info["columns"] == 6


def test_a_polynomial_basis_covers_products_of_features():
    pool = make_pool(400, 3)
    selection = pick(pool, 60, basis="polynomial", degree=2)
    assert selection.info["rank"] == 10
    products = np.c_[np.ones(400), pool, pool**2, pool[:, [0, 0, 1]] * pool[:, [1, 2, 2]]]
    basis = np.linalg.qr(products)[0]
    values = np.linalg.eigvalsh((basis[selection.ids].T * selection.weights) @ basis[selection.ids])
    low, high = selection.info["spectrum_min"], selection.info["spectrum_max"]
    assert (values[0], values[-1]) == pytest.approx((low, high), rel=1e-6)


def test_theory_mode_returns_what_the_theory_drew():
    pool = make_pool(600, 2)
    selection = pick(pool, 600, mode="theory", epsilon=0.1)
    assert len(selection) < 600
    assert selection.info["unused_budget"] == 600 - len(selection)
    assert 0.75 <= selection.info["spectrum_min"] <= selection.info["spectrum_max"] <= 1.25
    assert 0.9 <= selection.info["beta_sum"] <= 1.25


def test_theory_mode_with_too_small_a_budget_says_what_it_needs():
    with pytest.raises(BadInput, match=r"about \d+ draws, \d+ different items, but budget is 50"):
        pick(make_pool(600, 2), 50, mode="theory")


def test_fewer_labels_than_directions_keep_the_first_ones():
    with pytest.warns(LabelwiseWarning, match="only the 4 first principal directions"):
        selection = pick(make_pool(100, 30), 12)
    assert len(selection) == 12
    assert selection.info["reduced_from_rank"] == 31
    assert selection.info["rank"] == 4


def test_one_label_keeps_one_direction():
    with pytest.warns(LabelwiseWarning, match="only the 1 first"):
        assert len(pick(make_pool(20, 3), 1)) == 1


def test_few_labels_per_direction_are_noted():
    with pytest.warns(LabelwiseWarning, match="budget is 10 for 6 directions, fewer than 3 labels"):
        assert "caution" in pick(make_pool(100, 5), 10).info
    assert "caution" not in pick(make_pool(100, 5), 18).info


def test_the_spectrum_is_that_of_the_picks_where_some_were_filled_up():
    pool = np.random.default_rng(0).standard_t(2.5, (400, 4))
    with pytest.warns(LabelwiseWarning, match="were added with weight 1"):
        selection = pick(pool, 399, bias=False)
    basis = np.linalg.qr(pool)[0]
    values = np.linalg.eigvalsh((basis[selection.ids].T * selection.weights) @ basis[selection.ids])
    assert selection.info["filled"] > 0
    np.testing.assert_allclose(selection.info["spectrum"], values, rtol=1e-8)


def test_the_whole_pool_is_taken_with_weights_of_one():
    selection = pick(make_pool(12, 20), 12)
    assert sorted(selection.ids.tolist()) == list(range(12))
    assert selection.weights.tolist() == [1.0] * 12


def test_equal_items_have_one_direction_that_all_weights_share():
    selection = pick(np.ones((30, 3)), 10)
    assert selection.info["rank"] == 1
    assert len(selection) == 10
    assert selection.weights.sum() / 30 == pytest.approx(selection.info["spectrum_min"])


def test_a_pool_of_zeros_is_drawn_from_evenly():
    hits = np.zeros(8)
    for seed in range(60):
        hits[pick(np.zeros((8, 2)), 3, seed=seed).ids] += 1
    assert (hits > 8).all()  # 22.5 each on average


def test_info_is_plain_and_has_no_entry_per_round():
    info = pick(make_pool(200, 4), 100).info
    text = json.dumps(info)
    assert len(text) < 2_000
    assert info["barriers"][0][0] > info["barriers"][1][0]


def test_unknown_options_are_refused():
    with pytest.raises(UnknownName, match="bss has no option 'gama'"):
        STRATEGY.with_options(gama=0.1)


def test_few_labels_go_to_the_directions_in_which_the_pool_spreads_most():
    generator = np.random.default_rng(0)
    rows = np.zeros((200, 6), dtype=np.float32)
    rows[:100, 0] = generator.normal(size=100)  # one column of its own, the first one
    rows[100:, 1:] = generator.normal(size=(100, 1)) + 0.1 * generator.normal(size=(100, 5))
    with pytest.warns(LabelwiseWarning, match="the 1 first principal direction"):
        picks = labelwise.select("bss", 4, features=rows, bias=False)
    assert (picks.ids >= 100).all()
