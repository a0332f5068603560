"""The server goes away and comes back: nothing is lost, and labelling goes on meanwhile."""

from tests.web.page.browsing import press_and_see, shown, until, wait_saved, wait_told
from tests.web.page.conftest import KINDS


def label(page, times):
    """Label so many items with what they are; ``{id: label}``."""
    given = {}
    for _ in range(times):
        item = shown(page)
        given[item] = str(KINDS[item])
        press_and_see(page, given[item])
    return given


def said_by_ada(given):
    return {item: {"Ada": label} for item, label in given.items()}


def test_labelling_goes_on_while_the_server_is_killed_and_comes_back(make, visit):
    labelling = make(40, process=True)
    page = visit(labelling.url)
    given = label(page, 5)
    wait_saved(page)
    labelling.kill()
    given |= label(page, 6)
    page.locator(".status.away").get_by_text("6 unsent").wait_for()
    labelling.start()
    wait_saved(page)
    given |= label(page, 8)
    wait_saved(page)
    assert labelling.votes() == said_by_ada(given)


def test_killed_in_the_middle_of_fast_labelling_every_label_arrives(make, visit):
    labelling = make(40, process=True)
    page = visit(labelling.url)
    given = {}
    for round in range(2):
        given |= label(page, 3)
        labelling.kill()  # with the last label perhaps on its way
        given |= label(page, 2 + round)
        labelling.start()
        wait_saved(page)  # and new items are borrowed, enough for the next time
    assert labelling.votes() == said_by_ada(given)


def test_unsent_labels_survive_that_the_page_is_closed(make, visit):
    labelling = make(20, process=True)
    page = visit(labelling.url)
    given = label(page, 2)
    wait_saved(page)
    labelling.kill()
    given |= label(page, 3)
    context = page.context
    page.close()
    labelling.start()
    page = context.new_page()
    page.goto(labelling.url)
    wait_saved(page)
    until(lambda: labelling.votes() == said_by_ada(given))
    assert shown(page) not in given


def test_a_label_not_yet_sent_can_be_undone_while_the_server_is_away(make, visit):
    labelling = make(20, process=True)
    page = visit(labelling.url)
    shown(page)
    page.wait_for_timeout(300)  # until the next items and their pictures are there
    labelling.kill()
    given = label(page, 2)
    page.locator(".status.away").get_by_text("2 unsent").wait_for()
    last = list(given)[-1]
    assert press_and_see(page, "u") == last
    labelling.start()
    wait_saved(page)
    del given[last]
    assert labelling.votes() == said_by_ada(given)


def test_a_sent_label_cannot_be_undone_while_the_server_is_away_and_the_page_says_why(make, visit):
    labelling = make(20, process=True)
    page = visit(labelling.url)
    given = label(page, 1)
    wait_saved(page)
    labelling.kill()
    item = shown(page)
    page.keyboard.press("u")
    wait_told(page, "he server does not answer")
    assert shown(page) == item
    labelling.start()
    page.locator(".status.saved").wait_for()
    assert press_and_see(page, "u") == next(iter(given))


def test_a_refused_label_is_shown_and_does_not_hold_up_the_others(make, visit):
    labelling = make(20)
    page = visit(labelling.url)
    first = shown(page)
    page.evaluate(
        """async id => {
          const session = await (await fetch("/api/session")).json();
          const start = `labelwise/unsent/${session.id}/Ada/`;
          const entry = (label, id) => JSON.stringify({kind: "label", id, label, seconds: 1});
          localStorage.setItem(start + "000000000000001-000001-x", entry("no such class", id + 1));
          localStorage.setItem(start + "000000000000002-000001-x", entry("4", id));
        }""",
        first,
    )
    page.reload()
    page.locator(".status.bad").get_by_text("1 label refused").click()
    wait_told(page, "not a class")
    until(lambda: labelling.votes() == {first: {"Ada": "4"}})
