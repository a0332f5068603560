"""What counts as a whole number, and what is said of the rest."""

import re

import numpy as np
import pytest

import labelwise
from labelwise.errors import BadInput
from labelwise.kernels.checks import check_whole
from tests.conftest import make_features, make_probabilities


@pytest.mark.parametrize("value", [3, 4, np.int64(3), np.uint8(200)])
def test_whole_numbers_from_the_least_on_are_let_through(value):
    check_whole("rounds", value, 3)


@pytest.mark.parametrize("value", [2, -1, 3.0, 3.5, True, None, "3", np.float64(4), np.bool_(True)])
def test_anything_else_is_refused_by_name_and_value(value):
    message = f"rounds must be a whole number, 3 or more; got {value!r}"
    with pytest.raises(BadInput, match=re.escape(message)):
        check_whole("rounds", value, 3)


@pytest.mark.parametrize(
    ("strategy", "option"),
    [
        ("ally", "clusters"),
        ("ally", "rounds"),
        ("ally", "candidates"),
        ("herding", "references"),
        ("kmeans", "rounds"),
        ("sparse_greedy", "debias_steps"),
        ("sparse_iht", "debias_steps"),
        ("sparse_iht", "iterations"),
        ("typiclust", "clusters"),
        ("typiclust", "neighbours"),
    ],
)
@pytest.mark.parametrize("value", [2.5, True])
def test_options_that_count_something_take_whole_numbers_only(strategy, option, value):
    rows = {"features": make_features(30, 3), "probabilities": make_probabilities(30, 3)}
    rows["duals"] = np.ones(30)
    needed = {name: rows[name] for name in labelwise.strategies()[strategy].needs if name in rows}
    if strategy.startswith("sparse"):
        needed["probabilities"] = rows["probabilities"]
    with pytest.raises(BadInput, match=f"{option} must be a whole number"):
        labelwise.select(strategy, 5, **needed, **{option: value})
