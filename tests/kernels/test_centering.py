"""Rows far from the origin or of extreme size: moved where it helps, whatever the blocks are."""

import numpy as np
import pytest

import labelwise
from labelwise.errors import BadInput
from labelwise.kernels.distance.embedding import (
    Factored,
    MovedReader,
    move_near_origin,
    split_embedding,
)
from labelwise.kernels.distance.kmeans import kmeans
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.pool.rows import read_features


def far_rows(spread, n=300, d=40):
    return (1 + spread * np.random.default_rng(0).normal(size=(n, d))).astype(np.float32)


@pytest.mark.parametrize("cuts", [[], [7], [50, 51, 200]])
def test_the_shift_does_not_depend_on_blocks(cuts):
    rows, ids = far_rows(0.01), np.random.default_rng(1).permutation(300)
    parts = np.split(np.arange(300), cuts)
    shards = LocalShards(Shard(ids[part], {"features": rows[part]}) for part in parts)
    found = move_near_origin(shards, read_features)
    first = rows[np.argsort(ids)[:64]].astype(np.float64)
    np.testing.assert_array_equal(found.shift, first.mean(axis=0))
    np.testing.assert_allclose(found({"features": rows}), rows - first.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("rows", [np.zeros((0, 3)), np.zeros((5, 3)), far_rows(1.0)])
def test_rows_around_the_origin_are_left_alone(rows):
    found = move_near_origin(LocalShards.of(features=rows), read_features)
    assert found == MovedReader(read_features)
    assert found({"features": rows}) is rows


def test_rows_that_are_not_finite_are_left_to_those_who_refuse_them():
    rows = far_rows(0.01)
    rows[3, 2] = np.inf
    assert move_near_origin(LocalShards.of(features=rows), read_features) == MovedReader(
        read_features
    )


def test_what_is_moved_already_is_not_moved_again():
    moved = move_near_origin(LocalShards.of(features=far_rows(0.01)), read_features)
    assert move_near_origin(LocalShards.of(features=far_rows(0.01)), moved) is moved


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


KINDS = [(np.float32, 90), (np.float32, -90), (np.float64, 300), (np.float64, -900)]


@pytest.mark.parametrize(("kind", "power"), KINDS)
@pytest.mark.parametrize("cuts", [[], [7, 200]])
def test_rows_of_extreme_size_are_brought_to_about_one_without_rounding(kind, power, cuts):
    rows = np.ldexp((far_rows(1.0) - 1).astype(kind), power)
    found = move_near_origin(LocalShards(blocks(rows, cuts)), read_features)
    assert found.shift is None
    assert np.log2(found.scale) == pytest.approx(-power, abs=4)
    moved = found({"features": rows})
    assert moved.dtype == kind
    np.testing.assert_array_equal(moved / kind(found.scale), rows)
    np.testing.assert_array_equal(found.move_back(moved), rows)
    np.testing.assert_array_equal(found.unscale_squares(np.array([found.scale])), 1 / found.scale)


def blocks(rows, cuts):
    parts = np.split(np.arange(len(rows)), cuts)
    return [Shard(part, {"features": rows[part]}) for part in parts]


@pytest.mark.parametrize(("kind", "power"), [(np.float32, -148), (np.float64, -1070)])
def test_the_unit_is_a_number_of_the_kind_even_for_the_smallest_rows(kind, power):
    rows = np.ldexp(np.ones((5, 1), dtype=kind), power)
    found = move_near_origin(LocalShards.of(features=rows), read_features, shifted=False)
    assert found.scale == 2.0 ** {4: 100, 8: 1000}[kind().itemsize]
    assert np.isfinite(kind(found.scale))
    np.testing.assert_array_equal(
        found({"features": rows}), np.ldexp(rows, int(np.log2(found.scale)))
    )


@pytest.mark.parametrize(("kind", "power"), KINDS)
def test_rows_far_away_and_of_extreme_size_are_shifted_and_sized(kind, power):
    rows = np.ldexp(far_rows(0.01).astype(kind), power)
    found = move_near_origin(LocalShards.of(features=rows), read_features)
    expected = rows[:64].astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(found.shift, expected, rtol=1e-12)
    moved = found({"features": rows})
    assert 0.1 < np.median(np.abs(moved).max(axis=1)) < 10
    np.testing.assert_allclose(found.move_back(moved.astype(np.float64)), rows, rtol=1e-6)
    plain = found.without_shift()({"features": rows})
    np.testing.assert_array_equal(plain, np.ldexp(rows, int(np.log2(found.scale))))


def test_factors_are_sized_and_never_shifted():
    rows = Factored(np.ones((9, 2)), np.ldexp(1000 + far_rows(1.0, n=9).astype(float), 200))
    names, read = split_embedding(rows)
    found = move_near_origin(LocalShards.of(**names), read)
    assert found.shift is None
    moved = found(names)
    assert moved.a is rows.a
    np.testing.assert_array_equal(moved.h / found.scale, rows.h)


def test_a_row_that_becomes_infinite_is_refused_by_its_norm():
    rows = np.full((70, 2), 1e-30, dtype=np.float32)
    rows[69] = 1e30
    with pytest.raises(BadInput, match="scored item"):
        labelwise.select("k_center", 2, features=rows)
