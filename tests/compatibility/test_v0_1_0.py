"""Records and campaign folders made with version 0.1.0 open and can be worked with.

tests/data/v0.1.0 holds them, with what 0.1.0 read from them (expected.json) and the script that
made them.
"""

import contextlib
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import labelwise
from labelwise.cli import run

STORED = Path(__file__).parent.parent / "data" / "v0.1.0"
EXPECTED = json.loads((STORED / "expected.json").read_text())
CAMPAIGNS = ("photos", "reviews", "houses")

WITHOUT_TORCH = """
import json
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from labelwise.cli import run
for command in json.loads(sys.argv[1]):
    if code := run(command):
        sys.exit(code)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of the stored folder, which is the current folder."""
    place = tmp_path / "copy"
    shutil.copytree(STORED, place)
    monkeypatch.chdir(place)
    return place


def call(name, *arguments):
    """The output of a command on the campaign ``name``."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert run([*arguments, "-c", f"{name}.labelwise"]) == 0
    return printed.getvalue()


def call_without_torch(name, *commands):
    """Run commands on the campaign ``name``, one after the other, where torch is not installed."""
    lines = json.dumps([[*command, "-c", f"{name}.labelwise"] for command in commands])
    process = [sys.executable, "-c", WITHOUT_TORCH, lines]
    return subprocess.run(process, capture_output=True, text=True, encoding="utf-8")


def read_lines(name):
    return [json.loads(line) for line in Path(name).read_text(encoding="utf-8").splitlines()]


def write_label(name, item, label):
    Path(name).write_text(json.dumps({"id": item, "label": label}) + "\n")


def common(rows, expected):
    """The rows, without keys that came later."""
    return [{key: row[key] for key in old} for row, old in zip(rows, expected, strict=True)]


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_folder_shows_the_same_labels_votes_and_history(name, folder):
    expected = EXPECTED[name]
    call(name, "export", "--out", "labels.jsonl")
    call(name, "export", "--votes", "--out", "votes.jsonl")
    assert common(read_lines("labels.jsonl"), expected["labels"]) == expected["labels"]
    assert common(read_lines("votes.jsonl"), expected["votes"]) == expected["votes"]
    events = [json.loads(line) for line in call(name, "history", "--json").splitlines()]
    assert common(events, expected["events"]) == expected["events"]
    assert "ben" in call(name, "history") and "ann" in call(name, "status")


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_the_open_batch_is_still_open_and_takes_labels(name, folder):
    expected = EXPECTED[name]
    call(name, "ask", "--out", "batch.jsonl")
    assert [row["id"] for row in read_lines("batch.jsonl")] == expected["open"]
    item = expected["open"][0]
    write_label("new.jsonl", item, expected["next"])
    call(name, "tell", "new.jsonl", "--by", "cem")
    call(name, "export", "--votes", "--out", "votes.jsonl")
    votes = [row for row in read_lines("votes.jsonl") if row["by"] == "cem"]
    assert [(row["id"], row["label"]) for row in votes] == [(item, expected["next"])]
    assert len(read_lines("votes.jsonl")) == len(expected["votes"]) + 1


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_the_campaign_goes_on_with_a_training_and_a_batch(name, folder):
    call(name, "train")
    for item in EXPECTED[name]["open"]:
        write_label("new.jsonl", item, EXPECTED[name]["next"])
        call(name, "tell", "new.jsonl", "--by", "cem")
        if name == "photos":
            call(name, "tell", "new.jsonl", "--by", "dan")
    call(name, "ask", "--out", "batch.jsonl")
    labelled = {row["id"] for row in EXPECTED[name]["labels"]} | set(EXPECTED[name]["open"])
    found = [row["id"] for row in read_lines("batch.jsonl")]
    assert found and not set(found) & labelled


@pytest.mark.parametrize("name", ["reviews", "houses"])
def test_the_stored_model_chooses_the_next_batch(name, folder):
    """No new training is recorded: the batch comes from the labels of the last one."""
    for item in EXPECTED[name]["open"]:
        write_label("new.jsonl", item, EXPECTED[name]["next"])
        call(name, "tell", "new.jsonl", "--by", "cem")
    call(name, "ask", "--out", "batch.jsonl")
    events = [json.loads(line) for line in call(name, "history", "--json").splitlines()]
    assert events[-1]["kind"] == "asked" and events[-1]["model"] == 1


def test_a_record_made_in_python_opens_with_its_snapshot(folder):
    expected = EXPECTED["record"]
    storage = labelwise.open_storage("sqlite:///record.db")
    rows = np.load("record.npy")

    learner = labelwise.SklearnLearner(lambda: LogisticRegression(max_iter=1000))
    campaign = labelwise.Campaign("signs", labelwise.Pool(rows), learner, storage)
    assert {str(item): label for item, label in campaign.labels().items()} == expected["labels"]
    assert storage.length("signs") == expected["events"]
    assert [item for item in campaign.ask().ids if str(item) not in expected["labels"]] == (
        expected["open"]
    )
    campaign.tell({item: "plus" for item in expected["open"]}, by="ann")
    assert len(campaign.labels()) == len(expected["labels"]) + len(expected["open"])
    campaign.train()
    assert not set(campaign.ask().ids.tolist()) & set(campaign.labels())
    storage.close()


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_without_torch_a_folder_opens_takes_labels_and_exports(name, folder):
    expected = EXPECTED[name]
    write_label("new.jsonl", expected["open"][0], expected["next"])
    done = call_without_torch(
        name,
        ("status",),
        ("history",),
        ("ask", "--out", "batch.jsonl"),
        ("tell", "new.jsonl", "--by", "cem"),
        ("skip", str(expected["open"][1]), "--by", "cem"),
        ("undo", "--by", "cem"),
        ("export", "--out", "labels.csv"),
        ("export", "--votes", "--out", "votes.jsonl"),
    )
    assert done.returncode == 0, done.stderr
    assert len(read_lines("votes.jsonl")) == len(expected["votes"]) + 1


def test_without_torch_a_training_of_a_network_names_the_missing_extra(folder):
    done = call_without_torch("photos", ("train",))
    assert done.returncode == 1
    assert "torch" in done.stderr and "pip install 'labelwise[" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["reviews", "houses"])
def test_without_torch_texts_and_numbers_get_a_model(name, folder):
    done = call_without_torch(name, ("train",))
    assert done.returncode == 0, done.stderr
