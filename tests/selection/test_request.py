"""A selection is opened, planned and checked before it is made."""

import numpy as np
import pytest

import labelwise
from labelwise.errors import BadInput, UnknownName
from labelwise.pool.pool import Pool
from labelwise.selection.request import SelectionRequest
from tests.conftest import make_features

STRATEGIES = labelwise.strategies()
FEATURES = make_features(40, 3)


def request(name="k_center", budget=5, **more):
    given = {"features": FEATURES} if more.pop("rows", True) else {}
    return SelectionRequest(
        STRATEGIES[name], budget, Pool(ids=more.pop("ids", None), **given), **more
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"budget": -1}, "budget must be a whole number of items"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"memory": -1.0}, r"memory must be a number of GiB above 0; got -1.0"),
        ({"resume": ""}, "resume must be the name of a folder; got ''"),
        ({"actors": 2}, "actors is 2 but on names no cluster"),
        ({"on": "ray", "resume": "on"}, "resume is for rows on this machine"),
        ({"on": "ray", "device": "cuda"}, "device is 'cuda' but the rows are on a cluster"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused_at_once(wrong, message):
    with pytest.raises(BadInput, match=message):
        request(**wrong)


@pytest.mark.parametrize("more", [{}, {"on": "ray"}, {"rows": False, "ids": np.arange(40)}])
def test_what_a_pool_cannot_give_is_refused_before_anything_is_done(more):
    """Nothing is started for it: neither a cluster nor a pass over the rows."""
    name = "k_center" if more.get("rows", True) else "random"
    assert request(name, 38, labelled=[7, 3], **more).prepare() == 38
    with pytest.raises(BadInput, match="budget is 39 but only 38 unlabelled items are left"):
        request(name, 39, labelled=[7, 3], **more).prepare()
    with pytest.raises(UnknownName, match="id 99"):
        request(name, 1, labelled=[99], **more).prepare()


def test_a_selection_that_is_ready_makes_the_picks_of_the_public_call():
    with request(labelled=[7, 3]).run() as found:
        expected = labelwise.select("k_center", 5, features=FEATURES, labelled=[7, 3])
        assert found.ids.tolist() == expected.ids.tolist()


def test_a_folder_to_go_on_from_goes_once_the_picks_are_saved(tmp_path):
    ready = request(resume=tmp_path / "on")
    ready.prepare()
    assert not (tmp_path / "on").exists()
    with ready.run() as found:
        assert (tmp_path / "on" / "picks").exists() and len(found) == 5
    assert not (tmp_path / "on").exists()


def test_without_rows_there_is_no_plan():
    assert request("random", rows=False, ids=np.arange(9)).plan() is None
    assert request().plan().items == 40


def test_what_may_be_taken_is_what_was_given():
    assert request(memory=0.5).memory_limit == 2**29
    assert request().memory_limit > 0
