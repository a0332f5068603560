"""Pictures: from the campaign's folder and from nowhere else."""

import os

import pytest
from starlette.testclient import TestClient

from labelwise.campaign.project import Project
from labelwise.web.app import create_app
from tests.web.conftest import ask


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/%5c..%5capp.py",
        "/static//etc/passwd",
        "/api/items/..%2f..%2fetc%2fpasswd/image",
        "/api/items/0%2f../image",
        "/api/items/-1/image",
        "/api/items/1e3/image",
    ],
)
def test_paths_that_lead_elsewhere_are_refused(page, path):
    answer = page("ann").get(path)
    assert answer.status_code in (404, 422)
    assert "root:" not in answer.text and "import" not in answer.text


def test_a_link_out_of_the_folder_is_not_followed(page, project, digits, tmp_path):
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"not for you")
    listed = digits.folder / "scan-0007.png"
    kept = listed.read_bytes()
    listed.unlink()
    try:
        os.symlink(secret, listed)
        answer = page("ann").get("/api/items/7/image")
        assert answer.status_code == 404
        assert b"not for you" not in answer.content
        assert str(tmp_path) not in answer.text and str(digits.folder) not in answer.text
    finally:
        listed.unlink()
        listed.write_bytes(kept)


def test_nobody_learns_where_a_folder_was_that_is_gone(page, digits):
    client, elsewhere = page("ann"), digits.folder.with_name("elsewhere")
    digits.folder.rename(elsewhere)
    try:
        answer = client.get("/api/items/7/image")
    finally:
        elsewhere.rename(digits.folder)
    assert answer.json() == {"error": "item 7 has no picture in the campaign's folder"}
    assert answer.status_code == 404


def test_texts_and_numbers_have_no_picture_but_are_shown(tmp_path):
    table = tmp_path / "plants.csv"
    table.write_text("text\n" + "\n".join(f"<b>plant</b> number {n} & co" for n in range(30)))
    made = Project.start(
        table, home=tmp_path / "c", classes=["a", "b"], text="text", encoder="tfidf", batch=5
    )
    ask(made, range(5))
    with TestClient(create_app(made, trains=False), base_url="http://127.0.0.1") as client:
        code = client.get("/api/session").json()["csrf"]
        headers = {"X-Annotator": "ann", "X-Labelwise-Csrf": code}
        item = client.post("/api/lend", json={"count": 1}, headers=headers).json()["items"][0]
        assert item["text"] == "<b>plant</b> number 0 & co" and item["image"] is None
        assert client.get("/api/items/0/image").status_code == 404
