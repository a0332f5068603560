"""Lewis weights against their defining equation, another solver and known answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize

from labelwise.errors import BadInput, NotConverged
from labelwise.kernels.linear.leverage import leverage_scores
from labelwise.kernels.linear.lewis import (
    WEIGHTS,
    LewisSettings,
    iterate_lewis_weights,
    lewis_weights,
    store_lewis_weights,
)
from labelwise.pool.blocks import LocalShards, Shard, as_shards, drop_state

POWERS = [0.5, 1, 1.5, 2, 3, 4, 6, 12]


def make(kind, n=400, d=20):
    generator = np.random.default_rng(3)
    rows = generator.standard_normal((n, d))
    if kind == "cauchy":
        return generator.standard_cauchy((n, d))
    if kind == "outliers":
        rows[:5] *= 1e4
    if kind == "deficient":
        return rows[:, :7] @ generator.standard_normal((7, d))
    if kind == "duplicated":
        return np.repeat(rows[: n // 4], 4, axis=0)
    if kind == "zero rows":
        rows[::7] = 0
    if kind == "badly scaled columns":
        return rows * 10.0 ** generator.uniform(-8, 8, d)
    if kind == "one row per direction":
        return np.eye(d)[generator.integers(0, d, n)]
    return rows


KINDS = [
    "gaussian",
    "cauchy",
    "outliers",
    "deficient",
    "duplicated",
    "zero rows",
    "badly scaled columns",
    "one row per direction",
]


def right_hand_side(rows, weights, p):
    """``(a^T (A^T W^(1-2/p) A)^+ a)^(p/2)`` over rows that are not zero.

    The rows are written in an orthonormal basis first, which has the same weights.
    """
    norms = np.linalg.norm(rows, axis=0)
    basis, values, _ = np.linalg.svd(rows / np.where(norms > 0, norms, 1), full_matrices=False)
    basis = basis[:, values > 1e-12 * values[0]]
    factor = np.linalg.qr(weights[:, None] ** (0.5 - 1 / p) * basis, mode="r")
    return np.sum(np.linalg.solve(factor.T, basis.T) ** 2, axis=0) ** (p / 2)


def residual(rows, weights, p):
    some = rows.any(axis=1)
    assert (weights[~some] == 0).all() and (weights[some] > 0).all()
    return np.abs(np.log(right_hand_side(rows[some], weights[some], p) / weights[some])).max()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", POWERS)
def test_solves_the_defining_equation_and_adds_up_to_the_rank(kind, p):
    rows = make(kind)
    found = iterate_lewis_weights(rows, LewisSettings(p=p, tol=1e-9))
    assert residual(rows, found.weights, p) < 1e-8
    norms = np.linalg.norm(rows, axis=0)
    assert found.rank == np.linalg.matrix_rank(rows / norms)
    assert found.weights.sum() == pytest.approx(found.rank, abs=1e-9)
    assert found.weights.max() <= 1
    assert found.iterations <= 90 and found.residual <= 1e-9


@pytest.mark.parametrize("p", [0.1, 20.0, 50.0])
def test_extreme_powers_converge(p):
    rows = make("cauchy", 200, 6)
    found = iterate_lewis_weights(rows, LewisSettings(p=p, tol=1e-9))
    assert residual(rows, found.weights, p) < 1e-8


def widest_ellipsoid(rows, p):
    """Weights from the M that maximises ``log det M - (2d/p) log sum (a^T M a)^(p/2)``.

    At a maximum ``M^-1`` is in proportion to ``A^T W^(1-2/p) A`` for ``w = (a^T M a)^(p/2)``.
    """
    d = rows.shape[1]
    lower = np.tril_indices(d)

    def value(entries):
        root = np.zeros((d, d))
        root[lower] = entries
        lengths = np.sum((rows @ root) ** 2, axis=1)
        log_det = 2 * np.log(np.abs(np.diagonal(root))).sum()
        return 2 * d / p * np.log(np.sum(lengths ** (p / 2))) - log_det

    start = np.linalg.cholesky(np.linalg.inv(rows.T @ rows))[lower]
    best = optimize.minimize(value, start, method="BFGS", options={"gtol": 1e-9}, tol=1e-14)
    root = np.zeros((d, d))
    root[lower] = best.x
    weights = np.sum((rows @ root) ** 2, axis=1) ** (p / 2)
    return weights * d / weights.sum()


@pytest.mark.parametrize("p", [0.5, 1, 3, 4, 8])
def test_matches_another_solver_on_a_small_matrix(p):
    rows = np.random.default_rng(8).standard_normal((15, 3)) * np.linspace(0.3, 2, 15)[:, None]
    np.testing.assert_allclose(
        lewis_weights(rows, p, tol=1e-10), widest_ellipsoid(rows, p), rtol=2e-5
    )


@pytest.mark.parametrize("p", POWERS)
def test_does_not_change_under_a_change_of_columns_or_scale(p):
    rows = make("cauchy", 150, 6)
    mixed = 1e3 * rows @ np.random.default_rng(0).standard_normal((6, 6))
    expected = lewis_weights(rows, p, tol=1e-10)
    np.testing.assert_allclose(lewis_weights(mixed, p, tol=1e-10), expected, rtol=1e-8)


@pytest.mark.parametrize("p", POWERS)
def test_copies_share_the_weight_of_their_row(p):
    rows = make("cauchy", 100, 5)
    stacked = lewis_weights(np.concatenate([rows] * 3), p, tol=1e-10).reshape(3, -1)
    expected = lewis_weights(rows, p, tol=1e-10) / 3
    np.testing.assert_allclose(stacked, [expected] * 3, rtol=1e-8)


@pytest.mark.parametrize("p", POWERS)
def test_independent_rows_have_weight_one(p):
    assert lewis_weights(np.eye(5), p).tolist() == [1] * 5
    assert lewis_weights(make("gaussian")[:8], p).tolist() == [1] * 8
    with_zeros = np.concatenate([np.eye(3), np.zeros((4, 3))])
    np.testing.assert_allclose(lewis_weights(with_zeros, p), [1, 1, 1, 0, 0, 0, 0], atol=1e-6)


def test_two_is_the_leverage_score():
    rows = make("cauchy")
    np.testing.assert_array_equal(lewis_weights(rows, 2), leverage_scores(rows))


@pytest.mark.parametrize("p", [1.999, 2.001])
def test_the_iteration_goes_over_into_the_leverage_score(p):
    rows = make("gaussian")
    np.testing.assert_allclose(lewis_weights(rows, p), leverage_scores(rows), rtol=2e-3)


def undamped(rows, p, rounds=40):
    """The iteration of Cohen and Peng, ``w <- right-hand side``; the residuals on the way."""
    weights, residuals = np.full(len(rows), rows.shape[1] / len(rows)), []
    for _ in range(rounds):
        after = right_hand_side(rows, weights, p)
        residuals.append(np.abs(np.log(after / weights)).max())
        weights = after
        if residuals[-1] > 1e2:
            break
    return residuals


def test_the_undamped_iteration_fails_where_ours_converges():
    rows = make("cauchy", 200, 6)
    assert undamped(rows, 3)[-1] < 1e-6
    assert undamped(rows, 4)[-1] > 1
    assert undamped(rows, 6)[-1] > 1e2
    for p in (4, 6):
        assert residual(rows, lewis_weights(rows, p), p) < 1e-6


@pytest.mark.parametrize(("p", "damping"), [(4, 1.0), (6, 1.0), (12, 1.0), (0.5, 1.9)])
def test_a_bad_damping_is_mended_on_the_way(p, damping):
    rows = make("cauchy", 200, 6)
    found = iterate_lewis_weights(rows, LewisSettings(p=p, tol=1e-8, damping=damping))
    np.testing.assert_allclose(found.weights, lewis_weights(rows, p, tol=1e-10), rtol=1e-6)


@pytest.mark.parametrize("p", [1, 1.5, 3, 6])
@pytest.mark.parametrize("kind", ["gaussian", "cauchy", "zero rows"])
def test_single_precision_rows_give_the_weights_of_their_values(kind, p):
    rows = make(kind).astype(np.float32)
    expected = lewis_weights(rows.astype(np.float64), p, tol=1e-10)
    np.testing.assert_allclose(lewis_weights(rows, p), expected, rtol=5e-6)
    precise = iterate_lewis_weights(rows, LewisSettings(p=p, tol=1e-10, double=True)).weights
    np.testing.assert_allclose(precise, expected, rtol=1e-8)


def test_single_precision_does_not_stand_in_the_way_of_a_small_tolerance():
    rows = make("cauchy").astype(np.float32)
    found = iterate_lewis_weights(rows, LewisSettings(p=3, tol=1e-11))
    assert residual(rows.astype(np.float64), found.weights, 3) < 1e-10


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("p", [1, 4])
def test_rows_of_very_small_length_keep_their_weight(p, dtype):
    rows = make("gaussian", 60, 4)
    rows[:10] *= 1e-25
    weights = lewis_weights(rows.astype(dtype), p, tol=1e-8)
    rest = lewis_weights(rows[10:].astype(dtype), p, tol=1e-8)
    np.testing.assert_allclose(weights[10:], rest, rtol=1e-6)
    inverse = np.linalg.inv((rows[10:].T * rest ** (1 - 2 / p)) @ rows[10:])
    expected = np.einsum("ij,jk,ik->i", rows[:10], inverse, rows[:10]) ** (p / 2)
    np.testing.assert_allclose(weights[:10], expected, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("p", [1, 3])
def test_does_not_depend_on_blocks_order_or_library(p, dtype):
    torch = pytest.importorskip("torch")
    rows = make("zero rows").astype(dtype)
    how = LewisSettings(p=p, double=True)
    whole = iterate_lewis_weights(rows, how).weights
    order = np.random.default_rng(2).permutation(len(rows))
    for cuts in ([], [5, 100], [0, 1, 2, 3, 4, 5]):
        blocks = [Shard(part, {"features": rows[part]}) for part in np.split(order, cuts)]
        split = iterate_lewis_weights(LocalShards(blocks), how).weights
        np.testing.assert_allclose(split, whole[order], rtol=1e-9)
        assert all(not block.state for block in blocks)
    np.testing.assert_allclose(
        iterate_lewis_weights(torch.asarray(rows), how).weights, whole, rtol=1e-9
    )


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("p", [0.5, 1, 3, 6])
@pytest.mark.parametrize("kind", ["zero rows", "deficient", "outliers"])
def test_rounds_where_the_rows_are_give_the_weights_of_the_host(kind, p, dtype, device):
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    rows, how = make(kind).astype(dtype), LewisSettings(p=p, double=True)
    expected = iterate_lewis_weights(rows, how)
    parts = [torch.as_tensor(part, device=device) for part in (rows[:150], rows[150:])]
    shards = as_shards(parts)
    place = torch.empty(0, dtype=torch.float64, device=device)
    found = store_lewis_weights(shards, how, placement=place)
    weights = np.concatenate(shards.map(lambda shard: shard.state[WEIGHTS]))
    np.testing.assert_allclose(weights, expected.weights, rtol=1e-8)
    assert (found.iterations, found.rank) == (expected.iterations, expected.rank)


@given(
    rows=arrays(
        np.float64,
        st.tuples(st.integers(1, 10), st.integers(1, 5)),
        elements=st.integers(-2, 2).map(float),
    ),
    p=st.sampled_from([0.5, 1.0, 2.0, 3.0, 5.0]),
)
def test_solves_the_defining_equation_on_small_whole_numbers(rows, p):
    weights = lewis_weights(rows, p, tol=1e-9)
    assert weights.sum() == pytest.approx(np.linalg.matrix_rank(rows), abs=1e-8)
    if rows.any():
        assert residual(rows, weights, p) < 1e-7


def test_pools_without_rows_have_no_weights():
    assert lewis_weights(np.empty((0, 3)), 1).tolist() == []
    assert lewis_weights(np.zeros((4, 3)), 1).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("p", [1, 2, 3])
def test_weights_can_stay_with_their_blocks_one_number_a_row(p):
    rows = make("cauchy")
    shards = LocalShards.of(features=rows)
    store_lewis_weights(shards, LewisSettings(p=p))
    (state,) = shards.map(lambda shard: shard.state)
    assert list(state) == [WEIGHTS] and state[WEIGHTS].shape == (len(rows),)
    assert residual(rows, state[WEIGHTS], p) < 1e-5
    shards.map(drop_state, WEIGHTS)
    assert not state


def test_too_few_rounds_are_an_error_that_says_how_far_it_came():
    block = Shard(np.arange(400), {"features": make("cauchy")})
    with pytest.raises(NotConverged, match=r"p=12 still change by \S+ after 3 rounds"):
        lewis_weights(LocalShards([block]), 12, max_iterations=3)
    assert not block.state


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": 0}, "p must be a number above 0; got 0"),
        ({"p": np.inf}, "p must be a number above 0; got inf"),
        ({"p": "2"}, "p must be a number above 0; got '2'"),
        ({"p": 1, "tol": 0}, "tol must be a number above 0; got 0"),
        ({"p": 1, "max_iterations": 0}, "max_iterations must be a whole number, 1 or more; got 0"),
        ({"p": 1, "damping": -1}, "damping must be a number above 0; got -1"),
    ],
)
def test_the_wrong_options_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        LewisSettings(**options)
