"""Pictures that vanish while people label: they are closed, and others lent in their place."""

import shutil

import pytest
from starlette.testclient import TestClient

from labelwise.campaign.project import Project
from labelwise.record.events import Asked
from labelwise.web.app import create_app
from tests.web.conftest import CLASSES


@pytest.fixture
def project(digits, tmp_path):
    """Its own copy of the pictures, of which 0 to 7 are asked for, two labels each."""
    source = tmp_path / "digits"
    shutil.copytree(digits.folder, source)
    settings = {"classes": CLASSES, "overlap": 2, "validation": 0.0, "features": digits.pixels}
    made = Project.start(source, home=tmp_path / "digits.labelwise", **settings)
    made.open_record().commit(lambda ledger, now: ([Asked(now, 1, tuple(range(8)))], None))
    return made


@pytest.fixture
def enter(project):
    """Annotators at one server: ``enter("ann")`` gives ``call(path, **body)``."""
    with TestClient(create_app(project, trains=False), base_url="http://127.0.0.1:8600") as client:
        code = client.get("/api/session").json()["csrf"]

        def person(name):
            headers = {"X-Annotator": name, "X-Labelwise-Csrf": code, "X-Labelwise-Page": name}

            def call(path, **body):
                answer = client.post(f"/api/{path}", json=body, headers=headers)
                assert answer.status_code == 200, answer.text
                return [item["id"] for item in answer.json()["items"]]

            call.state = lambda: client.get("/api/state", headers=headers).json()
            return call

        yield person


def test_a_picture_that_is_gone_is_never_lent_and_its_one_label_stays(project, enter, caplog):
    ann, bob = enter("ann"), enter("bob")
    assert ann("lend", count=8) == list(range(8))
    ann("labels", labels=[{"id": item, "label": "3"} for item in range(8)])
    for item in (0, 2):
        project.items.path(item).unlink()
    assert bob("lend", count=3) == [1, 3, 4]
    assert "closed items whose files are missing: 0, 2" in caplog.text
    state = bob.state()
    assert state["gone"] == 2 and [one["name"] for one in state["annotators"]] == ["ann"]
    bob("labels", labels=[{"id": item, "label": "3"} for item in (1, 3, 4, 5, 6, 7)])
    ledger = project.open_record().ledger()
    assert not ledger.open_batches
    assert ledger.labels == dict.fromkeys(range(8), "3")


def test_with_the_next_labels_come_only_items_that_are_there(project, enter):
    ann = enter("ann")
    assert ann("lend", count=2) == [0, 1]
    for item in range(2, 7):
        project.items.path(item).unlink()
    assert ann("labels", labels=[{"id": 0, "label": "3"}], lend=3) == [1, 7]
    ledger = project.open_record().ledger()
    assert set(ledger.skipped) == set(range(2, 7)) and list(ledger.waiting) == [0, 1, 7]


def test_what_waits_for_somebody_who_never_comes_is_closed_too(project, enter):
    ann, bob = enter("ann"), enter("bob")
    ann("lend", count=8)
    ann("labels", labels=[{"id": item, "label": "3"} for item in range(8)])
    bob("labels", labels=[{"id": item, "label": "3"} for item in range(7)])
    project.items.path(7).unlink()
    assert ann("lend", count=2) == []
    assert not project.open_record().ledger().open_batches
    assert project.open_record().ledger().labels[7] == "3"


def test_a_folder_that_is_away_closes_nothing(project, enter):
    ann = enter("ann")
    project.source.rename(project.source.with_name("away"))
    assert ann("lend", count=3) == [0, 1, 2]
    assert not project.open_record().ledger().skipped
