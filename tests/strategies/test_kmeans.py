"""k-means picks: the item nearest every centre."""

import numpy as np

import labelwise
from labelwise.kernels.distance.kmeans import kmeans
from tests.conftest import make_features


def test_picks_the_item_nearest_each_centre():
    features = make_features(150, 4)
    clusters = kmeans(features, 10, 3)
    nearest = []
    for cluster, centre in enumerate(clusters.centres):
        members = np.flatnonzero(clusters.labels == cluster)
        distances = ((features[members] - centre) ** 2).sum(axis=1).round(9)  # two may tie
        nearest.append(int(members[distances.argmin()]))
    picks = labelwise.select("kmeans", 10, features=features, seed=3)
    assert sorted(picks.ids.tolist()) == sorted(nearest)


def test_larger_clusters_come_first():
    features = np.concatenate([np.zeros((5, 1)), np.full((30, 1), 9.0), np.full((12, 1), -9.0)])
    features += np.linspace(0, 0.1, 47)[:, None]
    picks = labelwise.select("kmeans", 3, features=features).ids
    assert [5 <= picks[0] < 35, picks[1] >= 35, picks[2] < 5] == [True, True, True]


def test_copies_are_filled_up_and_reported():
    features = np.repeat(np.array([[0.0], [5.0]]), 10, axis=0)
    picks = labelwise.select("kmeans", 6, features=features)
    assert len(set(picks.ids.tolist())) == 6
    assert {0, 1} == {int(item) // 10 for item in picks.ids[:2]}
    assert "only 2 clusters" in picks.info["copies"]
