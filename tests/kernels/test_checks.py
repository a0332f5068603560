"""What counts as a whole number, and what is said of the rest."""

import re

import numpy as np
import pytest

from labelwise.errors import BadInput
from labelwise.kernels.checks import check_integer


@pytest.mark.parametrize("value", [3, 4, np.int64(3), np.uint8(200)])
def test_whole_numbers_from_the_least_on_are_let_through(value):
    check_integer("rounds", value, 3)


@pytest.mark.parametrize("value", [2, -1, 3.0, 3.5, True, None, "3", np.float64(4), np.bool_(True)])
def test_anything_else_is_refused_by_name_and_value(value):
    message = f"rounds must be a whole number, 3 or more; got {value!r}"
    with pytest.raises(BadInput, match=re.escape(message)):
        check_integer("rounds", value, 3)
