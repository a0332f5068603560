"""The spectrum of weighted picks against the pool."""

import numpy as np
import pytest

import labelwise
from labelwise import Selection
from labelwise.errors import BadInput, UnknownName
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.theory import spectrum
from labelwise.theory.spectrum import weighted_spectrum
from tests.conftest import make_features
from tests.theory.doctests import run_examples


def test_examples_run():
    run_examples(spectrum)


def spiky(n, d, seed=0):
    """Heavy-tailed rows and one direction that only three items have."""
    rows = np.random.default_rng(seed).standard_t(2, size=(n, d))
    rows[:, -1] = 0.0
    rows[:3, -1] = 1.0
    return rows


def slow_spectrum(features, ids, weights):
    """Generalised eigenvalues of both Gram matrices, on a pool of full rank."""
    pool = features.T @ features
    picked = features[ids].T @ np.diag(weights) @ features[ids]
    return np.sort(np.linalg.eigvals(np.linalg.solve(pool, picked)).real)


@pytest.mark.parametrize("seed", range(3))
def test_matches_generalised_eigenvalues(seed):
    features = make_features(200, 6, seed)
    generator = np.random.default_rng(seed)
    ids = generator.choice(200, 40, replace=False)
    weights = generator.uniform(1, 9, 40)
    found = weighted_spectrum(Selection(ids, weights), features)
    np.testing.assert_allclose(found.values, slow_spectrum(features, ids, weights), rtol=1e-9)


def test_the_whole_pool_has_ones():
    features = make_features(50, 5)
    found = weighted_spectrum(Selection(np.arange(50)), features)
    np.testing.assert_allclose(found.values, 1.0, rtol=1e-10)
    assert found.inside and found.unseen == 0


def test_picks_without_weights_stand_for_equal_parts():
    features = make_features(60, 4)
    ids = np.arange(20)
    plain = weighted_spectrum(Selection(ids), features)
    equal = weighted_spectrum(Selection(ids, np.full(20, 3.0)), features)
    np.testing.assert_allclose(plain.values, equal.values, rtol=1e-12)


def test_a_direction_without_a_pick_is_unseen():
    features = np.diag([1.0, 1.0, 1.0])
    found = weighted_spectrum(Selection(np.array([0, 1])), features)
    assert found.unseen == 1 and found.rank == 3 and not found.inside


def test_dependent_columns_and_a_constant_one_count_once():
    features = make_features(80, 3)
    doubled = np.concatenate([features, features[:, :1], np.ones((80, 1))], axis=1)
    picks = Selection(np.arange(30))
    plain = weighted_spectrum(picks, doubled)
    biased = weighted_spectrum(picks, features, bias=True)
    assert plain.rank == 4
    np.testing.assert_allclose(plain.values, biased.values, rtol=1e-8)


def test_the_split_into_blocks_changes_nothing():
    features = make_features(90, 4)
    cuts = [slice(0, 17), slice(17, 60), slice(60, 90)]
    shards = LocalShards([Shard(np.arange(90)[c], {"features": features[c]}) for c in cuts])
    picks = Selection(np.arange(0, 90, 3))
    one, many = weighted_spectrum(picks, features), weighted_spectrum(picks, shards)
    np.testing.assert_allclose(one.values, many.values, rtol=1e-10)


def test_bss_with_enough_budget_is_within_the_band_and_random_picks_are_not():
    features = spiky(4000, 5)
    good = labelwise.select("bss", 700, features=features, bias=False)
    poor = labelwise.select("random", 700, features=features)
    assert weighted_spectrum(good, features).inside
    found = weighted_spectrum(poor, features)
    assert not found.inside and found.lower < 0.5


def test_a_pick_that_is_not_in_the_pool_is_refused():
    with pytest.raises(UnknownName, match="id 7"):
        weighted_spectrum(Selection(np.array([7])), np.eye(3))


@pytest.mark.parametrize(
    ("picks", "message"),
    [
        (Selection(np.empty(0, np.int64)), "empty"),
        (Selection(np.array([0]), np.array([-1.0])), "weight of pick 0 is -1"),
        (Selection(np.array([0]), np.array([np.nan])), "weight of pick 0 is nan"),
        (Selection(np.array([0]), np.array([0.0])), "all weights of the selection are zero"),
    ],
)
def test_picks_that_make_no_sense_are_refused(picks, message):
    with pytest.raises(BadInput, match=message):
        weighted_spectrum(picks, np.eye(3))
