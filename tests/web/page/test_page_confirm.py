"""Confirm mode: predictions are preselected, and what people did with them is recorded."""

import time

from labelwise.record.events import Told, Trained, Training
from tests.web.page.browsing import press_and_see, shown, until, wait_saved, wait_told
from tests.web.page.test_page_grid import ids, tiles


def with_model(make, count, *, accuracy=0.9, guessed="7", **known):
    """A campaign whose model predicts ``guessed`` for every item."""
    guesses = tuple((guessed, 0.5 + item / 100) for item in range(count))
    labelling = make(count, known={"guesses": guesses, "model": 1, **known})
    metrics = {"accuracy": accuracy, "validation_labels": 50, "training_labels": 100}
    now = time.time()
    labelling.append(Training(now, 1, 150), Trained(now, 1, 150, 1.0, metrics))
    return labelling


def told(labelling):
    """The labels in the record with what was suggested: ``{id: (label, suggested)}``."""
    with labelling.open_record() as record:
        events = record.storage.read(record.name)
    return {one.id: (one.label, one.suggested) for one in events if isinstance(one, Told)}


def test_enter_accepts_a_class_corrects_and_both_are_recorded(make, visit):
    labelling = with_model(make, 8, validation=(2,))
    page = visit(labelling.url)
    assert shown(page) == 0
    page.keyboard.press("Shift+C")
    page.get_by_text("7, 50 % sure: confirm it").first.wait_for()
    press_and_see(page, "Enter")
    press_and_see(page, "3")
    page.get_by_text("This item evaluates the model: choose yourself").first.wait_for()
    page.keyboard.press("Enter")  # nothing is preselected, so nothing happens
    assert shown(page) == 2
    press_and_see(page, "4")
    press_and_see(page, "Space")
    page.keyboard.press("Shift+C")
    page.get_by_text("sure: confirm it").wait_for(state="detached")
    press_and_see(page, "5")
    wait_saved(page)
    assert told(labelling) == {
        0: ("7", "7"),
        1: ("3", "7"),
        2: ("4", None),
        3: ("7", "7"),
        4: ("5", None),
    }


def test_a_model_that_is_often_wrong_cannot_be_confirmed(make, visit):
    labelling = with_model(make, 5, accuracy=0.5)
    page = visit(labelling.url)
    item = shown(page)
    page.keyboard.press("Shift+C")
    wait_told(page, "confirming needs an accuracy of 70 % on 30 held-out labels")
    page.keyboard.press("Enter")
    assert shown(page) == item


def test_the_grid_confirms_a_group_except_for_what_is_selected_with_one_undo(make, visit):
    labelling = with_model(make, 8)
    page = visit(labelling.url + "#grid")
    tiles(page).first.wait_for()
    page.keyboard.press("Shift+C")
    page.get_by_text("8 items look like 7").wait_for()
    assert ids(page) == list(range(7, -1, -1))  # most confident first
    assert page.locator("[role=listbox] button").count() == 0  # a list has only options
    page.get_by_role("button", name="Confirm all 8").wait_for()
    tiles(page).nth(2).click()
    page.get_by_role("button", name="Confirm the other 7").click()
    wait_saved(page)
    assert labelling.votes() == {item: {"Ada": "7"} for item in range(8) if item != 5}
    assert told(labelling)[0] == ("7", "7")
    page.keyboard.press("u")
    until(lambda: labelling.votes() == {})
