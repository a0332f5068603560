"""The plan of a simulation: what follows from what is given, and what is refused."""

import pytest

from labelwise.errors import BadInput, UnknownName
from labelwise.simulate import make_plan
from tests.simulate.digits import DATA


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, (10, 10, 10)),  # a 22nd of 240, since 2 per class would be 20
        ({"budget": 110}, (10, 10, 10)),
        ({"budget": 100, "rounds": 3}, (10, 30, 3)),
        ({"budget": 100, "batch": 20}, (20, 20, 4)),
        ({"batch": 7, "rounds": 2}, (7, 7, 2)),
        ({"start": 5, "budget": 26}, (5, 2, 10)),
    ],
)
def test_a_plan_follows_from_what_is_given(asked, wanted):
    plan = make_plan(DATA, **asked)
    assert (plan.start, plan.batch, plan.rounds) == wanted
    assert (plan.test, plan.pool) == (60, 240)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"budget": 5}, "budget of 5 leaves nothing"),
        ({"budget": 25, "start": 10, "batch": 20}, "no room for a batch of 20"),
        ({"budget": 50, "batch": 5, "rounds": 3}, "give two of"),
        ({"batch": 30}, "buys 330 labels but only 240 items are left after 60 test items"),
        ({"test_share": 1.0}, "test_share"),
        ({"rounds": 0}, "rounds must be 1 or more; got 0"),
        ({"weights": "all"}, "weights must be one of"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(asked, message):
    with pytest.raises(BadInput, match=message):
        make_plan(DATA, **asked)


def test_unknown_names_are_refused():
    with pytest.raises(UnknownName, match="there is no network 'vgg'"):
        make_plan(DATA, network="vgg")
    with pytest.raises(UnknownName, match="margn"):
        make_plan(DATA, strategies=["margn"])
