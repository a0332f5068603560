"""The description of the API: complete, and what the server does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from labelwise.record.events import Asked
from labelwise.web.app import create_app

CONTRACT = {
    "get /api/session",
    "get /api/state",
    "post /api/lend",
    "post /api/labels",
    "post /api/undo",
    "post /api/skip",
    "post /api/return",
    "post /api/leave",
    "get /api/items",
    "get /api/items/{id}/image",
    "get /api/items/{id}/guess",
    "post /api/people",
    "post /api/upload",
    "get /api/model",
    "get /api/map",
    "get /api/map/places",
    "get /api/map/marks",
    "get /api/quality",
    "get /api/suggestions",
    "get /api/predictions",
    "post /api/note",
    "get /api/settings",
    "post /api/settings",
    "post /api/classes",
    "get /api/invitation",
    "get /api/disagreements",
    "post /api/resolve",
    "post /api/train",
    "get /api/history",
    "get /api/export",
}

FILES = ("image", "export", "predictions", "places", "marks", "model")

# A request that fits the description may still not fit the campaign (no such class): 400.
CONFIGURATION = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", "400", "401", "403", "404", "409", "429", "5xx"]
"""


@pytest.fixture
def project(make_project):
    made = make_project()
    made.open_record().commit(lambda ledger, now: ([Asked(now, 1, tuple(range(100)))], None))
    return made


@pytest.fixture
def described(project):
    with TestClient(create_app(project, trains=False), base_url="http://127.0.0.1") as client:
        return client.get("/api/openapi.json").json()


def operations(described):
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield f"{method} {path}", operation


def test_every_call_of_the_contract_is_described(described):
    assert {name for name, _ in operations(described)} == CONTRACT


def test_every_call_is_on_the_page_about_them():
    text = (Path(__file__).parents[2] / "docs" / "web_api.md").read_text()
    listed = re.findall(r"^\| `(GET|POST) (/api/[^`?]*)[^|]*\|", text, re.M)
    assert {f"{method.lower()} {path}" for method, path in listed} == CONTRACT


def test_every_call_says_what_it_does_what_it_gives_and_how_it_fails(described):
    for name, operation in operations(described):
        assert operation["summary"] and operation["description"], name
        answers = operation["responses"]
        good = [code for code in answers if code.startswith("2")]
        assert good and all(answers[code]["description"] for code in answers), name
        for code in ("400", "401", "403", "421", "422", "429", "503"):
            schema = answers[code]["content"]["application/json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/Error"}, (name, code)
        for code in good:
            for content in answers[code]["content"].values():
                assert name.endswith(FILES) or content["schema"], name


def test_every_change_asks_for_the_name_and_the_code(described):
    for name, operation in operations(described):
        if name.startswith("post"):
            needed = {one["name"].lower() for one in operation["parameters"] if one["required"]}
            is_file = name.endswith("/upload")  # its body is the file itself
            assert needed == {"x-annotator", "x-labelwise-csrf"} | ({"name"} if is_file else set())
            assert "413" in operation["responses"], name
            assert is_file or operation["requestBody"]["required"], name


def test_with_a_token_no_call_answers_without_it(project):
    app = create_app(project, trains=False, token="open-sesame-please")
    with TestClient(app, base_url="http://127.0.0.1") as client:
        opened = client.get(
            "/api/openapi.json", headers={"Authorization": "Bearer open-sesame-please"}
        ).json()
        for name, operation in operations(opened):
            assert operation["security"] == [{"HTTPBearer": []}]
            method, path = name.split()
            answer = client.request(method, path.replace("{id}", "0"))
            assert answer.status_code == 401 and list(answer.json()) == ["error"], name


def run_schemathesis(server, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Try what the description allows and forbids, against a real server."""
    code = server.client().headers["X-Labelwise-Csrf"]
    configuration = folder / "schemathesis.toml"
    configuration.write_text(CONFIGURATION)
    command = [Path(sys.executable).parent / "st", "--config-file", configuration, "run"]
    return subprocess.run(
        [
            *command,
            server.url + "api/openapi.json",
            *("-H", f"X-Labelwise-Csrf: {code}", "--seed", "1", "--no-color"),
            *("--warnings", "off", "--continue-on-failure", "--request-timeout", "120"),
            *("--suppress-health-check", "too_slow", *options),
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=1800,
    )


def test_schemathesis_finds_nothing(project, start_server, tmp_path):
    server = start_server(project.home, "--no-training")
    done = run_schemathesis(server, tmp_path, "--phases", "fuzzing,stateful", "-n", "8")
    assert done.returncode == 0, done.stdout
    assert "30 passed" in done.stdout
    assert not any("Traceback" in line for line in server.lines)


@pytest.mark.slow
def test_schemathesis_finds_nothing_in_a_longer_search(project, start_server, tmp_path):
    server = start_server(project.home, "--no-training")
    done = run_schemathesis(server, tmp_path, "-n", "100")
    assert done.returncode == 0, done.stdout
    assert not any("Traceback" in line for line in server.lines)
