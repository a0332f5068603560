"""Kernel herding against the whole kernel matrix."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist, pdist

from labelwise.errors import BadInput
from labelwise.selection.run import select
from labelwise.strategies import herding
from labelwise.strategies.herding import STRATEGY
from tests.conftest import make_features
from tests.kernels.sparse_twin import shards_of


def slow_herding(features, labelled, budget, bandwidth):
    """Score all items anew from the whole kernel at every pick."""

    def kernel(x, y):
        return np.exp(-(cdist(x, y) ** 2) / (2 * bandwidth**2))

    features, picks = features.astype(float), []
    mean = kernel(features, features).mean(axis=1)
    for _ in range(budget):
        chosen = np.concatenate([labelled, features[picks]])
        sums = kernel(features, chosen).sum(axis=1)
        scores = np.round(mean - (sums + 0.5) / (len(chosen) + 1), 11)
        scores[picks] = -np.inf
        picks.append(int(scores.argmax()))
    return picks


def picked(features, budget, blocks=1, order=None, labelled=None, seed=0, **options):
    labelled = None if labelled is None else {"features": labelled}
    shards = shards_of({"features": features}, blocks, order)
    return select(STRATEGY.with_options(**options), shards, budget, labelled=labelled, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_matches_the_whole_kernel_with_the_median_bandwidth(seed):
    features = make_features(80, 5, seed)
    selection = picked(features, 25)
    bandwidth = np.median(pdist(features))
    assert selection.info["bandwidth"] == pytest.approx(bandwidth)
    assert selection.info["exact_mean"] is True
    expected = slow_herding(features, np.empty((0, 5)), 25, bandwidth)
    assert selection.ids.tolist() == expected


@pytest.mark.parametrize("bandwidth", [0.5, 3.0])
def test_labelled_rows_count_as_chosen(bandwidth):
    features, labelled = make_features(80, 5), make_features(12, 5, 9)
    selection = picked(features, 20, 3, labelled=labelled, bandwidth=bandwidth)
    assert selection.ids.tolist() == slow_herding(features, labelled, 20, bandwidth)


def test_the_batch_is_closer_to_the_pool_than_random_batches():
    features = make_features(200, 4)
    bandwidth = np.median(pdist(features))
    kernel = np.exp(-(cdist(features, features) ** 2) / (2 * bandwidth**2))

    def discrepancy(ids):
        cross = kernel[ids].mean() * 2
        return kernel.mean() - cross + kernel[np.ix_(ids, ids)].mean()

    ours = discrepancy(picked(features, 20).ids)
    generator = np.random.default_rng(0)
    draws = [generator.choice(200, 20, replace=False) for _ in range(200)]
    assert ours < min(discrepancy(draw) for draw in draws)


@pytest.mark.parametrize("references", [50, 2000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_order_and_library_do_not_matter(dtype, references):
    torch = pytest.importorskip("torch")
    features = make_features(120, 6).astype(dtype)
    features[60:80] = features[:20]
    options = {"references": references}
    expected = picked(features, 40, **options).ids.tolist()
    order = np.random.default_rng(0).permutation(120)
    assert picked(features, 40, 3, **options).ids.tolist() == expected
    assert picked(features, 40, 7, order, **options).ids.tolist() == expected
    there = torch.from_numpy(features)
    assert picked(there, 40, 2, order, **options).ids.tolist() == expected


def test_features_far_from_the_origin_keep_their_digits():
    features = make_features(100, 4)
    far = (features + 2.0**12).astype(np.float32)
    expected = slow_herding(far.astype(float) - 2.0**12, np.empty((0, 4)), 20, 2.0)
    assert picked(far, 20, bandwidth=2.0).ids.tolist() == expected


def test_in_a_large_pool_the_mean_is_taken_over_drawn_items():
    features = make_features(300, 4)
    selection = picked(features, 10, references=40, bandwidth=2.0)
    assert selection.info["references"] == 40
    assert selection.info["exact_mean"] is False
    points = herding.draw_features(
        shards_of({"features": features}, 3), 40, 0, herding.NOISE_REFERENCES
    )
    mean = np.exp(-(cdist(features, points) ** 2) / 8).mean(axis=1)
    assert selection.ids[0] == mean.argmax()
    assert len({tuple(picked(features, 10, references=9, seed=s).ids) for s in range(5)}) > 1


def test_the_bandwidth_of_a_large_pool_is_close_to_the_median(monkeypatch):
    features = make_features(400, 4)
    monkeypatch.setattr(herding, "BANDWIDTH_ITEMS", 100)
    bandwidth = picked(features, 1).info["bandwidth"]
    assert bandwidth != np.median(pdist(features))
    assert bandwidth == pytest.approx(np.median(pdist(features)), rel=0.1)


def test_items_that_are_all_equal_are_picked_in_the_order_of_their_ids():
    assert picked(np.ones((5, 2)), 5, 2, np.array([4, 2, 0, 1, 3])).ids.tolist() == [0, 1, 2, 3, 4]


def test_empty_blocks_do_no_harm():
    features = make_features(5, 3)
    assert picked(features, 3, 8).ids.tolist() == picked(features, 3).ids.tolist()


@given(st.integers(0, 10_000))
def test_degenerate_pools_match_the_whole_kernel(seed):
    generator = np.random.default_rng(seed)
    n, d = int(generator.integers(1, 12)), int(generator.integers(1, 15))
    features = np.round(generator.normal(size=(n, d)), 1)
    features[generator.random(n) < 0.3] = 0.0
    features[generator.random(n) < 0.3] = features[0]
    budget = int(generator.integers(1, n + 1))
    expected = slow_herding(features, np.empty((0, d)), budget, 1.5)
    assert picked(features, budget, 1 + seed % 3, bandwidth=1.5).ids.tolist() == expected


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("size", [1e-170, 1e170, 1e-300, 1e300, 1e-24])
def test_features_of_any_size_give_the_picks_of_ordinary_ones(size, given):
    features, labelled = make_features(60, 5), make_features(4, 5, 9)
    bandwidth = 2.0 if given else np.median(pdist(features))
    options = {"bandwidth": bandwidth * size} if given else {}
    selection = picked(features * size, 12, 3, labelled=labelled * size, **options)
    assert selection.ids.tolist() == slow_herding(features, labelled, 12, bandwidth)
    assert selection.info["bandwidth"] / size == pytest.approx(bandwidth)


@pytest.mark.parametrize(("size", "bandwidth"), [(1e200, 1.0), (1.0, 1e-300)])
def test_a_bandwidth_beside_which_distances_are_no_numbers_is_refused(size, bandwidth):
    with pytest.raises(BadInput, match="features are too large for a bandwidth of 1"):
        picked(make_features(20, 4) * size, 3, bandwidth=bandwidth)
