"""Pages that are left, at the API: in whatever order their last calls arrive."""

import time

import pytest
from starlette.testclient import TestClient

from labelwise.record.events import Asked, Lent, Returned
from labelwise.record.ledger import replay
from labelwise.web.app import create_app
from labelwise.web.leases import PageLeases, Visitor


@pytest.fixture
def project(make_project):
    made = make_project(overlap=1)
    made.open_record().commit(lambda ledger, now: ([Asked(now, 1, tuple(range(12)))], None))
    return made


@pytest.fixture
def page(project):
    """Pages of one server: ``page("ann", "tab-1")`` gives ``call(path, **body)``."""
    with TestClient(create_app(project, trains=False), base_url="http://127.0.0.1:8600") as client:
        code = client.get("/api/session").json()["csrf"]

        def enter(name, word=""):
            headers = {"X-Annotator": name, "X-Labelwise-Csrf": code}
            headers |= {"X-Labelwise-Page": word} if word else {}

            def call(path, **body):
                return client.post(f"/api/{path}", json=body, headers=headers)

            return call

        yield enter


def ids(answer):
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


def lent(project, name):
    now, held = time.time(), project.open_record().ledger().leases
    return sorted(item for item, people in held.items() if people.get(name, 0) > now)


def test_a_large_grid_leaves_half_of_the_waiting_items_to_others(make_project):
    made = make_project(overlap=1)
    made.open_record().commit(lambda ledger, now: ([Asked(now, 1, tuple(range(20)))], None))
    with TestClient(create_app(made, trains=False), base_url="http://127.0.0.1:8600") as client:
        code = client.get("/api/session").json()["csrf"]
        headers = {"X-Labelwise-Csrf": code, "X-Labelwise-Page": "tab"}

        def lend(name, count):
            sent = {**headers, "X-Annotator": name}
            return ids(client.post("/api/lend", json={"count": count}, headers=sent))

        assert lend("ann", 40) == lend("ann", 40) == list(range(10))
        assert lend("bob", 40) == list(range(10, 20))


def test_what_a_page_was_lent_without_hearing_of_it_goes_back_too(page, project):
    tab = page("ann", "tab-1")
    assert ids(tab("lend", count=3)) == [0, 1, 2]
    ids(tab("labels", labels=[{"id": 0, "label": "3"}], lend=4))  # its answer is lost
    assert lent(project, "ann") == [1, 2, 3, 4]
    assert tab("leave", ids=[1, 2]).status_code == 200
    assert lent(project, "ann") == []
    assert ids(page("bob")("lend", count=2)) == [1, 2]


def test_an_answer_that_arrives_after_the_page_is_left_counts_and_borrows_nothing(page, project):
    tab = page("ann", "tab-1")
    assert ids(tab("lend", count=3)) == [0, 1, 2]
    assert tab("leave", ids=[1, 2], answered=[0]).status_code == 200
    assert lent(project, "ann") == [0]
    assert ids(page("bob")("lend", count=2)) == [1, 2]  # not 0, whose label is on its way
    assert ids(tab("labels", labels=[{"id": 0, "label": "3"}], lend=5)) == []
    assert project.open_record().ledger().labels == {0: "3"}
    assert lent(project, "ann") == []


@pytest.mark.parametrize("call", ["lend", "skip", "undo"])
def test_no_call_that_arrives_late_borrows_for_a_page_that_is_left(page, project, call):
    tab = page("ann", "tab-1")
    ids(tab("lend", count=2))
    ids(tab("labels", labels=[{"id": 0, "label": "3"}]))
    tab("leave", ids=[1])
    body = {"lend": {"count": 5}, "skip": {"id": 1, "lend": 5}, "undo": {}}[call]
    assert tab(call, **body).status_code == 200
    assert lent(project, "ann") == []
    ledger = project.open_record().ledger()
    assert (0 in ledger.labels) == (call != "undo")
    assert (1 in ledger.skipped) == (call == "skip")


def test_the_same_person_on_another_page_keeps_theirs_and_gets_more(page, project):
    first, second = page("ann", "tab-1"), page("ann", "tab-2")
    assert ids(first("lend", count=4)) == [0, 1, 2, 3]
    assert ids(second("lend", count=2)) == [0, 1]
    first("leave", ids=[0, 1, 2, 3])
    assert lent(project, "ann") == [0, 1]
    assert ids(second("lend", count=3)) == [0, 1, 2]
    second("leave")
    assert lent(project, "ann") == []


def test_what_a_program_borrowed_under_the_same_name_stays_lent(page, project):
    assert ids(page("ann")("lend", count=2)) == [0, 1]
    assert ids(page("ann", "tab-1")("lend", count=3)) == [0, 1, 2]
    page("ann", "tab-1")("leave", ids=[0, 1, 2])
    assert lent(project, "ann") == [0, 1]


def test_nobody_leaves_for_another_person(page, project):
    assert ids(page("ann", "tab-1")("lend", count=2)) == [0, 1]
    assert page("bob", "tab-1")("leave", ids=[0, 1]).status_code == 200
    assert lent(project, "ann") == [0, 1]
    assert ids(page("ann", "tab-1")("lend", count=3)) == [0, 1, 2]


def test_after_a_restart_of_the_server_a_page_gives_back_what_it_names(project):
    for number, call in enumerate(["lend", "leave"]):
        with TestClient(create_app(project, trains=False), base_url="http://127.0.0.1") as client:
            code = client.get("/api/session").json()["csrf"]
            headers = {"X-Annotator": "ann", "X-Labelwise-Csrf": code, "X-Labelwise-Page": "tab-1"}
            body = [{"count": 3}, {"ids": [0, 1, 2, 99]}][number]
            assert client.post(f"/api/{call}", json=body, headers=headers).status_code == 200
            assert lent(project, "ann") == [[0, 1, 2], []][number]


def test_a_page_without_a_name_cannot_be_left(page):
    answer = page("ann")("leave", ids=[0])
    assert answer.status_code == 400
    assert "X-Labelwise-Page is missing" in answer.json()["error"]


def test_items_that_a_page_gave_up_do_not_keep_another_page_from_giving_them_back():
    pages, first, second = PageLeases(), Visitor("ann", "1"), Visitor("ann", "2")
    pages.hold_items(first, [1, 2, 3], until=600.0)
    pages.hold_items(second, [1, 2, 3], until=600.0)
    ledger = replay([Lent(0.0, (1, 2, 3), "ann", 600.0)])
    assert pages.return_items(ledger, second, [2], now=0.0) == [Returned(0.0, (2,), "ann")]
    assert pages.close_page(first, [], now=0.0) == [2]


def test_a_page_that_vanished_without_a_word_counts_only_until_its_loans_lapse():
    pages, crashed, tab = PageLeases(), Visitor("ann", "1"), Visitor("ann", "2")
    pages.hold_items(crashed, [1, 2], until=600.0)
    pages.hold_items(tab, [1, 2, 3], until=900.0)
    assert pages.close_page(tab, [], now=700.0) == [1, 2, 3]


def test_only_so_many_pages_are_kept_in_mind():
    pages = PageLeases(most=3)
    for number in range(10):
        pages.hold_items(Visitor("ann", f"held-{number}"), [number], until=600.0)
        pages.close_page(Visitor("ann", f"left-{number}"), [], now=0.0)
    kept = range(7, 10)
    assert [visitor.page for visitor in pages._closed] == [f"left-{number}" for number in kept]
    assert pages.close_page(Visitor("ann", "last"), range(10), now=0.0) == list(range(7))
