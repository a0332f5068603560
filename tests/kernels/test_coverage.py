"""Greedy coverage: the picks of the plain algorithm, whatever is stored, proposed or sampled."""

import numpy as np
import pytest

from labelwise.kernels.distance import coverage, resident_coverage
from labelwise.kernels.distance.coverage import (
    cover_greedily,
    sum_clipped,
    sum_differences,
    sum_gains,
    sum_losses,
)
from labelwise.kernels.distance.similarity import AUTO, SimilarityKernel, fit_kernel, to_levels
from labelwise.pool.blocks import LocalShards, Shard
from tests.conftest import make_features
from tests.kernels.coverage_reference import cover, similarities

KERNELS = [
    {},
    {"power": 4.0},
    {"kernel": "gaussian", "width": 2.0},
    {"kernel": "tophat", "width": 2.5},
]


def make_pool(n=400, copies=60, dtype=np.float64):
    features = make_features(n, 6)
    features[n // 2 : n // 2 + copies] = features[:copies]
    return features.astype(dtype)


def cover_blocks(
    features,
    budget,
    *,
    weights=None,
    labelled=(),
    cuts=(),
    resident=None,
    convert=np.asarray,
    **kernel,
):
    """Cover rows in blocks; the ids are row numbers."""
    left = np.setdiff1d(np.arange(len(features)), labelled)
    table = np.ones(len(features)) if weights is None else weights
    blocks = [
        Shard(ids, {"features": convert(features[ids]), "logits": table[ids, None]})
        for ids in np.split(left, cuts)
    ]
    shards = LocalShards(blocks)
    known = {"features": features[list(labelled)]} if len(labelled) else None
    kind, width = kernel.get("kernel", "cosine"), kernel.get("width")
    similarity = fit_kernel(shards, known, kind, width, kernel.get("power", 1.0))
    weigh = None if weights is None else lambda rows: rows["logits"][:, 0]
    return cover_greedily(shards, known, budget, similarity, weigh, resident=resident)


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "multiplied"])
@pytest.mark.parametrize("labelled", [(), (3, 77, 350)], ids=["fresh", "labelled"])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_matches_the_plain_greedy_algorithm(kernel, labelled, stored, monkeypatch):
    monkeypatch.setattr(coverage, "STORED_BUDGET", 0 if stored else 1000)
    features = make_pool()
    ids, gains = cover(features, 90, labelled=labelled, **kernel)
    found = cover_blocks(features, 90, labelled=labelled, cuts=(50, 230), **kernel)
    assert found.ids.tolist() == ids
    np.testing.assert_allclose(found.scores, gains, rtol=0, atol=1e-13)


def convert_to_tensor(array):
    torch = pytest.importorskip("torch")
    return torch.as_tensor(array, device="cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("convert", [np.asarray, convert_to_tensor], ids=["arrays", "tensors"])
@pytest.mark.parametrize("labelled", [(), (3, 77, 350)], ids=["fresh", "labelled"])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_resident_similarities_give_the_picks_of_the_plain_algorithm(
    kernel, labelled, convert, monkeypatch
):
    monkeypatch.setattr(resident_coverage, "CHUNK", 3000)
    features, options = make_pool(), {"labelled": labelled, **kernel}
    ids, gains = cover(features, 90, **options)
    found = cover_blocks(features, 90, cuts=(50, 230), resident=True, convert=convert, **options)
    assert found.ids.tolist() == ids
    np.testing.assert_allclose(found.scores, gains, rtol=0, atol=1e-13)


@pytest.mark.parametrize("power", [1.0, AUTO])
@pytest.mark.parametrize("convert", [np.asarray, convert_to_tensor], ids=["arrays", "tensors"])
def test_resident_similarities_with_sampled_targets_give_the_same_choice(
    convert, power, monkeypatch
):
    monkeypatch.setattr(coverage, "FULL_PRODUCT", 0)
    monkeypatch.setattr(coverage, "SAMPLED_TARGETS", 80)
    features = make_pool(dtype=np.float32)
    weights = np.random.default_rng(0).random(400).round()
    options = {"weights": weights, "labelled": (1, 5), "power": power}
    expected = cover_blocks(features, 60, **options)
    found = cover_blocks(features, 60, cuts=(9, 300), resident=True, convert=convert, **options)
    assert found.ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=1e-12)
    left_out = ("passes", "products", "covered")
    assert {**found.info, **dict.fromkeys(left_out)} == {
        **expected.info,
        **dict.fromkeys(left_out),
    }
    assert found.info["covered"] == pytest.approx(expected.info["covered"])


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "multiplied"])
def test_narrow_windows_and_small_chunks_give_the_same_picks(stored, monkeypatch):
    monkeypatch.setattr(coverage, "STORED_BUDGET", 0 if stored else 1000)
    for name in ("FEWEST", "FEWEST_PER_BLOCK", "MOST", "LEAST_REFRESHED", "MOST_REFRESHED"):
        monkeypatch.setattr(coverage, name, 7)
    for name in ("CHUNK", "TILE", "TILE_COLUMNS"):
        monkeypatch.setattr(coverage, name, 64)
    features = make_pool(copies=5)
    expected, _ = cover(features, 60, labelled=(9,))
    assert cover_blocks(features, 60, labelled=(9,), cuts=(150,)).ids.tolist() == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", KERNELS[:3], ids=str)
def test_sampled_targets_do_not_cover_themselves(kernel, dtype, monkeypatch):
    monkeypatch.setattr(coverage, "FULL_PRODUCT", 0)
    monkeypatch.setattr(coverage, "SAMPLED_TARGETS", 50)
    monkeypatch.setattr(coverage, "TARGETS_PER_PICK", 2)
    features = make_pool(dtype=dtype)
    weights = np.random.default_rng(0).random(len(features))
    expected, gains = cover(features, 40, weights, (1, 5), 80, **kernel)
    found = cover_blocks(features, 40, weights=weights, labelled=(1, 5), cuts=(9, 300), **kernel)
    assert found.ids.tolist() == expected and found.info["targets"] == 80
    np.testing.assert_allclose(found.scores, gains, rtol=0, atol=1e-12)


@pytest.mark.parametrize("resident", [False, True])
def test_without_weights_left_all_targets_count_and_then_ids_do(resident):
    features = np.repeat(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]), 4, axis=0)
    weights = np.zeros(12)
    weights[4:8] = 1.0  # only the second direction matters
    found = cover_blocks(features, 6, weights=weights, resident=resident)
    assert found.ids.tolist() == cover(features, 6, weights)[0] == [4, 0, 8, 1, 2, 3]
    assert found.info["unweighted"].startswith("picks from number 2")
    assert "last 3 picks" in found.info["without_gain"]


@pytest.mark.parametrize("resident", [False, True])
def test_a_pool_of_copies_is_picked_by_id(resident):
    found = cover_blocks(np.full((500, 3), 0.1), 5, cuts=(100,), resident=resident)
    assert found.ids.tolist() == [0, 1, 2, 3, 4]


def test_clusters_are_covered_from_the_largest_to_the_smallest():
    centres = np.repeat(np.eye(3), [50, 30, 10], axis=0)
    features = centres + 0.01 * np.random.default_rng(0).normal(size=(90, 3))
    picks = cover_blocks(features, 3).ids
    assert [int(np.searchsorted([50, 80], pick, side="right")) for pick in picks] == [0, 1, 2]


def test_rows_that_equal_the_mean_resemble_only_themselves():
    features = np.array([[1.0, 1.0], [2.0, 1.0], [0.0, 1.0], [1.0, 1.0]]) + 1e3
    kernel = fit_kernel(LocalShards.of(features=features), None, "cosine")
    rows = kernel.embed(features)
    assert not rows[[0, 3]].any() and rows[1].tolist() == [1.0, 0.0]
    assert cover_blocks(features, 4).scores.tolist() == [0.25] * 4


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_cosines_do_not_depend_on_the_size_of_the_features(scale):
    features = make_pool(120, 10)
    expected = cover_blocks(features, 12).ids.tolist()
    assert cover_blocks((features * scale).astype(np.float32), 12).ids.tolist() == expected


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_similarities_match_their_definition(kernel):
    rows, others = make_features(30, 5), make_features(20, 5, seed=1)
    mean = np.full(5, 0.3)
    kind, width = kernel.get("kernel", "cosine"), kernel.get("width", 1.0)
    similarity = SimilarityKernel(kind, mean, width, kernel.get("power", 1.0))
    expected = similarities(rows, others, mean, **kernel)
    found = similarity.compare_exactly(similarity.embed(rows), similarity.embed(others))
    np.testing.assert_allclose(np.maximum(found, 0), expected, rtol=0, atol=1e-12)
    rough = similarity.compare(similarity.prepare(rows), similarity.prepare(others))
    assert np.abs(np.maximum(rough, 0) - expected).max() <= similarity.rounding + 1e-12


def test_a_gaussian_without_a_width_takes_the_median_distance():
    features = make_features(50, 3)
    distances = np.sqrt(((features[:, None] - features[None]) ** 2).sum(axis=2))
    kernel = fit_kernel(LocalShards.of(features=features), None, "gaussian")
    assert kernel.width == pytest.approx(np.median(distances[np.triu_indices(50, 1)]))


@pytest.mark.parametrize("some", [None, np.array([2, 3, 7, 60])])
@pytest.mark.parametrize("top", [40_000, 65_535])
def test_clipped_sums_match_their_definition(some, top):
    generator = np.random.default_rng(0)
    levels = generator.integers(65_536, size=(80, 33), dtype=np.uint16)
    count = 80 if some is None else len(some)
    low = generator.integers(30_000, size=count).astype(float)
    high, weights = np.full(count, float(top)), generator.random(count)
    part = (levels if some is None else levels[some]).astype(float)
    expected = weights @ (np.clip(part, low[:, None], high[:, None]) - low[:, None])
    np.testing.assert_allclose(sum_clipped(levels, low, high, weights, some), expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["cosine", "gaussian", "tophat"])
def test_bounds_from_levels_contain_the_exact_gains_and_losses(kind):
    generator = np.random.default_rng(0)
    values = generator.random((50, 40)).round() if kind == "tophat" else generator.random((50, 40))
    covered = generator.random(50) * (generator.random(50) < 0.7)
    now = np.minimum(covered + 0.3 * generator.random(50), 1.0)
    if kind == "tophat":
        covered, now = covered.round(), np.maximum(covered.round(), now.round())
    weights = generator.random(50)
    kernel, levels = SimilarityKernel(kind, np.zeros(3)), to_levels(values.astype(np.float32))
    gains = weights @ np.maximum(values - covered[:, None], 0)
    upper = sum_gains(levels, covered, weights, kernel)
    updated = upper - sum_differences(levels, covered, now, weights, kernel)
    np.testing.assert_allclose(updated, sum_gains(levels, now, weights, kernel), atol=1e-5)
    losses = gains - weights @ np.maximum(values - now[:, None], 0)
    assert (updated >= gains - losses).all()
    lower = sum_losses(levels, covered, now, weights, kernel)
    step = weights.sum() / 65_535
    assert (upper >= gains).all() and (upper <= gains + 4 * step).all()
    assert (lower <= losses + 1e-12).all() and (lower >= losses - 4 * step).all()
