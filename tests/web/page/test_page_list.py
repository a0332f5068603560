"""All items in a list: search, filter, relabel, and a million rows of which few exist."""

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
    page.locator(".scroll").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    page.locator(".detail .stage[data-item='11']").wait_for()
    page.keyboard.press("8")
    until(lambda: labelling.votes() == {11: {"Ada": "8"}})
    wait_told(page, "tem 11 is now 8")


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
