"""MaxHerding: cover the pool; coverage itself is tested in tests/kernels/test_coverage.py."""

import numpy as np
import pytest

import labelwise
from labelwise.strategies import get
from labelwise.strategy import Job, PickFacts
from tests.conftest import make_features
from tests.kernels.coverage_reference import cover, similarities


@pytest.mark.parametrize("seed", range(3))
def test_matches_the_slow_version(seed):
    features = make_features(200, 5, seed)
    expected, gains = cover(features, 25, labelled=(7, 90))
    found = labelwise.select("max_herding", 25, features=features, labelled=[7, 90], seed=seed)
    assert found.ids.tolist() == expected
    np.testing.assert_allclose(found.scores, gains, rtol=0, atol=1e-13)


def test_covers_two_groups_on_a_circle():
    angles = np.array([0.0, 0.1, 0.2, 3.1, 3.2])
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert labelwise.select("max_herding", 2, features=circle).ids.tolist() == [1, 3]


def test_a_batch_begins_with_the_smaller_one():
    features = make_features(150, 4)
    small, large = (labelwise.select("max_herding", b, features=features).ids for b in (6, 20))
    assert large[:6].tolist() == small.tolist()


def test_tophat_counts_items_within_the_radius():
    line = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [30.0]])
    options = {"kernel": "tophat", "radius": 1.0}
    found = labelwise.select("max_herding", 3, features=line, **options)
    assert found.ids.tolist() == [1, 3, 5]
    np.testing.assert_allclose(found.scores, [3 / 6, 2 / 6, 1 / 6])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "laplace"}, "kernel must be one of cosine, gaussian, tophat; got 'laplace'"),
        ({"kernel": "tophat"}, "'tophat' needs a radius"),
        ({"kernel": "gaussian", "sigma": 0}, "sigma must be a number above 0; got 0"),
        ({"power": -1.0}, "power must be a number above 0; got -1.0"),
        ({"power": "low"}, "power must be one of auto; got 'low'"),
        ({"power": "auto", "kernel": "gaussian"}, "power 'auto' needs kernel 'cosine'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(labelwise.BadInput, match=message):
        labelwise.select("max_herding", 1, features=np.eye(3), **options)


def test_says_how_many_items_a_pick_represents():
    facts = PickFacts(0, 4, trained=False, score=0.034, info={"candidates": 10_000})
    assert get("max_herding").explain_pick(facts) == (
        "It represents about 340 unlabelled items that no labelled item resembles."
    )


def test_the_dry_run_knows_whether_similarities_are_kept():
    shapes, options = {"features": ((512,),)}, {}
    few, many = (
        get("max_herding").costs(Job(50_000, budget, shapes, options)) for budget in (10, 1000)
    )
    assert few.item_bytes < 100 and many.item_bytes > 2 * 10_000


@pytest.mark.parametrize("labels", [0, 3, 150])
def test_an_automatic_power_covers_the_median_item_by_half(labels):
    features = make_features(200, 5)
    labelled = list(range(labels))
    nearest = np.max(
        similarities(features, features, features.mean(axis=0))[:labels], axis=0, initial=0
    )
    typical = np.median(nearest[labels:])
    power = np.clip(np.log(0.5) / np.log(typical), 1, 8) if typical else 1.0
    found = labelwise.select("max_herding", 9, features=features, labelled=labelled, power="auto")
    assert found.info["power"] == pytest.approx(power, abs=0.005)
    assert labels or power == 1
    given = {"features": features, "labelled": labelled, "power": found.info["power"]}
    assert found.ids.tolist() == labelwise.select("max_herding", 9, **given).ids.tolist()
