"""Settings: checked when they are made, and the same after a stay in the record."""

import json

import numpy as np
import pytest

from labelwise.campaign.settings import Settings
from labelwise.errors import BadInput, UnknownName


def test_survive_json():
    made = Settings(
        strategy="lewis",
        options={"p": 1.5},
        classes=("a", "b"),
        budget_money=12.5,
        validation=0.1,
    )
    assert Settings.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_classes_may_be_a_list_or_an_array():
    assert Settings(classes=["a", "b"]).classes == ("a", "b")
    assert Settings(classes=np.arange(3)).classes == (0, 1, 2)
    assert all(type(name) is int for name in Settings(classes=np.arange(3)).classes)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"batch": 0}, "batch must be a whole number, 1 or more; got 0"),
        ({"batch": 2.5}, "batch must be a whole number"),
        ({"batch": True}, "batch must be a whole number"),
        ({"overlap": 0}, "overlap must be a whole number"),
        ({"seed": -1}, "seed must be a whole number, 0 or more; got -1"),
        ({"lend_seconds": 0.0}, "lend_seconds must be a number above 0; got 0.0"),
        ({"lend_seconds": float("nan")}, "lend_seconds must be a number above 0"),
        ({"validation": 1.0}, "validation is a share from 0 to below 1; got 1.0"),
        ({"tail": -0.1}, "tail is a share"),
        ({"price": -1.0}, "price must be a number above 0"),
        ({"budget_labels": 0}, "budget_labels must be a whole number, 1 or more"),
        ({"regression": "yes"}, "regression must be True or False"),
        ({"weights": 1}, "weights must be True or False; got 1"),
        ({"classes": "abc"}, "classes must be a list of names or numbers; got 'abc'"),
        ({"classes": ("a",)}, "two classes or more; got 1"),
        ({"classes": ("a", "b", "a")}, "classes must be different; a is given 2 times"),
        ({"classes": (1, "1")}, "classes must be different; 1 is given 2 times"),
        ({"classes": ("a", 0.5)}, "a class is a name or a whole number; got 0.5"),
        ({"classes": ("a", "b"), "regression": True}, "a regression has no classes"),
        ({"options": [1]}, "options must be a mapping"),
        ({"options": {"p": object()}, "strategy": "lewis"}, "options must be JSON values"),
    ],
)
def test_a_wrong_value_is_refused(given, words):
    with pytest.raises(BadInput, match=words):
        Settings(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"strategy": "bagde"},
            "no strategy is called .bagde.; did you mean badge. or choose from",
        ),
        ({"first": "bagde"}, "no strategy is called 'bagde'"),
        ({"options": {"q": 1}, "strategy": "lewis"}, "lewis has no option 'q'"),
        ({"resolution": "dice"}, "no resolution is called 'dice'; choose from majority, weighted"),
        ({"bach": 3}, "a campaign has no setting 'bach'; choose from strategy, batch"),
    ],
)
def test_a_wrong_name_is_refused(given, words):
    with pytest.raises(UnknownName, match=words):
        Settings.from_dict(given)


def test_another_strategy_begins_without_the_options_of_the_old_one():
    old = Settings(strategy="lewis", options={"p": 1.5}, batch=7)
    assert old.replace_settings(strategy="badge") == Settings(strategy="badge", batch=7)
    assert old.replace_settings(batch=9).options == {"p": 1.5}


@pytest.mark.parametrize(
    ("classes", "given", "kept"),
    [
        (("cat", "dog"), "dog", "dog"),
        (("cat", "dog"), 1, "dog"),
        (("cat", "dog"), np.int64(0), "cat"),
        (("cat", "dog"), np.str_("cat"), "cat"),
        ((3, 7), 7, 7),
        ((3, 7), "7", 7),
        (("1", "0"), 0, "0"),  # a name comes before a place in the order
        (("1", "0"), "1", "1"),
    ],
)
def test_a_class_is_told_by_name_or_by_number(classes, given, kept):
    label = Settings(classes=classes).normalize_label(given)
    assert label == kept and type(label) is type(kept)


@pytest.mark.parametrize("given", ["cow", 2, -1, 1.0, "", "Cat"])
def test_a_label_that_is_no_class_is_refused(given):
    with pytest.raises(
        BadInput, match=r"label of item 12 is .*, which is not a class; choose from cat"
    ):
        Settings(classes=("cat", "dog")).normalize_label(given, 12)


@pytest.mark.parametrize("given", [True, None, ["cat"], {"a": 1}])
def test_a_label_is_a_number_or_a_text(given):
    with pytest.raises(BadInput, match="label of item 3 must be a number or a text"):
        Settings(classes=("cat", "dog")).normalize_label(given, 3)


def test_a_number_is_no_place_in_an_order_of_numbers():
    with pytest.raises(BadInput, match="label is 0, which is not a class; choose from 3, 7"):
        Settings(classes=(3, 7)).normalize_label(0)


def test_without_classes_any_name_or_number_from_0_is_one():
    assert [Settings().normalize_label(given) for given in ("owl", 0, np.int32(4))] == ["owl", 0, 4]
    for given in (-1, 0.5, " "):
        with pytest.raises(BadInput, match="must be a name or a whole number from 0"):
            Settings().normalize_label(given)


def test_a_regression_takes_finite_values():
    settings = Settings(regression=True)
    assert [settings.normalize_label(given) for given in (2, "1.5", np.float32(0.25))] == [
        2.0,
        1.5,
        0.25,
    ]
    for given in (float("nan"), float("inf"), "tall"):
        with pytest.raises(BadInput, match="label of item 5 must be"):
            settings.normalize_label(given, 5)


def test_seeds_differ_by_purpose_and_number_and_follow_the_campaigns():
    seeds = {Settings(seed=s).seed_for(p, n) for s in range(3) for p in (1, 2) for n in range(5)}
    assert len(seeds) == 30
    assert Settings(seed=4).seed_for(1, 2) == Settings(seed=4, batch=9).seed_for(1, 2)
    assert Settings().seed_for(1, 2, given=11) == 11
    with pytest.raises(BadInput, match="seed must be a whole number, 0 or more; got -3"):
        Settings().seed_for(1, 2, given=-3)
