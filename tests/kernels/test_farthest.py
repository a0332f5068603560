"""Farthest-first in exact blocks against a version that measures everything again."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labelwise
from labelwise.errors import BadInput
from labelwise.kernels.distance import farthest
from labelwise.kernels.distance.embedding import Factored
from labelwise.kernels.distance.farthest import farthest_first, nearest_distances
from labelwise.kernels.loop import block_scores, picking
from labelwise.pool.blocks import Shard
from labelwise.pool.rows import read_features
from tests.conftest import make_features


def slow_farthest_first(rows, k, centres=None):
    """Measure all distances to all centres again at every pick, in float64."""
    rows = rows.astype(np.float64)
    centres = np.empty((0, rows.shape[1])) if centres is None else centres.astype(np.float64)
    picked = []
    for _ in range(k):
        points = np.concatenate([centres, rows[picked]])
        if len(points):
            scores = np.min([((rows - point) ** 2).sum(axis=1) for point in points], axis=0)
        else:
            scores = ((rows - rows.mean(axis=0)) ** 2).sum(axis=1)
        scores[picked] = -1
        picked.append(int(scores.argmax()))
    return picked


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(4))
def test_matches_the_slow_version(dtype, seed):
    rows = make_features(400, 12, seed).astype(dtype)
    rows[50:60] = rows[:10]
    centres = make_features(3, 12, seed + 100).astype(dtype)
    assert farthest_first(rows, 120).tolist() == slow_farthest_first(rows, 120)
    assert farthest_first(rows, 40, centres).tolist() == slow_farthest_first(rows, 40, centres)


@pytest.mark.parametrize("fetch", [0, 1 << 20])  # rows are read together, or one by one
def test_matches_the_slow_version_in_many_small_steps(fetch, monkeypatch):
    for name, value in {
        "LEAST_ROWS": 8,
        "SAMPLED_ROW": 5,
    }.items():
        monkeypatch.setattr(picking, name, value)
    for name, value in {
        "ROWS_AT_ONCE": 16,
        "FIRST_PICKS": 2,
        "READ_COST": 1 << 10,
        "FETCH_COST": fetch,
    }.items():
        monkeypatch.setattr(block_scores, name, value)
    monkeypatch.setattr(block_scores, "HOT_ROWS", 4)
    rows = make_features(300, 6, 1).astype(np.float32)
    assert farthest_first(rows, 100).tolist() == slow_farthest_first(rows, 100)


def test_ties_go_to_the_smaller_row_number():
    grid = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), axis=-1).reshape(-1, 2)
    assert farthest_first(grid, 36).tolist() == slow_farthest_first(grid, 36)


@given(
    st.integers(1, 40),
    st.integers(1, 5),
    st.integers(0, 10_000),
    st.sampled_from([np.float32, np.float64]),
)
def test_matches_the_slow_version_on_coarse_rows(n, d, seed, dtype):
    generator = np.random.default_rng(seed)
    rows = generator.integers(-2, 3, size=(n, d)).astype(dtype)  # ties, copies and zero rows
    assert farthest_first(rows, n).tolist() == slow_farthest_first(rows, n)


def test_rows_far_from_the_origin_are_told_apart():
    rows = (make_features(300, 4, 3) + 3000).astype(np.float32)
    assert farthest_first(rows, 60).tolist() == slow_farthest_first(rows, 60)


@pytest.mark.parametrize("labelled", [None, [1, 2, 3]])
@pytest.mark.parametrize("spread", [0.1, 0.01, 0.001])
def test_rows_close_together_and_far_away_need_few_exact_measurements(
    spread, labelled, monkeypatch
):
    rows = (1 + spread * np.random.default_rng(0).normal(size=(900, 64))).astype(np.float32)
    centres = None if labelled is None else rows[labelled]
    measured, measure = [], farthest._pair_distances
    monkeypatch.setattr(
        farthest, "_pair_distances", lambda a, b: measured.append(len(a)) or measure(a, b)
    )
    found = farthest_first(rows, 50, centres)
    assert found.tolist() == slow_farthest_first(rows, 50, centres)
    assert sum(measured) < 200


def test_factored_rows_are_measured_as_if_multiplied_out():
    generator = np.random.default_rng(0)
    rows = Factored(generator.normal(size=(200, 3)), generator.normal(size=(200, 5)))
    centres = Factored(rows.a[:4], rows.h[:4])
    assert farthest_first(rows, 50).tolist() == slow_farthest_first(rows.dense(), 50)
    expected = slow_farthest_first(rows.dense(), 50, centres.dense())
    assert farthest_first(rows, 50, centres).tolist() == expected


def test_nearest_distances_in_chunks_match_all_at_once(monkeypatch):
    monkeypatch.setattr("labelwise.kernels.distance.embedding.CHUNK", 100)
    rows, points = make_features(300, 5), make_features(7, 5, 9)
    expected = ((rows[:, None] - points[None]) ** 2).sum(axis=2).min(axis=1)
    found = nearest_distances(rows, (rows**2).sum(axis=1), points)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_too_many_is_an_error():
    with pytest.raises(BadInput, match="k must be from 0 to 3, the number of rows; got 4"):
        farthest_first(np.ones((3, 2)), 4)


def test_one_axis_is_an_error():
    with pytest.raises(BadInput, match=r"two axes or Factored; got shape \(3,\)"):
        farthest_first(np.ones(3), 1)


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinite")])
def test_a_broken_row_is_refused(value, word):
    rows = make_features(20, 3)
    rows[7, 1] = value
    with pytest.raises(BadInput, match=f"scored item 7 as {word}"):
        farthest_first(rows, 3)


@pytest.mark.parametrize("seed", range(4))
def test_the_first_pick_is_farthest_from_the_mean_wherever_that_is(seed):
    rows = make_features(200, 5, seed)
    factored = Factored(make_features(200, 3, seed + 50), rows)
    for found, plain in [(rows + 5, rows), (factored, factored.dense())]:
        far = np.argmax(((plain - plain.mean(axis=0)) ** 2).sum(axis=1))
        assert farthest_first(found, 1).tolist() == [far]


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_rows_are_added_up_in_float64_whatever_they_are_in(kind, library):
    torch = pytest.importorskip("torch")
    rows = (make_features(40_000, 110, 1) + 3000).astype(kind)  # so many that they are cut
    given = rows if library == "numpy" else torch.asarray(rows)
    found = farthest.sum_block(Shard(np.arange(len(rows)), {"features": given}), read_features)
    exactly = [math.fsum(column) for column in rows.T.tolist()]
    np.testing.assert_allclose(found, exactly, rtol=1e-13)


@pytest.mark.parametrize("kind", ["int64", "uint8", "bool", "float16", "bfloat16"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_numbers_of_any_kind_are_computed_with(kind, library):
    whole = np.random.default_rng(0).integers(0, 2, size=(60, 12))
    if library == "numpy":
        bfloat16 = kind == "bfloat16"
        rows = whole.astype(pytest.importorskip("ml_dtypes").bfloat16 if bfloat16 else kind)
    else:
        torch = pytest.importorskip("torch")
        rows = torch.asarray(whole).to(getattr(torch, kind))
    expected = slow_farthest_first(whole, 20)
    assert farthest_first(rows, 20).tolist() == expected
    assert farthest_first(Factored(rows, rows), 5).tolist() == slow_farthest_first(
        Factored(whole, whole).dense(), 5
    )
    assert farthest_first(rows, 5, whole[:2]).tolist() == slow_farthest_first(whole, 5, whole[:2])


def test_tensors_with_a_gradient_are_rows_too():
    torch = pytest.importorskip("torch")
    rows = make_features(50, 3, 0)
    found = farthest_first(torch.tensor(rows, requires_grad=True), 10)
    assert found.tolist() == slow_farthest_first(rows, 10)


@pytest.mark.parametrize(
    ("centres", "message"),
    [
        (np.ones((2, 4)), r"centers must have the columns of the rows, \[3\]; got \[4\]"),
        (np.ones(3), "centers must be an array with two axes or Factored; got shape"),
        (Factored(np.ones((2, 3)), np.ones((2, 3))), r"columns of the rows, \[3\]; got \[3, 3\]"),
    ],
)
def test_centres_that_are_not_like_the_rows_are_refused(centres, message):
    with pytest.raises(BadInput, match=message):
        farthest_first(make_features(10, 3), 2, centres)


@pytest.mark.parametrize("labelled", [None, [3, 50]])
@pytest.mark.parametrize("far", [0.0, 300.0])
@pytest.mark.parametrize(
    ("kind", "power"),
    [(np.float16, 3), (np.float32, -100), (np.float32, 90), (np.float64, -600), (np.float64, 600)],
)
def test_picks_and_scores_do_not_depend_on_the_scale(kind, power, far, labelled):
    rows = (make_features(300, 4) + far).astype(kind)
    scaled = np.ldexp(rows, power)  # nothing is rounded
    near = labelwise.select("k_center", 40, features=rows, labelled=labelled)
    overflows = power == 600  # the squares of the distances leave float64
    with pytest.warns(labelwise.LabelwiseWarning) if overflows else nullcontext():
        extreme = labelwise.select("k_center", 40, features=scaled, labelled=labelled)
    assert near.ids.tolist() == extreme.ids.tolist()
    if overflows:
        assert extreme.scores is None
    else:
        np.testing.assert_allclose(extreme.scores, np.ldexp(near.scores, 2 * power), rtol=1e-9)
    if labelled is None:
        assert near.ids.tolist() == slow_farthest_first(rows, 40)
