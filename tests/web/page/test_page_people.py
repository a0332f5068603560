"""Several people at once: names, items that nobody gets twice, disagreements."""

from tests.web.page.browsing import press_and_see, shown, until, wait_saved
from tests.web.page.conftest import KINDS


def test_the_name_is_asked_once(make, visit):
    labelling = make(5)
    page = visit(labelling.url, name=None)
    page.get_by_role("dialog").get_by_role("textbox").fill("Zoë 李")
    page.keyboard.press("Enter")
    first = shown(page)
    press_and_see(page, "1")
    wait_saved(page)
    assert labelling.votes() == {first: {"Zoë 李": "1"}}
    page.reload()
    shown(page)
    assert not page.get_by_role("dialog").is_visible()


def test_two_browsers_at_once_never_get_the_same_item(make, visit):
    labelling = make(40)
    pages = {name: visit(labelling.url, name=name) for name in ("Ada", "Bob")}
    said = {}
    for _ in range(15):  # more than they borrow at first, and each at least two when it is over
        for name, page in pages.items():
            item = shown(page)
            assert item not in said
            said[item] = {name: str(KINDS[item])}
            page.keyboard.press(said[item][name])
    for page in pages.values():
        wait_saved(page)
    assert labelling.votes() == said


def test_each_sees_what_all_have_done(make, visit):
    labelling = make(20)
    ada, bob = (visit(labelling.url, name=name) for name in ("Ada", "Bob"))
    shown(bob)
    press_and_see(ada, "1")
    bob.locator(".people").get_by_text("Ada").wait_for()
    bob.get_by_text("1 of 20").first.wait_for()


def test_a_change_of_name_gives_the_items_back(make, visit):
    labelling = make(8)
    page = visit(labelling.url)
    first = shown(page)
    page.get_by_role("button", name="Labelling as Ada").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("Bob")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Labelling as Bob").wait_for()
    assert shown(page) == first
    press_and_see(page, "6")
    wait_saved(page)
    assert labelling.votes() == {first: {"Bob": "6"}}


def disagree(labelling, ids):
    with labelling.open_record() as record:
        record.tell(dict.fromkeys(ids, "1"), by="Kim <b>bold</b>")
        record.tell(dict.fromkeys(ids, "2"), by="Lee")


def test_review_settles_disagreements(make, visit):
    labelling = make(10)
    disagree(labelling, [0, 1])
    page = visit(labelling.url)
    page.get_by_role("link", name="Review 2").wait_for()
    page.keyboard.press("r")
    page.locator(".review .stage[data-item]").wait_for()  # until then, the item to label is shown
    first = shown(page)
    assert first in (0, 1)
    votes = page.get_by_role("list", name="Votes")
    assert votes.get_by_role("listitem").all_inner_texts() == ["1\nKim <b>bold</b>", "2\nLee"]
    press_and_see(page, "2")
    page.keyboard.press("1")
    page.get_by_text("No disagreements").wait_for()
    labels = labelling.ledger().labels
    assert (labels[first], labels[1 - first]) == ("2", "1")


def test_a_disagreement_can_be_left_for_later_and_its_settling_undone(make, visit):
    labelling = make(10)
    disagree(labelling, [0, 1])
    page = visit(labelling.url + "#review")
    first = shown(page)
    second = press_and_see(page, "s")
    assert {first, second} == {0, 1}
    assert press_and_see(page, "2") == first
    until(lambda: second in labelling.ledger().labels)
    page.keyboard.press("u")
    until(lambda: second not in labelling.ledger().labels)
    page.get_by_role("link", name="Review 2").wait_for()


def test_a_hostile_name_is_shown_as_text(make, visit):
    labelling = make(5)
    name = "<img src=x onerror=globalThis.caught=1>"
    page = visit(labelling.url, name=name)
    press_and_see(page, "1")
    page.locator(".people").get_by_text(name).wait_for()
    assert page.evaluate("globalThis.caught") is None
    wait_saved(page)
    assert [list(said) for said in labelling.votes().values()] == [[name]]


def test_a_link_with_the_token_works_from_a_mail_or_a_chat(make, visit, start_server):
    home = make(5).project.home
    server = start_server(home, "--no-training", "--token", "open-sesame")
    page = visit("about:blank")
    link = f"<a href='{server.url}?token=open-sesame'>come and label</a>"
    page.route(
        "http://chat.example/",
        lambda route: route.fulfill(body=link, status=200, content_type="text/html"),
    )
    page.goto("http://chat.example/")
    page.get_by_text("come and label").click()
    shown(page)
    assert page.url == server.url
