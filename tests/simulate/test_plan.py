"""The plan of a simulation: what follows from what is given, and what is refused."""

import numpy as np
import pytest

from labelwise.errors import BadInput, UnknownName
from labelwise.rounds.default_strategies import BASELINE, DEFAULT
from labelwise.simulate import make_simulation_plan
from labelwise.simulate.own_data import check_own_data
from tests.simulate.digits import DATA, DIGITS, KINDS


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, (10, 10)),  # a 22nd of 240, since 2 per class would be 20
        ({"budget": 110}, (11, 10)),
        ({"budget": 100, "rounds": 3}, (33, 3)),
        ({"budget": 100, "batch": 20}, (20, 5)),
        ({"batch": 7, "rounds": 2}, (7, 2)),
    ],
)
def test_a_plan_follows_from_what_is_given(asked, wanted):
    plan = make_simulation_plan(DATA, **asked)
    assert (plan.batch, plan.rounds + 1) == wanted
    assert (plan.test, plan.pool) == (60, 240)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"budget": 15, "batch": 20}, "budget of 15 has no room for a batch of 20"),
        ({"budget": 50, "batch": 5, "rounds": 3}, "give two of"),
        ({"batch": 30}, "buys 300 labels but only 240 items are left after 60 test items"),
        ({"test_share": 1.0}, "test_share"),
        ({"rounds": 0}, "rounds must be 1 or more; got 0"),
        ({"weights": "all"}, "weights must be one of"),
        ({"weights": "sum"}, "weights must be none or mean"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(asked, message):
    with pytest.raises(BadInput, match=message):
        make_simulation_plan(DATA, **asked)


def test_unknown_names_are_refused():
    with pytest.raises(UnknownName, match="margn"):
        make_simulation_plan(DATA, strategies=["margn"])


def test_the_default_is_compared_with_random_and_others():
    names = [entrant.strategy for entrant in make_simulation_plan(DATA).entrants]
    assert names[:2] == [BASELINE, DEFAULT[False]] and len(names) >= 4


def test_other_data_or_settings_are_another_experiment():
    other = check_own_data(DIGITS[:300], np.roll(KINDS[:300], 1), name="digits")
    plans = [
        make_simulation_plan(DATA),
        make_simulation_plan(other),
        make_simulation_plan(DATA, batch=7, rounds=2),
    ]
    assert len({plan.scale for plan in plans}) == 3
    assert (
        make_simulation_plan(DATA, rounds=5).scale == plans[0].scale
    )  # more batches continue a run
