"""A page that is closed or left: others get its items at once, and no answer is lost."""

import time

import pytest

from tests.web.conftest import PATIENCE
from tests.web.page.browsing import press_and_see, shown, until, wait_saved
from tests.web.page.conftest import CHROMIUM, FLAGS, KINDS
from tests.web.page.test_page_grid import ids


def lent_to(labelling, name):
    """The items that someone has on loan now."""
    now, loans = time.time(), labelling.ledger().leases
    return {item for item, people in loans.items() if people.get(name, 0) > now}


def finish(page, votes):
    """Label with what they are all items that come; ``{id: label}``."""
    given = {}
    while len(given) < votes:
        item = shown(page)
        given[item] = str(KINDS[item])
        page.keyboard.press(given[item])
        page.wait_for_function(
            "before => document.querySelector('.stage').dataset.item !== before", arg=str(item)
        )
    wait_saved(page)
    return given


@pytest.mark.parametrize("how", ["closed", "left"])
def test_another_person_gets_the_items_of_a_page_that_is_gone_at_once(make, visit, how):
    labelling = make(8, batch=40)
    ada = visit(labelling.url)
    press_and_see(ada, "3")
    wait_saved(ada)
    assert len(lent_to(labelling, "Ada")) == 7
    bob = visit(labelling.url, name="Bob")
    bob.get_by_role("heading", name="Nothing left for you at the moment").wait_for()
    if how == "closed":
        ada.close(run_before_unload=True)
    else:
        ada.goto("about:blank")
    given = finish(bob, 7)
    assert set(given) | {0} == set(range(8))
    votes = labelling.votes()
    assert votes.pop(0) == {"Ada": "3"}
    assert votes == {item: {"Bob": label} for item, label in given.items()}


def test_a_label_given_in_the_last_moment_counts_and_nothing_stays_borrowed(make, visit):
    labelling = make(30, batch=40)
    first = visit(labelling.url)
    context = first.context
    first.close(run_before_unload=True)
    given = {}
    for _ in range(6):
        page = context.new_page()
        page.goto(labelling.url)
        item = shown(page)
        given[item] = str(KINDS[item])
        page.evaluate(
            "key => { document.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));"
            " location.href = 'about:blank' }",
            given[item],
        )
        until(lambda item=item: item in labelling.votes())
        until(lambda: not lent_to(labelling, "Ada"))
        page.wait_for_url("about:blank")  # Chromium may never close a page on its way elsewhere
        page.close()
    assert len(given) == 6
    assert labelling.votes() == {item: {"Ada": label} for item, label in given.items()}


def test_labels_behind_one_on_its_way_are_sent_when_the_page_is_left(make, visit):
    labelling = make(10, batch=40)
    page = visit(labelling.url)
    first = shown(page)
    keys = "123"
    page.evaluate(
        """keys => {
          const press = (key) =>
            document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
          press(keys[0]);
          setTimeout(() => {  // the first is on its way; the others have to wait for its answer
            press(keys[1]);
            press(keys[2]);
            location.href = "about:blank";
          });
        }""",
        keys,
    )
    until(lambda: len(labelling.votes()) == 3)
    votes = labelling.votes()
    assert first in votes
    assert sorted(label for said in votes.values() for label in said.values()) == ["1", "2", "3"]
    until(lambda: not lent_to(labelling, "Ada"))
    page.wait_for_url("about:blank")


def test_what_another_tab_of_the_same_person_shows_stays_theirs(make, visit):
    labelling = make(8, batch=40)
    first = visit(labelling.url)
    shown(first)
    second = first.context.new_page()
    second.goto(labelling.url)
    item = shown(second)
    held = lent_to(labelling, "Ada")
    assert len(held) == 8
    length = labelling.ledger().length
    first.close(run_before_unload=True)
    second.wait_for_timeout(500)
    assert labelling.ledger().length == length
    assert lent_to(labelling, "Ada") == held
    press_and_see(second, "5")
    wait_saved(second)
    assert labelling.votes() == {item: {"Ada": "5"}}
    second.close(run_before_unload=True)
    until(lambda: not lent_to(labelling, "Ada"))


def test_a_reload_shows_the_same_item_and_keeps_it(make, visit):
    labelling = make(8, batch=40)
    page = visit(labelling.url)
    item = press_and_see(page, "1")
    wait_saved(page)
    page.reload()
    assert shown(page) == item
    page.wait_for_timeout(300)
    assert item in lent_to(labelling, "Ada")


def test_a_page_with_a_token_gives_back_too(make, visit, start_server):
    labelling = make(8, batch=40)
    server = start_server(labelling.project.home, "--no-training", "--token", "open-sesame")
    page = visit(server.url + "?token=open-sesame")
    shown(page)
    assert len(lent_to(labelling, "Ada")) == 8
    page.close(run_before_unload=True)
    until(lambda: not lent_to(labelling, "Ada"))


def test_what_was_lent_to_a_page_before_it_was_left_is_not_for_the_one_that_comes_back(make, visit):
    labelling = make(8, batch=40)
    page = visit(labelling.url)
    assert shown(page) == 0
    held = []  # an answer that is on its way while the page is away, as in the browser's cache
    page.route("**/api/lend", lambda route: held.append((route, route.fetch())), times=1)
    page.keyboard.press("g")
    until(lambda: page.wait_for_timeout(20) or held)
    page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide'))")
    until(lambda: not lent_to(labelling, "Ada"))
    with labelling.open_record() as record:
        assert record.lend("Bob", 1) == [0]
    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    until(lambda: ids(page) == list(range(1, 8)))
    (route, answer), *_ = held
    route.fulfill(response=answer)
    page.wait_for_timeout(300)
    assert ids(page) == list(range(1, 8))


@pytest.fixture
def with_cache(chromium):
    """A browser that keeps pages which are left, as people's browsers do."""
    browser = chromium.browser_type.launch(
        executable_path=CHROMIUM,
        args=FLAGS,
        ignore_default_args=["--disable-back-forward-cache"],
        timeout=1000 * PATIENCE,
    )
    yield browser
    browser.close()


def left_and_kept(labelling, page):
    """Leave a page and come back to it, the first item being with Bob now; whether it was kept."""
    page.set_default_timeout(1000 * PATIENCE)
    page.add_init_script("try { localStorage['labelwise/name'] ??= 'Ada' } catch {}")
    page.add_init_script(
        "addEventListener('pageshow', (event) => { globalThis.kept = event.persisted })"
    )
    page.goto(labelling.url)
    first = shown(page)
    page.evaluate("globalThis.known = true")
    page.goto(labelling.url + "static/icon.svg")
    until(lambda: not lent_to(labelling, "Ada"))
    with labelling.open_record() as record:
        assert record.lend("Bob", 1) == [first]
    page.go_back(wait_until="commit")
    if not page.evaluate("globalThis.known"):
        return False  # it was loaded anew
    page.wait_for_function("globalThis.kept")
    return True


def test_a_page_that_the_browser_kept_borrows_anew_when_it_is_shown_again(make, with_cache):
    for _ in range(5):  # a browser in need throws away what it had kept
        labelling, page = make(8, batch=40), with_cache.new_page()
        if left_and_kept(labelling, page):
            break
    else:
        raise AssertionError("the browser keeps no page")
    find = "document.querySelector('.stage').dataset.item ?? null"
    until(lambda: page.evaluate(find) not in (None, "0"))
    item = int(page.evaluate(find))
    assert item in lent_to(labelling, "Ada")
    page.keyboard.press("4")
    until(lambda: labelling.votes() == {item: {"Ada": "4"}})
