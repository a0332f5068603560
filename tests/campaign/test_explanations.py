"""Why an item was chosen: one sentence for every strategy, without the model's guess."""

from dataclasses import replace

import pytest

from labelwise.campaign import explanations as module
from labelwise.campaign.explanations import explain_pick
from labelwise.errors import BadInput
from labelwise.record.events import Asked
from labelwise.strategies import get, names
from labelwise.strategy import PickFacts

GUESSES = (("zebra", 0.515), ("okapi", 0.93), ("zebra", 0.004))


def make_asked(strategy, **more):
    fields = {
        "weights": (31.4, 1.0, 0.0),
        "scores": (-0.034, -0.9, 0.0),
        "guesses": GUESSES,
        "model": 4,
        "validation": (3,),
    }
    return Asked(0.0, 2, (1, 2, 3), strategy=strategy, **{**fields, **more})


def test_an_item_for_measuring_says_so_whatever_the_strategy():
    said = {explain_pick(make_asked(name), 2) for name in names()}
    assert said == {"Drawn at random to measure the model; it is never trained on."}


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("more", [{}, {"scores": None, "weights": None, "guesses": None}])
def test_every_strategy_explains_its_picks_without_the_prediction(name, more):
    asked = make_asked(name, info={"arm": "k_center"} if name == "bandit" else {}, **more)
    for position in (0, 1):
        sentence = explain_pick(asked, position)
        assert sentence[0].isupper() and sentence.endswith(".") and len(sentence) < 130
        assert "zebra" not in sentence and "okapi" not in sentence and "nan" not in sentence


def test_the_strategy_gets_what_the_batch_recorded(monkeypatch):
    seen = []
    spy = replace(get("margin"), explain=lambda facts: seen.append(facts) or "Because.")
    monkeypatch.setattr(module, "get", lambda name: spy)
    asked = make_asked("margin", validation=(1,), info={"kept": 1})
    assert explain_pick(asked, 2) == "Because."
    expected = PickFacts(1, 2, True, score=0.0, weight=0.0, confidence=0.004, info={"kept": 1})
    assert seen == [expected]


def test_a_strategy_from_elsewhere_is_named_with_the_rank():
    assert explain_pick(make_asked("homemade", validation=(1,)), 2) == "Pick 2 of 2 by homemade."


def test_a_position_outside_the_batch_is_refused():
    for position in (-1, 3):
        with pytest.raises(BadInput, match=f"batch 2 has 3 items; got position {position}"):
            explain_pick(make_asked("random"), position)


class Untraversed(tuple):
    """Ids that can only be read by position."""

    def __iter__(self):
        raise AssertionError("the whole batch was read")


def test_the_length_of_a_batch_costs_no_time():
    ids = Untraversed((3, 1, 2))
    assert explain_pick(Asked(0.0, 1, ids, strategy="homemade"), 1) == "Pick 2 of 3 by homemade."
