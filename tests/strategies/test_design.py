"""Transductive experimental design against deflating the whole kernel."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.errors import BadInput
from labelwise.selection.run import select
from labelwise.strategies.design import STRATEGY
from tests.conftest import make_features
from tests.kernels.sparse_twin import shards_of
from tests.strategies.test_sparse_greedy import SIZES


def slow_design(features, labelled, budget, regularisation=0.01):
    """Form the kernel of candidates and labelled rows, and take each item's share away."""
    features = features.astype(float)
    n, mean = len(features), (features**2).sum(axis=1).mean()
    mu = regularisation * mean if mean > 0 else 1.0
    everything = np.concatenate([features, labelled])
    kernel = everything @ everything.T

    def deflate(j):
        return kernel - np.outer(kernel[:, j], kernel[j]) / (kernel[j, j] + mu)

    for j in range(n, len(everything)):
        kernel = deflate(j)
    picks = []
    for _ in range(budget):
        scores = (kernel[:n, :n] ** 2).sum(axis=0) / (np.diag(kernel)[:n] + mu)
        scores = np.round(scores / max(scores.max(), 1e-300), 9)
        scores[picks] = -1
        picks.append(int(scores.argmax()))
        kernel = deflate(picks[-1])
    return picks


def picked(features, budget, blocks=1, order=None, labelled=None, **options):
    labelled = None if labelled is None else {"features": labelled}
    shards = shards_of({"features": features}, blocks, order)
    return select(STRATEGY.with_options(**options), shards, budget, labelled=labelled)


@pytest.mark.parametrize(("n", "d", "budget"), [(80, 6, 20), (20, 40, 20), (60, 3, 30)])
@pytest.mark.parametrize("seed", range(3))
def test_matches_deflating_the_kernel(n, d, budget, seed):
    features = make_features(n, d, seed)
    nothing = np.empty((0, d))
    assert picked(features, budget).ids.tolist() == slow_design(features, nothing, budget)


@pytest.mark.parametrize("regularisation", [1e-4, 0.01, 10.0])
def test_labelled_rows_count_as_chosen(regularisation):
    features, labelled = make_features(70, 6), make_features(9, 6, 5)
    selection = picked(features, 15, 3, labelled=labelled, regularisation=regularisation)
    assert selection.ids.tolist() == slow_design(features, labelled, 15, regularisation)
    assert selection.info["mu"] == pytest.approx(regularisation * (features**2).sum(axis=1).mean())


def test_what_is_labelled_already_is_not_picked_again():
    features = np.diag([3.0, 2.0, 1.0])
    assert picked(features, 2).ids.tolist() == [0, 1]
    assert picked(features, 2, labelled=features[:1]).ids.tolist() == [1, 2]


def test_the_score_is_the_squared_column_over_the_regularised_diagonal():
    features = np.diag([3.0, 2.0])
    selection = picked(features, 1, regularisation=0.2)
    mu = 0.2 * (9 + 4) / 2
    assert selection.scores.tolist() == pytest.approx([81 / (9 + mu)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_order_and_library_do_not_matter(dtype):
    torch = pytest.importorskip("torch")
    features = make_features(120, 6).astype(dtype)
    features[60:80] = features[:20]
    expected = picked(features, 40).ids.tolist()
    order = np.random.default_rng(0).permutation(120)
    assert picked(features, 40, 3).ids.tolist() == expected
    assert picked(features, 40, 7, order).ids.tolist() == expected
    assert picked(torch.from_numpy(features), 40, 2, order).ids.tolist() == expected


def test_float32_rows_are_deflated_without_losing_what_is_left():
    """Long runs cancel nearly everything; float32 arithmetic would pick from its own rounding."""
    features = (make_features(300, 4) + 50).astype(np.float32)
    expected = slow_design(features, np.empty((0, 4)), 60)
    assert picked(features, 60).ids.tolist() == expected


def test_a_plan_travels_without_its_matrices():
    shards = shards_of({"features": make_features(90, 60)})
    plan = STRATEGY.begin(shards, None, 5, 0)
    plan = STRATEGY.advance(plan, shards.rows(np.array([3])))
    assert len(pickle.dumps(plan)) < 5_000


def test_empty_blocks_do_no_harm():
    features = make_features(5, 3)
    assert picked(features, 3, 8).ids.tolist() == picked(features, 3).ids.tolist()


@given(st.integers(0, 10_000))
def test_degenerate_pools_match_deflating_the_kernel(seed):
    generator = np.random.default_rng(seed)
    n, d = int(generator.integers(1, 12)), int(generator.integers(1, 15))
    features = np.round(generator.normal(size=(n, d)), 1)
    features[generator.random(n) < 0.3] = 0.0
    features[generator.random(n) < 0.3] = features[0]
    features[:, generator.random(d) < 0.3] = 0.0
    budget = int(generator.integers(1, n + 1))
    assert picked(features, budget).ids.tolist() == slow_design(features, np.empty((0, d)), budget)


@pytest.mark.parametrize(("size", "dtype"), SIZES)
def test_features_of_any_size_give_the_picks_of_ordinary_ones(size, dtype):
    features, labelled = make_features(60, 5), make_features(6, 5, 9)
    there, known = (features * size).astype(dtype), (labelled * size).astype(dtype)
    selection = picked(there, 12, 3, labelled=known)
    assert selection.ids.tolist() == slow_design(features, labelled, 12)
    mean = (features**2).sum(axis=1).mean()
    assert selection.info["mu"] / size**2 == pytest.approx(0.01 * mean, rel=1e-6)
    ordinary = picked(features, 12, labelled=labelled)
    np.testing.assert_allclose(selection.scores / size**2, ordinary.scores, rtol=1e-5)


@pytest.mark.parametrize("size", [1e-170, 1e170])
def test_features_whose_squares_are_no_numbers_are_refused(size):
    with pytest.raises(BadInput, match="squares are beyond what float64 can hold; multiply all"):
        picked(make_features(20, 4) * size, 3)
