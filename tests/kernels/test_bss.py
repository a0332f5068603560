"""Randomized BSS against its definition: every inverse, mass and eigenvalue computed anew."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from labelwise.arrays import waiting_times
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.kernels.linear import bss as bss_sampler
from labelwise.kernels.linear.bss import (
    FETCHED,
    WIDEST,
    Barriers,
    Candidates,
    budget_gamma,
    draw_bss_by_theory,
    randomized_bss,
    theory_gamma,
)
from labelwise.kernels.linear.leverage import leverage_scores, whiten
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.pool.rows import read_features


def make_pool(kind, n, d, seed):
    rng = np.random.default_rng(seed)
    if kind == "gaussian":
        return rng.standard_normal((n, d))
    if kind == "heavy":
        return rng.standard_t(2, (n, d))
    return np.eye(d)[rng.permutation(np.arange(n) % d)]  # one-hot, every column used


def make_candidates(pool, seed):
    shards = LocalShards.of(features=pool)
    return Candidates(shards, read_features, whiten(shards, read_features).transform, seed)


def slow_whiten(pool):
    """Rows with mean outer product I, from the singular value decomposition."""
    left, values, _ = np.linalg.svd(pool, full_matrices=False)
    return left[:, values > 1e-10 * values[0]] * np.sqrt(len(pool))


def slow_energy(matrix, upper, lower):
    one = np.eye(len(matrix))
    return np.linalg.inv(upper * one - matrix) + np.linalg.inv(matrix - lower * one)


def slow_bss(pool, gamma, seed):
    """The procedure word by word, until the theory ends it; returns B over its normaliser."""
    rows, rng = slow_whiten(pool), np.random.default_rng(seed)
    d = rows.shape[1]
    upper, lower, matrix, drawn = 2 * d / gamma, -2 * d / gamma, np.zeros((d, d)), []
    while True:
        energy = slow_energy(matrix, upper, lower)
        forms = np.einsum("ij,jk,ik->i", rows, energy, rows)
        step = gamma / np.trace(energy)
        upper, lower = upper + step / (1 - gamma), lower + step / (1 + gamma)
        if upper - lower >= 8 * d / gamma:
            return matrix / (2 * d * (1 - gamma**2) / gamma**2), drawn
        item = rng.choice(len(rows), p=forms / forms.sum())
        matrix += gamma / forms[item] * np.outer(rows[item], rows[item])
        drawn.append(item)


def relative_spectrum(pool, ids, weights):
    """Eigenvalues of the weighted Gram matrix relative to that of the pool."""
    rows = slow_whiten(pool)[ids]
    return np.linalg.eigvalsh((rows.T * weights) @ rows / len(pool))


# the matrix and its barriers


@pytest.mark.parametrize("kind", ["gaussian", "heavy", "onehot"])
@pytest.mark.parametrize("gamma", [0.1, 0.37, 0.8])
def test_potential_and_forms_match_dense_inverses_in_every_round(kind, gamma):
    pool = make_pool(kind, 60, 7, 1)
    rows, candidates = slow_whiten(pool), make_candidates(pool, 0)
    barriers = Barriers(7, gamma)
    for _ in range(120):
        energy = slow_energy(barriers.matrix(), barriers.upper, barriers.lower)
        assert barriers.potential == pytest.approx(np.trace(energy), rel=1e-10)
        _, row, form = candidates.draw(barriers)
        assert form == pytest.approx(row @ energy @ row, rel=1e-10)
        bounds = barriers.forms(rows)[1]
        assert (bounds >= (1 - 1e-12) * np.linalg.norm(energy, 2) * (rows**2).sum(axis=1)).all()
        barriers.add(row, gamma / form)


def test_the_potential_starts_at_gamma():
    assert Barriers(9, 0.3).potential == pytest.approx(0.3, rel=1e-12)


def crossings(runs):
    """How often an eigenvalue of B touched a barrier, over many short runs."""
    crossed = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        kind = ("gaussian", "heavy", "onehot")[seed % 3]
        d, gamma = int(rng.integers(1, 6)), float(rng.uniform(0.05, 0.95))
        candidates, barriers = make_candidates(make_pool(kind, 25, d, seed), seed), None
        barriers = Barriers(d, gamma)
        for _ in range(12 * d):
            _, row, form = candidates.draw(barriers)
            barriers.add(row, gamma / form)
            values = np.linalg.eigvalsh(barriers.matrix())
            crossed += bool(values[0] <= barriers.lower or values[-1] >= barriers.upper)
    return crossed


def test_barriers_are_never_crossed():
    assert crossings(60) == 0


@pytest.mark.slow
def test_barriers_are_never_crossed_in_a_thousand_runs():
    assert crossings(1000) == 0


def after_some_rounds(pool, gamma, rounds, seed=0):
    candidates = make_candidates(pool, seed)
    barriers = Barriers(candidates.leverage.sum().round().astype(int), gamma)
    for _ in range(rounds):
        _, row, form = candidates.draw(barriers)
        barriers.add(row, gamma / form)
    return candidates, barriers


@pytest.mark.parametrize("rounds", [0, 3, 25, 60])
def test_the_expected_potential_does_not_grow(rounds):
    pool = make_pool("heavy", 20, 3, 5)
    candidates, barriers = after_some_rounds(pool, 0.4, rounds)
    rows = candidates._whiten_rows(np.arange(20))
    forms, _ = barriers.forms(rows)
    law = forms / (20 * barriers.potential)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    after = []
    for row, form in zip(rows, forms, strict=True):
        next_barriers = copy.deepcopy(barriers)
        next_barriers.add(row, 0.4 / form)
        after.append(next_barriers.potential)
    assert law @ after <= barriers.potential * (1 + 1e-12)


def test_the_matrix_grows_by_a_multiple_of_the_identity_on_average():
    candidates, barriers = after_some_rounds(make_pool("heavy", 20, 3, 6), 0.4, 9)
    rows = candidates._whiten_rows(np.arange(20))
    forms, _ = barriers.forms(rows)
    law = forms / (20 * barriers.potential)
    growth = (rows.T * (law * 0.4 / forms)) @ rows
    np.testing.assert_allclose(growth, 0.4 / barriers.potential * np.eye(3), atol=1e-12)


# the law of the draws


@pytest.mark.parametrize("kind", ["gaussian", "heavy", "onehot"])
def test_draws_follow_the_enumerated_law(kind):
    pool = make_pool(kind, 40, 4, 2)
    pool[7] = 0.0
    candidates, barriers = after_some_rounds(pool, 0.5, 14, seed=3)
    energy = slow_energy(barriers.matrix(), barriers.upper, barriers.lower)
    rows = candidates._whiten_rows(np.arange(40))
    law = np.einsum("ij,jk,ik->i", rows, energy, rows) / (40 * np.trace(energy))
    counts = np.zeros(40)
    for _ in range(4_000):
        counts[candidates.draw(barriers)[0]] += 1
    assert counts[7] == 0
    common = law * 4_000 > 5  # chi-square needs a few in every cell: the rest is one cell
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(law[common], max(law[~common].sum(), 0)) * 4_000
    filled = expected > 1e-9
    assert stats.chisquare(observed[filled], expected[filled]).pvalue > 1e-3


def test_one_draw_does_not_foretell_the_next():
    candidates, barriers = after_some_rounds(make_pool("onehot", 4, 2, 3), 0.8, 3)
    forms, bounds = barriers.forms(candidates._whiten_rows(np.arange(4)))
    assert (forms / bounds).min() < 0.7  # some candidates are turned down
    items = [candidates.draw(barriers)[0] for _ in range(3_001)]
    pairs = np.zeros((4, 4))
    np.add.at(pairs, (items[:-1], items[1:]), 1)
    law = forms / forms.sum()
    assert stats.chisquare(pairs.ravel(), np.outer(law, law).ravel() * 3_000).pvalue > 1e-3


def test_over_seeds_the_first_draw_follows_leverage():
    pool = make_pool("heavy", 6, 2, 8)
    counts = np.zeros(6)
    for seed in range(400):
        counts[make_candidates(pool, seed).draw(Barriers(2, 0.3))[0]] += 1
    expected = leverage_scores(pool) / 2 * 400
    assert stats.chisquare(counts, expected).pvalue > 1e-3


def test_whole_runs_are_distributed_as_those_of_the_slow_version():
    pool = make_pool("heavy", 50, 3, 4)
    fast = [randomized_bss(pool, gamma=0.4, seed=seed) for seed in range(80)]
    slow = [slow_bss(pool, 0.4, seed) for seed in range(80)]
    low = [np.linalg.eigvalsh(matrix)[0] for matrix, _ in slow]
    assert stats.ks_2samp([run[2]["spectrum_min"] for run in fast], low).pvalue > 1e-3
    rounds = [len(drawn) for _, drawn in slow]
    assert stats.ks_2samp([run[2]["rounds"] for run in fast], rounds).pvalue > 1e-3
    different = [len(set(drawn)) for _, drawn in slow]
    assert stats.ks_2samp([len(run[0]) for run in fast], different).pvalue > 1e-3


def slow_candidates(leverage, rank, seed, fetches):
    """The items in the order in which they ring, found by looking at all of them every time."""
    ids, turn, found = np.arange(len(leverage)), 0, []
    times = waiting_times(seed, (0, turn), leverage, ids)
    step = min(FETCHED, 4 * len(ids)) / rank
    for end in step * np.arange(1, fetches + 1):
        rung = []
        while (times < end).any():
            due, turn = ids[times < end], turn + 1
            rung += zip(times[due], due, strict=True)
            times[due] += waiting_times(seed, (0, turn), leverage[due], due)
        found += [int(item) for _, item in sorted(rung)]
    return found


@pytest.mark.parametrize("n", [7, 3_000])
def test_candidates_come_in_the_order_in_which_they_ring(n, monkeypatch):
    monkeypatch.setattr(bss_sampler, "CHUNK", 1_000)
    candidates = make_candidates(make_pool("heavy", n, 3, 5), seed=9)
    expected = slow_candidates(candidates.leverage, 3, 9, fetches=12)
    start = Barriers(3, 0.1)  # where B = 0, every candidate is accepted
    assert [candidates.draw(start)[0] for _ in expected] == expected


def test_in_one_dimension_every_round_draws_by_squared_length():
    pool = make_pool("heavy", 30, 1, 0)
    candidates, barriers = after_some_rounds(pool, 0.5, 11)
    forms, bounds = barriers.forms(candidates._whiten_rows(np.arange(30)))
    np.testing.assert_allclose(forms / forms.sum(), pool[:, 0] ** 2 / (pool**2).sum(), rtol=1e-10)
    assert (bounds >= forms).all()


# theory mode


def test_the_guarantees_hold_at_the_end_of_the_theory():
    gamma, good = 0.105, 0
    for seed in range(10):
        kind = ("gaussian", "heavy", "onehot")[seed % 3]
        _, _, info = randomized_bss(make_pool(kind, 400, 5, seed), gamma=gamma, seed=seed)
        assert 0.9 <= sum(info["betas"]) <= 1.25
        assert info["condition"] <= gamma**2 / (1 - gamma**2)
        low, high = info["spectrum_bounds"]
        assert low < info["spectrum_min"] <= info["spectrum_max"] < high
        good += info["spectrum_min"] >= 0.75 and info["spectrum_max"] <= 1.25
    assert good >= 9


def test_no_beta_times_k_exceeds_the_reported_condition():
    pool, gamma = make_pool("heavy", 100, 3, 9), 0.2
    candidates, barriers = make_candidates(pool, 0), Barriers(3, gamma)
    rows = candidates._whiten_rows(np.arange(100))
    _, _, info = randomized_bss(pool, gamma=gamma, seed=0)
    worst = 0.0
    for beta, potential in zip(info["betas"], info["potentials"], strict=True):
        assert barriers.potential == pytest.approx(potential, rel=1e-9)
        forms, _ = barriers.forms(rows)
        worst = max(worst, beta * potential * ((rows**2).sum(axis=1) / forms).max())
        _, row, form = candidates.draw(barriers)
        barriers.add(row, gamma / form)
    assert 0.1 * info["condition"] < worst <= info["condition"]


def test_the_theory_ends_before_the_gap_is_reached():
    pool, gamma = make_pool("gaussian", 200, 4, 0), 0.3
    _, _, info = randomized_bss(pool, gamma=gamma, seed=1)
    gaps = np.subtract(*info["barriers"])
    last = gamma / info["potentials"][-1] * (1 / (1 - gamma) - 1 / (1 + gamma))
    assert gaps[0] == pytest.approx(16 / gamma)
    assert gaps[-1] < 32 / gamma <= gaps[-1] + 2 * last
    assert info["normaliser"] == pytest.approx(8 * (1 - gamma**2) / gamma**2)
    assert len(info["betas"]) == len(info["potentials"]) == info["rounds"] == len(gaps) - 1


def test_gamma_follows_epsilon_up_to_where_the_spectrum_holds():
    assert theory_gamma(0.01) == pytest.approx(0.1 / 3)
    assert theory_gamma(1.0) == WIDEST
    assert (1 + 2 * WIDEST) / (1 - WIDEST**2) == pytest.approx(1.25, abs=1e-3)
    for epsilon in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(BadInput, match="epsilon must be above 0"):
            theory_gamma(epsilon)


def test_the_weighted_fit_recovers_the_best_one_within_epsilon():
    rng, epsilon, excess = np.random.default_rng(0), 1.0, []
    for seed in range(30):
        pool = rng.standard_t(3, (300, 4))
        target = pool @ rng.standard_normal(4) + rng.standard_normal(300) * (1 + pool[:, 0] ** 2)
        best = np.linalg.lstsq(pool, target)[0]
        ids, weights, _ = randomized_bss(pool, gamma=np.sqrt(epsilon) / 3, seed=seed)
        root = np.sqrt(weights)
        found = np.linalg.lstsq(pool[ids] * root[:, None], target[ids] * root)[0]
        least = np.sum((pool @ best - target) ** 2)
        excess.append(np.sum((pool @ (found - best)) ** 2) / least)
    assert np.mean(excess) <= epsilon
    assert np.mean(excess) > 1e-4  # the target is not in the span, so the bound means something


def test_too_few_rows_for_the_theory_is_an_error_that_says_what_it_needs():
    shards = LocalShards.of(features=make_pool("gaussian", 300, 4, 0))
    transform = whiten(shards, read_features).transform
    with pytest.raises(BadInput, match=r"asks for about \d+ draws") as error:
        draw_bss_by_theory(shards, read_features, transform, gamma=0.2, most=50, seed=0)
    words = str(error.value).split()
    asked = int(words[words.index("different") - 1])
    drawn = draw_bss_by_theory(shards, read_features, transform, gamma=0.2, seed=0)
    assert asked == pytest.approx(len(drawn.ids), rel=0.15)
    assert drawn.counts.sum() == drawn.info["rounds"]


# budget mode


@pytest.mark.parametrize("kind", ["gaussian", "heavy", "onehot"])
def test_weights_and_info_describe_the_same_spectrum(kind):
    pool = make_pool(kind, 300, 6, 3)
    ids, weights, info = randomized_bss(pool, budget=60, seed=2)
    assert len(ids) == len(set(ids.tolist())) == 60
    assert info["gamma"] == budget_gamma(6, 60)
    np.testing.assert_allclose(relative_spectrum(pool, ids, weights), info["spectrum"], atol=1e-8)
    low, high = info["spectrum_bounds"]
    assert low < info["spectrum"][0] == info["spectrum_min"]
    assert info["spectrum"][-1] == info["spectrum_max"] < high
    assert sum(info["betas"]) == pytest.approx(1)
    assert sum(info["counts"]) == info["rounds"] >= 60


def test_the_weighted_gram_matrix_is_right_on_average():
    pool = make_pool("heavy", 60, 3, 7)
    grams, totals = [], []
    for seed in range(100):
        ids, weights, _ = randomized_bss(pool, budget=20, seed=seed)
        rows = slow_whiten(pool)[ids]
        grams.append((rows.T * weights) @ rows / 60)
        totals.append(weights.sum())
    error = np.std(grams, axis=0) / np.sqrt(100)
    assert (np.abs(np.mean(grams, axis=0) - np.eye(3)) < 4.5 * error + 0.01).all()
    assert np.mean(totals) == pytest.approx(60, abs=4.5 * np.std(totals) / np.sqrt(100))


def test_every_group_of_a_one_hot_pool_is_hit():
    pool = make_pool("onehot", 600, 12, 0)
    for seed in range(6):
        ids, _, _ = randomized_bss(pool, budget=96, seed=seed)
        assert (pool[ids].sum(axis=0) > 0).all()


def test_the_whole_pool_stands_for_itself():
    pool = make_pool("gaussian", 30, 4, 0)
    ids, weights, info = randomized_bss(pool, budget=30, seed=0)
    assert ids.tolist() == list(range(30))
    assert weights.tolist() == [1.0] * 30
    np.testing.assert_allclose(relative_spectrum(pool, ids, weights), info["spectrum"], atol=1e-9)


def test_nearly_the_whole_pool_has_a_spectrum_near_one():
    pool = make_pool("gaussian", 60, 3, 0)
    ids, weights, info = randomized_bss(pool, budget=57, seed=0)
    assert len(ids) == 57
    assert 0.6 < info["spectrum_min"] <= info["spectrum_max"] < 1.6
    assert weights.sum() == pytest.approx(60, rel=0.3)


def test_rows_that_no_draw_reaches_are_filled_up_and_said():
    pool = np.zeros((12, 2))
    pool[[3, 5, 8, 9]] = make_pool("gaussian", 4, 2, 0)
    with pytest.warns(LabelwiseWarning, match="drew 4 different items of the 6"):
        ids, weights, info = randomized_bss(pool, budget=6, seed=0)
    assert set(ids[:4].tolist()) == {3, 5, 8, 9}
    assert ids[4:].tolist() == [0, 1]  # all of leverage 0: the smaller id first
    assert weights[4:].tolist() == [1.0, 1.0]
    assert info["filled"] == 2
    assert info["counts"][4:] == [0, 0]


@pytest.mark.parametrize("at_a_time", [5, 4096])
def test_the_spectrum_counts_rows_that_were_filled_up(at_a_time, monkeypatch):
    monkeypatch.setattr(bss_sampler, "SUMMED", at_a_time)
    pool = np.random.default_rng(0).standard_t(2.5, (400, 4))
    with pytest.warns(LabelwiseWarning, match="were added with weight 1"):
        ids, weights, info = randomized_bss(pool, budget=399, seed=0)
    assert info["filled"] > 5
    spectrum = relative_spectrum(pool, ids, weights)
    np.testing.assert_allclose(info["spectrum"], spectrum, rtol=1e-8)
    assert (info["spectrum_min"], info["spectrum_max"]) == pytest.approx(spectrum[[0, -1]].tolist())
    low, high = info["spectrum_bounds"]
    assert low < spectrum[0] and spectrum[-1] < high < 1.3


def test_fewer_than_three_labels_per_direction_are_warned_of():
    pool = make_pool("gaussian", 40, 4, 0)
    with pytest.warns(LabelwiseWarning, match="budget is 11 for 4 directions.*ask for 12 or more"):
        randomized_bss(pool, budget=11, seed=0)
    with pytest.warns(LabelwiseWarning, match="budget is 9 for 4 directions.*ask for 10 or more"):
        randomized_bss(pool[:10], budget=9, seed=0)
    randomized_bss(pool, budget=12, seed=0)
    randomized_bss(pool[:10], budget=10, seed=0)


# what must not matter


def split(pool, parts, seed=None, convert=lambda rows: rows):
    """The pool in blocks, in another order if a seed is given; ids travel with rows."""
    ids = np.arange(len(pool))
    if seed is not None:
        ids = np.random.default_rng(seed).permutation(ids)
    blocks = np.array_split(ids, parts)
    return LocalShards(Shard(block, {"features": convert(pool[block])}) for block in blocks)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["heavy", "onehot"])
def test_picks_depend_neither_on_blocks_nor_on_order_nor_on_the_library(kind, dtype):
    pool = make_pool(kind, 400, 8, 11).astype(dtype)
    expected, expected_weights, _ = randomized_bss(pool, budget=90, seed=5)
    others = [split(pool, 3), split(pool, 7, seed=1), split(pool, 2, 4, torch.asarray)]
    for shards in [*others, torch.asarray(pool)]:
        ids, weights, _ = randomized_bss(shards, budget=90, seed=5)
        assert ids.tolist() == expected.tolist()
        np.testing.assert_allclose(weights, expected_weights, rtol=1e-6)


def test_an_invertible_change_of_columns_changes_nothing():
    pool = make_pool("heavy", 200, 5, 1)
    mixed = pool @ np.random.default_rng(0).standard_normal((5, 5))
    expected, weights, _ = randomized_bss(pool, budget=40, seed=0)
    repeated = np.concatenate([mixed, mixed[:, :2]], axis=1)  # dependent columns change nothing
    for columns in (mixed, repeated, 1e-9 * mixed):
        found = randomized_bss(columns, budget=40, seed=0)
        assert found[0].tolist() == expected.tolist()
        np.testing.assert_allclose(found[1], weights, rtol=1e-6)


def test_the_seed_decides():
    pool = make_pool("gaussian", 100, 4, 0)
    first, again, other = (randomized_bss(pool, budget=20, seed=seed)[0] for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()


@given(
    n=st.integers(3, 40),
    d=st.integers(1, 6),
    zeros=st.integers(0, 10),
    copies=st.integers(0, 10),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
@pytest.mark.filterwarnings("ignore::labelwise.errors.LabelwiseWarning")
def test_degenerate_pools_give_valid_draws(n, d, zeros, copies, share, seed):
    rows = np.random.default_rng(seed).integers(-2, 3, (n, d)).astype(float)
    rows[0, 0] = 1.0
    pool = np.concatenate([rows, np.zeros((zeros, d)), np.repeat(rows[:1], copies, axis=0)])
    rank = np.linalg.matrix_rank(pool)
    budget = int(rank + share * (len(pool) - rank))
    ids, weights, info = randomized_bss(pool, budget=budget, seed=seed)
    assert len(ids) == len(set(ids.tolist())) == budget
    assert info["rank"] == rank
    assert np.isfinite(weights).all() and (weights > 0).all()
    spectrum = relative_spectrum(pool, ids, weights)
    np.testing.assert_allclose(spectrum, info["spectrum"], atol=1e-6)
    assert info["spectrum_min"] == info["spectrum"][0]
    assert info["spectrum_max"] == info["spectrum"][-1]
    if info["rounds"]:
        drawn = np.asarray(info["counts"]) > 0
        assert (np.abs(pool[ids[drawn]]).sum(axis=1) > 0).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "give either gamma or budget"),
        ({"gamma": 0.1, "budget": 9}, "give either gamma or budget"),
        ({"gamma": 1.0}, "gamma must be between 0 and 1"),
        ({"gamma": float("nan")}, "gamma must be between 0 and 1"),
        ({"budget": 0}, "budget must be a whole number from 1 to 20; got 0"),
        ({"budget": 21}, "budget must be a whole number from 1 to 20; got 21"),
        ({"budget": 7.5}, "budget must be a whole number"),
        ({"budget": True}, "budget must be a whole number from 1 to 20; got True"),
        ({"budget": "9"}, "budget must be a whole number from 1 to 20; got '9'"),
        ({"gamma": "x"}, "gamma must be between 0 and 1, without them; got 'x'"),
        ({"budget": 2}, "budget is 2 but the rows have rank 3"),
    ],
)
def test_wrong_arguments_are_refused(arguments, words):
    with pytest.raises(BadInput, match=words):
        randomized_bss(make_pool("gaussian", 20, 3, 0), seed=0, **arguments)


def test_a_pool_of_zeros_is_refused():
    with pytest.raises(BadInput, match="all rows are zero"):
        randomized_bss(np.zeros((5, 3)), budget=2, seed=0)


def test_badly_scaled_float32_rows_give_the_same_picks_in_any_split():
    pool = make_pool("gaussian", 300, 5, 12) * [1, 1e-3, 1e3, 1, 1] + [100, 0, 0, 0, -50]
    pool = pool.astype(np.float32)
    expected, _, info = randomized_bss(pool, budget=60, seed=0)
    assert info["rank"] == 5
    for shards in (split(pool, 4, seed=2), split(pool, 3, 5, torch.asarray)):
        assert randomized_bss(shards, budget=60, seed=0)[0].tolist() == expected.tolist()


def test_the_matrix_may_be_decomposed_elsewhere():
    torch = pytest.importorskip("torch")
    rows = np.random.default_rng(5).normal(size=(200, 6))
    here, there = Barriers(6, 0.3), Barriers(6, 0.3, torch.empty(0, dtype=torch.float64))
    for row in rows:
        values, bounds = here.forms(row[None, :])
        others, others_bounds = there.forms(row[None, :])
        np.testing.assert_allclose(others, values, rtol=1e-9)
        np.testing.assert_allclose(others_bounds, bounds, rtol=1e-9)
        here.add(row, 0.3 / values[0])
        there.add(row, 0.3 / values[0])
    np.testing.assert_allclose(there.matrix(), here.matrix(), rtol=1e-9)


@pytest.mark.parametrize("options", [{"gamma": 0.3}, {"budget": 60}])
def test_a_distribution_is_what_the_weighted_draws_represent(options):
    rng = np.random.default_rng(0)
    pool, masses = rng.normal(size=(200, 4)), rng.uniform(0.2, 3, size=200)
    ids, weights, info = randomized_bss(pool, **options, distribution=masses, seed=1)
    whole = 200 * (pool * (masses / masses.sum())[:, None]).T @ pool
    drawn = (pool[ids] * weights[:, None]).T @ pool[ids]
    values = np.sort(np.linalg.eigvals(np.linalg.solve(whole, drawn)).real)
    np.testing.assert_allclose(values, info["spectrum"], rtol=1e-8)
    low, high = info["spectrum_bounds"]
    assert low - 1e-9 <= values[0] and values[-1] <= high + 1e-9
    even = randomized_bss(pool, **options, distribution=np.ones(200), seed=1)
    assert even[0].tolist() == randomized_bss(pool, **options, seed=1)[0].tolist()
    with pytest.raises(BadInput, match="one number per row"):
        randomized_bss(pool, **options, distribution=masses[1:], seed=1)
