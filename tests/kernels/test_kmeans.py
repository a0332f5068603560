"""k-means against scikit-learn and its own definition."""

import itertools

import numpy as np
import pytest

import labelwise
from labelwise.errors import BadInput
from labelwise.kernels.distance import kmeans as module
from labelwise.kernels.distance.kmeans import assign_to_centers, find_central_items, kmeans
from labelwise.pool.blocks import LocalShards, Shard
from tests.conftest import make_features


def test_every_row_is_with_its_nearest_centre_and_centres_are_means():
    rows = make_features(400, 6)
    found = kmeans(rows, 8, 0, rounds=200, tolerance=0)
    distances = ((rows[:, None] - found.centres[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(found.labels, distances.argmin(axis=1))
    np.testing.assert_allclose(found.distances, distances.min(axis=1), atol=1e-9)
    for cluster in range(8):
        np.testing.assert_allclose(found.centres[cluster], rows[found.labels == cluster].mean(0))


def test_is_as_good_as_scikit_learn():
    cluster = pytest.importorskip("sklearn.cluster")
    rows = make_features(600, 5, 1, clusters=12)
    ours = min(kmeans(rows, 12, seed).inertia for seed in range(5))
    theirs = cluster.KMeans(12, n_init=5, random_state=0).fit(rows).inertia_
    assert ours <= 1.05 * theirs


def test_more_rounds_never_raise_the_inertia():
    rows = make_features(300, 4, 2)
    inertias = [kmeans(rows, 10, 0, rounds=r, tolerance=0).inertia for r in range(6)]
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(inertias))


def test_an_empty_cluster_restarts_at_the_farthest_row():
    rows = np.array([[0.0], [0.1], [0.2], [10.0]])
    shards = LocalShards.of(features=rows)
    centres = np.array([[0.1], [500.0]])
    sums, counts, _ = shards.sum(module._assign_kmeans_block, module.read_features, centres)
    moved = module._move_centers(shards, module.read_features, centres, sums, counts)
    assert counts.tolist() == [4.0, 0.0]
    assert moved[1, 0] == 10.0


def test_as_many_clusters_as_rows_leaves_no_distance():
    rows = make_features(40, 3)
    found = kmeans(rows, 40, 0)
    assert found.inertia < 1e-9
    assert len(set(found.labels.tolist())) == 40


def test_blocks_give_the_same_clusters():
    rows = make_features(300, 4)
    whole = kmeans(rows, 7, 0)
    parts = np.split(np.arange(300), [10, 150])
    shards = LocalShards(Shard(p.astype(np.int64), {"features": rows[p]}) for p in parts)
    np.testing.assert_array_equal(kmeans(shards, 7, 0).labels, whole.labels)


def test_assignment_in_chunks_matches_all_at_once(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 10)
    rows, centres = make_features(300, 3), make_features(5, 3, 1)
    labels, distances = assign_to_centers(rows, centres)
    expected = ((rows[:, None] - centres[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(labels, expected.argmin(axis=1))
    np.testing.assert_allclose(distances, expected.min(axis=1), atol=1e-10)


def test_central_items_match_a_loop():
    rows = make_features(200, 3)
    shards = LocalShards([Shard(np.arange(200) * 3, {"features": rows})])
    found = kmeans(shards, 9, 1)
    ids, distances = find_central_items(shards, found)
    for cluster, item, distance in zip(range(9), ids, distances, strict=True):
        members = np.flatnonzero(found.labels == cluster)
        apart = ((rows[members] - found.centres[cluster]) ** 2).sum(axis=1)
        assert item == 3 * members[apart.argmin()]
        assert distance == pytest.approx(apart.min(), rel=1e-9)


def test_more_clusters_than_rows_is_an_error():
    with pytest.raises(BadInput, match="k must be from 1 to 3, the number of rows; got 4"):
        kmeans(np.ones((3, 2)), 4, 0)


@pytest.mark.parametrize(
    ("kind", "power"), [(np.float32, -80), (np.float64, -20), (np.float64, -400), (np.float64, 400)]
)
def test_picks_near_centres_do_not_depend_on_the_scale(kind, power):
    rows = make_features(200, 4).astype(kind)
    near = labelwise.select("kmeans", 9, features=rows, seed=2)
    far = labelwise.select("kmeans", 9, features=np.ldexp(rows, power), seed=2)
    assert near.ids.tolist() == far.ids.tolist()
