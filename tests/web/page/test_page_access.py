"""For everyone: names of controls, contrast, focus, tap targets, phones, motion, announcements."""

import pytest

from tests.web.page.browsing import press_and_see, shown, wait_told
from tests.web.page.conftest import KINDS

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
SMALL = {"viewport": {"width": 320, "height": 568}, "has_touch": True, "is_mobile": True}

# The ratio of WCAG 2 between every visible text and what lies behind it.
CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  let seen = 0;
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility({visibilityProperty: true})) continue;
    if (element.closest(".unseen, noscript, .jump, #notice")) continue;
    const style = getComputedStyle(element);
    const ink = parse(element instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    seen += 1;
    if (ratio < 4.5) poor.push(`${element.className} ${element.textContent.slice(0, 20)} ${ratio}`);
  }
  return {poor, seen};
}"""
VIEWS = ("label", "skip", "help", "grid", "items")


def each_view(page):
    """Open one part of the page after the other; gives its name while it is open."""
    shown(page)
    page.locator(".card.batch").wait_for(state="attached")
    for view in VIEWS:
        dialog = page.get_by_role("dialog")
        if view == "grid":
            page.keyboard.press("g")
            page.get_by_role("option").first.wait_for()
        elif view == "items":
            page.keyboard.press("i")
            page.locator(".space .row[data-item]").first.click()
            page.locator(".detail .choice").first.wait_for()
        elif view != "label":
            page.keyboard.press({"help": "?", "skip": "s"}[view])
            dialog.wait_for()
        yield view
        if dialog.count():
            page.keyboard.press("Escape")
            dialog.wait_for(state="detached")


def test_every_control_has_a_name(make, visit):
    page = visit(make(12).url)
    roles = ("button", "link", "textbox", "checkbox", "searchbox", "progressbar", "option", "img")
    for view in each_view(page):
        lines = [line.strip() for line in page.locator("body").aria_snapshot().splitlines()]
        assert sum(line.startswith("- button") for line in lines) > 5
        nameless = [line for line in lines if line.rstrip(":") in {f"- {role}" for role in roles}]
        assert nameless == [], view


def test_every_view_has_a_heading_and_the_focus_on_a_list_that_names_its_row(make, visit):
    page = visit(make(12).url)
    for view in each_view(page):
        assert page.locator("h1").count() == 1, view
    page.get_by_role("grid").focus()
    page.keyboard.press("ArrowDown")
    page.locator("[role=grid][aria-activedescendant=row-1]").wait_for()
    assert page.locator("#row-1[role=row]").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(make, visit, scheme):
    page = visit(make(12).url, color_scheme=scheme, reduced_motion="reduce")
    for view in each_view(page):
        found = page.evaluate(CONTRAST)
        assert found["seen"] > 10
        assert found["poor"] == [], view


@pytest.mark.parametrize("size", [PHONE, SMALL], ids=["phone", "small"])
def test_nothing_is_wider_than_a_phone(make, visit, size):
    page = visit(make(12).url, **size)
    width = size["viewport"]["width"]
    for view in each_view(page):
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        outside = page.locator("button:visible, a:visible, .stage img:visible").evaluate_all(
            "(all, width) => all.filter((one) => one.getBoundingClientRect().right > width + 0.5)"
            ".map((one) => one.textContent)",
            width,
        )
        assert outside == [], view


def test_everything_to_tap_is_at_least_44_pixels_high_and_wide(make, visit):
    page = visit(make(12).url, **PHONE)
    for view in each_view(page):
        sizes = (
            page.locator("button, nav a, .tile, .switch")
            .locator("visible=true")
            .evaluate_all(
                "all => all.map((one) => [one.textContent, one.getBoundingClientRect()])"
                ".map(([text, box]) => [text, box.width, box.height])"
            )
        )
        assert len(sizes) > 5
        assert [one for one in sizes if min(one[1:]) < 44] == [], view


def test_the_item_and_all_its_classes_fit_on_a_phone_without_scrolling(make, visit):
    page = visit(make(12).url, **PHONE)
    shown(page)
    for locator in (page.locator(".stage"), page.locator(".choice").last, page.locator(".actions")):
        box = locator.bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 844


def test_tapping_labels_an_item(make, visit):
    page = visit(make(5).url, **PHONE)
    first = shown(page)
    page.get_by_role("button", name=str(KINDS[first]), exact=True).tap()
    page.wait_for_function(
        "first => document.querySelector('.stage').dataset.item !== first", arg=str(first)
    )


def test_the_next_item_is_announced_with_what_was_done(make, visit):
    page = visit(make(5).url)
    shown(page)
    item = press_and_see(page, "7")
    live = page.locator("[aria-live=polite]")
    assert live.text_content().strip() == f"7. Next: {item:04d}.png"


def test_the_focus_can_be_seen_and_goes_from_top_to_bottom(make, visit):
    page = visit(make(5).url)
    shown(page)
    page.locator(".people, .files").first.wait_for(state="attached")
    seen = []
    for _ in range(11):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "[document.activeElement.textContent.trim(),"
                " getComputedStyle(document.activeElement).outlineStyle]"
            )
        )
    words = [text for text, _ in seen]
    assert words[:5] == ["Go to the item", "Label", "Grid", "Review", "Items"]
    assert words[9:11] == ["0", "Undou"]  # the classes are one stop, and arrows go along them
    assert all(outline == "solid" for _, outline in seen)


def test_the_way_past_the_header_leads_to_the_items_of_the_view_that_is_open(make, visit):
    page = visit(make(5).url + "#grid")
    page.get_by_role("option").first.wait_for()
    page.get_by_text("Go to the item").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "work"
    assert page.get_by_role("option").count() == 5


def test_the_focus_returns_after_a_dialog(make, visit):
    page = visit(make(5).url)
    shown(page)
    page.get_by_role("button", name="Help").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert page.evaluate("document.activeElement.textContent") == "Help?"


def test_nothing_moves_for_those_who_asked_for_less_motion(make, visit):
    page = visit(make(5).url, reduced_motion="reduce")
    shown(page)
    press_and_see(page, "3")
    assert page.evaluate("document.getAnimations().length") == 0


def test_the_page_loads_nothing_from_elsewhere_and_runs_no_inline_script(make, visit):
    labelling = make(5)
    page = visit(labelling.url)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    for _ in each_view(page):
        pass
    page.keyboard.press("r")
    page.get_by_text("No disagreements").wait_for()
    assert asked
    assert all(url.startswith(labelling.url) for url in asked)
    assert (
        page.locator("script:not([src]), [style], [onclick]").evaluate_all(
            "all => all.filter((one) => !one.style?.length).map((one) => one.outerHTML)"
        )
        == []
    )


# Parts of the page that lie over each other, and words that are larger than their button.
COVERED = """() => {
  const boxes = (all) => [...document.querySelectorAll(all)].filter((one) => one.checkVisibility());
  const parts = boxes(".stage, .about, .classes .fields, .choices, .actions, aside");
  const apart = (a, b) => a.bottom <= b.top + 1 || b.bottom <= a.top + 1 || a.right <= b.left + 1;
  const over = parts.flatMap((one, place) =>
    parts.slice(place + 1)
      .filter((other) => !apart(one.getBoundingClientRect(), other.getBoundingClientRect()))
      .map((other) => `${one.className} over ${other.className}`));
  const cut = boxes(".choice").filter((button) => {
    const words = button.querySelector("span");
    return words.offsetHeight > button.offsetHeight || words.scrollWidth > words.offsetWidth + 1;
  });
  return [...over, ...cut.map((button) => button.title)];
}"""
LONG = "a name of a class that goes on for longer than any button on a small screen is wide"


@pytest.mark.parametrize("size", [(1280, 800), (960, 540), (640, 400), (320, 568)])
def test_many_long_classes_cover_nothing_on_small_screens_and_at_200_percent(make, visit, size):
    classes = [LONG, *(f"class number {number}" for number in range(59))]
    page = visit(make(5, classes=classes).url, viewport={"width": size[0], "height": size[1]})
    shown(page)
    page.locator(".card.batch").wait_for(state="attached")
    assert page.locator(".choice").count() == 60
    assert page.evaluate(COVERED) == []
    page.get_by_role("button", name="Model's guess").click()
    wait_told(page, "There is no guess")


def test_it_is_announced_when_no_item_is_left(make, visit):
    page = visit(make(2).url)
    press_and_see(page, "7")
    page.keyboard.press("7")
    live = page.locator("[aria-live=polite]")
    live.get_by_text("Every item is done. There is nothing left").wait_for(state="attached")


# Elements whose focus ring would be cut off by the next box around them that scrolls.
CLIPPED = """() => [...document.querySelectorAll(".choice, .tile, .text, .fields input")]
  .filter((one) => one.checkVisibility()).filter((one) => {
    one.focus({ focusVisible: true, preventScroll: false });
    const style = getComputedStyle(one);
    const ring = parseFloat(style.outlineWidth) + parseFloat(style.outlineOffset);
    const scrolls = (box) => /auto|hidden|scroll/.test(getComputedStyle(box).overflowY);
    let box = one.parentElement;
    while (box && !scrolls(box)) box = box.parentElement;
    if (!box) return false;
    const [inner, outer] = [one.getBoundingClientRect(), box.getBoundingClientRect()];
    return inner.left - ring < outer.left - 0.5 || inner.top - ring < outer.top - 0.5
      || inner.right + ring > outer.right + 0.5;
  }).map((one) => one.textContent)"""


@pytest.mark.parametrize("view", ["label", "grid"])
def test_the_focus_ring_is_not_cut_off(make, visit, view):
    page = visit(make(12).url + f"#{view}")
    page.locator(".choice").first.wait_for()
    page.locator(".tile, .stage[data-item]").first.wait_for()
    assert page.evaluate(CLIPPED) == []


def test_a_visitor_without_the_token_can_enter_it(make, visit, start_server):
    server = start_server(make(5).project.home, "--no-training", "--token", "open-sesame")
    page = visit(server.url)
    page.get_by_role("heading", name="This labelling page needs a token").wait_for()
    assert page.evaluate("getComputedStyle(document.querySelector('main')).display") == "grid"
    page.get_by_label("Token").fill("open-sesame")
    page.keyboard.press("Enter")
    shown(page)
    assert page.url == server.url
