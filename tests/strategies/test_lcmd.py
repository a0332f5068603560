"""LCMD: the farthest item of the heaviest cluster."""

import numpy as np
import pytest

import labelwise
from tests.conftest import make_features


def slow_picks(features, budget, labelled=()):
    """From the definition; ids are row numbers, labelled items by id."""
    features = np.asarray(features, dtype=np.float64)
    centers, picks = list(labelled), []
    left = [i for i in range(len(features)) if i not in labelled]
    while len(picks) < budget:
        if not centers:
            best = int(np.argmax((features**2).sum(axis=1)))
        else:
            squares = ((features[left, None] - features[None, centers]) ** 2).sum(axis=2)
            owners, distances = squares.argmin(axis=1), squares.min(axis=1)
            weights = np.bincount(owners, distances, minlength=len(centers))
            heaviest = int(np.argmax(weights))
            inside = np.flatnonzero((owners == heaviest) & (distances > 0))
            inside = inside if len(inside) else np.arange(len(left))
            best = left[inside[np.argmax(distances[inside])]]
        centers.append(best)
        picks.append(best)
        left.remove(best)
    return picks


@pytest.mark.parametrize("labelled", [[], [4, 9, 100]], ids=["fresh", "labelled"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_matches_the_slow_version(labelled, dtype):
    features = (make_features(300, 6) + 5).astype(dtype)
    found = labelwise.select("lcmd", 60, features=features, labelled=labelled)
    assert found.ids.tolist() == slow_picks(features, 60, labelled)


def test_without_centers_the_longest_row_is_first():
    features = np.array([[1.0, 1.0], [-3.0, 0.0], [2.0, 2.0], [0.0, 3.0]])
    found = labelwise.select("lcmd", 1, features=features)
    assert found.ids.tolist() == [1] and found.scores.tolist() == [9.0]


def test_a_heavy_cluster_comes_before_a_single_far_item():
    # Centers 0 and 100; ten items at 101 weigh 10, one item at -3 weighs 9.
    line = np.array([0.0, 100.0, -3.0, *[101.0] * 10])[:, None]
    found = labelwise.select("lcmd", 2, features=line, labelled=[0, 1])
    assert found.ids.tolist() == [3, 2] and found.scores.tolist() == [1.0, 9.0]


def test_copies_of_centers_are_picked_last_and_by_id():
    features = np.array([[0.3, 0.7], [0.3, 0.7], [1.3, 0.7], [0.3, 0.7]]) * 1e3
    found = labelwise.select("lcmd", 3, features=features, labelled=[1])
    assert found.ids.tolist() == [2, 0, 3] and found.scores[1:].tolist() == [0.0, 0.0]


def test_reads_sketches_of_gradients():
    sketch = make_features(80, 5)
    expected = labelwise.select("lcmd", 9, features=sketch).ids.tolist()
    assert labelwise.select("lcmd", 9, gradient_sketch=sketch).ids.tolist() == expected


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_picks_do_not_depend_on_the_size_of_the_features(scale):
    features = make_features(120, 4)
    expected = labelwise.select("lcmd", 12, features=features, labelled=[5])
    small = (features * scale).astype(np.float32)
    assert labelwise.select("lcmd", 12, features=small, labelled=[5]).ids.tolist() == (
        expected.ids.tolist()
    )
