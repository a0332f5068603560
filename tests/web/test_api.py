"""The API, over a real campaign of pictures, texts or numbers and a real record."""

import csv
import json
import threading

import pytest
from starlette.testclient import TestClient

from labelwise.campaign.project import Project
from labelwise.record.events import Told, Trained, Training, TrainingFailed
from labelwise.web.app import create_app
from tests.web.conftest import CLASSES, ask


def append(project, *events):
    project.open_record().commit(lambda ledger, now: (list(events), None))


def lend(client, count=5):
    return [item["id"] for item in client.post("/api/lend", json={"count": count}).json()["items"]]


def tell(client, labels, **more):
    body = {"labels": [{"id": id, "label": label} for id, label in labels.items()], **more}
    return client.post("/api/labels", json=body)


def test_campaigns_of_one_name_are_told_apart_and_stay_the_same_after_a_restart(digits, tmp_path):
    def session(place, **named):
        home = tmp_path / place / "digits.labelwise"
        if home.exists():
            project = Project.open(home)
        else:
            project = Project.start(digits.folder, home=home, classes=CLASSES, lend_seconds=45.0)
        with TestClient(create_app(project, trains=False, **named)) as client:
            headers = {"Host": "127.0.0.1", "Authorization": f"Bearer {named.get('token')}"}
            return client.get("/api/session", headers=headers).json()

    first, second = session("a"), session("b")
    assert first["campaign"] == second["campaign"]
    assert first["id"] != second["id"]
    assert session("a")["id"] == first["id"] == session("a", token="open-sesame")["id"]
    assert first["lend_seconds"] == 45


def test_a_session_tells_the_campaign_its_classes_and_their_keys(page, project):
    session = page("ann").get("/api/session", params={"name": " Ann Lee "}).json()
    assert session["name"] == "Ann Lee"
    assert (session["campaign"], session["kind"]) == (project.name, "images")
    assert [(one["value"], one["key"]) for one in session["classes"]] == [(c, c) for c in CLASSES]
    assert not session["free"] and not session["regression"] and not session["trains"]
    assert project.open_record().ledger().length == 2  # nothing is recorded


def test_classes_that_are_no_digits_get_the_keys_from_1(make_project):
    made = make_project(classes=["cat", "dog", "9"])
    with TestClient(create_app(made, trains=False), base_url="http://127.0.0.1") as client:
        classes = client.get("/api/session").json()["classes"]
    assert [(one["name"], one["key"]) for one in classes] == [
        ("cat", "1"),
        ("dog", "2"),
        ("9", "3"),
    ]


def test_an_item_comes_with_its_picture_its_place_and_why_it_was_chosen(page, digits):
    client = page("ann")
    first = client.post("/api/lend", json={"count": 1}).json()["items"][0]
    assert (first["id"], first["batch"], first["rank"]) == (0, 1, 1)
    assert first["name"] == "scan-0000.png" and "at random" in first["why"]
    answer = client.get(first["image"])
    assert answer.content == (digits.folder / "scan-0000.png").read_bytes()
    assert answer.headers["Content-Type"] == "image/png"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    assert "max-age" in answer.headers["Cache-Control"]
    again = client.get(first["image"], headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status_code == 304 and again.content == b""


def test_two_people_never_hold_the_same_item(page):
    ann, bob = page("ann"), page("bob")
    first, second = lend(ann, 7), lend(bob, 9)
    assert len(first) == 7 and len(second) == 9
    assert not set(first) & set(second)
    assert lend(ann, 7) == first  # one's own leases come again


def test_labels_and_the_next_loan_are_one_commit(page, project):
    client = page("ann")
    ids = lend(client, 3)
    before = project.open_record().ledger().length
    answer = tell(client, {ids[0]: "3", ids[1]: "5"}, lend=3).json()
    assert answer["accepted"] == 2
    assert [item["id"] for item in answer["items"]] == [ids[2], 3, 4]
    ledger = project.open_record().ledger()
    assert ledger.labels == {ids[0]: "3", ids[1]: "5"}
    assert answer["length"] == ledger.length == before + 3  # two labels, one loan
    written = project.storage().read(project.name, before)
    assert len({event.at for event in written}) == 1


def test_a_refused_label_leaves_nothing_behind(page, project):
    client = page("ann")
    before = project.open_record().ledger().length
    wrong = tell(client, {0: "3", 1: "cat"}, lend=5)
    assert wrong.status_code == 400
    assert wrong.json() == {
        "error": "label of item 1 is 'cat', which is not a class; choose from "
        "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    }
    assert tell(client, {149: "3"}).status_code == 404  # never asked for
    assert client.post("/api/skip", json={"id": 149}).status_code == 404
    twice = {"labels": [{"id": 1, "label": "1"}, {"id": 1, "label": "2"}]}
    assert client.post("/api/labels", json=twice).status_code == 400
    assert project.open_record().ledger().length == before


def test_a_repeated_call_changes_nothing(page, project):
    client = page("ann")
    first = tell(client, {0: "3"}).json()
    assert tell(client, {0: "3"}).json() == first
    assert project.open_record().ledger().vote_count == 1


def test_seconds_are_kept(page, project):
    body = {"labels": [{"id": 0, "label": "3", "seconds": 2.5}, {"id": 1, "label": "3"}]}
    assert page("ann").post("/api/labels", json=body).status_code == 200
    told = [e for e in project.storage().read(project.name) if isinstance(e, Told)]
    assert [(event.id, event.seconds) for event in told] == [(0, 2.5), (1, None)]


def test_undo_takes_back_and_lends_again_until_nothing_is_left(page, project):
    client = page("ann")
    tell(client, {0: "3"})
    client.post("/api/skip", json={"id": 1, "reason": "blurred"})
    assert client.post("/api/undo", json={}).json()["item"]["id"] == 1
    assert client.post("/api/undo", json={}).json()["item"]["id"] == 0
    assert client.post("/api/undo", json={}).json() == {"item": None}
    ledger = project.open_record().ledger()
    assert not ledger.labels and not ledger.skipped
    assert set(lend(page("bob"), 20)).isdisjoint({0, 1})


def test_a_skip_keeps_its_reason_and_can_lend_the_next(page, project):
    reason = "zu dunkel – 🌑"
    answer = page("ann").post("/api/skip", json={"id": 0, "reason": reason, "lend": 2}).json()
    assert [item["id"] for item in answer["items"]] == [1, 2]
    assert project.open_record().ledger().skipped[0].reason == reason


def test_returned_items_go_to_others_at_once(page):
    ann, bob = page("ann"), page("bob")
    ids = lend(ann, 20) + lend(page("cem"), 20)
    assert len(ids) == 20 and lend(bob, 5) == []
    ann.post("/api/return", json={"ids": ids[:3]})
    assert lend(bob, 5) == ids[:3]
    ann.post("/api/return", json={})
    assert lend(bob, 10) == ids[:10]


def test_a_name_in_any_language_is_kept_as_it_is(page, project):
    from urllib.parse import quote

    client = page("ann")
    name = "Jörg 李"
    headers = {"X-Annotator": quote(name)}
    body = {"labels": [{"id": 0, "label": "3"}]}
    assert client.post("/api/labels", json=body, headers=headers).status_code == 200
    assert project.open_record().ledger().votes[0] == {name: "3"}
    state = client.get("/api/state", headers=headers).json()
    assert state["you"]["name"] == name


@pytest.mark.parametrize(
    "name", ["%", "%E9", "a%00b", "a%0Ab", "%20", "a%E2%80%AEb", "x" * 81, "%F0%9F", "é"]
)
def test_names_with_hidden_or_broken_letters_are_refused(page, project, name):
    client = page("ann")
    answer = client.post(
        "/api/lend", json={"count": 1}, headers={"X-Annotator": name.encode("latin-1")}
    )
    assert answer.status_code in (400, 422)
    assert list(answer.json()) == ["error"]
    assert project.open_record().ledger().length == 2


def test_a_name_that_is_markup_is_given_back_as_json_only(page):
    client = page("ann")
    name = '<script>alert("x")</script>'
    answer = client.get("/api/session", params={"name": name})
    assert answer.json()["name"] == name
    assert answer.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("path", ["lend", "labels", "skip", "undo", "return", "resolve", "train"])
def test_a_change_needs_a_name(page, path):
    client = page("ann")
    del client.headers["X-Annotator"]
    assert client.post(f"/api/{path}", json={}).status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"labels": []}',
        b'{"labels": [{"id": true, "label": 1}]}',
        b'{"labels": [{"id": "0", "label": 1}]}',
        b'{"labels": [{"id": 0, "label": NaN}]}',
        b'{"labels": [{"id": 0, "label": null}]}',
        b'{"labels": [{"id": 0, "label": ["3"]}]}',
        b'{"labels": [{"id": 0, "label": "3", "seconds": -1}]}',
        b'{"labels": [{"id": 0, "label": "3", "seconds": Infinity}]}',
        b'{"labels": [{"id": 0, "label": "3"}], "lend": 51}',
        b'{"labels": [{"id": 0, "label": "a\\u0000b"}]}',
        b'{"labels": [{"id": 0, "label": "\\ud800"}]}',
        b'{"labels": [{"id": 9223372036854775808, "label": "3"}]}',
        b'{"labels": [{"id": 0, "label": "3", "by": "eve"}]}',
        b'{"labels": [{"id": 0, "label": ' + b"9" * 5000 + b"}]}",
    ],
)
def test_a_body_that_does_not_fit_is_refused_in_one_line(page, project, body):
    headers = {"Content-Type": "application/json"}
    answer = page("ann").post("/api/labels", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    error = answer.json()["error"]
    assert error and "\n" not in error and "Traceback" not in error
    assert project.open_record().ledger().length == 2


def test_a_form_of_another_site_is_no_json(page, project):
    answer = page("ann").post("/api/lend", data={"count": "1"})
    assert answer.status_code == 422
    assert project.open_record().ledger().length == 2


def test_unknown_addresses_and_methods_answer_in_json(page):
    client = page("ann")
    assert client.get("/api/nothing").json() == {"error": "this address does not exist"}
    wrong = client.delete("/api/lend")
    assert wrong.status_code == 405 and list(wrong.json()) == ["error"]
    assert client.request("PUT", "/api/settings").headers["Allow"] == "GET, POST"
    assert client.get("/docs").status_code == 404


def test_an_unexpected_error_tells_nothing_of_the_inside(page, project):
    client = page("ann")
    (project.home / "items.jsonl").write_text('{"id": 5}\n')
    project.items._lines._index_lines()
    answer = client.post("/api/lend", json={"count": 1})
    assert answer.status_code >= 400
    assert list(answer.json()) == ["error"] and "Traceback" not in answer.text


def test_the_state_says_how_far_the_batch_is_and_who_did_what(page):
    ann, bob = page("ann"), page("bob")
    tell(ann, {0: "3", 1: "4"})
    bob.post("/api/skip", json={"id": 2})
    state = ann.get("/api/state").json()
    expected = {"number": 1, "size": 20, "done": 3, "waiting": 17, "rolling": False}
    assert state["batch"] == expected
    assert (state["items"], state["labelled"], state["skipped"]) == (150, 2, 1)
    assert state["budget"]["labels"] == 2
    assert (state["you"]["labels"], state["you"]["skips"]) == (2, 0)
    shown = {one["name"]: (one["labels"], one["skips"]) for one in state["annotators"]}
    assert shown == {"ann": (2, 0), "bob": (0, 1)}
    assert state["advice"].startswith("Keep labelling")
    assert [line["rule"] for line in state["rules"]] == ["budget", "stable", "flat", "spectrum"]
    assert not state["stop"]


def test_the_state_shows_the_curve_a_training_and_its_failure(page, project):
    client = page("ann")
    append(project, Training(1.0, 1, 40, "cli"))
    assert client.get("/api/state").json()["training"]["running"]
    metrics = {"accuracy": 0.8, "interval": [0.7, 0.9], "validation_labels": 50}
    append(project, Trained(2.0, 1, 40, 3.0, metrics))
    state = client.get("/api/state").json()
    assert not state["training"]["running"] and state["training"]["error"] is None
    (point,) = state["curve"]
    assert (point["labels"], point["accuracy"], point["low"], point["high"]) == (40, 0.8, 0.7, 0.9)
    append(project, Training(3.0, 2, 60, "cli"), TrainingFailed(4.0, 2, "loss is NaN"))
    training = client.get("/api/state").json()["training"]
    assert (training["running"], training["error"]) == (False, "loss is NaN")


def test_a_guess_is_shown_only_where_a_model_made_one(page, project):
    client = page("ann")
    assert client.get("/api/items/0/guess").status_code == 404
    assert client.get("/api/items/149/guess").status_code == 404
    append(project, Training(1.0, 1, 2), Trained(2.0, 1, 2, 1.0, {}))
    ask(project, [30, 31], model=1, guesses=(("4", 0.75), ("9", 0.5)))
    assert client.get("/api/items/31/guess").json() == {"label": "9", "confidence": 0.5}
    item = tell(client, {i: "1" for i in range(20)}, lend=1).json()["items"][0]
    assert item["id"] == 30
    assert "0.75" not in json.dumps(item) and '"4"' not in json.dumps(item)


def test_disagreements_are_listed_and_settled(make_project):
    made = make_project(overlap=2)
    ask(made, range(5))
    with TestClient(create_app(made, trains=False), base_url="http://127.0.0.1") as client:
        code = client.get("/api/session").json()["csrf"]
        for name, label in (("ann", "1"), ("bob", "7")):
            client.headers.update({"X-Annotator": name, "X-Labelwise-Csrf": code})
            assert tell(client, {0: label, 1: "2"}).status_code == 200
        (found,) = client.get("/api/disagreements").json()
        assert found["id"] == 0 and found["item"]["image"] == "/api/items/0/image"
        assert found["votes"] == [{"by": "ann", "label": "1"}, {"by": "bob", "label": "7"}]
        assert client.post("/api/resolve", json={"id": 0, "label": "7"}).status_code == 200
        assert client.post("/api/resolve", json={"id": 4, "label": "7"}).status_code == 404
        assert client.get("/api/disagreements").json() == []
    assert made.open_record().ledger().labels == {0: "7", 1: "2"}


def test_history_is_told_newest_first(page):
    client = page("ann")
    tell(client, {0: "3"})
    lines = client.get("/api/history", params={"limit": 2}).json()
    assert [(line["number"], line["kind"]) for line in lines] == [(2, "told"), (1, "asked")]
    assert lines[0]["by"] == "ann" and lines[0]["says"] == "ann labelled item 0 3"
    assert client.get("/api/history", params={"limit": 0}).status_code == 422


def test_the_export_holds_the_labels_in_both_formats(page):
    client = page("ann")
    tell(client, {0: "3", 4: "7"})
    table = client.get("/api/export")
    assert table.headers["Content-Disposition"] == 'attachment; filename="labels.csv"'
    assert [line.split(",")[:3] for line in table.text.splitlines()] == [
        ["id", "item", "label"],
        ["0", "scan-0000.png", "3"],
        ["4", "scan-0004.png", "7"],
    ]
    rows = [json.loads(line) for line in client.get("/api/export?format=jsonl").text.splitlines()]
    assert [(row["id"], row["label"], row["by"]) for row in rows] == [
        (0, "3", "ann"),
        (4, "7", "ann"),
    ]
    assert client.get("/api/export?format=exe").status_code == 422
    assert client.get("/api/export?format=jsonl&spreadsheet=true").status_code == 400


def test_the_export_for_spreadsheets_holds_no_formula(page):
    client = page("=cmd|' /C calc'!A0")
    client.post("/api/labels", json={"labels": [{"id": 3, "label": "7"}]})
    exact, harmless = (
        next(csv.DictReader(client.get(f"/api/export{query}").text.splitlines()))
        for query in ("", "?spreadsheet=true")
    )
    assert exact["by"] == "=cmd|' /C calc'!A0"
    assert harmless == exact | {"by": "'=cmd|' /C calc'!A0"}


def test_a_server_that_does_not_train_says_so(page):
    answer = page("ann").post("/api/train", json={})
    assert answer.status_code == 400
    assert answer.json() == {"error": "this server does not train; run labelwise train"}


def test_fifty_annotators_at_once_lose_nothing_and_share_nothing(page, project):
    held: dict[str, list[int]] = {}

    def work(name):
        client = page(name)
        (mine,) = lend(client, 1) or [None]
        if mine is not None:
            assert tell(client, {mine: "3"}).status_code == 200
            held[name] = [mine]

    ask(project, range(20, 60))
    threads = [threading.Thread(target=work, args=(f"person {n}",)) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [item for mine in held.values() for item in mine]
    assert len(ids) == 50 and len(set(ids)) == 50
    ledger = project.open_record().ledger()
    assert {id: votes for id, votes in ledger.votes.items()} == {
        mine[0]: {name: "3"} for name, mine in held.items()
    }
