"""Why an item was chosen: one sentence for every strategy, without the model's guess."""

import doctest

import pytest

from labelwise.campaign import why as module
from labelwise.campaign.why import why
from labelwise.errors import BadInput
from labelwise.record.events import Asked
from labelwise.strategies import names

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


def test_the_examples_run():
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("more", [{}, {"scores": None, "weights": None, "guesses": None}])
def test_every_strategy_has_one_short_sentence_of_its_own(name, more):
    asked = make_asked(name, info={"arm": "k_center"} if name == "bandit" else {}, **more)
    for position in (0, 1):
        sentence = why(asked, position)
        assert sentence[0].isupper() and sentence.endswith(".") and len(sentence) < 130
        assert "Pick 1 of" not in sentence  # the words for strategies that nobody knows
        assert "zebra" not in sentence and "okapi" not in sentence and "nan" not in sentence


def test_an_item_for_measuring_says_so_whatever_the_strategy():
    said = {why(make_asked(name), 2) for name in names()}
    assert said == {"Drawn at random to measure the model: it is never trained on."}


def test_random_picks_tell_whether_there_was_a_model():
    assert why(make_asked("random", model=None), 0).startswith("Drawn at random: there is no model")
    assert "the same chance" in why(make_asked("random"), 0)


@pytest.mark.parametrize(
    ("strategy", "position", "words"),
    [
        ("margin", 0, "3 percentage points apart."),
        ("margin", 1, "90 percentage points apart."),
        ("confidence", 0, "52 % for its best class."),
        ("entropy", 1, "93 % for its best class."),
        ("badge", 0, "(it gives its best class 52 %)"),
        ("lewis", 0, "; it stands for about 31 items."),
        ("lewis", 1, "; it stands for itself."),
        ("sparse_iht", 0, "; it stands for about 31 items."),
        ("k_center", 0, "the farthest from everything labelled or picked before it."),
    ],
)
def test_numbers_are_those_of_the_record(strategy, position, words):
    assert words in why(make_asked(strategy), position)


def test_small_numbers_are_not_rounded_to_nothing():
    close = make_asked("margin", scores=(-0.001, -0.012, 0.0))
    assert why(close, 0).endswith("less than 1 percentage point apart.")
    assert why(close, 1).endswith(": 1 percentage point apart.")
    unsure = make_asked("entropy", guesses=(("zebra", 0.004), *GUESSES[1:]))
    assert "less than 1 % for its best class" in why(unsure, 0)


def test_a_score_that_is_no_margin_is_not_called_one():
    scaled = make_asked("margin", scores=(0.7, 1.0, 0.0))  # several models: scaled to [0, 1]
    assert why(scaled, 0) == "The two most likely classes are closer for the model than elsewhere."


def test_a_bandit_names_the_strategy_whose_turn_it_was():
    asked = make_asked("bandit", info={"arm": "k_center"})
    assert why(asked, 0).startswith("It was the turn of k_center. It was the farthest")
    margin = make_asked("bandit", info={"arm": "margin"})
    assert why(margin, 0).startswith("It was the turn of margin. The two most likely classes")


def test_a_strategy_from_elsewhere_is_named_with_the_rank():
    assert why(make_asked("homemade", validation=(1,)), 2) == "Pick 2 of 2 by homemade."


def test_a_position_outside_the_batch_is_refused():
    for position in (-1, 3):
        with pytest.raises(BadInput, match=f"batch 2 has 3 items; got position {position}"):
            why(make_asked("random"), position)
