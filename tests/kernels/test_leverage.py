"""Leverage scores against their definition through the pseudo-inverse."""

import tracemalloc
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from labelwise.errors import BadInput
from labelwise.kernels.linear import leverage
from labelwise.kernels.linear.leverage import leverage_scores, whiten
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.pool.rows import read_features


def slow_leverage(rows):
    """``diag(A A^+)``, with the columns scaled to unit length first, which changes nothing."""
    rows = np.asarray(rows, dtype=np.float64)
    norms = np.linalg.norm(rows, axis=0)
    scaled = rows / np.where(norms > 0, norms, 1)
    return np.einsum("ij,ji->i", scaled, np.linalg.pinv(scaled, rcond=1e-11))


def degenerate(kind, n=300, d=12):
    generator = np.random.default_rng(1)
    rows = generator.standard_normal((n, d))
    if kind == "deficient":
        return rows[:, :5] @ generator.standard_normal((5, d))
    if kind == "zero rows":
        rows[::3] = 0
    if kind == "fewer rows than columns":
        return rows[:7]
    if kind == "as many rows as columns":
        return rows[:d]
    if kind == "duplicated":
        return np.repeat(rows[: n // 4], 4, axis=0)
    if kind == "badly scaled columns":
        return rows * 10.0 ** generator.uniform(-12, 12, d)
    if kind == "dead columns":
        rows[:, [0, 4]] = 0
    if kind == "one heavy row":
        rows[17] *= 1e6
    if kind == "ill-conditioned":
        rows[:, 1] = rows[:, 0] + 1e-4 * rows[:, 1]
    return rows


KINDS = [
    "full",
    "deficient",
    "zero rows",
    "fewer rows than columns",
    "as many rows as columns",
    "duplicated",
    "badly scaled columns",
    "dead columns",
    "one heavy row",
    "ill-conditioned",
]


def in_blocks(rows, cuts, order=None):
    order = np.arange(len(rows)) if order is None else order
    return LocalShards([Shard(part, {"features": rows[part]}) for part in np.split(order, cuts)])


@pytest.mark.parametrize("kind", KINDS)
def test_matches_the_definition(kind):
    rows = degenerate(kind)
    np.testing.assert_allclose(leverage_scores(rows), slow_leverage(rows), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_adds_up_to_the_rank_and_stays_between_zero_and_one(kind):
    rows = degenerate(kind)
    scores = leverage_scores(rows)
    norms = np.linalg.norm(rows, axis=0)
    rank = np.linalg.matrix_rank(rows / np.where(norms > 0, norms, 1))
    assert scores.sum() == pytest.approx(rank, abs=1e-9)
    assert scores.min() >= 0 and scores.max() <= 1


def test_matches_an_orthonormal_basis_by_qr():
    rows = degenerate("full")
    basis, _ = np.linalg.qr(rows)
    np.testing.assert_allclose(leverage_scores(rows), np.sum(basis**2, axis=1), atol=1e-13)


@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 9), st.integers(1, 6)),
        elements=st.integers(-2, 2).map(float),
    )
)
def test_matches_the_definition_on_small_whole_numbers(rows):
    scores = leverage_scores(rows)
    np.testing.assert_allclose(scores, slow_leverage(rows), atol=1e-10)
    assert scores.sum() == pytest.approx(np.linalg.matrix_rank(rows), abs=1e-9)
    assert (scores[~rows.any(axis=1)] == 0).all()
    np.testing.assert_allclose(leverage_scores(rows.astype(np.int64)), scores, atol=1e-12)


@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6, 1e8])
def test_loses_digits_with_the_condition_and_not_with_its_square(condition):
    generator = np.random.default_rng(0)
    basis, _ = np.linalg.qr(generator.standard_normal((500, 20)))
    rotation, _ = np.linalg.qr(generator.standard_normal((20, 20)))
    rows = basis * np.geomspace(1, 1 / condition, 20) @ rotation
    error = np.abs(leverage_scores(rows) / np.sum(basis**2, axis=1) - 1).max()
    assert error < 1e-15 * condition + 1e-11


@pytest.mark.parametrize("factor", [1e-200, 1e-158, 1e-30, 1e30, 1e200])
def test_does_not_depend_on_the_scale_of_the_rows(factor):
    rows = degenerate("full")
    np.testing.assert_allclose(leverage_scores(rows * factor), leverage_scores(rows), atol=1e-12)


def test_does_not_change_under_an_invertible_change_of_columns():
    rows = degenerate("full")
    mixed = rows @ np.random.default_rng(5).standard_normal((12, 12))
    np.testing.assert_allclose(leverage_scores(mixed), leverage_scores(rows), atol=1e-12)


@pytest.mark.parametrize("kind", ["full", "deficient", "zero rows", "fewer rows than columns"])
@pytest.mark.parametrize("double", [False, True])
def test_single_precision_rows_give_single_precision_scores(kind, double):
    rows = degenerate(kind)
    error = np.abs(leverage_scores(rows.astype(np.float32), double=double) - slow_leverage(rows))
    assert error.max() < 1e-6


def test_rounding_to_single_precision_adds_no_rank():
    generator = np.random.default_rng(2)
    factors = generator.standard_normal((2000, 20))
    rows = (factors @ generator.standard_normal((20, 64))).astype(np.float32)
    assert np.linalg.matrix_rank(rows.astype(np.float64)) == 64  # spurious directions
    assert whiten(LocalShards.of(features=rows), read_features).rank == 20
    np.testing.assert_allclose(leverage_scores(rows), slow_leverage(factors), rtol=1e-4)


def test_small_but_real_directions_of_single_precision_rows_are_kept():
    generator = np.random.default_rng(2)
    basis, _ = np.linalg.qr(generator.standard_normal((3000, 30)))
    rotation, _ = np.linalg.qr(generator.standard_normal((30, 30)))
    rows = (basis * np.geomspace(1, 1e-5, 30) @ rotation).astype(np.float32)
    np.testing.assert_allclose(leverage_scores(rows), slow_leverage(rows), rtol=1e-5)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_rounding_to_half_precision_adds_no_rank(precision):
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(2)
    low = generator.standard_normal((1500, 6)) @ generator.standard_normal((6, 16))
    rows = torch.asarray(low).to(getattr(torch, precision))
    assert leverage_scores(rows).sum() == pytest.approx(6, abs=1e-4)


def test_a_ridge_gives_the_effective_dimension():
    rows = degenerate("deficient")
    inverse = np.linalg.inv(rows.T @ rows + 3.7 * np.eye(12))
    expected = np.einsum("ij,jk,ik->i", rows, inverse, rows)
    np.testing.assert_allclose(leverage_scores(rows, ridge=3.7), expected, atol=1e-12)
    values = np.linalg.svd(rows, compute_uv=False) ** 2
    total = leverage_scores(rows, ridge=3.7).sum()
    assert total == pytest.approx(np.sum(values / (values + 3.7)), abs=1e-10)


def test_rtol_leaves_out_small_directions():
    basis, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((200, 3)))
    rotation, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))
    rows = basis * [1, 1, 1e-3] @ rotation
    assert leverage_scores(rows).sum() == pytest.approx(3)
    assert leverage_scores(rows, rtol=1e-2).sum() == pytest.approx(2)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_does_not_depend_on_blocks_order_or_library(kind, dtype):
    torch = pytest.importorskip("torch")
    rows = degenerate(kind).astype(dtype)
    whole = leverage_scores(rows, double=True)
    order = np.random.default_rng(7).permutation(len(rows))
    for cuts in ([], [2, 5], [0, 1, 2, 3, 4, 5]):
        split = leverage_scores(in_blocks(rows, cuts), double=True)
        shuffled = leverage_scores(in_blocks(rows, cuts, order), double=True)
        np.testing.assert_allclose(split, whole, atol=1e-10)
        np.testing.assert_allclose(shuffled, whole[order], atol=1e-10)
    np.testing.assert_allclose(leverage_scores(torch.asarray(rows), double=True), whole, atol=1e-10)


def test_pools_without_rows_or_columns_have_no_leverage():
    assert leverage_scores(np.empty((0, 3))).tolist() == []
    assert leverage_scores(np.zeros((4, 3))).tolist() == [0, 0, 0, 0]
    assert leverage_scores(np.zeros((4, 0))).tolist() == [0, 0, 0, 0]


def test_takes_little_memory_beside_the_rows():
    rows = np.random.default_rng(0).standard_normal((400_000, 32), dtype=np.float32)
    tracemalloc.start()
    leverage_scores(rows)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows.nbytes > 50e6
    assert peak < 30e6  # the scores themselves, a copy of them, and pieces of 2 MB


def bias_too(rows):
    features = rows["features"]
    return np.concatenate([features, np.ones((len(features), 1))], axis=1)


def test_whitening_makes_the_columns_orthonormal():
    rows = degenerate("deficient")
    basis = whiten(in_blocks(rows, [50, 200]), bias_too)
    product = bias_too({"features": rows}) @ basis.transform
    assert basis.rank == 6
    np.testing.assert_allclose(product.T @ product, np.eye(6), atol=1e-12)


@pytest.mark.parametrize("small", [1.0, 1e-2, 3e-4, 1e-5])
def test_independent_columns_are_whitened_whatever_way_their_condition_asks_for(small):
    rows = np.random.default_rng(0).normal(size=(400, 6))
    rows[:, 5] = rows[:, 4] + small * rows[:, 5]  # by Cholesky, eigenvectors and QR in turn
    basis = whiten(LocalShards.of(features=rows), read_features)
    product = rows @ basis.transform
    assert basis.rank == 6
    np.testing.assert_allclose(product.T @ product, np.eye(6), atol=1e-9)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("kind", KINDS)
def test_whitening_where_the_rows_are_is_that_of_the_host(kind, device):
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    rows = degenerate(kind)
    shards = LocalShards.of(features=torch.as_tensor(rows, device=device))
    place = torch.empty(0, dtype=torch.float64, device=device)
    there = whiten(shards, read_features, placement=place)
    here = whiten(LocalShards.of(features=rows), read_features)
    assert torch.is_tensor(there.transform) and there.transform.device == place.device
    assert there.rank == here.rank and there.fits_float32 and here.fits_float32
    np.testing.assert_allclose(there.amplification, here.amplification, rtol=1e-6)
    expected = leverage.compute_leverage(shards, read_features, here, double=True)
    found = leverage.compute_leverage(shards, read_features, there, double=True)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_triangle_is_inverted_alike_as_array_and_tensor():
    torch = pytest.importorskip("torch")
    factor = np.linalg.cholesky(np.cov(np.random.default_rng(4).normal(size=(5, 40))))
    found = leverage.invert_triangle(torch.as_tensor(factor)).numpy()
    np.testing.assert_allclose(found @ factor, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(found, leverage.invert_triangle(factor), rtol=1e-12, atol=1e-12)


def test_principal_directions_come_in_the_order_of_their_singular_values():
    rows = degenerate("full")
    transform = whiten(LocalShards.of(features=rows), read_features, principal=True).transform
    norms = np.linalg.norm(rows, axis=0)
    expected = np.linalg.svd(rows / norms, compute_uv=False)
    found = 1 / np.linalg.norm(transform * norms[:, None], axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_the_quick_whitening_is_taken_only_where_no_eigenvalue_is_near_the_floor():
    gram = np.array([[1.0, 0.9], [0.9, 1.0]])  # eigenvalues 0.1 and 1.9
    assert leverage._whiten_by_cholesky(leverage.MatrixSum(gram, 1e-7), (0.1 / 1.9) ** 0.5) is None
    basis = leverage._whiten_by_cholesky(leverage.MatrixSum(gram, 1e-7), 0.1)
    np.testing.assert_allclose(basis.transform.T @ gram @ basis.transform, np.eye(2), atol=1e-14)
    slow = leverage._build_whitening(*_spectrum(gram), np.ones(2), 1e-6, 0.0)
    assert basis.amplification == pytest.approx(slow.amplification)
    assert leverage._whiten_by_cholesky(leverage.MatrixSum(np.ones((2, 2)), 1e-7), 0.0) is None


def _spectrum(gram):
    values, vectors = np.linalg.eigh(gram)
    return np.sqrt(values), vectors


def test_one_of_several_models_is_read():
    first, second = degenerate("full"), degenerate("zero rows")[:, :4]
    shards = LocalShards.of(features=[first, second])
    basis = whiten(shards, partial(read_features, model=1))
    assert basis.transform.shape == (4, 4)
    with pytest.raises(BadInput, match="features holds 2 models"):
        leverage_scores(shards)


def test_the_wrong_input_is_refused():
    rows = degenerate("full")
    with pytest.raises(BadInput, match="ridge must be zero or a positive number; got -1"):
        leverage_scores(rows, ridge=-1)
    with pytest.raises(BadInput, match=r"rtol must be in \[0, 1\); got 1"):
        leverage_scores(rows, rtol=1)
    with pytest.raises(BadInput, match="A must have two axes"):
        leverage_scores(rows[0])
    rows[23, 1] = np.nan
    with pytest.raises(BadInput, match="the row of item 23 holds NaN"):
        leverage_scores(rows.astype(np.float32))
