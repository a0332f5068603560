"""Texts, numbers, many classes, classes that people name, and values instead of classes."""

import pyarrow
import pyarrow.parquet
import pytest

from tests.web.page.browsing import press_and_see, shown, until, wait_saved
from tests.web.page.conftest import table

HOSTILE = [
    "<script>globalThis.caught = 1</script>",
    "<img src=x onerror='globalThis.caught = 1'> \u202ereversed",
    "</div><style>body{display:none}</style>plain",
    "'\"; DROP TABLE events; --\nsecond line",
]


def texts(make, tmp_path, rows=HOSTILE, **settings):
    source = table(tmp_path / "texts.csv", ["text"], [[row] for row in rows])
    return make.begin(source, text="text", asked=len(rows), **settings)


def test_hostile_texts_are_shown_as_they_are(make, visit, tmp_path):
    page = visit(texts(make, tmp_path, classes=["good", "bad"]).url)
    for _ in HOSTILE:
        item = shown(page)
        assert page.locator(".stage .text").text_content() == HOSTILE[item]
        assert page.locator(".stage .text *").count() == 0
        if item != len(HOSTILE) - 1:
            press_and_see(page, "1")
    assert page.evaluate("globalThis.caught") is None


def test_hostile_classes_and_columns_are_shown_as_text(make, visit, tmp_path):
    bad = "<b onclick=alert(1)>x</b>"
    source = table(tmp_path / "rows.csv", ["width", bad], [[1.5, 2], [2.25, 3]])
    page = visit(make.begin(source, asked=2, classes=[bad, "other"]).url)
    shown(page)
    assert page.locator(".stage th").all_text_contents() == ["width", bad]
    page.get_by_role("button", name=bad).wait_for()
    assert page.locator(".stage b, .choices b").count() == 0


def test_a_row_of_numbers_is_a_table(make, visit, tmp_path):
    source = table(tmp_path / "rows.csv", ["width", "height"], [[1.5, 12000], [2.25, 3]])
    page = visit(make.begin(source, asked=2, classes=["a", "b"]).url)
    rows = ["width\t1.5", "height\t12000"] if shown(page) == 0 else ["width\t2.25", "height\t3"]
    assert page.locator(".stage tr").all_inner_texts() == rows


def test_values_in_single_precision_have_their_own_digits(make, visit, tmp_path):
    values = pyarrow.array([7.3, 0.1], pyarrow.float32())
    pyarrow.parquet.write_table(pyarrow.table({"width": values}), tmp_path / "rows.parquet")
    page = visit(make.begin(tmp_path / "rows.parquet", asked=2, classes=["a", "b"]).url)
    seen = {"width\t7.3", "width\t0.1"}
    first = page.locator(".stage tr").inner_text()
    press_and_see(page, "a")
    assert {first, page.locator(".stage tr").inner_text()} == seen


def test_a_value_is_typed_where_there_are_no_classes(make, visit, tmp_path):
    source = table(tmp_path / "rows.csv", ["width"], [[1.5], [2.5], [3.5]])
    labelling = make.begin(source, asked=3, classes=None, regression=True)
    page = visit(labelling.url)
    first = shown(page)
    page.keyboard.type("-3,25")  # the first key finds the field by itself
    press_and_see(page, "Enter")
    wait_saved(page)
    assert labelling.votes() == {first: {"Ada": -3.25}}
    press_and_see(page, "u")  # the field still has the focus, but letters are shortcuts
    until(lambda: labelling.votes() == {})
    page.keyboard.type("-3.25")
    press_and_see(page, "Enter")
    wait_saved(page)
    page.get_by_role("textbox", name="Value").fill("many")
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)
    assert len(labelling.votes()) == 1


def test_a_class_among_many_is_found_by_its_name(make, visit, tmp_path):
    names = [f"species {number:03d}" for number in range(120)]
    labelling = texts(make, tmp_path, classes=names)
    page = visit(labelling.url)
    first = shown(page)
    page.keyboard.press("/")
    page.keyboard.type("ies 117")
    assert page.locator(".choice:visible").all_inner_texts() == ["species 117"]
    press_and_see(page, "Enter")
    wait_saved(page)
    assert labelling.votes() == {first: {"Ada": "species 117"}}
    assert page.locator(".choice:visible").count() == 120


def test_more_than_ten_classes_have_letters_that_nothing_else_uses(make, visit, tmp_path):
    names = [f"kind {number}" for number in range(32)]
    labelling = texts(make, tmp_path, classes=names)
    page = visit(labelling.url)
    first = shown(page)
    keys = page.locator(".choice").evaluate_all(
        "all => all.map((one) => one.getAttribute('aria-keyshortcuts'))"
    )
    assert keys[:11] == [*"1234567890", "a"]
    given = [key for key in keys if key]
    assert len(set(given)) == len(given) == 28
    assert not set(given) & set("gilmrsuk")
    press_and_see(page, "a")
    wait_saved(page)
    assert labelling.votes() == {first: {"Ada": "kind 10"}}


def test_people_name_the_classes_where_the_campaign_has_none(make, visit, tmp_path):
    labelling = texts(make, tmp_path, classes=None)
    page, other = visit(labelling.url), visit(labelling.url, name="Bob")
    first = shown(page)
    page.keyboard.type("slug")  # goes into the field, although s, l, u and g are shortcuts
    assert page.get_by_placeholder("Name the first class").input_value() == "slug"
    assert page.get_by_role("dialog").count() == 0 and "#" not in page.url
    page.get_by_placeholder("Name the first class").fill("spam")
    page.keyboard.press("Enter")
    press_and_see(page, "Enter")  # the new class has the focus
    page.get_by_placeholder("Another class").fill("ham")
    page.keyboard.press("Enter")
    wait_saved(page)
    assert labelling.votes() == {first: {"Ada": "spam"}}
    other.locator(".choice", has_text="spam").wait_for(state="attached")
    other.close()  # Bob waits for items and might get those of a page that is loaded anew
    page.reload()
    until(lambda: page.locator(".choice").all_inner_texts() == ["1\nspam", "h\nham"])


def test_a_class_that_is_called_like_a_key_has_that_key(make, visit, tmp_path):
    page = visit(texts(make, tmp_path, classes=["a", "b"]).url)
    assign = "names => import('/static/keys.js').then((keys) => keys.assignKeys(names))"
    digits = [str(digit) for digit in range(12)]
    assert page.evaluate(assign, digits) == [*"0123456789", "a", "b"]
    assert page.evaluate(assign, ["cat", "3", "cow"]) == ["1", "3", "a"]
    assert page.evaluate(assign, ["A", "S", "a"]) == ["a", "2", "3"]  # s skips


def test_classes_with_letters_as_keys_are_chosen_by_their_place_too(make, visit, tmp_path):
    labelling = texts(make, tmp_path, classes=["a", "b"])
    page = visit(labelling.url)
    first = shown(page)
    second = press_and_see(page, "b")
    press_and_see(page, "1")
    wait_saved(page)
    assert labelling.votes() == {first: {"Ada": "b"}, second: {"Ada": "a"}}


def test_a_picture_that_vanishes_is_passed_over_and_said(make, visit):
    labelling = make(6, batch=40, overlap=2)
    with labelling.open_record() as record:
        record.tell({1: "3"}, by="Bob")
    for item in (1, 2):
        labelling.project.items.path(item).unlink()
    page = visit(labelling.url)
    page.get_by_text("2 items left out: their files are gone.").wait_for()
    seen = [shown(page)]
    for _ in range(3):
        seen.append(press_and_see(page, "5"))
    assert seen == [0, 3, 4, 5]
    assert labelling.ledger().labels[1] == "3"
    assert set(labelling.ledger().skipped) == {2}
    assert page.locator(".people").get_by_text("labelwise").count() == 0


def test_a_long_text_scrolls_by_whole_lines_wherever_the_focus_is(make, visit, tmp_path):
    page = visit(texts(make, tmp_path, ["A line of words. " * 1000] * 2, classes=["a", "b"]).url)
    shown(page)
    text = page.locator(".stage .text")
    assert text.evaluate(
        "(box) => box.clientHeight / parseFloat(getComputedStyle(box).lineHeight)"
    ) == pytest.approx(12, abs=11.9) and text.evaluate(
        "(box) => (box.clientHeight / parseFloat(getComputedStyle(box).lineHeight)) % 1"
    ) == pytest.approx(0, abs=0.05)
    page.get_by_text("More below").wait_for()
    page.keyboard.press("PageDown")
    until(lambda: text.evaluate("(box) => box.scrollTop") > 100)
    page.keyboard.press("End")
    page.get_by_text("More below").wait_for(state="detached")


def test_a_class_has_the_first_letter_of_its_name_where_that_is_unambiguous(make, visit, tmp_path):
    names = ["cat", "dog", "deer", "ship", "x"]  # s skips
    labelling = texts(make, tmp_path, rows=[f"text {n}" for n in range(4)], classes=names)
    page = visit(labelling.url)
    first = shown(page)
    keys = page.locator(".choice").evaluate_all(
        "all => all.map((one) => one.getAttribute('aria-keyshortcuts'))"
    )
    assert keys == ["1 c", "2", "3", "4", "5 x"]
    second = press_and_see(page, "c")
    third = press_and_see(page, "1")
    press_and_see(page, "3")
    wait_saved(page)
    assert labelling.votes() == {
        first: {"Ada": "cat"},
        second: {"Ada": "cat"},
        third: {"Ada": "deer"},
    }


def test_numbers_in_single_precision_are_shown_as_they_were_written(make, visit, tmp_path):
    source = table(tmp_path / "rows.csv", ["width"], [[7.3], [0.1]])
    page = visit(make.begin(source, asked=2, classes=["a", "b"]).url)
    assert page.locator(".stage td").inner_text() == ["7.3", "0.1"][shown(page)]
