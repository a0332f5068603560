"""TypiClust: uncovered clusters first, and their most typical items."""

import numpy as np
import pytest

import labelwise
from labelwise.strategies.typiclust import _compute_typicality
from tests.conftest import make_features


def slow_typicality(rows, neighbours):
    distances = np.sqrt(((rows[:, None] - rows[None]) ** 2).sum(axis=2))
    nearest = np.sort(distances, axis=1)[:, 1 : neighbours + 1]
    means = nearest.mean(axis=1)
    return 1 / (means + 1e-5 * means.mean())


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_typicality_matches_all_distances(shift):
    rows = make_features(700, 3) + shift
    np.testing.assert_allclose(_compute_typicality(rows, 20), slow_typicality(rows, 20), rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-100, 1e-20, 1e-18, 1e-5, 1e20])
def test_picks_do_not_depend_on_the_scale_of_the_features(scale):
    features = np.random.default_rng(0).normal(size=(40, 4))
    expected = labelwise.select("typiclust", 8, features=features)
    found = labelwise.select("typiclust", 8, features=scale * features)
    assert found.ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(scale * found.scores, expected.scores, rtol=1e-9)


def test_copies_are_equally_typical_and_more_so_than_the_rest():
    rows = np.concatenate([make_features(30, 5), np.repeat(make_features(1, 5, seed=1), 6, axis=0)])
    typical = _compute_typicality(rows + 100.0, 5)
    assert len(set(typical[30:].tolist())) == 1
    assert np.isfinite(typical).all() and typical[30] > 1e3 * typical[:30].max()


def test_items_with_enough_copies_each_are_all_equally_typical():
    rows = np.repeat([[0.0, 1.0], [3.0, 4.0]], 4, axis=0)
    assert len(set(_compute_typicality(rows, 3).tolist())) == 1


def three_blobs():
    generator = np.random.default_rng(0)
    centres = np.repeat([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]], [40, 30, 20], axis=0)
    return centres + generator.normal(size=(90, 2))


def test_each_blob_gives_its_most_typical_item_the_largest_first():
    features = three_blobs()
    picks = labelwise.select("typiclust", 3, features=features).ids
    blobs = [features[:40], features[40:70], features[70:]]
    expected = [
        start + int(slow_typicality(blob, 20 if len(blob) > 20 else 19).argmax())
        for start, blob in zip((0, 40, 70), blobs, strict=True)
    ]
    assert picks.tolist() == expected


def test_a_blob_with_a_label_comes_last():
    picks = labelwise.select("typiclust", 2, features=three_blobs(), labelled=[0], clusters=3).ids
    assert [int(np.searchsorted([40, 70], pick, side="right")) for pick in picks] == [1, 2]


def test_a_lone_item_is_typical():
    assert _compute_typicality(np.ones((1, 2)), 1).tolist() == [1.0]


def test_options_may_be_whole_numbers_of_numpy():
    expected = labelwise.select("typiclust", 4, features=three_blobs(), clusters=3).ids.tolist()
    found = labelwise.select("typiclust", 4, features=three_blobs(), clusters=np.int64(3))
    assert found.ids.tolist() == expected


@pytest.mark.parametrize("far", [0.0, 500.0])
@pytest.mark.parametrize(("kind", "power"), [(np.float32, -100), (np.float32, 90), (np.float64, 0)])
def test_labelled_items_cover_their_clusters_at_any_scale_and_place(kind, power, far):
    rows = make_features(300, 4, clusters=9) * 0.05 + far
    near = labelwise.select("typiclust", 12, features=rows, labelled=[5, 77, 200], seed=1)
    extreme = np.ldexp(rows.astype(kind), power)
    found = labelwise.select("typiclust", 12, features=extreme, labelled=[5, 77, 200], seed=1)
    assert found.ids.tolist() == near.ids.tolist()
