"""``labelwise status``: what it says at every stage, and what to type next."""

import json
import os
import time
from pathlib import Path

import pytest

from labelwise.campaign.forecast import forecast_batch
from labelwise.campaign.project import Project
from labelwise.campaign.settings import Settings
from labelwise.campaign.stopping import advise, advise_campaign, select_shown
from labelwise.cli.status import find_next_campaign_command
from labelwise.record.events import (
    Asked,
    Started,
    Told,
    Trained,
    Training,
    TrainingFailed,
)
from labelwise.record.ledger import replay
from tests.cli.folders import answer, ask, label_all, write


def status(capsys, *more):
    code, out, err = answer(capsys, "status", *more)
    assert code == 0, err
    return out


def test_a_new_campaign_says_how_to_begin(folder, capsys):
    out = status(capsys)
    assert "(numbers, 60 items)" in out
    assert "labelled  0 of 60" in out
    assert out.splitlines()[-1].startswith("next      labelwise label")


def test_an_open_batch_shows_how_far_it_is(folder, capsys):
    rows = ask(capsys)
    label_all(capsys, rows[:4], by="ann", seconds=3)
    answer(capsys, "skip", rows[5]["id"], "--by", "bob")
    out = " ".join(status(capsys).split())
    assert "labelled 4 of 60" in out
    assert "batch 1 5 of 10 done, 5 waiting; chosen by random" in out
    assert "skipped 1" in out
    assert "people ann 4, bob 0" in out
    assert "4 labels in 0.0 hours (3.0 s each)" in out


def test_agreement_and_disputes_of_several_people_are_told(texts, capsys):
    items = [row["id"] for row in ask(capsys)]
    rows = [{"id": item, "label": "low", "by": by} for item in items for by in ("ann", "bob")]
    rows[1]["label"] = "high"
    write("l.csv", rows)
    answer(capsys, "tell", "l.csv")
    out = " ".join(status(capsys).split())
    assert "ann and bob agree on 11 of 12 items" in out
    assert "disputed 1 item: labelwise record disagreements" in out
    assert out.endswith("next labelwise record disagreements")


def test_labels_of_a_whole_batch_are_to_be_trained_on(folder, capsys):
    label_all(capsys, ask(capsys))
    assert status(capsys).splitlines()[-1].split() == ["next", "labelwise", "train"]


def test_a_trained_model_is_shown_with_advice_and_forecast(trained, capsys):
    out = status(capsys)
    assert "batch 2   complete" in out
    assert "model 2   trained on 14 labels; evaluating: 6 of 30 held-out labels" in out
    record = Project.open().open_record()
    found = record.ledger()
    assert f"forecast  {forecast_batch(found, record.settings).says}\n" in out
    advice = advise(found, record.settings)
    for said in advice:
        assert (f"{said.rule}: {said.says}" in out) == (said in select_shown(advice))
    assert f"advice    {advise_campaign(found, record.settings).says}" in out


def test_json_has_the_numbers(folder, capsys):
    rows = ask(capsys)
    label_all(capsys, rows[:4], by="ann", seconds=2)
    found = json.loads(status(capsys, "--json"))
    assert (found["items"], found["labelled"], found["waiting"], found["skipped"]) == (60, 4, 6, 0)
    assert found["batches"] == [{"number": 1, "size": 10, "waiting": 6}]
    assert found["people"]["ann"] == {"labels": 4, "skips": 0, "seconds": 8.0}
    assert found["stop"] is False and len(found["rules"]) >= 4 and found["advice"]


def test_a_name_cannot_steer_the_terminal(folder, capsys):
    item = int(ask(capsys)[0]["id"])
    project = Project.open()
    told = Told(at=1.0, id=item, label="low", by="[red]\x1b[2Jann\n\u202ebob")
    project.storage().append(project.name, [told])
    out = status(capsys)
    assert all(line.isprintable() for line in out.splitlines())
    assert r"[red]\x1b[2Jann \u202ebob 1" in out


def test_a_folder_without_a_campaign_is_one_line_of_error(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, err = answer(capsys, "status")
    assert (code, out) == (1, "") and len(err.splitlines()) == 1
    assert not os.listdir(tmp_path)


def test_the_campaign_is_found_by_its_folder(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder.parent)
    (home,) = Path(folder).glob("*.labelwise")
    assert "labelled  0 of 60" in status(capsys, "-c", str(home))


START = Started(at=0.0, settings={}, items=100)
BATCH = Asked(at=1.0, batch=1, ids=(3,), strategy="random")
LABEL = Told(at=2.0, id=3, label="a")
RUNNING = Training(at=time.time(), number=1, labels=1)
MODEL = Trained(at=4.0, number=1, labels=1, seconds=1.0, metrics={})
NEXT = Asked(at=5.0, batch=2, ids=(4,), strategy="margin", model=1)
ON = "labelwise label"


@pytest.mark.parametrize(
    ("events", "settings", "command"),
    [
        ([START], {}, ON),
        ([START, BATCH], {}, ON),
        ([START, BATCH, LABEL], {}, "labelwise train"),
        ([START, BATCH, LABEL, RUNNING], {}, "labelwise status"),
        ([START, BATCH, LABEL, Training(at=3.0, number=1, labels=1)], {}, "labelwise train"),
        ([START, BATCH, LABEL, TrainingFailed(at=3.0, number=1, error="x")], {}, "labelwise train"),
        ([START, BATCH, LABEL, MODEL], {}, ON),
        ([START, BATCH, LABEL, MODEL], {"budget_labels": 1}, "labelwise export --out labels.csv"),
        ([START, BATCH, LABEL, MODEL, NEXT], {}, ON),
        ([START, BATCH, LABEL, MODEL, NEXT, Told(at=6.0, id=4, label="a")], {}, "labelwise train"),
    ],
)
def test_the_next_command_fits_the_state(events, settings, command):
    two_classes = [START, Told(at=0.5, id=99, label="b"), *events[1:]]
    assert find_next_campaign_command(replay(two_classes), Settings(**settings)).startswith(command)


def test_labels_of_one_class_are_followed_by_more_labels():
    assert find_next_campaign_command(replay([START, BATCH, LABEL]), Settings()).startswith(ON)
