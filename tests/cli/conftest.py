"""Campaigns in folders, in which the commands run."""

import contextlib
import io
import json
import shutil
from pathlib import Path

import pytest

from labelwise.campaign.project import Project
from labelwise.cli import run
from tests.cli.folders import CLASSES, HOSTILE, read, start_plants, true_label, write


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a campaign over 60 rows of two numbers; the first tells the class."""
    monkeypatch.chdir(tmp_path)
    start_plants()
    return tmp_path


@pytest.fixture(scope="session")
def two_rounds(tmp_path_factory):
    """A folder in which two batches were asked for, labelled and trained on; what train printed."""
    place = tmp_path_factory.mktemp("two_rounds")
    printed = []
    with contextlib.chdir(place):
        start_plants()
        for name, seed in (("first.csv", "5"), ("second.csv", "6")):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                assert run(["ask", "--out", name]) == 0
                rows = [{**row, "label": true_label(row)} for row in read(name)]
                write(name, rows)
                assert run(["tell", name, "--by", "ann"]) == 0
                assert run(["train", "--seed", seed]) == 0
            printed.append(said.getvalue())
    return place, printed


@pytest.fixture
def trained(two_rounds, tmp_path, monkeypatch):
    """A copy of that folder, to change."""
    shutil.copytree(two_rounds[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """A folder with a campaign over 12 texts, one of them hostile, two labels wanted for each."""
    monkeypatch.chdir(tmp_path)
    rows = [HOSTILE, *(f"text number {row} of them" for row in range(1, 12))]
    with open("notes.jsonl", "w") as file:
        file.writelines(json.dumps({"text": row}) + "\n" for row in rows)
    Project.start(
        Path("notes.jsonl"), text="text", encoder="tfidf", classes=CLASSES, batch=12, overlap=2
    )
    return tmp_path
