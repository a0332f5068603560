"""Numbers and weights of users: what passes, and what is refused."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelwise.errors import BadInput
from labelwise.learners.weights import convert_numbers, scale_to_mean_one

MASKED = np.ma.masked_array([1.0, 2.0], [False, True])


@given(
    st.lists(st.floats(0, 1e308, allow_subnormal=False), min_size=1, max_size=9).filter(any),
)
def test_weights_of_any_size_are_divided_by_their_mean(given_weights):
    exact = [Fraction(value) for value in given_weights]
    mean = sum(exact) / len(exact)
    expected = [float(value / mean) for value in exact]
    found = scale_to_mean_one(given_weights, len(exact))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)


def test_usual_weights_are_those_of_a_plain_division_to_the_last_digit():
    values = np.random.default_rng(0).exponential(size=1000) * 37
    np.testing.assert_array_equal(scale_to_mean_one(values, 1000), values / values.mean())


@pytest.mark.parametrize("kind", [">f8", "float16", "int8", "bool"])
def test_numbers_of_any_type_will_do(kind):
    assert scale_to_mean_one(np.array([1, 0, 1, 0]).astype(kind), 4).tolist() == [2, 0, 2, 0]


def test_tensors_and_views_will_do():
    assert scale_to_mean_one(torch.tensor([3.0, 1.0]), 2).tolist() == [1.5, 0.5]
    assert scale_to_mean_one(np.array([3.0, 9.0, 1.0])[::-2], 2).tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", "b"], "weights must be numbers; got <U1"),
        (np.array([1, 2j]), "weights must be numbers; got complex128"),
        (MASKED, "weights hold masked entries; fill them or leave these items out"),
        ([[1.0], [2.0]], r"there are 2 items but weights of shape \(2, 1\)"),
        ([1.0, -1.0], "finite and not negative; item 1 has -1.0"),
        ([np.inf, 1.0], "finite and not negative; item 0 has inf"),
        ([0.0, 0.0], "all weights are zero; give None to weight all items equally"),
    ],
)
def test_other_weights_are_refused(values, message):
    with pytest.raises(BadInput, match=message):
        scale_to_mean_one(values, 2)


def test_what_is_masked_nowhere_is_an_array():
    assert convert_numbers(np.ma.masked_array([1, 2]), "targets").tolist() == [1, 2]
