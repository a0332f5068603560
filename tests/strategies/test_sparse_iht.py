"""Iterative hard thresholding against its dense twin and its known answers."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labelwise
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.pool import blocks as shards
from labelwise.selection.run import select
from labelwise.strategies.sparse_iht import STRATEGY
from tests.kernels.sparse_twin import make_members, make_rows, shards_of, twin_of
from tests.strategies.test_sparse_greedy import SIZES, resized


def picked(rows, budget, blocks=1, order=None, **options):
    options = {"temperature": 2.0, "compare_with_greedy": False, **options}
    return select(STRATEGY.with_options(**options), shards_of(rows, blocks, order), budget)


@pytest.mark.parametrize("rule", ["corrected", "printed"])
@pytest.mark.parametrize("make", [make_rows, make_members])
def test_picks_and_weights_are_those_of_the_dense_twin(make, rule):
    for seed, iterations in enumerate([1, 2, 15]):
        rows = make(60, 6, 4, seed)
        options = {"alpha": 1e-3, "beta": 1e-4, "iterations": iterations, "polish": False}
        selection = picked(rows, 8, 3, projection=rule, **options)
        support, w, f = twin_of(rows, 8, 1e-3, 1e-4).threshold(iterations, rule == "printed")
        assert selection.ids.tolist() == support.tolist()
        np.testing.assert_allclose(selection.weights, 60 * w[support] / 8, atol=1e-7)
        assert selection.info["f"] == pytest.approx(f, abs=1e-11)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_with_a_small_beta_no_random_batch_is_better(alpha):
    for seed in range(6):
        rows = make_rows(300, 10, 5, seed)
        selection = picked(rows, 20, alpha=alpha, beta=1e-6)
        best = twin_of(rows, 20, alpha, 1e-6).best_of_random(50, seed)
        assert selection.info["f"] <= best + 1e-12


def test_with_a_large_beta_the_greedy_batch_is_returned_and_flagged():
    rows = make_rows(150, 8, 4)
    alone = picked(rows, 15, alpha=0.0, beta=0.1)
    compared = picked(rows, 15, alpha=0.0, beta=0.1, compare_with_greedy=True)
    assert compared.info["returned"] == "greedy"
    assert compared.info["f"] == compared.info["f_greedy"] < alone.info["f"]
    assert compared.info["f_thresholding"] == alone.info["f"]
    assert compared.ids.tolist() != alone.ids.tolist()


def test_the_better_of_the_two_is_returned():
    winners = set()
    for seed in range(10):
        rows = make_rows(60, 4, 3, seed)
        info = picked(rows, 3 + seed, alpha=0.0, beta=1e-6, compare_with_greedy=True).info
        assert info["f"] == min(info["f_greedy"], info["f_thresholding"])
        winners.add(info["returned"])
    assert winners == {"greedy", "thresholding"}


def test_by_default_the_batch_is_the_one_that_thresholding_found():
    rows, options = make_rows(150, 8, 4), {"temperature": 2.0, "alpha": 0.0, "beta": 0.1}
    selection = select(STRATEGY.with_options(**options), shards_of(rows, 1), 15)
    assert selection.info["returned"] == "thresholding" and "f_greedy" not in selection.info
    assert selection.ids.tolist() == picked(rows, 15, **options).ids.tolist()


def test_polished_weights_are_the_best_of_the_set():
    rows = make_rows(60, 6, 4)
    selection = picked(rows, 12, alpha=1e-4, beta=1e-4)
    w, f = twin_of(rows, 12, 1e-4, 1e-4).refit(selection.ids)
    np.testing.assert_allclose(selection.weights, 60 * w[selection.ids] / 12, atol=1e-6)
    assert selection.info["f"] == pytest.approx(f, abs=1e-12)


def test_empty_blocks_do_no_harm():
    rows = make_rows(5, 4, 3)
    whole, split = (picked(rows, 3, blocks, iterations=5) for blocks in (1, 8))
    assert whole.ids.tolist() == split.ids.tolist()


def test_more_iterations_are_never_worse():
    rows = make_rows(100, 6, 4)
    values = [
        picked(rows, 10, alpha=1e-4, beta=1e-6, iterations=count, polish=False).info["f"]
        for count in (1, 2, 5, 20, 60)
    ]
    assert all(later <= earlier for earlier, later in itertools.pairwise(values))
    assert values[-1] < values[0]


def test_the_vectors_are_never_multiplied_out():
    rows = make_rows(3000, 64, 40)  # 61 MB as dense vectors
    tracemalloc.start()
    picked(rows, 20, iterations=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 15e6


def test_it_stops_when_nothing_moves():
    selection = picked(make_rows(8, 4, 3), 8, alpha=0.0, beta=0.1, iterations=500)
    assert selection.info["iterations"] < 500


def test_a_huge_alpha_picks_the_largest_variances():
    rows = make_rows(80, 5, 4)
    selection = picked(rows, 10, alpha=1e9, beta=1e-6)
    rewards = twin_of(rows, 10, 1.0, 0.1).c
    assert sorted(selection.ids.tolist()) == sorted(np.argsort(-rewards)[:10].tolist())


@pytest.mark.parametrize("seed", range(3))
def test_confident_items_dominate_the_batch_only_where_labels_are_smoothed(seed):
    rows = make_rows(200, 6, 4, seed)
    confident = np.arange(200) < 100
    likeliest = np.eye(4)[np.random.default_rng(seed).integers(4, size=200)]
    rows["logits"] = likeliest * np.where(confident, 12.0, 2.0)[:, None]
    shares = [
        confident[picked(rows, 10, **law).ids].mean()
        for law in ({"label_law": "label_smoothing"}, {"temperature": 1.1})
    ]
    assert shares[0] > 0.5 and shares[1] < 0.1


def test_at_temperature_one_the_variances_decide_and_a_warning_says_so():
    rows = make_rows(80, 5, 4)
    with pytest.warns(LabelwiseWarning, match="sparse_iht: at temperature 1"):
        selection = picked(rows, 10, 3, temperature=1.0)
    rewards = twin_of(rows, 10, 1.0, 0.1, 1.0).c
    assert selection.ids.tolist() == np.argsort(-rewards)[:10].tolist()
    np.testing.assert_array_equal(selection.weights, 8.0)
    assert "temperature 1" in selection.info["fallback"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [make_rows, make_members])
def test_blocks_order_and_library_do_not_matter(make, dtype):
    torch = pytest.importorskip("torch")
    rows = {name: array.astype(dtype) for name, array in make(120, 6, 4).items()}
    for array in rows.values():
        array[60:80] = array[:20]
    options = {"alpha": 1e-3, "beta": 1e-6, "iterations": 20}
    expected = picked(rows, 25, **options)
    order = np.random.default_rng(0).permutation(120)
    there = {name: torch.from_numpy(array) for name, array in rows.items()}
    for other in (
        picked(rows, 25, 3, **options),
        picked(rows, 25, 7, order, **options),
        picked(there, 25, 2, order, **options),
    ):
        assert other.ids.tolist() == expected.ids.tolist()
        np.testing.assert_allclose(other.weights, expected.weights, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", [4, 5])
@pytest.mark.parametrize("greedy", [False, True])
def test_iterates_that_are_level_do_not_change_places_with_the_blocks(seed, greedy, monkeypatch):
    """Near the end hundreds of iterates differ by rounding alone, and order their items anew."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(3_000, 5))[:, None, :]
    powers = np.exp(logits + 0.7 * generator.normal(size=(3_000, 4, 5)))
    members = (powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32)
    options = {"member_probabilities": members, "seed": 3, "compare_with_greedy": greedy}
    expected = labelwise.select("sparse_iht", 40, **options)
    for rows in (256, 700):
        monkeypatch.setattr(shards, "BLOCK_BYTES", 80 * rows)
        found = labelwise.select("sparse_iht", 40, **options)
        assert found.ids.tolist() == expected.ids.tolist()
        assert (found.scores is None) == (expected.scores is None)


@given(st.integers(0, 10_000))
def test_degenerate_pools_give_distinct_picks_and_finite_weights(seed):
    generator = np.random.default_rng(seed)
    n, d, k = generator.integers(1, 9), generator.integers(1, 12), generator.integers(2, 4)
    rows = make_rows(int(n), int(d), int(k), seed)
    for array in rows.values():
        array[generator.random(n) < 0.3] = array[0]
    rows["features"][generator.random(n) < 0.3] = 0.0
    rows["features"][0] = 1.0
    rows["logits"][0, 0] += 1.0
    budget = int(generator.integers(1, n + 1))
    selection = picked(rows, budget, 1 + seed % 3, iterations=10, beta=1e-6)
    assert len(set(selection.ids.tolist())) == budget
    assert np.isfinite(selection.weights).all()
    assert selection.weights.min() >= 0
    assert selection.info["f1"] <= selection.info["bias_without_picks"] + 1e-6 * budget + 1e-12


@pytest.mark.parametrize("compare_with_greedy", [True, False])
@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (1e-3, 1e-4)])
@pytest.mark.parametrize(("size", "dtype"), SIZES)
def test_features_of_any_size_give_the_picks_of_ordinary_ones(
    size, dtype, alpha, beta, compare_with_greedy
):
    rows, options = make_rows(60, 6, 4), {"compare_with_greedy": compare_with_greedy}
    there = resized(rows, size, dtype)
    selection = picked(there, 8, 3, alpha=alpha, beta=beta * size * size, **options)
    expected = picked(rows, 8, alpha=alpha, beta=beta, **options)
    assert selection.ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(selection.weights, expected.weights, rtol=1e-4, atol=1e-4)
    assert selection.info["f"] / size**2 == pytest.approx(expected.info["f"], rel=1e-3)


@pytest.mark.parametrize("power", [-40, 40])
def test_features_in_other_units_match_the_dense_twin(power):
    size = 2.0**power
    rows = resized(make_rows(60, 6, 4), size, np.float64)
    alpha, beta = 1e-3, 1e-4 * size**2
    selection = picked(rows, 8, alpha=alpha, beta=beta, iterations=10, polish=False)
    support, w, f = twin_of(rows, 8, alpha, beta).threshold(10)
    assert selection.ids.tolist() == support.tolist()
    np.testing.assert_allclose(selection.weights, 60 * w[support] / 8, atol=1e-7)
    assert selection.info["f"] == pytest.approx(f, rel=1e-6)


def test_a_pull_that_hides_all_gradients_is_refused():
    rows = resized(make_rows(20, 4, 3), 1e-24, np.float32)
    with pytest.raises(BadInput, match=r"sparse_iht: beta is 1e-06; .* lost to rounding"):
        picked(rows, 4)
