"""Settings, classes, notes and the invitation through the API."""

import io
import zipfile
from functools import partial

import pytest
from PIL import Image
from starlette.testclient import TestClient

import labelwise
from labelwise.campaign.project import Project
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
    assert owner.post("/api/settings", json={"overlap": 1.0}).status_code == 200  # a whole number
    refused = owner.options("/api/settings")
    assert refused.status_code == 405 and refused.headers["Allow"] == "GET, POST"
    settings = project.open_record().settings
    assert (settings.batch, settings.goal, settings.budget_labels) == (7, None, 100)
    assert settings.strategy == "entropy"


def test_a_strategy_that_the_model_cannot_serve_is_refused(enter):
    answer = enter().post("/api/settings", json={"strategy": "dynamics"})
    assert answer.status_code == 400


OWNER_CALLS = [
    ("/api/settings", {"batch": 7}),
    ("/api/people", {"name": "bob", "removed": True}),
    ("/api/classes", {"name": "3", "rename": "three"}),
    ("/api/upload?name=a.png", {}),
]


@pytest.mark.parametrize(("path", "body"), OWNER_CALLS, ids=[path for path, _ in OWNER_CALLS])
def test_with_a_token_only_the_link_of_the_owner_allows_changes(enter, path, body):
    """Behind a proxy, every visitor has the address of the server's own machine."""
    guest = enter(token="open-sesame")
    assert guest.get("/api/session").json()["owner"] is False
    refused = guest.post(path, json=body)
    assert refused.status_code == 400 and "only the owner can do this" in refused.json()["error"]
    token = guest.app.site.policy.owner_token
    owner = TestClient(guest.app, base_url="http://127.0.0.1", client=("192.0.2.7", 5000))
    owner.get("/", params={"token": token})
    assert token not in str(owner.cookies)
    code = owner.get("/api/session").json()["csrf"]
    answer = owner.post(path, json=body, headers={"X-Annotator": "ann", "X-Labelwise-Csrf": code})
    assert "only the owner" not in answer.text


def test_an_annotator_becomes_the_owner_by_the_link_and_stays_it(enter):
    app = enter(token="open-sesame").app
    with TestClient(app, base_url="http://127.0.0.1", client=("192.0.2.7", 5000)) as client:
        owned = []
        for token in ("open-sesame", app.site.policy.owner_token, "open-sesame"):
            client.get("/", params={"token": token})
            owned.append(client.get("/api/session").json()["owner"])
    assert owned == [False, True, True]


def test_another_token_ends_the_link_of_the_owner(enter):
    old = enter(token="open-sesame").app.site.policy.owner_token
    client = enter(token="close-sesame")
    del client.headers["Authorization"]
    assert client.get("/", params={"token": old}).status_code == 401


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
    proxied = enter(token="open-sesame", allow_hosts=["labels.example"])
    invite = partial(proxied.get, "/api/invitation")
    assert invite().json()["addresses"] == []
    (address,) = invite(headers={"Host": "labels.example"}).json()["addresses"]
    assert address == "http://labels.example/?token=open-sesame"


def test_a_removed_person_is_kept_out_of_the_page(project, enter):
    owner = enter()
    items = owner.post("/api/lend", json={"count": 1}, headers={"X-Annotator": "bob"}).json()
    label = {"labels": [{"id": items["items"][0]["id"], "label": "cat"}]}
    body = {"name": "bob", "removed": True}
    assert enter("192.0.2.7").post("/api/people", json=body).status_code == 400
    assert owner.post("/api/people", json=body).status_code == 200
    refused = owner.post("/api/labels", json=label, headers={"X-Annotator": "bob"})
    assert refused.status_code == 400 and "was removed" in refused.json()["error"]
    assert owner.get("/api/session", params={"name": "bob"}).status_code == 400
    assert owner.get("/api/session", params={"name": "labelwise"}).status_code == 400
    assert owner.post("/api/people", json={**body, "removed": False}).status_code == 200
    assert owner.get("/api/session", params={"name": "bob"}).status_code == 200


def test_a_file_with_items_is_added_by_the_owner(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(12):
        Image.new("RGB", (16, 16), (20 * number, 0, 0)).save(folder / f"{number:02d}.png")
    project = Project.start(folder, home=tmp_path / "c.labelwise", encoder="none")
    app, address = create_app(project, trains=False), ("127.0.0.1", 5000)
    with TestClient(app, base_url="http://127.0.0.1", client=address) as owner:
        code = owner.get("/api/session", params={"name": "ann"}).json()["csrf"]
        owner.headers.update({"X-Annotator": "ann", "X-Labelwise-Csrf": code})
        Image.new("RGB", (16, 16), (0, 250, 0)).save(tmp_path / "green.png")
        content = (tmp_path / "green.png").read_bytes()
        for name, items in (("../../green.png", 1), ("green.png", 0)):
            answer = owner.post("/api/upload", params={"name": name}, content=content)
            assert answer.json() == {"items": items}
        refused = owner.post("/api/upload", params={"name": "bad.png"}, content=b"GIF")
        assert refused.status_code == 400 and "bad.png cannot be read" in refused.json()["error"]
        assert owner.get("/api/items/12/image").content == content
    assert [path.name for path in folder.glob("g*")] == ["green.png"]


def test_guests_add_nothing_and_features_are_added_elsewhere(enter):
    for address, words in (("192.0.2.7", "only the owner"), ("127.0.0.1", "features")):
        answer = enter(address).post("/api/upload?name=a.png", content=b"")
        assert answer.status_code == 400 and words in answer.json()["error"]


def test_the_model_is_downloaded(project, enter, tmp_path):
    owner = enter()
    assert owner.get("/api/model").status_code == 400  # there is none yet
    campaign = project.campaign()
    labels = {item: str(item % 2) for item in range(20)}
    campaign.tell(labels, by="ann")
    campaign.train()
    answer = owner.get("/api/model")
    assert answer.headers["content-type"] == "application/zip"
    zipfile.ZipFile(io.BytesIO(answer.content)).extractall(tmp_path / "download")
    model = labelwise.load_model(tmp_path / "download" / "model")
    rows = project.inputs[:5]
    assert model.evaluate(rows).labels == campaign.predict(range(5)).labels
