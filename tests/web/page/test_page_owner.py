"""Settings, classes, notes and items that come again later."""

from tests.web.page.browsing import press_and_see, shown, until, wait_saved, wait_told


def test_the_owner_sets_a_goal_and_the_batch_size(make, visit):
    labelling = make(8)
    page = visit(labelling.url)
    shown(page)
    page.get_by_role("button", name="Settings").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Accuracy to reach, in %").fill("90")
    dialog.get_by_label("Items per batch").fill("25")
    dialog.get_by_text("Only this machine can open the page").wait_for()
    dialog.get_by_role("button", name="Save").click()
    page.locator(".batch").get_by_text("90 % right").first.wait_for()
    settings = labelling.ledger().settings
    assert (settings["goal"], settings["batch"]) == (0.9, 25)


def test_a_class_is_added_described_and_renamed_while_labelling(make, visit):
    labelling = make(24, classes=["cat", "dog"])
    page, other = visit(labelling.url), visit(labelling.url, name="Bob")
    shown(other)
    first = shown(page)
    press_and_see(page, "1")
    wait_saved(page)
    page.get_by_role("button", name="Classes").click()
    page.get_by_label("New class").fill("bird")
    page.keyboard.press("Enter")
    page.get_by_label("Name of bird").wait_for()
    page.get_by_label("Name of cat").fill("tiger")
    page.get_by_label("Description of cat").fill("has stripes")
    page.keyboard.press("Enter")
    page.get_by_label("Name of tiger").wait_for()
    page.keyboard.press("Escape")
    names = ["1\ntiger", "2\ndog", "3\nbird"]
    until(lambda: page.locator(".choice").all_inner_texts() == names)
    until(lambda: other.locator(".choice").all_inner_texts() == names)
    assert page.locator(".choice").first.get_attribute("title") == "tiger: has stripes"
    assert labelling.ledger().labels == {first: "tiger"}
    press_and_see(page, "3")
    wait_saved(page)
    assert set(labelling.ledger().labels.values()) == {"tiger", "bird"}


def test_an_item_can_wait_and_get_a_note(make, visit):
    labelling = make(8)
    page = visit(labelling.url)
    first = shown(page)
    page.keyboard.press("Shift+N")
    page.get_by_role("textbox", name="Note").fill("unsure")
    page.keyboard.press("Enter")
    wait_told(page, "Note saved")
    assert press_and_see(page, "Shift+L") != first
    while shown(page) != first:  # it comes again after the others
        press_and_see(page, "1")
    wait_saved(page)
    assert len(labelling.votes()) >= 3
    assert labelling.ledger().notes == {first: {"Ada": "unsure"}}
