"""Rows far from the origin: shifted where it helps, the same shift for every split into blocks."""

import numpy as np
import pytest

import labelwise
from labelwise.blocks import LocalShards, Shard
from labelwise.kernels.centring import Moved, near_origin
from labelwise.kernels.kmeans import features, kmeans


def far_rows(spread, n=300, d=40):
    return (1 + spread * np.random.default_rng(0).normal(size=(n, d))).astype(np.float32)


@pytest.mark.parametrize("cuts", [[], [7], [50, 51, 200]])
def test_the_shift_does_not_depend_on_blocks(cuts):
    rows, ids = far_rows(0.01), np.random.default_rng(1).permutation(300)
    parts = np.split(np.arange(300), cuts)
    shards = LocalShards(Shard(ids[part], {"features": rows[part]}) for part in parts)
    found = near_origin(shards, features)
    assert isinstance(found, Moved)
    first = rows[np.argsort(ids)[:64]].astype(np.float64)
    np.testing.assert_array_equal(found.shift, first.mean(axis=0))
    np.testing.assert_allclose(found({"features": rows}), rows - first.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("rows", [np.zeros((0, 3)), np.zeros((5, 3)), far_rows(1.0)])
def test_rows_around_the_origin_are_left_alone(rows):
    assert near_origin(LocalShards.of(features=rows), features) is features


def test_rows_that_are_not_finite_are_left_to_those_who_refuse_them():
    rows = far_rows(0.01)
    rows[3, 2] = np.inf
    assert near_origin(LocalShards.of(features=rows), features) is features


@pytest.mark.parametrize("spread", [1e-2, 1e-3])
def test_clusters_far_from_the_origin_are_those_of_float64_around_it(spread):
    centres = np.repeat(np.eye(6, 40), 50, axis=0)
    rows = (1 + spread * (6 * centres + far_rows(0.3) - 1)).astype(np.float32)
    found = kmeans(rows, 6, seed=0)
    exact = kmeans(rows.astype(np.float64) - 1, 6, seed=0)
    assert len(set(zip(found.labels.tolist(), np.repeat(range(6), 50).tolist(), strict=True))) == 6
    np.testing.assert_allclose(np.sort(found.distances), np.sort(exact.distances), rtol=1e-4)
    np.testing.assert_allclose(
        np.sort(found.centres, axis=0), np.sort(exact.centres + 1, axis=0), rtol=1e-6
    )


def test_kmeans_picks_are_the_same_near_and_far():
    rows = np.random.default_rng(3).integers(-50, 50, size=(400, 8)).astype(np.float32)
    near = labelwise.select("kmeans", 12, features=rows, seed=1)
    far = labelwise.select("kmeans", 12, features=rows + 2.0**14, seed=1)  # nothing is rounded
    assert near.ids.tolist() == far.ids.tolist()


def test_rows_of_extreme_size_are_scaled_where_that_is_wanted():
    rows = np.ldexp(far_rows(1.0).astype(np.float64) - 1, 300)
    shards = LocalShards.of(features=rows)
    assert near_origin(shards, features) is features
    found = near_origin(shards, features, scaled=True)
    assert isinstance(found, Moved)
    assert found.shift is None
    assert np.log2(found.scale) == pytest.approx(-300, abs=4)
    np.testing.assert_array_equal(found({"features": rows}) / found.scale, rows)
    np.testing.assert_array_equal(found.back(np.array([found.scale**2])), 1.0)
