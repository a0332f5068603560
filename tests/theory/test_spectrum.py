"""The spectrum of weighted picks against the pool."""

import numpy as np
import pytest

import labelwise
from labelwise import Selection
from labelwise.errors import BadInput, UnknownName
from labelwise.kernels.linear.leverage import whiten
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.pool.rows import read_features
from labelwise.theory.spectrum import near_orthonormality, weighted_spectrum
from tests.conftest import make_features


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


@pytest.mark.parametrize("bias", [False, True])
def test_a_distribution_equals_items_that_are_repeated(bias):
    rng = np.random.default_rng(3)
    pool, counts = rng.normal(size=(40, 3)), rng.integers(1, 5, size=40)
    picks = Selection(np.arange(0, 40, 3), rng.uniform(1, 5, size=14))
    found = weighted_spectrum(picks, pool, bias=bias, distribution=counts / counts.sum())
    rows = np.hstack([pool, np.ones((40, 1))]) if bias else pool
    repeated = np.repeat(rows, counts, axis=0)
    whole = repeated.T @ repeated * 40 / counts.sum()  # n E_D[x x^T]
    part = (rows[picks.ids] * picks.weights[:, None]).T @ rows[picks.ids]
    values = np.sort(np.linalg.eigvals(np.linalg.solve(whole, part)).real)
    np.testing.assert_allclose(found.values, values, rtol=1e-9)


def test_a_uniform_distribution_changes_nothing():
    rng = np.random.default_rng(4)
    pool, picks = rng.normal(size=(30, 3)), Selection(np.arange(9))
    plain = weighted_spectrum(picks, pool).values
    even = weighted_spectrum(picks, pool, distribution=np.full(30, 7.0)).values
    np.testing.assert_allclose(even, plain, rtol=1e-9)
    with pytest.raises(BadInput, match="distribution must be finite"):
        weighted_spectrum(picks, pool, distribution=np.zeros(30))


@pytest.mark.parametrize("weighted", [False, True])
def test_rho_is_the_largest_product_of_two_basis_functions(weighted):
    rng = np.random.default_rng(5)
    pool, sample = rng.normal(size=(300, 4)), np.arange(40)
    masses = rng.uniform(0.5, 2, size=300) if weighted else np.ones(300)
    masses = masses / masses.sum()
    found = near_orthonormality(pool, sample=sample, distribution=masses if weighted else None)
    own = pool * np.sqrt(masses)[:, None]
    # A basis that is orthonormal on the sample, with functions of norm 1 under the distribution;
    # it is unique up to a rotation, so compare what no rotation changes: the spectrum's bounds.
    assert found.dimension == 4 and 0 < found.rho < 1
    low, high = found.gershgorin
    assert low <= found.lower <= 1 <= found.upper <= high
    basis = whiten(LocalShards.of(features=own[sample]), read_features).transform
    functions = pool @ basis
    gram = np.array([[np.sum(masses * f * g) for g in functions.T] for f in functions.T])
    scale = np.sqrt(np.diag(gram))
    products = np.abs(gram / np.outer(scale, scale))
    assert found.rho == pytest.approx(max(products[i, j] for i in range(4) for j in range(i)))


def test_a_basis_of_the_whole_pool_has_rho_zero():
    pool = np.random.default_rng(6).normal(size=(200, 5)) @ np.diag([1, 2, 3, 4, 0.0])
    masses = np.random.default_rng(7).uniform(size=200) + 0.1
    for distribution in (None, masses):
        found = near_orthonormality(pool, distribution=distribution)
        assert found.dimension == 4 and found.rho < 1e-9
        assert found.lower == pytest.approx(1) and found.upper == pytest.approx(1)
