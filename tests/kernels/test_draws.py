"""Draws against drawing one by one, exact laws and known expectations."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from labelwise.errors import BadInput
from labelwise.kernels.linear import draws
from labelwise.kernels.linear.draws import (
    _poisson_quantile,
    draw_until_distinct,
)

P = np.array([0.4, 0.3, 0.15, 0.1, 0.05])


def poisson_rate(weights, k):
    return draws.solve_poisson_rate([draws.find_heaviest_weights(np.asarray(weights, float), k)], k)


def poisson_draw(weights, k, seed, ids=None):
    ids, rate = np.arange(len(weights)) if ids is None else ids, poisson_rate(weights, k)
    kept = draws.sort_clock_rings(draws.keep_poisson_items(weights, ids, seed, rate))
    return kept.ids, np.minimum(1.0, rate * kept.weights)


def one_by_one(p, k, generator):
    """Draw with replacement until ``k`` are distinct, literally."""
    counts: dict[int, int] = {}
    while len(counts) < k:
        drawn = int(generator.choice(len(p), p=p))
        counts[drawn] = counts.get(drawn, 0) + 1
    return list(counts), list(counts.values())


def test_the_order_has_the_law_of_drawing_without_the_ones_that_came_before():
    seen = Counter(tuple(draw_until_distinct(P, 3, seed)[0].tolist()) for seed in range(2500))
    orders = list(itertools.permutations(range(5), 3))
    chances = [P[a] * P[b] / (1 - P[a]) * P[c] / (1 - P[a] - P[b]) for a, b, c in orders]
    observed = np.array([seen[order] for order in orders])
    assert stats.chisquare(observed, 2500 * np.array(chances)).pvalue > 1e-3


def test_order_and_counts_together_have_the_law_of_drawing_one_by_one():
    generator = np.random.default_rng(0)
    p = np.array([0.6, 0.3, 0.1])
    fast, slow = Counter(), Counter()
    for seed in range(1500):
        ids, counts, _ = draw_until_distinct(p, 3, seed)
        fast[tuple(ids.tolist()), tuple(np.minimum(counts, 4).tolist())] += 1
        order, often = one_by_one(p, 3, generator)
        slow[tuple(order), tuple(min(count, 4) for count in often)] += 1
    common = [key for key in fast.keys() | slow.keys() if fast[key] + slow[key] >= 20]
    table = np.array([[fast[key], slow[key]] for key in common])
    rest = [[1500 - table[:, 0].sum(), 1500 - table[:, 1].sum()]]
    assert stats.chi2_contingency(np.concatenate([table, rest])).pvalue > 1e-3
    assert len(common) > 15


def test_the_number_of_draws_is_that_of_the_coupon_collector():
    uniform = np.full(10, 0.1)
    draws = [draw_until_distinct(uniform, 10, seed)[2] for seed in range(1000)]
    expected = 10 * sum(1 / i for i in range(1, 11))
    error = np.std(draws) / np.sqrt(len(draws))
    assert abs(np.mean(draws) - expected) < 3.5 * error


def weighted_sums(values, estimate, k, seeds, p):
    return np.array([estimate(values, *draw_until_distinct(p, k, seed)) for seed in range(seeds)])


@pytest.fixture
def pool():
    generator = np.random.default_rng(5)
    p = np.exp(generator.standard_normal(100))
    return p / p.sum(), generator.random(100)


@pytest.mark.parametrize("k", [5, 60])
def test_the_draws_before_the_last_estimate_any_sum_without_bias(pool, k):
    p, values = pool

    def before_the_last(values, ids, counts, draws):
        earlier = counts.copy()
        earlier[-1] -= 1  # the last draw stopped the rest, so it is not a fair one
        return np.sum(earlier / ((draws - 1) * p[ids]) * values[ids])

    sums = weighted_sums(values, before_the_last, k, 3000, p)
    assert abs(sums.mean() - values.sum()) < 3 * sums.std() / np.sqrt(3000)


def test_all_draws_estimate_any_sum_with_little_bias_if_repeats_are_counted(pool):
    p, values = pool

    def counted(values, ids, counts, draws):
        return np.sum(counts / (draws * p[ids]) * values[ids])

    def uncounted(values, ids, counts, draws):
        return np.sum(1 / (draws * p[ids]) * values[ids])

    assert np.mean(weighted_sums(values, counted, 60, 2000, p)) == pytest.approx(
        values.sum(), rel=0.015
    )
    assert np.mean(weighted_sums(values, uncounted, 60, 2000, p)) < 0.7 * values.sum()


def test_a_draw_belongs_to_the_items_and_not_to_their_places():
    generator = np.random.default_rng(1)
    p, ids = generator.random(300), generator.permutation(10**6)[:300]
    order = generator.permutation(300)
    first = draw_until_distinct(p, 40, 7, ids)
    second = draw_until_distinct(5.5 * p[order], 40, 7, ids[order])
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])
    assert first[2] == second[2] == first[1].sum()
    assert set(first[0].tolist()) != set(draw_until_distinct(p, 40, 8, ids)[0].tolist())


def test_a_smaller_number_of_items_is_the_beginning_of_a_larger_one():
    p = np.random.default_rng(1).random(50)
    few, many = draw_until_distinct(p, 10, 3), draw_until_distinct(p, 30, 3)
    np.testing.assert_array_equal(few[0], many[0][:10])
    assert few[1][-1] == 1 and many[1][-1] == 1


def test_rare_items_cost_no_time():
    p = np.array([1.0, 1e-12, 1e-12])
    ids, counts, draws = draw_until_distinct(p, 3, 0)
    assert ids[0] == 0 and draws > 1e9
    assert counts[0] == pytest.approx(draws, rel=1e-6)


def test_items_without_a_chance_are_never_drawn():
    p = np.array([0, 1, 0, 2, 3.0])
    ids, _, _ = draw_until_distinct(p, 3, 0)
    assert sorted(ids.tolist()) == [1, 3, 4]
    assert [len(part) for part in draw_until_distinct(p, 0, 0)[:2]] == [0, 0]


@pytest.mark.parametrize("mean", [0.0, 1e-9, 0.3, 7.0, 400.0, 1e6])
def test_counts_invert_the_poisson_law(mean):
    levels = np.random.default_rng(0).random(2000)
    expected = stats.poisson.ppf(levels, mean) if mean else np.zeros(2000)
    np.testing.assert_array_equal(_poisson_quantile(levels, np.full(2000, mean)), expected)


@pytest.mark.parametrize("mean", [2e9, 1e13])
def test_large_counts_have_the_moments_of_the_poisson_law(mean):
    levels = (np.arange(10_000) + 0.5) / 10_000
    counts = _poisson_quantile(levels, np.full(10_000, mean))
    standard = (counts - mean) / np.sqrt(mean)
    assert abs(standard.mean()) < 1e-4 and standard.std() == pytest.approx(1, abs=2e-3)


def test_the_wrong_probabilities_are_refused():
    with pytest.raises(BadInput, match=r"k is 3 but 2 of 4 items have a positive probability"):
        draw_until_distinct([0, 1, 1, 0], 3, 0)
    with pytest.raises(BadInput, match=r"not negative; item 2 has -0.5"):
        draw_until_distinct([1, 1, -0.5], 1, 0)
    with pytest.raises(BadInput, match=r"item 17 has nan"):
        draw_until_distinct([1, np.nan], 1, 0, np.array([4, 17]))
    with pytest.raises(BadInput, match=r"p must have one axis; got shape \(1, 2\)"):
        draw_until_distinct([[1, 1]], 1, 0)
    with pytest.raises(BadInput, match=r"there are 1 ids but 2 probabilities"):
        draw_until_distinct([1, 1], 1, 0, np.array([4]))
    with pytest.raises(BadInput, match=r"k must be a whole number; got 1.5"):
        draw_until_distinct([1, 1], 1.5, 0)
    with pytest.raises(BadInput, match=r"2 distinct items would take over"):
        draw_until_distinct([1, 1e-300], 2, 0)


@given(
    st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e6)), min_size=1, max_size=12),
    st.integers(1, 12),
)
def test_the_rate_gives_the_expected_number_of_items(weights, k):
    weights = np.array(weights)
    k = min(k, np.count_nonzero(weights))
    rate = poisson_rate(weights, k)
    assert np.minimum(1, rate * weights).sum() == pytest.approx(k, rel=1e-9)


def test_the_rate_of_a_small_case_is_known():
    # the largest is certain, the others share the one that is left: 1 / (2 + 2)
    assert poisson_rate([10, 2, 2], 2) == pytest.approx(0.25)
    assert poisson_rate([1, 1, 1, 1], 2) == pytest.approx(0.5)
    assert poisson_rate([1, 1], 0) == 0


def test_each_item_is_kept_as_often_as_its_probability_says():
    weights = np.array([8, 2, 1, 0.5, 0, 0.5])
    chances = np.minimum(1, poisson_rate(weights, 3) * weights)
    kept, sizes = np.zeros(6), []
    for seed in range(2000):
        ids, chance = poisson_draw(weights, 3, seed)
        np.testing.assert_allclose(chance, chances[ids])
        kept[ids] += 1
        sizes.append(len(ids))
    errors = np.sqrt(2000 * chances * (1 - chances))
    assert (np.abs(kept - 2000 * chances) <= 3.5 * errors).all()
    variance = np.sum(chances * (1 - chances))  # of a sum of independent decisions
    assert np.var(sizes) == pytest.approx(variance, rel=0.1)


def test_what_is_kept_belongs_to_the_items_and_grows_with_their_number():
    generator = np.random.default_rng(1)
    weights, ids = generator.random(200), generator.permutation(10**6)[:200]
    order = generator.permutation(200)
    first, chances = poisson_draw(weights, 30, 5, ids)
    second, same = poisson_draw(3 * weights[order], 30, 5, ids[order])
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(chances, same)
    assert set(poisson_draw(weights, 15, 5, ids)[0]) <= set(first.tolist())


def sorted_rate(weights, k):
    """The rate from all weights sorted at once."""
    largest = np.sort(weights[weights > 0])[::-1]
    for certain in range(len(largest)):
        rate = (k - certain) / largest[certain:].sum()
        if rate * largest[certain] <= 1 + 1e-12:
            return rate
    return None


@given(
    st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1e3)), min_size=1, max_size=30),
    st.integers(1, 30),
    st.lists(st.integers(0, 30), max_size=4),
)
def test_the_rate_from_the_heaviest_of_every_block_is_that_of_all_weights(weights, k, cuts):
    weights = np.array(weights)
    k = min(k, int(np.count_nonzero(weights)))
    blocks = np.split(weights, sorted(min(cut, len(weights)) for cut in cuts))
    found = draws.solve_poisson_rate([draws.find_heaviest_weights(block, k) for block in blocks], k)
    assert found == (0 if k == 0 else pytest.approx(sorted_rate(weights, k), rel=1e-9))
