"""The distortion of norms against grids of directions, and its known answers."""

import numpy as np
import pytest

from labelwise import Selection
from labelwise.errors import BadInput
from labelwise.kernels import lewis_weights
from labelwise.theory.spectrum import embedding_distortion, weighted_spectrum
from tests.conftest import make_features


def ratios(features, ids, weights, directions, p):
    """The ratio of norms for every direction ``(d, s)``, from its definition."""
    picked = weights @ np.abs(features[ids] @ directions) ** p
    return picked / np.sum(np.abs(features @ directions) ** p, axis=0)


@pytest.mark.parametrize("p", [1.0, 1.5, 3.0, 4.0])
@pytest.mark.parametrize("seed", range(2))
def test_finds_what_a_fine_grid_of_angles_finds(p, seed):
    generator = np.random.default_rng(seed)
    features = generator.standard_t(3, size=(60, 2))
    ids, weights = np.arange(0, 60, 3), generator.uniform(1, 5, 20)
    angles = np.linspace(0, np.pi, 20_001)
    grid = ratios(features, ids, weights, np.stack([np.cos(angles), np.sin(angles)]), p)
    found = embedding_distortion(Selection(ids, weights), features, p=p)
    np.testing.assert_allclose([found.lower, found.upper], [grid.min(), grid.max()], rtol=2e-3)
    assert not found.exact


@pytest.mark.parametrize("p", [1.0, 3.0])
def test_beats_random_search(p):
    generator = np.random.default_rng(0)
    features = generator.standard_t(2, size=(500, 6))
    ids, weights = np.arange(100), np.full(100, 5.0)
    found = embedding_distortion(Selection(ids, weights), features, p=p)
    random = ratios(features, ids, weights, generator.normal(size=(6, 5000)), p)
    assert found.lower <= random.min() and found.upper >= random.max()


def test_for_least_squares_it_is_the_spectrum():
    features, picks = make_features(100, 5), Selection(np.arange(30))
    found, spectrum = embedding_distortion(picks, features), weighted_spectrum(picks, features)
    assert (found.lower, found.upper, found.exact) == (spectrum.lower, spectrum.upper, True)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_the_whole_pool_with_equal_weights_distorts_nothing(p):
    features = make_features(80, 4)
    found = embedding_distortion(Selection(np.arange(80), np.full(80, 1.5)), features, p=p)
    np.testing.assert_allclose([found.lower, found.upper], 1.5, rtol=1e-9)


def test_a_direction_that_no_pick_sees_has_ratio_zero():
    found = embedding_distortion(Selection(np.array([0, 1])), np.eye(3), p=1.0)
    assert found.lower == 0.0


def thousand_draws(law):
    """A thousand draws with replacement in proportion to ``law``, weighed to be unbiased."""
    shares = law / law.sum()
    drawn = np.random.default_rng(2).choice(len(law), 1000, p=shares)
    ids, counts = np.unique(drawn, return_counts=True)
    return Selection(ids, counts / (1000 * shares[ids]))


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 4.0])
def test_a_thousand_lewis_draws_keep_norms_within_a_quarter(p):
    features = np.random.default_rng(1).standard_t(2, size=(3000, 5))
    found = embedding_distortion(thousand_draws(lewis_weights(features, p)), features, p=p)
    assert 0.75 <= found.lower < 0.99 and 1.01 < found.upper <= 1.25


def test_as_many_uniform_draws_do_not():
    features = np.random.default_rng(1).standard_t(2, size=(3000, 5))
    found = embedding_distortion(thousand_draws(np.ones(3000)), features, p=3.0)
    assert found.lower < 0.3 and found.upper > 1.5


@pytest.mark.parametrize(
    ("options", "message"),
    [({"p": 0.5}, "p must be 1 or more; got 0.5"), ({"starts": 0}, "starts and rounds")],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        embedding_distortion(Selection(np.array([0])), np.eye(2), **options)
