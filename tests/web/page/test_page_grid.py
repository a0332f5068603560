"""Many items at once: selecting by mouse and keyboard, one class for all, undo of the group."""

from tests.web.page.browsing import until, wait_saved, wait_told


def tiles(page):
    return page.get_by_role("option")


def ids(page, *, selected=False):
    attribute = '[aria-selected="true"]' if selected else ""
    script = "tiles => tiles.map((tile) => Number(tile.dataset.item))"
    return page.locator(f".tile{attribute}").evaluate_all(script)


def open_grid(labelling, visit, **options):
    page = visit(labelling.url + "#grid", **options)
    tiles(page).first.wait_for()
    return page


def test_a_click_and_a_shift_click_select_a_run_which_gets_one_class(make, visit):
    labelling = make(40)
    page = open_grid(labelling, visit)
    shown = ids(page)
    assert 8 <= len(shown) <= 20
    tiles(page).nth(2).click()
    tiles(page).nth(6).click(modifiers=["Shift"])
    tiles(page).nth(4).click()  # once more: not this one
    chosen = [shown[place] for place in (2, 3, 5, 6)]
    assert ids(page, selected=True) == chosen
    page.keyboard.press("8")
    wait_saved(page)
    assert labelling.votes() == {item: {"Ada": "8"} for item in chosen}
    kept = [item for item in shown if item not in chosen]
    until(lambda: ids(page)[: len(kept)] == kept and not {*chosen} & {*ids(page)})


def test_the_keyboard_alone_selects_and_labels(make, visit):
    labelling = make(30)
    page = open_grid(labelling, visit)
    shown = ids(page)
    for key in ("ArrowRight", "ArrowRight", "Space", "Shift+ArrowRight", "Shift+ArrowRight"):
        page.keyboard.press(key)
    assert ids(page, selected=True) == shown[1:4]
    page.keyboard.press("3")
    wait_saved(page)
    assert set(labelling.votes()) == set(shown[1:4])


def test_an_undo_takes_the_whole_group_back(make, visit):
    labelling = make(30)
    page = open_grid(labelling, visit)
    shown = ids(page)
    page.keyboard.press("Control+a")
    assert ids(page, selected=True) == shown
    page.keyboard.press("5")
    wait_saved(page)
    assert set(labelling.votes()) == set(shown)
    page.keyboard.press("u")
    until(lambda: labelling.votes() == {})
    until(lambda: ids(page)[: len(shown)] == shown)


def test_an_open_grid_leaves_items_to_others(make, visit):
    labelling = make(20, batch=20)
    page = open_grid(labelling, visit)
    assert len(ids(page)) >= 8
    with labelling.open_record() as record:
        assert len(record.lend("Bob", 20)) >= 8


def test_a_class_without_a_selection_labels_nothing(make, visit):
    labelling = make(10)
    page = open_grid(labelling, visit)
    page.keyboard.press("5")
    wait_told(page, "Select items first")
    assert labelling.votes() == {}


def test_escape_and_the_buttons_change_the_selection(make, visit):
    page = open_grid(make(10), visit)
    page.get_by_role("button", name="Select all").click()
    assert len(ids(page, selected=True)) == tiles(page).count()
    page.keyboard.press("Escape")
    assert ids(page, selected=True) == []


def test_a_tap_selects_on_a_phone(make, visit):
    labelling = make(10)
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    page = open_grid(labelling, visit, **phone)
    tiles(page).nth(1).tap()
    until(lambda: len(ids(page, selected=True)) == 1)  # a tap counts some time after the touch
    page.get_by_role("button", name="9", exact=True).tap()
    until(lambda: [list(said.values()) for said in labelling.votes().values()] == [["9"]])
