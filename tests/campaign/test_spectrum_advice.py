"""What the labelled items see of the pool, against the definition."""

import math

import numpy as np

from labelwise.campaign.settings import Settings
from labelwise.campaign.stopping import (
    advise,
    labelled_spectrum,
    spectrum_advice,
)
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.record.ledger import Ledger
from tests.campaign.advising import picked, rule
from tests.conftest import make_features


def slow_spectrum(features, ids, weights):
    pool = features.T @ features
    chosen = features[ids].T @ np.diag(weights) @ features[ids]
    return np.sort(np.linalg.eigvals(np.linalg.solve(pool, chosen)).real)


def test_the_labelled_items_are_compared_with_the_pool():
    features = make_features(400, 5, 0)
    generator = np.random.default_rng(0)
    ids = generator.choice(400, 60, replace=False)
    weights = generator.uniform(1, 9, 60)
    found = labelled_spectrum(picked(ids, tuple(weights.tolist())), features)
    expected = slow_spectrum(features, ids, weights * 400 / weights.sum())
    np.testing.assert_allclose(found.values, expected, rtol=1e-9)


def test_items_for_measuring_are_not_learned_from_and_do_not_count():
    features = make_features(400, 5, 0)
    found = labelled_spectrum(picked(range(50), validation=(3, 7)), features)
    ids = np.array([i for i in range(50) if i not in (3, 7)])
    expected = slow_spectrum(features, ids, np.full(48, 400 / 48))
    np.testing.assert_allclose(found.values, expected, rtol=1e-9)


def test_ids_need_not_be_row_numbers():
    features = make_features(400, 5, 0)
    shards = LocalShards([Shard(np.arange(400) + 1000, {"features": features})])
    found = labelled_spectrum(picked(range(1000, 1040)), shards)
    expected = slow_spectrum(features, np.arange(40), np.full(40, 10.0))
    np.testing.assert_allclose(found.values, expected, rtol=1e-9)


def test_many_random_labels_are_enough_and_few_are_not():
    features = np.random.default_rng(1).normal(size=(400, 2))
    few, many = picked(range(8)), picked(range(390))
    advice = [advise(one, Settings(), labelled_spectrum(one, features)) for one in (few, many)]
    assert [rule(one, "spectrum").stop for one in advice] == [False, True]
    assert all(rule(one, "spectrum").judged for one in advice)


def test_directions_that_no_label_has_are_counted():
    features = np.eye(4).repeat(100, axis=0)
    found = spectrum_advice(labelled_spectrum(picked(range(150)), features))
    assert not found.stop and found.says.endswith("yet (2 of 4 directions)")


def test_no_label_and_no_direction_cannot_be_judged():
    assert labelled_spectrum(Ledger(), np.eye(2)) is None
    assert not spectrum_advice(None).judged
    flat = labelled_spectrum(picked(range(3)), np.zeros((400, 2)))
    assert not spectrum_advice(flat).judged
    broken = {"lower": math.nan, "upper": 1.0, "rank": 2, "unseen": 0}
    assert not spectrum_advice(broken).judged
