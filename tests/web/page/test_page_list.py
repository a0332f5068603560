"""All items in a list: search, filter, relabel, and a million rows of which few exist."""

import numpy as np

from labelwise.web.pool_map import write_map
from tests.web.page.browsing import until, wait_told
from tests.web.page.conftest import table


def rows(page):
    script = "rows => rows.map((row) => Number(row.dataset.item))"
    return page.locator(".space .row[data-item]").evaluate_all(script)


def open_list(labelling, visit, **options):
    page = visit(labelling.url + "#items", **options)
    page.locator(".space .row[data-item]").first.wait_for()
    return page


def test_items_are_found_filtered_and_relabelled(make, visit):
    guesses = tuple(("7", 0.5 + item / 100) for item in range(6))
    labelling = make(12, asked=6, known={"guesses": guesses, "model": 1})
    with labelling.open_record() as record:
        record.tell({0: "7", 1: "3", 2: "4"}, by="Bob")
        record.tell({3: "5"}, by="Ada")
    page = open_list(labelling, visit)
    page.locator(".total").get_by_text("12 items").wait_for()
    page.get_by_role("searchbox", name="Search").fill("0011")
    until(lambda: rows(page) == [11])
    page.get_by_role("searchbox", name="Search").fill("")
    page.get_by_role("combobox", name="Show").select_option("Label differs from the prediction")
    until(lambda: rows(page) == [3, 2, 1])  # the most confident prediction first
    page.locator(".space .row").nth(1).click()
    page.keyboard.press("7")  # Bob was wrong
    until(lambda: labelling.ledger().labels[2] == "7")
    until(lambda: rows(page) == [3, 1])
    assert labelling.ledger().resolutions[2].by == "Ada"
    page.keyboard.press("u")
    until(lambda: labelling.ledger().labels[2] == "4")


def test_an_item_that_was_never_selected_can_be_labelled_by_keyboard(make, visit):
    labelling = make(12, asked=2)
    page = open_list(labelling, visit)
    page.get_by_role("grid").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    page.locator(".detail .stage[data-item='11']").wait_for()
    page.keyboard.press("8")
    until(lambda: labelling.votes() == {11: {"Ada": "8"}})
    wait_told(page, "tem 11 is now 8")


def test_a_selected_item_is_shown_whole(make, visit, tmp_path):
    words = " ".join(map(str, range(1000)))
    source = table(tmp_path / "texts.csv", ["text"], [[words], ["short"]])
    page = open_list(make.begin(source, text="text", asked=2, classes=["a", "b"]), visit)
    page.locator(".space > .row").first.click()
    until(lambda: page.locator(".detail .text").inner_text() == words)
    page.get_by_text("More below").wait_for()


def test_only_the_rows_in_view_exist(make, visit, tmp_path):
    source = table(tmp_path / "rows.csv", ["width"], [[number] for number in range(3000)])
    page = open_list(make.begin(source, asked=2, classes=["a", "b"]), visit)
    page.locator(".total").get_by_text("3,000 items").wait_for()
    assert page.locator(".space .row").count() < 40
    page.locator(".scroll").evaluate("box => { box.scrollTop = box.scrollHeight }")
    until(lambda: rows(page)[-1:] == [2999])
    page.get_by_role("button", name="Item").click()  # sort by id, descending
    until(lambda: rows(page)[:1] == [2999])
    assert page.locator(".space .row").count() < 40


def test_a_range_of_rows_is_labelled_by_keyboard_and_undone_at_once(make, visit):
    labelling = make(12, asked=2)
    with labelling.open_record() as record:
        record.tell({1: "5"}, by="Bob")
        record.tell({7: "2"}, by="Ada", anything=True)
    page = open_list(labelling, visit)
    page.get_by_role("grid").focus()
    page.keyboard.press("ArrowDown")
    for _ in range(3):
        page.keyboard.press("Shift+ArrowDown")
    page.locator(".selection").get_by_text("4 items selected").wait_for()
    wait_told(page, "4 items selected")  # by a screen reader too
    assert page.locator(".row[aria-selected=true]").count() == 4
    page.keyboard.press("8")
    wait_told(page, "3 items labelled 8; 1 item with a label of someone else")
    assert labelling.votes() == {
        **{item: {"Ada": "8"} for item in (0, 2, 3)},
        1: {"Bob": "5"},
        7: {"Ada": "2"},
    }
    page.locator(".selection").get_by_text("3 8, 1 5").wait_for()
    page.keyboard.press("u")
    until(lambda: labelling.votes() == {1: {"Bob": "5"}, 7: {"Ada": "2"}})


def open_map(make, visit):
    """A page with the map of 12 items, of which 9 and 10 are copies of 4."""
    labelling = make(12, asked=2)
    inputs = np.lib.format.open_memmap(labelling.project.home / "inputs.npy", mode="r+")
    inputs[[9, 10]] = inputs[4]
    inputs.flush()
    write_map(labelling.project)
    page = open_list(labelling, visit)
    page.keyboard.press("Shift+M")
    page.locator(".map .total", has_text="12 items").wait_for()
    page.wait_for_timeout(200)  # the points are drawn in the next frame
    return labelling, page


def drag(page, places):
    box = page.locator(".plot").bounding_box()
    page.mouse.move(box["x"] + places[0][0], box["y"] + places[0][1])
    page.mouse.down()
    for x, y in places[1:]:
        page.mouse.move(box["x"] + x, box["y"] + y, steps=3)
    page.mouse.up()


def test_items_on_the_map_are_selected_with_a_lasso_and_labelled(make, visit):
    labelling, page = open_map(make, visit)
    box = page.locator(".plot").bounding_box()
    width, height = box["width"] - 2, box["height"] - 2
    page.keyboard.down("Shift")
    drag(page, [(2, 2), (width, 2), (width, height), (2, height), (2, 4)])
    page.keyboard.up("Shift")
    page.locator(".selection").get_by_text("12 items selected").wait_for()
    page.locator(".thumbs li").nth(11).wait_for()
    page.keyboard.press("3")
    until(lambda: labelling.votes() == {item: {"Ada": "3"} for item in range(12)})
    page.locator(".legend li", has_text="3").wait_for()  # the map has its colour


def test_the_filters_and_near_duplicates_of_an_item_on_the_map(make, visit):
    _, page = open_map(make, visit)
    page.get_by_role("combobox", name="Show").select_option("Near-duplicates, grouped")
    page.locator(".map .total", has_text="3 items").wait_for()
    page.keyboard.press("Shift+M")
    until(lambda: rows(page) == [4, 9, 10])
    page.locator(".space .row").first.click()
    page.get_by_role("button", name="Select its 2 near-duplicates too").click()
    page.locator(".selection").get_by_text("3 items selected").wait_for()


def test_the_map_is_zoomed_and_moved_by_wheel_drag_and_keys(make, visit):
    _, page = open_map(make, visit)
    read = "canvas => canvas.toDataURL()"
    points = page.locator(".plot canvas").first
    pictures = [points.evaluate(read)]

    def changed():
        pictures.append(points.evaluate(read))
        return pictures[-1] != pictures[-2]

    page.locator(".plot").hover()
    page.mouse.wheel(0, -300)
    until(changed)
    drag(page, [(200, 200), (260, 230)])
    until(changed)
    page.locator(".plot canvas").last.focus()
    page.keyboard.press("ArrowLeft")
    until(changed)
    page.keyboard.press("-")
    until(changed)
    page.get_by_role("button", name="Whole map").click()
    until(lambda: points.evaluate(read) == pictures[0])
