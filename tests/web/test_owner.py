"""Settings, classes, notes and the invitation through the API."""

import pytest
from starlette.testclient import TestClient

from labelwise.web.app import create_app


@pytest.fixture
def enter(project):
    """Gives a client of the server, on its own machine or elsewhere: ``enter(address)``."""
    clients = []

    def make(address="127.0.0.1", **options):
        app = create_app(project, trains=False, **options)
        client = TestClient(app, base_url="http://127.0.0.1", client=(address, 5000))
        clients.append(client)
        if "token" in options:
            client.headers["Authorization"] = f"Bearer {options['token']}"
        code = client.get("/api/session", params={"name": "ann"}).json()["csrf"]
        client.headers.update({"X-Annotator": "ann", "X-Labelwise-Csrf": code})
        return client

    yield make
    for client in clients:
        client.close()


def test_the_owner_changes_settings_and_others_cannot(project, enter):
    owner, guest = enter(), enter("192.0.2.7")
    assert owner.get("/api/session").json()["owner"] is True
    assert guest.get("/api/session").json()["owner"] is False
    before = owner.get("/api/settings").json()
    assert before["strategy"] == "margin"
    assert {"margin", "random", "entropy"} <= {one["name"] for one in before["strategies"]}
    assert all(one["says"] for one in before["strategies"])
    changes = {"batch": 7, "goal": 0.9, "budget_labels": 100, "strategy": "entropy"}
    assert guest.post("/api/settings", json=changes).status_code == 400
    assert owner.post("/api/settings", json=changes).status_code == 200
    assert owner.post("/api/settings", json={"batch": None, "goal": None}).status_code == 200
    settings = project.open_record().settings
    assert (settings.batch, settings.goal, settings.budget_labels) == (7, None, 100)
    assert settings.strategy == "entropy"


def test_a_strategy_that_the_model_cannot_serve_is_refused(enter):
    answer = enter().post("/api/settings", json={"strategy": "dynamics"})
    assert answer.status_code == 400


def test_a_request_through_a_proxy_is_not_the_owner(enter):
    client = enter()
    answer = client.post("/api/settings", json={"batch": 7}, headers={"X-Forwarded-For": "x"})
    assert answer.status_code == 400


@pytest.mark.parametrize("new", ["ten", "9"], ids=["renamed", "merged"])
def test_labels_follow_a_class_that_is_renamed_or_merged(project, enter, new):
    record = project.open_record()
    record.tell({0: "3", 1: "9", 2: "3"}, by="ann")
    record.tell({3: "4"}, by="bob")
    record.tell({3: "3"}, by="cem")
    record.resolve({3: "3"}, by="bob")
    before = dict(record.ledger().labels)
    body = {"name": "3", "rename": new, "description": "three dots"}
    assert enter("192.0.2.7").post("/api/classes", json=body).status_code == 400
    assert enter().post("/api/classes", json=body).status_code == 200
    after = project.open_record()
    assert after.ledger().labels == {
        item: new if label == "3" else label for item, label in before.items()
    }
    names = [new if name == "3" else name for name in map(str, range(10))]
    assert list(after.settings.classes) == list(
        dict.fromkeys(
            names if new == "ten" else [name for name in map(str, range(10)) if name != "3"]
        )
    )
    assert after.settings.descriptions == {new: "three dots"}


def test_anyone_can_add_a_class_once(project, enter):
    guest = enter("192.0.2.7")
    assert guest.post("/api/classes", json={"name": "ten"}).status_code == 200
    assert project.open_record().settings.classes[-1] == "ten"
    assert guest.post("/api/classes", json={"name": "ten"}).status_code == 400
    unknown = {"name": "eleven", "rename": "twelve"}
    assert enter().post("/api/classes", json=unknown).status_code == 400


def test_notes_are_kept_listed_and_removed(project, enter):
    client = enter()
    assert client.post("/api/note", json={"id": 5, "text": "unsure"}).status_code == 200
    assert client.post("/api/note", json={"id": 10**6, "text": "unsure"}).status_code == 404
    listed = client.get("/api/items", params={"show": "noted"}).json()
    assert [(row["id"], row["notes"]) for row in listed["rows"]] == [(5, ["ann: unsure"])]
    assert client.post("/api/note", json={"id": 5, "text": ""}).status_code == 200
    assert client.get("/api/items", params={"show": "noted"}).json()["total"] == 0
    assert not project.open_record().ledger().notes


def test_an_invitation_needs_a_server_that_others_can_reach(enter):
    assert enter().get("/api/invitation").json()["addresses"] == []
    open_to_all = enter(host="0.0.0.0", token="open-sesame")
    (address,) = open_to_all.get("/api/invitation").json()["addresses"]
    assert address.startswith("http://") and address.endswith("/?token=open-sesame")
