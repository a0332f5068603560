"""Means and deviations over unknown labels, against going through all labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.arrays import to_numpy
from labelwise.errors import BadInput
from labelwise.kernels.sparse.label_gradients import LabelLaw, label_gradients, uses_member_losses
from tests.kernels.sparse_twin import (
    last_layer_vectors,
    make_members,
    make_rows,
    member_vectors,
    softmax,
)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_last_layer_means_and_deviations_are_those_over_all_labels(temperature):
    rows = make_rows(30, 6, 4)
    vectors, deviations = label_gradients(rows, LabelLaw(temperature=temperature))
    expected, spread = last_layer_vectors(rows, temperature)
    np.testing.assert_allclose(vectors.dense(), expected, atol=1e-12)
    np.testing.assert_allclose(deviations, spread, rtol=1e-9, atol=1e-12)


def test_the_deviation_of_an_almost_certain_label_keeps_its_digits():
    """Two classes, the second of probability e: 2 sqrt(2) e (1 - e)."""
    rows = {"features": np.ones((3, 1)), "logits": np.array([[0.0, -20], [0, -30], [-36, 0]])}
    _, deviations = label_gradients(rows, LabelLaw(temperature=1.0))
    odds = np.exp([-20.0, -30, -36])
    np.testing.assert_allclose(deviations, 2 * 2**0.5 * odds / (1 + odds) ** 2, rtol=1e-12)


def test_labels_from_the_models_own_softmax_have_no_mean_gradient():
    vectors, deviations = label_gradients(make_rows(30, 6, 4), LabelLaw(temperature=1.0))
    assert np.abs(vectors.dense()).max() < 1e-12
    assert deviations.min() > 0.01


def test_probabilities_give_the_same_as_logits():
    rows = make_rows(30, 6, 4)
    given_probabilities = {"features": rows["features"], "probabilities": softmax(rows["logits"])}
    law = LabelLaw(temperature=1.7)
    for left, right in zip(
        label_gradients(rows, law), label_gradients(given_probabilities, law), strict=True
    ):
        left, right = (x if isinstance(x, np.ndarray) else x.dense() for x in (left, right))
        np.testing.assert_allclose(left, right, atol=1e-12)


def test_smoothed_labels_lie_between_the_prediction_and_even_odds():
    rows = make_rows(30, 6, 4)
    vectors, _ = label_gradients(rows, LabelLaw("label_smoothing", rho=0.2))
    np.testing.assert_allclose(vectors.a, 0.2 * (softmax(rows["logits"]) - 0.25), atol=1e-12)


@pytest.mark.parametrize(
    ("law", "largest"), [(LabelLaw(temperature=1.1), 0.6), (LabelLaw("label_smoothing"), 0.9999)]
)
def test_close_to_temperature_one_a_confident_item_has_a_small_mean(law, largest):
    likeliest = np.array([0.3, 0.6, 0.9, 0.99, 0.9999])
    probabilities = np.stack([likeliest, *3 * [(1 - likeliest) / 3]], axis=1)
    rows = {"features": np.ones((5, 1)), "probabilities": probabilities}
    vectors, _ = label_gradients(rows, law)
    lengths = np.linalg.norm(vectors.dense(), axis=1)
    assert likeliest[np.argmax(lengths)] == largest
    assert (lengths[-1] < lengths[1] / 10) == (law.kind == "calibrated")


def test_member_losses_are_those_over_all_labels():
    rows = make_members(30, 7, 3)
    vectors, deviations = label_gradients(rows, LabelLaw())
    expected, spread = member_vectors(rows)
    np.testing.assert_allclose(vectors.dense(), expected, atol=1e-12)
    np.testing.assert_allclose(deviations, spread, rtol=1e-12)
    np.testing.assert_allclose(vectors.dense().sum(axis=1), 0, atol=1e-12)


def test_a_loss_that_all_members_share_drops_out():
    """Halved probabilities add log 2 to all losses and halve the law, nothing else."""
    rows = make_members(10, 7, 3)
    vectors, deviations = label_gradients(rows, LabelLaw())
    halved = {"member_probabilities": rows["member_probabilities"] / 2}
    other, other_deviations = label_gradients(halved, LabelLaw())
    np.testing.assert_allclose(other.dense(), vectors.dense() / 2, atol=1e-14)
    assert other_deviations.shape == deviations.shape


def test_a_probability_of_zero_is_a_large_loss_and_not_infinite():
    members = np.array([[[1.0, 0.0], [0.5, 0.5]]])
    vectors, deviations = label_gradients({"member_probabilities": members}, LabelLaw())
    assert np.isfinite(vectors.dense()).all()
    assert np.isfinite(deviations).all()


@pytest.mark.parametrize("make", [make_rows, make_members])
def test_torch_gives_the_same(make):
    torch = pytest.importorskip("torch")
    rows = make(20, 5, 3)
    there = {name: torch.from_numpy(array) for name, array in rows.items()}
    vectors, deviations = label_gradients(rows, LabelLaw(temperature=2.0))
    other, other_deviations = label_gradients(there, LabelLaw(temperature=2.0))
    np.testing.assert_allclose(to_numpy(other.dense()), vectors.dense(), atol=1e-14)
    np.testing.assert_allclose(to_numpy(other_deviations), deviations, rtol=1e-13)


def test_vectors_keep_the_precision_of_the_features():
    rows = {name: array.astype(np.float32) for name, array in make_rows(10, 4, 3).items()}
    vectors, deviations = label_gradients(rows, LabelLaw(temperature=1.001))
    assert vectors.a.dtype == vectors.h.dtype == np.float32
    assert deviations.dtype == np.float64
    exact, _ = last_layer_vectors({k: v.astype(float) for k, v in rows.items()}, 1.001)
    np.testing.assert_allclose(vectors.dense(), exact, rtol=1e-5, atol=1e-12)


def test_last_layer_factors_come_before_members():
    rows = {**make_rows(5, 3, 2), **make_members(5, 3, 2)}
    assert not uses_member_losses(rows)
    assert uses_member_losses({name: rows[name] for name in ("features", "member_probabilities")})


@given(st.integers(1, 4), st.floats(0.05, 20), st.integers(0, 50))
def test_degenerate_predictions_stay_finite(classes, temperature, seed):
    generator = np.random.default_rng(seed)
    logits = 300 * generator.normal(size=(6, classes))
    rows = {"features": np.zeros((6, 2)), "logits": logits}
    vectors, deviations = label_gradients(rows, LabelLaw(temperature=temperature))
    assert np.isfinite(vectors.a).all()
    assert not deviations.any()
    np.testing.assert_allclose(vectors.a.sum(axis=1), 0, atol=1e-12)


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (LabelLaw("other"), "label_law must be one of"),
        (LabelLaw(temperature=0.0), "temperature must be a number above 0"),
        (LabelLaw(temperature=float("nan")), "temperature must be a number above 0"),
        (LabelLaw("label_smoothing", rho=1.5), "rho must be from 0 to 1"),
    ],
)
def test_laws_that_make_no_sense_are_refused(law, message):
    with pytest.raises(BadInput, match=message):
        law.check()
