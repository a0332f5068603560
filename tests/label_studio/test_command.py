"""The commands of ``labelwise label-studio``: what they print, and one line when they fail."""

import subprocess
import sys

import pytest

import labelwise.cli.label_studio
import labelwise.cli.status  # noqa: F401
from tests.cli.folders import answer
from tests.label_studio.twin import TEXTS, TOKEN


@pytest.fixture(autouse=True)
def folder_and_token(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABEL_STUDIO_TOKEN", TOKEN)


def run_sync(capsys, twin, *more):
    return answer(capsys, "label-studio", "sync", twin.url, "--project", "5", *more)


def test_a_sync_says_what_it_did_and_what_to_do_next(capsys, twin):
    code, out, err = run_sync(capsys, twin, "--batch", "6", "--strategy", "margin")
    assert (code, err) == (0, "")
    assert "a project (texts, project 5 of" in out and "label-studio-5.labelwise" in out
    assert "tasks   30 new" in out and "6 tasks to label, written (labelwise-1)" in out
    assert "label in Label Studio" in out
    code, out, _ = run_sync(capsys, twin)
    assert code == 0 and "as before (labelwise-1)" in out and "nothing new" in out
    code, out, _ = answer(capsys, "status")
    assert code == 0 and "label-studio-5 (texts, 30 items)" in out


def test_labels_are_reported_by_kind(capsys, twin):
    run_sync(capsys, twin, "--batch", "10")
    one, two, three = twin.queue()[:3]
    twin.annotate(one, "food")
    twin.annotate(two, None)
    _, out, _ = run_sync(capsys, twin)
    assert "labels  1 new, 1 skipped" in out
    twin.delete_task(three)
    _, out, _ = run_sync(capsys, twin)
    assert "tasks  1 deleted" in out


@pytest.mark.parametrize(
    ("options", "token", "words"),
    [
        (["http://127.0.0.1:1", "-p", "5"], TOKEN, "cannot reach http://127.0.0.1:1"),
        (["URL", "-p", "6"], TOKEN, "has no project 6"),
        (["URL", "-p", "5"], "wrong-token-1", "refuses the token in LABEL_STUDIO_TOKEN"),
        (["URL", "-p", "5"], "", "no token in the variable LABEL_STUDIO_TOKEN"),
        (["URL", "-p", "5", "--token-env", "OTHER"], TOKEN, "no token in the variable OTHER"),
        (["localhost", "-p", "5"], TOKEN, "written http://HOST:PORT"),
        (["URL", "-p", "5", "-s", "bagde"], TOKEN, "bagde"),
    ],
)
def test_an_error_is_one_line_without_the_token(capsys, twin, monkeypatch, options, token, words):
    monkeypatch.setattr("labelwise.label_studio.client.PAUSE", 0.01)
    monkeypatch.setenv("LABEL_STUDIO_TOKEN", token)
    options = [twin.url if option == "URL" else option for option in options]
    code, out, err = answer(capsys, "label-studio", "sync", *options)
    assert (code, out) == (1, "") and words in err and err.count("\n") == 1
    assert not token or token not in err


def test_a_kind_of_project_that_is_not_understood_is_said_so(capsys, twin):
    twin.project["label_config"] = TEXTS.replace("<Choices", '<Choices choice="multiple"')
    code, _, err = run_sync(capsys, twin)
    assert code == 1 and "one single-choice Choices for one Image or Text" in err


def test_a_title_cannot_steer_the_terminal(capsys, twin):
    twin.project["title"] = "x\x1b[2J\nlabelwise: all is lost"
    _, out, _ = run_sync(capsys, twin)
    assert "\x1b" not in out and out.startswith(r"x\x1b[2J labelwise: all is lost (texts")


def test_serve_needs_a_campaign_from_label_studio_and_a_token(capsys, twin, monkeypatch):
    code, _, err = answer(capsys, "label-studio", "serve", "-c", "nowhere")
    assert code == 1 and "not a campaign's folder" in err
    run_sync(capsys, twin)
    serve = ("label-studio", "serve", "-c", "label-studio-5", "--port", "0")
    code, _, err = answer(capsys, *serve, "--host", "0.0.0.0")
    assert code == 1 and "a token is needed" in err
    monkeypatch.delenv("LABEL_STUDIO_TOKEN")
    code, _, err = answer(capsys, *serve)
    assert code == 1 and "no token in the variable LABEL_STUDIO_TOKEN" in err


def test_help_imports_nothing_heavy():
    script = """
import sys
import labelwise.cli.label_studio
from labelwise.cli import run
assert run(["label-studio", "sync", "--help"]) == 0
heavy = {"torch", "sklearn", "fastapi", "sqlalchemy"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
