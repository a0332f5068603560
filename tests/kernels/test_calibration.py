"""Temperature scaling against SciPy's minimisers and known answers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from scipy.special import softmax as scipy_softmax

from labelwise.errors import BadInput
from labelwise.kernels.calibration import COLDEST, HOTTEST, calibrate_temperature, softmax


def make_validation(n, k, seed, overconfidence=1.0):
    """Logits, and labels drawn from the probabilities they should have meant."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.standard_normal((n, k))
    labels = np.array([rng.choice(k, p=row) for row in scipy_softmax(logits, axis=1)])
    return overconfidence * logits, labels


def loss(temperature, logits, labels):
    return -log_softmax(logits / temperature, axis=1)[np.arange(len(labels)), labels].mean()


@pytest.mark.parametrize("seed", range(5))
def test_matches_a_bounded_minimisation(seed):
    logits, labels = make_validation(300, 2 + seed, seed, overconfidence=1 + seed)
    found = calibrate_temperature(logits, labels)
    slow = minimize_scalar(
        loss, (COLDEST, HOTTEST), (COLDEST, HOTTEST), (logits, labels), "bounded"
    )
    assert found == pytest.approx(slow.x, rel=1e-4)
    assert loss(found, logits, labels) <= slow.fun + 1e-12


@pytest.mark.parametrize("factor", [0.3, 2.0, 7.5])
def test_scaled_logits_scale_the_temperature(factor):
    logits, labels = make_validation(400, 5, 0)
    expected = factor * calibrate_temperature(logits, labels)
    assert calibrate_temperature(factor * logits, labels) == pytest.approx(expected, rel=1e-9)


def test_an_honest_model_needs_no_temperature():
    logits, labels = make_validation(20_000, 3, 1)
    assert calibrate_temperature(logits, labels) == pytest.approx(1, abs=0.05)


def test_two_classes_have_a_closed_form():
    # 3 of 4 right at margin 6: the honest margin is log 3
    logits, labels = np.tile([6.0, 0.0], (4, 1)), [0, 0, 0, 1]
    assert calibrate_temperature(logits, labels) == pytest.approx(6 / np.log(3), rel=1e-10)


def test_temperatures_stay_within_their_limits():
    right, wrong = [[9.0, 0.0], [0.0, 9.0]], [1, 0]
    assert calibrate_temperature(np.array(right), [0, 1]) == COLDEST
    assert calibrate_temperature(np.array(right), wrong) == HOTTEST
    assert calibrate_temperature(np.array(right) * 1e300, [0, 1]) == COLDEST


def test_logits_that_say_nothing_leave_the_temperature_alone():
    assert calibrate_temperature(np.full((3, 4), 2.5), [0, 1, 2]) == 1.0


def test_tensors_and_arrays_agree():
    logits, labels = make_validation(200, 4, 2)
    found = calibrate_temperature(torch.asarray(logits), torch.asarray(labels))
    assert found == calibrate_temperature(logits, labels)


@pytest.mark.parametrize(
    ("logits", "labels", "words"),
    [
        (np.zeros(3), [0, 0, 0], "logits must be"),
        (np.zeros((0, 3)), [], "logits must be"),
        (np.zeros((2, 3)), [0], "one label per row"),
        (np.zeros((2, 3)), [[0], [1]], "one label per row"),
        (np.zeros((2, 3)), [0, 3], "from 0 to 2; got 3"),
        (np.zeros((2, 3)), [0, -1], "from 0 to 2; got -1"),
        (np.zeros((2, 3)), [0, 1.5], "from 0 to 2; got 1.5"),
        (np.array([[0.0, 1.0], [np.nan, 0.0]]), [0, 1], "logits of row 1 hold NaN"),
    ],
)
def test_wrong_input_is_refused(logits, labels, words):
    with pytest.raises(BadInput, match=words):
        calibrate_temperature(logits, np.asarray(labels))


@given(st.lists(st.floats(-1e30, 1e30), min_size=2, max_size=6), st.floats(0.05, 20))
def test_softmax_matches_scipy_and_adds_up_to_one(logits, temperature):
    values = np.array(logits)
    with np.errstate(under="ignore"):
        found = softmax(values, temperature)
        np.testing.assert_allclose(found, scipy_softmax(values / temperature), atol=1e-12)
    assert found.sum() == pytest.approx(1)


def test_softmax_keeps_library_and_precision():
    logits = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    found = softmax(torch.asarray(logits), 2.0)
    assert isinstance(found, torch.Tensor)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), softmax(logits, 2.0), rtol=1e-6)
    assert softmax(logits).dtype == np.float32


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_softmax_refuses_a_temperature_that_is_none(temperature):
    with pytest.raises(BadInput, match="temperature must be a positive number"):
        softmax(np.zeros((1, 2)), temperature)
