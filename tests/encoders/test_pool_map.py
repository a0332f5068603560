"""The map of a pool, and its near-duplicates, against the definition."""

import numpy as np
import pytest

from labelwise.encoders import pool_map
from labelwise.encoders.pool_map import choose_duplicate_limit, fit_map_preparation, make_map


def make_rows(copies, seed=0, n=60, d=12):
    """Rows that differ, then slightly changed copies of the first ones."""
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(n, d))
    return np.concatenate([rows, rows[:copies] + 1e-3 * draw.normal(size=(copies, d))])


def slow_groups(rows, limit):
    """Connected components of all close pairs of centred unit vectors, by repeated merging."""
    centred = rows - rows.mean(axis=0)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    group = list(range(len(rows)))
    distances = ((unit[:, None] - unit) ** 2).sum(axis=2)
    for i, j in np.argwhere(distances <= limit):
        group = [group[i] if one == group[j] else one for one in group]
    return [one if group.count(one) > 1 else -1 for one in group]


@pytest.mark.parametrize("block", [4_096, 7])
def test_near_duplicates_are_those_of_all_pairs(monkeypatch, block):
    monkeypatch.setattr(pool_map, "BLOCK", block)
    monkeypatch.setattr(pool_map, "LANDMARKS", 20)
    rows = make_rows(copies=5).astype(np.float32)
    found = make_map(rows).groups
    slow = slow_groups(rows, limit=0.04)
    assert [one >= 0 for one in found] == [one >= 0 for one in slow]
    pairs = {(int(a), b) for a, b in zip(found, slow, strict=True)}
    assert len(pairs) == len(set(found.tolist())) == len(set(slow))


def test_the_limit_follows_the_usual_distance_of_neighbours():
    turned = np.linspace(0, np.pi / 2, 10)  # neighbours differ by 10 degrees
    circle = np.stack([np.cos(turned), np.sin(turned)], axis=1).astype(np.float32)
    assert choose_duplicate_limit(circle) == pytest.approx(0.04)  # (2 - 2 cos 10 deg) / 4 is less
    apart = np.eye(10, dtype=np.float32)  # squared distances of 2
    assert choose_duplicate_limit(apart) == pytest.approx(0.3)
    pairs = np.kron(np.eye(5), [[1, 0], [0.8, 0.6]]).astype(np.float32)
    assert choose_duplicate_limit(pairs) == pytest.approx((2 - 2 * 0.8) / 4)


def test_places_are_in_the_unit_square_and_the_same_again():
    rows = make_rows(copies=3)
    first, again = make_map(rows), make_map(rows)
    assert first.places.shape == (63, 2)
    assert first.places.min() == 0 and first.places.max() == 1
    assert np.array_equal(first.places, again.places)


def test_two_separate_clouds_stay_apart():
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(80, 10)) + np.repeat([[30.0] * 10, [-30.0] * 10], 40, axis=0)
    places = make_map(rows).places
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = distances.argmin(axis=1)
    assert np.array_equal(nearest < 40, np.arange(80) < 40)


@pytest.mark.parametrize("n", [1, 2, 9, 10])
def test_small_pools_and_one_column_have_a_map(n):
    rows = np.arange(n, dtype=float)[:, None]
    found = make_map(rows, table=True)
    assert found.places.shape == (n, 2) and np.isfinite(found.places).all()
    assert (found.groups == -1).all()


def test_identical_rows_of_a_table_are_a_group_and_missing_numbers_do_not_matter():
    rows = np.random.default_rng(1).normal(size=(30, 3)) * [1, 1000, 1e-3]
    rows[[4, 9, 20]] = rows[4]
    rows[5, 1] = np.nan
    found = make_map(rows, table=True)
    assert np.flatnonzero(found.groups >= 0).tolist() == [4, 9, 20]
    assert np.isfinite(found.places).all()


def test_pictures_as_pixels_are_prepared_as_rows():
    rows = np.random.default_rng(2).integers(0, 255, (12, 4, 4, 3), dtype=np.uint8)
    prepared = fit_map_preparation(rows, table=False)(rows)
    assert prepared.shape == (12, 48)
    assert np.allclose(np.linalg.norm(prepared, axis=1), 1, atol=1e-5)
