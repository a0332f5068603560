"""TypiClust: uncovered clusters first, and their most typical items."""

import numpy as np
import pytest

import labelwise
from labelwise.strategies.typiclust import _typicality
from tests.conftest import make_features


def slow_typicality(rows, neighbours):
    distances = np.sqrt(((rows[:, None] - rows[None]) ** 2).sum(axis=2))
    nearest = np.sort(distances, axis=1)[:, 1 : neighbours + 1]
    return 1 / (nearest.mean(axis=1) + 1e-5)


def test_typicality_matches_all_distances():
    rows = make_features(700, 3)
    np.testing.assert_allclose(_typicality(rows, 20), slow_typicality(rows, 20), rtol=1e-6)


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
    assert _typicality(np.ones((1, 2)), 1).tolist() == [1.0]


def test_a_wrong_option_is_an_error():
    with pytest.raises(labelwise.BadInput, match="at least 1; got 0, 20"):
        labelwise.select("typiclust", 2, features=three_blobs(), clusters=0)
