"""Greedy sparse approximation against its dense twin and its known answers."""

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.kernels.loop.picking import pick_greedily
from labelwise.kernels.sparse import greedy as pursuit
from labelwise.selection.run import select
from labelwise.strategies.sparse_greedy import STRATEGY
from tests.kernels.sparse_twin import Twin, make_members, make_rows, shards_of, softmax, twin_of


def picked(rows, budget, blocks=1, order=None, **options):
    options = {"temperature": 2.0, **options}
    return select(STRATEGY.with_options(**options), shards_of(rows, blocks, order), budget)


@pytest.fixture(params=["columns", "anew"])
def route(request, monkeypatch):
    """Both ways to get the products with the residual."""
    if request.param == "anew":
        monkeypatch.setattr(pursuit, "limit_pursuit_columns", lambda problem: 0)
    return request.param


@pytest.mark.parametrize("gain", ["linear", "exact"])
@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (0.01, 0.1), (1e-4, 1e-3)])
@pytest.mark.parametrize("make", [make_rows, make_members])
def test_picks_and_weights_are_those_of_the_dense_twin(make, alpha, beta, gain, route):
    for seed in range(3):
        rows, steps = make(60, 6, 4, seed), 1 + seed
        options = {"alpha": alpha, "beta": beta, "gain": gain, "debias_steps": steps}
        selection = picked(rows, 12, polish=False, **options)
        support, w = twin_of(rows, 12, alpha, beta).greedy(gain, steps=steps)
        assert selection.ids.tolist() == support
        np.testing.assert_allclose(selection.weights, 60 * w[support] / 12, atol=1e-8)


def test_tau_weighs_the_gradient_against_the_variance():
    rows = make_rows(60, 6, 4)
    for tau in (0.1, 5.0):
        selection = picked(rows, 10, alpha=0.01, beta=0.1, tau=tau)
        assert selection.ids.tolist() == twin_of(rows, 10, 0.01, 0.1).greedy(tau=tau)[0]


@pytest.mark.parametrize("make", [make_rows, make_members])
def test_polished_weights_are_the_best_of_the_set(make):
    rows = make(60, 6, 4)
    selection = picked(rows, 12, alpha=0.01, beta=0.05)
    w, f = twin_of(rows, 12, 0.01, 0.05).refit(selection.ids)
    np.testing.assert_allclose(selection.weights, 60 * w[selection.ids] / 12, atol=1e-6)
    assert selection.info["f"] == pytest.approx(f, abs=1e-12)
    rough = picked(rows, 12, alpha=0.01, beta=0.05, polish=False)
    assert rough.ids.tolist() == selection.ids.tolist()
    assert rough.info["f"] > f


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 1e-6), (0.0, 0.1), (1e-4, 1e-4), (1.0, 0.1)])
def test_no_random_batch_is_better(alpha, beta):
    for seed in range(6):
        rows = make_rows(300, 10, 5, seed)
        best = twin_of(rows, 20, alpha, beta).best_of_random(50, seed)
        for gain in ("linear", "exact"):
            selection = picked(rows, 20, alpha=alpha, beta=beta, gain=gain)
            assert selection.info["f"] <= best + 1e-12


def test_empty_blocks_do_no_harm():
    rows = make_rows(5, 4, 3)
    whole, split = (picked(rows, 3, blocks, alpha=0.01, beta=0.1) for blocks in (1, 8))
    assert whole.ids.tolist() == split.ids.tolist()


def test_a_huge_alpha_picks_the_largest_variances():
    rows = make_rows(80, 5, 4)
    selection = picked(rows, 10, alpha=1e9, beta=0.1)
    rewards = twin_of(rows, 10, 1.0, 0.1).c
    assert selection.ids.tolist() == np.argsort(-rewards)[:10].tolist()


def test_enough_items_fit_the_mean_gradient_exactly():
    rows = make_rows(200, 3, 3)
    selection = picked(rows, 40, alpha=0.0, beta=0.0, gain="exact")
    assert selection.info["f1"] < 1e-9 * selection.info["bias_without_picks"]


@pytest.mark.parametrize("temperature", [1.0, 1.0005])
def test_at_temperature_one_the_variances_decide_and_a_warning_says_so(temperature):
    rows = make_rows(80, 5, 4)
    with pytest.warns(LabelwiseWarning, match="sparse_greedy: at temperature 1"):
        selection = picked(rows, 10, 3, temperature=temperature)
    rewards = twin_of(rows, 10, 1.0, 0.1, temperature).c
    assert selection.ids.tolist() == np.argsort(-rewards)[:10].tolist()
    np.testing.assert_array_equal(selection.weights, 8.0)
    assert "temperature 1" in selection.info["fallback"]


def test_smoothed_labels_need_no_temperature():
    rows = make_rows(80, 5, 4)
    options = {"label_law": "label_smoothing", "rho": 0.3, "alpha": 0.0, "beta": 0.1}
    selection = picked(rows, 10, temperature=1.0, **options)
    residuals = 0.3 * (softmax(rows["logits"]) - 0.25)
    means = np.einsum("ik,id->ikd", residuals, rows["features"]).reshape(80, -1)
    twin = Twin(means.T / 10, means.mean(axis=0), np.zeros(80), 0.1, 10)
    assert selection.ids.tolist() == twin.greedy()[0]
    assert "fallback" not in selection.info


def test_probabilities_give_the_picks_of_logits():
    rows = make_rows(80, 5, 4)
    other = {"features": rows["features"], "probabilities": softmax(rows["logits"])}
    options = {"alpha": 0.01, "beta": 0.1}
    assert picked(other, 10, **options).ids.tolist() == picked(rows, 10, **options).ids.tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [make_rows, make_members])
def test_blocks_order_and_library_do_not_matter(make, dtype, route):
    torch = pytest.importorskip("torch")
    rows = {name: array.astype(dtype) for name, array in make(120, 6, 4).items()}
    for array in rows.values():
        array[60:80] = array[:20]
    options = {"alpha": 1e-3, "beta": 1e-3, "gain": "exact"}
    expected = picked(rows, 25, **options)
    order = np.random.default_rng(0).permutation(120)
    there = {name: torch.from_numpy(array) for name, array in rows.items()}
    for other in (
        picked(rows, 25, 3, **options),
        picked(rows, 25, 7, order, **options),
        picked(there, 25, 2, order, **options),
    ):
        assert other.ids.tolist() == expected.ids.tolist()
        np.testing.assert_allclose(other.weights, expected.weights, rtol=1e-4, atol=1e-5)


def test_float32_near_ties_are_settled_in_float64(route):
    """Rows that differ in the seventh digit: float32 products cannot tell them apart."""
    generator = np.random.default_rng(3)
    row = generator.normal(size=64)
    features = np.tile(row, (50, 1)) * (1 + 1e-7 * generator.permutation(50)[:, None])
    rows = {"features": features.astype(np.float32), "logits": np.tile([2.0, 0.0, -1.0], (50, 1))}
    selection = picked(rows, 5, alpha=0.0, beta=0.1)
    wide = {name: array.astype(np.float64) for name, array in rows.items()}
    assert selection.ids.tolist() == picked(wide, 5, alpha=0.0, beta=0.1).ids.tolist()


def test_a_residual_that_has_almost_vanished_is_computed_anew(monkeypatch):
    rows = {name: array.astype(np.float32) for name, array in make_rows(150, 8, 4).items()}
    options = {"alpha": 0.0, "beta": 0.0, "gain": "exact", "debias_steps": 300}
    kept = []
    original = pursuit.GreedyPursuit._update_pursuit_residual

    def watched(self):
        kept.append(original(self))
        return kept[-1]

    monkeypatch.setattr(pursuit.GreedyPursuit, "_update_pursuit_residual", watched)
    selection = picked(rows, 40, **options)
    assert kept[0].matrix is None
    assert kept[-1].matrix is not None
    monkeypatch.setattr(pursuit, "limit_pursuit_columns", lambda problem: 0)
    assert selection.ids.tolist() == picked(rows, 40, **options).ids.tolist()


@pytest.mark.parametrize("gain", ["linear", "exact"])
def test_items_without_a_vector_are_picked_last(gain):
    rows = make_rows(30, 4, 3)
    rows["features"][::2] = 0.0
    selection = picked(rows, 16, alpha=0.0, beta=0.0, gain=gain)
    if gain == "exact":
        assert (selection.ids[:4] % 2 == 1).all()
    assert len(set(selection.ids.tolist())) == 16
    assert (selection.weights[selection.ids % 2 == 0] == 0).all()


def test_the_whole_pool_can_be_picked():
    rows = make_rows(12, 4, 3)
    selection = picked(rows, 12, alpha=0.01, beta=0.1)
    assert sorted(selection.ids.tolist()) == list(range(12))
    assert selection.info["bias"] < 1e-2 * selection.info["bias_without_picks"]


def test_weights_stand_for_the_pool():
    selection = picked(make_rows(200, 6, 4), 20, alpha=0.0, beta=0.5)
    assert 100 < selection.weights.sum() < 300
    assert 0 < selection.effective_size() <= 20


def test_the_vectors_are_never_multiplied_out():
    rows = make_rows(3000, 64, 40)  # 61 MB as dense vectors
    tracemalloc.start()
    picked(rows, 20, alpha=0.0, beta=0.1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 15e6


def test_a_plan_travels_without_the_picked_vectors():
    shards = shards_of(make_rows(500, 6, 4))
    plan = STRATEGY.with_options(temperature=2.0).begin(shards, None, 400, 0)
    assert len(pickle.dumps(plan)) < 10_000


@given(st.integers(0, 10_000), st.sampled_from(["linear", "exact"]), st.sampled_from([0.0, 0.1]))
def test_degenerate_pools_give_distinct_picks_and_finite_weights(seed, gain, beta):
    generator = np.random.default_rng(seed)
    n, d, k = generator.integers(1, 9), generator.integers(1, 12), generator.integers(2, 4)
    rows = make_rows(int(n), int(d), int(k), seed)
    for array in rows.values():
        array[generator.random(n) < 0.3] = array[0]
    rows["features"][generator.random(n) < 0.3] = 0.0
    rows["features"][0] = 1.0
    rows["logits"][0, 0] += 1.0
    budget = int(generator.integers(1, n + 1))
    selection = picked(rows, budget, 1 + seed % 3, alpha=0.01, beta=beta, gain=gain)
    assert len(set(selection.ids.tolist())) == budget
    assert np.isfinite(selection.weights).all()
    assert selection.weights.min() >= 0
    assert selection.info["bias"] <= selection.info["bias_without_picks"] + beta * budget


SIZES = [
    (1e100, np.float64),
    (1e-100, np.float64),
    (1e149, np.float64),
    (1e-149, np.float64),
    (1e25, np.float32),
    (1e-24, np.float32),
]
"""Features of these sizes have squares, or products of squares, that are infinite or zero."""


def resized(rows, size, dtype):
    return {**rows, "features": (rows["features"] * size).astype(dtype)}


@pytest.mark.parametrize("gain", ["linear", "exact"])
@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (0.01, 0.1)])
@pytest.mark.parametrize(("size", "dtype"), SIZES)
def test_features_of_any_size_give_the_picks_of_ordinary_ones(
    size, dtype, alpha, beta, gain, route
):
    rows, options = make_rows(60, 6, 4), {"alpha": alpha, "gain": gain, "polish": False}
    selection = picked(resized(rows, size, dtype), 8, 3, beta=beta * size * size, **options)
    twin = twin_of(rows, 8, alpha, beta)
    support, w = twin.greedy(gain)
    assert selection.ids.tolist() == support
    np.testing.assert_allclose(selection.weights, 60 * w[support] / 8, rtol=1e-4, atol=1e-6)
    assert selection.info["f"] / size**2 == pytest.approx(twin.f(w, support), rel=1e-4)
    assert selection.info["beta"] == beta * size * size
    ordinary = picked(rows, 8, beta=beta, **options)
    scores = selection.scores / size**2
    np.testing.assert_allclose(scores, ordinary.scores, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("size", "dtype"), SIZES)
def test_looking_ahead_gives_the_picks_of_features_of_any_size(size, dtype):
    rows, budget = make_rows(300, 6, 4), 40
    shards = shards_of(resized(rows, size, dtype), 2)
    strategy = STRATEGY.with_options(temperature=2.0, alpha=1e-3, beta=0.0)
    found = pick_greedily(strategy, shards, None, budget, 0, ahead=True)
    expected = picked(rows, budget, alpha=1e-3, beta=0.0)
    assert found.ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(found.scores / size**2, expected.scores, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("size", [1e-24, 1e-15])
def test_tiny_float32_features_are_not_lost_beside_a_pull_that_holds_all_weights(size):
    rows = make_rows(60, 6, 4)
    selection = picked(resized(rows, size, np.float32), 8, alpha=0.01, beta=0.1)
    assert selection.ids.tolist() == twin_of(rows, 8, 0.01, 1e6).greedy()[0]
    np.testing.assert_allclose(selection.weights, 60 / 8, rtol=1e-9)


@pytest.mark.parametrize("size", [1e-170, 1e170])
def test_features_whose_squares_are_no_numbers_are_refused(size):
    with pytest.raises(BadInput, match="squares are beyond what float64 can hold; multiply all"):
        picked(resized(make_rows(20, 4, 3), size, np.float64), 4)


def test_a_pull_that_hides_all_gains_is_refused():
    rows = resized(make_rows(20, 4, 3), 1e-100, np.float64)
    with pytest.raises(BadInput, match=r"sparse_greedy: beta is 0\.1; "):
        picked(rows, 4, alpha=0.01, beta=0.1, gain="exact")
    with pytest.raises(BadInput, match=r"too small for beta 1e\+200"):
        picked(rows, 4, alpha=0.01, beta=1e200)
