"""Features of any size, and the power of two that they are read in."""

import re

import numpy as np
import pytest
import torch

from labelwise.errors import BadInput
from labelwise.kernels.scaling import (
    MAX_SCALE_EXPONENT,
    ORDINARY_EXPONENT,
    apply_scale,
    binary_exponent,
    find_scale,
    scale_for_exponent,
    scale_near_one,
)
from tests.kernels.sparse_twin import shards_of


def unit(features, square, blocks=1):
    return find_scale(shards_of({"features": features}, blocks), square)


def test_features_of_ordinary_size_are_read_as_they_are():
    features = np.array([[3.0, -2.0], [0.5, 1e-20]])
    assert unit(features, 10.0) == 1.0
    assert unit(features, 1e-30) == 1.0  # rows that are small on average, with a few that are not
    assert apply_scale(features, 1.0) is features


@pytest.mark.parametrize("size", [1e100, 1e-100, 1e20, 1e-20])
@pytest.mark.parametrize("blocks", [1, 5])
def test_others_are_brought_to_about_one_without_rounding(size, blocks):
    features = np.array([[3.0, -7.0], [0.5, 1.0], [1.0, 2.0]]) * size
    power = unit(features, size**2, blocks)
    moved = apply_scale(features, power)
    assert 0.5 <= np.abs(moved).max() < 1
    np.testing.assert_array_equal(moved / power, features)


@pytest.mark.parametrize("library", [np, torch])
def test_float32_is_read_in_float64(library):
    features = library.asarray(np.array([[1e-24, -3e-24]], dtype=np.float32))
    power = unit(features, 1e-47)
    moved = apply_scale(features, power)
    assert moved.dtype == library.float64
    np.testing.assert_array_equal(np.asarray(moved) / power, np.asarray(features).astype(float))


@pytest.mark.parametrize("square", [0.0, np.nan])
def test_zeros_and_what_is_no_number_are_left_alone(square):
    assert unit(np.array([[0.0], [square]]), square) == 1.0


@pytest.mark.parametrize("size", [1e160, -1e160, 1e-160])
def test_features_whose_squares_are_no_numbers_are_refused(size):
    with pytest.raises(BadInput, match=f"features are up to {re.escape(f'{abs(size):.3g}')}, and"):
        unit(np.array([[size], [size / 8]]), np.inf if abs(size) > 1 else 0.0)


def test_numbers_that_cannot_be_brought_to_one_are_brought_as_near_as_can_be():
    assert scale_near_one(5e-324) == 2.0**1000
    assert scale_near_one(2.0**-51) == 2.0**50
    assert scale_near_one(3.0) == scale_near_one(0.0) == scale_near_one(np.inf) == 1.0


@pytest.mark.parametrize("size", [4, 8])
def test_the_unit_brings_a_power_to_one_as_far_as_numbers_of_its_size_go(size):
    for power in range(-1073, 1025):
        unit = scale_for_exponent(power, size)
        if abs(power) <= ORDINARY_EXPONENT:
            assert unit == 1.0
        elif abs(power) <= MAX_SCALE_EXPONENT[size]:
            assert unit == 2.0**-power
        else:
            assert unit == 2.0 ** (
                -MAX_SCALE_EXPONENT[size] if power > 0 else MAX_SCALE_EXPONENT[size]
            )


@pytest.mark.parametrize(
    ("number", "power"),
    [(0.0, 0), (np.inf, 0), (np.nan, 0), (1.0, 1), (0.75, 0), (8.0, 4), (9.0, 4)],
)
def test_the_power_is_the_smallest_above(number, power):
    assert binary_exponent(number) == power
    assert not 0 < number < np.inf or 2.0 ** (power - 1) <= number < 2.0**power
