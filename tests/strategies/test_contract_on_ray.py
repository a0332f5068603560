"""Every strategy gives the picks of one process on Ray too; nothing is listed here."""

import warnings

import numpy as np
import pytest

import labelwise
from labelwise.errors import LabelwiseWarning
from tests.pool.ray_fixtures import two_actors  # noqa: F401
from tests.strategies.test_contract import BUDGET, STRATEGIES, make_inputs

pytestmark = pytest.mark.xdist_group("ray")


def select(strategy, **given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelwiseWarning)
        return labelwise.select(strategy, BUDGET, **given, seed=5)


@pytest.mark.parametrize("labelled", [[], [2, 40, 41]], ids=["fresh", "labelled"])
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES.keys())
def test_the_picks_are_those_of_one_process(actors, strategy, labelled):
    inputs = make_inputs(strategy, dtype=np.float32 if labelled else np.float64)
    expected = select(strategy, **inputs, labelled=labelled)
    found = select(strategy, **inputs, labelled=labelled, on=actors)
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.info.keys() == expected.info.keys()
    for values, others in [(found.weights, expected.weights), (found.scores, expected.scores)]:
        assert (values is None) == (others is None)
        if values is not None:
            np.testing.assert_allclose(values, others, rtol=2e-3, atol=1e-3)
