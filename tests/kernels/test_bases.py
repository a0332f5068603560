"""Bases against scikit-learn, the kernel they approximate, and their definitions."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.preprocessing import PolynomialFeatures

from labelwise.errors import BadInput
from labelwise.kernels.linear import bases
from labelwise.kernels.linear.bases import (
    ModelColumns,
    PolynomialBasis,
    SubdividedShards,
    join_model_features,
    make_fourier_basis,
    make_polynomial_basis,
)
from labelwise.pool.blocks import LocalShards, Shard


def make_shards(rows, parts=1, convert=lambda rows: rows):
    blocks = np.array_split(np.arange(len(rows)), parts)
    return LocalShards(Shard(block, {"features": convert(rows[block])}) for block in blocks)


def same_span(left, right):
    """Whether the columns of two matrices span the same space."""
    both = np.linalg.matrix_rank(np.concatenate([left, right], axis=1))
    return both == np.linalg.matrix_rank(left) == np.linalg.matrix_rank(right)


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_monomials_are_those_of_scikit_learn(degree):
    rows = np.random.default_rng(0).standard_normal((50, 3))
    found = PolynomialBasis(degree, np.zeros(3), np.ones(3))(rows)
    expected = PolynomialFeatures(degree, include_bias=False).fit_transform(rows)
    np.testing.assert_allclose(np.sort(found, axis=1), np.sort(expected, axis=1), rtol=1e-12)


def test_standardised_monomials_span_the_same_polynomials():
    rows = np.random.default_rng(1).standard_normal((80, 3)) * [1, 5, 0.1] + [3, 0, 1]
    shards = make_shards(rows)
    plain = PolynomialFeatures(2).fit_transform(rows)
    with_bias = ModelColumns(make_polynomial_basis(shards, 2, centred=True), True)(
        {"features": rows}
    )
    assert same_span(with_bias, plain)
    without = ModelColumns(make_polynomial_basis(shards, 2, centred=False), False)(
        {"features": rows}
    )
    assert same_span(without, plain[:, 1:])


def test_features_are_centred_to_unit_spread():
    rows = np.random.default_rng(2).standard_normal((200, 4)) * 7 + 100
    found = make_polynomial_basis(make_shards(rows, 3), 1, centred=True)(rows)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(found.std(axis=0), 1, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_feature_makes_no_direction_of_rounding_noise(dtype):
    rows = np.random.default_rng(3).standard_normal((90, 2)).astype(dtype)
    rows[:, 1] = 0.1
    rows[::2, 1] = np.nextafter(rows[::2, 1], dtype(1))  # equal but for the last bit
    found = make_polynomial_basis(make_shards(rows), 2, centred=True)(rows)
    assert (np.abs(found).max(axis=0) > 0).tolist() == [True, False, True, False, False]


def test_too_many_monomials_are_refused():
    shards = make_shards(np.ones((3, 128)))
    with pytest.raises(BadInput, match="128 features up to degree 2 are 8384 columns"):
        make_polynomial_basis(shards, 2, centred=True)


@pytest.mark.parametrize("degree", [0, -1, 1.5, True])
def test_a_wrong_degree_is_refused(degree):
    with pytest.raises(BadInput, match="degree must be a whole number, 1 or more"):
        make_polynomial_basis(make_shards(np.ones((3, 2))), degree, centred=True)


def test_random_cosines_approximate_the_gaussian_kernel():
    rows = np.random.default_rng(4).standard_normal((30, 3))
    features = make_fourier_basis(make_shards(rows), 4096, length_scale=1.7, seed=0)(rows)
    distances = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    error = features @ features.T - np.exp(-distances / (2 * 1.7**2))
    assert np.abs(error).max() < 6 / np.sqrt(4096)
    assert np.abs(error).mean() < 1 / np.sqrt(4096)


def test_the_length_scale_follows_the_spread_of_the_features():
    rows = np.random.default_rng(5).standard_normal((60, 3))
    near = make_fourier_basis(make_shards(rows), 16, seed=1)(rows)
    far = make_fourier_basis(make_shards(1000 * rows + 5), 16, seed=1)(1000 * rows + 5)
    assert np.abs(near @ near.T - far @ far.T).max() < 2.5  # same kernel, other phases
    spread = np.sqrt(rows.var(axis=0).sum())
    told = make_fourier_basis(make_shards(rows), 16, length_scale=spread, seed=1)(rows)
    np.testing.assert_allclose(told, near, atol=1e-12)
    np.testing.assert_allclose(far, near, atol=1e-9)


def test_equal_features_have_a_length_scale_too():
    rows = np.ones((5, 2))
    assert np.isfinite(make_fourier_basis(make_shards(rows), 8)(rows)).all()


def test_the_seed_decides_the_frequencies():
    shards = make_shards(np.random.default_rng(6).standard_normal((20, 2)))
    first, again, other = (
        make_fourier_basis(shards, 8, seed=seed).frequencies for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert (first != other).all()


@pytest.mark.parametrize(
    ("count", "length", "words"),
    [
        (0, None, "frequencies must be a whole number"),
        (5000, None, "frequencies must be at most 4096; got 5000"),
        (8, 0.0, "length_scale must be a positive number; got 0.0"),
        (8, float("nan"), "length_scale must be a positive number"),
    ],
)
def test_wrong_fourier_options_are_refused(count, length, words):
    with pytest.raises(BadInput, match=words):
        make_fourier_basis(make_shards(np.ones((3, 2))), count, length_scale=length)


@pytest.mark.parametrize("basis", ["polynomial", "fourier"])
def test_blocks_and_library_do_not_matter(basis):
    rows = np.random.default_rng(7).standard_normal((70, 3)).astype(np.float32)

    def columns(shards):
        made = (
            make_polynomial_basis(shards, 3, centred=True)
            if basis == "polynomial"
            else make_fourier_basis(shards, 9)
        )
        return np.concatenate(
            [np.asarray(part) for part in shards.map(read, ModelColumns(made, True))]
        )

    expected = columns(make_shards(rows))
    assert expected.dtype == np.float32
    assert (expected[:, -1] == 1).all()
    for shards in (make_shards(rows, 7), make_shards(rows, 3, torch.asarray)):
        np.testing.assert_allclose(columns(shards), expected, atol=1e-5)


def read(shard, columns):
    return columns(shard.rows)


def test_the_features_of_several_models_stand_side_by_side():
    models = [np.arange(6.0).reshape(3, 2), np.ones((3, 1), dtype=np.float32)]
    np.testing.assert_array_equal(
        join_model_features({"features": models}), [[0, 1, 1], [2, 3, 1], [4, 5, 1]]
    )
    assert ModelColumns(None, True)({"features": models}).shape == (3, 4)


def test_whole_numbers_are_taken_as_double_precision():
    rows = np.arange(12).reshape(6, 2)
    found = make_polynomial_basis(make_shards(rows), 2, centred=False)(rows)
    assert found.dtype == np.float64


def test_columns_can_travel_to_workers():
    rows = np.random.default_rng(8).standard_normal((9, 2))
    columns = ModelColumns(make_fourier_basis(make_shards(rows), 5), True)
    again = pickle.loads(pickle.dumps(columns))
    np.testing.assert_array_equal(again({"features": rows}), columns({"features": rows}))


def total(shard, factor):
    return factor * shard.rows["features"].sum(axis=0), len(shard)


def test_finer_blocks_hold_the_same_rows(monkeypatch):
    monkeypatch.setattr(bases, "CHUNK", 4)
    rows = np.random.default_rng(9).standard_normal((21, 2))
    shards = make_shards(rows, 2)
    finer = SubdividedShards(shards)
    sizes = [len(ids) for ids in finer.map(lambda shard: shard.ids)]
    assert max(sizes) == 4 and sum(sizes) == len(finer) == 21
    joined = np.concatenate(finer.map(read, ModelColumns()))
    np.testing.assert_array_equal(joined, rows)
    np.testing.assert_array_equal(finer.ids, shards.ids)
    np.testing.assert_array_equal(finer.rows(np.array([3]))["features"], rows[3:4])
    added, count = finer.sum(total, 2.0)
    np.testing.assert_allclose(added, 2 * rows.sum(axis=0))
    assert count == 21
